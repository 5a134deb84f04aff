/*
 * answer.c - makes the answers to /health, /ready, /metrics and /v1/models.
 *
 * Both addresses use them. Everything that is read is an atomic, immutable, or the fleet's view,
 * which stays while the calling loop is in its turn and which only the control thread replaces.
 */
#include "admin/answer.h"

#include <stdlib.h>
#include <string.h>

#include "auth/auth.h"
#include "auth/jwt_gate.h"
#include "base/page.h"
#include "base/clock.h"
#include "takeover/state.h"
#include "fleet/members.h"
#include "fleet/wake/wakes.h"
#include "sharing/sharing.h"
#include "state/state.h"

static const char json_type[] = "application/json";

static void put_field(struct kvw_page *text, const char *name, uint64_t value)
{
	kvw_page_put(text, ",\"", 2);
	kvw_page_string(text, name);
	kvw_page_put(text, "\":", 2);
	kvw_page_u64(text, value);
}

/* Returns the loop whose last turn was longest ago; *age_ns: how long. Loops that have not begun
 * are left out. */
static size_t oldest_turn(const struct kvw_admin_deps *deps, int64_t now_ns, int64_t *age_ns)
{
	size_t oldest = 0;

	*age_ns = 0;
	for (size_t i = 0; i < deps->loop_count; i++) {
		int64_t turn_ns =
			atomic_load_explicit(&deps->loop_turn_ns[i], memory_order_relaxed);

		if (turn_ns == 0 || now_ns - turn_ns <= *age_ns)
			continue;
		*age_ns = now_ns - turn_ns;
		oldest = i;
	}
	return oldest;
}

/* Writes which sources have lists that cannot be read, and for how many seconds; the workers listed
 * before still serve. */
static void put_unreadable(
	struct kvw_page *text, const struct kvw_member_listing *listings, int64_t now_ns)
{
	bool any = false;

	for (int i = 0; listings != NULL && i < KVW_SOURCE_COUNT; i++) {
		uint64_t seconds = kvw_member_listing_unreadable_s(&listings[i], now_ns);

		if (seconds == 0)
			continue;
		kvw_page_string(text, any ? ",\"" : ",\"discovery_unreadable_s\":{\"");
		kvw_page_string(text, kvw_member_source_name((enum kvw_member_source)i));
		kvw_page_string(text, "\":");
		kvw_page_u64(text, seconds);
		any = true;
	}
	if (any)
		kvw_page_string(text, "}");
}

/* Writes for which models requests wait, or waited last, until these have a worker. */
static void put_waking(struct kvw_page *text, const struct kvw_wakes *wakes, int64_t now_ns)
{
	const struct kvw_wake_model *model = atomic_load(&wakes->first);
	bool any = false;

	for (; model != NULL; model = model->next) {
		int64_t since_ns = atomic_load(&model->asleep_ns);

		if (since_ns == 0)
			continue;
		kvw_page_string(text, any ? ",{\"model\":" : ",\"waking\":[{\"model\":");
		kvw_page_json(text, kvw_slice_of(model->name));
		put_field(text, "waiting", atomic_load(&model->held));
		put_field(text, "seconds",
			now_ns > since_ns ? (uint64_t)((now_ns - since_ns) / KVW_NS_PER_S) : 0);
		if (atomic_load(&model->failed))
			kvw_page_string(text, ",\"last_call\":\"failed\"");
		kvw_page_string(text, "}");
		any = true;
	}
	if (any)
		kvw_page_string(text, "]");
}

/* Writes the state of the keys that verify tokens; null: they were not fetched yet. */
static void put_token_keys(struct kvw_page *text, const struct kvw_auth *auth, int64_t now_ns)
{
	const struct kvw_jwt_gate *gate = auth == NULL ? NULL : kvw_auth_jwt(auth);
	int64_t age_s;

	if (gate == NULL)
		return;
	age_s = kvw_jwt_keys_age_s(kvw_jwt_gate_state(gate)->keys, now_ns);
	if (age_s < 0)
		kvw_page_string(text, ",\"token_keys_age_s\":null");
	else
		put_field(text, "token_keys_age_s", (uint64_t)age_s);
}

