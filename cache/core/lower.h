/*
 * lower.h - requests to the tiers below L1.
 *
 * A finished request goes back to the function that was given with it. A tier that is no longer
 * used after failures is marked as given up; kvt_moves_step and kvt_moves_tick then end the waits
 * for it.
 */
#ifndef KVT_BELOW_H
#define KVT_BELOW_H

#include "core/breaker.h"
#include "core/core.h"
#include "core/names.h"

/* Makes the tier. If that fails, `state` and `reason` say why; only KVT_ENOMEM and KVT_EINVAL are
 * failures of this function. */
enum kvt_status kvt_lower_init(
	struct kvt_lower *b, struct kvt *k, const struct kvt_tier_ops *ops) KVT_MUST_CHECK;
void kvt_lower_finish(struct kvt_lower *b); /* nothing is under way */

/* Returns whether the tier is there and in use. Any thread. */
static inline bool kvt_lower_shows(struct kvt_lower *b)
{
	return b->tier != NULL && kvt_breaker_shows(&b->breaker);
}

/* Returns whether the tier's chunks may be read now: the tier is in use, and it is known which of
 * its chunks other processes have erased. */
static inline bool kvt_lower_readable(struct kvt_lower *b)
{
	return kvt_lower_shows(b) && kvt_names_show(b->k, b);
}

/* Returns whether other processes store in this tier, too. The tier must be there. */
static inline bool kvt_lower_is_shared(const struct kvt_lower *b)
{
	return b->tier->ops->unsure != NULL;
}

/* Asks the tier's own records, without a request, what it knows of a key. The tier must be
 * there. */
bool kvt_lower_knows(struct kvt_lower *b, const struct kvt_key *key, struct kvt_tier_known *known);
bool kvt_lower_has(struct kvt_lower *b, const struct kvt_key *key);
bool kvt_lower_unsure(struct kvt_lower *b, const struct kvt_key *key);
size_t kvt_lower_pin(struct kvt_lower *b, const struct kvt_key *key, bool pin);

/* Returns the first usable tier that has this chunk; NULL: none. Any thread. locked: the caller
 * holds `lock`; false: it does not. */
struct kvt_lower *kvt_lower_holding(struct kvt *k, const struct kvt_key *key, uint32_t tier_mask,
	bool locked, struct kvt_tier_known *known);

/* Returns whether a tier may have this chunk, though kvt_lower_holding finds none: a local tier
 * that is not in use, if its index has the chunk; a shared tier that is not in use, was not asked
 * or did not answer; for a minute, a store that another process owns. False: no tier has it. Any
 * thread; the caller does not hold `lock`. */
bool kvt_lower_may_have(struct kvt *k, const struct kvt_key *key);

/* Returns whether a tier knows this chunk, even a tier that is not in use now. Any thread; the
 * caller does not hold `lock`. */
bool kvt_lower_is_known(struct kvt *k, const struct kvt_key *key);

/* Sends a request to the tier; kvt_moves_step later calls `done` once. The caller holds `lock`. */
void kvt_lower_submit(
	struct kvt_lower *b, struct kvt_job *job, void (*done)(struct kvt *k, struct kvt_job *job));

/* Returns the requests that the tier has finished, oldest first, linked by next_finished; NULL:
 * none. The caller then passes each to kvt_lower_take_back and to its done(). Called by the tier's
 * thread. */
struct kvt_job *kvt_lower_finished(struct kvt_lower *b);
/* Takes a finished request off the list of those under way, and counts its result for or against
 * the tier. The caller holds `lock`. */
void kvt_lower_take_back(struct kvt_lower *b, struct kvt_job *job);

/* Ends pauses that are over, and counts requests that take too long. The caller holds `lock`.
 * Lowers *next_ns to the time of the next call. Returns the number of actions. */
size_t kvt_lower_tick(struct kvt_lower *b, int64_t now_ns, int64_t *next_ns);

#endif
