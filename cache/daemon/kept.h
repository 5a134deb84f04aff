/*
 * kept.h - objects that are not evicted because clients ask for it.
 *
 * Some small objects are worth more than their uses show: an engine of libkvtier keeps its epochs here, and
 * when one is lost, everything that was stored under it is. A client that leases such an object asks to
 * keep it (keep=1), and it is pinned, if it is no larger than 64 KiB (KVT_ARENA_UNIT). The table says which are:
 * of a bounded number, so that no client can fill the segment with them; one that is asked for takes the place
 * of the one that was not for the longest time among eight. An object that left (erased, replaced, after a
 * restart) is pinned again when a client asks for it next. Thread-safe.
 */
#ifndef KVT_KEPT_H
#define KVT_KEPT_H

#include "chunk/note.h"

struct kvt_kept;

/* cache: borrowed. most: objects, at least 1. KVT_ENOMEM. */
enum kvt_status kvt_kept_create(
	struct kvt *cache, uint32_t most, struct kvt_kept **out) KVT_MUST_CHECK;
void kvt_kept_destroy(struct kvt_kept *kept); /* NULL is allowed; pins stay */

/* A client asks to keep the object of this key, which is in memory. Larger ones are not kept. */
void kvt_kept_ask(struct kvt_kept *kept, const struct kvt_key *key);

#endif
