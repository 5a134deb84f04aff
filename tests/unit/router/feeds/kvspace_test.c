/*
 * kvspace_test.c - spaces are found again, and prompts get the names that feeds compute.
 */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tests/unit/suite.h"
#include "wire/block_key.h"
#include "feeds/kvspace.h"

#define TOKENS 1000u

static struct kvw_kvspaces *spaces;
static struct kvw_kvchains chains;
static uint32_t tokens[TOKENS];

static void setup(void)
{
	ck_assert_int_eq(kvw_kvspaces_create(&spaces), KVW_OK);
	for (uint32_t i = 0; i < TOKENS; i++)
		tokens[i] = 7 * i + 3;
}

static void teardown(void)
{
	kvw_kvchains_finish(&chains);
	kvw_kvspaces_destroy(spaces);
}

static const struct kvw_kvprompt plain = {.tokens = tokens, .count = TOKENS};

/* LMCache's default with this chunk size. */
static struct kvw_lmcache_recipe recipe_of(uint32_t chunk, const char *seed)
{
	return (struct kvw_lmcache_recipe){
		.algorithm = KVW_LMCACHE_SHA256_CBOR, .seed = seed, .chunk_size = chunk};
}

START_TEST(an_engine_space_is_found_again)
{
	uint32_t first, second, again;

	ck_assert_int_eq(kvw_kvspaces_engine(spaces, 16, &first), KVW_OK);
	ck_assert_int_eq(kvw_kvspaces_engine(spaces, 32, &second), KVW_OK);
	ck_assert_int_eq(kvw_kvspaces_engine(spaces, 16, &again), KVW_OK);
	ck_assert_uint_eq(first, again);
	ck_assert_uint_ne(first, second);
	ck_assert_uint_eq(kvw_kvspaces_count(spaces), 2);
	ck_assert_uint_eq(kvw_kvspaces_get(spaces, second)->block_tokens, 32);
	ck_assert_uint_eq(kvw_kvspaces_get(spaces, second)->number, second);
}
END_TEST

START_TEST(a_recipe_is_found_again_by_its_content)
{
	char seed[] = "42";
	struct kvw_lmcache_recipe recipe = recipe_of(256, seed), other;
	uint32_t first, again, space;

	ck_assert_int_eq(kvw_kvspaces_lmcache(spaces, &recipe, &first), KVW_OK);
	seed[0] = '5'; /* the table has its own copy */
	ck_assert_str_eq(kvw_kvspaces_get(spaces, first)->recipe.seed, "42");
	other = recipe_of(256, "42");
	ck_assert_int_eq(kvw_kvspaces_lmcache(spaces, &other, &again), KVW_OK);
	ck_assert_uint_eq(first, again);
	other = recipe_of(256, NULL);
	ck_assert_int_eq(kvw_kvspaces_lmcache(spaces, &other, &space), KVW_OK);
	ck_assert_uint_ne(first, space);
	other = recipe_of(64, "42");
	ck_assert_int_eq(kvw_kvspaces_lmcache(spaces, &other, &space), KVW_OK);
	ck_assert_uint_ne(first, space);
	ck_assert_uint_eq(kvw_kvspaces_count(spaces), 3);
}
END_TEST

START_TEST(what_cannot_be_is_refused)
{
	struct kvw_lmcache_recipe recipe = recipe_of(0, "0");
	uint32_t space = 99;

	ck_assert_int_eq(kvw_kvspaces_engine(spaces, 0, &space), KVW_EINVAL);
	ck_assert_int_eq(kvw_kvspaces_engine(spaces, KVW_KVSPACE_BLOCK_MAX + 1, &space), KVW_EINVAL);
	ck_assert_int_eq(kvw_kvspaces_lmcache(spaces, &recipe, &space), KVW_EINVAL);
	for (uint32_t i = 0; i < KVW_EXACT_CHAINS; i++)
		ck_assert_int_eq(kvw_kvspaces_engine(spaces, i + 1, &space), KVW_OK);
	recipe = recipe_of(256, "0");
	space = 99;
	ck_assert_int_eq(kvw_kvspaces_engine(spaces, 100, &space), KVW_ELIMIT);
	ck_assert_int_eq(kvw_kvspaces_lmcache(spaces, &recipe, &space), KVW_ELIMIT);
	ck_assert_uint_eq(space, 99);
	ck_assert_int_eq(kvw_kvspaces_engine(spaces, 5, &space), KVW_OK); /* is there already */
}
END_TEST

