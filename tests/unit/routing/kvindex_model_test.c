/*
 * kvindex_model_test.c - the block index against a naive count of every event.
 *
 * The reference counts, for each worker, source, tier and engine hash, stores less removals. With
 * room enough the index must equal it for every worker; with too little it may know less, never
 * more.
 */
#include <stdlib.h>

#include "routing/kvindex.h"
#include "support.h"
#include "tests/unit/suite.h"

#define WORKERS 12
#define SOURCES 4    /* two of each group */
#define HASHES  6000 /* at most */
#define CHAIN   24   /* blocks of the longest event and query */
#define BLOCK   16

struct model {
	struct kvw_kvindex *index;
	uint64_t dice;
	uint32_t hashes; /* engine hashes in play */
	uint32_t counts[WORKERS][SOURCES][KVW_TIER_COUNT][HASHES];
	uint32_t required[WORKERS]; /* bits of sources that count together */
	uint64_t unknown;
	struct kvw_kvindex_hits hits;
};

/* The number of a source as the index knows it: the last two are of the other group. */
static uint32_t number_of(uint32_t source)
{
	return source < SOURCES / 2 ? source : source + KVW_KVINDEX_GROUP;
}

/* Bits of sources as the index knows them. */
static uint32_t numbers_of(uint32_t bits)
{
	uint32_t numbers = 0;

	for (uint32_t s = 0; s < SOURCES; s++)
		if ((bits >> s & 1) != 0)
			numbers |= 1u << number_of(s);
	return numbers;
}

/* Every eighth hash means the same key as the one before. */
static uint64_t key_of(uint32_t hash)
{
	uint64_t state = hash % 8 == 7 ? hash - 1 : hash;

	return test_random(&state);
}

static uint32_t roll(struct model *m, uint32_t below)
{
	return (uint32_t)(test_random(&m->dice) >> 20) % below;
}

static bool source_has(
	const struct model *m, uint32_t worker, uint32_t source, uint32_t tier, uint32_t hash)
{
	uint32_t first = hash % 8 == 7 ? hash - 1 : hash;

	return m->counts[worker][source][tier][first] > 0 ||
	       (first % 8 == 6 && m->counts[worker][source][tier][first + 1] > 0);
}

/* Whether a group of a worker's sources, [first, end), can give what a hash means from a tier or a
 * faster one. */
static bool group_has(const struct model *m, uint32_t worker, uint32_t tier, uint32_t hash,
	uint32_t first, uint32_t end)
{
	bool together = (m->required[worker] >> first & ((1u << (end - first)) - 1)) != 0;

	for (uint32_t s = first; s < end; s++) {
		bool has = false;

		for (uint32_t t = 0; t <= tier; t++)
			has |= source_has(m, worker, s, t, hash);
		if ((m->required[worker] >> s & 1) != 0)
			together &= has;
		else if (has)
			return true;
	}
	return together;
}

/* The same of all sources. */
static bool has_up_to(const struct model *m, uint32_t worker, uint32_t tier, uint32_t hash)
{
	return group_has(m, worker, tier, hash, 0, SOURCES / 2) ||
	       group_has(m, worker, tier, hash, SOURCES / 2, SOURCES);
}

/* Fastest tier in which a worker holds what a hash means; KVW_TIER_COUNT: none. */
static uint32_t tier_of(const struct model *m, uint32_t worker, uint32_t hash)
{
	uint32_t tier = 0;

	while (tier < KVW_TIER_COUNT && !has_up_to(m, worker, tier, hash))
		tier++;
	return tier;
}

/* --- events --- */

static void change_hash(struct model *m, uint32_t worker, uint32_t source, uint32_t tier,
	uint32_t hash, bool stored)
{
	uint32_t *count = &m->counts[worker][source][tier][hash];

	if (stored)
		(*count)++;
	else if (*count > 0)
		(*count)--;
	else
		m->unknown++;
}

