/*
 * support.c - prompts, workers and a strict look at a tree, for the tests of routing.
 */
#include "support.h"

#include <stdlib.h>
#include <string.h>

#include "routing/kvindex.h"
#include "routing/radix_node.h"

uint64_t test_random(uint64_t *state)
{
	uint64_t x = *state += UINT64_C(0x9E3779B97F4A7C15);

	x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
	return x ^ x >> 31;
}

void prompt_start(struct prompt *prompt)
{
	prompt->count = 0;
	prompt->end = 0;
}

void prompt_add(struct prompt *prompt, uint64_t symbol)
{
	uint64_t before = prompt->count == 0 ? 1 : prompt->chunks[prompt->count - 1].hash;
	uint64_t state = before * 31 + symbol;

	EXPECT(prompt->count < MAX_PROMPT);
	prompt->chunks[prompt->count] = (struct kvw_chunk){
		.hash = test_random(&state),
		.end = (prompt->count + 1) * CHUNK_UNITS,
	};
	prompt->end = ++prompt->count;
}

void prompt_of(struct prompt *prompt, const char *symbols)
{
	prompt_start(prompt);
	for (; *symbols != '\0'; symbols++)
		prompt_add(prompt, (uint64_t)*symbols);
}

struct kvw_route_request request_of(struct prompt *prompt)
{
	return (struct kvw_route_request){
		.api = KVW_API_CHAT,
		.content_known = true,
		.teaches = true,
		.tokens_per_unit = 1,
		.chunks = prompt->chunks,
		.chunk_count = prompt->count,
		.chain_ends = &prompt->end,
		.chain_count = 1,
		.seed = 7,
	};
}

uint32_t reach_of(const struct kvw_radix_reach *reach, uint32_t worker)
{
	for (uint32_t i = 0; i < reach->count; i++)
		if (reach->workers[i] == worker)
			return reach->chunks[i];
	return 0;
}

uint32_t tree_reach(struct kvw_radix *tree, const struct prompt *prompt, uint32_t worker)
{
	static _Thread_local struct kvw_radix_path path;
	struct kvw_radix_reach reach;

	reach.limit = KVW_MAX_WORKERS;
	kvw_radix_find(tree, prompt->chunks, prompt->count, &path);
	kvw_radix_reach(tree, prompt->chunks, prompt->count, &path, &reach);
	return reach_of(&reach, worker);
}

void tree_insert(struct kvw_radix *tree, const struct prompt *prompt, uint32_t worker,
	uint64_t capacity, int64_t now_ns)
{
	static _Thread_local struct kvw_radix_path path;
	struct kvw_radix_use use = {
		.worker = worker,
		.capacity_tokens = capacity,
		.tokens_per_unit = 1,
		.now_ns = now_ns,
	};

	kvw_radix_find(tree, prompt->chunks, prompt->count, &path);
	kvw_radix_insert(tree, prompt->chunks, prompt->count, &use, &path);
}

/* What tree_check counts. */
struct census {
	uint32_t *children; /* [slot_count] */
	bool *taken;        /* [slot_count] belongs to a node */
	int64_t tokens[KVW_MAX_WORKERS];
	uint64_t nodes;
	uint64_t chunks;
	uint64_t slots;
	uint64_t entries; /* of the table that nodes were found by */
};

/* A worker has one living entry in a node at most, and its parts are in order. */
static void check_holders(struct kvw_radix *tree, struct kvw_slot *node)
{
	bool seen[KVW_MAX_WORKERS] = {false};

	for (struct kvw_slot *s = node; s != NULL;) {
		for (unsigned i = 0; i < s->used; i++) {
			struct kvw_holder h = kvw_holder_unpack(s->word[i]);

			if (s->word[i] == 0 || !kvw_holder_alive(tree, h))
				continue;
			EXPECT(!seen[h.worker]);
			seen[h.worker] = true;
			EXPECT(h.mid > 0);
			EXPECT(h.mid <= h.upto);
			EXPECT(h.upto <= node->length);
			EXPECT(h.mid < h.upto || h.older == 0);
		}
		s = s->overflow == 0 ? NULL : &tree->slots[s->overflow];
	}
}

/* A node's entry, wherever a walk could find it; 0: none. */
static uint64_t entry_of(const struct kvw_table *table, uint32_t home, uint64_t hash, uint32_t node)
{
	uint32_t own = kvw_table_home(table, kvw_table_spread(table, hash));

	for (uint32_t probe = 0; probe <= KVW_TABLE_PROBES; probe++) {
		const struct kvw_bucket *bucket =
			&table->buckets[probe == 0 ? home : own + probe - 1];

		for (unsigned i = 0; i < KVW_BUCKET_ENTRIES; i++)
			if (kvw_entry_node(bucket->entries[i]) == node)
				return bucket->entries[i];
		if (probe > 0 && (bucket->counts & 255) == 0)
			break;
	}
	return 0;
}

