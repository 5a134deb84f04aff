/*
 * claims_test.c - blocks that are on their way: found while they are claimed, and not afterwards.
 */
#include <stdlib.h>
#include <string.h>

#include "routing/claims.h"
#include "support.h"
#include "tests/unit/suite.h"

#define SECOND INT64_C(1000000000)
#define UNIT   (INT64_C(1) << 24) /* ends of claims are rounded to so many ns */
#define LONG   40000              /* blocks */

static struct kvw_claims *make(void)
{
	struct kvw_claims *claims = NULL;

	ck_assert_int_eq(kvw_claims_create(9, &claims), KVW_OK);
	return claims;
}

/* `count` blocks whose keys are those of another chain up to `shared`. */
static struct kvw_exact_chain chain_of(
	uint64_t *keys, uint32_t count, uint32_t shared, uint64_t branch)
{
	for (uint32_t i = 0; i < count; i++) {
		uint64_t state = i < shared ? i : branch << 32 | i;

		keys[i] = test_random(&state);
	}
	return (struct kvw_exact_chain){KVW_REPORTER_ENGINE, 3, BLOCK_TOKENS, count, keys};
}

/* Blocks that are found at a worker which holds `held` by the index. */
static uint32_t found(struct kvw_claims *claims, const struct kvw_exact_chain *chain,
	uint32_t worker, uint32_t held, int64_t now_ns)
{
	static struct kvw_kvindex_hits hits;
	uint32_t sum = 0;

	memset(&hits, 0, sizeof(hits));
	if (held > 0) {
		hits.workers[hits.count++] = (uint16_t)worker;
		hits.blocks[worker] = held;
		hits.tokens[worker][KVW_TIER_DISK] = held * chain->block_tokens;
		hits.tier[worker] = KVW_TIER_DISK;
	}
	kvw_claims_extend(claims, chain, now_ns, &hits);
	for (uint32_t i = 0; i < hits.count; i++)
		ck_assert_uint_gt(hits.blocks[hits.workers[i]], 0);
	for (unsigned t = 0; t < KVW_TIER_COUNT; t++)
		sum += hits.tokens[worker][t];
	ck_assert_uint_eq(sum, hits.blocks[worker] * chain->block_tokens);
	ck_assert_uint_eq(hits.tokens[worker][KVW_TIER_DISK], held * chain->block_tokens);
	return hits.blocks[worker];
}

START_TEST(claims_are_found_and_end)
{
	struct kvw_claims *claims = make();
	uint64_t keys[2][100];
	struct kvw_exact_chain chain = chain_of(keys[0], 100, 100, 0);
	struct kvw_exact_chain other = chain_of(keys[1], 100, 60, 1);
	struct kvw_exact_chain elsewhere = chain;

	elsewhere.space = 4;
	ck_assert_uint_eq(found(claims, &chain, 7, 0, 0), 0);
	kvw_claims_make(claims, 7, &chain, 0, SECOND, SECOND);
	ck_assert_uint_eq(found(claims, &chain, 7, 0, SECOND), 100);
	ck_assert_uint_eq(found(claims, &chain, 7, 30, SECOND), 100);
	ck_assert_uint_eq(found(claims, &other, 7, 0, SECOND), 60);
	ck_assert_uint_eq(found(claims, &other, 8, 0, SECOND), 0);
	ck_assert_uint_eq(found(claims, &elsewhere, 7, 0, SECOND), 0);
	ck_assert_uint_eq(found(claims, &chain, 7, 0, 2 * SECOND - 2 * UNIT), 100);
	ck_assert_uint_eq(found(claims, &chain, 7, 0, 2 * SECOND + 2 * UNIT), 0);
	/* Another claim that is still alive lets the table be looked at. */
	kvw_claims_make(claims, 1, &other, 0, SECOND, 20 * SECOND);
	ck_assert_uint_eq(found(claims, &chain, 7, 0, 2 * SECOND + 2 * UNIT), 0);
	kvw_claims_destroy(claims);
}
END_TEST

