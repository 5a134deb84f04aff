/*
 * lacking.c - handles a request whose model is unknown, or has no worker: the request waits, or its
 * client gets an error.
 */
#include "proxy/lacking.h"

#include <stdlib.h>
#include <string.h>

#include "admin/explanation.h"
#include "base/page.h"
#include "proxy/groups.h"
#include "proxy/loop.h"
#include "proxy/reply.h"
#include "proxy/waking.h"

#define PARK_MS 1000 /* longest wait of a request for an unknown model for a fresh list */

/* Converts the result of kvw_waking_hold. */
static enum kvw_stepped held(const struct kvw_exchange *x)
{
	return x->wait.kind != NULL ? KVW_STEP_WAITS : KVW_STEP_ANSWERED;
}

static void no_model(struct kvw_exchange *x)
{
	char message[512];
	struct kvw_slice model = x->route.model;
	int shown = (int)(model.len < 256 ? model.len : 256);

	(void)snprintf(
		message, sizeof(message), "The model `%.*s` does not exist.", shown, model.data);
	kvw_reply_error_as(x, 404, "NotFoundError", "model", NULL, message);
}

static const char *why_not(const struct kvw_worker *worker)
{
	char fault[KVW_MODELS_FAULT_ROOM];

	if (!kvw_worker_usable(worker))
		return kvw_worker_state_name(worker);
	return kvw_worker_models_fault(worker, fault) ? "up, but does not list its models"
						      : "up, without this model";
}

/* Writes "URL is STATE" for each worker. */
static void put_worker_states(const struct kvw_fleet *fleet, struct kvw_page *text)
{
	size_t shown = 0;

	for (size_t i = 0; i < fleet->count; i++) {
		const struct kvw_worker *worker = kvw_fleet_worker(fleet, i);

		if (worker == NULL)
			continue;
		kvw_page_string(text, shown++ == 0 ? ": " : ", ");
		kvw_page_string(text, worker->url);
		kvw_page_string(text, " is ");
		kvw_page_string(text, why_not(worker));
	}
}

#define STATES 16 /* more than there are; further ones would be left out */

/* Writes "NUMBER STATE" for each state. */
static void put_states(const struct kvw_fleet *fleet, struct kvw_page *text)
{
	const char *states[STATES];
	uint64_t counts[STATES] = {0};
	size_t found = 0;

	for (size_t i = 0; i < fleet->count; i++) {
		const struct kvw_worker *worker = kvw_fleet_worker(fleet, i);
		const char *state = worker == NULL ? NULL : why_not(worker);
		size_t at = 0;

		while (at < found && state != NULL && strcmp(states[at], state) != 0)
			at++;
		if (state == NULL || at == STATES)
			continue;
		if (at == found)
			states[found++] = state;
		counts[at]++;
	}
	for (size_t at = 0; at < found; at++) {
		kvw_page_string(text, at == 0 ? ": " : ", ");
		kvw_page_u64(text, counts[at]);
		kvw_page_string(text, " ");
		kvw_page_string(text, states[at]);
	}
}

enum kvw_stepped kvw_lacking_worker(struct kvw_exchange *x)
{
	char message[1024];
	struct kvw_page text = {0};

	if (kvw_waking_hold(x))
		return held(x);
	if (x->tried.count > 0) {
		(void)snprintf(message, sizeof(message), "no worker could answer; tried %s",
			x->tried.text);
	} else {
		(kvw_exchange_names_workers(x) ? put_worker_states : put_states)(
			x->loop->fleet, &text);
		(void)snprintf(message, sizeof(message), "no usable worker%s%s%.*s",
			x->division.group != NULL ? " in group " : "",
			x->division.group != NULL ? x->division.group->group : "", (int)text.len,
			text.len > 0 ? text.data : "");
		free(text.data);
	}
	kvw_reply_error_as(x, x->tried.count > 0 && !x->tried.full ? 502 : 503, NULL, NULL,
		"retry-after: 1\r\n", message);
	return KVW_STEP_ANSWERED;
}

/* Asks workers for their lists of models; returns whether any must be asked. */
static bool want_models(struct kvw_loop *loop)
{
	bool asked = false;

	for (size_t i = 0; i < loop->fleet->count; i++) {
		struct kvw_worker *worker = kvw_fleet_worker(loop->fleet, i);

		if (worker == NULL || worker->models_given)
			continue;
		atomic_store_explicit(
			&worker->lead->models_wanted, true, memory_order_relaxed);
		asked = true;
	}
	return asked;
}

/* Returns whether every worker that can be asked has listed its models since `since_ns`. */
static bool lists_are_newer(const struct kvw_loop *loop, int64_t since_ns)
{
	for (size_t i = 0; i < loop->fleet->count; i++) {
		const struct kvw_worker *worker = kvw_fleet_worker(loop->fleet, i);

		if (worker != NULL && !worker->models_given && kvw_worker_usable(worker) &&
			(kvw_worker_models_stale(worker) ||
				atomic_load_explicit(
					&worker->models_read_ns, memory_order_acquire) <= since_ns))
			return false;
	}
	return true;
}

/* Returns whether the models of all workers are known. */
static bool all_models_known(const struct kvw_loop *loop)
{
	for (size_t i = 0; i < loop->fleet->count; i++) {
		const struct kvw_worker *worker = kvw_fleet_worker(loop->fleet, i);

		if (worker != NULL && kvw_worker_usable(worker) && kvw_worker_models_stale(worker))
			return false;
	}
	return atomic_load_explicit(&loop->fleet->view, memory_order_acquire)->all_known;
}

/* Writes "URL (status 401)" for each worker whose list of models cannot be read; where the client
 * may not learn URLs, the number of such workers and the first one's cause. */