/* All entries of the table. */
static uint64_t count_entries(const struct kvw_table *table)
{
	uint64_t buckets = kvw_table_bytes(table->shard_bits, table->shard_buckets) /
			   sizeof(struct kvw_bucket);
	uint64_t entries = 0;

	for (uint64_t b = 0; b < buckets; b++)
		for (unsigned i = 0; i < KVW_BUCKET_ENTRIES; i++)
			entries += table->buckets[b].entries[i] != 0;
	return entries;
}

static void count_node(struct kvw_radix *tree, uint32_t index, struct census *census)
{
	struct kvw_slot *node = &tree->slots[index];
	uint64_t entry = entry_of(&tree->table, kvw_slot_home(tree, node), node->key, index);

	EXPECT(kvw_entry_node(entry) == index);
	EXPECT(kvw_entry_length(entry) == node->length);
	census->entries++;
	EXPECT(node->length >= 1);
	census->nodes++;
	census->chunks += node->length;
	if (node->link != 0) {
		EXPECT(tree->slots[node->link].refs != 0);
		census->children[node->link]++;
	}
	check_holders(tree, node);
	for (uint32_t at = index; at != 0; at = tree->slots[at].overflow) {
		struct kvw_slot *s = &tree->slots[at];

		EXPECT(at < tree->fresh);
		EXPECT(!census->taken[at]);
		census->taken[at] = true;
		census->slots++;
		for (unsigned i = 0; i < s->used; i++) {
			struct kvw_holder h = kvw_holder_unpack(s->word[i]);

			uint64_t window = kvw_view_window(&tree->views, h.worker);

			if (s->word[i] != 0)
				census->tokens[h.worker] +=
					kvw_slot_tokens(node, 0, kvw_holder_extent(h, window));
		}
	}
}

static uint64_t count_free(struct kvw_radix *tree, struct census *census)
{
	uint64_t count = 0;

	for (unsigned p = 0; p < KVW_POOLS; p++)
		for (uint32_t at = tree->pools[p].free; at != 0; at = tree->slots[at].link) {
			EXPECT(!census->taken[at]);
			census->taken[at] = true;
			EXPECT(tree->slots[at].refs == 0);
			count++;
		}
	return count;
}

void tree_check(struct kvw_radix *tree)
{
	struct census *census = calloc(1, sizeof(*census));
	struct kvw_strategy_stats stats = {0};
	uint64_t spare = 0;

	ck_assert_ptr_nonnull(census);
	census->children = calloc(tree->slot_count, sizeof(*census->children));
	census->taken = calloc(tree->slot_count, sizeof(*census->taken));
	EXPECT(census->children != NULL && census->taken != NULL);
	for (uint32_t i = 1; i < tree->fresh; i++)
		if (tree->slots[i].refs != 0)
			count_node(tree, i, census);
	for (uint32_t i = 1; i < tree->fresh; i++)
		if (tree->slots[i].refs != 0)
			EXPECT(tree->slots[i].refs == KVW_NODE_LIVE + census->children[i]);
	spare = count_free(tree, census);
	EXPECT(census->slots + spare + 1 == tree->fresh);
	EXPECT(census->entries == count_entries(&tree->table));
	for (unsigned w = 0; w < KVW_MAX_WORKERS; w++)
		EXPECT(tree->views.items[w].total == census->tokens[w]);
	kvw_radix_stats(tree, &stats);
	EXPECT(stats.nodes == census->nodes);
	EXPECT(stats.chunks == census->chunks);
	EXPECT(stats.bytes == tree->fixed_bytes + census->slots * sizeof(struct kvw_slot));
	EXPECT(stats.bytes <= stats.bytes_limit);
	free(census->children);
	free(census->taken);
	free(census);
}

void fleet_init(struct fleet *fleet, size_t count)
{
	fleet->loads = aligned_alloc(64, count * sizeof(*fleet->loads));
	fleet->board = aligned_alloc(64, sizeof(*fleet->board));
	ck_assert(fleet->loads != NULL && fleet->board != NULL);
	for (size_t i = 0; i < count; i++) {
		uint64_t state = i + 1000;

		kvw_load_init_on(&fleet->loads[i], fleet->board, (uint32_t)i);
		fleet->items[i] = (struct kvw_candidate){
			.id = (uint32_t)i,
			.key = test_random(&state),
			.load = &fleet->loads[i],
			.capacity_tokens = 1000000,
			.block_size = 16,
			.share = 1,
			.usable = true,
		};
	}
	fleet->set = (struct kvw_candidates){fleet->items, count, fleet->board, 0};
}

