/*
 * replay_admissions_test.c - the rule of each peer's admission, on cases that were computed by hand.
 */
#include <check.h>
#include <math.h>

#include "replay_support.h"
#include "tests/unit/suite.h"

#define SECOND INT64_C(1000000000)

/* A fleet, its jobs, and one admission that has not been asked yet. */
static struct scene {
	struct kvb_jobs jobs;
	struct kvb_fleet *fleet;
	const struct kvb_admission *admission;
	void *gate;
	int64_t now_ns;
} s;

static void setup(void)
{
	s = (struct scene){0};
}

/* Jobs must have been added before. */
static void open_scene(const char *admission, uint32_t workers)
{
	struct kvb_fleet_options options = test_fleet_options(workers);
	struct kvb_admission_env env;

	s.fleet = kvb_fleet_create(&options, &s.jobs);
	s.admission = kvb_admission_find(admission);
	ck_assert_ptr_nonnull(s.admission);
	env = (struct kvb_admission_env){.fleet = s.fleet, .param = s.admission->param};
	s.gate = s.admission->ops->create(&env);
}

static void on_token(void *user, uint32_t job, bool first, bool last)
{
	(void)user;
	if (s.admission->ops->token != NULL)
		s.admission->ops->token(s.gate, job, first, last, s.fleet->courses[job].end_ns);
}

static void drain(void)
{
	for (uint32_t w = 0; w < s.fleet->options.workers; w++) {
		struct kvb_fleet_worker *worker = &s.fleet->workers[w];

		for (;;) {
			kvb_fleet_wake(s.fleet, w, s.now_ns);
			if (!worker->busy)
				break;
			s.now_ns = worker->until_ns;
			kvb_fleet_step_over(s.fleet, w, on_token, NULL);
		}
	}
}

static void close_scene(void)
{
	drain();
	s.admission->ops->destroy(s.gate);
	kvb_fleet_destroy(s.fleet);
	kvb_jobs_finish(&s.jobs);
}

static void add(uint32_t count, uint32_t input)
{
	for (uint32_t i = 0; i < count; i++)
		test_add(&s.jobs, 0, 1, 0, input, 1);
}

static void arrive(uint32_t job, int64_t now_ns)
{
	s.now_ns = now_ns;
	s.fleet->courses[job].asked_ns = now_ns;
	s.admission->ops->arrive(s.gate, job, now_ns);
}

/* What the admission says next, and of which job; sent ones are sent to `worker`. */
static enum kvb_word next(int64_t now_ns, uint32_t worker, uint32_t *job)
{
	struct kvb_admission_answer answer = {0};
	enum kvb_word word = s.admission->ops->next(s.gate, now_ns, &answer);

	s.now_ns = now_ns;
	*job = answer.job;
	if (word == KVB_SEND)
		kvb_fleet_send(s.fleet, answer.job, worker, now_ns);
	return word;
}

static void expect(enum kvb_word word, uint32_t job, int64_t now_ns)
{
	uint32_t found = 0;

	ck_assert_int_eq(next(now_ns, 0, &found), word);
	if (word != KVB_NOTHING)
		ck_assert_uint_eq(found, job);
}

static int64_t wake(int64_t now_ns)
{
	return s.admission->ops->wake_ns(s.gate, now_ns);
}

/* 16 at once on each of two workers; what waits for 5 s is refused. */
START_TEST(test_bounded_waits_for_a_place_and_times_out)
{
	add(36, 600);
	open_scene("bounded", 2);
	for (uint32_t j = 0; j < 36; j++)
		arrive(j, j < 35 ? 0 : 3 * SECOND);
	for (uint32_t j = 0; j < 32; j++)
		expect(KVB_SEND, j, 3 * SECOND);
	expect(KVB_NOTHING, 0, 3 * SECOND);
	ck_assert_int_eq(wake(3 * SECOND), 5 * SECOND);
	s.admission->ops->token(s.gate, 0, true, false, 4 * SECOND);
	expect(KVB_NOTHING, 0, 4 * SECOND);
	s.admission->ops->token(s.gate, 0, false, true, 4 * SECOND);
	expect(KVB_SEND, 32, 4 * SECOND);
	expect(KVB_NOTHING, 0, 5 * SECOND - 1);
	expect(KVB_REFUSE, 33, 5 * SECOND);
	expect(KVB_REFUSE, 34, 5 * SECOND);
	expect(KVB_NOTHING, 0, 5 * SECOND);
	ck_assert_int_eq(wake(5 * SECOND), 8 * SECOND);
	s.admission->ops->token(s.gate, 1, true, true, 6 * SECOND);
	expect(KVB_SEND, 35, 6 * SECOND);
	ck_assert_int_eq(wake(6 * SECOND), INT64_MAX);
}
END_TEST

