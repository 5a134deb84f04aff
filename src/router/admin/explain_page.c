/*
 * explain_page.c - writes an explanation as JSON, with its reason in words.
 *
 * Every worker of the fleet is listed, by id, even one that does not serve the model, since users
 * most often ask why a worker was not chosen. Times are milliseconds; total_ms is null where the
 * strategy does not compare costs.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "admin/explanation.h"
#include "base/clock.h"
#include "feeds/coordinator/coordinator.h"
#include "feeds/sources.h"
#include "openai/error_body.h"

#define NS_PER_MS 1e6

static const char *const tier_names[KVW_TIER_COUNT] = {
	[KVW_TIER_DEVICE] = "device",
	[KVW_TIER_HOST] = "host",
	[KVW_TIER_DISK] = "disk",
	[KVW_TIER_REMOTE] = "remote",
};

static const char *health_name(const struct kvw_explanation *e, const struct kvw_worker *worker)
{
	if (e->cold)
		return "presumed";
	switch (atomic_load_explicit(&worker->health, memory_order_relaxed)) {
	case KVW_HEALTH_UP:
		return "up";
	case KVW_HEALTH_UNKNOWN:
		return "not_probed";
	default:
		return "down";
	}
}

static uint64_t hit_of(const uint32_t hit_tokens[KVW_TIER_COUNT])
{
	uint64_t sum = 0;

	for (size_t tier = 0; tier < KVW_TIER_COUNT; tier++)
		sum += hit_tokens[tier];
	return sum;
}

static void put_text(struct kvw_page *text, const char *key, struct kvw_slice value)
{
	kvw_page_member(text, key);
	kvw_page_json(text, value);
}

static void put_bool(struct kvw_page *text, const char *key, bool value)
{
	kvw_page_member(text, key);
	kvw_page_string(text, value ? "true" : "false");
}

static void put_u64(struct kvw_page *text, const char *key, uint64_t value)
{
	kvw_page_member(text, key);
	kvw_page_u64(text, value);
}

/* Writes milliseconds with all digits, so that costs look equal only if they are equal. */
static void put_ms(struct kvw_page *text, const char *key, double ns)
{
	char number[48];

	kvw_page_member(text, key);
	if (ns > -1e18 && ns < 1e18)
		(void)snprintf(number, sizeof(number), "%.6f", ns / NS_PER_MS);
	else /* infinite, which JSON cannot express, or longer than any clock will show */
		(void)snprintf(number, sizeof(number), "null");
	kvw_page_string(text, number);
}

static void put_tiers(struct kvw_page *text, const struct kvw_cost *cost)
{
	kvw_page_member(text, "hit_tokens_by_tier");
	kvw_page_string(text, "{");
	for (size_t tier = 0; tier < KVW_TIER_COUNT; tier++) {
		if (cost->hit_tokens[tier] == 0)
			continue;
		kvw_page_member(text, tier_names[tier]);
		kvw_page_u64(text, cost->hit_tokens[tier]);
	}
	kvw_page_string(text, "}");
}

static void put_cost(struct kvw_page *text, const struct kvw_candidate *candidate,
	const struct kvw_cost *cost, int64_t now_ns)
{
	put_u64(text, "hit_tokens", hit_of(cost->hit_tokens));
	put_tiers(text, cost);
	put_u64(text, "fragment_tokens", cost->fragment_tokens);
	put_ms(text, "queue_ms", cost->queue_ns);
	put_ms(text, "room_ms", cost->room_ns);
	put_ms(text, "peers_ms",
		(double)(kvw_load_queue_ns(candidate->load, now_ns) -
			 kvw_load_own(candidate->load, now_ns).queue_ns));
	put_ms(text, "foreign_ms", (double)kvw_load_foreign_ns(candidate->load, now_ns, now_ns));
	put_ms(text, "prefill_ms", cost->prefill_ns);
	put_ms(text, "others_ms", cost->others_ns);
	put_ms(text, "context_ms", cost->context_ns);
	put_ms(text, "evict_ms", cost->evict_ns);
	if (cost->total_ns > 0) {
		put_ms(text, "total_ms", cost->total_ns);
	} else {
		kvw_page_member(text, "total_ms");
		kvw_page_string(text, "null");
	}
	put_u64(text, "in_flight", cost->inflight);
	kvw_page_member(text, "share");
	kvw_page_double(text, (double)candidate->share);
	put_bool(text, "blends", candidate->blends);
}

