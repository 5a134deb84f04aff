/*
 * kept.c - see kept.h. Sets of up to eight places, of which a key's first bytes choose one: keys are
 * SHA-256 (objects_names.c).
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/core.h"
#include "daemon/kept.h"

#define WAYS 8u

struct place {
	struct kvt_key key;
	uint64_t touched; /* by kvt_kept.touches; 0: free */
};

struct kvt_kept {
	struct kvt *cache;    /* borrowed */
	pthread_mutex_t lock; /* pins change under it, so that no pin outlives its place */
	uint64_t touches;
	uint32_t sets, ways;
	struct place places[]; /* a set's lie together */
};

enum kvt_status kvt_kept_create(struct kvt *cache, uint32_t most, struct kvt_kept **out)
{
	uint32_t ways = most < WAYS ? most : WAYS, sets = most / ways;
	struct kvt_kept *kept =
		calloc(1, sizeof(*kept) + (size_t)sets * ways * sizeof(kept->places[0]));

	if (kept == NULL)
		return KVT_ENOMEM;
	kept->cache = cache;
	kept->sets = sets;
	kept->ways = ways;
	(void)pthread_mutex_init(&kept->lock, NULL);
	*out = kept;
	return KVT_OK;
}

void kvt_kept_destroy(struct kvt_kept *kept)
{
	if (kept == NULL)
		return;
	(void)pthread_mutex_destroy(&kept->lock);
	free(kept);
}

/* The key's own place, else a free one, else that of the key that was touched the longest ago. */
static struct place *place_for(struct kvt_kept *kept, const struct kvt_key *key)
{
	struct place *set, *best;
	uint32_t number;

	memcpy(&number, key->bytes, sizeof(number));
	set = best = &kept->places[(size_t)(number % kept->sets) * kept->ways];
	for (uint32_t i = 0; i < kept->ways; i++) {
		if (set[i].touched != 0 && memcmp(&set[i].key, key, sizeof(*key)) == 0)
			return &set[i];
		if (set[i].touched < best->touched)
			best = &set[i];
	}
	return best;
}

/* Is there one, and no larger than the share reckons with? */
static bool is_small(struct kvt_kept *kept, const struct kvt_key *key)
{
	struct kvt_entry_info info;

	return kvt_l1_known(kept->cache->l1, key, &info) == KVT_OK && info.bytes <= KVT_ARENA_UNIT;
}

void kvt_kept_ask(struct kvt_kept *kept, const struct kvt_key *key)
{
	struct place *place;

	pthread_mutex_lock(&kept->lock);
	if (!is_small(kept, key)) {
		pthread_mutex_unlock(&kept->lock);
		return;
	}
	place = place_for(kept, key);
	if (place->touched != 0 && memcmp(&place->key, key, sizeof(*key)) != 0)
		(void)!kvt_unpin(kept->cache, &place->key, 1, NULL);
	place->key = *key;
	place->touched = ++kept->touches;
	(void)!kvt_pin(kept->cache, key, 1, NULL);
	if (!is_small(kept, key)) /* a large one took its place just now */
		(void)!kvt_unpin(kept->cache, key, 1, NULL);
	pthread_mutex_unlock(&kept->lock);
}
