/*
 * production_stack.c - reads the workers of production-stack's dynamic configuration.
 */
#include "fleet/discovery/production_stack.h"

#include <stdlib.h>
#include <string.h>

#define BACKENDS "static_backends"
#define MODELS   "static_models"

/* Keys that do not concern workers; for most of them kvway has keys of its own. */
static const char *const others[] = {"service_discovery", "routing_logic", "static_aliases",
	"static_model_labels", "static_model_types", "static_backend_health_checks",
	"static_backend_health_check_interval", "static_backend_health_check_timeout_seconds",
	"prefill_model_labels", "decode_model_labels", "k8s_port", "k8s_namespace",
	"k8s_label_selector", "session_key", "callbacks", NULL};

static void note_key(struct kvw_report *notes, const struct kvw_node *key, const char *path)
{
	kvw_report_mistake(notes, key->place, path,
		"ignored: it has no meaning for a list of workers; kvway's own configuration says "
		"it");
}

bool kvw_production_stack_key(
	struct kvw_production_stack *stack, const struct kvw_node *node, struct kvw_report *report)
{
	const char *name = node->key->text;
	const struct kvw_node **slot = strcmp(name, BACKENDS) == 0 ? &stack->backends
				       : strcmp(name, MODELS) == 0 ? &stack->models
								   : NULL;
	size_t i = 0;

	while (slot == NULL && others[i] != NULL && strcmp(others[i], name) != 0)
		i++;
	if (slot == NULL && others[i] == NULL)
		return false;
	if (stack->first == NULL)
		stack->first = node;
	if (slot == NULL)
		note_key(stack->notes, node->key, name);
	else if (*slot != NULL)
		kvw_report_mistake(report, node->key->place, name,
			"found a second time, expected once: first given in line %zu",
			(*slot)->key->place.line);
	else
		*slot = node;
	return true;
}

void kvw_production_stack_suggest(struct kvw_suggest *near)
{
	kvw_suggest_offer(near, BACKENDS, BACKENDS);
	kvw_suggest_offer(near, MODELS, MODELS);
	for (size_t i = 0; others[i] != NULL; i++)
		kvw_suggest_offer(near, others[i], others[i]);
}

/* --- texts: a list, or one text with commas --- */

struct texts {
	const struct kvw_node *node; /* the whole */
	const struct kvw_node *next; /* next entry of a list */
	size_t at;                   /* in a text */
	bool ended;
};

static struct texts texts_of(const struct kvw_node *node)
{
	bool list = node->kind == KVW_NODE_LIST;

	return (struct texts){.node = node,
		.next = list ? node->first : NULL,
		.ended = list ? node->first == NULL : kvw_node_is_null(node) || node->len == 0};
}

/* Returns the next text. False: there are no more. An entry that is not a text is returned as
 * empty. */
static bool next_text(struct texts *texts, struct kvw_slice *out, struct kvw_place *place)
{
	const char *begin, *comma;
	size_t len;

	if (texts->ended)
		return false;
	if (texts->node->kind == KVW_NODE_LIST) {
		const struct kvw_node *node = texts->next;
		bool text = node->kind == KVW_NODE_SCALAR && !kvw_node_is_null(node);

		*out = (struct kvw_slice){node->text, text ? node->len : 0};
		*place = node->place;
		texts->next = node->next;
		texts->ended = node->next == NULL;
		return true;
	}
	begin = texts->node->text + texts->at;
	len = texts->node->len - texts->at;
	comma = memchr(begin, ',', len);
	texts->ended = comma == NULL;
	if (comma != NULL)
		len = (size_t)(comma - begin);
	texts->at += len + 1;
	while (len > 0 && begin[0] == ' ') {
		begin++;
		len--;
	}
	while (len > 0 && begin[len - 1] == ' ')
		len--;
	*out = (struct kvw_slice){begin, len};
	*place = texts->node->place;
	return true;
}