static void play_blocks(struct model *m, bool stored)
{
	uint32_t source = roll(m, SOURCES);
	struct kvw_kvindex_from from = {roll(m, WORKERS), number_of(source)};
	uint64_t hashes[CHAIN];
	uint64_t keys[CHAIN];
	struct kvw_kvindex_blocks blocks = {
		9, (enum kvw_tier)roll(m, KVW_TIER_COUNT), 1 + roll(m, CHAIN), hashes, keys};
	uint32_t first = roll(m, m->hashes);

	for (uint32_t i = 0; i < blocks.count; i++) {
		uint32_t hash = (first + i) % m->hashes;

		hashes[i] = hash;
		keys[i] = key_of(hash);
		change_hash(m, from.worker, source, blocks.tier, hash, stored);
	}
	if (stored)
		kvw_kvindex_stored(m->index, from, &blocks);
	else
		kvw_kvindex_removed(m->index, from, &blocks);
}

static void forget(struct model *m, uint32_t worker, uint32_t source, uint32_t tier)
{
	for (uint32_t s = 0; s < SOURCES; s++)
		for (uint32_t t = 0; t < KVW_TIER_COUNT; t++)
			for (uint32_t h = 0; h < m->hashes; h++)
				if ((source == KVW_KVINDEX_ANY || s == source) &&
					(tier == KVW_KVINDEX_ANY || t == tier))
					m->counts[worker][s][t][h] = 0;
}

static void play_event(struct model *m)
{
	uint32_t what = roll(m, 1000);
	uint32_t worker = roll(m, WORKERS);
	uint32_t source = roll(m, 2) == 0 ? KVW_KVINDEX_ANY : roll(m, SOURCES);
	uint32_t tier = roll(m, 2) == 0 ? KVW_KVINDEX_ANY : roll(m, KVW_TIER_COUNT);

	if (what < 520) {
		play_blocks(m, true);
	} else if (what < 992) {
		play_blocks(m, false);
	} else if (what < 995) {
		kvw_kvindex_cleared(m->index, worker,
			source == KVW_KVINDEX_ANY ? source : number_of(source), tier);
		forget(m, worker, source, tier);
	} else if (what < 996) {
		kvw_kvindex_purge(m->index, worker);
		forget(m, worker, KVW_KVINDEX_ANY, KVW_KVINDEX_ANY);
	} else if (what < 998) {
		uint32_t among = roll(m, 1 << SOURCES);
		uint32_t bits = roll(m, 1 << SOURCES);

		m->required[worker] = (m->required[worker] & ~among) | (bits & among);
		kvw_kvindex_require(m->index, worker, numbers_of(among), numbers_of(bits));
	} else {
		kvw_kvindex_tick(m->index, 0);
	}
}

/* --- comparing --- */

/* Leading blocks of first, first + 1, ... that a worker holds, by tier. */
static uint32_t run_of(struct model *m, uint32_t worker, uint32_t first, uint32_t count,
	uint32_t tokens[KVW_TIER_COUNT])
{
	uint32_t i = 0;

	for (uint32_t t = 0; t < KVW_TIER_COUNT; t++)
		tokens[t] = 0;
	for (; i < count; i++) {
		uint32_t tier = tier_of(m, worker, (first + i) % m->hashes);

		if (tier == KVW_TIER_COUNT)
			break;
		tokens[tier] += BLOCK;
	}
	return i;
}

static void query(struct model *m, uint32_t first, uint32_t count)
{
	uint64_t keys[CHAIN];

	for (uint32_t i = 0; i < count; i++)
		keys[i] = key_of((first + i) % m->hashes);
	kvw_kvindex_match(m->index, 9, keys, count, BLOCK, &m->hits);
}

static void check_equal(struct model *m)
{
	uint32_t first = roll(m, m->hashes);
	uint32_t count = 1 + roll(m, CHAIN);
	uint32_t tokens[KVW_TIER_COUNT];
	uint32_t reached = 0;

	query(m, first, count);
	for (uint32_t w = 0; w < WORKERS; w++) {
		uint32_t run = run_of(m, w, first, count, tokens);

		reached += run > 0;
		EXPECT(m->hits.blocks[w] == run);
		for (uint32_t t = 0; t < KVW_TIER_COUNT && run > 0; t++)
			EXPECT(m->hits.tokens[w][t] == tokens[t]);
	}
	EXPECT(m->hits.count == reached);
}

