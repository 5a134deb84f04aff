/*
 * refused.h - retries a local tier whose store could not be opened, with longer and longer pauses,
 * as long as the handle lives. Until then the cache works without this tier.
 *
 * The cause may be that another process owns the store (a new process starts before the old one has
 * ended, or two use one path), or that the disk is full, read-only, or not this user's. A store
 * that is lost later, since its folder or lock was removed, is handled the same way from then on;
 * this handle empties it before using it again.
 */
#ifndef KVT_REFUSED_H
#define KVT_REFUSED_H

#include "core/core.h"

/* Notes that creating the tier with these options has failed for the reason `why`; the
 * configuration must still have its texts. KVT_ENOMEM. */
enum kvt_status kvt_refused_begin(struct kvt_lower *b, const struct kvt_tier_options *options,
	enum kvt_status why) KVT_MUST_CHECK;
/* Keeps copies of the options with which the tier was made, to make it again if its store is lost.
 * KVT_ENOMEM. */
enum kvt_status kvt_refused_spare(
	struct kvt_lower *b, const struct kvt_tier_options *options) KVT_MUST_CHECK;
void kvt_refused_destroy(struct kvt_refused *r); /* NULL is allowed */

/* Retries if the pause is over, or the store was lost. Called by the thread that will step the
 * tier. *next_ns: lowered to the time of the next call. Returns 1 if the tier is there now, else
 * 0. */
size_t kvt_refused_step(struct kvt_lower *b, int64_t *next_ns);

/* Returns whether the store is being retried, and has not been for so long that its owner seems to
 * stay: then its chunks may be available soon. The caller holds `lock`. */
bool kvt_refused_may_have(const struct kvt_lower *b);

/*
 * Remembers keys that a caller erases while the store is closed: its present owner may have such
 * chunks there, and this handle must not read them afterwards. The caller holds `lock`; no effect
 * where the tier is not refused. Cannot fail: if memory is short, the whole store will be emptied.
 * Returns true if an erase is remembered; it is not durable, since it is only in memory.
 */
bool kvt_refused_erase(struct kvt_lower *b, const struct kvt_key *keys, size_t n) KVT_MUST_CHECK;
bool kvt_refused_erase_tenant(
	struct kvt_lower *b, const struct kvt_tenant *tenant) KVT_MUST_CHECK; /* NULL: all */
/* Remembers a tenant's limit, also while the tier is there, for the case that its store is lost.
 * KVT_FULL: too many tenants; KVT_ENOMEM. */
enum kvt_status kvt_refused_limit(
	struct kvt_lower *b, const struct kvt_tenant *tenant, uint64_t bytes) KVT_MUST_CHECK;

#endif
