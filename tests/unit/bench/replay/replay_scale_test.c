/*
 * replay_scale_test.c - an autoscaler in simulated time: when workers come and go, and what they cost; and the wave of arrivals.
 */
#include <check.h>

#include "bench/replay/replay_fleet.h"
#include "replay_support.h"
#include "tests/unit/suite.h"

#define SECOND INT64_C(1000000000)
#define PERIOD (15 * SECOND)

static double said; /* what the signal is */

static double value(const struct kvb_scaler *scaler, int64_t now_ns)
{
	(void)scaler;
	(void)now_ns;
	return said;
}

static const struct kvb_scale_signal ratio = {"test", false, value, ""};
static const struct kvb_scale_signal each = {"test", true, value, ""};

static struct kvb_jobs jobs;
static struct kvb_fleet *fleet;
static struct kvb_scaler *scaler;
static int64_t now_ns;

static void begin(const struct kvb_scale_signal *signal)
{
	struct kvb_fleet_options options = {.workers = 8,
		.profile = kvb_profile_find("reference-kv"),
		.block_size = 16,
		.kv_tokens = 4096,
		.max_batched_tokens = 8192,
		.max_seqs = 16,
		.scale = {signal, 1, 2, 180 * SECOND, PERIOD, kvb_scale_behaviors}};

	now_ns = 0;
	said = 1;
	jobs = (struct kvb_jobs){0};
	fleet = kvb_fleet_create(&options, &jobs);
	scaler = kvb_scaler_create(fleet, NULL, 3600 * SECOND);
}

static void end(void)
{
	kvb_scaler_destroy(scaler);
	kvb_fleet_destroy(fleet);
	kvb_jobs_finish(&jobs);
}

static uint32_t count(enum kvb_worker_state state)
{
	uint32_t n = 0;

	for (uint32_t w = 0; w < fleet->options.workers; w++)
		n += fleet->workers[w].state == state;
	return n;
}

/* All turns up to a time. */
static void go(int64_t until_ns)
{
	while (kvb_scaler_next_ns(scaler) <= until_ns) {
		now_ns = kvb_scaler_next_ns(scaler);
		kvb_scaler_turn(scaler, now_ns);
	}
}

START_TEST(workers_come_late_and_are_asked_for_once)
{
	begin(&ratio);
	ck_assert_uint_eq(count(KVB_SERVES), 2);
	said = 2;
	go(PERIOD);
	ck_assert_uint_eq(count(KVB_COMING), 0); /* the value of a period before */
	go(2 * PERIOD);
	ck_assert_uint_eq(count(KVB_COMING), 2);
	go(2 * PERIOD + 180 * SECOND - 1);
	ck_assert_uint_eq(count(KVB_SERVES), 2);
	ck_assert_uint_eq(count(KVB_COMING), 2); /* the ratio counts for those that serve */
	said = 1;
	go(2 * PERIOD + 180 * SECOND);
	ck_assert_uint_eq(count(KVB_SERVES), 4);
	end();
}
END_TEST

START_TEST(near_its_target_nothing_changes)
{
	begin(&ratio);
	said = 1.09;
	go(600 * SECOND);
	ck_assert_uint_eq(count(KVB_SERVES) + count(KVB_COMING), 2);
	said = 1.2;
	go(630 * SECOND);
	ck_assert_uint_eq(count(KVB_COMING), 1);
	end();
}
END_TEST

START_TEST(a_queue_is_divided_among_workers)
{
	begin(&each);
	said = 5;
	go(2 * PERIOD);
	ck_assert_uint_eq(count(KVB_SERVES) + count(KVB_COMING), 5);
	said = 100;
	go(4 * PERIOD);
	ck_assert_uint_eq(count(KVB_SERVES) + count(KVB_COMING), 8); /* there are no more */
	end();
}
END_TEST

START_TEST(workers_go_after_five_quiet_minutes_without_their_cache)
{
	uint32_t generations = 0;

	begin(&ratio);
	said = 2;
	go(2 * PERIOD);
	said = 1;
	go(2 * PERIOD + 180 * SECOND);
	ck_assert_uint_eq(count(KVB_SERVES), 4);
	said = 0.1;
	go(2 * PERIOD + 300 * SECOND);
	ck_assert_uint_eq(count(KVB_SERVES), 4);
	go(2 * PERIOD + 900 * SECOND);
	ck_assert_uint_eq(count(KVB_SERVES), 2); /* never fewer */
	for (uint32_t w = 0; w < 8; w++)
		generations += fleet->workers[w].generation;
	ck_assert_uint_eq(generations, 2);
	end();
}
END_TEST

