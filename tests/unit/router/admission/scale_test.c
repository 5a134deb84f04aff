/*
 * scale_test.c - predicted over promised times: what is counted, the quantiles of the last minute, and what a gate predicts.
 */
#include "tests/unit/router/admission/gate_scene.h"

#include "admission/scale.h"

static struct kvw_bounds bounds;
static struct kvw_scale scale;
static struct kvw_scale_window window;

static void begin(void)
{
	setup();
	kvw_scale_bounds(&bounds);
	memset(&scale, 0, sizeof(scale));
	memset(&window, 0, sizeof(window));
}

static void count(size_t n, int64_t wait_ns, int64_t queue_ns, int64_t prefill_ns, int64_t promised_ns)
{
	struct kvw_scale_prediction p = {{wait_ns, queue_ns, prefill_ns, promised_ns}};

	while (n-- > 0)
		kvw_scale_count(&scale, &bounds, &p);
}

static double quantile(double q, int64_t now_ns)
{
	struct kvw_histogram_sum all = {0};

	kvw_histogram_collect(&scale.ratios, &all);
	return kvw_scale_quantile(&window, &all, &bounds, q, now_ns);
}

static void sample(int64_t now_ns)
{
	struct kvw_histogram_sum all = {0};

	kvw_histogram_collect(&scale.ratios, &all);
	kvw_scale_sample(&window, &all, now_ns);
}

START_TEST(a_ratio_is_all_parts_over_the_promise)
{
	ck_assert_double_eq(quantile(0.9, BEGIN), 0);
	count(1, SECOND, 500 * MS, 500 * MS, 2 * SECOND);
	ck_assert_double_eq(quantile(1, BEGIN), 1);
	ck_assert_double_ge(quantile(0.5, BEGIN), 0.9);
	ck_assert_uint_eq(kvw_counted(&scale.ns[KVW_SCALE_WAIT]), SECOND);
	ck_assert_uint_eq(kvw_counted(&scale.ns[KVW_SCALE_QUEUE]), 500 * MS);
	ck_assert_uint_eq(kvw_counted(&scale.ns[KVW_SCALE_PREFILL]), 500 * MS);
	ck_assert_uint_eq(kvw_counted(&scale.ns[KVW_SCALE_PROMISED]), 2 * SECOND);
}
END_TEST

START_TEST(without_a_promise_nothing_is_counted)
{
	count(3, SECOND, SECOND, SECOND, 0);
	ck_assert_double_eq(quantile(0.9, BEGIN), 0);
	ck_assert_uint_eq(kvw_counted(&scale.ns[KVW_SCALE_WAIT]), 0);
}
END_TEST

START_TEST(quantiles_lie_in_the_bucket_of_their_request)
{
	count(80, 0, 0, 350 * MS, SECOND);
	count(20, 0, 0, 1900 * MS, SECOND);
	ck_assert_double_ge(quantile(0.5, BEGIN), 0.3);
	ck_assert_double_le(quantile(0.5, BEGIN), 0.4);
	ck_assert_double_ge(quantile(0.9, BEGIN), 1.5);
	ck_assert_double_le(quantile(0.9, BEGIN), 2);
	/* beyond the highest bound */
	count(1000, 1000 * SECOND, 0, 0, SECOND);
	ck_assert_double_eq(quantile(0.9, BEGIN), 50);
}
END_TEST

START_TEST(a_minute_later_it_is_forgotten)
{
	int64_t at = BEGIN;

	count(10, 0, 0, 2 * SECOND, SECOND);
	for (; at < BEGIN + 55 * SECOND; at += SECOND)
		sample(at);
	ck_assert_double_gt(quantile(0.5, at), 1);
	count(10, 0, 0, 100 * MS, SECOND);
	ck_assert_double_gt(quantile(0.9, at), 1);
	for (; at < BEGIN + 66 * SECOND; at += SECOND)
		sample(at);
	ck_assert_double_le(quantile(0.9, at), 0.1);
	for (; at < BEGIN + 180 * SECOND; at += SECOND)
		sample(at);
	ck_assert_double_eq(quantile(0.9, at), 0);
}
END_TEST

/* The queue of its worker, what waits before it, and its own prefill. */
START_TEST(a_gate_predicts_for_a_request_that_will_wait)
{
	struct kvw_scale_prediction p, two;
	double rate = kvw_admission_rate(admission);

	pass(&requests[0].e, BEGIN);
	set_queue(0, BEGIN + 4 * SECOND);
	(void)come(1, 0, SECOND, 20 * SECOND, BEGIN);
	requests[2].prefill_ns = 500 * MS;
	requests[2].e.wait.came_ns = BEGIN;
	requests[2].e.promise.ttft_ns = 20 * SECOND;
	ck_assert(judge(NULL, &requests[2].e, BEGIN));
	p = kvw_gate_predict(&gate, &requests[2].e, 1, BEGIN);
	ck_assert_double_eq_tol((double)(p.ns[KVW_SCALE_WAIT] + p.ns[KVW_SCALE_QUEUE]), 5e9 / rate, 10);
	ck_assert_int_eq(p.ns[KVW_SCALE_PREFILL], 500 * MS);
	/* Two loops have as much waiting each. */
	two = kvw_gate_predict(&gate, &requests[2].e, 2, BEGIN);
	ck_assert_double_eq_tol((double)(two.ns[KVW_SCALE_WAIT] - p.ns[KVW_SCALE_WAIT]), 1e9 / rate, 10);
	/* no longer than any request waits */
	gate.terms.max_wait_ns = SECOND;
	ck_assert(judge(NULL, &requests[2].e, BEGIN));
	ck_assert_int_eq(kvw_gate_predict(&gate, &requests[2].e, 1, BEGIN).ns[KVW_SCALE_WAIT], SECOND);
	kvw_gate_leave(&gate, &requests[1].e);
}
END_TEST

START_TEST(a_gate_predicts_for_a_request_that_is_sent)
{
	struct kvw_scale_prediction p;

	requests[0].prefill_ns = 750 * MS;
	pass(&requests[0].e, BEGIN);
	p = kvw_gate_predicted(&requests[0].e);
	ck_assert_int_eq(p.ns[KVW_SCALE_WAIT], 0);
	ck_assert_int_eq(p.ns[KVW_SCALE_QUEUE], 0);
	ck_assert_int_eq(p.ns[KVW_SCALE_PREFILL], 750 * MS);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("scale");

	tcase_add_checked_fixture(tcase, begin, teardown);
	tcase_add_test(tcase, a_ratio_is_all_parts_over_the_promise);
	tcase_add_test(tcase, without_a_promise_nothing_is_counted);
	tcase_add_test(tcase, quantiles_lie_in_the_bucket_of_their_request);
	tcase_add_test(tcase, a_minute_later_it_is_forgotten);
	tcase_add_test(tcase, a_gate_predicts_for_a_request_that_will_wait);
	tcase_add_test(tcase, a_gate_predicts_for_a_request_that_is_sent);
	return run_tcase("admission scale", tcase);
}
