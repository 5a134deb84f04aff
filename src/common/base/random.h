/*
 * random.h - random numbers from a seed (SplitMix64), for jitter and choices. They are not safe for
 * secrets.
 *
 * The caller owns the state, which only one thread may use at a time. Any value may be the seed.
 */
#ifndef KVW_RANDOM_H
#define KVW_RANDOM_H

#include <stdint.h>

static inline uint64_t kvw_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* Returns a number below `limit`; 0 if the limit is 0. */
static inline uint32_t kvw_random_below(uint64_t *state, uint32_t limit)
{
	return (uint32_t)(((kvw_random(state) >> 32) * limit) >> 32);
}

/* From 0 to below 1. */
static inline double kvw_random_fraction(uint64_t *state)
{
	return (double)(kvw_random(state) >> 11) * 0x1p-53;
}

#endif
