/*
 * status_test.c - the tables of hot prefixes and unknown models, and the hour of samples, with a
 * clock of the test's own.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "status/history.h"
#include "status/seen.h"
#include "tests/unit/router/admin/fixture.h"
#include "tests/unit/suite.h"

#define MINUTE (60 * KVW_NS_PER_S)
#define START  (1000 * KVW_NS_PER_S)

/* --- seen.c ----------------------------------------------------------------------------------- */

struct stage {
	struct fixture fixture;
	struct kvw_trace *trace;
	struct kvw_seen seen;
};

static void set_up(struct stage *stage)
{
	const struct kvw_trace_options options = {.loops = 1, .requests = 4096};

	memset(stage, 0, sizeof(*stage));
	fixture_init(&stage->fixture, 1);
	ck_assert_int_eq(kvw_trace_create(&options, &stage->trace), KVW_OK);
}

static void tear_down(struct stage *stage)
{
	kvw_seen_finish(&stage->seen);
	kvw_trace_destroy(stage->trace);
	fixture_finish(&stage->fixture);
}

/* A request that worker 0 got with this prefix. */
static void hit(struct stage *stage, uint64_t prefix, int64_t at_ns)
{
	struct kvw_trace_way *way = kvw_trace_begin(kvw_trace_ring(stage->trace, 0), at_ns, at_ns);
	uint32_t use = stage->fixture.fleet->workers[0]->use;

	ck_assert_ptr_nonnull(way);
	kvw_trace_attempt(way, at_ns, 0, use,
		&(struct kvw_decision){.reason = KVW_REASON_PREFIX,
			.hit_tokens = {[KVW_TIER_DEVICE] = 512}},
		prefix);
	kvw_trace_end(way, at_ns, KVW_END_COMPLETE, 200, KVW_API_CHAT);
}

/* A request for a model that no worker has, as proxy/lacking.c answers it. */
static void ask_for(struct stage *stage, const char *model, int64_t at_ns)
{
	struct kvw_trace_way *way = kvw_trace_begin(kvw_trace_ring(stage->trace, 0), at_ns, at_ns);

	kvw_trace_model(way, kvw_slice_of(model));
	kvw_trace_text(way, at_ns, KVW_TRACE_ANSWER, 0, 404, "The model `x` does not exist.");
	kvw_trace_end(way, at_ns, KVW_END_LOCAL, 404, KVW_API_CHAT);
}

static json_t *prefixes(struct stage *stage, int64_t now_ns)
{
	json_t *root = kvw_seen_prefixes_json(&stage->seen, stage->fixture.fleet, now_ns);

	ck_assert_ptr_nonnull(root);
	return root;
}

