/*
 * apply_test.c - events as writes to the index: keys that a prompt finds, and those that it must not.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "support.h"
#include "feeds/vllm_apply.h"
#include "tests/unit/suite.h"

#define BLOCK 16u
#define CHAIN 8u

static struct kvw_kvindex *kvindex;
static struct kvw_kvspaces *spaces;
static struct kvw_vllm_applier applier;
static struct kvw_vllm_map map;
static struct kvw_vllm_applied applied;
static uint32_t tokens[CHAIN * BLOCK];
static int64_t now_ns;

static void setup(void)
{
	const struct kvw_kvindex_options options = {
		.bytes = 4u << 20, .park_bytes = 1u << 18, .park_ns = INT64_C(1000000000)};

	for (uint32_t i = 0; i < CHAIN * BLOCK; i++)
		tokens[i] = i * 7 + 1;
	ck_assert_int_eq(kvw_kvindex_create(&options, &kvindex), KVW_OK);
	ck_assert_int_eq(kvw_kvspaces_create(&spaces), KVW_OK);
	kvw_vllm_applier_init(&applier, kvindex, spaces);
	map = (struct kvw_vllm_map){.worker = 5};
	now_ns = 1;
}

static void teardown(void)
{
	kvw_vllm_applier_finish(&applier);
	kvw_kvspaces_destroy(spaces);
	kvw_kvindex_destroy(kvindex);
}

static void apply(const void *data, size_t len, uint32_t rank)
{
	kvw_vllm_apply(&applier, &map, rank, (struct kvw_slice){data, len}, now_ns, &applied);
}

/* Blocks [from, to) of the prompt, their hashes 100 + i. */
static struct engine_stored blocks_of(uint32_t from, uint32_t to)
{
	return (struct engine_stored){.base = 100 + from,
		.parent = from == 0 ? 0 : 99 + from,
		.tokens = tokens + from * BLOCK,
		.blocks = to - from,
		.block_size = BLOCK};
}

static void store(const struct engine_stored *stored, uint32_t rank)
{
	uint8_t data[8192];

	apply(data, engine_put_stored(data, sizeof(data), stored), rank);
	ck_assert_ptr_null(applied.hole);
	ck_assert_uint_eq(applied.events, 1);
}

static void remove_block(uint64_t hash, uint32_t group)
{
	uint8_t data[256];

	apply(data, engine_put_removed(data, sizeof(data), &hash, 1, group), 0);
	ck_assert_ptr_null(applied.hole);
}

/* Leading blocks, and the tier of the last one. */
static uint32_t hit_of(const char *lora, const char *salt, enum kvw_tier *tier)
{
	static struct kvw_kvindex_hits hits;
	struct kvw_kvprompt prompt = {.tokens = tokens,
		.count = CHAIN * BLOCK,
		.lora = kvw_slice_of(lora),
		.cache_salt = kvw_slice_of(salt)};
	struct kvw_kvchains chains = {.count = 0};
	uint32_t blocks = 0;

	ck_assert_int_eq(kvw_kvchains_fill(&chains, spaces, &prompt), KVW_OK);
	for (uint32_t i = 0; i < chains.count; i++) {
		if (chains.chains[i].block_tokens != BLOCK)
			continue;
		kvw_kvindex_match(kvindex, chains.chains[i].space, chains.chains[i].keys,
			chains.chains[i].count, BLOCK, &hits);
		blocks = hits.blocks[5];
		if (tier != NULL && blocks > 0)
			*tier = (enum kvw_tier)hits.tier[5];
	}
	kvw_kvchains_finish(&chains);
	return blocks;
}

static uint32_t hit(void)
{
	return hit_of(NULL, NULL, NULL);
}

START_TEST(a_chain_in_pieces_is_one)
{
	struct engine_stored first = blocks_of(0, 3), second = blocks_of(3, CHAIN);

	store(&first, 0);
	ck_assert_uint_eq(hit(), 3);
	store(&second, 0);
	ck_assert_uint_eq(hit(), CHAIN);
	remove_block(100 + 5, 0);
	ck_assert_uint_eq(hit(), 5);
}
END_TEST

START_TEST(adapter_and_salt_are_part_of_the_name)
{
	struct engine_stored stored = blocks_of(0, CHAIN);

	stored.lora = "tuned";
	stored.salt = "tenant";
	store(&stored, 0);
	ck_assert_uint_eq(hit(), 0);
	ck_assert_uint_eq(hit_of("tuned", NULL, NULL), 0);
	ck_assert_uint_eq(hit_of(NULL, "tenant", NULL), 0);
	ck_assert_uint_eq(hit_of("other", "tenant", NULL), 0);
	ck_assert_uint_eq(hit_of("tuned", "tenant", NULL), CHAIN);
}
END_TEST

