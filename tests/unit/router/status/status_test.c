/*
 * status_test.c - the tables of hot prefixes and unknown models, the hour of samples, and problems
 * of workers, with a clock of the test's own.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "fleet/wake/wakes.h"
#include "status/history.h"
#include "status/problems.h"
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

/* --- problems_workers.c ------------------------------------------------------------------------ */

/* A kvway with worker 0 of the fixture, or with none; `deps` may be changed. */
struct scene {
	struct fixture fixture;
	struct kvw_admin_deps deps;
	struct kvw_worker_fact fact;
	struct kvw_history history;
	size_t workers;
	json_t *found; /* [severity], of the last look */
};

static void set_scene(struct scene *scene, size_t workers)
{
	*scene = (struct scene){.workers = workers};
	fixture_init(&scene->fixture, 1);
	scene->deps.config = &scene->fixture.config;
	scene->deps.fleet = scene->fixture.fleet;
	scene->fact.worker = scene->fixture.fleet->workers[0];
	scene->fact.id = KVW_SLICE("127.0.0.1:1");
	if (workers == 0)
		for (size_t i = 0; i < FIXTURE_WORKERS; i++)
			kvw_fleet_bar(scene->deps.fleet, scene->fixture.fleet->workers[i],
				KVW_BARRED_DRAINING, true);
}

static void end_scene(struct scene *scene)
{
	json_decref(scene->found);
	fixture_finish(&scene->fixture);
}

/* Returns the problem of this code, borrowed until the next look; NULL: there is none. */
static const json_t *look_for(
	struct scene *scene, enum kvw_severity severity, const char *code)
{
	const struct kvw_admin_facts admin = {.deps = &scene->deps};
	const struct kvw_workers_now workers = {
		.list.count = scene->workers, .items = &scene->fact};
	const struct kvw_problem_facts facts = {
		.admin = &admin, .workers = &workers, .history = &scene->history};
	struct kvw_problems problems = {.facts = &facts};
	const json_t *problem = NULL;
	json_t *item;
	size_t i;

	json_decref(scene->found);
	scene->found = json_array();
	for (int s = 0; s < KVW_SEVERITIES; s++) {
		problems.lists[s] = json_array();
		json_array_append_new(scene->found, problems.lists[s]);
	}
	kvw_problems_of_workers(&problems);
	json_array_foreach(problems.lists[severity], i, item)
		if (strcmp(json_string_value(json_object_get(item, "code")), code) == 0)
			problem = item;
	return problem;
}

static void move(struct scene *scene, uint64_t transfers, uint64_t recomputed)
{
	atomic_fetch_add(&scene->fact.worker->transfers, transfers);
	atomic_fetch_add(&scene->fact.worker->recomputed, recomputed);
}

static void pass_minutes(struct scene *scene, int64_t from, int64_t count)
{
	for (int64_t minute = from; minute < from + count; minute++)
		kvw_history_note_moved(
			&scene->history, scene->deps.fleet, START + minute * MINUTE);
}

START_TEST(transfers_count_for_five_minutes)
{
	struct scene scene;
	const json_t *problem;

	set_scene(&scene, 1);
	pass_minutes(&scene, 0, 1);
	move(&scene, 1000, 0);
	move(&scene, 8, 8);
	ck_assert_ptr_null(look_for(&scene, KVW_SEVERITY_WARNING, "kv_not_transferred"));
	pass_minutes(&scene, 1, 6);
	move(&scene, 8, 6);
	problem = look_for(&scene, KVW_SEVERITY_WARNING, "kv_not_transferred");
	ck_assert_ptr_nonnull(problem);
	ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(problem, "what")),
		"computed 6 of 8 prompts again"));
	pass_minutes(&scene, 7, 5);
	move(&scene, 1, 0); /* its connector works again */
	ck_assert_ptr_nonnull(look_for(&scene, KVW_SEVERITY_WARNING, "kv_not_transferred"));
	pass_minutes(&scene, 12, 1);
	ck_assert_ptr_null(look_for(&scene, KVW_SEVERITY_WARNING, "kv_not_transferred"));
	end_scene(&scene);
}
END_TEST

