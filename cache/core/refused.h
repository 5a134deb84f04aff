/*
 * refused.h - a local tier whose store could not be opened: it is tried again, with longer and longer
 * pauses, as long as the handle lives. Until then the cache works without it.
 *
 * Another process owns the store (a new process starts before the old one has ended, or two use one
 * path), or the disk is full, read-only, or not this user's. A store that is lost later, since its
 * folder or lock was removed, is such a store from then on; this handle empties it before it uses it
 * again.
 */
#ifndef KVT_REFUSED_H
#define KVT_REFUSED_H

#include "core/core.h"

/* The tier's create has just said `why` to these options; the configuration still has its texts.
 * KVT_ENOMEM. */
enum kvt_status kvt_refused_begin(struct kvt_lower *b, const struct kvt_tier_options *options,
	enum kvt_status why) KVT_MUST_CHECK;
/* A tier was made with these options: keeps what it takes to make another one when its store is
 * lost. KVT_ENOMEM. */
enum kvt_status kvt_refused_spare(
	struct kvt_lower *b, const struct kvt_tier_options *options) KVT_MUST_CHECK;
void kvt_refused_destroy(struct kvt_refused *r); /* NULL is allowed */

/* Asks again if the pause is over, or the store was lost. By the thread that will step the tier.
 * *next_ns: lowered to when to call again. Returns 1 if the tier is there now, else 0. */
size_t kvt_refused_step(struct kvt_lower *b, int64_t *next_ns);

/* Is its store asked for, and not for so long that what keeps it away seems to stay? Then what it
 * holds may be there soon. Under lock. */
bool kvt_refused_may_have(const struct kvt_lower *b);

/*
 * What a caller erases or limits meanwhile, for when the store comes: it may have such chunks of the
 * process that owns it now, and this handle must not read them. Under lock; nothing happens where
 * the tier is not refused. Erases cannot fail: without memory for it all of the store is emptied.
 * They are kept in memory only: true says that one is, and so is not durable.
 */
bool kvt_refused_erase(struct kvt_lower *b, const struct kvt_key *keys, size_t n) KVT_MUST_CHECK;
bool kvt_refused_erase_tenant(
	struct kvt_lower *b, const struct kvt_tenant *tenant) KVT_MUST_CHECK; /* NULL: all */
/* Also while the tier is there, for when it is lost. KVT_FULL: of too many tenants; KVT_ENOMEM. */
enum kvt_status kvt_refused_limit(
	struct kvt_lower *b, const struct kvt_tenant *tenant, uint64_t bytes) KVT_MUST_CHECK;

#endif
