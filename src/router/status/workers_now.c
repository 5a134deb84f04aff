/*
 * workers_now.c - reads the state of each worker, and compares it with its peers'.
 *
 * Two speeds are compared, each with the median of the others of one model: the prefill rate that
 * routing has learned from times to first token, and the time per token of the streams that ended
 * in the last minute. The median of the others, not the mean: one slow worker of three must not
 * make itself look normal.
 */
#include "status/workers_now.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/worker_page.h"
#include "status/problems.h"

/* --- slow workers --- */

enum speed { PREFILL, DECODE };

/* Returns how long the worker takes for a token, ms; 0: too little is known. */
static double token_ms(const struct kvw_worker_fact *fact, enum speed speed)
{
	if (speed == DECODE)
		return fact->now.decode_tokens >= KVW_SLOW_TOKENS ? fact->now.decode_ms : 0;
	return fact->learned.rate_samples >= KVW_SLOW_SAMPLES &&
			       fact->learned.observed_tokens_per_second > 0
		       ? 1e3 / fact->learned.observed_tokens_per_second
		       : 0;
}

static int compare(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void describe_slow(struct kvw_worker_fact *fact, const char *model, enum speed speed,
	double own_ms, double others_ms, size_t others)
{
	if (speed == DECODE)
		(void)snprintf(fact->slow, sizeof(fact->slow),
			"it takes %.1f ms a token, its %zu peer%s of model %.120s %.1f ms (median)",
			own_ms, others, others == 1 ? "" : "s", model, others_ms);
	else
		(void)snprintf(fact->slow, sizeof(fact->slow),
			"it prefills %.0f tokens/s, its %zu peer%s of model %.120s %.0f (median)",
			1e3 / own_ms, others, others == 1 ? "" : "s", model, 1e3 / others_ms);
}

/* Names the load of a worker that may make it slow. */
static void describe_why(struct kvw_worker_fact *fact, double others_running)
{
	const struct kvw_load *load = &fact->worker->load;
	unsigned foreign =
		atomic_load(&load->foreign_waiting) + atomic_load(&load->foreign_running);

	if (foreign > 0)
		(void)snprintf(fact->slow_why, sizeof(fact->slow_why),
			"%u requests that this kvway did not send are there", foreign);
	else if (fact->now.kv_used >= 0.95)
		(void)snprintf(fact->slow_why, sizeof(fact->slow_why),
			"its KV memory is full (%.0f %%)", 100 * fact->now.kv_used);
	else if ((double)fact->now.running > 2 * others_running + 4)
		(void)snprintf(fact->slow_why, sizeof(fact->slow_why),
			"it has %llu requests in flight, its peers %.0f",
			(unsigned long long)fact->now.running, others_running);
	else
		(void)snprintf(fact->slow_why, sizeof(fact->slow_why),
			"its load does not explain it, so it is the machine or the engine's "
			"settings");
}

/* Compares the workers of `group` ([count], of one model and role). */
static void compare_group(
	struct kvw_worker_fact **group, size_t count, const char *model, enum speed speed)
{
	double sorted[KVW_MAX_WORKERS], running = 0;
	size_t known = 0;

	for (size_t i = 0; i < count; i++) {
		double ms = token_ms(group[i], speed);

		running += (double)group[i]->now.running;
		if (ms > 0)
			sorted[known++] = ms;
	}
	if (known < 2)
		return;
	qsort(sorted, known, sizeof(sorted[0]), compare);
	for (size_t i = 0; i < count; i++) {
		double ms = token_ms(group[i], speed), others;
		size_t middle = (known - 1) / 2, own = 0;

		while (own < known && sorted[own] < ms)
			own++;
		others = sorted[middle < own ? middle : middle + 1];
		if (ms < KVW_SLOW_FACTOR * others ||
			(speed == DECODE && ms < others + KVW_SLOW_LEAST_MS) ||
			group[i]->slow[0] != '\0')
			continue;
		describe_slow(group[i], model, speed, ms, others, known - 1);
		describe_why(
			group[i], (running - (double)group[i]->now.running) / (double)(count - 1));
	}
}

/* Marks slow workers of one model. */
static void find_slow(struct kvw_workers_now *now, const struct kvw_model_entry *model)
{
	struct kvw_worker_fact *group[KVW_MAX_WORKERS];

	for (enum kvw_role role = KVW_ROLE_BOTH; role <= KVW_ROLE_DECODE; role++) {
		size_t count = 0;

		for (size_t i = 0; i < now->list.count && count < KVW_MAX_WORKERS; i++) {
			const struct kvw_worker *worker = now->items[i].worker;

			if (worker != NULL && worker->config.role == role &&
				kvw_worker_usable(worker) &&
				(model->workers[worker->id / 64] >> worker->id % 64 & 1) != 0)
				group[count++] = &now->items[i];
		}
		if (count < 2)
			continue;
		compare_group(group, count, model->model->name, PREFILL);
		compare_group(group, count, model->model->name, DECODE);
	}
}

/* --- all of them --- */

enum kvw_err kvw_workers_now_read(
	const struct kvw_admin_facts *facts, int64_t now_ns, struct kvw_workers_now *out)
{
	struct kvw_fleet *fleet = facts->deps->fleet;
	struct kvw_strategy *strategy = fleet->strategy;
	const struct kvw_fleet_view *view = atomic_load(&fleet->view);
	enum kvw_err err = kvw_worker_list_read(facts->members, &out->list);

	if (err != KVW_OK)
		return err;
	out->items = calloc(out->list.count + 1, sizeof(out->items[0]));
	if (out->items == NULL) {
		kvw_worker_list_finish(&out->list);
		return KVW_ENOMEM;
	}
	for (size_t i = 0; i < out->list.count; i++) {
		struct kvw_worker_fact *fact = &out->items[i];

		fact->worker = out->list.items[i].worker;
		fact->id = kvw_worker_list_id(&out->list, i);
		fact->leaves = out->list.items[i].leaves;
		if (fact->worker == NULL)
			continue;
		kvw_metrics_worker_now(facts->deps->metrics, fact->worker, now_ns, &fact->now);
		if (strategy != NULL && strategy->ops->learned != NULL)
			strategy->ops->learned(strategy, fact->worker->id, &fact->learned);
	}
	for (size_t i = 0; view != NULL && i < view->model_count; i++)
		if (!atomic_load(&view->models[i].model->adapter))
			find_slow(out, &view->models[i]);
	return KVW_OK;
}

void kvw_workers_now_finish(struct kvw_workers_now *now)
{
	kvw_worker_list_finish(&now->list);
	free(now->items);
	now->items = NULL;
}

static json_t *real_or_null(bool known, double value)
{
	return known ? json_real(value) : json_null();
}

static void put_fact(json_t *page, const struct kvw_worker_fact *fact)
{
	const struct kvw_worker_now *now = &fact->now;
	const struct kvw_load *load = &fact->worker->load;
	char slow[sizeof(fact->slow)];
	json_t *own;

	memcpy(slow, fact->slow, sizeof(slow));
	own = json_pack(
		"{s:I, s:I, s:I, s:I, s:o?, s:f, s:f, s:o?, s:o?, s:o?}", "running",
		(json_int_t)now->running, "prefilling", (json_int_t)now->prefilling, "decoding",
		(json_int_t)now->decoding, "foreign",
		(json_int_t)atomic_load(&load->foreign_waiting) +
			atomic_load(&load->foreign_running),
		"kv_used", real_or_null(now->kv_used >= 0, now->kv_used), "requests_per_second",
		now->requests_per_s, "tokens_per_second", now->tokens_per_s, "ms_per_token",
		real_or_null(now->decode_tokens > 0, now->decode_ms), "prefill_tokens_per_second",
		real_or_null(fact->learned.rate_samples > 0,
			fact->learned.observed_tokens_per_second),
		"slow", slow[0] == '\0' ? NULL : kvw_problem_text(slow, strlen(slow)));

	json_object_update(page, own);
	json_decref(own);
}

json_t *kvw_workers_now_json(
	const struct kvw_workers_now *now, const struct kvw_admin_facts *facts, int64_t now_ns)
{
	json_t *list = json_array();

	for (size_t i = 0; i < now->list.count; i++) {
		json_t *page = kvw_worker_page(
			&now->list, i, facts->deps->fleet, facts->deps->metrics, now_ns);

		if (page != NULL && now->items[i].worker != NULL)
			put_fact(page, &now->items[i]);
		json_array_append_new(list, page);
	}
	return list;
}