void fleet_finish(struct fleet *fleet)
{
	free(fleet->loads);
	free(fleet->board);
}

/* Keys of pieces of `size` tokens. Returns how many whole ones there are. */
static uint32_t name_pieces(
	const struct prompt *prompt, uint32_t tokens, uint32_t size, uint64_t *keys)
{
	uint32_t per_chunk = CHUNK_UNITS / size;

	for (uint32_t i = 0; i < tokens / size; i++) {
		uint64_t state = prompt->chunks[i / per_chunk].hash + i % per_chunk;

		keys[i] = test_random(&state);
	}
	return tokens / size;
}

void name_prompt(struct naming *naming, const struct prompt *prompt, uint32_t tokens,
	struct kvw_route_request *request)
{
	EXPECT(tokens <= prompt->count * CHUNK_UNITS);
	naming->chains[KVW_REPORTER_ENGINE] = (struct kvw_exact_chain){
		.reporter = KVW_REPORTER_ENGINE,
		.space = 1,
		.block_tokens = BLOCK_TOKENS,
		.count = name_pieces(prompt, tokens, BLOCK_TOKENS, naming->blocks),
		.keys = naming->blocks,
	};
	naming->chains[KVW_REPORTER_LMCACHE] = (struct kvw_exact_chain){
		.reporter = KVW_REPORTER_LMCACHE,
		.space = 2,
		.block_tokens = PIECE_TOKENS,
		.count = name_pieces(prompt, tokens, PIECE_TOKENS, naming->pieces),
		.keys = naming->pieces,
	};
	request->exact = naming->chains;
	request->exact_count = KVW_REPORTER_COUNT;
	request->exact_tokens = tokens;
}

/* Engines' hashes are their own: they only have to tell blocks apart. */
static void tell(struct kvw_exact *exact, uint32_t worker, const struct kvw_exact_chain *chain,
	enum kvw_tier tier, uint32_t first, uint32_t count, bool stored)
{
	uint64_t hashes[MAX_PROMPT * CHUNK_UNITS / BLOCK_TOKENS];
	struct kvw_kvindex_from from = {worker, chain->reporter == KVW_REPORTER_ENGINE
							? KVW_EXACT_ENGINE_SOURCE
							: KVW_EXACT_LMCACHE_SOURCE};
	struct kvw_kvindex_blocks blocks = {chain->space, tier, count, hashes, chain->keys + first};

	EXPECT(first + count <= chain->count);
	for (uint32_t i = 0; i < count; i++)
		hashes[i] = ~chain->keys[first + i];
	if (stored)
		kvw_kvindex_stored(kvw_exact_index(exact), from, &blocks);
	else
		kvw_kvindex_removed(kvw_exact_index(exact), from, &blocks);
}

void report_stored(struct kvw_exact *exact, uint32_t worker, const struct kvw_exact_chain *chain,
	enum kvw_tier tier, uint32_t first, uint32_t count)
{
	tell(exact, worker, chain, tier, first, count, true);
}

void report_removed(struct kvw_exact *exact, uint32_t worker, const struct kvw_exact_chain *chain,
	enum kvw_tier tier, uint32_t first, uint32_t count)
{
	tell(exact, worker, chain, tier, first, count, false);
}

bool same_decision(const struct kvw_decision *a, const struct kvw_decision *b)
{
	return a->pos == b->pos && a->reason == b->reason && a->prompt_tokens == b->prompt_tokens &&
	       memcmp(a->hit_tokens, b->hit_tokens, sizeof(a->hit_tokens)) == 0 &&
	       a->prefill_ns == b->prefill_ns && a->queue_ns == b->queue_ns &&
	       a->inflight == b->inflight && a->chains == b->chains &&
	       a->worker_id == b->worker_id && a->exact == b->exact;
}

struct kvw_strategy_options test_options(void)
{
	/* Of the only strategy that has settings of its own. */
	static const union kvw_setting_value session_values[] = {
		{.integer = 3600 * 1000}, {.integer = 10000}, {.ratio = 1.25}};

	return (struct kvw_strategy_options){
		.omega = 0.25,
		.prefill_tokens_per_second = 8000,
		.attention_ns_per_pair = 1.75,
		.tree_bytes = 8 << 20,
		.capacity_tokens = 400000,
		.own = session_values,
		.seed = 42,
		.index_bytes = 8 << 20,
		.load_ns_per_token = {0, 2000, 20000, 30000},
		.eviction_weight = 2,
	};
}
