/*
 * replay_admission_test.c - what stands before a policy: each request is sent or refused once.
 */
#include <check.h>
#include <string.h>

#include "replay_support.h"
#include "tests/unit/suite.h"

#define MAX_JOBS 64
#define SECOND   INT64_C(1000000000)

/* An admission and a policy that write down what happens to them. */
static struct watcher {
	/* What it does: */
	uint32_t refuses[MAX_JOBS]; /* that job so many times, before it is sent */
	int64_t after_ns;           /* so long after it came */
	int64_t retry_after_ns;
	bool full[2]; /* that worker takes nothing */
	/* What it saw: */
	uint32_t came[MAX_JOBS], picked[MAX_JOBS], firsts[MAX_JOBS], lasts[MAX_JOBS];
	int64_t came_ns[MAX_JOBS][8], picked_ns[MAX_JOBS], last_ns[MAX_JOBS];
	uint32_t sent[MAX_JOBS], decoded;
	bool waits[MAX_JOBS];
	bool crowded; /* one came while another waited */
	uint32_t count;
} w;

static struct kvb_jobs jobs;
static struct kvb_replay_result r;

static void setup(void)
{
	memset(&w, 0, sizeof(w));
	jobs = (struct kvb_jobs){0};
	r = (struct kvb_replay_result){0};
}

static void teardown(void)
{
	kvb_replay_result_finish(&r);
	kvb_jobs_finish(&jobs);
}

static void *create(const struct kvb_admission_env *env)
{
	ck_assert_uint_le(env->fleet->jobs->count, MAX_JOBS);
	ck_assert_ptr_eq(env->policy_state, &w);
	w.count = (uint32_t)env->fleet->jobs->count;
	return &w;
}

static void arrive(void *self, uint32_t job, int64_t now_ns)
{
	(void)self;
	ck_assert(!w.waits[job]);
	ck_assert_uint_lt(w.came[job], 8);
	for (uint32_t j = 0; j < w.count; j++)
		w.crowded = w.crowded || w.waits[j];
	w.waits[job] = true;
	w.came_ns[job][w.came[job]++] = now_ns;
}

static int64_t due_ns(uint32_t job)
{
	return w.came_ns[job][w.came[job] - 1] + w.after_ns;
}

static enum kvb_word next(void *self, int64_t now_ns, struct kvb_admission_answer *out)
{
	(void)self;
	for (uint32_t j = 0; j < w.count; j++)
		if (w.waits[j] && due_ns(j) <= now_ns) {
			w.waits[j] = false;
			out->job = j;
			out->retry_after_ns = w.retry_after_ns;
			return w.came[j] <= w.refuses[j] ? KVB_REFUSE : KVB_SEND;
		}
	return KVB_NOTHING;
}

static int64_t wake_ns(void *self, int64_t now_ns)
{
	int64_t next_ns = INT64_MAX;

	(void)self;
	(void)now_ns;
	for (uint32_t j = 0; j < w.count; j++)
		if (w.waits[j] && due_ns(j) < next_ns)
			next_ns = due_ns(j);
	return next_ns;
}

static void token(void *self, uint32_t job, bool first, bool last, int64_t now_ns)
{
	(void)self;
	w.firsts[job] += first;
	w.lasts[job] += last;
	w.last_ns[job] = now_ns;
}

static void destroy(void *self)
{
	(void)self;
}

static void *policy_create(const struct kvb_policy_env *env)
{
	(void)env;
	return &w;
}

static uint32_t policy_pick(void *self, uint32_t job, int64_t now_ns)
{
	(void)self;
	w.picked[job]++;
	w.picked_ns[job] = now_ns;
	return job % 2;
}

static bool takes(void *self, uint32_t job, uint32_t worker)
{
	(void)self;
	ck_assert_uint_eq(worker, job % 2);
	return !w.full[worker];
}

static void sent(void *self, uint32_t job, int64_t now_ns)
{
	(void)self;
	ck_assert_int_eq(now_ns, w.picked_ns[job]);
	w.sent[job]++;
}

static void step(void *self, uint32_t worker, int64_t ns, uint32_t decoded, int64_t now_ns)
{
	(void)self;
	(void)now_ns;
	ck_assert_uint_lt(worker, 2);
	ck_assert_uint_gt(decoded, 0);
	ck_assert_int_gt(ns, 12000000); /* the shortest that the profile has */
	w.decoded += decoded;
}

