/*
 * explain_test.c - dry runs (proxy/dry.h) with a strategy of the test's own: what the strategy is asked, how
 * its answer is printed, and every error; also while memory runs out at each allocation in turn.
 *
 * The linker sends malloc, calloc and realloc of this program through failing_allocator.h
 * (-Wl,--wrap).
 */
#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"
#include "proxy/dry.h"
#include "tests/unit/failing_allocator.h"
#include "tests/unit/suite.h"

static long allowed = -1; /* allocations until the one that fails; below 0: none does */
static bool failed_one;

static bool fails(void)
{
	if (allowed < 0 || allowed-- > 0)
		return false;
	failed_one = true;
	return true;
}

/* Prefers the last usable candidate, and remembers what it was asked. */
struct last {
	struct kvw_strategy base;
	unsigned asked;
	enum kvw_api api;
	size_t candidates;
	bool content_known;
	float tokens_per_unit;
	char session[64];
};

static enum kvw_err last_pick(struct kvw_strategy *self, const struct kvw_route_request *request,
	const struct kvw_candidates *set, int64_t now_ns, struct kvw_decision *out)
{
	(void)self;
	(void)request;
	(void)set;
	(void)now_ns;
	(void)out;
	ck_abort_msg("explaining must not pick");
	return KVW_ENOWORKER;
}

static void last_note(struct last *last, const struct kvw_route_request *request, size_t count)
{
	last->asked++;
	last->api = request->api;
	last->candidates = count;
	last->content_known = request->content_known;
	last->tokens_per_unit = request->tokens_per_unit;
	snprintf(last->session, sizeof(last->session), "%.*s", (int)request->session.len,
		request->session.len > 0 ? request->session.data : "");
}

static enum kvw_err last_explain(struct kvw_strategy *self, const struct kvw_route_request *request,
	const struct kvw_candidates *set, int64_t now_ns, struct kvw_cost *costs,
	struct kvw_decision *out)
{
	size_t chosen = set->count;

	(void)now_ns;
	last_note((struct last *)self, request, set->count);
	for (size_t i = 0; i < set->count; i++) {
		costs[i] = (struct kvw_cost){
			.hit_tokens = {[KVW_TIER_DEVICE] = 32, [KVW_TIER_DISK] = 16},
			.queue_ns = 1.5e6,
			.room_ns = 0.5e6,
			.prefill_ns = 2e6,
			.others_ns = 250,
			.total_ns = 3500250,
			.inflight = 7,
			.verdict = set->items[i].usable ? KVW_VERDICT_COSTS_MORE
							: KVW_VERDICT_UNUSABLE,
		};
		if (set->items[i].usable)
			chosen = i;
	}
	if (chosen == set->count)
		return KVW_ENOWORKER;
	costs[chosen].verdict = KVW_VERDICT_CHOSEN;
	costs[chosen].total_ns = 0;
	*out = (struct kvw_decision){
		.pos = chosen,
		.reason = KVW_REASON_PREFIX,
		.prompt_tokens = 123,
		.hit_tokens = {[KVW_TIER_DEVICE] = 32, [KVW_TIER_DISK] = 16},
		.worker_id = set->items[chosen].id,
	};
	return KVW_OK;
}

static const struct kvw_strategy_ops last_ops = {
	.name = "last", .prepare = KVW_PREPARE_CONTENT, .pick = last_pick, .explain = last_explain};
static const struct kvw_strategy_ops blind_ops = {
	.name = "blind", .prepare = KVW_PREPARE_FIELDS, .pick = last_pick, .explain = last_explain};
static const struct kvw_strategy_ops mute_ops = {.name = "mute", .pick = last_pick};

static struct fixture fixture;
static struct last last;
static struct kvw_shared shared;
static struct kvw_account memory;
static struct kvw_dry_deps deps;
static char session_field[] = "x-session", *session_fields[] = {session_field};

