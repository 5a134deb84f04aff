/*
 * radix.c - makes the prefix tree, and finds a prompt's path and the workers that hold it.
 *
 *     chunks of a prompt   0 1 2 3 4 5 6 7 8 9 ...         (hashes, cumulative)
 *     nodes on its path    [A . . . .[B . . .[C . . . .
 *
 * A node is found in the table by the hash of its first chunk. A child may branch off anywhere
 * along its parent's run: where prompts part inside a run, the run is not split, the new prompt's
 * node simply begins there. So a published node never changes except its holders, nodes are never
 * merged, and a prompt that branches costs one node per 27 new chunks.
 *
 * Walking: the nodes of a path begin at exactly those of its chunks that are in the table. All
 * hashes are known before the walk, so 64 chunks are looked up at once, which takes eight cache
 * lines (radix_table.h), on a long known path ahead of need; the walk waits for no node. After one
 * node the next begins at the latest where its run ends. The nodes' lines are prefetched during the
 * walk and read after it. Only the last node's run is compared.
 *
 * Loops read without any lock. An insert locks the nodes whose holders it changes, one at a time,
 * for some twenty instructions; nodes that every prompt shares (the system prompt) change seldom,
 * because a recent holder is not written again.
 *
 * All memory is one mapping, made at the start and touched as it fills:
 *
 *     | views, windows, rings | table | slots ........................ |
 */
#include "routing/radix.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "routing/radix_node.h"
#include "routing/spin.h"

#define MAX_SLOTS     (UINT32_MAX / 2) /* 512 GiB */
#define DEFAULT_SLACK 4

_Static_assert(sizeof(struct kvw_slot) == 256, "a slot is four cache lines");
_Static_assert(
	KVW_NODE_HOLDERS + (KVW_RADIX_RUN + 1) / 3 <= KVW_NODE_WORDS, "words do not overlap");
_Static_assert(KVW_RADIX_RUN <= 31, "lengths and ranges have five bits");

/* --- life --- */

/* Where the parts of the mapping are. */
struct layout {
	uint32_t ticks;      /* ticks of each view; the views are at the beginning of the mapping */
	uint32_t shard_bits; /* of the table */
	uint32_t shard_buckets;
	uint32_t slots;
	uint64_t table_at; /* byte offsets */
	uint64_t slots_at;
};

/* Divides `bytes` among views, table and slots. */
static void lay_out(struct layout *layout, uint64_t bytes)
{
	uint64_t views = 0;
	uint64_t slots = 0;
	uint64_t buckets = 0;

	layout->ticks = KVW_VIEW_MAX_TICKS;
	layout->shard_bits = 0;
	while (layout->ticks > KVW_VIEW_MIN_TICKS && kvw_views_bytes(layout->ticks) > bytes / 8)
		layout->ticks /= 2;
	views = (kvw_views_bytes(layout->ticks) + 255) / 256 * 256;
	slots = (bytes - views) * KVW_BUCKET_FILL /
		(KVW_BUCKET_FILL * sizeof(struct kvw_slot) + sizeof(struct kvw_bucket));
	if (slots > MAX_SLOTS)
		slots = MAX_SLOTS;
	buckets = slots / KVW_BUCKET_FILL;
	while (layout->shard_bits < KVW_TABLE_SHARD_BITS && buckets >> layout->shard_bits > 1024)
		layout->shard_bits++;
	layout->shard_buckets = (uint32_t)(buckets >> layout->shard_bits);
	layout->table_at = views;
	layout->slots_at =
		(views + kvw_table_bytes(layout->shard_bits, layout->shard_buckets) + 255) / 256 *
		256;
	slots = (bytes - layout->slots_at) / sizeof(struct kvw_slot);
	layout->slots = slots < MAX_SLOTS ? (uint32_t)slots : MAX_SLOTS;
}

enum kvw_err kvw_radix_create(const struct kvw_radix_options *options, struct kvw_radix **out)
{
	struct kvw_radix *tree = aligned_alloc(64, (sizeof(*tree) + 63) / 64 * 64);
	uint64_t bytes =
		options->bytes < KVW_RADIX_MIN_BYTES ? KVW_RADIX_MIN_BYTES : options->bytes;
	struct layout layout;
	char *memory = NULL;

