/*
 * estimate_test.c - what would become of a request that came now, and that asking changes nothing.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "admission/estimate.h"
#include "tests/unit/suite.h"

#define MS      INT64_C(1000000)
#define SECOND  INT64_C(1000000000)
#define BEGIN   (10 * SECOND)
#define WORKERS 2

static struct kvw_admission *admission;
static struct kvw_admission *before; /* as it was */
static struct kvw_load loads[WORKERS];
static struct kvw_candidate items[WORKERS];
static struct kvw_candidates set;
static struct kvw_estimate_ask ask;

static void setup(void)
{
	admission = kvw_admission_create(64);
	before = aligned_alloc(64, sizeof(*before));
	ck_assert(admission != NULL && before != NULL);
	atomic_store(&admission->done_per_ns, 1.0f);
	for (uint32_t i = 0; i < WORKERS; i++) {
		kvw_load_init(&loads[i]);
		items[i] = (struct kvw_candidate){.id = i, .load = &loads[i], .usable = true, .share = 1};
	}
	set = (struct kvw_candidates){.items = items, .count = WORKERS};
	ask = (struct kvw_estimate_ask){.terms = {30 * SECOND, SECOND}, .tokens = 1000};
}

static void teardown(void)
{
	kvw_admission_destroy(admission);
	free(before);
}

static void occupy(uint32_t worker, int64_t ns)
{
	kvw_pace_sent(&admission->paces[worker], 0, BEGIN);
	atomic_store(&loads[worker].seen->idle_at_ns, BEGIN + ns);
}

/* Of a prompt that takes prefill_ns on any worker. */
static struct kvw_estimate estimate(int64_t prefill_ns)
{
	struct kvw_cost costs[WORKERS] = {0};
	struct kvw_decision wish = {0};
	struct kvw_estimate out;

	for (size_t i = 0; i < WORKERS; i++) {
		costs[i].verdict = items[i].usable ? KVW_VERDICT_COSTS_MORE : KVW_VERDICT_UNUSABLE;
		costs[i].prefill_ns = (double)prefill_ns;
		costs[i].total_ns = (double)prefill_ns + (double)kvw_load_queue_ns(&loads[i], BEGIN);
	}
	memcpy(before, admission, sizeof(*before));
	out = kvw_estimate(admission, &ask, &set, costs, &wish, BEGIN);
	ck_assert_mem_eq(before, admission, sizeof(*before));
	return out;
}

START_TEST(goes_where_a_worker_can_take_it)
{
	ck_assert_int_eq(estimate(SECOND).verdict, KVW_WOULD_GO);
	occupy(0, 20 * SECOND);
	ck_assert_int_eq(estimate(SECOND).verdict, KVW_WOULD_GO);
	items[1].usable = false;
	ck_assert_int_eq(estimate(SECOND).verdict, KVW_WOULD_WAIT);
}
END_TEST

START_TEST(waits_for_the_first_worker)
{
	struct kvw_estimate got;

	occupy(0, 20 * SECOND);
	occupy(1, 5 * SECOND);
	got = estimate(SECOND);
	ck_assert_int_eq(got.verdict, KVW_WOULD_WAIT);
	ck_assert_int_eq(got.wait_ns, 4 * SECOND); /* but for the second that it may have ahead */
	ck_assert(!got.behind_others);
	ask.impatient = true;
	got = estimate(SECOND);
	ck_assert_int_eq(got.verdict, KVW_WOULD_BE_REFUSED);
	ck_assert_int_eq(got.refusal, KVW_REFUSED_QUEUE_FULL);
}
END_TEST

START_TEST(waits_behind_what_waits)
{
	struct kvw_estimate got;

	atomic_store(&admission->waiting_ns, 6 * SECOND);
	got = estimate(SECOND);
	ck_assert_int_eq(got.verdict, KVW_WOULD_WAIT);
	ck_assert_int_eq(got.wait_ns, 3 * SECOND);
	ck_assert(got.behind_others);
}
END_TEST

START_TEST(refused_when_its_promise_cannot_be_kept)
{
	struct kvw_estimate got;

	occupy(0, 10 * SECOND);
	occupy(1, 10 * SECOND);
	ask.promise.ttft_ns = 5 * SECOND;
	ask.class = 1;
	got = estimate(SECOND);
	ck_assert_int_eq(got.verdict, KVW_WOULD_BE_REFUSED);
	ck_assert_int_eq(got.refusal, KVW_REFUSED_SERVICE_LEVEL);
	ck_assert_int_eq(got.wait_ns, 9800 * MS);
	ask.promise.ttft_per_1k_ns = 10 * SECOND;
	ck_assert_int_eq(estimate(SECOND).verdict, KVW_WOULD_WAIT);
	/* The first class is sent late rather, while the workers have time left. */
	ask.promise.ttft_per_1k_ns = 0;
	ask.class = 0;
	got = estimate(SECOND);
	ck_assert_int_eq(got.verdict, KVW_WOULD_WAIT);
	ck_assert(got.wait_ns > 0 && got.wait_ns < 5 * SECOND);
}
END_TEST

START_TEST(refused_at_the_longest_wait)
{
	occupy(0, 60 * SECOND);
	occupy(1, 60 * SECOND);
	ck_assert_int_eq(estimate(SECOND).verdict, KVW_WOULD_BE_REFUSED);
	ck_assert_int_eq(estimate(SECOND).refusal, KVW_REFUSED_DEADLINE);
	ask.terms.max_wait_ns = 120 * SECOND;
	ck_assert_int_eq(estimate(SECOND).verdict, KVW_WOULD_WAIT);
}
END_TEST

START_TEST(no_worker_is_no_wait)
{
	items[0].usable = items[1].usable = false;
	ck_assert_int_eq(estimate(SECOND).verdict, KVW_WOULD_GO);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("estimate");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, goes_where_a_worker_can_take_it);
	tcase_add_test(tcase, waits_for_the_first_worker);
	tcase_add_test(tcase, waits_behind_what_waits);
	tcase_add_test(tcase, refused_when_its_promise_cannot_be_kept);
	tcase_add_test(tcase, refused_at_the_longest_wait);
	tcase_add_test(tcase, no_worker_is_no_wait);
	return run_tcase("admission estimate", tcase);
}
