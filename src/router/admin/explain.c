/*
 * explain.c - see explain.h.
 *
 * What differs from serving: a body that is not what its path promises is an error here, where a
 * served request would go by load and its worker would refuse it; an unknown model is answered at
 * once, where a served request first has the workers asked again.
 *
 * Cost: a scan of the body (three if its path has to be guessed) and what the strategy takes to
 * weigh every worker. Of bodies above routing.scan_limit only the model's name is looked for, here as there.
 */
#include "admin/explain.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth/tenants.h"
#include "openai/error_body.h"
#include "admin/explanation.h"
#include "fleet/pin.h"
#include "fleet/wake/wakes.h"

static const char chat_path[] = "/v1/chat/completions";
static const char completions_path[] = "/v1/completions";

/* Returns KVW_EINVAL, for `return refuse(...)`. */
__attribute__((format(printf, 4, 5))) static enum kvw_err refuse(
	struct kvw_explanation *e, int status, const char *param, const char *format, ...)
{
	va_list arguments;

	e->status = status;
	e->param = param;
	va_start(arguments, format);
	(void)vsnprintf(e->message, sizeof(e->message), format, arguments);
	va_end(arguments);
	return KVW_EINVAL;
}

/* --- what is asked for --- */

/* As proxy/rewrite.c: the salt and the model that its worker would read. */
static bool rewrite(struct kvw_explanation *e, enum kvw_api api)
{
	const struct kvw_tenants *tenants = e->source->tenants;
	const struct kvw_model_alias *alias = kvw_config_alias(e->source->config, kvw_scan_model(e->scan));
	bool salted = tenants != NULL && e->query->tenant.len > 0 && api != KVW_API_TOKENIZE &&
		      api != KVW_API_COUNT_TOKENS && api != KVW_API_AUDIO;
	char salt[KVW_TENANT_SALT];
	struct kvw_slice own;
	bool there;

	e->alias = alias;
	if (alias != NULL && !kvw_scan_set_model(e->scan, kvw_slice_of(alias->target)))
		return false;
	if (!salted)
		return true;
	own = kvw_scan_salt(e->scan, &there);
	kvw_tenants_salt(tenants, e->query->tenant, there, own, salt);
	return kvw_scan_set_salt(e->scan, (struct kvw_slice){salt, sizeof(salt)});
}

static enum kvw_err scan_as(struct kvw_explanation *e, enum kvw_api api, bool fields_only)
{
	kvw_scan_reset(e->scan, api);
	if (fields_only)
		kvw_scan_fields_only(e->scan);
	if (e->source->config->kvaware_fragments &&
		e->source->strategy->ops->prepare == KVW_PREPARE_TOKENS &&
		kvw_separator_make(e->source->config->kvaware_fragments_separator,
			(uint32_t)e->source->config->kvaware_fragments_min, &e->separator))
		kvw_scan_cut(e->scan, &e->separator);
	kvw_scan_keep_ids(e->scan);
	kvw_scan_feed(e->scan, e->query->body.data, e->query->body.len);
	if (!rewrite(e, api))
		return KVW_ENOMEM;
	return kvw_scan_finish(e->scan, &e->route);
}

/* The path whose prompt the body holds: `messages` or `prompt`. */
static struct kvw_slice guess_target(struct kvw_explanation *e)
{
	if (scan_as(e, KVW_API_CHAT, false) == KVW_OK && e->route.content_known)
		return KVW_SLICE(chat_path);
	if (scan_as(e, KVW_API_COMPLETIONS, false) == KVW_OK && e->route.content_known)
		return KVW_SLICE(completions_path);
	return KVW_SLICE(chat_path);
}

static enum kvw_err take_target(struct kvw_explanation *e)
{
	const struct kvw_config *config = e->source->config;
	bool scanned = e->query->body.len <= config->routing_scan_limit;