START_TEST(an_image_is_never_hit_by_text_and_text_before_it_is)
{
	struct engine_stored before = blocks_of(0, 2), image = blocks_of(2, 4),
			     after = blocks_of(4, 6);

	before.lora = image.lora = after.lora = "tuned";
	image.image = "0123abcd";
	store(&before, 0);
	store(&image, 0);
	store(&after, 0);
	ck_assert_uint_eq(hit_of("tuned", NULL, NULL), 2);
	image.image = NULL; /* the same tokens without it are other blocks */
	image.base += 50;
	image.parent = 101;
	store(&image, 0);
	ck_assert_uint_eq(hit_of("tuned", NULL, NULL), 4);
}
END_TEST

START_TEST(a_prompt_that_begins_with_an_image_is_not_hit)
{
	struct engine_stored stored = blocks_of(0, CHAIN);

	stored.image = "0123abcd";
	store(&stored, 0);
	ck_assert_uint_eq(hit(), 0);
	/* ... nor is one whose parents come later. */
	stored = blocks_of(0, 1);
	stored.base = 300;
	store(&stored, 0);
	ck_assert_uint_eq(hit(), 1);
}
END_TEST

START_TEST(blocks_wait_for_their_parent)
{
	struct engine_stored first = blocks_of(0, 2), second = blocks_of(2, 4),
			     third = blocks_of(4, 6);

	store(&third, 0);
	store(&second, 0);
	ck_assert_uint_eq(hit(), 0);
	store(&first, 0);
	ck_assert_uint_eq(hit(), 6);
}
END_TEST

START_TEST(parked_blocks_keep_what_else_they_are)
{
	struct engine_stored first = blocks_of(0, 2), image = blocks_of(2, 4);

	image.image = "0123abcd";
	store(&image, 0);
	store(&first, 0);
	ck_assert_uint_eq(hit(), 2);
}
END_TEST

START_TEST(offloaded_blocks_are_known_by_their_hashes)
{
	struct engine_stored stored = blocks_of(0, 4), copy = blocks_of(0, 6);
	enum kvw_tier tier = KVW_TIER_COUNT;

	store(&stored, 0);
	copy.without_tokens = true; /* two of them unknown */
	copy.medium = "CPU";
	store(&copy, 0);
	ck_assert_uint_eq(hit_of(NULL, NULL, &tier), 4);
	ck_assert_int_eq(tier, KVW_TIER_DEVICE);
	for (uint64_t hash = 103; hash >= 102; hash--)
		remove_block(hash, 0);
	ck_assert_uint_eq(hit_of(NULL, NULL, &tier), 4);
	ck_assert_int_eq(tier, KVW_TIER_HOST);
}
END_TEST

START_TEST(groups_of_a_rank_hold_a_block_together)
{
	struct engine_stored stored = blocks_of(0, 4);

	stored.kind = "full_attention";
	store(&stored, 0);
	ck_assert_uint_eq(hit(), 4);
	stored = blocks_of(0, 3);
	stored.kind = "mla_attention";
	stored.group = 1;
	store(&stored, 0);
	ck_assert_uint_eq(hit(), 3);
	remove_block(101, 1);
	ck_assert_uint_eq(hit(), 1);
}
END_TEST

START_TEST(a_window_does_not_count_next_to_a_group_that_sees_all)
{
	struct engine_stored window = blocks_of(0, 2), full = blocks_of(0, 6);

	window.kind = "sliding_window";
	window.group = _i == 0 ? 1 : 0; /* whichever is reported first */
	full.kind = "full_attention";
	full.group = 1 - window.group;
	store(_i == 0 ? &full : &window, 0);
	ck_assert_uint_eq(hit(), _i == 0 ? 6 : 2); /* alone, it counts */
	store(_i == 0 ? &window : &full, 0);
	ck_assert_uint_eq(hit(), 6);
	remove_block(100, window.group);
	ck_assert_uint_eq(hit(), 6);
	remove_block(104, full.group);
	ck_assert_uint_eq(hit(), 4);
}
END_TEST

START_TEST(ranks_count_each_for_itself)
{
	struct engine_stored first = blocks_of(0, 2), second = blocks_of(0, 5);

	store(&first, 0);
	store(&second, 3);
	ck_assert_uint_eq(hit(), 5);
	kvw_vllm_map_clear(&applier, &map, 3);
	ck_assert_uint_eq(hit(), 2);
	kvw_vllm_map_clear(&applier, &map, 0);
	ck_assert_uint_eq(hit(), 0);
	ck_assert_uint_eq(map.count, 0);
}
END_TEST

START_TEST(too_many_groups_are_a_hole)
{
	struct engine_stored stored = blocks_of(0, 2);
	uint8_t data[8192];
	size_t len;

	for (uint32_t group = 0; group < KVW_EXACT_ENGINE_SOURCES; group++) {
		stored.group = group;
		store(&stored, 0);
	}
	ck_assert(!map.overflow);
	stored.group = KVW_EXACT_ENGINE_SOURCES;
	len = engine_put_stored(data, sizeof(data), &stored);
	apply(data, len, 0);
	ck_assert(map.overflow);
	ck_assert_ptr_nonnull(applied.hole);
	ck_assert_uint_eq(applied.dropped, 1);
	for (uint32_t group = 0; group < 2 * KVW_VLLM_GROUPS; group++) {
		stored.group = group;
		len = engine_put_stored(data, sizeof(data), &stored);
		apply(data, len, 1);
	}
	ck_assert_uint_le(map.count, KVW_VLLM_GROUPS);
	ck_assert_ptr_nonnull(applied.hole);
}
END_TEST

