/*
 * forward.c - choosing a worker for a request: model, owner, strategy; and the head for it.
 */
#include "proxy/forward.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "auth/credential.h"
#include "proxy/admit.h"
#include "proxy/asked.h"
#include "proxy/busy.h"
#include "proxy/fits.h"
#include "proxy/front.h"
#include "fleet/pin.h"
#include "proxy/groups.h"
#include "proxy/guard.h"
#include "proxy/rate.h"
#include "proxy/regroup.h"
#include "base/page.h"
#include "proxy/reply.h"
#include "proxy/request.h"
#include "proxy/retry.h"
#include "proxy/sagemaker.h"
#include "proxy/tried.h"
#include "proxy/understand.h"
#include "proxy/unread.h"
#include "proxy/waking.h"
#include "proxy/whose.h"

#define PARK_MS 1000 /* a request for an unknown model waits so long for a fresh list */

static void no_model(struct kvw_exchange *x)
{
	char message[512];
	struct kvw_slice model = x->route.model;
	int shown = (int)(model.len < 256 ? model.len : 256);

	(void)snprintf(message, sizeof(message), "The model `%.*s` does not exist.", shown, model.data);
	kvw_reply_error_as(x, 404, "NotFoundError", "model", NULL, message);
}

static const char *why_not(const struct kvw_worker *worker)
{
	char fault[KVW_MODELS_FAULT_ROOM];

	if (!kvw_worker_usable(worker))
		return kvw_worker_state_name(worker);
	return kvw_worker_models_fault(worker, fault) ? "up, but does not list its models" : "up, without this model";
}

/* "URL is STATE" of each. */
static void put_workers(const struct kvw_fleet *fleet, struct kvw_page *text)
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

#define STATES 16 /* more than there are; what has no room is left out */

/* "NUMBER STATE" of each state. */
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

static void no_worker(struct kvw_exchange *x)
{
	char message[1024];
	struct kvw_page text = {0};

	if (kvw_waking_hold(x))
		return;
	if (x->tried_count > 0) {
		(void)snprintf(message, sizeof(message), "no worker could answer; tried %s", x->tried_text);
	} else {
		(kvw_exchange_names_workers(x) ? put_workers : put_states)(x->loop->fleet, &text);
		(void)snprintf(message, sizeof(message), "no usable worker%s%s%.*s",
			x->group != NULL ? " in group " : "", x->group != NULL ? x->group->group : "",
			(int)text.len, text.len > 0 ? text.data : "");
		free(text.data);
	}
	kvw_reply_error_as(x, x->tried_count > 0 && !x->refused ? 502 : 503, NULL, NULL, "retry-after: 1\r\n", message);
}

/* Asks workers for their lists; true if any has to be asked. */
static bool want_models(struct kvw_loop *loop)
{
	bool asked = false;

	for (size_t i = 0; i < loop->fleet->count; i++) {
		struct kvw_worker *worker = kvw_fleet_worker(loop->fleet, i);

		if (worker == NULL || worker->models_given)
			continue;
		atomic_store_explicit(&worker->models_wanted, true, memory_order_relaxed);
		asked = true;
	}
	return asked;
}

/* Has every worker that can be asked listed its models since `since_ns`? */
static bool lists_are_newer(const struct kvw_loop *loop, int64_t since_ns)
{
	for (size_t i = 0; i < loop->fleet->count; i++) {
		const struct kvw_worker *worker = kvw_fleet_worker(loop->fleet, i);

		if (worker != NULL && !worker->models_given && kvw_worker_usable(worker) &&
			(kvw_worker_models_stale(worker) ||
				atomic_load_explicit(&worker->models_read_ns, memory_order_acquire) <= since_ns))
			return false;
	}
	return true;
}

/* Is it certain what they serve? */
static bool all_models_known(const struct kvw_loop *loop)
{
	for (size_t i = 0; i < loop->fleet->count; i++) {
		const struct kvw_worker *worker = kvw_fleet_worker(loop->fleet, i);

		if (worker != NULL && kvw_worker_usable(worker) && kvw_worker_models_stale(worker))
			return false;
	}
	return atomic_load_explicit(&loop->fleet->view, memory_order_acquire)->all_known;
}

