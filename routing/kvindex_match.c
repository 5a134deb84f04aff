/*
 * kvindex_match.c - finds the leading blocks of a chain that each worker holds.
 *
 * The chain is walked once, from its beginning, as long as some worker holds the next block. A
 * worker stays in the run while it holds each next block, in any tier. Memory of later blocks is
 * prefetched while earlier ones are read. Neighbours in a chain mostly have the same holders,
 * stored in the same order: then the words are only compared and the block counted, so that a long
 * system prompt that all workers hold costs little more than reading it.
 *
 * For sources that count only together, one bit per source is collected first, by tier. When all
 * words of a block were read, a worker holds the block in the first tier up to which all bits of a
 * group are set. The order of the words does not matter.
 */
#include <string.h>

#include "routing/kvindex_local.h"

#define BUCKETS_AHEAD 16 /* blocks whose bucket is prefetched */
#define SLOTS_AHEAD   8  /* blocks whose first slot is prefetched */

#define GROUP_MASK ((1u << KVW_KVINDEX_GROUP) - 1)

/* A walk along a chain. */
struct walk {
	const struct kvw_kvlocal *local;
	struct kvw_kvindex_hits *hits;
	uint32_t block_tokens;
	uint32_t done;    /* number of blocks that were written to hits */
	/* number of further blocks whose holders are the same as those of the last written one */
	uint32_t again;
	uint32_t holders; /* number of words of that block */
	bool any;         /* the current block has a holder */
	bool gathers;     /* some sources count only together: `seen` is zero between two blocks */
	/* bits of the sources that hold this block */
	uint16_t seen[KVW_MAX_WORKERS][KVW_TIER_COUNT];
};

static uint32_t word_tier(uint32_t word)
{
	return word % KVW_TIER_COUNT;
}

static uint32_t word_source(uint32_t word)
{
	return kvw_kvword_cell(word) / KVW_TIER_COUNT % KVW_KVINDEX_SOURCES;
}

static uint32_t word_worker(uint32_t word)
{
	return kvw_kvword_cell(word) / KVW_TIER_COUNT / KVW_KVINDEX_SOURCES;
}

static uint32_t required_of(const struct walk *walk, uint32_t worker)
{
	return atomic_load_explicit(&walk->local->required[worker], memory_order_relaxed);
}

/* Extends a worker's run by the next block, which it holds in this tier and perhaps in others. */
static void reach(struct walk *walk, uint32_t worker, uint32_t tier)
{
	struct kvw_kvindex_hits *hits = walk->hits;
	uint32_t *tokens = hits->tokens[worker];

	if (hits->blocks[worker] == walk->done) {
		if (walk->done == 0) {
			hits->workers[hits->count++] = (uint16_t)worker;
			memset(tokens, 0, sizeof(hits->tokens[worker]));
		}
		hits->blocks[worker]++;
		hits->tier[worker] = (uint8_t)tier;
		tokens[tier] += walk->block_tokens;
		walk->any = true;
	} else if (hits->blocks[worker] == walk->done + 1 && tier < hits->tier[worker]) {
		tokens[hits->tier[worker]] -= walk->block_tokens;
		tokens[tier] += walk->block_tokens;
		hits->tier[worker] = (uint8_t)tier;
	}
}

/* Decides whether the required sources of a group hold the current block. */
static void settle_group(struct walk *walk, uint32_t worker, uint32_t required)
{
	uint32_t have = 0;

	for (uint32_t tier = 0; tier < KVW_TIER_COUNT && required != 0; tier++) {
		have |= walk->seen[worker][tier];
		if ((have & required) == required) {
			reach(walk, worker, tier);
			break;
		}
	}
}

/* Decides whether a worker's required sources hold the current block, and clears `seen`. */
static void settle_worker(struct walk *walk, uint32_t worker)
{
	uint32_t required = required_of(walk, worker);

	for (uint32_t first = 0; first < KVW_KVINDEX_SOURCES; first += KVW_KVINDEX_GROUP)
		settle_group(walk, worker, required & GROUP_MASK << first);
	memset(walk->seen[worker], 0, sizeof(walk->seen[worker]));
}