START_TEST(cleared_is_reported_and_done)
{
	struct engine_stored stored = blocks_of(0, 2);
	uint8_t data[256];

	store(&stored, 0);
	ck_assert(!applied.cleared);
	apply(data, engine_put_cleared(data, sizeof(data)), 0);
	ck_assert(applied.cleared);
	ck_assert_uint_eq(hit(), 0);
	store(&stored, 0);
	ck_assert_uint_eq(hit(), 2);
}
END_TEST

START_TEST(a_batch_cut_anywhere_is_a_hole_and_changes_nothing)
{
	struct engine_stored stored = blocks_of(0, CHAIN);
	uint8_t data[8192];
	size_t len = engine_put_stored(data, sizeof(data), &stored);

	for (size_t cut = 0; cut < len; cut++) {
		uint8_t *copy = malloc(cut + 1);

		memcpy(copy, data, cut);
		apply(copy, cut, 0);
		ck_assert_ptr_nonnull(applied.hole);
		ck_assert_uint_ge(applied.dropped, 1);
		ck_assert_uint_eq(hit(), 0);
		free(copy);
	}
}
END_TEST

START_TEST(an_adapters_number_alone_matches_none)
{
	/* Positional, as engines before 0.24 send it: lora_id 3, no name. */
	static const uint8_t head[] = {0x92, 0x00, 0x91, 0x96, 0xab, 'B', 'l', 'o', 'c', 'k', 'S',
		't', 'o', 'r', 'e', 'd', 0x91, 0x07, 0xc0, 0xdc, 0x00, 0x10};
	uint8_t data[128];
	size_t len = sizeof(head);

	memcpy(data, head, len);
	for (uint32_t i = 0; i < BLOCK; i++)
		data[len++] = (uint8_t)tokens[i];
	data[len++] = BLOCK;
	data[len++] = 3;
	apply(data, len, 0);
	ck_assert_ptr_null(applied.hole);
	ck_assert_uint_eq(applied.events, 1);
	ck_assert_uint_eq(hit(), 0);
	data[len - 1] = 0xc0; /* no adapter */
	apply(data, len, 0);
	ck_assert_uint_eq(hit(), 1);
}
END_TEST

/* Recorded of two data-parallel ranks. A worker that is one of them takes no batch of the other. */
START_TEST(a_rank_takes_its_own_batches_alone)
{
	static char line[4096];
	uint8_t data[2048];
	unsigned rank, byte, batches = 0;
	FILE *in = fopen(DATA_DIR "/vllm_dp_events.txt", "re");

	ck_assert_ptr_nonnull(in);
	map.one_rank = true;
	while (fgets(line, sizeof(line), in) != NULL) {
		size_t len = 0;

		if (sscanf(line, "%u", &rank) != 1)
			continue; /* a comment */
		for (const char *at = strchr(line, ' ') + 1; sscanf(at, "%2x", &byte) == 1; at += 2)
			data[len++] = (uint8_t)byte;
		apply(data, len, 1 - rank);
		ck_assert_ptr_nonnull(applied.hole);
		ck_assert_uint_eq(applied.events, 0);
		apply(data, len, rank);
		ck_assert_ptr_null(applied.hole);
		ck_assert_uint_gt(applied.events, 0);
		batches++;
	}
	fclose(in);
	ck_assert_uint_eq(batches, 9);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("apply");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_chain_in_pieces_is_one);
	tcase_add_test(tc, adapter_and_salt_are_part_of_the_name);
	tcase_add_test(tc, an_image_is_never_hit_by_text_and_text_before_it_is);
	tcase_add_test(tc, a_prompt_that_begins_with_an_image_is_not_hit);
	tcase_add_test(tc, blocks_wait_for_their_parent);
	tcase_add_test(tc, parked_blocks_keep_what_else_they_are);
	tcase_add_test(tc, offloaded_blocks_are_known_by_their_hashes);
	tcase_add_test(tc, groups_of_a_rank_hold_a_block_together);
	tcase_add_loop_test(tc, a_window_does_not_count_next_to_a_group_that_sees_all, 0, 2);
	tcase_add_test(tc, ranks_count_each_for_itself);
	tcase_add_test(tc, too_many_groups_are_a_hole);
	tcase_add_test(tc, a_rank_takes_its_own_batches_alone);
	tcase_add_test(tc, cleared_is_reported_and_done);
	tcase_add_test(tc, a_batch_cut_anywhere_is_a_hole_and_changes_nothing);
	tcase_add_test(tc, an_adapters_number_alone_matches_none);
	return run_tcase("apply", tc);
}
