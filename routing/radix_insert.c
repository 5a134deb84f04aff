/*
 * radix_insert.c - inserts a prompt for a worker: adds nodes and the worker as holder; and retracts
 * that when the worker did not compute the prompt.
 *
 * The path from find may be out of date: another loop inserted the same prompt, or part of it was
 * evicted. So each node is checked before it is changed, under its lock or with a reference on it,
 * by the last hash that the path needs from it; if the slot has another node, the path is found
 * again. A few such rounds suffice; if a prompt is still not entered as a whole, the only effect is
 * that a later request with the same prefix misses a hit.
 *
 * New nodes are appended to the end of the path. The inserter holds a reference on the last node,
 * so that an eviction, perhaps caused by its own need for memory, cannot remove the path meanwhile.
 * The node that ends the prompt needs none: no node will follow it, and it is published with its
 * holder.
 */
#include <assert.h>

#include "routing/radix_node.h"
#include "routing/spin.h"

#define SWEEP_SLOTS     2  /* slots that are swept per insert, and two more per new node */
/* attempts of one insert, which may race with evictions or other inserts */
#define INSERT_TRIES    3
#define MAX_NODE_TOKENS ((uint32_t)1 << 24)

_Static_assert(KVW_NODE_PARTS == 3, "as fill_parts packs them");

/* Takes a reference on a node, which keeps it, and with it its ancestors, from being evicted.
 * False: the slot has another node now. */
static bool ref_node(struct kvw_slot *slot, uint32_t chunks, uint64_t last)
{
	uint32_t refs = atomic_load_explicit(&slot->refs, memory_order_acquire);

	do {
		if (refs == 0)
			return false;
	} while (!atomic_compare_exchange_weak(&slot->refs, &refs, refs + 1));
	if (kvw_slot_begins(slot, chunks, last))
		return true;
	atomic_fetch_sub(&slot->refs, 1);
	return false;
}

static void unref_node(struct kvw_slot *slot)
{
	atomic_fetch_sub(&slot->refs, 1);
}

static uint32_t run_tokens(
	const struct kvw_chunk *chunks, uint32_t start, uint32_t length, float tokens_per_unit)
{
	uint32_t before = start == 0 ? 0 : chunks[start - 1].end;
	float tokens = (float)(chunks[start + length - 1].end - before) * tokens_per_unit + 0.5f;

	if (!(tokens >= 1.0f))
		return 1;
	return tokens > (float)MAX_NODE_TOKENS ? MAX_NODE_TOKENS : (uint32_t)tokens;
}

/* Stores parts of the hashes of all chunks of a run except the first, three parts in a word. */
static void fill_parts(struct kvw_slot *slot, const struct kvw_chunk *run, uint32_t length)
{
	_Atomic uint64_t *word = &slot->word[kvw_slot_part_word(1)];

	for (uint32_t i = 1; i < length; i += KVW_NODE_PARTS, word++) {
		uint64_t parts = run[i].hash & KVW_NODE_PART;

		if (i + 1 < length)
			parts |= (run[i + 1].hash & KVW_NODE_PART) << KVW_NODE_PART_BITS;
		if (i + 2 < length)
			parts |= (run[i + 2].hash & KVW_NODE_PART) << 2 * KVW_NODE_PART_BITS;
		atomic_store_explicit(word, parts, memory_order_relaxed);
	}
}

/* Fills a taken slot with a run of the prompt, which the ledger's worker holds (ledger NULL: no
 * worker does). The slot is not published yet. Returns the run's tokens. */
