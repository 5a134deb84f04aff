/*
 * lmcache_detect_test.c - workers with another recipe than the configured one are understood.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/suite.h"
#include "wire/lmcache_detect.h"

#define TOKENS 700u
#define KEYS   64u

/* What a worker has admitted. */
struct admitted {
	uint64_t keys[KEYS];
	size_t count;
	size_t asked;
};

static uint32_t tokens[TOKENS];

static void setup(void)
{
	for (uint32_t i = 0; i < TOKENS; i++)
		tokens[i] = i * 7919u % 150000u;
}

static bool is_admitted(void *context, uint64_t key)
{
	struct admitted *admitted = context;

	admitted->asked++;
	for (size_t i = 0; i < admitted->count; i++) {
		if (admitted->keys[i] == key)
			return true;
	}
	return false;
}

static void admit(struct admitted *admitted, const struct kvw_lmcache_recipe *recipe)
{
	uint64_t state;

	ck_assert_int_eq(kvw_lmcache_begin(recipe, &state), KVW_OK);
	ck_assert_int_eq(kvw_lmcache_hash(recipe, &state, tokens, TOKENS, admitted->keys, KEYS,
				 &admitted->count),
		KVW_OK);
	ck_assert_uint_gt(admitted->count, 0);
}

static const struct kvw_lmcache_recipe usual = {.seed = "0", .chunk_size = 256};

static const struct {
	struct kvw_lmcache_recipe worker;
	const char *difference;
} workers[] = {
	{{.seed = "0", .chunk_size = 256}, ""},
	{{.seed = "0", .chunk_size = 64}, "chunk size 64 (configured: 256)"},
	{{.seed = "0", .chunk_size = 256, .siphash = KVW_SIPHASH_24},
		"SipHash 2-4 (before 3.11) (configured: 1-3 (CPython 3.11 and later))"},
	{{.seed = "0", .chunk_size = 256, .extra = KVW_LMCACHE_EXTRA_NONE},
		"extra None (configured: ())"},
	{{.algorithm = KVW_LMCACHE_SHA256_CBOR, .seed = "0", .chunk_size = 256},
		"hash algorithm sha256_cbor (configured: builtin)"},
	{{.algorithm = KVW_LMCACHE_SHA256, .chunk_size = 256},
		"hash algorithm sha256 (configured: builtin), PYTHONHASHSEED not set (configured: "
		"PYTHONHASHSEED 0)"},
	{{.algorithm = KVW_LMCACHE_SHA256_CBOR,
		 .seed = "0",
		 .fold = KVW_LMCACHE_FOLD_LAST,
		 .extra = KVW_LMCACHE_EXTRA_NONE,
		 .chunk_size = 16},
		"hash algorithm sha256_cbor (configured: builtin), extra None (configured: ()), "
		"last "
		"8 bytes of the digest (configured: first), chunk size 16 (configured: 256)"},
	{{.algorithm = KVW_LMCACHE_XXHASH, .seed = "0", .chunk_size = 512},
		"hash algorithm xxhash (configured: builtin), chunk size 512 (configured: 256)"},
	{{.root = KVW_LMCACHE_ROOT_NUMBER, .chunk_size = 32},
		"NONE_HASH 0 (configured: PYTHONHASHSEED 0), chunk size 32 (configured: 256)"},
	{{.seed = "123", .chunk_size = 256}, "PYTHONHASHSEED 123 (configured: PYTHONHASHSEED 0)"},
};

START_TEST(another_recipe_is_found_and_told)
{
	struct admitted admitted = {.count = 0};
	struct kvw_lmcache_recipe found;
	char text[400];

	admit(&admitted, &workers[_i].worker);
	ck_assert_int_eq(
		kvw_lmcache_detect(&usual, tokens, TOKENS, is_admitted, &admitted, &found), KVW_OK);
	ck_assert_uint_eq(kvw_lmcache_difference(&usual, &found, text, sizeof(text)), strlen(text));
	ck_assert_str_eq(text, workers[_i].difference);
}
END_TEST

START_TEST(the_configured_recipe_is_tried_first)
{
	struct admitted admitted = {.count = 0};
	struct kvw_lmcache_recipe odd = {
		.algorithm = KVW_LMCACHE_XXHASH_CBOR, .seed = "77", .chunk_size = 48};
	struct kvw_lmcache_recipe found;

	admit(&admitted, &odd);
	ck_assert_int_eq(
		kvw_lmcache_detect(&odd, tokens, TOKENS, is_admitted, &admitted, &found), KVW_OK);
	ck_assert_uint_eq(admitted.asked, 1);
	ck_assert_int_eq(found.algorithm, KVW_LMCACHE_XXHASH_CBOR);
	ck_assert_uint_eq(found.chunk_size, 48);
}
END_TEST

/* builtin without a seed has keys that cannot be computed, but the workers may use another. */
START_TEST(a_faulty_recipe_does_not_end_the_search)
{
	struct admitted admitted = {.count = 0};
	struct kvw_lmcache_recipe unset = {.chunk_size = 256}, found;

	admit(&admitted, &usual);
	ck_assert_ptr_nonnull(kvw_lmcache_recipe_fault(&unset));
	ck_assert_int_eq(
		kvw_lmcache_detect(&unset, tokens, TOKENS, is_admitted, &admitted, &found), KVW_OK);
	ck_assert_str_eq(found.seed, "0");
}
END_TEST

START_TEST(an_unknown_seed_is_not_found)
{
	struct admitted admitted = {.count = 0};
	struct kvw_lmcache_recipe other = usual, found = {.chunk_size = 1234};

	other.seed = "8675309";
	admit(&admitted, &other);
	ck_assert_int_eq(kvw_lmcache_detect(&usual, tokens, TOKENS, is_admitted, &admitted, &found),
		KVW_ENOTFOUND);
	ck_assert_uint_eq(found.chunk_size, 1234);
	ck_assert_uint_gt(admitted.asked, 200);
	ck_assert_uint_lt(admitted.asked, 1000);
	admitted.asked = 0;
	ck_assert_int_eq(kvw_lmcache_detect(&usual, tokens, 15, is_admitted, &admitted, &found),
		KVW_ENOTFOUND);
	ck_assert_uint_eq(admitted.asked, 0); /* too short for any chunk */
}
END_TEST

START_TEST(a_difference_is_cut_to_its_room)
{
	const struct kvw_lmcache_recipe *other = &workers[6].worker;
	char whole[400], text[400];
	size_t length = kvw_lmcache_difference(&usual, other, whole, sizeof(whole));

	for (size_t size = 1; size <= length + 1; size++) {
		memset(text, 'x', sizeof(text));
		ck_assert_uint_lt(kvw_lmcache_difference(&usual, other, text, size), size);
		ck_assert_uint_lt(strnlen(text, size), size);
		ck_assert_int_eq(text[size], 'x');
	}
	ck_assert_str_eq(text, whole);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("lmcache_detect");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_loop_test(tcase, another_recipe_is_found_and_told, 0,
		(int)(sizeof(workers) / sizeof(workers[0])));
	tcase_add_test(tcase, the_configured_recipe_is_tried_first);
	tcase_add_test(tcase, a_faulty_recipe_does_not_end_the_search);
	tcase_add_test(tcase, an_unknown_seed_is_not_found);
	tcase_add_test(tcase, a_difference_is_cut_to_its_room);
	return run_tcase("lmcache_detect", tcase);
}