/* "URL (status 401)" of each worker whose list cannot be read, or how many they are, and why the first. */
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
	(void)snprintf(message, sizeof(message), "the models of some workers are not known yet%.*s", (int)text.len,
		text.len > 0 ? text.data : "");
	free(text.data);
	kvw_reply_error_as(x, 503, NULL, NULL, "retry-after: 1\r\n", message);
}

static void model_not_found(struct kvw_exchange *x)
{
	if (kvw_waking_hold(x))
		return;
	if (all_models_known(x->loop))
		no_model(x);
	else
		models_unknown(x);
}

static void park(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;

	kvw_exchange_request_state(x, KVW_REQUEST_PARKED);
	x->parked_ns = loop->now_ns;
	TAILQ_INSERT_TAIL(&loop->parked, x, entry);
	kvw_loop_timer(loop, &x->timer, KVW_TIMER_PARK, PARK_MS);
}

static void unknown_model(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;

	/* Lists younger than a refresh can be would say the same again. */
	if (!lists_are_newer(loop, loop->now_ns - PARK_MS * KVW_NS_PER_MS) && want_models(loop))
		park(x);
	else
		model_not_found(x);
}

/* It has just joined: requests cannot see yet which models it has, or its name is still looked up. */
static bool is_newcomer(const struct kvw_worker *worker)
{
	unsigned barred = atomic_load_explicit(&worker->barred, memory_order_relaxed);

	return !worker->models_given &&
	       atomic_load_explicit(&worker->models_read_ns, memory_order_acquire) == 0 &&
	       kvw_worker_is_up(worker) && (barred & ~(unsigned)KVW_BARRED_NO_ADDRESS) == 0;
}

/* A reload may replace all workers of a model at once: those before get no new requests, and what the new
 * ones serve is known in a moment. A request waits for that once. True: it does. */
static bool await_newcomers(struct kvw_exchange *x)
{
	const struct kvw_fleet *fleet = x->loop->fleet;

	if (x->parked_ns != 0)
		return false;
	for (size_t i = 0; i < fleet->count; i++) {
		const struct kvw_worker *worker = kvw_fleet_worker(fleet, i);

		if (worker == NULL || !is_newcomer(worker))
			continue;
		(void)want_models(x->loop);
		park(x);
		return true;
	}
	return false;
}

static void leave_parked(struct kvw_exchange *x)
{
	TAILQ_REMOVE(&x->loop->parked, x, entry);
	kvw_timer_clear(&x->loop->timers, &x->timer);
	kvw_exchange_request_state(x, KVW_REQUEST_ROUTING);
}

void kvw_request_park_over(struct kvw_exchange *x)
{
	struct kvw_model *model;
	bool known;

	leave_parked(x);
	kvw_groups_read(x, &x->loop->candidates, &known, &model);
	if (known)
		no_worker(x);
	else
		model_not_found(x);
}

bool kvw_request_unpark(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;
	bool known, newer = lists_are_newer(loop, x->parked_ns); /* before what they say is read */
	struct kvw_model *model;

	kvw_groups_read(x, &loop->candidates, &known, &model);
	if (known && kvw_fleet_any_usable(&loop->candidates))
		leave_parked(x);
	else if (newer)
		kvw_request_park_over(x);
	else
		return false;
	return true;
}

bool kvw_request_has_choice(const struct kvw_exchange *x)
{
	struct kvw_fleet_table *table = &x->loop->candidates;

	if (x->pin.len > 0)
		return false;
	kvw_tried_read_others(x, table);
	for (size_t i = 0; i < table->count; i++)
		if (table->items[i].usable && table->items[i].id != x->attempt.worker->id)
			return true;
	return x->group != NULL && kvw_groups_other(x, kvw_tried_drop) != NULL;
}

