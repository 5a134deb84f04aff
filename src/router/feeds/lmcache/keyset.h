/*
 * keyset.h - a set of chunk keys: the contents of one location of one rank.
 *
 * The exact index answers which workers hold a chunk, but not which chunks a worker holds. This set
 * does: so when an instance turns out to belong to a worker, or to hash in another way, its earlier
 * reports are moved without a new sync. Open addressing in a table whose size is a power of two, at
 * most three quarters full: 11 to 21 bytes a key. Workers choose the keys, so that the place of a
 * key depends on a random seed.
 *
 * Threads: a set belongs to one thread. Zeroed is empty.
 */
#ifndef KVW_LMCACHE_KEYSET_H
#define KVW_LMCACHE_KEYSET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvway/err.h"

struct kvw_keyset {
	uint64_t *slots; /* owned; 0: free */
	size_t room;     /* a power of two, or 0 */
	size_t count;    /* keys, the key 0 included */
	uint64_t seed;
	bool zero; /* the set has the key 0, which slots cannot hold */
};

/* Adds a key. KVW_EAGAIN: the set had it. KVW_ENOMEM. */
enum kvw_err kvw_keyset_add(struct kvw_keyset *set, uint64_t key) KVW_MUST_CHECK;

/* Makes room for this many keys, so that adding them does not move present ones. KVW_ENOMEM: adding
 * may still succeed. */
enum kvw_err kvw_keyset_reserve(struct kvw_keyset *set, size_t count) KVW_MUST_CHECK;

/* Removes a key. True: the set had it. */
bool kvw_keyset_remove(struct kvw_keyset *set, uint64_t key);

bool kvw_keyset_has(const struct kvw_keyset *set, uint64_t key);

/* Copies up to cap keys, starting at position *at (0 at first); returns their number; 0: no more.
 * The set must not change in between. */
size_t kvw_keyset_list(const struct kvw_keyset *set, size_t *at, uint64_t *keys, size_t cap);

/* Empties the set and frees its memory; the seed stays. */
void kvw_keyset_clear(struct kvw_keyset *set);

#endif