START_TEST(the_later_end_counts)
{
	struct kvw_claims *claims = make();
	uint64_t keys[50];
	struct kvw_exact_chain chain = chain_of(keys, 50, 50, 0);

	kvw_claims_make(claims, 7, &chain, 0, 0, 9 * SECOND);
	kvw_claims_make(claims, 7, &chain, 0, SECOND, SECOND);
	ck_assert_uint_eq(found(claims, &chain, 7, 0, 8 * SECOND), 50);
	kvw_claims_make(claims, 7, &chain, 0, 8 * SECOND, 9 * SECOND);
	ck_assert_uint_eq(found(claims, &chain, 7, 0, 16 * SECOND), 50);
	/* None lives longer than it may. */
	kvw_claims_make(claims, 7, &chain, 0, 20 * SECOND, INT64_MAX / 2);
	ck_assert_uint_eq(found(claims, &chain, 7, 0, 20 * SECOND + KVW_CLAIMS_NS - UNIT), 50);
	ck_assert_uint_eq(found(claims, &chain, 7, 0, 20 * SECOND + KVW_CLAIMS_NS + 2 * UNIT), 0);
	kvw_claims_destroy(claims);
}
END_TEST

START_TEST(what_a_lost_worker_was_sent_is_forgotten)
{
	struct kvw_claims *claims = make();
	uint64_t keys[50];
	struct kvw_exact_chain chain = chain_of(keys, 50, 50, 0);

	kvw_claims_make(claims, 7, &chain, 0, 0, 9 * SECOND);
	kvw_claims_make(claims, 8, &chain, 0, 0, 9 * SECOND);
	kvw_claims_forget(claims, 7);
	ck_assert_uint_eq(found(claims, &chain, 7, 0, 0), 0);
	ck_assert_uint_eq(found(claims, &chain, 8, 0, 0), 50);
	kvw_claims_make(claims, 7, &chain, 0, 0, 9 * SECOND);
	ck_assert_uint_eq(found(claims, &chain, 7, 0, 0), 50);
	kvw_claims_destroy(claims);
}
END_TEST

START_TEST(claims_are_dropped)
{
	struct kvw_claims *claims = make();
	uint64_t keys[50];
	struct kvw_exact_chain chain = chain_of(keys, 50, 50, 0);

	kvw_claims_make(claims, 7, &chain, 0, 0, 9 * SECOND);
	kvw_claims_make(claims, 8, &chain, 0, 0, 9 * SECOND);
	kvw_claims_drop(claims, 7, &chain, 20);
	ck_assert_uint_eq(found(claims, &chain, 7, 0, 0), 20);
	ck_assert_uint_eq(found(claims, &chain, 8, 0, 0), 50);
	kvw_claims_make(claims, 7, &chain, 20, 0, 9 * SECOND);
	ck_assert_uint_eq(found(claims, &chain, 7, 0, 0), 50);
	kvw_claims_drop(claims, 7, &chain, 50);
	kvw_claims_drop(claims, 7, &chain, 0);
	ck_assert_uint_eq(found(claims, &chain, 7, 0, 0), 0);
	kvw_claims_destroy(claims);
}
END_TEST

/* Of a long prompt a part is claimed, up to a bound, and a hit may end anywhere. */
START_TEST(long_prompts_are_claimed_in_strides)
{
	static uint64_t keys[2][LONG];
	struct kvw_claims *claims = make();
	struct kvw_exact_chain chain = chain_of(keys[0], LONG, LONG, 0);
	uint32_t most = KVW_CLAIMS_EACH + (KVW_CLAIMS_PROMPT - KVW_CLAIMS_EACH) * KVW_CLAIMS_STRIDE;
	struct kvw_exact_chain other;

	kvw_claims_make(claims, 7, &chain, 0, 0, SECOND);
	ck_assert_uint_eq(found(claims, &chain, 7, 0, 0), most);
	ck_assert_uint_eq(found(claims, &chain, 7, 1000, 0), most);
	ck_assert_uint_eq(found(claims, &chain, 7, 1025, 0), most);
	ck_assert_uint_eq(found(claims, &chain, 7, 12345, 0), most);
	other = chain_of(keys[1], LONG, 2000, 1);
	ck_assert_uint_eq(found(claims, &other, 7, 3, 0), 2000); /* 16 * 125 */
	other = chain_of(keys[1], LONG, 2007, 1);
	ck_assert_uint_eq(found(claims, &other, 7, 3, 0), 2000);
	/* Claimed from where a hit ended. */
	kvw_claims_forget(claims, 7);
	kvw_claims_make(claims, 7, &chain, 1500, 0, SECOND);
	ck_assert_uint_eq(found(claims, &chain, 7, 0, 0), 0);
	ck_assert_uint_eq(found(claims, &chain, 7, 1500, 0),
		1504 + KVW_CLAIMS_PROMPT * KVW_CLAIMS_STRIDE - KVW_CLAIMS_STRIDE);
	ck_assert_uint_eq(found(claims, &chain, 7, 1480, 0), 1480);
	kvw_claims_destroy(claims);
}
END_TEST

