/*
 * stall.h - detects an engine that has stopped behind a living API server.
 *
 * Such a worker accepts connections and answers /health with 200 for ever, but sends nothing else.
 * Two signs together show it: no answer has progressed for upstream.stall although requests wait,
 * and its own counters (iterations, prompt and generated tokens) stand still. An engine that
 * computes a long prompt sends nothing either, but counts its iterations; one whose iteration is a
 * whole long prompt is given three times the prefill that was predicted.
 *
 * At a third of that time the worker is suspected and gets no new requests. Once the stall is
 * certain, its requests leave it, and it is ejected (ejection.h): one request at a time tries it
 * again, and waits a third of the time.
 *
 * Threads: loops record requests that they send and answers that they receive; the control thread
 * does the rest.
 */
#ifndef KVW_STALL_H
#define KVW_STALL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum kvw_stall_state { KVW_STALL_NONE, KVW_STALL_SUSPECTED, KVW_STALL_FOUND };

/* Record of one worker; zeroed at first. */
struct kvw_stall {
	_Atomic uint32_t waiting;   /* requests that were sent completely and wait for the engine */
	/* time of the last progress of an answer, or of the first send among these requests */
	_Atomic int64_t heard_ns;
	_Atomic int64_t longest_ns; /* longest predicted prefill of these requests */
	_Atomic uint8_t state;      /* enum kvw_stall_state; written by the control thread */
	/* When the counters were last seen to change; written by the control thread. 0: never. */
	_Atomic int64_t moved_ns;
	/* The control thread's: */
	double progress;            /* sum of the counters at the last reading */
	/* Time of the first reading, after the last sign of an answer, that showed these values. */
	int64_t still_ns;
	int64_t read_ns;            /* time of the last reading; 0: never */
	bool running;               /* the worker reports running requests */
};

static inline enum kvw_stall_state kvw_stall_state(const struct kvw_stall *stall)
{
	return (enum kvw_stall_state)atomic_load_explicit(&stall->state, memory_order_relaxed);
}

/* A time is written only if it changes by at least this much, to spare the cache line. */
#define KVW_STALL_GRAIN_NS 50000000

static inline void kvw_stall_heard(struct kvw_stall *stall, int64_t now_ns)
{
	if (now_ns - atomic_load_explicit(&stall->heard_ns, memory_order_relaxed) >
		KVW_STALL_GRAIN_NS)
		atomic_store_explicit(&stall->heard_ns, now_ns, memory_order_relaxed);
}

/* Zeroes the record; no request may wait. */
void kvw_stall_clear(struct kvw_stall *stall);

/* Counts a request that waits for the engine, until kvw_stall_left. */
void kvw_stall_wait(struct kvw_stall *stall, int64_t prefill_ns, int64_t now_ns);
void kvw_stall_left(struct kvw_stall *stall);

/* Records a reading of the worker's counters. */
void kvw_stall_read(struct kvw_stall *stall, double progress, bool running, int64_t now_ns);

/* Returns when the worker's counters were last seen to change; 0: never. */
static inline int64_t kvw_stall_moved_ns(const struct kvw_stall *stall)
{
	return atomic_load_explicit(&stall->moved_ns, memory_order_relaxed);
}

/* Returns for how long the worker has been silent while requests wait; 0: it is not silent. */
int64_t kvw_stall_silent_ns(const struct kvw_stall *stall, int64_t now_ns);

/* Judges the worker now. limit_ns: upstream.stall, or less during its trial. */
enum kvw_stall_state kvw_stall_judge(
	const struct kvw_stall *stall, int64_t limit_ns, int64_t now_ns);

#endif