static void setup(void)
{
	allowed = -1;
	fixture_init(&fixture, 1);
	fixture.config.limits_body = 1 << 20;
	fixture.config.routing_scan_limit = 1 << 16;
	fixture.config.routing_bytes_per_token = 4;
	for (size_t i = 0; i < FIXTURE_WORKERS; i++)
		fixture_models(&fixture, i, i == 1 ? "tiny,big" : "tiny");
	last = (struct last){.base.ops = &last_ops};
	fixture.config.limits_headers = 16;
	fixture.config.limits_body_memory = 1 << 24;
	fixture.config.responses_table = 16;
	fixture.config.session_headers = (struct kvw_strings){session_fields, 1};
	kvw_account_set_most(&memory, fixture.config.limits_body_memory);
	ck_assert_int_eq(kvw_shared_init(&shared, &fixture.config, &memory), KVW_OK);
	deps = (struct kvw_dry_deps){
		.proxy = {.config = &fixture.config, .fleet = fixture.fleet, .strategy = &last.base},
		.shared = &shared};
}

static void teardown(void)
{
	allowed = -1;
	kvw_shared_finish(&shared);
	fixture_finish(&fixture);
}

/* field: NULL: none. */
static enum kvw_err ask(const char *target, struct kvw_field *field, const char *body, struct kvw_local_answer *out)
{
	const struct kvw_explainer explainer = kvw_dry_explainer(&deps);
	const struct kvw_explain_tokens nowhere = {0};
	struct kvw_head head = {.fields = field, .field_count = field == NULL ? 0 : 1};
	const struct kvw_explain_query query = {
		.target = kvw_slice_of(target), .head = &head, .body = kvw_slice_of(body)};
	struct kvw_dry_run *run;
	bool waits;
	enum kvw_err err;

	memset(head.first, -1, sizeof(head.first));
	err = explainer.begin(explainer.arg, &query, &nowhere, 1000, &run, &waits);
	if (err != KVW_OK)
		return err;
	ck_assert(!waits);
	err = explainer.answer(run, 1000, out);
	explainer.end(run);
	return err;
}

/* The answer's JSON; target NULL: to be guessed. */
static json_t *explain_as(int status, const char *target, const char *session, const char *body)
{
	struct kvw_field field = {.name = KVW_SLICE("X-Session"), .value = kvw_slice_of(session)};
	struct kvw_local_answer answer;
	json_t *root;

	ck_assert_int_eq(ask(target, session == NULL ? NULL : &field, body, &answer), KVW_OK);
	root = json_loadb(answer.body, answer.len, 0, NULL);
	ck_assert_msg(root != NULL, "%.*s", (int)answer.len, answer.body);
	ck_assert_msg(answer.status == status, "want %d, got %d: %.*s", status, answer.status,
		(int)answer.len, answer.body);
	ck_assert_str_eq(answer.content_type, "application/json");
	free(answer.body);
	return root;
}

static json_t *explain(const char *body)
{
	return explain_as(200, NULL, NULL, body);
}

/* Whether the error's message holds these words. */
static void check_refused(int status, const char *target, const char *body, const char *says)
{
	json_t *root = explain_as(status, target, NULL, body);
	const json_t *error = json_object_get(root, "error");
	const char *message = json_string_value(json_object_get(error, "message"));

	ck_assert_ptr_nonnull(message);
	ck_assert_msg(strstr(message, says) != NULL, "%s", message);
	ck_assert_int_eq(json_integer_value(json_object_get(error, "code")), status);
	json_decref(root);
}

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	ck_assert_msg(text != NULL, "no %s", key);
	return text;
}

#define CHAT_BODY "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello there\"}]}"
#define MODEL_BODY(name) "{\"model\":\"" name "\",\"prompt\":\"Hello there\"}"