static uint32_t fill_node(struct kvw_slot *slot, const struct kvw_chunk *chunks, uint32_t start,
	uint32_t length, uint32_t parent, float tokens_per_unit, uint32_t stamp,
	const struct kvw_ledger *ledger)
{
	uint32_t tokens = run_tokens(chunks, start, length, tokens_per_unit);

	fill_parts(slot, chunks + start, length);
	if (ledger != NULL) {
		struct kvw_holder h = {.tick = ledger->now,
			.worker = ledger->worker,
			.mid = length,
			.upto = length};

		atomic_store_explicit(&slot->word[0], kvw_holder_pack(h), memory_order_relaxed);
		atomic_store_explicit(&slot->used, 1, memory_order_release);
	}
	atomic_store_explicit(&slot->link, parent, memory_order_relaxed);
	atomic_store_explicit(&slot->stamp, stamp, memory_order_relaxed);
	atomic_store_explicit(&slot->tokens, tokens, memory_order_relaxed);
	atomic_store_explicit(&slot->length, (uint8_t)length, memory_order_relaxed);
	atomic_store_explicit(
		&slot->place, (uint8_t)(start & (KVW_TABLE_GROUP - 1)), memory_order_relaxed);
	atomic_store_explicit(&slot->key, chunks[start].hash, memory_order_release);
	return tokens;
}

/* Returns the bits of its group's hash that a node stores which begins at chunk `start`. */
static uint32_t group_of(struct kvw_radix *tree, const struct kvw_chunk *chunks, uint32_t start)
{
	uint64_t first = chunks[start & ~(uint32_t)(KVW_TABLE_GROUP - 1)].hash;

	return (uint32_t)(kvw_table_spread(&tree->table, first) >> 32);
}

/* Publishes a new node that begins at path->matched, below the path's last node, on which the
 * caller has a reference. The reference becomes the node's own; the caller then has one on the new
 * node, unless that node ends the prompt: then the ledger's worker holds it. False: no memory, or
 * another loop was faster; the reference is as before. */
static bool grow(struct kvw_radix *tree, struct kvw_pool *pool, const struct kvw_chunk *chunks,
	uint32_t count, const struct kvw_radix_use *use, struct kvw_radix_path *path,
	struct kvw_ledger *ledger)
{
	uint32_t start = path->matched;
	uint32_t length = count - start < KVW_RADIX_RUN ? count - start : KVW_RADIX_RUN;
	uint32_t parent = 0;
	uint32_t index = 0;
	uint32_t home = 0;
	uint32_t tokens = 0;
	struct kvw_slot *slot = NULL;
	bool last = start + length == count;

	index = kvw_slot_take(tree, pool);
	if (index == 0)
		return false;
	if (path->count > 0)
		parent = path->steps[path->count - 1].node;
	if (!last)
		kvw_prefetch_place(tree, chunks, start + length);
	slot = kvw_slot_at(tree, index);
	tokens = fill_node(slot, chunks, start, length, parent, use->tokens_per_unit,
		(uint32_t)(use->now_ns >> KVW_STAMP_SHIFT), last ? ledger : NULL);
	if (kvw_table_insert(&tree->table, chunks, start, index, length, &home) != KVW_OK) {
		kvw_slot_give(tree, pool, index);
		return false;
	}
	kvw_slot_set_child(slot, group_of(tree, chunks, start), 0);
	if (parent != 0) {
		struct kvw_slot *above = kvw_slot_at(tree, parent);

		kvw_slot_set_child(above, kvw_slot_group(above), index);
	}
	/* Until here the node was dead, so that no thread could take a reference that a failure
	 * would lose. From here on an eviction may drop the node at any time if it is the last one,
	 * and its parent with it. */
	atomic_store_explicit(
		&slot->refs, last ? KVW_NODE_LIVE : KVW_NODE_LIVE + 1, memory_order_release);
	path->steps[path->count++] = (struct kvw_radix_step){index, start};
	path->matched = start + length;
	if (last) {
		kvw_ledger_add(ledger, tokens);
		kvw_ledger_turn(ledger);
	}
	return true;
}

/* Enters the worker as holder along the path's first `count` steps, from their end, so that the end
 * is the oldest part and dropped first. False: part of the path was evicted in the meantime. */
static bool hold_path(struct kvw_radix *tree, struct kvw_pool *pool, const struct kvw_chunk *chunks,
	const struct kvw_radix_path *path, uint32_t count, int64_t now_ns,
	struct kvw_ledger *ledger)
{
	uint32_t stamp = (uint32_t)(now_ns >> KVW_STAMP_SHIFT);
	bool whole = true;

