/*
 * outdated.h - keys under which a tier that cannot be asked now may have what must not be read any more.
 *
 * Of a shared tier that is left alone, or refuses a store, this handle does not know whether it has something under
 * a key that is put meanwhile. If it has, that is older, and must not come back when what was put has left memory and
 * disk. So the key is hidden in that tier, and erased there before anything is stored there under it, as
 * soon as the tier is used again; other tiers are not held up. That is kept in memory only.
 */
#ifndef KVT_OUTDATED_H
#define KVT_OUTDATED_H

#include "core/core.h"

/* What tiers that cannot be asked now may have under this key is not read from now on: of shared ones that are left
 * alone, and of stores that another process owns (refused.h). The caller has the key's place in L1
 * (kvt_put_reserve), so that no load of it is under way, and publishes afterwards. KVT_EXISTS: a local
 * tier has it, which is to be erased instead; KVT_BUSY: too many keys wait for a shared tier; KVT_ENOMEM. Without lock. */
enum kvt_status kvt_outdate(struct kvt *k, const struct kvt_key *key) KVT_MUST_CHECK;

/* How many keys wait for their tier. Without lock. */
size_t kvt_outdated_count(struct kvt *k);

/* --- under lock --- */

/* The tier is to erase these keys once it is used again, and does not show them until it has. Where they
 * would be too many it erases all that it has instead. False: not now. */
bool kvt_outdated_add(struct kvt_lower *b, const struct kvt_key *keys, size_t n) KVT_MUST_CHECK;
/* A store of this key to this tier ended without being written: refused by the tier, or dropped. If this handle replaces
 * chunks (kvt_outdate), and the tier fails, what it has of the key may be older. */
void kvt_outdated_unwritten(struct kvt_lower *b, const struct kvt_key *key, bool refused);
/* Has the tier erase them, if it is used again. *next_ns as kvt_lower_tick. */
size_t kvt_outdated_tick(struct kvt_lower *b, int64_t now_ns, int64_t *next_ns);
void kvt_outdated_finish(struct kvt_lower *b); /* nothing is under way any more */

#endif
