/*
 * spent.h - clocks of a measurement, and how a program of this folder gives up.
 *
 * Seconds of the clock, of this process's processor time, and of a server's: a figure of bytes per
 * second says little without which process was busy.
 */
#ifndef KVB_SPENT_H
#define KVB_SPENT_H

#include <stdint.h>

#include "bench/timing.h"
#include "kvtier/kvtier.h"

/* The time that a measured part took. */
struct kvb_spent {
	double seconds;     /* by the clock */
	double cpu_seconds; /* this process, all threads, kernel included */
	double server_cpu;  /* the server's process; 0: none was named */
};

/* Starts the clocks; server_pid 0: no server. */
void kvb_spent_begin(struct kvb_spent *s, int server_pid);
void kvb_spent_end(struct kvb_spent *s, int server_pid);

/* Prints a line on standard error and ends the program with status 1. */
void kvb_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* Returns memory whose pages were touched, huge ones where possible. Ends the program if there is
 * none. */
void *kvb_memory(uint64_t bytes);

/* Fills memory with bytes made of a number; no two pages are equal. */
void kvb_pattern(void *to, uint64_t bytes, uint64_t number);

/* Returns a key made of a number. */
struct kvt_key kvb_key(uint64_t number);

#endif