START_TEST(an_explanation_tells_all)
{
	json_t *root = explain(CHAT_BODY);
	const json_t *workers = json_object_get(root, "workers");
	const json_t *first = json_array_get(workers, 0), *chosen = json_array_get(workers, 2);

	ck_assert_str_eq(text_of(root, "strategy"), "last");
	ck_assert_str_eq(text_of(root, "path"), "/v1/chat/completions");
	ck_assert_str_eq(text_of(root, "model"), "tiny");
	ck_assert_str_eq(text_of(root, "worker"), fixture.urls[2]);
	ck_assert_str_eq(text_of(root, "reason"), "prefix");
	ck_assert(strlen(text_of(root, "why")) > 0);
	ck_assert(json_is_false(json_object_get(root, "cold")));
	ck_assert(json_is_true(json_object_get(root, "body_read")));
	ck_assert(json_is_true(json_object_get(root, "content_known")));
	ck_assert_int_eq(json_integer_value(json_object_get(root, "prompt_tokens")), 123);
	ck_assert_int_eq(json_integer_value(json_object_get(root, "predicted_cached_tokens")), 48);
	ck_assert_uint_eq(json_array_size(workers), FIXTURE_WORKERS);
	ck_assert_str_eq(text_of(first, "verdict"), "costs_more");
	ck_assert_str_eq(text_of(first, "health"), "not_probed");
	ck_assert_int_eq(json_integer_value(json_object_get(first, "hit_tokens")), 48);
	ck_assert_int_eq(json_integer_value(json_object_get(first, "in_flight")), 7);
	ck_assert_double_eq_tol(json_number_value(json_object_get(first, "share")), 1, 1e-9);
	ck_assert_double_eq_tol(json_real_value(json_object_get(first, "room_ms")), 0.5, 1e-9);
	ck_assert_double_eq_tol(json_real_value(json_object_get(first, "queue_ms")), 1.5, 1e-9);
	ck_assert_double_eq_tol(json_real_value(json_object_get(first, "prefill_ms")), 2, 1e-9);
	ck_assert_double_eq_tol(json_real_value(json_object_get(first, "others_ms")), 0.00025, 1e-9);
	ck_assert_double_eq_tol(
		json_real_value(json_object_get(first, "total_ms")), 3.50025, 1e-9);
	first = json_object_get(first, "hit_tokens_by_tier");
	ck_assert_uint_eq(json_object_size(first), 2);
	ck_assert_int_eq(json_integer_value(json_object_get(first, "disk")), 16);
	ck_assert_str_eq(text_of(chosen, "verdict"), "chosen");
	ck_assert(json_is_null(json_object_get(chosen, "total_ms"))); /* not weighed */
	json_decref(root);
	ck_assert_uint_eq(last.asked, 1);
	ck_assert_uint_eq(last.api, KVW_API_CHAT);
	ck_assert(last.tokens_per_unit > 0.2499f && last.tokens_per_unit < 0.2501f);
}
END_TEST

START_TEST(only_workers_of_the_model_are_weighed)
{
	json_t *root = explain(MODEL_BODY("big"));
	const json_t *workers = json_object_get(root, "workers");

	ck_assert_uint_eq(last.candidates, 1);
	ck_assert_str_eq(text_of(root, "worker"), fixture.urls[1]);
	ck_assert_str_eq(text_of(json_array_get(workers, 0), "verdict"), "other_model");
	ck_assert_str_eq(text_of(json_array_get(workers, 1), "verdict"), "chosen");
	ck_assert_ptr_null(json_object_get(json_array_get(workers, 0), "total_ms"));
	json_decref(root);
}
END_TEST

START_TEST(the_path_follows_from_the_body)
{
	static const struct {
		const char *body, *path;
		enum kvw_api api;
	} cases[] = {
		{CHAT_BODY, "/v1/chat/completions", KVW_API_CHAT},
		{"{\"prompt\":\"x\"}", "/v1/completions", KVW_API_COMPLETIONS},
		{"{\"prompt\":[1,2,3]}", "/v1/completions", KVW_API_COMPLETIONS},
		{"{}", "/v1/chat/completions", KVW_API_CHAT},
	};

	for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
		size_t at = i / 2;
		json_t *root;

		/* Also for a strategy that does not look at prompts. */
		last.base.ops = i % 2 == 0 ? &last_ops : &blind_ops;
		root = explain(cases[at].body);
		ck_assert_str_eq(text_of(root, "path"), cases[at].path);
		ck_assert_uint_eq(last.api, cases[at].api);
		if (i % 2 == 1)
			ck_assert(!last.content_known);
		json_decref(root);
	}
}
END_TEST

