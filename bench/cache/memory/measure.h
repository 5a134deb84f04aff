/*
 * measure.h - the parts of memory_bench, and their arguments.
 */
#ifndef KVB_MEASURE_H
#define KVB_MEASURE_H

#include <stdint.h>

struct kvb_options {
	unsigned rounds;  /* at most KVB_MOST_ROUNDS */
	uint64_t bytes;   /* that are put, verified and copied in a round */
	uint32_t chunks;  /* among which chains are looked up */
	uint32_t lookups; /* of random chains, in a round */
};

void kvb_measure_copy(const struct kvb_options *options);     /* copy.c: put, verify, get */
void kvb_measure_lookup(const struct kvb_options *options);   /* lookup.c */
void kvb_measure_metadata(const struct kvb_options *options); /* lookup.c */

void kvb_fail(const char *why) __attribute__((noreturn)); /* ends the program */

#endif