	if (tree == NULL)
		return KVW_ENOMEM;
	*tree = (struct kvw_radix){0};
	lay_out(&layout, bytes);
	tree->mapped_bytes = layout.slots_at + (uint64_t)layout.slots * sizeof(struct kvw_slot);
	memory = mmap(NULL, tree->mapped_bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED) {
		free(tree);
		return KVW_ENOMEM;
	}
	/* Accesses are random, so that without large pages every look-up would also miss the
	 * TLB. */
	(void)madvise(memory, tree->mapped_bytes, MADV_HUGEPAGE);
	tree->mapping = memory;
	tree->fixed_bytes = layout.slots_at;
	tree->slot_count = layout.slots;
	tree->slots = (struct kvw_slot *)(void *)(memory + layout.slots_at);
	kvw_views_init(&tree->views, memory, layout.ticks,
		options->slack_shift == 0 ? DEFAULT_SLACK : options->slack_shift);
	kvw_table_init(&tree->table, memory + layout.table_at, layout.shard_bits,
		layout.shard_buckets, options->seed);
	atomic_init(&tree->fresh, 1);
	for (unsigned i = 0; i < KVW_POOLS; i++)
		tree->pools[i].random = kvw_table_spread(&tree->table, i + 1) | 1;
	*out = tree;
	return KVW_OK;
}

void kvw_radix_destroy(struct kvw_radix *tree)
{
	if (tree == NULL)
		return;
	munmap(tree->mapping, tree->mapped_bytes);
	free(tree);
}

/* --- walking --- */

/* Returns how many chunks of the prompt match the run of the path's last node; 0: the slot has
 * another node now. */
static uint32_t match_run(
	struct kvw_slot *slot, const struct kvw_chunk *chunks, uint32_t count, uint32_t start)
{
	uint32_t length = atomic_load_explicit(&slot->length, memory_order_acquire);
	uint64_t parts = 0;

	if (length > count - start)
		length = count - start;
	if (length == 0 || !kvw_slot_matches(slot, 0, chunks[start].hash))
		return 0;
	for (uint32_t i = 1; i < length; i++) {
		if (kvw_slot_part_shift(i) == 0)
			parts = atomic_load_explicit(
				&slot->word[kvw_slot_part_word(i)], memory_order_acquire);
		if (((parts ^ chunks[start + i].hash) & KVW_NODE_PART) != 0)
			return i;
		parts >>= KVW_NODE_PART_BITS;
	}
	return length;
}

/* Appends the nodes of a window to the path, while each begins at the latest where the run before
 * it ends. False: the path ends here. *end: the first chunk at which no node can begin any more. */
static bool take_steps(struct kvw_radix *tree, const struct kvw_table_found *found,
	struct kvw_radix_path *path, uint32_t *end)
{
	for (uint32_t i = 0; i < found->count; i++) {
		uint32_t node = kvw_slot_check(tree, kvw_entry_node(found->entries[i]));
		const char *lines = (const char *)kvw_slot_at(tree, node);

		if (found->at[i] >= *end || path->count == KVW_RADIX_MAX_STEPS)
			return false;
		__builtin_prefetch(lines);
		__builtin_prefetch(lines + 64);
		__builtin_prefetch(lines + 128);
		path->steps[path->count++] = (struct kvw_radix_step){node, found->at[i]};
		*end = found->at[i] + kvw_entry_length(found->entries[i]) + 1;
	}
	return true;
}

void kvw_radix_find(struct kvw_radix *tree, const struct kvw_chunk *chunks, uint32_t count,
	struct kvw_radix_path *path)
{
	struct kvw_table_asked asked;
	struct kvw_table_found found; /* filled only up to its count */
	uint32_t end = 1;             /* the prompt's first node must begin at its first chunk */
	uint32_t next = KVW_TABLE_WINDOW;
	bool more = count > 0;

	path->count = 0;
	path->matched = 0;
	path->settled = false;
	if (more)
		kvw_table_ask(&tree->table, chunks, count, 0, &asked);
	while (more) {
		asked.end = end;
		kvw_table_look(&tree->table, chunks, &asked, &found);
		/* The next window's cache lines arrive while this window's nodes are recorded. */
		if (found.count > 0 && next < count)
			kvw_table_ask(&tree->table, chunks, count, next, &asked);
		more = take_steps(tree, &found, path, &end) && end > next && next < count;
		next += KVW_TABLE_WINDOW;
	}
}

