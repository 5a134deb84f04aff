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
	ask = (struct kvw_estimate_ask){.terms = {30 * SECOND, SECOND}, .tokens = 1000, .most = 100};
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
	ck_assert_int_eq(got.why, KVW_WHY_WORKERS);
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
	ck_assert_int_eq(got.why, KVW_WHY_OTHERS);
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
	/* Without a promise it would be sent then. */
	ck_assert_int_eq(estimate(SECOND).verdict, KVW_WOULD_WAIT);
	ck_assert_int_eq(estimate(SECOND).wait_ns, 30 * SECOND);
	ask.promise.ttft_ns = 40 * SECOND;
	ck_assert_int_eq(estimate(SECOND).verdict, KVW_WOULD_BE_REFUSED);
	ck_assert_int_eq(estimate(SECOND).refusal, KVW_REFUSED_DEADLINE);
	ask.terms.max_wait_ns = 120 * SECOND;
	ck_assert_int_eq(estimate(SECOND).verdict, KVW_WOULD_WAIT);
}
END_TEST

START_TEST(refused_at_its_own_deadline)
{
	occupy(0, 8 * SECOND);
	occupy(1, 8 * SECOND);
	ask.deadline_ns = 5 * SECOND;
	ck_assert_int_eq(estimate(SECOND).verdict, KVW_WOULD_BE_REFUSED);
	ck_assert_int_eq(estimate(SECOND).refusal, KVW_REFUSED_DEADLINE);
	ask.deadline_ns = 10 * SECOND;
	ck_assert_int_eq(estimate(SECOND).verdict, KVW_WOULD_WAIT);
}
END_TEST

START_TEST(refused_where_no_more_may_wait)
{
	ask.waiting = ask.most = 3;
	ck_assert_int_eq(estimate(SECOND).verdict, KVW_WOULD_GO);
	atomic_store(&admission->waiting_ns, 6 * SECOND);
	ck_assert_int_eq(estimate(SECOND).verdict, KVW_WOULD_BE_REFUSED);
	ck_assert_int_eq(estimate(SECOND).refusal, KVW_REFUSED_QUEUE_FULL);
	ask.waiting = 2;
	ck_assert_int_eq(estimate(SECOND).verdict, KVW_WOULD_WAIT);
}
END_TEST

static bool never(void *user, struct kvw_entrant *entrant, int64_t now_ns)
{
	(void)user;
	(void)entrant;
	(void)now_ns;
	return false;
}

static struct kvw_outlooks outlooks;

/* A gate of some loop has a limit, found when it planned. */
static void plan_with_much_to_do(struct kvw_gate *gate, uint8_t class)
{
	struct kvw_entrant waits = {
		.wait = {.came_ns = BEGIN, .start_ns = INT64_MAX, .until_ns = INT64_MAX, .value = 1, .work_ns = 1}};
	struct kvw_waiter dear = {.class = class, .work_ns = 100 * SECOND, .value = 1};
	struct kvw_entrant *out = NULL;

	kvw_gate_init(gate, admission, &outlooks);
	for (int i = 0; i < 20; i++)
		kvw_price_offer(&gate->price, &dear, BEGIN);
	ck_assert_int_eq(kvw_gate_wait(gate, &waits, BEGIN), KVW_OK);
	ck_assert_int_eq(kvw_gate_next(gate, BEGIN, never, NULL, &out), KVW_NOTHING);
	kvw_gate_leave(gate, &waits);
}

START_TEST(one_that_is_too_dear_is_refused)
{
	struct kvw_gate gate;

	occupy(0, SECOND);
	occupy(1, SECOND);
	ask.promise.ttft_ns = 60 * SECOND;
	ask.terms.max_wait_ns = 120 * SECOND;
	ck_assert_int_eq(estimate(20 * SECOND).verdict, KVW_WOULD_WAIT);
	plan_with_much_to_do(&gate, 0);
	ck_assert_int_eq(estimate(SECOND).verdict, KVW_WOULD_WAIT);
	ck_assert_int_eq(estimate(200 * SECOND).verdict, KVW_WOULD_BE_REFUSED);
	ck_assert_int_eq(estimate(200 * SECOND).refusal, KVW_REFUSED_SERVICE_LEVEL);
	ck_assert_int_eq(estimate(200 * SECOND).why, KVW_WHY_PRICE);
	/* The first class leaves no room for another one. */
	ask.class = 1;
	ck_assert_int_eq(estimate(SECOND).verdict, KVW_WOULD_BE_REFUSED);
	/* What was found long ago says nothing. */
	atomic_store(&admission->planned_ns, BEGIN - 10 * SECOND);
	ck_assert_int_eq(estimate(SECOND).verdict, KVW_WOULD_WAIT);
	kvw_gate_finish(&gate);
}
END_TEST

START_TEST(a_new_program_waits_for_those_that_run)
{
	struct kvw_turn running = {.key = 7};

	occupy(0, SECOND);
	occupy(1, SECOND);
	ask.terms.ahead_ns = 0;
	ask.terms.max_wait_ns = 20 * SECOND;
	kvw_programs_sent(admission->programs, &running, 300000, BEGIN);
	for (int i = 0; i < 50; i++) {
		kvw_programs_lost(admission->programs, 900, 1000);
		for (int slice = 0; slice < 16; slice++)
			kvw_programs_look(admission->programs, true, BEGIN + i * SECOND);
	}
	atomic_store(&admission->busy_share, 1.0f);
	ask.turn.key = 8;
	ck_assert_int_eq(estimate(SECOND).wait_ns, 20 * SECOND);
	ask.deadline_ns = 20 * SECOND;
	ck_assert_int_eq(estimate(SECOND).verdict, KVW_WOULD_BE_REFUSED);
	ck_assert_int_eq(estimate(SECOND).refusal, KVW_REFUSED_DEADLINE);
	ask.deadline_ns = 0;
	ask.terms.max_wait_ns = 120 * SECOND;
	ck_assert_int_eq(estimate(SECOND).verdict, KVW_WOULD_WAIT);
	ck_assert_int_eq(estimate(SECOND).why, KVW_WHY_PROGRAMS);
	ask.turn = (struct kvw_turn){.key = 7, .before = 7, .turns = 1, .context = 0};
	ck_assert_int_eq(estimate(SECOND).why, KVW_WHY_WORKERS);
}
END_TEST

START_TEST(deadlines_as_clients_write_them)
{
	ck_assert_int_eq(kvw_admission_deadline_ns(KVW_SLICE("1500")), 1500 * MS);
	ck_assert_int_eq(kvw_admission_deadline_ns(KVW_SLICE("0")), 1);
	ck_assert_int_eq(kvw_admission_deadline_ns(KVW_SLICE("")), 0);
	ck_assert_int_eq(kvw_admission_deadline_ns(KVW_SLICE("-5")), 0);
	ck_assert_int_eq(kvw_admission_deadline_ns(KVW_SLICE("1e3")), 0);
	ck_assert_int_eq(kvw_admission_deadline_ns(KVW_SLICE("1234567890")), 0);
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
	tcase_add_test(tcase, refused_at_its_own_deadline);
	tcase_add_test(tcase, refused_where_no_more_may_wait);
	tcase_add_test(tcase, one_that_is_too_dear_is_refused);
	tcase_add_test(tcase, a_new_program_waits_for_those_that_run);
	tcase_add_test(tcase, deadlines_as_clients_write_them);
	tcase_add_test(tcase, no_worker_is_no_wait);
	return run_tcase("admission estimate", tcase);
}
