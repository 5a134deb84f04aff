/*
 * spent.h - clocks of a measurement, and how a program of this folder gives up.
 *
 * Seconds of the clock, of this process's processor time, and of a server's: a figure of bytes per
 * second says little without which process was busy.
 */
#ifndef KVB_SPENT_H
#define KVB_SPENT_H

#include <stdint.h>

#include "kvtier/kvtier.h"

/* What a timed part took. */
struct kvb_spent {
	double seconds;     /* by the clock */
	double cpu_seconds; /* this process, all threads, kernel included */
	double server_cpu;  /* the server's process; 0: none was named */
};

double kvb_seconds(void);

/* server_pid 0: none. */
void kvb_spent_begin(struct kvb_spent *s, int server_pid);
void kvb_spent_end(struct kvb_spent *s, int server_pid);

/* A line on standard error, and the end of the program with status 1. */
void kvb_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* `bytes` of memory in huge pages where there are some, touched. Ends the program if there are none. */
void *kvb_memory(uint64_t bytes);

/* Bytes that are a function of a number: no two pages alike. */
void kvb_pattern(void *to, uint64_t bytes, uint64_t number);

/* A key that is a function of a number. */
struct kvt_key kvb_key(uint64_t number);

#endif