/* Writes whether a takeover is under way, or which process has this one's address now. */
static void put_takeover(struct kvw_page *text, const struct kvw_takeover_state *state)
{
	if (state == NULL)
		return;
	if (atomic_load(&state->under_way))
		kvw_page_string(text, ",\"takeover\":\"under way\"");
	if (atomic_load(&state->handed))
		put_field(text, "handed_over_to", (uint64_t)atomic_load(&state->heir));
}

/* Writes why no snapshot was read at the start, and whether the last one could be written. */
static void put_state(struct kvw_page *text, const struct kvw_state *state)
{
	const struct kvw_state_status *status = state == NULL ? NULL : kvw_state_status(state);

	if (status == NULL)
		return;
	if (status->recalled == KVW_STATE_REFUSED) {
		kvw_page_string(text, ",\"state_refused\":");
		kvw_page_json(text, kvw_slice_of(status->why));
	}
	if (atomic_load(&status->recalling))
		kvw_page_string(text, ",\"state\":\"recalling\"");
	if (atomic_load(&status->last_failed))
		kvw_page_string(text, ",\"last_snapshot\":\"failed\"");
}

/* Writes whether this replica cannot reach the others although it should. */
static void put_replicas(struct kvw_page *text, const struct kvw_sharing *sharing)
{
	const struct kvw_load_state *load =
		sharing == NULL ? NULL : kvw_sharing_load_state(sharing);

	if (load != NULL) {
		put_field(text, "replicas", atomic_load(&load->peers));
		if (atomic_load(&load->degraded))
			kvw_page_string(text, ",\"shared_load\":\"degraded\"");
	}
}

static int answer_health(
	const struct kvw_answer_state *state, int64_t now_ns, struct kvw_page *text)
{
	int64_t age_ns;
	size_t loop = oldest_turn(state->deps, now_ns, &age_ns);

	if (age_ns <= KVW_LOOP_STUCK_NS) {
		kvw_page_string(text, "{\"status\":\"ok\"");
		if (state->reload != NULL && atomic_load(&state->reload->last_refused))
			kvw_page_string(text, ",\"last_reload\":\"refused\"");
		put_unreadable(text, state->listings, now_ns);
		put_waking(text, state->deps->fleet->wakes, now_ns);
		put_token_keys(text, state->deps->auth, now_ns);
		put_takeover(text, state->deps->takeover);
		put_state(text, state->deps->state);
		put_replicas(text, state->deps->load_sharing);
		kvw_page_string(text, "}\n");
		return 200;
	}
	kvw_page_string(text, "{\"status\":\"stuck\"");
	put_field(text, "loop", loop);
	put_field(text, "last_turn_age_ms", (uint64_t)age_ns / 1000000);
	kvw_page_string(text, "}\n");
	return 503;
}

/* Returns whether requests would wait for models without a worker; if clients were kept away, no
 * model would be woken. */
static bool would_wake(const struct kvw_fleet *fleet)
{
	const struct kvw_config *config = fleet->config;

	return config->discovery_wake_hold_ms > 0 && kvw_wakes_any(fleet->wakes, config);
}

/* Ready means that a request sent now would find a worker, one that has answered a probe, may be
 * chosen, and whose models are known (until then a request that names a model finds none); or that
 * the request would wait for a worker that is woken. */