bool kvw_request_may_leave(struct kvw_exchange *x, uint32_t suspicions)
{
	return (x->path.repeatable || x->idempotent) && x->whole &&
	       x->tried_count < (uint32_t)x->config->retry_attempts &&
	       suspicions < KVW_RETRY_SUSPICIONS && kvw_request_has_choice(x) &&
	       kvw_attempt_pay_repeat(x);
}

bool kvw_request_may_find_room(struct kvw_exchange *x)
{
	if (!(x->path.repeatable || x->idempotent) || !x->whole || x->tried_count == KVW_TRIED_MAX ||
		x->pin.len > 0 || x->attempt.decision.reason == KVW_REASON_OWNER)
		return false;
	if (kvw_request_has_choice(x) && kvw_busy_other_has_room(x, &x->loop->candidates))
		return true;
	return kvw_gates_want(x) && kvw_busy_any_will_have_room(x, &x->loop->candidates);
}

/* The worker that keeps the response or session is among these, and can be sent the request: it may rest. */
static bool has_owner(const struct kvw_exchange *x, const struct kvw_candidate *items, size_t count, size_t *pos)
{
	uint32_t owner;

	if (!kvw_whose_worker(x, &owner))
		return false;
	for (*pos = 0; *pos < count; ++*pos)
		if (items[*pos].id == owner)
			return items[*pos].usable || kvw_worker_rests(x->loop->fleet->workers[owner]);
	return false;
}

/* A request about what a worker keeps goes to that worker. */
static bool pick_owner(struct kvw_exchange *x, const struct kvw_candidates *set)
{
	size_t pos;

	if (!has_owner(x, set->items, set->count, &pos))
		return false;
	x->attempt.decision = (struct kvw_decision){
		.pos = pos, .reason = KVW_REASON_OWNER, .worker_id = set->items[pos].id};
	return true;
}

/* An ejected worker whose time is over gets one request, whatever it costs there, if that request can go
 * elsewhere should the worker still be broken. */
static bool pick_trial(struct kvw_exchange *x, const struct kvw_candidates *set)
{
	struct kvw_loop *loop = x->loop;

	if (x->attempts > 0 || !x->whole || !x->path.repeatable || !kvw_exchange_computes(x) ||
		x->config->retry_attempts == 0 || !kvw_ejections_any(&loop->fleet->ejections))
		return false;
	for (size_t i = 0; i < set->count; i++) {
		uint32_t id = set->items[i].id;
		struct kvw_worker *worker = loop->fleet->workers[id];

		if (!set->items[i].usable || !kvw_fleet_picked(loop->fleet, worker, loop->now_ns))
			continue;
		x->attempt.trial = true;
		x->attempt.decision = (struct kvw_decision){
			.pos = i, .reason = KVW_REASON_TRIAL, .worker_id = id};
		return true;
	}
	return false;
}

/* What ends the sleep of an engine goes to one that sleeps. */
static bool pick_sleeper(struct kvw_exchange *x, const struct kvw_candidates *set)
{
	for (size_t i = 0; x->path.wakes && i < set->count; i++) {
		uint32_t id = set->items[i].id;

		if (!kvw_worker_sleeps(x->loop->fleet->workers[id]))
			continue;
		x->attempt.decision = (struct kvw_decision){
			.pos = i, .reason = KVW_REASON_OWNER, .worker_id = id};
		return true;
	}
	return false;
}

/* The worker that the request names. False: it cannot have it, which is answered. */
static bool pick_pinned(struct kvw_exchange *x, const struct kvw_candidates *set)
{
	char why[320];
	size_t pos;

	if (x->tried_count > 0) {
		no_worker(x);
		return false;
	}
	if (kvw_pin_find(x->loop->fleet, set, x->pin, kvw_exchange_computes(x), &pos, why,
		    sizeof(why)) != KVW_OK) {
		kvw_reply_error_as(x, 503, NULL, NULL, "retry-after: 1\r\n", why);
		return false;
	}
	x->attempt.decision = (struct kvw_decision){
		.pos = pos, .reason = KVW_REASON_PINNED, .worker_id = set->items[pos].id};
	return true;
}

