/*
 * chunk_names.c - a hash table of chunks with two keys.
 *
 * Entries lie in one array that grows by doubling, free entries in a list. Two arrays of list
 * heads, as long as the array of entries, find them: one by storage key, one by LMCache's hash.
 * Keys are hashes already; LMCache's hashes are mixed, since clients that send prompts may choose
 * them. Growth moves all entries, once for each doubling.
 */
#include <stdlib.h>
#include <string.h>

#include "lmcache/chunk_names.h"

#define NONE        UINT32_MAX
#define FIRST_COUNT 64u

struct entry {
	struct kvt_key key;
	uint64_t hash;
	uint32_t next_by_key, next_by_hash; /* the member next_by_key also links free entries */
	/* one bit for each location that holds the chunk; 0: the entry is free */
	uint32_t locations;
};

struct kvt_chunk_names {
	struct entry *entries;
	uint32_t *by_key, *by_hash; /* `size` heads each */
	uint32_t size, most; /* number of allocated entries, a power of two or `most` */
	uint32_t used, count, free;
};

struct kvt_chunk_names *kvt_chunk_names_create(uint32_t most)
{
	struct kvt_chunk_names *names = calloc(1, sizeof(*names));

	if (names == NULL)
		return NULL;
	names->most = most;
	names->free = NONE;
	return names;
}

void kvt_chunk_names_destroy(struct kvt_chunk_names *names)
{
	if (names == NULL)
		return;
	free(names->entries);
	free(names->by_key);
	free(names->by_hash);
	free(names);
}

static uint32_t key_slot(const struct kvt_chunk_names *names, const struct kvt_key *key)
{
	uint64_t word;

	memcpy(&word, key->bytes, sizeof(word));
	return (uint32_t)(word % names->size);
}

static uint32_t hash_slot(const struct kvt_chunk_names *names, uint64_t hash)
{
	hash *= UINT64_C(0x9e3779b97f4a7c15);
	return (uint32_t)((hash ^ hash >> 32) % names->size);
}

static void link_entry(struct kvt_chunk_names *names, uint32_t i)
{
	struct entry *e = &names->entries[i];
	uint32_t *by_key = &names->by_key[key_slot(names, &e->key)];
	uint32_t *by_hash = &names->by_hash[hash_slot(names, e->hash)];

	e->next_by_key = *by_key;
	*by_key = i;
	e->next_by_hash = *by_hash;
	*by_hash = i;
}

static void unlink_entry(struct kvt_chunk_names *names, uint32_t i)
{
	struct entry *e = &names->entries[i];
	uint32_t *at = &names->by_key[key_slot(names, &e->key)];

	while (*at != i)
		at = &names->entries[*at].next_by_key;
	*at = e->next_by_key;
	at = &names->by_hash[hash_slot(names, e->hash)];
	while (*at != i)
		at = &names->entries[*at].next_by_hash;
	*at = e->next_by_hash;
}

static bool grow(struct kvt_chunk_names *names)
{
	uint32_t size = names->size == 0 ? FIRST_COUNT : names->size;
	struct entry *entries;
	uint32_t *by_key, *by_hash;

	if (names->size != 0)
		size = size > names->most / 2 ? names->most : 2 * size;
	size = size < names->most ? size : names->most;
	if (size <= names->size)
		return false;
	by_key = malloc(size * sizeof(*by_key));
	by_hash = malloc(size * sizeof(*by_hash));
	entries = by_key != NULL && by_hash != NULL
			  ? realloc(names->entries, size * sizeof(*entries))
			  : NULL;
	if (entries == NULL) {
		free(by_key);
		free(by_hash);
		return false;
	}
	free(names->by_key);
	free(names->by_hash);
	names->entries = entries;
	names->by_key = by_key;
	names->by_hash = by_hash;
	names->size = size;
	memset(by_key, 0xff, size * sizeof(*by_key));
	memset(by_hash, 0xff, size * sizeof(*by_hash));
	for (uint32_t i = 0; i < names->used; i++) /* the array grows only if no entry is free */
		link_entry(names, i);
	return true;
}