static int answer_ready(const struct kvw_answer_state *state, struct kvw_page *text)
{
	const struct kvw_fleet *fleet = state->deps->fleet;
	size_t by_health[3] = {0, 0, 0};
	size_t models_known = 0, serving = 0;
	bool ready;

	for (size_t i = 0; i < fleet->count; i++) {
		const struct kvw_worker *worker = kvw_fleet_worker(fleet, i);
		uint8_t health;
		bool known;

		if (worker == NULL)
			continue;
		health = atomic_load_explicit(&worker->health, memory_order_relaxed);
		known = atomic_load_explicit(&worker->models_known, memory_order_relaxed);

		by_health[health <= KVW_HEALTH_DOWN ? health : KVW_HEALTH_DOWN]++;
		models_known += known;
		serving += known && health == KVW_HEALTH_UP && kvw_worker_usable(worker);
	}
	ready = (serving > 0 || would_wake(fleet)) && !state->draining;
	kvw_page_string(text, ready ? "{\"status\":\"ready\"" : "{\"status\":\"not ready\"");
	kvw_page_string(text, state->draining ? ",\"draining\":true" : ",\"draining\":false");
	put_field(text, "workers", fleet->live);
	put_field(text, "serving", serving);
	put_field(text, "usable", kvw_fleet_usable_count(fleet));
	put_field(text, "up", by_health[KVW_HEALTH_UP]);
	put_field(text, "down", by_health[KVW_HEALTH_DOWN]);
	put_field(text, "not_probed", by_health[KVW_HEALTH_UNKNOWN]);
	put_field(text, "models_known", models_known);
	kvw_page_string(text, "}\n");
	return ready ? 200 : 503;
}

static bool served(const struct kvw_model_entry *entry)
{
	for (size_t i = 0; i < KVW_MODEL_WORDS; i++)
		if (entry->workers[i] != 0)
			return true;
	return false;
}

static bool may_use(const struct kvw_client_key *key, const char *name)
{
	return key == NULL || kvw_client_key_may_use(key, kvw_slice_of(name));
}

static void put_text(struct kvw_page *text, const char *name, const char *value)
{
	kvw_page_string(text, name);
	if (value == NULL)
		kvw_page_string(text, "null");
	else
		kvw_page_json(text, kvw_slice_of(value));
}

/* Writes an entry of the list. card: what workers say of the model; NULL: nothing. */
static void put_model(struct kvw_page *text, int64_t created_s, const char *name, const char *root,
	const struct kvw_model_card *card, bool *first)
{
	static const struct kvw_model_card none = {0};

	card = card == NULL ? &none : card;
	put_text(text, *first ? "{\"id\":" : ",{\"id\":", name);
	kvw_page_string(text, ",\"object\":\"model\",\"created\":");
	kvw_page_i64(text, card->created_s > 0 ? card->created_s : created_s);
	put_text(text, ",\"owned_by\":", card->owned_by == NULL ? "vllm" : card->owned_by);
	put_text(text, ",\"root\":", root);
	put_text(text, ",\"parent\":", card->parent);
	kvw_page_string(text, ",\"max_model_len\":");
	if (card->max_model_len > 0)
		kvw_page_u64(text, card->max_model_len);
	else
		kvw_page_string(text, "null");
	kvw_page_string(text, "}");
	*first = false;
}

/* Returns the card of a model. NULL: no worker serves it. */
static const struct kvw_model_card *card_of(const struct kvw_fleet_view *view, const char *name)
{
	for (size_t i = 0; i < view->model_count; i++)
		if (strcmp(view->models[i].model->name, name) == 0)
			return served(&view->models[i]) ? &view->models[i].card : NULL;
	return NULL;
}

/* Returns whether the name is only used inside of a group, so that it is not shown. */
static bool is_inner(const struct kvw_config *config, const char *name)
{
	bool inner = false;

	for (size_t i = 0; i < config->model_group_count; i++) {
		if (strcmp(config->model_groups[i].model, name) == 0)
			return false;
		inner = inner || strcmp(config->model_groups[i].serves, name) == 0;
	}
	return inner;
}

/* Collects what workers say of a model that clients call by this name, including its groups that
 * know it under another name. An alias of a model that only groups serve counts as served, too.
 * False: no worker serves it. */