/* Where requests wake workers, none is meant to run. */
START_TEST(a_fleet_that_is_woken_may_be_empty)
{
	static char tiny[] = "tiny", *models[] = {tiny};
	struct scene scene;
	struct kvw_wake_model *model;

	set_scene(&scene, 0);
	scene.fixture.config.discovery_wake_models = (struct kvw_strings){models, 1};
	ck_assert_ptr_nonnull(look_for(&scene, KVW_SEVERITY_ERROR, "no_worker"));
	scene.fixture.config.discovery_wake_hold_ms = 1000;
	ck_assert_ptr_nonnull(look_for(&scene, KVW_SEVERITY_NOTE, "no_worker"));
	ck_assert_uint_eq(json_array_size(json_array_get(scene.found, KVW_SEVERITY_ERROR)), 0);
	model = kvw_wakes_find(
		scene.deps.fleet->wakes, &scene.fixture.config, kvw_slice_of("tiny"));
	atomic_store(&model->failed, true);
	ck_assert_ptr_nonnull(look_for(&scene, KVW_SEVERITY_ERROR, "no_worker"));
	atomic_store(&model->failed, false);
	/* Requests wait no longer than hold: after that an empty fleet is an outage (it is 0 o'clock). */
	atomic_store(&model->asleep_ns, -INT64_C(900000000));
	ck_assert_ptr_nonnull(look_for(&scene, KVW_SEVERITY_NOTE, "no_worker"));
	atomic_store(&model->asleep_ns, -INT64_C(1100000000));
	ck_assert_ptr_nonnull(look_for(&scene, KVW_SEVERITY_ERROR, "no_worker"));
	atomic_store(&model->asleep_ns, 0);
	/* A worker that is down is not asleep. */
	scene.workers = 1;
	atomic_store(&scene.fact.worker->health, KVW_HEALTH_DOWN);
	ck_assert_ptr_nonnull(look_for(&scene, KVW_SEVERITY_ERROR, "no_worker"));
	scene.fact.leaves = true;
	ck_assert_ptr_nonnull(look_for(&scene, KVW_SEVERITY_NOTE, "no_worker"));
	end_scene(&scene);
}
END_TEST

START_TEST(the_command_that_wakes_a_worker_has_what_the_address_asks_for)
{
	static char certificate[] = "/c.pem", listen[] = "10.0.0.1:9090";
	struct scene scene;
	const char *what;

	set_scene(&scene, 1);
	scene.fixture.config.admin_listen = listen;
	kvw_fleet_bar(scene.deps.fleet, scene.fact.worker, KVW_BARRED_ASLEEP, true);
	what = json_string_value(json_object_get(
		look_for(&scene, KVW_SEVERITY_WARNING, "worker_asleep"), "do"));
	ck_assert_str_eq(what,
		"Wake it: curl -X POST -H 'X-Requested-With: curl' "
		"'http://10.0.0.1:9090/broadcast/wake_up?workers=127.0.0.1:1'.");
	scene.fixture.config.admin_tls_certificate = certificate;
	scene.deps.admin_auth = (struct kvw_auth *)&scene; /* only its presence counts */
	what = json_string_value(json_object_get(
		look_for(&scene, KVW_SEVERITY_WARNING, "worker_asleep"), "do"));
	ck_assert_str_eq(what,
		"Wake it: curl -X POST --cacert '/c.pem' -H 'Authorization: Bearer KEY' "
		"'https://10.0.0.1:9090/broadcast/wake_up?workers=127.0.0.1:1', with a key of "
		"admin.keys_file as KEY.");
	scene.fixture.config.admin_tls_client_ca = certificate;
	what = json_string_value(json_object_get(
		look_for(&scene, KVW_SEVERITY_WARNING, "worker_asleep"), "do"));
	ck_assert_str_eq(what,
		"Wake it: curl -X POST --cacert '/c.pem' --cert CLIENT.pem --key CLIENT.key "
		"-H 'Authorization: Bearer KEY' "
		"'https://10.0.0.1:9090/broadcast/wake_up?workers=127.0.0.1:1', with a key of "
		"admin.keys_file as KEY, with a certificate by admin.tls.client_ca as CLIENT.");
	end_scene(&scene);
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
	tcase_add_test(tcase, transfers_count_for_five_minutes);
	tcase_add_test(tcase, a_fleet_that_is_woken_may_be_empty);
	tcase_add_test(tcase, the_command_that_wakes_a_worker_has_what_the_address_asks_for);
	return run_tcase("status", tcase);
}
