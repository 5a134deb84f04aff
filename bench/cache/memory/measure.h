/*
 * measure.h - the parts of memory_bench, and their arguments.
 */
#ifndef KVB_MEASURE_H
#define KVB_MEASURE_H

#include <stdint.h>

struct kvb_options {
	unsigned rounds;  /* at most KVB_MOST_ROUNDS */
	uint64_t bytes;   /* bytes that a round puts, verifies and copies */
	uint32_t chunks;  /* chunks in the index while chains are looked up */
	uint32_t lookups; /* lookups of random chains in a round */
};

void kvb_measure_copy(const struct kvb_options *options);     /* copy.c: put, verify, get */
void kvb_measure_lookup(const struct kvb_options *options);   /* lookup.c */
void kvb_measure_metadata(const struct kvb_options *options); /* lookup.c */

void kvb_fail(const char *why) __attribute__((noreturn)); /* ends the program */

#endif