static size_t count_texts(const struct kvw_node *node)
{
	struct texts texts = texts_of(node);
	struct kvw_place place;
	struct kvw_slice text;
	size_t count = 0;

	while (next_text(&texts, &text, &place))
		count++;
	return count;
}

static bool has_texts(struct kvw_report *report, const struct kvw_node *node, const char *shown)
{
	if (node->kind == KVW_NODE_LIST || node->kind == KVW_NODE_SCALAR)
		return true;
	if (node->kind != KVW_NODE_BAD)
		kvw_report_mistake(report, node->place, shown,
			"found %s, expected a list, or a text with commas", kvw_given_kind(node));
	return false;
}

/* --- workers --- */

/* The list of workers that is being filled. */
struct fill {
	struct kvw_build *build;
	size_t pairs;
	bool full; /* reported */
};

static enum kvw_err add_model(struct kvw_worker_config *worker, struct kvw_slice model)
{
	struct kvw_strings *models = &worker->models;
	char **items;

	for (size_t i = 0; i < models->count; i++)
		if (kvw_slice_equal(kvw_slice_of(models->items[i]), model))
			return KVW_OK;
	items = realloc(models->items, (models->count + 1) * sizeof(*items));
	if (items == NULL)
		return KVW_ENOMEM;
	models->items = items;
	items[models->count] = strndup(model.data, model.len);
	if (items[models->count] == NULL)
		return KVW_ENOMEM;
	models->count++;
	return KVW_OK;
}

static struct kvw_worker_config *find_worker(const struct kvw_build *build, const char *url)
{
	for (size_t i = 0; i < build->config->worker_count; i++)
		if (strcmp(build->config->workers[i].url, url) == 0)
			return &build->config->workers[i];
	return NULL;
}

static void report_full(struct fill *fill, struct kvw_place place, const char *shown)
{
	fill->full = true;
	kvw_report_mistake(fill->build->walk.report, place, shown,
		"found more, expected at most %d workers and %d pairs of backend and model",
		KVW_MAX_WORKERS, KVW_PRODUCTION_STACK_MOST);
}

/* Adds one backend; model.len 0: no specific model. shown: the place for messages, such as
 * "static_backends[3]". */
static enum kvw_err add_backend(struct fill *fill, struct kvw_slice url, struct kvw_slice model,
	struct kvw_place place, const char *shown)
{
	const struct kvw_key *key = &kvw_worker_keys[KVW_WORKER_KEY_url];
	struct kvw_met met[KVW_WORKER_KEY_COUNT] = {[KVW_WORKER_KEY_url] = {place, true, true}};
	struct kvw_worker_config parsed = {0}, *worker;
	char *text = strndup(url.len > 0 ? url.data : "", url.len);
	struct kvw_given given = {.place = place, .text = {text, url.len}};
	enum kvw_err err = KVW_ENOMEM;
	bool valid = false;

	if (text != NULL)
		err = kvw_walk_value(&fill->build->walk, key, shown, &given, &parsed, &valid);
	free(text);
	if (err != KVW_OK || !valid)
		return err;
	worker = find_worker(fill->build, parsed.url);
	if (worker == NULL && fill->build->config->worker_count == KVW_MAX_WORKERS)
		report_full(fill, place, shown);
	if (worker != NULL || fill->full) {
		free(parsed.url);
		return worker != NULL && model.len > 0 ? add_model(worker, model) : KVW_OK;
	}
	kvw_build_add_worker(fill->build);
	worker = kvw_build_newest_worker(fill->build);
	worker->url = parsed.url;
	if (model.len > 0) {
		met[KVW_WORKER_KEY_models] = (struct kvw_met){place, true, true};
		err = add_model(worker, model);
	}
	return err == KVW_OK ? kvw_build_end_worker(fill->build, met, place) : err;
}

