/*
 * breaker.h - decides whether a tier that failed is left alone. Each tier has two breakers: for writes, and for all
 * other requests, so that reads go on from a disk that is read-only or over its quota.
 *
 * 	CLOSED --failures in a row--> OPEN --pause over--> HALF --one request--> PROBING
 * 	   ^                            ^                                        |    |
 * 	   |                            +------- it failed: the pause doubles ---+    |
 * 	   +------------------------------------ it worked --------------------------+
 *
 * Only refusals of the operating system and stalls are failures; a miss, a chunk that fails its check and a full store
 * are answers. A request that began before the last change of state does not count. Pauses have a jitter of an eighth,
 * so that many libraries on one device do not come back at once. All functions need the core's lock, except
 * kvt_breaker_shows and kvt_breaker_works.
 */
#ifndef KVT_BREAKER_H
#define KVT_BREAKER_H

#include "core/core.h"

enum kvt_outcome { KVT_OUTCOME_GOOD, KVT_OUTCOME_BAD, KVT_OUTCOME_NONE };

void kvt_breaker_init(struct kvt_breaker *b, const struct kvt_config *config, uint64_t seed);

/* Returns whether chunks of this tier may be counted on. Any thread. */
static inline bool kvt_breaker_shows(struct kvt_breaker *b)
{
	uint32_t state = atomic_load_explicit(&b->state, memory_order_relaxed);

	return state == KVT_BREAKER_CLOSED || state == KVT_BREAKER_HALF;
}

/* Returns whether the tier worked at its last use, so that its last answer is the newest known. Any thread. */
static inline bool kvt_breaker_works(struct kvt_breaker *b)
{
	return atomic_load_explicit(&b->state, memory_order_relaxed) == KVT_BREAKER_CLOSED;
}

/* Records the data of a request that begins, which decides later whether its result counts. */
void kvt_breaker_begin(struct kvt_breaker *b, struct kvt_job *job);
/* Records a request whose result does not count: it concerns one part of the tier. */
static inline void kvt_breaker_pass(struct kvt_job *job)
{
	job->probe = false;
	job->round = UINT64_MAX;
}
/* Takes the request's result. True: the tier is left alone from now on. */
bool kvt_breaker_end(
	struct kvt_breaker *b, const struct kvt_job *job, enum kvt_outcome outcome, int64_t now_ns);
/* Handles the passing of time. True: a probe may be sent from now on. Lowers *next_ns to the time of the next look. */
bool kvt_breaker_tick(struct kvt_breaker *b, int64_t now_ns, int64_t *next_ns);

#endif