void kvw_path_settle(struct kvw_radix *tree, const struct kvw_chunk *chunks, uint32_t count,
	struct kvw_radix_path *path)
{
	if (path->settled)
		return;
	while (path->count > 0 && path->matched == 0) {
		struct kvw_radix_step last = path->steps[path->count - 1];
		uint32_t run = match_run(kvw_slot_at(tree, last.node), chunks, count, last.start);

		if (run == 0)
			path->count--;
		else
			path->matched = last.start + run;
	}
	path->settled = true;
	/* An insert would add nodes at this place. */
	if (path->matched < count) {
		kvw_prefetch_place(tree, chunks, path->matched);
		if (path->count > 0)
			kvw_prefetch_write(kvw_slot_at(tree, path->steps[path->count - 1].node));
	}
}

/* --- reach --- */

static void prefetch_overflow(struct kvw_radix *tree, struct kvw_slot *slot)
{
	uint32_t more =
		kvw_slot_check(tree, atomic_load_explicit(&slot->overflow, memory_order_relaxed));

	if (more != 0) {
		__builtin_prefetch(kvw_slot_at(tree, more));
		__builtin_prefetch((const char *)kvw_slot_at(tree, more) + 64);
	}
}

void kvw_radix_reach(struct kvw_radix *tree, const struct kvw_chunk *chunks, uint32_t count,
	struct kvw_radix_path *path, struct kvw_radix_reach *reach)
{
	assert(reach->limit <= KVW_MAX_WORKERS);
	kvw_path_settle(tree, chunks, count, path);
	kvw_scan_reach_none(reach);
	for (uint32_t i = 0; i < path->count; i++)
		prefetch_overflow(tree, kvw_slot_at(tree, path->steps[i].node));
	for (uint32_t i = 0; i < path->count; i++) {
		struct kvw_slot *slot = kvw_slot_at(tree, path->steps[i].node);
		uint32_t start = path->steps[i].start;
		uint32_t length = kvw_path_length(path, i);
		uint32_t more = 0;

		kvw_slot_prefetch_hash(slot, length - 1); /* an insert will read this hash */
		do {
			kvw_scan_reach(slot->word, kvw_slot_used(slot), tree->views.windows, start,
				length, reach);
			more = kvw_slot_check(
				tree, atomic_load_explicit(&slot->overflow, memory_order_acquire));
			slot = kvw_slot_at(tree, more);
		} while (more != 0);
	}
	kvw_scan_reach_done(reach);
}

/* --- the rest --- */

void kvw_radix_expect(struct kvw_radix *tree, uint32_t worker)
{
	assert(worker < KVW_MAX_WORKERS);
	kvw_view_prefetch(&tree->views, worker, (uint32_t)kvw_view_window(&tree->views, worker));
}

void kvw_radix_purge(struct kvw_radix *tree, uint32_t worker)
{
	assert(worker < KVW_MAX_WORKERS);
	kvw_view_purge(&tree->views, worker);
}

uint64_t kvw_radix_view_tokens(struct kvw_radix *tree, uint32_t worker)
{
	return kvw_view_tokens(&tree->views, worker);
}

void kvw_radix_stats(struct kvw_radix *tree, struct kvw_strategy_stats *out)
{
	struct kvw_table_use use;
	int64_t slots = 0;

	for (unsigned i = 0; i < KVW_POOLS; i++) {
		struct kvw_pool *pool = &tree->pools[i];

		kvw_spin_lock(&pool->lock);
		slots += pool->taken;
		kvw_spin_unlock(&pool->lock);
	}
	kvw_table_count(&tree->table, &use);
	out->nodes = use.nodes;
	out->chunks = use.chunks;
	out->evicted_chunks = use.removed;
	out->bytes =
		tree->fixed_bytes + (slots > 0 ? (uint64_t)slots : 0) * sizeof(struct kvw_slot);
	out->bytes_limit = tree->mapped_bytes;
	out->purges = kvw_views_purges(&tree->views);
}