/* Writes how completely the worker's own reports describe its cache, and what is wrong with
 * them. */
static void put_coverage(
	const struct kvw_explanation *e, const struct kvw_worker *worker, struct kvw_page *text)
{
	char name[KVW_CE_INSTANCE_MOST + 1];
	bool first = true;

	kvw_page_member(text, "cache_told_by");
	kvw_page_string(text, "{");
	for (int reporter = 0; reporter < KVW_REPORTER_COUNT; reporter++) {
		struct kvw_feed_status status;

		if (kvw_feed_worker_status(
			    e->feed, worker->id, (enum kvw_reporter)reporter, &status) != KVW_OK)
			continue;
		kvw_page_string(text, first ? "\"" : ",\"");
		kvw_page_string(text, kvw_reporter_name((enum kvw_reporter)reporter));
		kvw_page_string(text, "\":{\"coverage\":");
		kvw_page_json(text, kvw_slice_of(kvw_coverage_name(status.coverage)));
		put_u64(text, "sequence", status.sequence);
		put_text(text, "wrong", kvw_slice_of(status.wrong));
		if (reporter == KVW_REPORTER_LMCACHE) {
			(void)kvw_sources_instance_of(e->feed, worker->id, name, sizeof(name));
			put_text(text, "instance", kvw_slice_of(name));
		}
		kvw_page_string(text, "}");
		first = false;
	}
	kvw_page_string(text, "}");
}

/* Writes a text, or null. */
static void put_text_or_null(struct kvw_page *text, const char *name, const char *value)
{
	if (value != NULL) {
		put_text(text, name, kvw_slice_of(value));
		return;
	}
	kvw_page_member(text, name);
	kvw_page_string(text, "null");
}

/* Writes how much was known of workers' caches; null: the decision did not use it. */
static void put_knowledge(enum kvw_knowledge knowledge, bool why, struct kvw_page *text)
{
	const struct kvw_knowledge_text *words = kvw_knowledge_text(knowledge);

	put_text_or_null(text, "knowledge", words == NULL ? NULL : words->name);
	if (why)
		put_text_or_null(text, "knowledge_why", words == NULL ? NULL : words->why);
}

static bool in_other_group(const struct kvw_explanation *e, const struct kvw_worker *worker)
{
	return e->group != NULL && !kvw_group_has(e->group, worker->group_key, worker->url_key);
}

/* Writes one worker. candidate NULL: it does not serve the model. */
static void put_worker(const struct kvw_explanation *e, const struct kvw_worker *worker,
	const struct kvw_candidate *candidate, struct kvw_page *text)
{
	const struct kvw_cost *cost =
		candidate != NULL ? &e->costs[candidate - e->set.items] : NULL;

	kvw_page_string(text, "{\"id\":");
	kvw_page_u64(text, worker->id);
	put_text(text, "worker", kvw_slice_of(worker->url));
	put_text(text, "health", kvw_slice_of(health_name(e, worker)));
	put_bool(text, "usable", kvw_worker_usable(worker));
	put_text(text, "verdict",
		kvw_slice_of(cost != NULL                ? kvw_verdict_name(cost->verdict)
			     : in_other_group(e, worker) ? "other_group"
							 : "other_model"));
	if (cost != NULL)
		put_cost(text, candidate, cost, e->now_ns);
	if (cost != NULL && e->tokens != NULL) {
		put_bool(text, "exact", cost->exact);
		put_knowledge(cost->knowledge, false, text);
	}
	if (e->feed != NULL)
		put_coverage(e, worker, text);
	kvw_page_string(text, "}");
}