	if (e->query->target.len > 0)
		e->target = e->query->target;
	else
		e->target = scanned ? guess_target(e) : KVW_SLICE(chat_path);
	if (e->target.data[0] != '/')
		return refuse(e, 400, "path", "the path must begin with a slash, for example %s",
			chat_path);
	e->path = kvw_path_classify(e->target);
	if (e->path.kind == KVW_PATH_LOCAL)
		return refuse(e, 400, "path", "kvway answers this path itself, no worker is chosen");
	if ((e->path.kind == KVW_PATH_ENGINE_CONTROL && !config->expose_engine_control) ||
		(e->path.kind == KVW_PATH_LORA && !config->expose_lora))
		return refuse(e, 403, "path", "this path is not exposed, kvway refuses it");
	e->whole = e->path.prompt && scanned;
	return KVW_OK;
}

static enum kvw_err understand(struct kvw_explanation *e)
{
	const struct kvw_config *config = e->source->config;
	const struct kvw_scan_options options = {
		.session_fields = (const char *const *)config->session_body_fields.items,
		.session_field_count = config->session_body_fields.count,
	};
	enum kvw_err err;

	if (e->query->body.len > config->limits_body)
		return refuse(e, 413, NULL, "the request body is larger than limits.body, %llu bytes",
			(unsigned long long)config->limits_body);
	err = kvw_scan_create(&options, &e->scan);
	if (err == KVW_OK)
		err = take_target(e);
	if (err != KVW_OK)
		return err;
	e->route = (struct kvw_route_request){.api = e->path.api};
	if (e->whole) {
		err = scan_as(e, e->path.api,
			e->source->strategy->ops->prepare < KVW_PREPARE_CONTENT && config->model_group_count == 0);
		if (err == KVW_EPROTO)
			return refuse(e, 400, NULL,
				"the body is not what %.*s takes; its worker would refuse it",
				(int)(e->target.len < 128 ? e->target.len : 128), e->target.data);
		if (err != KVW_OK)
			return err;
		e->path.api = e->route.api; /* /invocations stands for another path */
	}
	if (!e->whole && e->path.prompt) {
		kvw_scan_reset(e->scan, e->path.api);
		kvw_scan_fields_only(e->scan);
		kvw_scan_feed(e->scan, e->query->body.data, config->routing_scan_limit);
		e->route.model = kvw_scan_model(e->scan);
	}
	if (e->query->session.len > 0)
		e->route.session = e->query->session;
	if (e->source->tenants != NULL && e->query->tenant.len > 0)
		e->route.tenant = kvw_tenants_number(e->source->tenants, e->query->tenant);
	return KVW_OK;
}

/* --- which workers could serve it --- */

static bool is_among(const struct kvw_candidate *items, size_t count, uint32_t id)
{
	for (size_t i = 0; i < count; i++)
		if (items[i].id == id)
			return true;
	return false;
}

/* Cold: those that are said to serve the model, and those of which nothing is said. items holds
 * the former, `listed` of them. False: out of memory. */
static bool presume_candidates(struct kvw_explanation *e, size_t listed)
{
	const struct kvw_fleet *fleet = e->source->fleet;
	struct kvw_candidate *all = calloc(KVW_MAX_WORKERS, sizeof(all[0]));
	struct kvw_model *model;
	size_t count, kept = 0;
	bool known;

	if (all == NULL)
		return false;
	count = kvw_fleet_candidates(
		fleet, (struct kvw_slice){NULL, 0}, all, &known, &model);
	for (size_t i = 0; i < count; i++)
		if (!fleet->workers[all[i].id]->models_given ||
			is_among(e->items, listed, all[i].id))
			all[kept++] = all[i];
	free(e->items);
	e->items = all;
	e->set.count = kept;
	return true;
}

/* The model has no worker, but is known: a request would wait for one. KVW_OK: it would not. */
static enum kvw_err would_wait(struct kvw_explanation *e)
{
	const struct kvw_config *config = e->source->config;
	struct kvw_wake_model *model = NULL;
	int64_t hold_ms = config->discovery_wake_hold_ms;