/* Adds backends that serve one model, or one each of the models in `models`. */
static enum kvw_err add_backends(struct fill *fill, const char *path,
	const struct kvw_node *backends, struct kvw_slice model, const struct kvw_node *models)
{
	struct texts urls = texts_of(backends), names = {.ended = true};
	struct kvw_slice url, name = model;
	enum kvw_err err = KVW_OK;
	struct kvw_place place, named;
	size_t index = 0;
	char shown[256], model_shown[64];

	if (models != NULL)
		names = texts_of(models);
	while (err == KVW_OK && !fill->full && next_text(&urls, &url, &place)) {
		snprintf(shown, sizeof(shown), "%s[%zu]", path, index++);
		if (models != NULL && next_text(&names, &name, &named) && name.len == 0) {
			snprintf(model_shown, sizeof(model_shown), MODELS "[%zu]", index - 1);
			kvw_report_mistake(fill->build->walk.report, named, model_shown,
				"found no name, expected the name of a model for each backend");
		}
		if (fill->pairs++ == KVW_PRODUCTION_STACK_MOST)
			report_full(fill, place, shown);
		else
			err = add_backend(fill, url, name, place, shown);
	}
	return err;
}

/* Adds the backends of the YAML form, a mapping by model. */
static enum kvw_err add_by_model(struct fill *fill, const struct kvw_production_stack *stack)
{
	struct kvw_report *report = fill->build->walk.report;
	enum kvw_err err = KVW_OK;
	char path[160];

	if (stack->backends != NULL)
		kvw_report_mistake(report, stack->backends->key->place, BACKENDS,
			"found together with a mapping `" MODELS "`, expected it below each model");
	for (const struct kvw_node *model = stack->models->first; model != NULL && err == KVW_OK;
		model = model->next) {
		const struct kvw_node *backends = NULL;

		if (model->kind == KVW_NODE_BAD || model->key->kind != KVW_NODE_SCALAR)
			continue;
		for (const struct kvw_node *node = model->kind == KVW_NODE_MAP ? model->first
									       : NULL;
			node != NULL; node = node->next) {
			if (node->key->kind != KVW_NODE_SCALAR)
				continue;
			snprintf(path, sizeof(path), MODELS ".%.60s.%.60s", model->key->text,
				node->key->text);
			if (strcmp(node->key->text, BACKENDS) == 0)
				backends = node;
			else
				note_key(stack->notes, node->key, path);
		}
		snprintf(path, sizeof(path), MODELS ".%.60s." BACKENDS, model->key->text);
		if (backends == NULL)
			kvw_report_mistake(report, model->place, path,
				"found nothing, expected a list of URLs");
		else if (has_texts(report, backends, path))
			err = add_backends(fill, path, backends,
				(struct kvw_slice){model->key->text, strlen(model->key->text)},
				NULL);
	}
	return err;
}

enum kvw_err kvw_production_stack_workers(
	const struct kvw_production_stack *stack, struct kvw_build *build)
{
	const struct kvw_node *backends = stack->backends, *models = stack->models;
	struct fill fill = {.build = build};
	enum kvw_err err;

	if (build->walk.report->mistakes > 0 || stack->first == NULL)
		return KVW_OK;
	err = kvw_build_reserve_workers(build, KVW_MAX_WORKERS);
	if (err != KVW_OK)
		return err;
	if (models != NULL && models->kind == KVW_NODE_MAP)
		return add_by_model(&fill, stack);
	if (backends == NULL) {
		kvw_report_mistake(build->walk.report, stack->first->key->place, BACKENDS,
			"found nothing, expected the workers' URLs");
		return KVW_OK;
	}
	if (!has_texts(build->walk.report, backends, BACKENDS) ||
		(models != NULL && !has_texts(build->walk.report, models, MODELS)))
		return KVW_OK;
	if (models != NULL && count_texts(models) != count_texts(backends)) {
		kvw_report_mistake(build->walk.report, models->place, MODELS,
			"found %zu model%s, expected one for each of the %zu backends",
			count_texts(models), count_texts(models) == 1 ? "" : "s",
			count_texts(backends));
		return KVW_OK;
	}
	return add_backends(&fill, BACKENDS, backends, (struct kvw_slice){0}, models);
}
