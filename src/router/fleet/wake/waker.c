/*
 * waker.c - calls the webhook and scales pools for models that must be woken; waker.h has the
 * rules.
 *
 * A tick makes all decisions: the end of a call is only recorded, so that a call is never destroyed
 * within its own callback. A round of calls uses one configuration, which is kept until the round
 * is over.
 */
#include "fleet/wake/waker.h"

#include <stdio.h>
#include <stdlib.h>

#include <event2/event.h>
#include <jansson.h>

#include "base/clock.h"
#include "base/log.h"
#include "config/pools.h"
#include "fleet/discovery/kube_call.h"
#include "fleet/settings.h"
#include "fleet/wake/scale.h"
#include "fleet/wake/wakes.h"
#include "fleet/wake/webhook.h"

#define ROOM         "wake"
#define TICK_MS      50
#define REST_MS      1000 /* time between two ticks while discovery.wake.hold is 0 */
#define BACK_OFF_MS  1000 /* delay after the first failure; doubled at each further one */
#define BACK_OFF_MOST_MS 60000
#define WHY          320

/* A model that is being woken, or was to be. */
struct sleeper {
	struct sleeper *next;
	struct kvw_wake_model *model;
	struct kvw_waker *waker;
	int64_t next_ns;       /* no round before */
	unsigned failures;     /* rounds that failed, in a row */

	/* --- the round --- */
	bool runs;
	/* Settings that the round holds; NULL: settings that are not counted. */
	struct kvw_settings *settings;
	const struct kvw_config *config;
	size_t at; /* the next target of the round: 0 is the webhook, then follow the pools */
	size_t calls;          /* made */
	bool failed;
	int64_t wait_ms;       /* the longest Retry-After of this round */
	struct kvw_webhook *hook; /* at most one of the two runs */
	struct kvw_scale *scale;
	bool ended;            /* the call has ended, and ... */
	char why[WHY];         /* ... failed for this cause; empty: it succeeded */
};

struct kvw_waker {
	struct kvw_fleet *fleet;
	struct event *tick;
	struct kvw_curl_loop hooks, kube;
	struct sleeper *sleepers;
	struct kvw_candidate *items; /* [KVW_MAX_WORKERS] */
};

static const struct kvw_config *config_of(const struct kvw_waker *waker)
{
	return atomic_load(&waker->fleet->config);
}

/* Returns whether a worker of the model can be picked. A worker that no probe has reached yet may
 * not listen. */
static bool has_worker(struct kvw_waker *waker, const char *model)
{
	struct kvw_model *entry;
	bool known;
	size_t count = kvw_fleet_candidates(
		waker->fleet, kvw_slice_of(model), waker->items, &known, &entry);

	for (size_t i = 0; i < count; i++)
		if (waker->items[i].usable &&
			atomic_load_explicit(&waker->fleet->workers[waker->items[i].id]->health,
				memory_order_relaxed) == KVW_HEALTH_UP)
			return true;
	return false;
}

/* --- one call --- */

static void on_ended(void *arg, const char *why, int64_t wait_ms)
{
	struct sleeper *s = arg;

	snprintf(s->why, sizeof(s->why), "%s", why == NULL ? "" : why);
	if (wait_ms > s->wait_ms)
		s->wait_ms = wait_ms;
	s->ended = true;
}

/* Writes {"model": ..., "pool": its pool's name or null, "waiting": requests}. */
static char *body_of(const struct sleeper *s)
{
	char name[KVW_POOL_SHOWN] = "", *text;
	size_t found = 0;
	json_t *body;

	for (size_t i = 0; i < s->config->pool_count; i++)
		if (kvw_wakes_pool_serves(s->config, i, s->model->name) && found++ == 0)
			kvw_pool_shown(s->config, i, name);
	body = json_pack("{s:s, s:s?, s:I}", "model", s->model->name, "pool",
		found == 1 ? name : NULL, "waiting", (json_int_t)atomic_load(&s->model->held));
	text = body == NULL ? NULL : json_dumps(body, JSON_COMPACT);
	json_decref(body);
	return text;
}

/* Writes the name of the last call's target, for logs. */
static void put_target(const struct sleeper *s, char *out, size_t room)
{
	if (s->at == 1)
		snprintf(out, room, "webhook");
	else
		snprintf(out, room, "scale of %s", s->config->pools[s->at - 2].scale);
}

static enum kvw_err start_hook(struct sleeper *s)
{
	char *body = body_of(s);
	enum kvw_err err = KVW_ENOMEM;

