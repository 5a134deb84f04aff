/*
 * latency.h - durations, counted in buckets.
 *
 * Any thread may add and read; the counters are relaxed atomics. Threads are spread over a few
 * shards, each with cache lines of its own, so that two busy threads do not write the same line. A
 * reader may see a sum that lacks a value already counted.
 */
#ifndef KVT_LATENCY_H
#define KVT_LATENCY_H

#include <pthread.h>
#include <stdint.h>

#include "metrics/histogram.h"

enum kvt_latency {
	KVT_LATENCY_LOOKUP, /* one kvt_lookup */
	KVT_LATENCY_FIND,   /* one kvt_find, from its call to its answer */
	KVT_LATENCY_PROBE,  /* one question to a shared tier */
	KVT_LATENCY_GET,    /* one get, from its call to its lease or miss */
	KVT_LATENCY_PUT,    /* from reserve to the end of commit, including the copy */
	KVT_LATENCY_LOAD,   /* one chunk from a lower tier, including its wait and check */
	KVT_LATENCY_STORE,  /* one chunk to a lower tier, including its wait and sync */
	KVT_LATENCY_COUNT,
};

#define KVT_LATENCY_SHARDS 8

struct kvt_latencies {
	struct kvw_bounds bounds;
	struct {
		struct kvw_histogram of[KVT_LATENCY_COUNT];
		uint8_t apart[64];
	} shards[KVT_LATENCY_SHARDS];
};

/* Sets the buckets: from 1 us to 5 s. kvtierd uses them for its requests, too. */
static inline void kvt_latency_bounds_init(struct kvw_bounds *bounds)
{
	static const uint64_t ns[] = {1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 500000,
		1000000, 2500000, 5000000, 10000000, 25000000, 50000000, 100000000, 250000000,
		500000000, 1000000000, 5000000000};

	kvw_bounds_init(bounds, ns, sizeof(ns) / sizeof(ns[0]), 1);
}

/* Call before the functions below, with zeroed l. */
static inline void kvt_latencies_init(struct kvt_latencies *l)
{
	kvt_latency_bounds_init(&l->bounds);
}

/* ns < 0 counts as 0. */
static inline void kvt_latency_add(struct kvt_latencies *l, enum kvt_latency what, int64_t ns)
{
	uint64_t self = (uint64_t)(uintptr_t)pthread_self();
	unsigned shard = (unsigned)((self * UINT64_C(0x9e3779b97f4a7c15)) >> 61);

	kvw_histogram_observe_shared(&l->shards[shard].of[what], &l->bounds, ns);
}

/* Sums one kind of latency over all shards. */
void kvt_latency_collect(
	const struct kvt_latencies *l, enum kvt_latency what, struct kvw_histogram_sum *out);

#endif
