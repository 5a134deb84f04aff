/*
 * jwt_cache.c - a hash table of verified tokens.
 *
 * The table has sets of eight entries. The hash of a token chooses a set, which is searched
 * linearly; every LOCKS-th set shares a lock. A hash is as good as random, and only signed tokens
 * are entered, so a client can evict another's entries only with thousands of tokens.
 */
#include "auth/jwt_cache.h"

#include <openssl/crypto.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define WAYS  8
#define LOCKS 64 /* a power of two */

/* A token; ring NULL: none. */
struct entry {
	struct kvw_digest digest;
	struct kvw_keyring *ring; /* a reference */
	uint64_t generation, used;
	int64_t ends_s;
};

struct kvw_jwt_cache {
	size_t mask; /* number of sets - 1 */
	pthread_mutex_t locks[LOCKS];
	/* a counter for each lock, under that lock: incremented with each use of an entry */
	uint64_t turns[LOCKS];
	struct entry *entries; /* (mask + 1) * WAYS entries; NULL: there is no cache */
};

enum kvw_err kvw_jwt_cache_create(size_t most, struct kvw_jwt_cache **out)
{
	struct kvw_jwt_cache *cache = calloc(1, sizeof(*cache));
	size_t sets = 1;

	if (cache == NULL)
		return KVW_ENOMEM;
	while (sets * WAYS < most)
		sets *= 2;
	cache->mask = sets - 1;
	for (size_t i = 0; i < LOCKS; i++)
		pthread_mutex_init(&cache->locks[i], NULL);
	if (most > 0) {
		cache->entries = calloc(sets * WAYS, sizeof(cache->entries[0]));
		if (cache->entries == NULL) {
			kvw_jwt_cache_destroy(cache);
			return KVW_ENOMEM;
		}
	}
	*out = cache;
	return KVW_OK;
}

void kvw_jwt_cache_destroy(struct kvw_jwt_cache *cache)
{
	if (cache == NULL)
		return;
	for (size_t i = 0; cache->entries != NULL && i < (cache->mask + 1) * WAYS; i++)
		kvw_keyring_unref(cache->entries[i].ring);
	for (size_t i = 0; i < LOCKS; i++)
		pthread_mutex_destroy(&cache->locks[i]);
	free(cache->entries);
	free(cache);
}

static size_t set_of(const struct kvw_jwt_cache *cache, const struct kvw_digest *digest)
{
	uint64_t place;

	memcpy(&place, digest->bytes, sizeof(place));
	return place & cache->mask;
}

static bool has_digest(const struct entry *entry, const struct kvw_digest *digest)
{
	return entry->ring != NULL &&
	       CRYPTO_memcmp(entry->digest.bytes, digest->bytes, sizeof(digest->bytes)) == 0;
}

struct kvw_keyring *kvw_jwt_cache_find(struct kvw_jwt_cache *cache, const struct kvw_digest *digest,
	uint64_t generation, int64_t now_s)
{
	size_t set = set_of(cache, digest), lock = set & (LOCKS - 1);
	struct kvw_keyring *ring = NULL;
	struct entry *entries;

	if (cache->entries == NULL)
		return NULL;
	entries = cache->entries + set * WAYS;
	pthread_mutex_lock(&cache->locks[lock]);
	for (size_t i = 0; i < WAYS && ring == NULL; i++) {
		if (!has_digest(&entries[i], digest))
			continue;
		if (entries[i].generation != generation || now_s >= entries[i].ends_s)
			break;
		entries[i].used = ++cache->turns[lock];
		ring = entries[i].ring;
		kvw_keyring_ref(ring);
	}
	pthread_mutex_unlock(&cache->locks[lock]);
	return ring;
}

/* Returns the place for a new token: its own former one, a free one, an expired one, or the least
 * recently used one. */
static struct entry *place_for(
	struct entry *entries, const struct kvw_digest *digest, uint64_t generation, int64_t now_s)
{
	struct entry *place = NULL;
	uint64_t least = UINT64_MAX;

	for (size_t i = 0; i < WAYS; i++) {
		struct entry *entry = &entries[i];
		bool ended = entry->ring == NULL || entry->generation != generation ||
			     now_s >= entry->ends_s;
		uint64_t used = ended ? 0 : entry->used;

		if (has_digest(entry, digest))
			return entry;
		if (used < least) {
			least = used;
			place = entry;
		}
	}
	return place;
}

void kvw_jwt_cache_put(struct kvw_jwt_cache *cache, const struct kvw_digest *digest,
	uint64_t generation, int64_t ends_s, int64_t now_s, struct kvw_keyring *ring)
{
	size_t set = set_of(cache, digest), lock = set & (LOCKS - 1);
	struct kvw_keyring *before;
	struct entry *entry;

	if (cache->entries == NULL)
		return;
	kvw_keyring_ref(ring);
	pthread_mutex_lock(&cache->locks[lock]);
	entry = place_for(cache->entries + set * WAYS, digest, generation, now_s);
	before = entry->ring;
	*entry = (struct entry){.digest = *digest,
		.ring = ring,
		.generation = generation,
		.ends_s = ends_s,
		.used = ++cache->turns[lock]};
	pthread_mutex_unlock(&cache->locks[lock]);
	kvw_keyring_unref(before);
}