	for (uint32_t i = count; i-- > 0;) {
		struct kvw_radix_step step = path->steps[i];
		uint32_t length = kvw_path_length(path, i);

		whole &= kvw_node_hold(tree, pool, step.node, length,
			chunks[step.start + length - 1].hash, stamp, ledger);
		kvw_ledger_turn(ledger);
	}
	return whole;
}

/* Makes one attempt with a path that was just found. False: the path has changed and must be found
 * again. */
static bool insert_once(struct kvw_radix *tree, struct kvw_pool *pool,
	const struct kvw_chunk *chunks, uint32_t count, const struct kvw_radix_use *use,
	struct kvw_radix_path *path)
{
	struct kvw_radix_step last = {0, 0};
	struct kvw_ledger ledger;
	/* number of steps of the path that the worker does not hold yet; the last one is
	 * referenced */
	uint32_t unheld = 0;
	bool done = true;

	kvw_path_settle(tree, chunks, count, path);
	if (path->count > 0) {
		last = path->steps[path->count - 1];
		if (!ref_node(kvw_slot_at(tree, last.node), path->matched - last.start,
			    chunks[path->matched - 1].hash))
			return false;
	}
	kvw_ledger_open(&ledger, &tree->views, use->worker, use->capacity_tokens);
	unheld = path->count;
	while (path->matched < count && path->count < KVW_RADIX_MAX_STEPS && done) {
		done = grow(tree, pool, chunks, count, use, path, &ledger);
		unheld = path->matched < count ? path->count : path->count - 1;
	}
	if (path->count == 0)
		return done;
	done &= hold_path(tree, pool, chunks, path, unheld, use->now_ns, &ledger);
	kvw_ledger_close(&ledger);
	if (unheld == path->count)
		unref_node(kvw_slot_at(tree, path->steps[unheld - 1].node));
	return done;
}

void kvw_radix_insert(struct kvw_radix *tree, const struct kvw_chunk *chunks, uint32_t count,
	const struct kvw_radix_use *use, struct kvw_radix_path *path)
{
	uint32_t stamp = (uint32_t)(use->now_ns >> KVW_STAMP_SHIFT);
	struct kvw_pool *pool = NULL;
	struct kvw_swept swept;
	uint32_t fresh = 0;

	assert(use->worker < KVW_MAX_WORKERS && use->capacity_tokens > 0);
	if (count == 0)
		return;
	if (atomic_load_explicit(&tree->clock, memory_order_relaxed) != stamp)
		atomic_store_explicit(&tree->clock, stamp, memory_order_relaxed);
	pool = kvw_pool_mine(tree);
	kvw_radix_expect_eviction(tree, pool);
	kvw_path_settle(tree, chunks, count, path);
	fresh = (count - path->matched + KVW_RADIX_RUN - 1) / KVW_RADIX_RUN;
	kvw_radix_sweep(tree, pool, SWEEP_SLOTS + 2 * fresh, &swept);
	for (unsigned i = 0; i < INSERT_TRIES; i++) {
		if (insert_once(tree, pool, chunks, count, use, path))
			break;
		kvw_radix_find(tree, chunks, count, path);
	}
	kvw_radix_drop(tree, pool, &swept);
}

void kvw_radix_retract(struct kvw_radix *tree, const struct kvw_chunk *chunks, uint32_t count,
	uint32_t kept, uint32_t worker, struct kvw_radix_path *path)
{
	assert(worker < KVW_MAX_WORKERS);
	kvw_radix_find(tree, chunks, count, path);
	kvw_path_settle(tree, chunks, count, path);
	for (uint32_t i = path->count; i-- > 0;) {
		struct kvw_radix_step step = path->steps[i];
		uint32_t length = kvw_path_length(path, i);

		if (step.start + length <= kept)
			break;
		kvw_node_cut(tree, step.node, length, chunks[step.start + length - 1].hash, worker,
			kept > step.start ? kept - step.start : 0);
	}
}
