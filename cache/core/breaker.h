/*
 * breaker.h - decides whether a tier is used after failures. Each tier has two breakers: for
 * writes, and for all other requests, so that reads go on from a disk that is read-only or over its
 * quota.
 *
 *	CLOSED --failures in a row--> OPEN --pause over--> HALF --one request--> PROBING
 *	   ^                            ^                                        |    |
 *	   |                            +------- it failed: the pause doubles ---+    |
 *	   +------------------------------------ it worked --------------------------+
 *
 * Only errors of the operating system and stalls are failures; a miss, a chunk that fails its check
 * and a full store are normal answers. A request that began before the last change of state does
 * not count. Pauses have a jitter of an eighth, so that many libraries on one device do not come
 * back at once. The caller of any function holds the core's lock, except kvt_breaker_shows and
 * kvt_breaker_works.
 */
#ifndef KVT_BREAKER_H
#define KVT_BREAKER_H

#include "core/core.h"

enum kvt_outcome { KVT_OUTCOME_GOOD, KVT_OUTCOME_BAD, KVT_OUTCOME_NONE };

void kvt_breaker_init(struct kvt_breaker *b, const struct kvt_config *config, uint64_t seed);

/* Returns whether the tier is in use, so that its chunks can be expected. Any thread. */
static inline bool kvt_breaker_shows(struct kvt_breaker *b)
{
	uint32_t state = atomic_load_explicit(&b->state, memory_order_relaxed);

	return state == KVT_BREAKER_CLOSED || state == KVT_BREAKER_HALF;
}

/* Returns whether the tier's last request succeeded, so that its last answer is up to date. Any
 * thread. */
static inline bool kvt_breaker_works(struct kvt_breaker *b)
{
	return atomic_load_explicit(&b->state, memory_order_relaxed) == KVT_BREAKER_CLOSED;
}

/* Notes in the job when its request begins, which decides later whether the result counts. */
void kvt_breaker_begin(struct kvt_breaker *b, struct kvt_job *job);
/* Marks a request whose result does not count, since it concerns only one part of the tier. */
static inline void kvt_breaker_pass(struct kvt_job *job)
{
	job->probe = false;
	job->round = UINT64_MAX;
}
/* Counts the request's result. True: the tier is not used from now on. */
bool kvt_breaker_end(
	struct kvt_breaker *b, const struct kvt_job *job, enum kvt_outcome outcome, int64_t now_ns);
/* Ends pauses that are over. True: a probe request may be sent now. Lowers *next_ns to the time of
 * the next call. */
bool kvt_breaker_tick(struct kvt_breaker *b, int64_t now_ns, int64_t *next_ns);

#endif