static void put_unlisted(const struct kvw_exchange *x, struct kvw_page *text)
{
	char fault[KVW_MODELS_FAULT_ROOM], first[KVW_MODELS_FAULT_ROOM] = "";
	const struct kvw_fleet *fleet = x->loop->fleet;
	bool named = kvw_exchange_names_workers(x);
	uint64_t count = 0;

	for (size_t i = 0; i < fleet->count; i++) {
		const struct kvw_worker *worker = kvw_fleet_worker(fleet, i);

		if (worker == NULL || !kvw_worker_models_fault(worker, fault))
			continue;
		if (count++ == 0)
			memcpy(first, fault, sizeof(first));
		if (!named)
			continue;
		kvw_page_string(text, count == 1 ? ": /v1/models of " : ", ");
		kvw_page_string(text, worker->url);
		kvw_page_string(text, " (");
		kvw_page_string(text, fault);
		kvw_page_string(text, ")");
	}
	if (count == 0 || named)
		return;
	kvw_page_string(text, ": /v1/models of ");
	kvw_page_u64(text, count);
	kvw_page_string(text, " (");
	kvw_page_string(text, first);
	kvw_page_string(text, ")");
}

static void models_unknown(struct kvw_exchange *x)
{
	struct kvw_page text = {0};
	char message[768];

	put_unlisted(x, &text);
	(void)snprintf(message, sizeof(message), "the models of some workers are not known yet%.*s",
		(int)text.len, text.len > 0 ? text.data : "");
	free(text.data);
	kvw_reply_error_as(x, 503, NULL, NULL, "retry-after: 1\r\n", message);
}

static enum kvw_stepped model_not_found(struct kvw_exchange *x)
{
	if (kvw_waking_hold(x))
		return held(x);
	if ((x->dry != NULL && x->dry->cold) || all_models_known(x->loop))
		no_model(x);
	else
		models_unknown(x);
	return KVW_STEP_ANSWERED;
}

static struct kvw_exchange_list *parked(struct kvw_loop *loop)
{
	return &loop->parked;
}

/* Answers by the lists of models, which are new, or did not arrive in time. */
static void answer_by_lists(struct kvw_exchange *x)
{
	struct kvw_model *model;
	bool known;

	kvw_groups_read(x, &x->loop->candidates, &known, &model);
	if (known)
		(void)kvw_lacking_worker(x);
	else
		(void)model_not_found(x);
}

static const struct kvw_wait_kind model_lists = {
	.name = "models",
	.text = "newer lists of the workers' models",
	.timer = KVW_TIMER_PARK,
	.list = parked,
	.expired = answer_by_lists,
};

static enum kvw_stepped park_request(struct kvw_exchange *x)
{
	x->tried.lists_awaited = true;
	kvw_wait_begin(x, &model_lists, x->loop->now_ns + PARK_MS * KVW_NS_PER_MS);
	return KVW_STEP_WAITS;
}

enum kvw_stepped kvw_lacking_model(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;

	/* Lists younger than the least time between two reads would be the same if they were read
	 * again. */
	if (x->dry == NULL && !lists_are_newer(loop, loop->now_ns - PARK_MS * KVW_NS_PER_MS) &&
		want_models(loop))
		return park_request(x);
	return model_not_found(x);
}

/* Returns whether the worker has joined and can serve once its models, or its address, are known. */
static bool is_newcomer(const struct kvw_worker *worker)
{
	unsigned barred = atomic_load_explicit(&worker->barred, memory_order_relaxed);

	return !worker->models_given && kvw_worker_is_up(worker) &&
	       (barred & ~(unsigned)KVW_BARRED_NO_ADDRESS) == 0;
}

/* A reload may replace all workers of a model at once: the old workers get no new requests, and the
 * models of the new ones will be known in a moment. A request waits once for that. If a list has
 * come since the request looked for workers, the request looks again. */
static enum kvw_stepped await_newcomers(struct kvw_exchange *x)
{
	const struct kvw_fleet *fleet = x->loop->fleet;
	int64_t old_ns = x->loop->now_ns - PARK_MS * KVW_NS_PER_MS, read_ns;

	if (x->tried.lists_awaited || x->dry != NULL)
		return KVW_STEP_ON;
	for (size_t i = 0; i < fleet->count; i++) {
		const struct kvw_worker *worker = kvw_fleet_worker(fleet, i);

		if (worker == NULL || !is_newcomer(worker))
			continue;
		read_ns = atomic_load_explicit(&worker->models_read_ns, memory_order_acquire);
		if (read_ns == 0) {
			(void)want_models(x->loop);
			return park_request(x);
		}
		if (read_ns > old_ns)
			x->tried.lists_awaited = true;
	}
	return x->tried.lists_awaited ? KVW_STEP_AGAIN : KVW_STEP_ON;
}

enum kvw_stepped kvw_lacking_choice(struct kvw_exchange *x)
{
	enum kvw_stepped stepped =
		x->division.fault != KVW_GROUP_GOOD ? KVW_STEP_AGAIN : await_newcomers(x);

	return stepped == KVW_STEP_ON ? kvw_lacking_worker(x) : stepped;
}

bool kvw_lacking_unpark(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;
	bool known,
		/* set before the lists themselves are read */
		newer = lists_are_newer(loop, x->wait.since_ns);
	struct kvw_model *model;

	kvw_groups_read(x, &loop->candidates, &known, &model);
	if (known && kvw_fleet_any_usable(&loop->candidates))
		kvw_wait_end(x, KVW_WAITED);
	else if (newer)
		kvw_wait_expire(x);
	else
		return false;
	return true;
}