START_TEST(a_session_of_the_head_goes_before_the_bodys)
{
	char field[] = "user", *items[] = {field};
	const char *body = "{\"prompt\":\"x\",\"user\":\"of the body\"}";

	fixture.config.session_body_fields = (struct kvw_strings){items, 1};
	json_decref(explain(body));
	ck_assert_str_eq(last.session, "of the body");
	json_decref(explain_as(200, NULL, "of the head", body));
	ck_assert_str_eq(last.session, "of the head");
}
END_TEST

START_TEST(what_is_not_read_goes_by_load)
{
	size_t len = fixture.config.routing_scan_limit + 100;
	char *body = malloc(len + 1);
	json_t *root;

	ck_assert_ptr_nonnull(body);
	fixture_models(&fixture, 1, "tiny"); /* else chance would choose a model */
	memset(body, '[', len);
	body[len] = '\0';
	root = explain(body); /* above routing.scan_limit: not even looked at */
	ck_assert(json_is_false(json_object_get(root, "body_read")));
	ck_assert(!last.content_known);
	ck_assert_uint_eq(last.candidates, FIXTURE_WORKERS);
	json_decref(root);
	body[100] = '\0';
	root = explain_as(200, "/some/path", NULL, body);
	ck_assert(json_is_false(json_object_get(root, "body_read")));
	json_decref(root);
	free(body);
}
END_TEST

START_TEST(errors)
{
	fixture.config.limits_body = 200;
	check_refused(400, NULL, "[", "/v1/chat/completions");
	check_refused(400, "/v1/completions", "{\"prompt\":1}", "/v1/completions");
	check_refused(400, "relative", CHAT_BODY, "slash");
	check_refused(400, "/v1/models", CHAT_BODY, "itself");
	check_refused(403, "/sleep", CHAT_BODY, "not exposed");
	check_refused(403, "/v1//load_lora_adapter", CHAT_BODY, "not exposed");
	check_refused(404, NULL, MODEL_BODY("none"), "`none`");
	check_refused(413, NULL,
		"{\"prompt\":\"0123456789012345678901234567890123456789012345678901234567890123456789"
		"0123456789012345678901234567890123456789012345678901234567890123456789"
		"0123456789012345678901234567890123456789012345678901234567890123456789\"}",
		"limits.body");
	ck_assert_uint_eq(last.asked, 0);
	last.base.ops = &mute_ops;
	check_refused(501, NULL, CHAT_BODY, "mute");
}
END_TEST

START_TEST(exposed_paths_are_explained)
{
	fixture.config.expose_engine_control = true;
	json_decref(explain_as(200, "/sleep", NULL, "{}"));
	check_refused(403, "/v1/load_lora_adapter", "{}", "not exposed");
	fixture.config.expose_lora = true;
	json_decref(explain_as(200, "/v1/load_lora_adapter", NULL, "{}"));
}
END_TEST

START_TEST(an_unknown_model_while_lists_are_missing)
{
	atomic_store(&fixture.fleet->workers[0]->models_known, false);
	fixture_models(&fixture, 1, "tiny,large"); /* a view that knows of the gap */
	atomic_store(&fixture.fleet->workers[0]->models_known, false);
	check_refused(503, NULL, MODEL_BODY("none"), "not known yet");
}
END_TEST

START_TEST(no_usable_worker)
{
	for (size_t i = 0; i < FIXTURE_WORKERS; i++)
		atomic_store(&fixture.fleet->workers[i]->health, (uint8_t)KVW_HEALTH_DOWN);
	check_refused(503, NULL, CHAT_BODY, fixture.urls[2]);
	atomic_store(&fixture.fleet->workers[0]->health, (uint8_t)KVW_HEALTH_UP);
	check_refused(503, NULL, MODEL_BODY("big"), "up, without this model");
}
END_TEST

#define FOLLOW_UP(id) "{\"model\":\"tiny\",\"input\":\"x\",\"previous_response_id\":\"" id "\"}"