static void put_workers(const struct kvw_explanation *e, struct kvw_page *text)
{
	const struct kvw_fleet *fleet = e->fleet;
	size_t next = 0; /* index of the next candidate; candidates ascend by id, as workers do */
	size_t shown = 0;

	kvw_page_string(text, ",\"workers\":[");
	for (size_t i = 0; i < fleet->count; i++) {
		const struct kvw_worker *worker = kvw_fleet_worker(fleet, i);
		const struct kvw_candidate *candidate = NULL;

		if (next < e->set.count && e->set.items[next].id == i)
			candidate = &e->set.items[next++];
		if (worker == NULL)
			continue;
		if (shown++ > 0)
			kvw_page_string(text, ",");
		put_worker(e, worker, candidate, text);
	}
	kvw_page_string(text, "]");
}

static void put_admission(const struct kvw_explanation *e, struct kvw_page *text)
{
	kvw_page_member(text, "admission");
	kvw_page_string(text, "{\"verdict\":");
	kvw_page_json(text, kvw_slice_of(e->admission.verdict));
	put_ms(text, "wait_ms", (double)e->admission.wait_ns);
	put_text(text, "reason", kvw_slice_of(e->admission.reason));
	put_u64(text, "waiting", (uint64_t)(e->admission.waiting > 0 ? e->admission.waiting : 0));
	kvw_page_member(text, "class");
	if (e->admission.class != NULL)
		kvw_page_json(text, kvw_slice_of(e->admission.class));
	else
		kvw_page_string(text, "null");
	kvw_page_string(text, ",\"promise\":{\"ttft_ms\":");
	kvw_page_u64(text, (uint64_t)e->admission.promise.ttft);
	put_u64(text, "ttft_per_1k_tokens_ms", (uint64_t)e->admission.promise.ttft_per_1k_tokens);
	put_u64(text, "tpot_ms", (uint64_t)e->admission.promise.tpot);
	kvw_page_string(text, "}}");
}

static void put_left(struct kvw_page *text, const char *name, const struct kvw_rate_left *left)
{
	if (left->limit == 0)
		return;
	kvw_page_string(text, ",\"");
	kvw_page_string(text, name);
	kvw_page_string(text, "\":{\"limit\":");
	kvw_page_i64(text, left->limit);
	kvw_page_string(text, ",\"remaining\":");
	kvw_page_i64(text, left->remaining);
	if (left->reset_ns > 0) {
		kvw_page_string(text, ",\"reset_ms\":");
		kvw_page_i64(text, (left->reset_ns + 999999) / 1000000);
	}
	kvw_page_string(text, "}");
}

static void put_limits(const struct kvw_explanation *e, struct kvw_page *text)
{
	kvw_page_string(text, ",\"limits\":[");
	for (size_t i = 0; i < e->limit_count; i++) {
		const struct kvw_explained_limit *limit = &e->limits[i];

		kvw_page_string(text, i > 0 ? ",{\"of\":\"" : "{\"of\":\"");
		kvw_page_string(text, limit->of);
		kvw_page_string(text, "\"");
		put_text(text, "name", limit->name);
		if (limit->served_as.len > 0 && !kvw_slice_equal(limit->served_as, limit->name))
			put_text(text, "served_as", limit->served_as);
		put_left(text, "requests_per_minute", &limit->state.requests);
		put_left(text, "tokens_per_minute", &limit->state.tokens);
		put_left(text, "tokens_per_day", &limit->state.day);
		put_left(text, "concurrent", &limit->state.concurrent);
		kvw_page_string(text, "}");
	}
	kvw_page_string(text, "]");
}

/* Writes the steps under the names of proxy/steps.def, in the order in which the request passed
 * them. */