static const struct kvb_admission_ops ops = {.create = create,
	.arrive = arrive,
	.next = next,
	.takes = takes,
	.wake_ns = wake_ns,
	.sent = sent,
	.token = token,
	.step = step,
	.destroy = destroy};
static const struct kvb_policy_ops policy_ops = {
	.create = policy_create, .pick = policy_pick, .destroy = destroy};

static void watch(void)
{
	struct kvb_fleet_options options = test_fleet_options(2);
	struct kvb_policy policy = {"watch", &policy_ops, false, 0, ""};
	struct kvb_admission admission = {"watch", &ops, false, 0, ""};

	kvb_replay_result_finish(&r);
	r = kvb_replay_run(&options, &jobs, 1, &policy, &admission, NULL, 1);
}

START_TEST(test_each_request_is_sent_or_refused_once)
{
	uint32_t decoded = 0; /* tokens behind the first ones */

	jobs = test_jobs(40, 20);
	w.after_ns = SECOND / 2;
	for (uint32_t j = 0; j < 40; j += 5)
		w.refuses[j] = 9;
	watch();
	for (uint32_t j = 0; j < 40; j++) {
		ck_assert(!w.waits[j]);
		ck_assert_uint_eq(w.came[j], 1);
		ck_assert_int_eq(w.came_ns[j][0], jobs.items[j].due_ns);
		ck_assert_uint_eq(w.picked[j], w.refuses[j] ? 0 : 1);
		ck_assert_uint_eq(w.sent[j], w.picked[j]);
		ck_assert_uint_eq(w.firsts[j], w.picked[j]);
		ck_assert_uint_eq(w.lasts[j], w.picked[j]);
		decoded += w.picked[j] ? jobs.items[j].output - 1 : 0;
		if (w.picked[j])
			ck_assert_int_eq(w.picked_ns[j], jobs.items[j].due_ns + w.after_ns);
	}
	ck_assert_uint_eq(w.decoded, decoded);
	ck_assert_uint_eq(r.requests, 40);
	ck_assert_double_eq_tol(r.refused_share, 0.2, 1e-9);
	ck_assert_double_eq_tol(r.share[0] + r.share[1], 0.8, 1e-9);
}
END_TEST

/* As through a router: each finds what became of the one before it. */
START_TEST(test_requests_of_one_moment_come_one_after_the_other)
{
	for (uint32_t j = 0; j < 4; j++)
		test_add(&jobs, 1, j, 0, 600, 1);
	watch();
	for (uint32_t j = 0; j < 4; j++)
		ck_assert_int_eq(w.picked_ns[j], SECOND);
	ck_assert(!w.crowded);
}
END_TEST

/* Where all workers can take a prompt the strategy's choice stands. */
START_TEST(test_kvway_admission_of_idle_workers_changes_nothing)
{
	struct kvb_fleet_options options = test_fleet_options(4);
	struct kvw_config *config = test_config();
	const struct kvb_policy *policy = kvb_policy_find("kvway");
	struct kvb_replay_result none;

	jobs = test_jobs(60, 1);
	none = kvb_replay_run(&options, &jobs, 1, policy, NULL, config, 1);
	r = kvb_replay_run(&options, &jobs, 1, policy, kvb_admission_find("kvway"), config, 1);
	ck_assert_double_eq(r.ttft_mean, none.ttft_mean);
	ck_assert_double_eq(r.e2e_mean, none.e2e_mean);
	kvb_replay_result_finish(&none);
	kvw_config_destroy(config);
}
END_TEST

START_TEST(test_waiting_counts_in_the_time_to_first_token)
{
	double at_once;

	test_add(&jobs, 1, 1, 0, 4000, 1);
	watch();
	at_once = r.ttft_mean;
	ck_assert_double_eq(r.goodput, 1);
	w.came[0] = w.picked[0] = 0;
	w.after_ns = 2 * SECOND + SECOND / 2;
	watch();
	ck_assert_double_eq_tol(r.ttft_mean, at_once + 2.5, 1e-6);
	ck_assert_double_eq(r.goodput, 0); /* 2.49 s are allowed */
}
END_TEST

