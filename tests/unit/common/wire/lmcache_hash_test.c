/*
 * lmcache_hash_test.c - chunk hashes of a real LMCache, and of Python where no LMCache was asked.
 *
 * data/lmcache-0.5.6.json was printed by LMCache 0.5.6 with vLLM 0.32.0 under CPython 3.11.7;
 * data/python.json by data/make_vectors.py, which states LMCache's formula in Python and ran under
 * CPython 3.10 and 3.12.
 */
#include <check.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/suite.h"
#include "wire/lmcache_hash.h"

#define MOST_TOKENS 4096u
#define MOST_KEYS   512u

static uint64_t bits_of(const json_t *number)
{
	/* Numbers beyond INT64_MAX do not fit jansson's integers: such are strings in our copies. */
	return json_is_string(number) ? strtoull(json_string_value(number), NULL, 10)
				      : (uint64_t)json_integer_value(number);
}

static json_t *load(const char *path)
{
	json_error_t error;
	json_t *root = json_load_file(path, 0, &error);

	ck_assert_msg(root != NULL, "%s:%d: %s", path, error.line, error.text);
	return root;
}

/* first, first + 1, ... without passing 2^32 - 1 */
static size_t count_up(uint32_t *tokens, const json_t *vector)
{
	uint64_t first = (uint64_t)json_integer_value(json_object_get(vector, "first_token"));
	size_t count = (size_t)json_integer_value(json_object_get(vector, "ntokens"));

	ck_assert_uint_le(count, MOST_TOKENS);
	for (size_t i = 0; i < count; i++)
		tokens[i] = (uint32_t)(first + i);
	return count;
}

static void check_vector(
	struct kvw_lmcache_recipe *recipe, uint64_t none_hash, const json_t *vector)
{
	const json_t *wanted = json_object_get(vector, "hashes");
	static uint32_t tokens[MOST_TOKENS];
	static uint64_t keys[MOST_KEYS];
	size_t count = count_up(tokens, vector), key_count = 0;
	uint64_t state;

	recipe->chunk_size = (uint32_t)json_integer_value(json_object_get(vector, "chunk_size"));
	recipe->partial_chunk = true;
	ck_assert_ptr_null(kvw_lmcache_recipe_fault(recipe));
	ck_assert_int_eq(kvw_lmcache_begin(recipe, &state), KVW_OK);
	ck_assert_uint_eq(state, none_hash);
	ck_assert_int_eq(
		kvw_lmcache_hash(recipe, &state, tokens, count, keys, MOST_KEYS, &key_count),
		KVW_OK);
	ck_assert_uint_eq(key_count, json_array_size(wanted));
	for (size_t i = 0; i < key_count; i++)
		ck_assert_msg(keys[i] == bits_of(json_array_get(wanted, i)),
			"%s, seed %s, chunk %zu of %zu: %" PRIu64,
			kvw_lmcache_algorithm_name(recipe->algorithm),
			recipe->seed == NULL ? "unset" : recipe->seed, i, key_count, keys[i]);
}

/* Every vector of a file; returns how many there were. */
static size_t check_file(const char *path)
{
	json_t *root = load(path), *set, *vector;
	size_t i, j, checked = 0;

	json_array_foreach(json_object_get(root, "algorithms"), i, set)
	{
		const char *name = json_string_value(json_object_get(set, "algorithm"));
		const char *siphash = json_string_value(json_object_get(set, "siphash"));
		const char *extra = json_string_value(json_object_get(set, "extra"));
		const char *fold = json_string_value(json_object_get(set, "fold"));
		struct kvw_lmcache_recipe recipe = {
			.seed = json_string_value(json_object_get(set, "pythonhashseed")),
			.siphash = siphash != NULL && strcmp(siphash, "2-4") == 0 ? KVW_SIPHASH_24
										  : KVW_SIPHASH_13,
			.extra = extra != NULL && strcmp(extra, "None") == 0
					 ? KVW_LMCACHE_EXTRA_NONE
					 : KVW_LMCACHE_EXTRA_EMPTY,
			.fold = fold != NULL && strcmp(fold, "last") == 0 ? KVW_LMCACHE_FOLD_LAST
									  : KVW_LMCACHE_FOLD_FIRST,
		};

		(void)kvw_lmcache_algorithm_parse(kvw_slice_of(name), &recipe.algorithm);
		json_array_foreach(json_object_get(set, "vectors"), j, vector)
		{
			check_vector(&recipe, bits_of(json_object_get(set, "none_hash")), vector);
			checked++;
		}
	}
	json_decref(root);
	return checked;
}

