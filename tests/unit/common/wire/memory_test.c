/*
 * memory_test.c - how often hashing allocates, and what happens where it cannot.
 *
 * The linker sends the library's calls of calloc and free, and those for a state of libxxhash,
 * through the functions below (-Wl,--wrap).
 */
#include <check.h>
#include <stdlib.h>
#include <xxhash.h>

#include "tests/unit/suite.h"
#include "wire/lmcache_detect.h"

static long allowed; /* allocations until failure */
static long taken;   /* allocations since the last begin */
static long live;    /* not freed yet */
static bool counting;

void *__real_calloc(size_t count, size_t size);
void __real_free(void *block);
XXH3_state_t *__real_XXH3_createState(void);
XXH_errorcode __real_XXH3_freeState(XXH3_state_t *state);
void *__wrap_calloc(size_t count, size_t size);
void __wrap_free(void *block);
XXH3_state_t *__wrap_XXH3_createState(void);
XXH_errorcode __wrap_XXH3_freeState(XXH3_state_t *state);

static bool may_allocate(void)
{
	if (!counting)
		return true;
	if (taken >= allowed)
		return false;
	taken++;
	live++;
	return true;
}

void *__wrap_calloc(size_t count, size_t size)
{
	return may_allocate() ? __real_calloc(count, size) : NULL;
}

void __wrap_free(void *block)
{
	live -= counting && block != NULL;
	__real_free(block);
}

XXH3_state_t *__wrap_XXH3_createState(void)
{
	return may_allocate() ? __real_XXH3_createState() : NULL;
}

XXH_errorcode __wrap_XXH3_freeState(XXH3_state_t *state)
{
	live -= counting && state != NULL;
	return __real_XXH3_freeState(state);
}

static void begin(long allocations)
{
	allowed = allocations;
	taken = 0;
	live = 0;
	counting = true;
}

static void end(void)
{
	counting = false;
	ck_assert_int_eq(live, 0);
}

#define TOKENS 4096u

static uint32_t tokens[TOKENS];
static uint64_t keys[TOKENS];

/* Allocations that a whole prompt of 256 chunks needs. */
static const struct {
	enum kvw_lmcache_algorithm algorithm;
	long allocations;
} lmcache[] = {
	{KVW_LMCACHE_BUILTIN, 0},
	{KVW_LMCACHE_SHA256_CBOR, 1},
	{KVW_LMCACHE_SHA256, 1},
	{KVW_LMCACHE_XXHASH_CBOR, 2},
	{KVW_LMCACHE_XXHASH, 2},
};

/* Check allocates too, so nothing is asserted between begin() and end(). */
START_TEST(chunks_are_hashed_without_allocation_each)
{
	struct kvw_lmcache_recipe recipe = {
		.algorithm = lmcache[_i].algorithm, .seed = "0", .chunk_size = 16};
	long needed = lmcache[_i].allocations;

	for (long room = 0; room <= needed; room++) {
		enum kvw_err wanted = room < needed ? KVW_ENOMEM : KVW_OK, err;
		uint64_t state = 5, begun;
		size_t done = 9;

		begin(room);
		err = kvw_lmcache_begin(&recipe, &state);
		end();
		ck_assert_int_eq(err, wanted);
		ck_assert(wanted == KVW_OK || state == 5);
		begun = state;
		begin(room);
		err = kvw_lmcache_hash(&recipe, &state, tokens, TOKENS, keys, TOKENS, &done);
		end();
		ck_assert_int_eq(err, wanted);
		ck_assert_int_eq(taken, room);
		ck_assert_uint_eq(done, wanted == KVW_OK ? TOKENS / 16 : 0);
		ck_assert_uint_eq(state, wanted == KVW_OK ? keys[TOKENS / 16 - 1] : begun);
	}
}
END_TEST

static bool never(void *context, uint64_t key)
{
	(void)context;
	(void)key;
	return false;
}

START_TEST(a_search_without_memory_says_so)
{
	struct kvw_lmcache_recipe recipe = {.seed = "0", .chunk_size = 16}, found;

	for (long room = 0; room < 20; room++) {
		enum kvw_err err;

		begin(room);
		err = kvw_lmcache_detect(&recipe, tokens, 64, never, NULL, &found);
		end();
		ck_assert_int_eq(err, KVW_ENOMEM);
	}
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("memory");

	tcase_add_loop_test(tcase, chunks_are_hashed_without_allocation_each, 0,
		(int)(sizeof(lmcache) / sizeof(lmcache[0])));
	tcase_add_test(tcase, a_search_without_memory_says_so);
	return run_tcase("memory", tcase);
}