/* A prompt of 8,192 tokens may take 3 s. */
START_TEST(test_refusals_are_late_or_slow_by_the_promise)
{
	static const struct {
		int64_t after_ns;
		double late_s, slow_share;
	} cases[] = {{0, 0, 0}, {SECOND / 10, 0, 0}, {3 * SECOND, 0, 0}, {5 * SECOND, 2, 1}};

	test_add(&jobs, 1, 1, 0, 8192, 1);
	test_add(&jobs, 1, 2, 0, 8192, 1);
	for (size_t i = 0; i < 4; i++) {
		memset(&w, 0, sizeof(w));
		w.refuses[0] = w.refuses[1] = 9;
		w.after_ns = cases[i].after_ns;
		watch();
		ck_assert_double_eq_tol(r.refused_late_s, cases[i].late_s, 1e-6);
		ck_assert_double_eq_tol(r.refused_slow_share, cases[i].slow_share, 1e-9);
		ck_assert_double_eq_tol(r.refusals, 1, 1e-9);
		ck_assert_double_eq(r.goodput, 0);
	}
}
END_TEST

START_TEST(test_what_goes_past_the_router_is_not_asked_for)
{
	test_add(&jobs, 1, 1, 0, 4096, 1);
	test_add(&jobs, 2, 2, 0, 4096, 1);
	kvb_jobs_direct(&jobs, 0, 1);
	watch();
	ck_assert_uint_eq(w.came[0], 0);
	ck_assert_uint_eq(w.firsts[0], 0);
	ck_assert_uint_eq(w.came[1], 1);
	ck_assert_uint_eq(r.requests, 1);
}
END_TEST

/* Without clients that come back the conversation goes on as if the turn had been answered. */
START_TEST(test_a_refused_turn_is_followed_by_the_next_one)
{
	test_add(&jobs, 0, 1, 2, 1024, 20);
	test_add(&jobs, 0, 1, 4, 2048, 20);
	kvb_jobs_follow(&jobs, 0, 1, 2 * SECOND);
	w.refuses[0] = 9;
	w.after_ns = SECOND;
	watch();
	ck_assert_uint_eq(w.picked[0], 0);
	ck_assert_int_eq(w.came_ns[1][0], 3 * SECOND);
	ck_assert_uint_eq(w.lasts[1], 1);
}
END_TEST

/* Between half and one and a half of what the answer said, or of what a client takes by itself. */
START_TEST(test_a_refused_client_comes_back)
{
	static const double own_s[] = {0.5, 1, 2, 4, 8};

	test_add(&jobs, 1, 1, 0, 4000, 1);
	jobs.retry = true;
	for (int given = 0; given < 2; given++) {
		memset(&w, 0, sizeof(w));
		w.refuses[0] = 5;
		w.retry_after_ns = given ? 3 * SECOND : 0;
		watch();
		ck_assert_uint_eq(w.came[0], 6);
		ck_assert_uint_eq(w.picked[0], 1);
		for (size_t i = 0; i < 5; i++) {
			double wait_s = (double)(w.came_ns[0][i + 1] - w.came_ns[0][i]) / 1e9;
			double asked_s = given ? 3 : own_s[i];

			ck_assert_double_ge(wait_s, 0.5 * asked_s);
			ck_assert_double_le(wait_s, 1.5 * asked_s + 1e-6);
		}
		ck_assert_double_eq(r.refused_share, 0);
		ck_assert_double_eq(r.refusals, 5);
		/* Its time begins when it first came. */
		ck_assert_double_gt(r.ttft_mean, (double)(w.picked_ns[0] - SECOND) / 1e9);
		ck_assert_double_eq(r.goodput, 0);
	}
}
END_TEST