START_TEST(a_real_lmcache_agrees)
{
	ck_assert_uint_eq(check_file(DATA_DIR "/lmcache-0.5.6.json"), 77);
}
END_TEST

START_TEST(python_agrees)
{
	ck_assert_uint_eq(check_file(DATA_DIR "/python.json"), 360);
}
END_TEST

static const struct kvw_lmcache_recipe usual = {.seed = "0", .chunk_size = 16};

START_TEST(names_are_read_as_lmcache_reads_them)
{
	static const struct {
		const char *name;
		enum kvw_lmcache_algorithm algorithm;
		bool known;
	} names[] = {
		{"builtin", KVW_LMCACHE_BUILTIN, true},
		{"sha256_cbor", KVW_LMCACHE_SHA256_CBOR, true},
		{"sha256_cbor_64bit", KVW_LMCACHE_SHA256_CBOR, true},
		{"sha256", KVW_LMCACHE_SHA256, true},
		{"xxhash", KVW_LMCACHE_XXHASH, true},
		{"xxhash_cbor", KVW_LMCACHE_XXHASH_CBOR, true},
		{"blake3", KVW_LMCACHE_BUILTIN, false},
		{"SHA256", KVW_LMCACHE_BUILTIN, false},
		{"sha256_cbor ", KVW_LMCACHE_BUILTIN, false},
		{"", KVW_LMCACHE_BUILTIN, false},
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		enum kvw_lmcache_algorithm algorithm = KVW_LMCACHE_XXHASH;

		ck_assert_int_eq(
			kvw_lmcache_algorithm_parse(kvw_slice_of(names[i].name), &algorithm),
			names[i].known);
		ck_assert_int_eq(algorithm, names[i].algorithm);
	}
}
END_TEST

/* Tokens that come in pieces, however cut, give the keys of all of them at once. */
START_TEST(a_chain_can_be_continued)
{
	enum { TOKENS = 150, SIZE = 16, FULL = TOKENS / SIZE };
	uint32_t tokens[TOKENS];
	uint64_t whole[FULL], keys[FULL], begun;
	size_t done;

	for (uint32_t i = 0; i < TOKENS; i++)
		tokens[i] = i * 2654435761u;
	for (int algorithm = KVW_LMCACHE_BUILTIN; algorithm <= KVW_LMCACHE_XXHASH; algorithm++) {
		struct kvw_lmcache_recipe recipe = usual;
		uint64_t state;

		recipe.algorithm = (enum kvw_lmcache_algorithm)algorithm;
		ck_assert_int_eq(kvw_lmcache_begin(&recipe, &begun), KVW_OK);
		state = begun;
		ck_assert_int_eq(
			kvw_lmcache_hash(&recipe, &state, tokens, TOKENS, whole, FULL, &done),
			KVW_OK);
		ck_assert_uint_eq(done, FULL);
		ck_assert_uint_eq(state, whole[FULL - 1]);
		for (size_t step = 1; step < TOKENS; step += 13) {
			size_t have = 0;

			state = begun;
			for (size_t end = step; have < FULL; end += step) {
				size_t from = have * SIZE, to = end < TOKENS ? end : TOKENS;

				ck_assert_int_eq(kvw_lmcache_hash(&recipe, &state, tokens + from,
							 to > from ? to - from : 0, keys + have,
							 FULL - have, &done),
					KVW_OK);
				have += done;
			}
			ck_assert_mem_eq(keys, whole, sizeof(whole));
		}
	}
}
END_TEST