static enum kvw_err pick_by_strategy(struct kvw_exchange *x, const struct kvw_candidates *set)
{
	struct kvw_attempt *a = &x->attempt;
	struct kvw_loop *loop = x->loop;
	enum kvw_err err = x->strategy->ops->pick(
		x->strategy, &x->route, set, loop->now_ns, &a->decision);

	a->picked = err == KVW_OK;
	return err;
}

/* Into the loop's candidates. False: the model is not known. */
static bool read_candidates(struct kvw_exchange *x)
{
	struct kvw_model *model;
	bool known;

	kvw_groups_read(x, &x->loop->candidates, &known, &model);
	kvw_model_hold(model);
	kvw_model_let_go(x->model);
	x->model = model;
	if (known)
		kvw_tried_drop(x, &x->loop->candidates);
	return known;
}

/* To another group, if there is one that can have it; the candidates are to be read again. False: it must be refused,
 * which the guard does. One whose own group has failed it goes on as if there were no other: its answer names what was tried. */
static bool try_other_group(struct kvw_exchange *x)
{
	enum kvw_err err = kvw_regroup(x, kvw_tried_drop);

	if (err == KVW_ENOMEM)
		x->group_fault = KVW_GROUP_NO_MEMORY;
	else if (err == KVW_EINVAL && x->tried_count == 0)
		x->group_fault = KVW_GROUP_UNWRITTEN;
	return x->group_fault == KVW_GROUP_GOOD;
}

bool kvw_request_candidates(struct kvw_exchange *x, struct kvw_candidates *set)
{
	struct kvw_loop *loop = x->loop;
	size_t pos;
	bool known;

	kvw_request_scan_again(x);
	known = read_candidates(x);
	if (x->group != NULL && (!known || !kvw_fleet_any_usable(&loop->candidates)) &&
		!(known && has_owner(x, loop->candidates.items, loop->candidates.count, &pos)))
		known = try_other_group(x) && read_candidates(x);
	if (!known)
		return false;
	*set = (struct kvw_candidates){
		.items = loop->candidates.items,
		.count = loop->candidates.count,
		.board = loop->fleet->loads,
		.version = loop->candidates.version,
	};
	x->route.tokens_per_unit =
		kvw_fleet_tokens_per_unit(loop->fleet, x->model, &x->route, &x->ratio_keys);
	if (loop->sources != NULL)
		kvw_request_add_tokens(x);
	if (x->pin.len == 0 && !has_owner(x, loop->candidates.items, loop->candidates.count, &pos)) {
		kvw_fits_keep(x, &loop->candidates);
		if (kvw_busy_any(x))
			kvw_busy_avoid(x, &loop->candidates);
	}
	set->version = loop->candidates.version;
	return true;
}

/* One that is to be sent to this worker alone. Its reason is what the strategy said of the whole set. */
static enum kvw_err pick_admitted(struct kvw_exchange *x, struct kvw_candidates *set)
{
	struct kvw_decision *decision = &x->attempt.decision;
	uint32_t id = x->entrant.wait.worker;
	enum kvw_err err;

	x->loop->candidates.version = set->version = 0; /* they are refilled next time */
	for (size_t i = 0; i < x->loop->candidates.count; i++)
		x->loop->candidates.items[i].usable &= x->loop->candidates.items[i].id == id;
	err = pick_by_strategy(x, set);
	if (err != KVW_OK || decision->reason != KVW_REASON_ONLY)
		return err;
	if (id == x->wished)
		decision->reason = x->wish;
	else if (decision->hit_tokens[KVW_TIER_DEVICE] > 0)
		decision->reason = KVW_REASON_PREFIX;
	else
		decision->reason = KVW_REASON_LOAD;
	return KVW_OK;
}

/* False: not now, or, if *none, there is no worker. */
static bool pick_by_admission(struct kvw_exchange *x, struct kvw_candidates *set, bool *none)
{
	enum kvw_admitted admitted = kvw_admit(x, set);

	*none = false;
	if (admitted == KVW_ADMIT_NOT_NOW)
		return false;
	if (admitted == KVW_ADMIT_ONE) {
		if (pick_admitted(x, set) == KVW_OK)
			return true;
		if (!kvw_request_candidates(x, set)) {
			*none = true;
			return false;
		}
	}
	*none = pick_by_strategy(x, set) != KVW_OK;
	return !*none;
}

