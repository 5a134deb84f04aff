/*
 * proc.h - reads from /proc how much CPU time and memory a process uses.
 *
 * CPU comes from schedstat, which counts nanoseconds that threads really ran, summed over the
 * process's threads. Clock ticks (/proc/PID/stat) would be too coarse for one second's window.
 */
#ifndef KVB_PROC_H
#define KVB_PROC_H

#include <stddef.h>
#include <stdint.h>

#include "kvway/err.h"

/* Returns the nanoseconds of CPU that all living threads of the process have used so far. */
enum kvw_err kvb_proc_cpu_ns(int pid, uint64_t *out) KVW_MUST_CHECK;
/* Does the same for each thread: at most `room` values, in the order of thread ids; *count is their
 * number. */
enum kvw_err kvb_proc_thread_cpu_ns(
	int pid, uint64_t *out, size_t room, size_t *count) KVW_MUST_CHECK;

/* Memory of a process in bytes, from smaps_rollup. Sockets' kernel memory is not part of it. */
struct kvb_memory {
	uint64_t rss;  /* resident, shared pages counted in full */
	uint64_t pss;  /* resident, shared pages divided among their users */
	uint64_t anon; /* resident and private: heap, stacks */
};

enum kvw_err kvb_proc_memory(int pid, struct kvb_memory *out) KVW_MUST_CHECK;

#endif