static uint32_t find_key(const struct kvt_chunk_names *names, const struct kvt_key *key)
{
	uint32_t i = names->size == 0 ? NONE : names->by_key[key_slot(names, key)];

	while (i != NONE && memcmp(names->entries[i].key.bytes, key->bytes, KVT_KEY_BYTES) != 0)
		i = names->entries[i].next_by_key;
	return i;
}

/* Finds an entry with this hash in this location; returns NONE if there is none. */
static uint32_t find_hash(const struct kvt_chunk_names *names, uint32_t location, uint64_t hash)
{
	uint32_t i = names->size == 0 ? NONE : names->by_hash[hash_slot(names, hash)];

	while (i != NONE && (names->entries[i].hash != hash ||
				    (names->entries[i].locations & 1u << location) == 0))
		i = names->entries[i].next_by_hash;
	return i;
}

static uint32_t new_entry(struct kvt_chunk_names *names)
{
	uint32_t i = names->free;

	if (i != NONE) {
		names->free = names->entries[i].next_by_key;
		return i;
	}
	if (names->used == names->size && !grow(names))
		return NONE;
	return names->used++;
}

enum kvt_chunk_news kvt_chunk_names_add(
	struct kvt_chunk_names *names, uint32_t location, const struct kvt_key *key, uint64_t hash)
{
	bool known = find_hash(names, location, hash) != NONE;
	uint32_t i = find_key(names, key);

	if (i != NONE && names->entries[i].hash != hash)
		/* if a chunk is added with another hash, it keeps its first one until it is gone */
		return KVT_CHUNK_NOTHING;
	if (i == NONE) {
		i = new_entry(names);
		if (i == NONE)
			return KVT_CHUNK_NO_ROOM;
		names->entries[i] = (struct entry){.key = *key, .hash = hash};
		link_entry(names, i);
		names->count++;
	}
	names->entries[i].locations |= 1u << location;
	return known ? KVT_CHUNK_NOTHING : KVT_CHUNK_TOLD;
}

enum kvt_chunk_news kvt_chunk_names_remove(
	struct kvt_chunk_names *names, uint32_t location, const struct kvt_key *key, uint64_t *hash)
{
	uint32_t i = find_key(names, key);
	struct entry *e;

	if (i == NONE || (names->entries[i].locations & 1u << location) == 0)
		return KVT_CHUNK_NOTHING;
	e = &names->entries[i];
	*hash = e->hash;
	e->locations &= ~(1u << location);
	if (e->locations == 0) {
		unlink_entry(names, i);
		e->next_by_key = names->free;
		names->free = i;
		names->count--;
	}
	return find_hash(names, location, *hash) != NONE ? KVT_CHUNK_NOTHING : KVT_CHUNK_TOLD;
}

bool kvt_chunk_names_find(
	const struct kvt_chunk_names *names, uint32_t location, uint64_t hash, struct kvt_key *key)
{
	uint32_t i = find_hash(names, location, hash);

	if (i != NONE)
		*key = names->entries[i].key;
	return i != NONE;
}

uint32_t kvt_chunk_names_walk(const struct kvt_chunk_names *names, uint32_t location,
	uint32_t *cursor, uint32_t slots, uint64_t *out)
{
	uint32_t found = 0, end = names->used;

	if (slots < end - *cursor)
		end = *cursor + slots;
	for (; *cursor < end; (*cursor)++)
		if ((names->entries[*cursor].locations & 1u << location) != 0)
			out[found++] = names->entries[*cursor].hash;
	if (*cursor >= names->used)
		*cursor = 0;
	return found;
}

uint32_t kvt_chunk_names_count(const struct kvt_chunk_names *names)
{
	return names->count;
}

uint64_t kvt_chunk_names_bytes(const struct kvt_chunk_names *names)
{
	return sizeof(*names) +
	       (uint64_t)names->size * (sizeof(struct entry) + 2 * sizeof(uint32_t));
}
