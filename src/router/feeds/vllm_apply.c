/*
 * vllm_apply.c - applies KV events to the exact index.
 *
 * A key covers tokens, adapter and salt, as a request's own chain does. Other distinguishing data
 * of a block (an image, embeddings) is mixed into its key, so that a prompt of text never matches
 * that block or those after it, but still matches the blocks before. Old engines name an adapter by
 * its number alone, which no request knows: its blocks get keys that no look-up uses.
 *
 * Events about blocks in lower tiers may have no tokens. The engine holds, or held a moment ago,
 * the same blocks in another tier, so that their keys are found by their hashes. Unknown hashes are
 * ignored, and count as misses.
 */
#include "feeds/vllm_apply.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/block_key.h"

/* Parked blocks (their parent is not known yet) are kept as this struct, their extras and their
 * tokens. */
struct parked {
	uint32_t block_size;
	uint32_t has_extras; /* 0, or the number of blocks */
};

/* --- keys --- */

static uint64_t mix_extra(uint64_t key, uint64_t extra)
{
	return extra == 0 ? key : kvw_kv_extra_int(key, extra);
}

/* Computes the keys of count blocks after `parent`. extras: [count], or NULL. */
static void make_keys(uint64_t parent, const uint32_t *tokens, uint32_t block_size, uint32_t count,
	const uint64_t *extras, uint64_t *keys)
{
	if (extras == NULL) {
		kvw_block_keys(
			&parent, tokens, (size_t)count * block_size, block_size, keys, count);
		return;
	}
	for (uint32_t i = 0; i < count; i++) {
		parent = kvw_block_key(parent, tokens + (size_t)i * block_size, block_size);
		parent = mix_extra(parent, extras[i]);
		keys[i] = parent;
	}
}

static bool parked_keys(void *ctx, const struct kvw_kvindex_parked *parked, uint64_t *keys)
{
	const struct parked *head = parked->payload;
	const uint64_t *extras = (const uint64_t *)(head + 1);
	const uint32_t *tokens;

	(void)ctx;
	tokens = (const uint32_t *)(extras + (head->has_extras != 0 ? parked->count : 0));
	make_keys(parked->parent_key, tokens, head->block_size, parked->count,
		head->has_extras != 0 ? extras : NULL, keys);
	return true;
}

void kvw_vllm_applier_init(
	struct kvw_vllm_applier *applier, struct kvw_kvindex *index, struct kvw_kvspaces *spaces)
{
	*applier = (struct kvw_vllm_applier){.index = index, .spaces = spaces};
	kvw_vllm_reader_init(&applier->reader);
	kvw_kvindex_set_keys(index, parked_keys, applier);
}

void kvw_vllm_applier_finish(struct kvw_vllm_applier *applier)
{
	kvw_vllm_reader_finish(&applier->reader);
	free(applier->payload);
	free(applier->keys);
}

static bool make_room(void **array, size_t *room, size_t bytes)
{
	void *grown;

	if (bytes <= *room)
		return true;
	grown = realloc(*array, bytes * 2);
	if (grown == NULL)
		return false;
	*array = grown;
	*room = bytes * 2;
	return true;
}

/* --- sources --- */

static bool is_windowed(const struct kvw_kv_event *event)
{
	static const struct kvw_slice kinds[] = {{"sliding_window", 14}, {"sliding_window_mla", 18},
		{"mamba", 5}, {"chunked_local_attention", 23}, {"encoder_only_attention", 22},
		{"cross_attention", 15}};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (kvw_slice_equal(event->spec_kind, kinds[i]))
			return true;
	return event->sliding_window != 0;
}

static struct kvw_vllm_group *find_group(struct kvw_vllm_map *map, uint32_t rank, uint32_t group)
{
	for (uint32_t i = 0; i < map->count; i++)
		if (map->groups[i].rank == rank && map->groups[i].group == group)
			return &map->groups[i];
	return NULL;
}

