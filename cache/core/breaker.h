/*
 * breaker.h - whether a tier that failed is to be left alone. Each tier has two: for writes, and for
 * all else, so that a disk that is read-only or over its quota is read from on.
 *
 *	CLOSED --failures in a row--> OPEN --pause over--> HALF --one request--> PROBING
 *	   ^                            ^                                        |    |
 *	   |                            +------- it failed: the pause doubles ---+    |
 *	   +------------------------------------ it worked --------------------------+
 *
 * Only refusals of the operating system and stalls are failures; a miss, a chunk that fails its
 * check and a full store are answers. What was begun before the last change of state says nothing
 * about the present one and is not counted. Pauses have a jitter of an eighth, so that many
 * libraries on one device do not come back at once. All under the core's lock, but for
 * kvt_breaker_shows.
 */
#ifndef KVT_BREAKER_H
#define KVT_BREAKER_H

#include "core/core.h"

enum kvt_outcome { KVT_OUTCOME_GOOD, KVT_OUTCOME_BAD, KVT_OUTCOME_NONE };

void kvt_breaker_init(struct kvt_breaker *b, const struct kvt_config *config, uint64_t seed);

/* Are chunks of this tier to be counted on? Any thread. */
static inline bool kvt_breaker_shows(struct kvt_breaker *b)
{
	uint32_t state = atomic_load_explicit(&b->state, memory_order_relaxed);

	return state == KVT_BREAKER_CLOSED || state == KVT_BREAKER_HALF;
}

/* Did it work when it was used last? Then what it said is the newest that is known. Any thread. */
static inline bool kvt_breaker_works(struct kvt_breaker *b)
{
	return atomic_load_explicit(&b->state, memory_order_relaxed) == KVT_BREAKER_CLOSED;
}

/* A request is begun: records what decides later whether its result counts. */
void kvt_breaker_begin(struct kvt_breaker *b, struct kvt_job *job);
/* A request is begun whose result does not count: it concerns one part of the tier. */
static inline void kvt_breaker_pass(struct kvt_job *job)
{
	job->probe = false;
	job->round = UINT64_MAX;
}
/* Its result. True: the tier is left alone from now on. */
bool kvt_breaker_end(
	struct kvt_breaker *b, const struct kvt_job *job, enum kvt_outcome outcome, int64_t now_ns);
/* Time passed. True: a probe may be sent from now on. *next_ns: lowered to when to look again. */
bool kvt_breaker_tick(struct kvt_breaker *b, int64_t now_ns, int64_t *next_ns);

#endif