static bool collect_card(const struct kvw_fleet_view *view, const struct kvw_config *config,
	const char *name, struct kvw_model_card *card)
{
	struct kvw_model_groups groups = kvw_config_groups(config, kvw_slice_of(name));
	const struct kvw_model_card *own = card_of(view, name);

	*card = own == NULL ? (struct kvw_model_card){0} : *own;
	for (size_t i = 0; i < groups.count; i++) {
		const struct kvw_model_card *group = card_of(view, groups.items[i].serves);

		if (group != NULL)
			kvw_model_card_add(card, group);
		own = own == NULL ? group : own;
	}
	return own != NULL;
}

/* Writes divided models for which no worker has the clients' name, but a group has another one. */
static void put_groups(const struct kvw_answer_state *state, const struct kvw_fleet_view *view,
	const struct kvw_config *config, const struct kvw_client_key *key, struct kvw_page *text,
	bool *first)
{
	const char *shown = NULL;

	for (size_t i = 0; view != NULL && i < config->model_group_count; i++) {
		const struct kvw_model_group *group = &config->model_groups[i];
		struct kvw_model_card card;

		if ((shown != NULL && strcmp(shown, group->model) == 0) ||
			!may_use(key, group->model) || card_of(view, group->model) != NULL ||
			card_of(view, group->serves) == NULL)
			continue;
		shown = group->model;
		(void)collect_card(view, config, group->model, &card);
		put_model(text, state->created_s, group->model, group->serves, &card, first);
	}
}

/* Models are listed in ascending order of their names in the view, each once; after them those that
 * groups have under other names, and aliases of served models. */
static int answer_models(const struct kvw_answer_state *state, const struct kvw_client_key *key,
	struct kvw_page *text)
{
	const struct kvw_fleet_view *view =
		atomic_load_explicit(&state->deps->fleet->view, memory_order_acquire);
	const struct kvw_config *config = state->deps->fleet->config;
	bool first = true;

	kvw_page_string(text, "{\"object\":\"list\",\"data\":[");
	for (size_t i = 0; view != NULL && i < view->model_count; i++) {
		const char *name = view->models[i].model->name;
		struct kvw_model_card card;

		if (!served(&view->models[i]) || !may_use(key, name) ||
			kvw_config_alias(config, kvw_slice_of(name)) != NULL ||
			is_inner(config, name))
			continue;
		(void)collect_card(view, config, name, &card);
		put_model(text, state->created_s, name, card.root == NULL ? name : card.root, &card,
			&first);
	}
	put_groups(state, view, config, key, text, &first);
	for (size_t i = 0; view != NULL && i < config->model_alias_count; i++) {
		const struct kvw_model_alias *alias = &config->model_aliases[i];
		struct kvw_model_card card;

		if (may_use(key, alias->name) && collect_card(view, config, alias->target, &card))
			put_model(
				text, state->created_s, alias->name, alias->target, &card, &first);
	}
	kvw_page_string(text, "]}");
	return 200;
}

enum kvw_err kvw_answer(const struct kvw_answer_state *state, struct kvw_slice path,
	const struct kvw_client_key *key, int64_t now_ns, struct kvw_local_answer *out)
{
	struct kvw_local_answer answer = {.status = 200, .content_type = json_type};
	struct kvw_page text = {0};
	enum kvw_err err = KVW_OK;

	if (kvw_slice_equal(path, KVW_SLICE("/health"))) {
		answer.status = answer_health(state, now_ns, &text);
	} else if (kvw_slice_equal(path, KVW_SLICE("/ready"))) {
		answer.status = answer_ready(state, &text);
	} else if (kvw_slice_equal(path, KVW_SLICE("/v1/models"))) {
		answer.status = answer_models(state, key, &text);
	} else if (kvw_slice_equal(path, KVW_SLICE("/metrics"))) {
		answer.content_type = KVW_METRICS_TYPE;
		err = kvw_metrics_render(
			state->deps->metrics, now_ns, false, &text.data, &text.len);
	} else {
		err = KVW_ENOTFOUND;
	}
	if (err != KVW_OK)
		return err;
	if (text.failed) {
		free(text.data);
		return KVW_ENOMEM;
	}
	answer.body = text.data;
	answer.len = text.len;
	*out = answer;
	return KVW_OK;
}