/* Extends the runs of the workers that hold block `done`. Returns whether any run grew. */
static bool extend(struct walk *walk, const uint32_t *words, uint32_t holders)
{
	walk->any = false;
	for (uint32_t i = 0; i < holders; i++) {
		uint32_t worker = word_worker(words[i]);
		uint32_t bit = 1u << word_source(words[i]);

		if (!kvw_kvword_alive(walk->local, words[i]))
			continue;
		if (walk->gathers && (required_of(walk, worker) & bit) != 0)
			walk->seen[worker][word_tier(words[i])] |= (uint16_t)bit;
		else
			reach(walk, worker, word_tier(words[i]));
	}
	for (uint32_t i = 0; i < holders && walk->gathers; i++)
		settle_worker(walk, word_worker(words[i]));
	walk->done++;
	return walk->any;
}

/* Extends the runs of the block written last by the blocks that have the same holders. */
static void catch_up(struct walk *walk)
{
	struct kvw_kvindex_hits *hits = walk->hits;

	if (walk->again == 0)
		return;
	for (uint32_t i = 0; i < hits->count; i++) {
		uint32_t worker = hits->workers[i];

		if (hits->blocks[worker] == walk->done) {
			hits->blocks[worker] += walk->again;
			hits->tokens[worker][hits->tier[worker]] +=
				walk->again * walk->block_tokens;
		}
	}
	walk->done += walk->again;
	walk->again = 0;
}

/* Takes the next block's words. Returns whether any run may go on. */
static bool take_block(
	struct walk *walk, const uint32_t *words, uint32_t holders, const uint32_t *last)
{
	if (walk->done > 0 && holders == walk->holders &&
		memcmp(words, last, holders * sizeof(*words)) == 0) {
		walk->again++;
		return true;
	}
	catch_up(walk);
	walk->holders = holders;
	return extend(walk, words, holders);
}

static void walk_begin(struct walk *walk, const struct kvw_kvlocal *local, uint32_t block_tokens,
	struct kvw_kvindex_hits *hits)
{
	walk->local = local;
	walk->hits = hits;
	walk->block_tokens = block_tokens;
	walk->done = 0;
	walk->again = 0;
	walk->holders = 0;
	walk->gathers = atomic_load_explicit(&local->requires, memory_order_relaxed);
	if (walk->gathers)
		memset(walk->seen, 0, sizeof(walk->seen));
	hits->count = 0;
	memset(hits->blocks, 0, sizeof(hits->blocks));
}

static void prefetch_bucket(const struct kvw_kvtable *table, const uint64_t *keys, uint32_t count,
	uint32_t at, uint64_t mix)
{
	if (at < count)
		__builtin_prefetch(kvw_kvtable_bucket(table, keys[at] ^ mix));
}

static void prefetch_slot(const struct kvw_kvtable *table, const uint64_t *keys, uint32_t count,
	uint32_t at, uint64_t mix)
{
	if (at < count)
		kvw_kvtable_prefetch(table, keys[at] ^ mix);
}

void kvw_kvmatch(const struct kvw_kvlocal *local, uint64_t mix, const uint64_t *keys,
	uint32_t count, uint32_t block_tokens, struct kvw_kvindex_hits *hits)
{
	const struct kvw_kvtable *table = &local->table;
	uint32_t words[2][KVW_KVWORDS_READ]; /* words of this block and of the one before */
	struct walk walk;
	unsigned turn = 0;
	bool more = true;

	walk_begin(&walk, local, block_tokens, hits);
	for (uint32_t i = 0; i < BUCKETS_AHEAD; i++)
		prefetch_bucket(table, keys, count, i, mix);
	for (uint32_t i = 0; i < SLOTS_AHEAD; i++)
		prefetch_slot(table, keys, count, i, mix);
	for (uint32_t i = 0; i < count && more; i++, turn ^= 1) {
		uint32_t holders = 0;

		prefetch_bucket(table, keys, count, i + BUCKETS_AHEAD, mix);
		prefetch_slot(table, keys, count, i + SLOTS_AHEAD, mix);
		holders = kvw_kvtable_read(table, keys[i] ^ mix, words[turn]);
		more = take_block(&walk, words[turn], holders, words[turn ^ 1]);
	}
	catch_up(&walk);
}