/* 256 at once and 100 in the queue: the last one is refused at once. */
START_TEST(test_sglang_gateway_refuses_beyond_its_queue)
{
	add(360, 600);
	open_scene("sglang_gateway", 8);
	for (uint32_t j = 0; j < 357; j++)
		arrive(j, 0);
	for (uint32_t j = 0; j < 256; j++)
		expect(KVB_SEND, j, 0);
	expect(KVB_REFUSE, 356, 0);
	expect(KVB_NOTHING, 0, 0);
	arrive(357, SECOND);
	expect(KVB_REFUSE, 357, SECOND);
	expect(KVB_NOTHING, 0, SECOND);
	ck_assert_int_eq(wake(SECOND), 60 * SECOND);
}
END_TEST

/* Mean of waiting / 5 over two workers: nine waiting ones are 0.9, ten are 1. */
START_TEST(test_llmd_queues_while_the_pool_is_saturated)
{
	add(14, 600);
	open_scene("llmd", 2);
	for (uint32_t j = 0; j < 12; j++)
		arrive(j, SECOND / 2);
	for (uint32_t j = 0; j < 10; j++)
		expect(KVB_SEND, j, SECOND / 2);
	expect(KVB_NOTHING, 0, SECOND / 2);
	/* A worker that takes them up has none waiting: 600 tokens each, 8,192 a step. */
	kvb_fleet_wake(s.fleet, 0, SECOND / 2);
	expect(KVB_SEND, 10, SECOND / 2);
	expect(KVB_SEND, 11, SECOND / 2);
	expect(KVB_NOTHING, 0, SECOND / 2);
}
END_TEST

/* The oldest of the higher class first; 60 s to live, looked at once a second. */
START_TEST(test_llmd_goes_by_class_and_time_to_live)
{
	add(14, 600);
	for (uint32_t j = 10; j < 14; j++)
		s.jobs.items[j].class = j % 2;
	open_scene("llmd", 2);
	for (uint32_t j = 0; j < 10; j++)
		arrive(j, 0);
	for (uint32_t j = 0; j < 10; j++)
		expect(KVB_SEND, j, 0);
	arrive(11, SECOND / 2); /* the lower class */
	arrive(12, SECOND / 2 + 1);
	arrive(13, SECOND / 2 + 2);
	arrive(10, 2 * SECOND);
	expect(KVB_NOTHING, 0, 2 * SECOND);
	ck_assert_int_eq(wake(2 * SECOND), 61 * SECOND);
	expect(KVB_NOTHING, 0, 61 * SECOND - 1);
	expect(KVB_REFUSE, 12, 61 * SECOND);
	expect(KVB_REFUSE, 11, 61 * SECOND);
	expect(KVB_REFUSE, 13, 61 * SECOND);
	expect(KVB_NOTHING, 0, 61 * SECOND);
	ck_assert_int_eq(wake(61 * SECOND), 62 * SECOND);
	arrive(12, 61 * SECOND);
	arrive(11, 61 * SECOND); /* they come back */
	kvb_fleet_wake(s.fleet, 0, 61 * SECOND);
	expect(KVB_SEND, 10, 61 * SECOND);
	expect(KVB_SEND, 12, 61 * SECOND);
	expect(KVB_SEND, 11, 61 * SECOND);
}
END_TEST

/* Four prompts of 200,000 tokens that decode are more than 0.8 of a worker's million. */
START_TEST(test_llmd_counts_kv_in_use)
{
	test_add(&s.jobs, 0, 1, 0, 200000, 400);
	test_add(&s.jobs, 0, 1, 0, 200000, 400);
	test_add(&s.jobs, 0, 1, 0, 200000, 400);
	test_add(&s.jobs, 0, 1, 0, 200000, 400);
	add(1, 600);
	open_scene("llmd", 1);
	for (uint32_t j = 0; j < 4; j++) {
		arrive(j, s.now_ns);
		expect(KVB_SEND, j, s.now_ns);
		while (s.fleet->courses[j].first_ns == 0) {
			kvb_fleet_wake(s.fleet, 0, s.now_ns);
			s.now_ns = s.fleet->workers[0].until_ns;
			kvb_fleet_step_over(s.fleet, 0, on_token, NULL);
		}
	}
	arrive(4, s.now_ns);
	expect(KVB_NOTHING, 0, s.now_ns);
	drain();
	expect(KVB_SEND, 4, s.now_ns);
}
END_TEST