START_TEST(the_owner_of_a_response)
{
	json_t *root;

	kvw_owners_set(shared.owners, KVW_SLICE("resp_1"), 0, 1);
	root = explain_as(200, "/v1/responses", NULL, FOLLOW_UP("resp_1"));
	ck_assert_str_eq(text_of(root, "worker"), fixture.urls[1]);
	ck_assert_str_eq(text_of(root, "reason"), "owner");
	ck_assert_int_eq(json_integer_value(json_object_get(root, "predicted_cached_tokens")), 0);
	ck_assert_str_eq(text_of(json_array_get(json_object_get(root, "workers"), 2), "verdict"),
		"not_its_turn");
	json_decref(root);
	root = explain_as(200, "/v1/responses", NULL, FOLLOW_UP("resp_2"));
	ck_assert_str_eq(text_of(root, "reason"), "prefix");
	json_decref(root);
	root = explain_as(200, "/v1/responses/resp_1/cancel", NULL, "{}");
	ck_assert_str_eq(text_of(root, "reason"), "owner");
	json_decref(root);

	/* One that is down, or serves another model, is passed over as when it is served. */
	atomic_store(&fixture.fleet->workers[1]->health, (uint8_t)KVW_HEALTH_DOWN);
	root = explain_as(200, "/v1/responses", NULL, FOLLOW_UP("resp_1"));
	ck_assert_str_eq(text_of(root, "worker"), fixture.urls[2]);
	json_decref(root);
}
END_TEST

START_TEST(cold_presumes_what_nobody_said)
{
	json_t *root;

	deps.cold = true;
	fixture.fleet->workers[0]->models_given = true;
	root = explain(MODEL_BODY("none"));
	ck_assert(json_is_true(json_object_get(root, "cold")));
	ck_assert_uint_eq(last.candidates, 2);
	ck_assert_str_eq(text_of(json_array_get(json_object_get(root, "workers"), 0), "verdict"),
		"other_model");
	ck_assert_str_eq(text_of(json_array_get(json_object_get(root, "workers"), 1), "health"),
		"presumed");
	json_decref(root);
	root = explain(MODEL_BODY("tiny")); /* given, and not given */
	ck_assert_uint_eq(last.candidates, 3);
	json_decref(root);
	for (size_t i = 0; i < FIXTURE_WORKERS; i++)
		fixture.fleet->workers[i]->models_given = true;
	check_refused(404, NULL, MODEL_BODY("none"), "`none`");
}
END_TEST

/* Each allocation fails in turn; whatever is missing, nothing is lost and nothing half said. */
START_TEST(memory_runs_out)
{
	long refusals = 0;

	deps.cold = _i == 1;
	for (long n = 0;; n++) {
		struct kvw_local_answer answer = {0};
		enum kvw_err err;

		failed_one = false;
		allowed = n;
		err = ask(NULL, NULL, CHAT_BODY, &answer);
		allowed = -1;
		ck_assert(err == KVW_OK || err == KVW_ENOMEM);
		refusals += err == KVW_ENOMEM;
		if (err == KVW_OK)
			ck_assert(answer.len > 0);
		free(answer.body);
		if (!failed_one) {
			ck_assert_int_eq(err, KVW_OK);
			break;
		}
		ck_assert_int_lt(n, 1000);
	}
	ck_assert_int_ge(refusals, 3); /* scan, candidates, costs */
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("explain");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, an_explanation_tells_all);
	tcase_add_test(tc, only_workers_of_the_model_are_weighed);
	tcase_add_test(tc, the_path_follows_from_the_body);
	tcase_add_test(tc, a_session_of_the_head_goes_before_the_bodys);
	tcase_add_test(tc, what_is_not_read_goes_by_load);
	tcase_add_test(tc, errors);
	tcase_add_test(tc, exposed_paths_are_explained);
	tcase_add_test(tc, an_unknown_model_while_lists_are_missing);
	tcase_add_test(tc, no_usable_worker);
	tcase_add_test(tc, the_owner_of_a_response);
	tcase_add_test(tc, cold_presumes_what_nobody_said);
	tcase_add_loop_test(tc, memory_runs_out, 0, 2);
	return run_tcase("explain", tc);
}