START_TEST(test_a_program_gives_up_after_five_times)
{
	for (uint32_t p = 0; p < 2; p++)
		for (uint32_t t = 0; t < 3; t++)
			test_add(&jobs, p, p, 2 + t, 1024 + 512 * t, 20);
	for (uint32_t p = 0; p < 2; p++)
		for (uint32_t t = 0; t < 2; t++)
			kvb_jobs_follow(&jobs, 3 * p + t, 3 * p + t + 1, SECOND);
	jobs.retry = true;
	w.refuses[1] = 6; /* the second turn of the first program */
	w.refuses[4] = 5; /* of the second one */
	watch();
	ck_assert_uint_eq(w.came[1], 6);
	ck_assert_uint_eq(w.picked[1], 0);
	ck_assert_uint_eq(w.came[2], 0); /* never comes */
	ck_assert_uint_eq(w.came[4], 6);
	ck_assert_uint_eq(w.lasts[4], 1);
	ck_assert_int_eq(w.came_ns[5][0], w.last_ns[4] + SECOND);
	ck_assert_uint_eq(w.lasts[5], 1);
	ck_assert_uint_eq(r.requests, 5);
	ck_assert_double_eq_tol(r.refused_share, 1.0 / 5, 1e-9);
	ck_assert_double_eq_tol(r.goodput, 3.0 / 5, 1e-9); /* the other one came back too late */
	ck_assert_double_eq_tol(r.turn_goodput, 3.0 / 6, 1e-9);
	ck_assert_double_eq(r.programs, 2);
	ck_assert_double_eq(r.programs_given_up, 1);
	ck_assert_double_eq_tol(r.programs_per_hour, 3600 / r.last_s, 1e-6);
	jobs.until_ns = w.last_ns[5] - 1;
	memset(&w, 0, sizeof(w));
	watch();
	ck_assert_double_eq(r.programs_given_up, 0);
	ck_assert_double_eq_tol(r.programs_per_hour, 2 * 3600e9 / (double)jobs.until_ns, 1e-6);
}
END_TEST

START_TEST(test_a_worker_may_refuse)
{
	jobs = test_jobs(10, 20);
	w.full[1] = true;
	watch();
	for (uint32_t j = 0; j < 10; j++) {
		ck_assert_uint_eq(w.picked[j], 1);
		ck_assert_uint_eq(w.sent[j], 1 - j % 2);
		ck_assert_uint_eq(w.lasts[j], 1 - j % 2);
	}
	ck_assert_double_eq_tol(r.refused_share, 0.5, 1e-9);
	ck_assert_double_eq_tol(r.share[1], 0, 1e-9);
}
END_TEST

START_TEST(test_classes_are_counted_apart)
{
	jobs = test_jobs(40, 20);
	for (uint32_t j = 0; j < 40; j += 4)
		jobs.items[j].class = 1;
	w.refuses[4] = w.refuses[8] = 9;
	w.after_ns = SECOND / 2;
	watch();
	ck_assert_uint_eq(r.class_count, 2);
	ck_assert_uint_eq(r.classes[0].requests, 30);
	ck_assert_uint_eq(r.classes[1].requests, 10);
	ck_assert_double_eq(r.classes[0].refused_share, 0);
	ck_assert_double_eq_tol(r.classes[1].refused_share, 0.2, 1e-9);
	ck_assert_double_eq_tol(r.classes[1].wait_max_s, 0.5, 1e-9);
	ck_assert_double_eq_tol(
		r.goodput, (30 * r.classes[0].goodput + 10 * r.classes[1].goodput) / 40, 1e-9);
}
END_TEST

/* Its own line changes nothing, whatever is asked. */
START_TEST(test_admission_none_is_no_admission)
{
	struct kvb_fleet_options options = test_fleet_options(2);
	const struct kvb_policy *policy = kvb_policy_find("least_requests");
	struct kvb_replay_result none;

	jobs = test_jobs(60, 30);
	r = kvb_replay_run(&options, &jobs, 1, policy, NULL, NULL, 1);
	none = kvb_replay_run(&options, &jobs, 1, policy, kvb_admission_find("none"), NULL, 1);
	ck_assert_double_eq(r.ttft_mean, none.ttft_mean);
	ck_assert_double_eq(r.e2e_mean, none.e2e_mean);
	ck_assert_double_eq(none.refused_share, 0);
	kvb_replay_result_finish(&none);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("all");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, test_each_request_is_sent_or_refused_once);
	tcase_add_test(tcase, test_requests_of_one_moment_come_one_after_the_other);
	tcase_add_test(tcase, test_kvway_admission_of_idle_workers_changes_nothing);
	tcase_add_test(tcase, test_waiting_counts_in_the_time_to_first_token);
	tcase_add_test(tcase, test_refusals_are_late_or_slow_by_the_promise);
	tcase_add_test(tcase, test_what_goes_past_the_router_is_not_asked_for);
	tcase_add_test(tcase, test_a_refused_turn_is_followed_by_the_next_one);
	tcase_add_test(tcase, test_a_refused_client_comes_back);
	tcase_add_test(tcase, test_a_program_gives_up_after_five_times);
	tcase_add_test(tcase, test_a_worker_may_refuse);
	tcase_add_test(tcase, test_classes_are_counted_apart);
	tcase_add_test(tcase, test_admission_none_is_no_admission);
	return run_tcase("replay_admission", tcase);
}