/* Three wait there already. */
START_TEST(test_sglang_engine_refuses_what_finds_its_queue_full)
{
	add(5, 600);
	open_scene("sglang_engine", 2);
	for (uint32_t j = 0; j < 3; j++) {
		arrive(j, 0);
		ck_assert(s.admission->ops->takes(s.gate, j, 0));
		expect(KVB_SEND, j, 0);
	}
	ck_assert(!s.admission->ops->takes(s.gate, 3, 0));
	ck_assert(s.admission->ops->takes(s.gate, 3, 1));
	kvb_fleet_wake(s.fleet, 0, 0);
	ck_assert(s.admission->ops->takes(s.gate, 3, 0));
}
END_TEST

/* One answer that took `seconds` and ended at now_ns. */
static void answered(uint32_t job, int64_t now_ns, double seconds)
{
	s.fleet->courses[job].sent_ns = now_ns - (int64_t)(seconds * 1e9);
	s.admission->ops->token(s.gate, job, true, true, now_ns);
}

/* How many of jobs first, first + 1 ... go on at this moment. */
static uint32_t let_in(uint32_t first, uint32_t count, int64_t now_ns)
{
	uint32_t sent = 0;

	for (uint32_t j = first; j < first + count; j++)
		s.admission->ops->arrive(s.gate, j, now_ns);
	for (;;) {
		struct kvb_admission_answer answer;
		enum kvb_word word = s.admission->ops->next(s.gate, now_ns, &answer);

		if (word == KVB_NOTHING)
			return sent;
		sent += word == KVB_SEND;
	}
}

/*
 * Three at once until fifty have been answered, of 2 s: the latency without load. Then the limit is 3
 * again. A sample of 2 s has the gradient 1.25: 3.75 + sqrt(3.75) = 5.7, so 5. One of 10 s has
 * 0.25, taken as 0.5: 2.5 + 1.58 = 4.1, so 4. One of 0.5 s has 5, taken as 2: 8 + 2.8, so 10.
 */
START_TEST(test_envoy_follows_the_gradient)
{
	static const struct {
		double latency_s;
		uint32_t limit;
	} samples[] = {{2, 5}, {10, 4}, {0.5, 10}};
	int64_t now_ns = 0;

	add(200, 600);
	open_scene("envoy", 8);
	for (uint32_t i = 0; i < 50; i++) {
		now_ns += 2 * SECOND;
		ck_assert_uint_eq(let_in(0, i == 0 ? 5 : 1, now_ns), i == 0 ? 3 : 1);
		answered(i, now_ns, 2);
	}
	/* Two are still out. */
	ck_assert_uint_eq(let_in(0, 3, now_ns), 1);
	for (size_t i = 0; i < 3; i++) {
		uint32_t out = i == 0 ? 3 : samples[i - 1].limit;

		now_ns += SECOND / 20;
		answered(60, now_ns, samples[i].latency_s);
		ck_assert_uint_eq(let_in(0, 1, now_ns), 1); /* the place that became free */
		now_ns += SECOND / 10;
		ck_assert_uint_eq(
			let_in(0, 20, now_ns), samples[i].limit > out ? samples[i].limit - out : 0);
		if (samples[i].limit < out)
			answered(61, now_ns, 3600); /* from before; it is not measured */
	}
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("all");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, close_scene);
	tcase_add_test(tcase, test_bounded_waits_for_a_place_and_times_out);
	tcase_add_test(tcase, test_sglang_gateway_refuses_beyond_its_queue);
	tcase_add_test(tcase, test_llmd_queues_while_the_pool_is_saturated);
	tcase_add_test(tcase, test_llmd_goes_by_class_and_time_to_live);
	tcase_add_test(tcase, test_llmd_counts_kv_in_use);
	tcase_add_test(tcase, test_sglang_engine_refuses_what_finds_its_queue_full);
	tcase_add_test(tcase, test_envoy_follows_the_gradient);
	return run_tcase("replay_admissions", tcase);
}