	if (hold_ms > 0 && e->route.model.len > 0 && e->query->pin.len == 0)
		model = kvw_wakes_find(e->source->fleet->wakes, config, e->route.model);
	if (model == NULL)
		return KVW_OK;
	return refuse(e, 503, "model",
		"no worker serves `%.256s` now; %s up to %lld.%03lld s while it is woken (discovery.wake); "
		"%u wait%s%s",
		model->name,
		e->query->impatient ? "it would be woken, but x-kvway-do-not-queue forbids to wait; others wait for"
				    : "the request would wait for",
		(long long)(hold_ms / 1000), (long long)(hold_ms % 1000), atomic_load(&model->held),
		atomic_load(&model->asleep_ns) != 0 ? ", it is being woken" : "",
		atomic_load(&model->failed) ? ", the last call to wake it failed" : "");
}

static enum kvw_err no_model(struct kvw_explanation *e)
{
	enum kvw_err err = would_wait(e);
	struct kvw_slice model = e->route.model;
	int shown = (int)(model.len < 256 ? model.len : 256);
	const struct kvw_fleet_view *view =
		atomic_load_explicit(&e->source->fleet->view, memory_order_acquire);

	if (err != KVW_OK)
		return err;
	if (!e->source->cold && !view->all_known)
		return refuse(e, 503, "model",
			"no worker is known to serve `%.*s`, and the models of some workers are not known yet",
			shown, model.data);
	return refuse(e, 404, "model", "The model `%.*s` does not exist.", shown, model.data);
}

static enum kvw_err find_candidates(struct kvw_explanation *e)
{
	const struct kvw_fleet *fleet = e->source->fleet;
	struct kvw_ratio_keys keys;
	enum kvw_err err;
	bool known;

	e->items = calloc(KVW_MAX_WORKERS, sizeof(e->items[0]));
	e->costs = calloc(KVW_MAX_WORKERS, sizeof(e->costs[0]));
	if (e->items == NULL || e->costs == NULL)
		return KVW_ENOMEM;
	err = kvw_explanation_divide(e);
	if (err != KVW_OK)
		return err;
	e->set.count =
		kvw_fleet_candidates(fleet, e->route.model, e->items, &known, &e->model);
	if (e->source->cold) {
		if (!presume_candidates(e, e->set.count))
			return KVW_ENOMEM;
		known = e->set.count > 0;
	}
	if (!known)
		return no_model(e);
	e->set.count = kvw_explanation_keep(e, e->set.count);
	e->set.items = e->items;
	e->set.board = fleet->loads;
	e->route.tokens_per_unit = kvw_fleet_tokens_per_unit(fleet, e->model, &e->route, &keys);
	return KVW_OK;
}

/* --- which worker would --- */

static enum kvw_err no_worker(struct kvw_explanation *e)
{
	const struct kvw_fleet *fleet = e->source->fleet;
	enum kvw_err err = would_wait(e);
	size_t len, shown = 0;

	if (err != KVW_OK)
		return err;
	err = refuse(e, 503, NULL, "no usable worker");
	len = strlen(e->message);

	for (size_t i = 0; i < fleet->count && len < sizeof(e->message) - 1; i++) {
		const struct kvw_worker *worker = kvw_fleet_worker(fleet, i);
		int n = worker == NULL
				? 0
				: snprintf(e->message + len, sizeof(e->message) - len, "%s %s is %s",
					  shown++ == 0 ? ":" : ",", worker->url,
					  kvw_worker_usable(worker) ? "up, without this model"
								    : kvw_worker_state_name(worker));

		len += n > 0 ? (size_t)n : 0;
	}
	return err;
}

/* That worker serves it, whatever it costs. */
static void choose(struct kvw_explanation *e, size_t pos, enum kvw_reason reason)
{
	for (size_t i = 0; i < e->set.count; i++)
		if (e->items[i].usable)
			e->costs[i].verdict = KVW_VERDICT_NOT_ITS_TURN;
	e->costs[pos].verdict = KVW_VERDICT_CHOSEN;
	e->decision = (struct kvw_decision){.pos = pos,
		.reason = reason,
		.prompt_tokens = e->decision.prompt_tokens,
		.worker_id = e->items[pos].id};
}

/* x-kvway-pin comes before all else. */
static enum kvw_err take_pin(struct kvw_explanation *e)
{
	bool computes = e->path.prompt && e->path.api != KVW_API_TOKENIZE &&
			e->path.api != KVW_API_COUNT_TOKENS;
	char why[320];
	size_t pos;

