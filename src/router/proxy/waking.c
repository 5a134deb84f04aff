/*
 * waking.c - lets a request wait for a worker when its model is known but has none
 * (discovery.wake.hold).
 */
#include "proxy/waking.h"

#include <stdio.h>

#include "proxy/admit.h"
#include "proxy/groups.h"
#include "fleet/wake/wakes.h"
#include "proxy/loop.h"
#include "proxy/reply.h"

#define CODE "model_waking"
#define NAME_MOST 256

/* Returns the model, if a request such as this one may wait for it. */
static struct kvw_wake_model *model_to_wake(const struct kvw_exchange *x)
{
	if (x->config->discovery_wake_hold_ms == 0 || x->route.model.len == 0 ||
		x->tried.count > 0 || x->pin.len > 0)
		return NULL;
	return kvw_wakes_find(x->loop->fleet->wakes, x->config, x->route.model);
}

static void answer_unwoken(struct kvw_exchange *x, const char *what)
{
	kvw_reply_error_code(x, 503, NULL, CODE, "retry-after: 1\r\n", what);
}

static void say_expired(struct kvw_exchange *x)
{
	char text[NAME_MOST + 200];

	snprintf(text, sizeof(text),
		"the model `%.*s` has no worker and is being woken; this request has waited for "
		"%.1f s%s",
		NAME_MOST, x->waking.model->name,
		(double)(x->loop->now_ns - x->waking.first_ns) / (double)KVW_NS_PER_S,
		atomic_load_explicit(&x->waking.model->failed, memory_order_relaxed)
			? ", and the last call to wake it failed"
			: "");
	answer_unwoken(x, text);
}

/* Refuses to let the request wait, but wakes the model for later requests. */
static void refuse_to_wait(struct kvw_exchange *x, struct kvw_wake_model *model, const char *why)
{
	char text[NAME_MOST + 200];

	kvw_wakes_refuse(x->loop->fleet->wakes, model);
	snprintf(text, sizeof(text), "the model `%.*s` has no worker and is being woken; %s",
		NAME_MOST, model->name, why);
	answer_unwoken(x, text);
}

static struct kvw_exchange_list *waking(struct kvw_loop *loop)
{
	return &loop->waking;
}

static void leave_waking(struct kvw_exchange *x, enum kvw_waited how)
{
	static const enum kvw_wake_result results[] = {
		[KVW_WAITED] = KVW_WAKE_WOKEN,
		[KVW_WAITED_EXPIRED] = KVW_WAKE_EXPIRED,
		[KVW_WAITED_LEFT] = KVW_WAKE_LEFT,
	};

	kvw_wakes_release(x->loop->fleet->wakes, x->waking.model, results[how],
		x->loop->now_ns - x->wait.since_ns);
}

static const struct kvw_wait_kind a_worker = {
	.name = "worker",
	.text = "a worker of its model, which is being woken",
	.timer = KVW_TIMER_WAKE,
	.list = waking,
	.ended = leave_waking,
	.expired = say_expired,
};

static void wait_for_model(struct kvw_exchange *x, struct kvw_wake_model *model, int64_t until_ns)
{
	x->waking.model = model;
	/* admission had chosen a worker that is gone; the new workers have not been judged */
	x->admission.admitted = false;
	kvw_wakes_hold(model);
	kvw_wait_begin(x, &a_worker, until_ns);
}

/* Notes that the wait begins, and returns its limit. */
static int64_t limit_of(struct kvw_exchange *x)
{
	int64_t deadline_ns = kvw_admit_deadline_ns(x), until_ns;

	if (x->waking.first_ns == 0)
		x->waking.first_ns = x->loop->now_ns;
	until_ns = x->waking.first_ns + x->config->discovery_wake_hold_ms * KVW_NS_PER_MS;
	return deadline_ns > 0 && deadline_ns < until_ns ? deadline_ns : until_ns;
}