	if (body != NULL)
		err = kvw_webhook_start(&s->waker->hooks, s->config, body, on_ended, s, s->why,
			sizeof(s->why), &s->hook);
	free(body);
	return err;
}

static bool is_target(const struct sleeper *s, size_t at)
{
	if (at == 0)
		return s->config->discovery_wake_webhook[0] != '\0';
	return s->config->pools[at - 1].scale[0] != '\0' &&
	       kvw_wakes_pool_serves(s->config, at - 1, s->model->name);
}

/* Calls the next target of the round. False: there is none. */
static bool call_next(struct sleeper *s)
{
	size_t count = 1 + s->config->pool_count, at;
	enum kvw_err err;

	while (s->at < count && !is_target(s, s->at))
		s->at++;
	if (s->at >= count)
		return false;
	at = s->at++;
	s->calls++;
	s->ended = false;
	snprintf(s->why, sizeof(s->why), "out of memory");
	atomic_fetch_add(&s->waker->fleet->wakes->calls, 1);
	err = at == 0 ? start_hook(s)
		      : kvw_scale_start(&s->waker->kube, s->config, at - 1, on_ended, s, s->why,
				sizeof(s->why), &s->scale);
	if (err != KVW_OK)
		s->ended = true; /* why is set */
	return true;
}

static void put_away(struct sleeper *s)
{
	kvw_webhook_destroy(s->hook);
	kvw_scale_destroy(s->scale);
	s->hook = NULL;
	s->scale = NULL;
}

static void take_end(struct sleeper *s)
{
	char target[320];

	put_away(s);
	put_target(s, target, sizeof(target));
	if (s->why[0] == '\0') {
		kvw_info(ROOM, "called to wake a model model=%s by=\"%s\"", s->model->name, target);
		return;
	}
	s->failed = true;
	atomic_fetch_add(&s->waker->fleet->wakes->failures, 1);
	kvw_warn(ROOM, "a call to wake a model failed model=%s by=\"%s\" why=\"%s\"",
		s->model->name, target, s->why);
}

/* --- a round of calls --- */

static void begin_round(struct sleeper *s)
{
	struct kvw_fleet *fleet = s->waker->fleet;

	s->settings = atomic_load(&fleet->settings);
	if (s->settings != NULL)
		kvw_settings_ref(s->settings);
	s->config = s->settings != NULL ? s->settings->config : atomic_load(&fleet->config);
	s->runs = true;
	s->failed = false;
	s->at = s->calls = 0;
	s->wait_ms = 0;
	atomic_store(&s->model->wanted, false);
	if (!call_next(s))
		s->ended = true;
}

static void leave_round(struct sleeper *s)
{
	put_away(s);
	if (s->settings != NULL)
		kvw_settings_unref(s->settings);
	s->settings = NULL;
	s->config = NULL;
	s->runs = false;
}

static int64_t back_off_ms(const struct sleeper *s)
{
	int64_t ms = BACK_OFF_MS;

	for (unsigned i = 1; i < s->failures && ms < BACK_OFF_MOST_MS; i++)
		ms *= 2;
	if (ms > BACK_OFF_MOST_MS)
		ms = BACK_OFF_MOST_MS;
	return ms > s->wait_ms ? ms : s->wait_ms;
}

/* Returns how long to wait for workers after successful calls. Requests from before a reload may
 * wait although hold is 0 now. */
static int64_t patience_ms(const struct sleeper *s)
{
	int64_t hold_ms = config_of(s->waker)->discovery_wake_hold_ms;

	if (hold_ms == 0)
		return BACK_OFF_MOST_MS;
	return hold_ms > BACK_OFF_MS ? hold_ms : BACK_OFF_MS;
}

static void end_round(struct sleeper *s, int64_t now_ns)
{
	int64_t ms = patience_ms(s);

	s->failures = s->failed ? s->failures + 1 : 0;
	atomic_store(&s->model->failed, s->failed);
	if (s->failed)
		ms = back_off_ms(s);
	if (s->failed && atomic_load(&s->model->held) > 0)
		kvw_info(ROOM, "calls again to wake a model model=%s after_ms=%lld", s->model->name,
			(long long)ms);
	s->next_ns = now_ns + ms * KVW_NS_PER_MS;
	leave_round(s);
}

static void go_on(struct sleeper *s, int64_t now_ns)
{
	if (!s->ended)
		return;
	if (s->calls > 0)
		take_end(s);
	if (!call_next(s))
		end_round(s, now_ns);
}

/* --- a model --- */

