/*
 * lower.h - requests to the tiers below L1, and what comes of them.
 */
#ifndef KVT_BELOW_H
#define KVT_BELOW_H

#include "core/breaker.h"
#include "core/core.h"

/* Makes the tier. Without one `state` and `reason` say why; that is no failure but for KVT_ENOMEM
 * and KVT_EINVAL. */
enum kvt_status kvt_lower_init(
	struct kvt_lower *b, struct kvt *k, const struct kvt_tier_ops *ops) KVT_MUST_CHECK;
void kvt_lower_finish(struct kvt_lower *b); /* nothing is under way */

/* May its chunks be counted on? Any thread. */
static inline bool kvt_lower_shows(struct kvt_lower *b)
{
	return b->tier != NULL && kvt_breaker_shows(&b->breaker);
}

/* The first tier that has this chunk and may be used; NULL: none. Any thread, but not with `lock`
 * held if `locked` is false. */
struct kvt_lower *kvt_lower_holding(struct kvt *k, const struct kvt_key *key, uint32_t tier_mask,
	bool locked, struct kvt_tier_known *known);

/* Hands a request over; it comes back through kvt_lower_reap. Under lock. */
void kvt_lower_submit(struct kvt_lower *b, struct kvt_job *job, enum kvt_job_kind kind);

/* Steps the tier once, waiting up to wait_ns, and deals with what is finished. From its thread, or
 * the caller that steps for it; without lock. Returns what was done. */
size_t kvt_lower_step(struct kvt_lower *b, int64_t wait_ns, int64_t *next_ns);

/* Pauses that are over and requests that take too long. Under lock. *next_ns: lowered to when to
 * look again. Returns what was done. */
size_t kvt_lower_tick(struct kvt_lower *b, int64_t now_ns, int64_t *next_ns);

/* Starts what may be started now, in all tiers. Under lock. */
void kvt_pump(struct kvt *k);

#endif