static bool rank_has_full(const struct kvw_vllm_map *map, uint32_t rank)
{
	for (uint32_t i = 0; i < map->count; i++)
		if (map->groups[i].rank == rank && !map->groups[i].windowed)
			return true;
	return false;
}

/* Makes the index require that all groups of a rank hold a block together. */
static void require_groups(struct kvw_vllm_applier *applier, const struct kvw_vllm_map *map)
{
	uint32_t together = 0;

	for (uint32_t i = 0; i < map->count; i++) {
		uint32_t bits = 0, members = 0;

		for (uint32_t k = 0; k < map->count; k++) {
			if (map->groups[k].rank != map->groups[i].rank || map->groups[k].source < 0)
				continue;
			bits |= 1u << map->groups[k].source;
			members++;
		}
		if (members > 1)
			together |= bits;
	}
	kvw_kvindex_require(applier->index, map->worker, KVW_EXACT_ENGINE_MASK, together);
}

static int free_source(const struct kvw_vllm_map *map)
{
	uint32_t used = 0;

	for (uint32_t i = 0; i < map->count; i++)
		if (map->groups[i].source >= 0)
			used |= 1u << map->groups[i].source;
	for (uint32_t s = KVW_EXACT_ENGINE_SOURCE;
		s < KVW_EXACT_ENGINE_SOURCE + KVW_EXACT_ENGINE_SOURCES; s++)
		if ((used & 1u << s) == 0)
			return (int)s;
	return -1;
}

static void drop_source(
	struct kvw_vllm_applier *applier, struct kvw_vllm_map *map, struct kvw_vllm_group *group)
{
	if (group->source >= 0)
		kvw_kvindex_cleared(
			applier->index, map->worker, (uint32_t)group->source, KVW_KVINDEX_ANY);
	group->source = -1;
}

/* Adds a group at its first stored block. NULL: too many groups. */
static struct kvw_vllm_group *add_group(struct kvw_vllm_applier *applier, struct kvw_vllm_map *map,
	uint32_t rank, const struct kvw_kv_event *event)
{
	struct kvw_vllm_group *added;
	bool windowed = is_windowed(event);

	if (map->count == KVW_VLLM_GROUPS)
		return NULL;
	if (!windowed) {
		for (uint32_t i = 0; i < map->count; i++)
			if (map->groups[i].rank == rank && map->groups[i].windowed)
				drop_source(applier, map, &map->groups[i]);
	}
	added = &map->groups[map->count];
	*added = (struct kvw_vllm_group){
		.rank = rank, .group = event->group, .windowed = windowed, .source = -1};
	if (!windowed || !rank_has_full(map, rank)) {
		added->source = free_source(map);
		map->overflow = map->overflow || added->source < 0;
	}
	map->count++;
	require_groups(applier, map);
	return added;
}

void kvw_vllm_map_clear(struct kvw_vllm_applier *applier, struct kvw_vllm_map *map, uint32_t rank)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < map->count; i++) {
		if (map->groups[i].rank == rank)
			drop_source(applier, map, &map->groups[i]);
		else
			map->groups[kept++] = map->groups[i];
	}
	map->count = kept;
	map->overflow = false;
	require_groups(applier, map);
}

/* --- events --- */

/* Returns the adapter's name; if the engine sends only a number, a name that no request has. */
static struct kvw_slice adapter_of(const struct kvw_kv_event *event, char *text, size_t size)
{
	int len;

	if (event->lora.len > 0 || !event->has_lora_id)
		return event->lora;
	len = snprintf(text, size, "\nlora %lld", (long long)event->lora_id);
	return (struct kvw_slice){text, (size_t)len};
}

/* Returns the data to mix into the key of block i: the block's extra data, unless that is only
 * adapter and salt. */
static uint64_t extra_of(const struct kvw_kv_event *event, uint32_t i)
{
	uint64_t plain = 0;

	if (event->lora.len > 0)
		plain = kvw_kv_extra_text(plain, event->lora);
	if (i == 0 && event->salt.len > 0)
		plain = kvw_kv_extra_text(plain, event->salt);
	return event->extra[i] == plain ? 0 : event->extra[i];
}