static void fall_asleep(struct sleeper *s, int64_t now_ns)
{
	atomic_store(&s->model->asleep_ns, now_ns);
	atomic_store(&s->model->failed, false);
	s->failures = 0;
	s->next_ns = now_ns;
	kvw_info(ROOM, "a model has no worker and is woken model=%s waiting=%u", s->model->name,
		atomic_load(&s->model->held));
}

static void wake_up(struct sleeper *s, int64_t now_ns)
{
	kvw_info(ROOM, "a model is awake model=%s after_ms=%lld waiting=%u", s->model->name,
		(long long)((now_ns - atomic_load(&s->model->asleep_ns)) / KVW_NS_PER_MS),
		atomic_load(&s->model->held));
	atomic_store(&s->model->asleep_ns, 0);
	atomic_store(&s->model->failed, false);
}

static bool is_asked_for(struct kvw_wake_model *model)
{
	return atomic_load(&model->held) > 0 || atomic_load(&model->wanted);
}

static void look_at_sleeper(struct sleeper *s, int64_t now_ns)
{
	bool asleep = atomic_load(&s->model->asleep_ns) != 0;

	if (s->runs)
		go_on(s, now_ns);
	if (!asleep && !is_asked_for(s->model))
		return;
	if (has_worker(s->waker, s->model->name)) {
		atomic_store(&s->model->wanted, false);
		if (asleep)
			wake_up(s, now_ns);
		return;
	}
	if (!asleep)
		fall_asleep(s, now_ns);
	if (!s->runs && is_asked_for(s->model) && now_ns >= s->next_ns)
		begin_round(s);
}

static struct sleeper *sleeper_of(struct kvw_waker *waker, struct kvw_wake_model *model)
{
	struct sleeper *s = waker->sleepers;

	while (s != NULL && s->model != model)
		s = s->next;
	if (s != NULL)
		return s;
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return NULL;
	s->model = model;
	s->waker = waker;
	s->next = waker->sleepers;
	waker->sleepers = s;
	return s;
}

static void arm(struct kvw_waker *waker)
{
	bool busy = config_of(waker)->discovery_wake_hold_ms > 0;

	for (const struct sleeper *s = waker->sleepers; s != NULL && !busy; s = s->next)
		busy = s->runs || atomic_load(&s->model->asleep_ns) != 0;
	event_add(waker->tick, &(struct timeval){.tv_sec = busy ? 0 : REST_MS / 1000,
				       .tv_usec = busy ? TICK_MS * 1000 : 0});
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct kvw_waker *waker = arg;
	struct kvw_wake_model *model = atomic_load(&waker->fleet->wakes->first);
	int64_t now_ns = kvw_clock_ns();

	(void)fd;
	(void)what;
	for (; model != NULL; model = model->next)
		if (is_asked_for(model) && sleeper_of(waker, model) == NULL)
			kvw_warn(ROOM, "out of memory: a model is not woken model=%s", model->name);
	for (struct sleeper *s = waker->sleepers; s != NULL; s = s->next)
		look_at_sleeper(s, now_ns);
	arm(waker);
}

enum kvw_err kvw_waker_create(
	struct event_base *base, struct kvw_fleet *fleet, struct kvw_waker **out)
{
	struct kvw_waker *waker = calloc(1, sizeof(*waker));
	enum kvw_err err = KVW_ENOMEM;

	if (waker == NULL)
		return KVW_ENOMEM;
	waker->fleet = fleet;
	waker->items = calloc(KVW_MAX_WORKERS, sizeof(waker->items[0]));
	waker->tick = event_new(base, -1, 0, on_tick, waker);
	if (waker->items != NULL && waker->tick != NULL)
		err = kvw_curl_loop_init(&waker->hooks, base, kvw_webhook_done);
	if (err == KVW_OK)
		err = kvw_curl_loop_init(&waker->kube, base, kvw_kube_call_done);
	if (err != KVW_OK) {
		kvw_waker_destroy(waker);
		return err;
	}
	arm(waker);
	*out = waker;
	return KVW_OK;
}

void kvw_waker_destroy(struct kvw_waker *waker)
{
	struct sleeper *s, *next;

	if (waker == NULL)
		return;
	for (s = waker->sleepers; s != NULL; s = next) {
		next = s->next;
		leave_round(s);
		free(s);
	}
	kvw_curl_loop_finish(&waker->hooks);
	kvw_curl_loop_finish(&waker->kube);
	if (waker->tick != NULL)
		event_free(waker->tick);
	free(waker->items);
	free(waker);
}