START_TEST(coming_workers_cost_as_much)
{
	uint32_t most = 0;
	double before;

	begin(&ratio);
	said = 2;
	go(2 * PERIOD);
	ck_assert_double_eq_tol(kvb_scaler_worker_ns(scaler, &most), 2.0 * 2 * PERIOD, 1);
	said = 1;
	go(2 * PERIOD + 150 * SECOND);
	ck_assert_double_eq_tol(
		kvb_scaler_worker_ns(scaler, &most), 2.0 * 2 * PERIOD + 4.0 * 150 * SECOND, 1);
	ck_assert_uint_eq(most, 4);
	go(3600 * SECOND);
	before = kvb_scaler_worker_ns(scaler, &most);
	go(7200 * SECOND);
	ck_assert_double_eq(kvb_scaler_worker_ns(scaler, &most), before);
	end();
}
END_TEST

START_TEST(calm_adds_at_most_half_while_workers_come)
{
	begin(&ratio);
	fleet->options.scale.behavior = kvb_scale_behavior_find("calm");
	ck_assert_ptr_null(kvb_scale_behavior_find("hasty"));
	said = 4;
	go(2 * PERIOD);
	ck_assert_uint_eq(count(KVB_COMING), 0); /* it has to ask for half a minute */
	go(3 * PERIOD);
	ck_assert_uint_eq(count(KVB_COMING), 1);
	go(3 * PERIOD + 180 * SECOND - 1);
	ck_assert_uint_eq(count(KVB_COMING), 1);
	go(3 * PERIOD + 180 * SECOND);
	ck_assert_uint_eq(count(KVB_SERVES), 3);
	ck_assert_uint_eq(count(KVB_COMING), 2);
	end();
}
END_TEST

START_TEST(a_repetition_has_prompts_of_its_own)
{
	const uint64_t ids[] = {7, 8};

	jobs = (struct kvb_jobs){0};
	kvb_jobs_add(&jobs, 0, 1024, 1, ids);
	kvb_jobs_add(&jobs, 10 * SECOND, 1024, 1, ids);
	kvb_jobs_repeat(&jobs, 3);
	ck_assert_uint_eq(jobs.count, 6);
	for (size_t j = 0; j < 6; j++)
		ck_assert_int_eq(jobs.items[j].due_ns, (int64_t)j * 10 * SECOND);
	ck_assert_uint_eq(kvb_job_shared(&jobs.items[2], &jobs.items[3]), 1024);
	ck_assert_uint_eq(kvb_job_shared(&jobs.items[0], &jobs.items[2]), 0);
	ck_assert_uint_eq(kvb_job_shared(&jobs.items[2], &jobs.items[4]), 0);
	kvb_jobs_finish(&jobs);
}
END_TEST

/* Of a thousand jobs in a thousand seconds. */
START_TEST(a_wave_moves_arrivals_to_the_middle)
{
	const uint64_t id = 1;
	size_t first = 0, middle = 0;

	jobs = (struct kvb_jobs){0};
	for (int i = 0; i <= 1000; i++)
		kvb_jobs_add(&jobs, i * SECOND, 1, 1, &id);
	kvb_jobs_wave(&jobs, 0.7, 1);
	ck_assert_int_eq(jobs.items[0].due_ns, 0);
	ck_assert_int_eq(jobs.items[1000].due_ns, 1000 * SECOND);
	for (size_t j = 0; j < 1000; j++) {
		ck_assert_int_le(jobs.items[j].due_ns, jobs.items[j + 1].due_ns);
		first += jobs.items[j].due_ns < 100 * SECOND;
		middle += jobs.items[j].due_ns >= 450 * SECOND && jobs.items[j].due_ns < 550 * SECOND;
	}
	ck_assert_uint_ge(first, 30);
	ck_assert_uint_le(first, 40);
	ck_assert_uint_ge(middle, 165);
	ck_assert_uint_le(middle, 170);
	kvb_jobs_finish(&jobs);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("replay scale");

	tcase_add_test(tcase, workers_come_late_and_are_asked_for_once);
	tcase_add_test(tcase, near_its_target_nothing_changes);
	tcase_add_test(tcase, a_queue_is_divided_among_workers);
	tcase_add_test(tcase, workers_go_after_five_quiet_minutes_without_their_cache);
	tcase_add_test(tcase, coming_workers_cost_as_much);
	tcase_add_test(tcase, calm_adds_at_most_half_while_workers_come);
	tcase_add_test(tcase, a_repetition_has_prompts_of_its_own);
	tcase_add_test(tcase, a_wave_moves_arrivals_to_the_middle);
	return run_tcase("replay_scale", tcase);
}