/* Blocks of an event, in the index's form. */
struct stored {
	struct kvw_kvindex_from from;
	struct kvw_kvindex_blocks blocks;
};

/* Writes an event's extra data to extras[count]. False: nothing needs to be mixed in. */
static bool fill_extras(const struct kvw_kv_event *event, uint64_t *extras)
{
	if (event->extra == NULL || event->extra_is_plain)
		return false;
	for (uint32_t i = 0; i < event->hash_count; i++)
		extras[i] = extra_of(event, i);
	return true;
}

static const char *park(struct kvw_vllm_applier *applier, const struct kvw_kv_event *event,
	const struct stored *stored, int64_t now_ns)
{
	size_t extras = event->hash_count * sizeof(uint64_t);
	size_t tokens = event->token_count * sizeof(uint32_t);
	struct parked *head;
	uint8_t *at;

	if (!make_room((void **)&applier->payload, &applier->payload_room,
		    sizeof(*head) + extras + tokens))
		return "no memory for an event";
	head = (struct parked *)applier->payload;
	head->block_size = event->block_size;
	head->has_extras = fill_extras(event, (uint64_t *)(head + 1));
	at = applier->payload + sizeof(*head) + (head->has_extras != 0 ? extras : 0);
	memcpy(at, event->tokens, tokens);
	kvw_kvindex_park(applier->index, stored->from, &stored->blocks, event->parent,
		applier->payload, (size_t)(at - applier->payload) + tokens, now_ns);
	return NULL;
}

/* Stores blocks without tokens whose hashes are known. */
static void store_known(struct kvw_vllm_applier *applier, struct stored *stored)
{
	struct kvw_kvindex_blocks all = stored->blocks;

	for (uint32_t i = 0; i < all.count; i++) {
		struct kvw_kvindex_blocks one = all;
		uint64_t key;

		if (kvw_kvindex_key_of(applier->index, stored->from, all.hashes[i], &key) != KVW_OK)
			continue;
		one.count = 1;
		one.hashes = &all.hashes[i];
		one.keys = &key;
		kvw_kvindex_stored(applier->index, stored->from, &one);
	}
}

static const char *store_tokens(struct kvw_vllm_applier *applier, const struct kvw_kv_event *event,
	struct stored *stored, int64_t now_ns)
{
	char number[32];
	uint64_t parent, *extras;

	if (!event->has_parent)
		parent = kvw_kvspace_engine_root(
			event->block_size, adapter_of(event, number, sizeof(number)), event->salt);
	else if (kvw_kvindex_key_of(applier->index, stored->from, event->parent, &parent) != KVW_OK)
		return park(applier, event, stored, now_ns);
	if (!make_room((void **)&applier->keys, &applier->key_room,
		    2 * event->hash_count * sizeof(*applier->keys)))
		return "no memory for an event";
	extras = applier->keys + event->hash_count;
	make_keys(parent, event->tokens, event->block_size, stored->blocks.count,
		fill_extras(event, extras) ? extras : NULL, applier->keys);
	stored->blocks.keys = applier->keys;
	kvw_kvindex_stored(applier->index, stored->from, &stored->blocks);
	return NULL;
}

/* Applies an event that stores blocks. Returns why the index now lacks blocks that the engine
 * holds; NULL: it lacks none. */
