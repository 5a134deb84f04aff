/*
 * lower.h - requests to the tiers below L1.
 *
 * What a request is for is its caller's business: it comes back through the function that was
 * given with it. A tier that is left alone is marked as given up; kvt_moves_step and
 * kvt_moves_tick then end the waits for it.
 */
#ifndef KVT_BELOW_H
#define KVT_BELOW_H

#include "core/breaker.h"
#include "core/core.h"
#include "core/names.h"

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

/* And may they be read now? Not while it is unknown which of them others have erased. */
static inline bool kvt_lower_readable(struct kvt_lower *b)
{
	return kvt_lower_shows(b) && kvt_names_show(b->k, b);
}

/* Do others store in this tier, which is there? */
static inline bool kvt_lower_is_shared(const struct kvt_lower *b)
{
	return b->tier->ops->unsure != NULL;
}

/* What the tier, which is there, knows of a key. */
bool kvt_lower_knows(struct kvt_lower *b, const struct kvt_key *key, struct kvt_tier_known *known);
bool kvt_lower_has(struct kvt_lower *b, const struct kvt_key *key);
bool kvt_lower_unsure(struct kvt_lower *b, const struct kvt_key *key);
size_t kvt_lower_pin(struct kvt_lower *b, const struct kvt_key *key, bool pin);

/* The first tier that has this chunk and may be used; NULL: none. Any thread, but not with `lock`
 * held if `locked` is false. */
struct kvt_lower *kvt_lower_holding(struct kvt *k, const struct kvt_key *key, uint32_t tier_mask,
	bool locked, struct kvt_tier_known *known);

/* May a tier have this chunk, though kvt_lower_holding does not find it there? A local tier that is left alone, by
 * its index; a shared one that is left alone, or that was not asked or did not answer; for a minute, a store that
 * another process owns. False: it is nowhere. Any thread, without `lock`. */
bool kvt_lower_may_have(struct kvt *k, const struct kvt_key *key);

/* Does a tier know this chunk, though it may be left alone now? Any thread, without `lock`. */
bool kvt_lower_is_known(struct kvt *k, const struct kvt_key *key);

/* Hands a request over; `done` gets it back, once, from kvt_moves_step. Under lock. */
void kvt_lower_submit(
	struct kvt_lower *b, struct kvt_job *job, void (*done)(struct kvt *k, struct kvt_job *job));

/* Requests that the tier has done with, oldest first by next_finished; NULL: none. Each of them is
 * then given to kvt_lower_take_back and to its done(). From the tier's thread. */
struct kvt_job *kvt_lower_finished(struct kvt_lower *b);
/* It is no longer under way, and its result counts for or against the tier. Under lock. */
void kvt_lower_take_back(struct kvt_lower *b, struct kvt_job *job);

/* Pauses that are over and requests that take too long. Under lock. *next_ns: lowered to when to
 * look again. Returns what was done. */
size_t kvt_lower_tick(struct kvt_lower *b, int64_t now_ns, int64_t *next_ns);

#endif