#define SEQUENCES_UNKNOWN (UINT32_C(1) << 16)

/* Most that the engine counts as its requests; it does each answer to each prompt. */
static uint32_t sequences_of(const struct kvw_exchange *x)
{
	uint32_t choices = x->route.choices > 1 ? x->route.choices : 1;

	if (!kvw_exchange_computes(x))
		return 1;
	if (!x->scanned)
		return SEQUENCES_UNKNOWN;
	switch (x->route.api) {
	case KVW_API_RESPONSES:
	case KVW_API_MESSAGES:
		return choices;
	case KVW_API_CHAT: /* a batch of them, too */
		return x->route.chain_count > 1 ? x->route.chain_count * choices : choices;
	case KVW_API_COMPLETIONS:
	case KVW_API_EMBEDDINGS:
		if (x->route.content_known && x->route.chain_count < SEQUENCES_UNKNOWN / choices)
			return x->route.chain_count * choices;
		return SEQUENCES_UNKNOWN;
	default:
		return SEQUENCES_UNKNOWN;
	}
}

static bool pick(struct kvw_exchange *x)
{
	struct kvw_attempt *a = &x->attempt;
	struct kvw_loop *loop = x->loop;
	struct kvw_candidates set;
	uint32_t owner;
	bool none = false;

	if (kvw_rate_refuses(x))
		return false;
	/* Where its owner rests, one that has an owner need not wait with the others. */
	if (!kvw_whose_worker(x, &owner) && kvw_waking_queue(x))
		return false;
	if (!kvw_request_candidates(x, &set)) {
		if (x->group_fault == KVW_GROUP_GOOD)
			unknown_model(x);
		return false;
	}
	kvw_admit_enter(x);
	if (x->pin.len > 0) {
		if (!pick_pinned(x, &set))
			return false;
	} else if (!pick_sleeper(x, &set) && !pick_owner(x, &set) && !kvw_asked_pick(x, &set) && !pick_trial(x, &set) &&
		   !pick_by_admission(x, &set, &none)) {
		if (none && x->group_fault == KVW_GROUP_GOOD && !await_newcomers(x))
			no_worker(x);
		return false;
	}
	a->decided = true;
	a->picked_ns = loop->now_ns;
	a->suspect = a->error_event = a->paid = x->said_all = a->doubtful = a->full = false;
	a->graded = KVW_GRADE_NONE;
	a->tokens = KVW_TOKENS_UNKNOWN;
	x->beginning_len = 0;
	if (a->worker != NULL)
		kvw_links_unhold(&loop->links, a->worker);
	a->worker = loop->fleet->workers[a->decision.worker_id];
	kvw_links_hold(&loop->links, a->worker);
	if (x->attempts++ == 0 && ++loop->unpaid == KVW_BUDGET_BATCH) {
		kvw_budget_pay(&loop->shared->repeats, loop->unpaid, x->config->retry_budget,
			loop->now_ns);
		loop->unpaid = 0;
	}
	if (!kvw_worker_is_up(a->worker))
		kvw_metrics_add(loop->metrics, KVW_COUNT_PANICS, 1);
	kvw_attempt_puts_to_sleep(x);
	a->trial = a->trial || (kvw_exchange_computes(x) &&
				       kvw_fleet_picked(loop->fleet, a->worker, loop->now_ns));
	kvw_lease_take(&a->lease, &a->worker->load, a->decision.prefill_ns, loop->now_ns);
	a->lease.plain = !x->route.stream;
	kvw_lease_hold(&a->lease, a->decision.prompt_tokens);
	if (sequences_of(x) > 1)
		kvw_lease_widen(&a->lease, sequences_of(x) - 1);
	kvw_gates_picked(x);
	if (loop->sources != NULL)
		kvw_request_report_pick(x);
	kvw_request_scan_release(x);
	return true;
}