START_TEST(sizes_of_chunks_by_position_leave_spaces_to_others)
{
	uint32_t space = 99, first;

	ck_assert_int_eq(kvw_kvspaces_positions(spaces, 1, &first), KVW_OK);
	for (uint32_t i = 1; i < KVW_KVSPACE_POSITIONS_MOST; i++)
		ck_assert_int_eq(kvw_kvspaces_positions(spaces, i + 1, &space), KVW_OK);
	ck_assert_int_eq(kvw_kvspaces_positions(spaces, 100, &space), KVW_ELIMIT);
	ck_assert_int_eq(kvw_kvspaces_positions(spaces, 1, &space), KVW_OK); /* is there already */
	ck_assert_uint_eq(space, first);
	ck_assert_int_eq(kvw_kvspaces_engine(spaces, 100, &space), KVW_OK);
	ck_assert_uint_eq(kvw_kvspaces_count(spaces), KVW_KVSPACE_POSITIONS_MOST + 1);
}
END_TEST

START_TEST(a_prompt_has_a_name_in_every_space)
{
	struct kvw_lmcache_recipe recipe = recipe_of(256, "0");
	uint64_t state, keys[64];
	uint32_t space;
	size_t made;

	recipe.partial_chunk = true; /* names of parts of a chunk are not asked for */
	ck_assert_int_eq(kvw_kvchains_fill(&chains, spaces, &plain), KVW_OK);
	ck_assert_uint_eq(chains.count, 0);
	ck_assert_int_eq(kvw_kvspaces_engine(spaces, 16, &space), KVW_OK);
	ck_assert_int_eq(kvw_kvspaces_lmcache(spaces, &recipe, &space), KVW_OK);
	ck_assert_int_eq(kvw_kvchains_fill(&chains, spaces, &plain), KVW_OK);
	ck_assert_uint_eq(chains.count, 2);

	ck_assert_int_eq(chains.chains[0].reporter, KVW_REPORTER_ENGINE);
	ck_assert_uint_eq(chains.chains[0].count, TOKENS / 16);
	state = kvw_kvspace_engine_root(16, (struct kvw_slice){0}, (struct kvw_slice){0});
	kvw_block_keys(&state, tokens, TOKENS, 16, keys, 64);
	ck_assert_mem_eq(chains.chains[0].keys, keys, TOKENS / 16 * sizeof(*keys));

	ck_assert_int_eq(chains.chains[1].reporter, KVW_REPORTER_LMCACHE);
	ck_assert_uint_eq(chains.chains[1].space, space);
	ck_assert_uint_eq(chains.chains[1].block_tokens, 256);
	ck_assert_uint_eq(chains.chains[1].count, 3);
	ck_assert_int_eq(kvw_lmcache_begin(&recipe, &state), KVW_OK);
	ck_assert_int_eq(
		kvw_lmcache_hash(&recipe, &state, tokens, TOKENS, keys, 64, &made), KVW_OK);
	ck_assert_uint_eq(made, 4); /* with the partial one */
	ck_assert_mem_eq(chains.chains[1].keys, keys, 3 * sizeof(*keys));
}
END_TEST

