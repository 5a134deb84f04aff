/*
 * keyed.h - finds loads, stores and tombs by their chunk's key.
 *
 * A table of a fixed number of intrusive lists: no function allocates or fails. There are as many
 * entries as operations under way, some thousands at most (and up to 131,072 more tombs while a
 * shared tier is not used). Two entries may have the same key. Keys are hashes, so some of their
 * bytes choose the list; a caller that makes keys collide slows down only itself. Not thread-safe:
 * the owner of the table locks it.
 */
#ifndef KVT_KEYED_H
#define KVT_KEYED_H

#include <stdbool.h>
#include <string.h>

#include "kvtier/kvtier.h"

#define KVT_KEYED_LISTS 1024

/* First member of every entry's struct. */
struct kvt_keyed {
	struct kvt_key key;
	struct kvt_keyed *next;
};

struct kvt_keyed_table {
	struct kvt_keyed *lists[KVT_KEYED_LISTS];
};

static inline struct kvt_keyed **kvt_keyed_list(
	struct kvt_keyed_table *table, const struct kvt_key *key)
{
	uint32_t word;

	memcpy(&word, &key->bytes[12], sizeof(word));
	return &table->lists[word % KVT_KEYED_LISTS];
}

static inline bool kvt_key_equal(const struct kvt_key *a, const struct kvt_key *b)
{
	return memcmp(a->bytes, b->bytes, KVT_KEY_BYTES) == 0;
}

/* Returns the first entry with this key, starting at `at`, which is a list's head or an entry's
 * `next`. */
static inline struct kvt_keyed *kvt_keyed_from(struct kvt_keyed *at, const struct kvt_key *key)
{
	while (at != NULL && !kvt_key_equal(&at->key, key))
		at = at->next;
	return at;
}

static inline struct kvt_keyed *kvt_keyed_find(
	struct kvt_keyed_table *table, const struct kvt_key *key)
{
	return kvt_keyed_from(*kvt_keyed_list(table, key), key);
}

static inline void kvt_keyed_add(struct kvt_keyed_table *table, struct kvt_keyed *entry)
{
	struct kvt_keyed **list = kvt_keyed_list(table, &entry->key);

	entry->next = *list;
	*list = entry;
}

static inline void kvt_keyed_remove(struct kvt_keyed_table *table, struct kvt_keyed *entry)
{
	struct kvt_keyed **at = kvt_keyed_list(table, &entry->key);

	while (*at != entry)
		at = &(*at)->next;
	*at = entry->next;
}

#endif