START_TEST(a_partial_chunk_has_a_key_only_if_asked)
{
	struct kvw_lmcache_recipe recipe = usual;
	uint32_t tokens[40] = {0};
	uint64_t keys[4] = {0, 0, 0, 77}, begun, state, full;
	size_t done = 9;

	ck_assert_int_eq(kvw_lmcache_begin(&recipe, &begun), KVW_OK);
	state = begun;
	ck_assert_int_eq(kvw_lmcache_hash(&recipe, &state, tokens, 40, keys, 4, &done), KVW_OK);
	ck_assert_uint_eq(done, 2);
	full = state;
	recipe.partial_chunk = true;
	state = begun;
	ck_assert_int_eq(kvw_lmcache_hash(&recipe, &state, tokens, 40, keys, 4, &done), KVW_OK);
	ck_assert_uint_eq(done, 3);
	ck_assert_uint_eq(keys[1], full);
	ck_assert_uint_eq(state, full); /* so that the chunk can still fill */
	ck_assert_uint_eq(keys[3], 77);
	state = begun;
	ck_assert_int_eq(kvw_lmcache_hash(&recipe, &state, tokens, 32, keys, 4, &done), KVW_OK);
	ck_assert_uint_eq(done, 2);
}
END_TEST

START_TEST(no_room_no_tokens_no_keys)
{
	struct kvw_lmcache_recipe recipe = usual;
	uint32_t tokens[40] = {0};
	uint64_t keys[1], begun, state;
	size_t done = 9;

	recipe.partial_chunk = true;
	ck_assert_int_eq(kvw_lmcache_begin(&recipe, &begun), KVW_OK);
	state = begun;
	ck_assert_int_eq(kvw_lmcache_hash(&recipe, &state, tokens, 40, NULL, 0, &done), KVW_OK);
	ck_assert_uint_eq(done, 0);
	ck_assert_int_eq(kvw_lmcache_hash(&recipe, &state, NULL, 0, keys, 1, &done), KVW_OK);
	ck_assert_uint_eq(done, 0);
	ck_assert_uint_eq(state, begun);
	ck_assert_int_eq(kvw_lmcache_hash(&recipe, &state, tokens, 40, keys, 1, &done), KVW_OK);
	ck_assert_uint_eq(done, 1);
	ck_assert_uint_eq(state, keys[0]);
}
END_TEST

/* hash((0, tuple(range(1000, 1016)), ())) and hash((2**63 - 1, ...)) of any CPython since 3.8:
 * no seed is needed where h_0 is known. */
START_TEST(h_0_can_be_given_as_a_number)
{
	static const struct {
		int64_t none_hash, key;
	} cases[] = {
		{INT64_C(0), INT64_C(-1624823340610634735)},
		{INT64_C(-1), INT64_C(-7454798896536768601)},
		{INT64_C(-2), INT64_C(-7454798896536768601)},
		{INT64_C(2305843009213693951), INT64_C(-1624823340610634735)},
		{INT64_C(-2305843009213693952), INT64_C(-7454798896536768601)},
		{INT64_C(9223372036854775807), INT64_C(7718407848085430134)},
		{INT64_C(-9223372036854775807), INT64_C(-5311291509188356131)},
		{INT64_C(5313149338359954478), INT64_C(2090541856709077525)},
	};
	uint32_t tokens[16];

	for (uint32_t i = 0; i < 16; i++)
		tokens[i] = 1000 + i;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct kvw_lmcache_recipe recipe = {.root = KVW_LMCACHE_ROOT_NUMBER,
			.none_hash = (uint64_t)cases[i].none_hash,
			.chunk_size = 16};
		uint64_t state, key;
		size_t done;

		ck_assert_int_eq(kvw_lmcache_begin(&recipe, &state), KVW_OK);
		ck_assert_int_eq((int64_t)state, cases[i].none_hash);
		ck_assert_int_eq(
			kvw_lmcache_hash(&recipe, &state, tokens, 16, &key, 1, &done), KVW_OK);
		ck_assert_int_eq((int64_t)key, cases[i].key);
	}
}
END_TEST