static const char *apply_stored(struct kvw_vllm_applier *applier, struct kvw_vllm_map *map,
	uint32_t rank, const struct kvw_kv_event *event, int64_t now_ns)
{
	struct kvw_vllm_group *group = find_group(map, rank, event->group);
	struct stored stored = {.blocks = {.tier = event->tier,
					.count = (uint32_t)event->hash_count,
					.hashes = event->hashes}};
	enum kvw_err err;

	if (group == NULL)
		group = add_group(applier, map, rank, event);
	if (group == NULL || (group->source < 0 && map->overflow))
		return "it has more ranks and cache groups than can be told apart";
	if (group->source < 0)
		return NULL;
	err = kvw_kvspaces_engine(applier->spaces, event->block_size, &stored.blocks.space);
	if (err != KVW_OK)
		return err == KVW_EINVAL ? "its block size is beyond all reason"
					 : "there are too many block sizes in the fleet";
	stored.from = (struct kvw_kvindex_from){map->worker, (uint32_t)group->source};
	if (event->token_count > 0)
		return store_tokens(applier, event, &stored, now_ns);
	store_known(applier, &stored);
	return NULL;
}

static void apply_removed(struct kvw_vllm_applier *applier, struct kvw_vllm_map *map, uint32_t rank,
	const struct kvw_kv_event *event)
{
	const struct kvw_vllm_group *group = find_group(map, rank, event->group);
	struct kvw_kvindex_blocks blocks = {
		.tier = event->tier, .count = (uint32_t)event->hash_count, .hashes = event->hashes};

	if (group == NULL || group->source < 0)
		return;
	kvw_kvindex_removed(applier->index,
		(struct kvw_kvindex_from){map->worker, (uint32_t)group->source}, &blocks);
}

static void apply_cleared(struct kvw_vllm_applier *applier, const struct kvw_vllm_map *map,
	uint32_t rank, const struct kvw_kv_event *event)
{
	for (uint32_t i = 0; i < map->count; i++)
		if (map->groups[i].rank == rank && map->groups[i].source >= 0)
			kvw_kvindex_cleared(applier->index, map->worker,
				(uint32_t)map->groups[i].source, event->tier);
}

/* One event. */
static void apply_one(struct kvw_vllm_applier *applier, struct kvw_vllm_map *map, uint32_t rank,
	const struct kvw_kv_event *event, int64_t now_ns, struct kvw_vllm_applied *result)
{
	const char *hole = NULL;

	switch (event->kind) {
	case KVW_KV_STORED:
		if (event->hash_count > 0)
			hole = apply_stored(applier, map, rank, event, now_ns);
		break;
	case KVW_KV_REMOVED:
		apply_removed(applier, map, rank, event);
		break;
	case KVW_KV_CLEARED:
		apply_cleared(applier, map, rank, event);
		result->cleared = true;
		result->hole = NULL; /* the engine has dropped the blocks that the index lacks */
		break;
	}
	result->events++;
	if (hole == NULL)
		return;
	result->hole = hole;
	result->dropped++;
}

void kvw_vllm_apply(struct kvw_vllm_applier *applier, struct kvw_vllm_map *map, uint32_t rank,
	struct kvw_slice payload, int64_t now_ns, struct kvw_vllm_applied *result)
{
	struct kvw_vllm_reader *reader = &applier->reader;
	uint64_t bad = reader->bad_events;
	struct kvw_kv_event event;
	enum kvw_err err = kvw_vllm_begin(reader, payload.data, payload.len);

	*result = (struct kvw_vllm_applied){.time_s = reader->time_s};
	if (err != KVW_OK) {
		result->hole = reader->error != NULL ? reader->error : "a batch cannot be read";
		result->dropped = 1;
		return;
	}
	if (map->one_rank && reader->has_rank && reader->rank != rank) {
		result->hole = "a batch is another data-parallel rank's";
		result->dropped = 1;
		return;
	}
	while ((err = kvw_vllm_next(reader, &event)) != KVW_ENOTFOUND) {
		if (err == KVW_OK) {
			apply_one(applier, map, rank, &event, now_ns, result);
			continue;
		}
		result->dropped++;
		result->hole = "no memory for an event";
		if (err != KVW_ENOMEM)
			break;
	}
	if (reader->bad_events != bad) {
		result->dropped += reader->bad_events - bad;
		result->hole = reader->error != NULL ? reader->error : "an event cannot be read";
	}
}