static json_int_t number(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

START_TEST(each_request_is_counted_once)
{
	struct stage stage;
	json_t *root;
	const json_t *first;

	set_up(&stage);
	for (int i = 0; i < 5; i++)
		hit(&stage, 0xabc, START);
	kvw_seen_tick(&stage.seen, stage.trace, START);
	kvw_seen_tick(&stage.seen, stage.trace, START);
	hit(&stage, 0xabc, START);
	hit(&stage, 0xdef, START);
	hit(&stage, 0, START); /* no prefix */
	kvw_seen_tick(&stage.seen, stage.trace, START);
	root = prefixes(&stage, START);
	first = json_array_get(json_object_get(root, "items"), 0);
	ck_assert_int_eq(number(root, "seen"), 8);
	ck_assert_int_eq(number(root, "ended"), 8);
	ck_assert_uint_eq(json_array_size(json_object_get(root, "items")), 2);
	ck_assert_str_eq(json_string_value(json_object_get(first, "prefix")), "0000000000000abc");
	ck_assert_int_eq(number(first, "hits"), 6);
	ck_assert_int_eq(number(first, "tokens"), 512);
	ck_assert_str_eq(json_string_value(json_array_get(json_object_get(first, "workers"), 0)),
		stage.fixture.urls[0]);
	json_decref(root);
	tear_down(&stage);
}
END_TEST

/* Conversations whose prefixes are all different must not push a hot one out. */
START_TEST(a_hot_prefix_stays_among_many)
{
	struct stage stage;
	json_t *root;

	set_up(&stage);
	for (uint64_t i = 0; i < 20 * KVW_SEEN_PREFIXES; i++) {
		hit(&stage, 0x1000 + i, START + (int64_t)i);
		if (i % 50 == 0)
			hit(&stage, 0xabc, START + (int64_t)i);
		if (i % 20 == 0)
			kvw_seen_tick(&stage.seen, stage.trace, START + (int64_t)i);
	}
	root = prefixes(&stage, START + 1);
	ck_assert_uint_eq(stage.seen.prefix_count, KVW_SEEN_PREFIXES);
	ck_assert_uint_eq(json_array_size(json_object_get(root, "items")), KVW_SEEN_SHOWN);
	ck_assert_str_eq(json_string_value(json_object_get(
				 json_array_get(json_object_get(root, "items"), 0), "prefix")),
		"0000000000000abc");
	json_decref(root);
	tear_down(&stage);
}
END_TEST

START_TEST(what_was_hot_once_is_left_out)
{
	struct stage stage;
	json_t *root;

	set_up(&stage);
	hit(&stage, 0xabc, START);
	kvw_seen_tick(&stage.seen, stage.trace, START);
	root = prefixes(&stage, START + KVW_SEEN_PREFIX_NS + 1);
	ck_assert_uint_eq(json_array_size(json_object_get(root, "items")), 0);
	json_decref(root);
	tear_down(&stage);
}
END_TEST

START_TEST(unknown_models_are_remembered_within_bounds)
{
	struct stage stage;
	char name[16];

	set_up(&stage);
	ask_for(&stage, "twice", START);
	ask_for(&stage, "twice", START + 1);
	kvw_seen_tick(&stage.seen, stage.trace, START + 1);
	ck_assert_uint_eq(stage.seen.model_count, 1);
	ck_assert_uint_eq(stage.seen.models[0].asked, 2);
	for (int i = 0; i < 3 * KVW_SEEN_MODELS; i++) {
		(void)snprintf(name, sizeof(name), "model-%d", i);
		ask_for(&stage, name, START + i + 2);
		kvw_seen_tick(&stage.seen, stage.trace, START + i + 2);
	}
	ck_assert_uint_eq(stage.seen.model_count, KVW_SEEN_MODELS);
	tear_down(&stage);
}
END_TEST

START_TEST(without_traces_nothing_is_seen)
{
	struct kvw_seen seen = {.seen = 0};

	kvw_seen_tick(&seen, NULL, START);
	ck_assert_uint_eq(seen.ended, 0);
	kvw_seen_finish(&seen);
}
END_TEST

/* --- history.c -------------------------------------------------------------------------------- */

START_TEST(an_hour_of_samples)
{
	static struct kvw_history history; /* too large for the stack; one test uses it */
	struct kvw_metrics *metrics;
	struct kvw_metrics_shard *shard;
	struct kvw_metrics_totals now;
	struct fixture fixture;
	const json_t *requests;
	json_t *root;
	int64_t at = START;
	double sum = 0;

	memset(&history, 0, sizeof(history));
	fixture_init(&fixture, 1);
	ck_assert_int_eq(kvw_metrics_create(1, fixture.fleet, &metrics), KVW_OK);
	shard = kvw_metrics_shard(metrics, 0);
	for (int second = 0; second < 2 * 3600; second++, at += KVW_NS_PER_S) {
		struct kvw_request_record record = fixture_record(&fixture);

		kvw_history_tick(&history, metrics, at);
		kvw_metrics_record(shard, &record);
	}
	ck_assert_uint_eq(history.count, KVW_HISTORY_STEPS + 1);
	kvw_metrics_totals(metrics, at, &now);
	ck_assert_uint_eq(now.counts[KVW_TOTAL_OK], 2 * 3600);
	ck_assert_uint_eq(kvw_history_grown(&kvw_history_before(&history, 5 * MINUTE, at)->totals,
				  &now, KVW_TOTAL_OK),
		5 * 60);
	ck_assert_int_le(kvw_history_before(&history, 1000 * MINUTE, at)->at_ns, at - 59 * MINUTE);
	root = kvw_history_json(&history, metrics, &now, at);
	requests = json_object_get(root, "requests");
	ck_assert_uint_eq(json_array_size(requests), KVW_HISTORY_STEPS + 1);
	for (size_t i = 0; i < json_array_size(requests); i++)
		sum += json_number_value(json_array_get(requests, i));
	ck_assert(sum == 3600 + 30); /* the hour, and the step that is under way */
	json_decref(root);
	kvw_metrics_destroy(metrics);
	fixture_finish(&fixture);
}
END_TEST

/* What a worker did is counted after it has left, and when its slot has another one. */
START_TEST(a_worker_that_leaves_takes_no_request_with_it)
{
	struct kvw_metrics *metrics;
	struct kvw_metrics_totals totals;
	struct fixture fixture;

	fixture_init(&fixture, 1);
	ck_assert_int_eq(kvw_metrics_create(1, fixture.fleet, &metrics), KVW_OK);
	for (int i = 0; i < 3; i++) {
		struct kvw_request_record record = fixture_record(&fixture);

		kvw_metrics_record(kvw_metrics_shard(metrics, 0), &record);
	}
	atomic_store(&fixture.fleet->workers[0]->hidden, true);
	kvw_metrics_totals(metrics, START, &totals);
	ck_assert_uint_eq(totals.counts[KVW_TOTAL_OK], 3);
	kvw_metrics_totals_keep(metrics, 0);
	kvw_metrics_forget(metrics, 0);
	kvw_metrics_totals(metrics, START, &totals);
	ck_assert_uint_eq(totals.counts[KVW_TOTAL_OK], 3);
	kvw_metrics_destroy(metrics);
	fixture_finish(&fixture);
}
END_TEST

START_TEST(a_sum_that_falls_has_not_grown)
{
	struct kvw_metrics_totals before = {.counts = {[KVW_TOTAL_OK] = 10}};
	struct kvw_metrics_totals after = {.counts = {[KVW_TOTAL_OK] = 4}};

	ck_assert_uint_eq(kvw_history_grown(&before, &after, KVW_TOTAL_OK), 0);
	ck_assert_uint_eq(kvw_history_grown(&after, &before, KVW_TOTAL_OK), 6);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("status");

	tcase_set_timeout(tcase, 100);
	tcase_add_test(tcase, each_request_is_counted_once);
	tcase_add_test(tcase, a_hot_prefix_stays_among_many);
	tcase_add_test(tcase, what_was_hot_once_is_left_out);
	tcase_add_test(tcase, unknown_models_are_remembered_within_bounds);
	tcase_add_test(tcase, without_traces_nothing_is_seen);
	tcase_add_test(tcase, an_hour_of_samples);
	tcase_add_test(tcase, a_worker_that_leaves_takes_no_request_with_it);
	tcase_add_test(tcase, a_sum_that_falls_has_not_grown);
	return run_tcase("status", tcase);
}