/* Returns the hits. Each block alone, which shows its tier, then a chain. */
static uint32_t check_no_more(struct model *m)
{
	uint32_t hash = roll(m, m->hashes);
	uint32_t tokens[KVW_TIER_COUNT];
	uint32_t count = 1 + roll(m, CHAIN);
	uint32_t hits = 0;

	query(m, hash, 1);
	hits = m->hits.count;
	for (uint32_t i = 0; i < m->hits.count; i++) {
		uint32_t w = m->hits.workers[i];
		uint32_t tier = m->hits.tier[w];

		EXPECT(m->hits.blocks[w] == 1 && m->hits.tokens[w][tier] == BLOCK);
		EXPECT(has_up_to(m, w, tier, hash));
	}
	query(m, hash, count);
	for (uint32_t w = 0; w < WORKERS; w++)
		EXPECT(m->hits.blocks[w] <= run_of(m, w, hash, count, tokens));
	return hits;
}

static uint64_t held_by_all(const struct model *m)
{
	uint64_t sum = 0;

	for (uint32_t w = 0; w < WORKERS; w++)
		for (uint32_t s = 0; s < SOURCES; s++)
			for (uint32_t t = 0; t < KVW_TIER_COUNT; t++)
				for (uint32_t h = 0; h < m->hashes; h++)
					sum += m->counts[w][s][t][h] > 0;
	return sum;
}

static struct model *model_make(uint64_t bytes, uint32_t hashes, uint64_t seed)
{
	struct kvw_kvindex_options options = {.bytes = bytes, .seed = seed};
	struct model *m = calloc(1, sizeof(*m));

	ck_assert_ptr_nonnull(m);
	m->hashes = hashes;
	m->dice = seed;
	ck_assert_int_eq(kvw_kvindex_create(&options, &m->index), KVW_OK);
	return m;
}

static void model_free(struct model *m)
{
	kvw_kvindex_destroy(m->index);
	free(m);
}

START_TEST(equal_with_room)
{
	struct model *m = model_make(16 << 20, _i == 0 ? 96 : 808, 11 + (uint64_t)_i);
	struct kvw_kvindex_stats stats;

	for (unsigned i = 0; i < 40000; i++) {
		play_event(m);
		check_equal(m);
	}
	kvw_kvindex_stats(m->index, &stats);
	ck_assert_uint_eq(stats.holders - stats.stale, held_by_all(m));
	ck_assert_uint_eq(stats.unknown_removes, m->unknown);
	ck_assert_uint_eq(stats.dropped, 0);
	ck_assert_uint_gt(held_by_all(m), 100);
	for (uint32_t w = 0; w < WORKERS; w++)
		kvw_kvindex_purge(m->index, w);
	for (unsigned i = 0; i < 100; i++)
		kvw_kvindex_tick(m->index, 0);
	kvw_kvindex_stats(m->index, &stats);
	ck_assert_uint_eq(stats.holders, 0);
	ck_assert_uint_eq(stats.blocks, 0);
	model_free(m);
}
END_TEST

START_TEST(never_more_without_room)
{
	struct model *m = model_make(KVW_KVINDEX_MIN_BYTES, HASHES, 5);
	struct kvw_kvindex_stats stats;
	uint64_t hits = 0;

	for (unsigned i = 0; i < 150000; i++) {
		play_event(m);
		hits += check_no_more(m);
	}
	kvw_kvindex_stats(m->index, &stats);
	ck_assert_uint_gt(stats.dropped, 10000);
	ck_assert_uint_gt(hits, 10000);
	ck_assert_uint_le(stats.bytes, stats.bytes_limit);
	ck_assert_uint_le(stats.bytes_limit, KVW_KVINDEX_MIN_BYTES);
	model_free(m);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("model");

	tcase_add_loop_test(tcase, equal_with_room, 0, 2);
	tcase_add_test(tcase, never_more_without_room);
	tcase_set_timeout(tcase, 240);
	return run_tcase("kvindex_model", tcase);
}