/* Returns whether the answer shows the decision. Takes x-kvway-explain, by which a client wishes for
 * that, out of the head for the worker. */
static bool take_wish(const struct kvw_exchange *x, struct kvw_head *head)
{
	bool wished = false;

	for (size_t i = 0; i < head->field_count; i++) {
		struct kvw_field *field = &head->fields[i];

		if (!kvw_slice_equal_nocase(field->name, KVW_SLICE("x-kvway-explain")))
			continue;
		field->hop_by_hop = true;
		wished = wished || kvw_slice_equal(field->value, KVW_SLICE("1"));
	}
	return !x->preflight &&
	       ((wished && kvw_guard_trusts(x)) ||
		       x->loop->config->decision_headers == KVW_DECISION_HEADERS_ALWAYS);
}

/* x-kvway-pin ends here, whether it counts or not. */
static void take_pin(struct kvw_head *head)
{
	for (size_t i = 0; i < head->field_count; i++)
		if (kvw_slice_equal_nocase(head->fields[i].name, KVW_SLICE(KVW_PIN_FIELD)))
			head->fields[i].hop_by_hop = true;
}

/* Builds the head for x->attempt.worker into x->attempt.head. */
static bool build_head(struct kvw_exchange *x)
{
	struct kvw_attempt *a = &x->attempt;
	struct kvw_loop *loop = x->loop;
	struct kvw_request_head_options options = {
		.prefix = kvw_slice_of(a->worker->path_prefix),
		.authority = kvw_slice_of(a->worker->authority),
		.request_id = x->request_id,
		.client = kvw_slice_of(x->client->address),
		.https = x->client->https,
		.x_forwarded = x->config->forwarded == KVW_FORWARDED_BOTH ||
			x->config->forwarded == KVW_FORWARDED_X,
		.forwarded = x->config->forwarded == KVW_FORWARDED_BOTH ||
			x->config->forwarded == KVW_FORWARDED_STANDARD,
		.framing = x->framing,
		.content_length = x->content_length,
		.bearer = kvw_slice_of(loop->auth != NULL ? a->worker->api_key : NULL),
	};
	char extra[KVW_SAGEMAKER_ROOM + 64];
	struct kvw_writer w = KVW_WRITER(extra, sizeof(extra));

	if (!kvw_request_own_head(x))
		return false;
	take_pin(&loop->request_head);
	kvw_groups_hide(x, &loop->request_head);
	if (x->config->decision_headers != KVW_DECISION_HEADERS_OFF)
		x->show_decision = take_wish(x, &loop->request_head);
	if (loop->shared->front.count > 0 && !x->client->trusted)
		kvw_front_hide(&loop->request_head);
	if (loop->auth != NULL)
		kvw_credential_hide(&loop->request_head);
	/* A gateway names itself, with the version it received (RFC 9110 section 7.6.3). */
	kvw_write(&w, x->client_minor == 0 ? KVW_SLICE("Via: 1.0 kvway\r\n") : KVW_SLICE("Via: 1.1 kvway\r\n"));
	kvw_unread_ask_plain(x, &loop->request_head, &w);
	kvw_sagemaker_name_model(x, &loop->request_head, &w);
	options.extra = (struct kvw_slice){w.data, w.len};
	a->head = kvw_block_get(
		&loop->blocks, kvw_head_request_bound(&loop->request_head, &options) + sizeof(*a->head));
	if (a->head == NULL)
		return false;
	w = KVW_WRITER(a->head->data, a->head->size);
	a->head->end = (uint32_t)kvw_head_write_request(&w, &loop->request_head, &options);
	a->head_sent = 0;
	return a->head->end > 0;
}

bool kvw_request_pick(struct kvw_exchange *x)
{
	if (!pick(x))
		return false;
	kvw_exchange_response_state(x, KVW_RESPONSE_WAITING);
	if (!build_head(x)) {
		kvw_reply_error(x, 431, "the request head is too large to forward");
		return false;
	}
	return true;
}