/* Explains the wait, in a dry run. */
static void say_would_wait(struct kvw_exchange *x, const struct kvw_wake_model *model)
{
	int64_t hold_ms = x->config->discovery_wake_hold_ms;
	char text[NAME_MOST + 400];

	(void)snprintf(text, sizeof(text),
		"no worker serves `%.*s` now; %s up to %lld.%03lld s while it is woken "
		"(discovery.wake); "
		"%u wait%s%s",
		NAME_MOST, model->name,
		kvw_admit_impatient(x) ? "it would be woken, but x-kvway-do-not-queue forbids to "
					 "wait; others wait for"
				       : "the request would wait for",
		(long long)(hold_ms / 1000), (long long)(hold_ms % 1000), atomic_load(&model->held),
		atomic_load(&model->asleep_ns) != 0 ? ", it is being woken" : "",
		atomic_load(&model->failed) ? ", the last call to wake it failed" : "");
	answer_unwoken(x, text);
}

static bool has_full_queue(const struct kvw_exchange *x)
{
	return kvw_wakes_held(x->loop->fleet->wakes) >= (uint64_t)x->config->admission_max_queue;
}

bool kvw_waking_hold(struct kvw_exchange *x)
{
	struct kvw_wake_model *model = model_to_wake(x);

	if (model == NULL)
		return false;
	x->waking.woken = false;
	if (x->dry != NULL) {
		say_would_wait(x, model);
	} else if (kvw_admit_impatient(x)) {
		refuse_to_wait(x, model, "x-kvway-do-not-queue forbids to wait for it");
	} else if (has_full_queue(x)) {
		refuse_to_wait(x, model, "no further request may wait");
	} else {
		int64_t until_ns = limit_of(x);

		wait_for_model(x, model, until_ns);
		if (until_ns <= x->loop->now_ns)
			kvw_wait_expire(x);
	}
	return true;
}

/* Returns whether a request in this loop waits for that model. */
static bool any_waits(const struct kvw_loop *loop, const struct kvw_wake_model *model)
{
	const struct kvw_exchange *x;

	if (atomic_load_explicit(&model->held, memory_order_relaxed) == 0)
		/* no loop has such a request: all that wait here are for other models */
		return false;
	TAILQ_FOREACH(x, &loop->waking, entry)
		if (x->waking.model == model)
			return true;
	return false;
}

bool kvw_waking_others(const struct kvw_exchange *x)
{
	const struct kvw_wake_model *model = model_to_wake(x);

	return model != NULL && atomic_load_explicit(&model->held, memory_order_relaxed) > 0;
}

bool kvw_waking_queue(struct kvw_exchange *x)
{
	struct kvw_wake_model *model;
	int64_t until_ns;

	if (TAILQ_EMPTY(&x->loop->waking) || x->waking.woken)
		return false;
	model = model_to_wake(x);
	if (model == NULL || !any_waits(x->loop, model) || kvw_admit_impatient(x) ||
		has_full_queue(x))
		return false;
	until_ns = limit_of(x);
	if (until_ns <= x->loop->now_ns)
		return false;
	wait_for_model(x, model, until_ns);
	return true;
}

/* Returns whether the worker can be picked and a probe says that it listens. */
static bool is_ready(const struct kvw_loop *loop, const struct kvw_candidate *item)
{
	return item->usable && atomic_load_explicit(&loop->fleet->workers[item->id]->health,
				       memory_order_relaxed) == KVW_HEALTH_UP;
}

/* From here on promises, admission.max_wait and timeouts.first_token count from the beginning. */
static void forget_hold(struct kvw_exchange *x)
{
	int64_t now_ns = x->loop->now_ns;

	if (x->complete_ns != 0 && x->complete_ns < x->wait.since_ns)
		x->complete_ns += now_ns - x->wait.since_ns;
	else if (x->complete_ns != 0)
		x->complete_ns = now_ns;
	if (x->admission.entered)
		x->admission.entrant.wait.came_ns = now_ns;
}

bool kvw_waking_go_on(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;
	struct kvw_fleet_table *table = &loop->candidates;
	struct kvw_model *model;
	bool known, ready = false;

	kvw_groups_read(x, table, &known, &model);
	for (size_t i = 0; known && i < table->count && !ready; i++)
		ready = is_ready(loop, &table->items[i]);
	if (!ready)
		return false;
	kvw_wait_end(x, KVW_WAITED);
	forget_hold(x);
	x->waking.woken = true;
	return true;
}