START_TEST(a_prompt_below_a_block_has_an_empty_chain)
{
	const struct kvw_kvprompt shorter = {.tokens = tokens, .count = 15}, none = {.count = 0};
	uint32_t space;

	ck_assert_int_eq(kvw_kvspaces_engine(spaces, 16, &space), KVW_OK);
	ck_assert_int_eq(kvw_kvchains_fill(&chains, spaces, &shorter), KVW_OK);
	ck_assert_uint_eq(chains.count, 1);
	ck_assert_uint_eq(chains.chains[0].count, 0);
	ck_assert_int_eq(kvw_kvchains_fill(&chains, spaces, &none), KVW_OK);
	ck_assert_uint_eq(chains.chains[0].count, 0);
	/* A longer prompt afterwards: the arrays grow. */
	ck_assert_int_eq(kvw_kvchains_fill(&chains, spaces, &plain), KVW_OK);
	ck_assert_uint_eq(chains.chains[0].count, TOKENS / 16);
}
END_TEST

START_TEST(adapter_salt_and_block_size_make_other_names)
{
	struct kvw_slice none = {0}, a = KVW_SLICE("a"), b = KVW_SLICE("b");
	const uint64_t roots[] = {
		kvw_kvspace_engine_root(16, none, none),
		kvw_kvspace_engine_root(32, none, none),
		kvw_kvspace_engine_root(16, a, none),
		kvw_kvspace_engine_root(16, none, a),
		kvw_kvspace_engine_root(16, b, none),
		kvw_kvspace_engine_root(16, a, b),
	};
	size_t count = sizeof(roots) / sizeof(roots[0]);

	for (size_t i = 0; i < count; i++)
		for (size_t j = 0; j < i; j++)
			ck_assert_uint_ne(roots[i], roots[j]);
}
END_TEST

/* The hash of a chunk as a server reports it gives the key that a prompt has there. */
START_TEST(a_reported_hash_is_the_key_of_the_prompts_chunk)
{
	struct kvw_kvchains all = {.count = 0};
	struct kvw_kvprompt prompt = {.count = TOKENS, .cache_salt = KVW_SLICE("tenant")};
	struct kvw_lmcache_chunks chunk;
	uint32_t ids[TOKENS], space, again;
	uint64_t root = kvw_kvspace_engine_root(16, KVW_SLICE(""), prompt.cache_salt);

	for (uint32_t i = 0; i < TOKENS; i++)
		ids[i] = i;
	prompt.tokens = ids;
	ck_assert_int_eq(kvw_kvspaces_positions(spaces, 16, &again), KVW_OK);
	ck_assert_int_eq(kvw_kvspaces_hashes(spaces, 16, &space), KVW_OK);
	ck_assert_uint_ne(space, again);
	ck_assert_int_eq(kvw_kvspaces_hashes(spaces, 16, &again), KVW_OK);
	ck_assert_uint_eq(space, again);
	ck_assert_int_eq(kvw_kvchains_fill(&all, spaces, &prompt), KVW_OK);
	ck_assert_uint_eq(all.chains[space].count, TOKENS / 16);
	kvw_lmcache_chunks_start(&chunk);
	for (uint32_t i = 0; i < TOKENS / 16; i++) {
		kvw_lmcache_chunks_next(&chunk, ids + 16 * i, 16);
		ck_assert_uint_eq(all.chains[space].keys[i],
			kvw_kvspace_hash_key(root, chunk.hash));
	}
	kvw_kvchains_finish(&all);
}
END_TEST

