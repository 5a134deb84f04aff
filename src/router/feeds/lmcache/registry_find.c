/*
 * registry_find.c - read-only functions of the registry.
 *
 * They read the places themselves, not the index: so they also find instances without a worker, and
 * the names of locations. They cost a look-up in a hash table for each chunk, rank and location,
 * but are not called for every request.
 */
#include "feeds/lmcache/registry.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct kvw_lmreg_instance *kvw_lmreg_find(const struct kvw_lmreg *reg, struct kvw_slice id)
{
	uint64_t hash = XXH3_64bits_withSeed(id.data, id.len, reg->options.seed);

	for (size_t i = 0; i < reg->count; i++)
		if (reg->instances[i]->hash == hash &&
			kvw_slice_equal(kvw_slice_of(reg->instances[i]->id), id))
			return reg->instances[i];
	return NULL;
}

/* Returns the location in which a rank holds a key; NULL: in none. */
static const char *where(const struct kvw_lmreg_rank *rank, uint64_t key)
{
	for (uint32_t i = 0; i < rank->place_count; i++)
		if (kvw_keyset_has(&rank->places[i].keys, key))
			return rank->places[i].name;
	return NULL;
}

bool kvw_lmreg_has(const struct kvw_lmreg_instance *instance, uint64_t key)
{
	return instance->rank_count > 0 && where(&instance->ranks[0], key) != NULL;
}

bool kvw_lmreg_admitted_since(const struct kvw_lmreg_instance *instance, uint64_t key, int64_t ns)
{
	uint64_t kept = instance->recent_count < KVW_LMREG_RECENT ? instance->recent_count
								  : KVW_LMREG_RECENT;

	for (uint64_t i = 0; i < kept; i++)
		if (instance->recent[i].key == key && instance->recent[i].ns >= ns)
			return true;
	return false;
}

bool kvw_lmreg_active_since(const struct kvw_lmreg_instance *instance, int64_t ns)
{
	uint64_t count = instance->recent_count;

	return count > 0 && instance->recent[(count - 1) % KVW_LMREG_RECENT].ns >= ns;
}

uint64_t kvw_lmreg_key_count(const struct kvw_lmreg_rank *rank)
{
	uint64_t count = 0;

	for (uint32_t i = 0; i < rank->place_count; i++)
		count += rank->places[i].keys.count;
	return count;
}

/* Returns the location in which a rank holds the longest beginning; NULL: none has the first
 * chunk. */
static const struct kvw_lmreg_place *longest(
	const struct kvw_lmreg_rank *rank, const struct kvw_lmc_message *message, uint32_t *chunks)
{
	const struct kvw_lmreg_place *best = NULL;

	*chunks = 0;
	for (uint32_t i = 0; i < rank->place_count; i++) {
		uint32_t held = 0;

		while (held < message->key_count &&
			kvw_keyset_has(&rank->places[i].keys, message->keys[held]))
			held++;
		if (held > *chunks) {
			*chunks = held;
			best = &rank->places[i];
		}
	}
	return best;
}

bool kvw_lmreg_p2p(const struct kvw_lmreg *reg, const struct kvw_lmc_message *message,
	struct kvw_lmc_holder *holder)
{
	*holder = (struct kvw_lmc_holder){0};
	for (size_t i = 0; i < reg->count; i++) {
		const struct kvw_lmreg_instance *instance = reg->instances[i];

		if (kvw_slice_equal(kvw_slice_of(instance->id), message->instance_id))
			continue;
		for (uint32_t r = 0; r < instance->rank_count; r++) {
			const struct kvw_lmreg_rank *rank = &instance->ranks[r];
			const struct kvw_lmreg_place *place;
			uint32_t chunks;

			if (rank->id != message->worker_id || rank->p2p == NULL || rank->gone)
				continue;
			place = longest(rank, message, &chunks);
			if (place != NULL && chunks > holder->chunks)
				*holder = (struct kvw_lmc_holder){
					.instance_id = kvw_slice_of(instance->id),
					.location = kvw_slice_of(place->name),
					.peer_init_url = kvw_slice_of(rank->p2p),
					.chunks = chunks,
				};
		}
	}
	return holder->chunks > 0;
}

void kvw_lmreg_count(struct kvw_lmreg *reg)
{
	struct kvw_lmcache_stats *stats = &reg->stats;

	stats->instances = reg->count;
	stats->unmapped = stats->blind = stats->syncing = stats->ranks = 0;
	for (size_t i = 0; i < reg->count; i++) {
		const struct kvw_lmreg_instance *instance = reg->instances[i];

		stats->unmapped += instance->worker == KVW_LMREG_NONE;
		stats->blind += instance->worker != KVW_LMREG_NONE &&
				instance->coverage != KVW_COVERAGE_FULL;
		for (uint32_t r = 0; r < instance->rank_count; r++) {
			stats->ranks += !instance->ranks[r].gone;
			stats->syncing += instance->ranks[r].sync.active;
		}
	}
}