/* More workers than a line has room for: the earliest ends are lost, no worker is found that has none. */
START_TEST(a_prefix_that_everybody_is_sent)
{
	struct kvw_claims *claims = make();
	uint64_t keys[20];
	struct kvw_exact_chain chain = chain_of(keys, 20, 20, 0);
	unsigned there = 0;

	for (uint32_t w = 0; w < 40; w++)
		kvw_claims_make(claims, w, &chain, 0, w * UNIT, 5 * SECOND);
	for (uint32_t w = 0; w < 40; w++)
		there += found(claims, &chain, w, 0, 40 * UNIT) == 20;
	ck_assert_uint_eq(there, 8);
	ck_assert_uint_eq(found(claims, &chain, 39, 0, 40 * UNIT), 20);
	for (uint32_t w = 40; w < KVW_MAX_WORKERS; w++)
		ck_assert_uint_eq(found(claims, &chain, w, 0, 40 * UNIT), 0);
	kvw_claims_destroy(claims);
}
END_TEST

/* Against a list of all claims, with time going on: what is found was claimed, and few are lost. */
START_TEST(nothing_is_found_that_was_not_claimed)
{
	enum { CHAINS = 60, BLOCKS = 40, WORKERS = 6 };
	static int64_t ends[WORKERS][CHAINS];
	static uint32_t from[WORKERS][CHAINS];
	struct kvw_claims *claims = make();
	uint64_t keys[BLOCKS];
	uint64_t dice = 4;
	int64_t now_ns = 0;
	uint64_t expected = 0;
	uint64_t got = 0;

	for (unsigned i = 0; i < 60000; i++) {
		uint32_t worker = (uint32_t)(test_random(&dice) % WORKERS);
		uint32_t c = (uint32_t)(test_random(&dice) % CHAINS);
		uint32_t held = (uint32_t)(test_random(&dice) % BLOCKS);
		struct kvw_exact_chain chain = chain_of(keys, BLOCKS, 0, c);

		now_ns += (int64_t)(test_random(&dice) % 10000000);
		if (i % 3 == 0 && now_ns > ends[worker][c] + 2 * UNIT) {
			kvw_claims_make(claims, worker, &chain, held, now_ns, 2 * SECOND);
			ends[worker][c] = now_ns + 2 * SECOND;
			from[worker][c] = held;
			continue;
		}
		if (now_ns > ends[worker][c] + 2 * UNIT || held < from[worker][c]) {
			EXPECT(found(claims, &chain, worker, held, now_ns) == held);
		} else if (now_ns < ends[worker][c] - 2 * UNIT) {
			expected += BLOCKS - held;
			got += found(claims, &chain, worker, held, now_ns) - held;
		}
	}
	ck_assert_uint_gt(expected, 100000);
	ck_assert_uint_ge(got, expected - expected / 50);
	kvw_claims_destroy(claims);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("claims");

	tcase_add_test(tcase, claims_are_found_and_end);
	tcase_add_test(tcase, the_later_end_counts);
	tcase_add_test(tcase, what_a_lost_worker_was_sent_is_forgotten);
	tcase_add_test(tcase, claims_are_dropped);
	tcase_add_test(tcase, long_prompts_are_claimed_in_strides);
	tcase_add_test(tcase, a_prefix_that_everybody_is_sent);
	tcase_add_test(tcase, nothing_is_found_that_was_not_claimed);
	tcase_set_timeout(tcase, 120);
	return run_tcase("claims", tcase);
}