	if (kvw_pin_find(e->source->fleet, &e->set, e->query->pin, computes, &pos, why, sizeof(why)) !=
		KVW_OK)
		return refuse(e, 503, NULL, "%s", why);
	choose(e, pos, KVW_REASON_PINNED);
	return KVW_OK;
}

/* A request about a response that a worker keeps goes to that worker, also where it rests. False: none keeps it. */
static bool prefer_owner(struct kvw_explanation *e)
{
	struct kvw_slice id =
		e->path.made_id.len > 0 ? e->path.made_id : e->route.previous_id;
	uint32_t owner;

	if (id.len == 0 || e->source->owner_of == NULL ||
		!e->source->owner_of(e->source->owner_arg, id, e->query->tenant, &owner))
		return false;
	for (size_t i = 0; i < e->set.count; i++) {
		if (e->items[i].id != owner ||
			!(e->items[i].usable || kvw_worker_rests(e->source->fleet->workers[owner])))
			continue;
		choose(e, i, KVW_REASON_OWNER);
		return true;
	}
	return false;
}

static enum kvw_err decide(struct kvw_explanation *e, int64_t now_ns)
{
	struct kvw_strategy *strategy = e->source->strategy;
	enum kvw_err err;

	if (strategy->ops->explain == NULL)
		return refuse(e, 501, NULL, "the strategy %s cannot explain its decisions",
			strategy->ops->name);
	err = strategy->ops->explain(
		strategy, &e->route, &e->set, now_ns, e->costs, &e->decision);
	if (err == KVW_ENOWORKER) /* the one that is named or wanted may rest */
		for (size_t i = 0; i < e->set.count; i++)
			e->costs[i] = (struct kvw_cost){.verdict = KVW_VERDICT_UNUSABLE};
	if ((err == KVW_OK || err == KVW_ENOWORKER) && e->query->pin.len > 0)
		return take_pin(e);
	if ((err == KVW_OK || err == KVW_ENOWORKER) && prefer_owner(e))
		return KVW_OK;
	return err == KVW_ENOWORKER ? no_worker(e) : err;
}

/* --- the answer --- */

enum kvw_err kvw_explain_error(
	int status, const char *param, const char *message, struct kvw_local_answer *out)
{
	const size_t size = 2048;
	char *body = malloc(size);
	size_t len;

	if (body == NULL)
		return KVW_ENOMEM;
	len = kvw_error_body(body, size - 1, KVW_API_OTHER, status, NULL, param, message);
	body[len++] = '\n';
	*out = (struct kvw_local_answer){
		.status = status, .content_type = "application/json", .body = body, .len = len};
	return KVW_OK;
}

static enum kvw_err print(const struct kvw_explanation *e, struct kvw_local_answer *out)
{
	struct kvw_page text = {0};

	kvw_explanation_print(e, &text);
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

enum kvw_err kvw_explanation_begin(struct kvw_explanation *e)
{
	enum kvw_err err = understand(e);

	return err == KVW_OK ? find_candidates(e) : err;
}

void kvw_explanation_finish(struct kvw_explanation *e)
{
	kvw_kvchains_finish(&e->chains);
	free(e->costs);
	free(e->items);
	kvw_scan_destroy(e->scan);
}

enum kvw_err kvw_explain(const struct kvw_explain_source *source,
	const struct kvw_explain_query *query, int64_t now_ns, struct kvw_local_answer *out)
{
	struct kvw_explanation e = {.source = source, .query = query, .now_ns = now_ns};
	enum kvw_err err = kvw_explanation_begin(&e);

	if (err == KVW_OK)
		err = kvw_explanation_tokens(&e);
	if (err == KVW_OK)
		err = decide(&e, now_ns);
	if (err == KVW_OK)
		kvw_explanation_admission(&e, now_ns);
	if (err == KVW_OK)
		err = print(&e, out);
	else if (e.status != 0)
		err = kvw_explain_error(e.status, e.param, e.message, out);
	kvw_explanation_finish(&e);
	return err;
}