START_TEST(a_position_has_the_same_name_whatever_came_before)
{
	static uint32_t equal[TOKENS], changed[TOKENS];
	struct kvw_kvchains a = {.count = 0}, b = {.count = 0};
	struct kvw_kvprompt first = {.tokens = equal, .count = TOKENS};
	struct kvw_kvprompt second = {.tokens = changed, .count = TOKENS};
	uint32_t space, again, engine;
	uint64_t root;

	for (uint32_t i = 0; i < TOKENS; i++)
		equal[i] = changed[i] = i % 16; /* chunks of equal tokens */
	changed[0] = 99;
	ck_assert_int_eq(kvw_kvspaces_positions(spaces, 16, &space), KVW_OK);
	ck_assert_int_eq(kvw_kvspaces_positions(spaces, 16, &again), KVW_OK);
	ck_assert_int_eq(kvw_kvspaces_engine(spaces, 16, &engine), KVW_OK);
	ck_assert_uint_eq(space, again);
	ck_assert_uint_ne(space, engine);
	ck_assert_int_eq(kvw_kvspaces_positions(spaces, 0, &again), KVW_EINVAL);
	ck_assert_int_eq(kvw_kvchains_fill(&a, spaces, &first), KVW_OK);
	ck_assert_int_eq(kvw_kvchains_fill(&b, spaces, &second), KVW_OK);
	ck_assert_int_eq(a.chains[space].reporter, KVW_REPORTER_LMCACHE);
	ck_assert_uint_ne(a.chains[space].keys[0], b.chains[space].keys[0]);
	ck_assert_uint_eq(a.chains[space].keys[1], b.chains[space].keys[1]);
	ck_assert_uint_ne(a.chains[space].keys[1], a.chains[space].keys[2]); /* another place */
	ck_assert_uint_ne(a.chains[engine].keys[1], b.chains[engine].keys[1]);
	root = kvw_kvspace_engine_root(16, first.lora, first.cache_salt);
	ck_assert_uint_eq(
		a.chains[space].keys[2], kvw_kvspace_position_key(root, 2, equal + 32, 16));
	kvw_kvchains_finish(&a);
	kvw_kvchains_finish(&b);
}
END_TEST

static void *read_while_it_grows(void *stop)
{
	struct kvw_kvchains mine = {.count = 0};
	size_t *failed = calloc(1, sizeof(*failed));

	while (!atomic_load((atomic_bool *)stop)) {
		if (kvw_kvchains_fill(&mine, spaces, &plain) != KVW_OK)
			++*failed;
		for (uint32_t i = 0; i < mine.count; i++)
			if (mine.chains[i].block_tokens == 0 ||
				mine.chains[i].count != TOKENS / mine.chains[i].block_tokens)
				++*failed;
	}
	kvw_kvchains_finish(&mine);
	return failed;
}

START_TEST(readers_see_whole_spaces_while_one_writes)
{
	atomic_bool stop = false;
	pthread_t reader;
	size_t *failed;
	uint32_t space;

	ck_assert_int_eq(pthread_create(&reader, NULL, read_while_it_grows, &stop), 0);
	for (uint32_t i = 0; i < KVW_EXACT_CHAINS; i++) {
		struct kvw_lmcache_recipe recipe = recipe_of(16 * (i + 1), "0");

		if (i % 2 == 0)
			ck_assert_int_eq(kvw_kvspaces_engine(spaces, i + 1, &space), KVW_OK);
		else
			ck_assert_int_eq(kvw_kvspaces_lmcache(spaces, &recipe, &space), KVW_OK);
	}
	atomic_store(&stop, true);
	ck_assert_int_eq(pthread_join(reader, (void **)&failed), 0);
	ck_assert_uint_eq(*failed, 0);
	free(failed);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("kvspace");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, an_engine_space_is_found_again);
	tcase_add_test(tc, a_recipe_is_found_again_by_its_content);
	tcase_add_test(tc, what_cannot_be_is_refused);
	tcase_add_test(tc, sizes_of_chunks_by_position_leave_spaces_to_others);
	tcase_add_test(tc, a_prompt_has_a_name_in_every_space);
	tcase_add_test(tc, a_prompt_below_a_block_has_an_empty_chain);
	tcase_add_test(tc, adapter_salt_and_block_size_make_other_names);
	tcase_add_test(tc, a_reported_hash_is_the_key_of_the_prompts_chunk);
	tcase_add_test(tc, a_position_has_the_same_name_whatever_came_before);
	tcase_add_test(tc, readers_see_whole_spaces_while_one_writes);
	return run_tcase("kvspace", tc);
}
