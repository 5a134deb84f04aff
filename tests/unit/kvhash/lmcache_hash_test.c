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

#include "lmcache_hash.h"

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

int main(void)
{
	Suite *suite = suite_create("lmcache_hash");
	TCase *tcase = tcase_create("lmcache_hash");
	SRunner *runner;
	int failed;

	tcase_add_test(tcase, a_real_lmcache_agrees);
	tcase_add_test(tcase, python_agrees);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