static void put_steps(const struct kvw_explanation *e, struct kvw_page *text)
{
	kvw_page_string(text, ",\"steps\":[");
	for (size_t i = 0; i < e->step_count; i++) {
		const struct kvw_explained_step *step = &e->steps[i];

		kvw_page_string(text, i > 0 ? ",{\"step\":\"" : "{\"step\":\"");
		kvw_page_string(text, step->name);
		kvw_page_string(text, "\"");
		put_text(text, "verdict", kvw_slice_of(step->verdict));
		if (step->why[0] != '\0')
			put_text(text, "why", kvw_slice_of(step->why));
		kvw_page_string(text, "}");
	}
	kvw_page_string(text, "]");
}

static void print(const struct kvw_explanation *e, struct kvw_page *text)
{
	const struct kvw_decision *decision = &e->decision;
	const struct kvw_worker *chosen = kvw_fleet_worker(e->fleet, decision->worker_id);

	kvw_page_string(text, "{\"strategy\":");
	kvw_page_json(text, kvw_slice_of(e->strategy));
	put_bool(text, "cold", e->cold);
	put_text(text, "path", e->target);
	kvw_page_member(text, "model");
	if (e->model.len > 0)
		kvw_page_json(text, e->model);
	else
		kvw_page_string(text, "null");
	if (e->group != NULL) {
		put_text(text, "group", kvw_slice_of(e->group->group));
		put_text(text, "group_by", kvw_slice_of(e->group_by));
	}
	put_bool(text, "body_read", e->body_read);
	put_bool(text, "content_known", e->content_known);
	put_bool(text, "session_known", e->session_known);
	if (e->tokens != NULL) {
		put_text(text, "tokens", kvw_slice_of(e->tokens));
		put_text(text, "tokens_from", kvw_slice_of(e->tokens_from));
		put_u64(text, "exact_tokens", e->exact_tokens);
	}
	put_u64(text, "prompt_tokens", decision->prompt_tokens);
	put_u64(text, "predicted_cached_tokens",
		hit_of(decision->hit_tokens) + decision->fragment_tokens);
	put_u64(text, "predicted_fragment_tokens", decision->fragment_tokens);
	/* NULL: the worker was removed while the question waited for tokens. */
	put_text(text, "worker", kvw_slice_of(chosen == NULL ? NULL : chosen->url));
	put_text(text, "reason", kvw_slice_of(kvw_reason_name(decision->reason)));
	put_text(text, "why", kvw_slice_of(kvw_reason_why(decision->reason)));
	put_knowledge(decision->knowledge, true, text);
	if (e->admission.verdict != NULL)
		put_admission(e, text);
	if (!e->cold)
		put_limits(e, text);
	put_steps(e, text);
	put_workers(e, text);
	kvw_page_string(text, "}\n");
}

void kvw_explanation_note(struct kvw_explanation *e, const char *format, ...)
{
	va_list arguments;

	if (e->step_count == KVW_EXPLAINED_STEPS)
		return;
	va_start(arguments, format);
	(void)vsnprintf(e->steps[e->step_count].why, sizeof(e->steps[0].why), format, arguments);
	va_end(arguments);
}

enum kvw_err kvw_explain_error(int status, const char *param, const char *code, const char *message,
	struct kvw_local_answer *out)
{
	const size_t size = 2048;
	char *body = malloc(size);
	size_t len;

	if (body == NULL)
		return KVW_ENOMEM;
	len = code != NULL
		      ? kvw_error_body_code(
				body, size - 1, KVW_API_OTHER, status, NULL, param, code, message)
		      : kvw_error_body(body, size - 1, KVW_API_OTHER, status, NULL, param, message);
	body[len++] = '\n';
	*out = (struct kvw_local_answer){
		.status = status, .content_type = "application/json", .body = body, .len = len};
	return KVW_OK;
}

enum kvw_err kvw_explanation_answer(const struct kvw_explanation *e, struct kvw_local_answer *out)
{
	struct kvw_page text = {0};

	if (e->status != 0)
		return kvw_explain_error(e->status, e->param, e->code, e->message, out);
	print(e, &text);
	if (text.failed) {
		free(text.data);
		return KVW_ENOMEM;
	}
	*out = (struct kvw_local_answer){.status = 200,
		.content_type = "application/json",
		.body = text.data,
		.len = text.len};
	return KVW_OK;
}