START_TEST(what_cannot_be_computed_is_said)
{
	static const struct kvw_lmcache_recipe bad[] = {
		{.chunk_size = 16}, /* builtin without a seed */
		{.seed = "random", .chunk_size = 16},
		{.seed = "4294967296", .chunk_size = 16},
		{.seed = "0", .chunk_size = 0},
		{.seed = "0", .chunk_size = KVW_LMCACHE_CHUNK_MAX + 1},
		{.seed = "0",
			.chunk_size = 16,
			.extra = KVW_LMCACHE_EXTRA_NONE,
			.siphash = KVW_SIPHASH_24},
		{.algorithm = KVW_LMCACHE_XXHASH, .chunk_size = 16},
		{.algorithm = KVW_LMCACHE_XXHASH_CBOR, .chunk_size = 16},
		{.algorithm = (enum kvw_lmcache_algorithm)5, .seed = "0", .chunk_size = 16},
	};
	static const struct kvw_lmcache_recipe good[] = {
		{.seed = "", .chunk_size = 1}, /* hash("") is 0 under every seed */
		{.seed = "4294967295", .chunk_size = KVW_LMCACHE_CHUNK_MAX},
		{.seed = "0", .chunk_size = 16, .extra = KVW_LMCACHE_EXTRA_NONE},
		{.algorithm = KVW_LMCACHE_SHA256, .chunk_size = 16},
		{.algorithm = KVW_LMCACHE_SHA256_CBOR, .seed = "random", .chunk_size = 16},
		{.root = KVW_LMCACHE_ROOT_NUMBER, .chunk_size = 16},
	};
	uint32_t tokens[16] = {0};
	uint64_t state = 5, key = 6;
	size_t done = 7;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ck_assert_ptr_nonnull(kvw_lmcache_recipe_fault(&bad[i]));
		ck_assert_int_eq(kvw_lmcache_begin(&bad[i], &state), KVW_EINVAL);
		ck_assert_int_eq(
			kvw_lmcache_hash(&bad[i], &state, tokens, 16, &key, 1, &done), KVW_EINVAL);
	}
	ck_assert_uint_eq(state, 5);
	ck_assert_uint_eq(key, 6);
	ck_assert_uint_eq(done, 7);
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		ck_assert_ptr_null(kvw_lmcache_recipe_fault(&good[i]));
		ck_assert_int_eq(kvw_lmcache_begin(&good[i], &state), KVW_OK);
	}
}
END_TEST

/* The longest chunk of the widest ids still fits one frame of pickle. */
START_TEST(the_longest_chunk_can_be_hashed)
{
	struct kvw_lmcache_recipe recipe = {
		.seed = "0", .algorithm = KVW_LMCACHE_SHA256, .chunk_size = KVW_LMCACHE_CHUNK_MAX};
	static uint32_t tokens[KVW_LMCACHE_CHUNK_MAX];
	uint64_t state, key;
	size_t done;

	memset(tokens, 0xff, sizeof(tokens));
	ck_assert_int_eq(kvw_lmcache_begin(&recipe, &state), KVW_OK);
	ck_assert_int_eq(
		kvw_lmcache_hash(&recipe, &state, tokens, KVW_LMCACHE_CHUNK_MAX, &key, 1, &done),
		KVW_OK);
	ck_assert_uint_eq(done, 1);
	ck_assert_uint_eq(key, UINT64_C(8929925011197644436));
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("lmcache_hash");

	tcase_add_test(tcase, a_real_lmcache_agrees);
	tcase_add_test(tcase, python_agrees);
	tcase_add_test(tcase, names_are_read_as_lmcache_reads_them);
	tcase_add_test(tcase, a_chain_can_be_continued);
	tcase_add_test(tcase, a_partial_chunk_has_a_key_only_if_asked);
	tcase_add_test(tcase, no_room_no_tokens_no_keys);
	tcase_add_test(tcase, h_0_can_be_given_as_a_number);
	tcase_add_test(tcase, what_cannot_be_computed_is_said);
	tcase_add_test(tcase, the_longest_chunk_can_be_hashed);
	return run_tcase("lmcache_hash", tcase);
}
