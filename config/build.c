/*
 * build.c - fills a configuration value by value.
 *
 * Defaults go through the same parser as a user's text, so a wrong default cannot hide: the tests
 * load the empty configuration. The loader sets them last, for keys that were not given, so that it
 * never replaces a value and fills each field exactly once.
 */
#include "config/build.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kvway/route.h"
#include "config/model_aliases.h"
#include "config/model_groups.h"
#include "config/pools.h"
#include "config/rate_limits.h"
#include "config/rules.h"
#include "config/service_levels.h"

enum kvw_err kvw_build_start(struct kvw_build *build, struct kvw_report *report,
	const struct kvw_strategy_ops *const *strategies)
{
	struct kvw_config *config = calloc(1, sizeof(*config));

	if (config == NULL)
		return KVW_ENOMEM;
	memset(build, 0, sizeof(*build));
	build->config = config;
	kvw_own_keys_init(&build->own, strategies);
	build->walk = (struct kvw_walk){.schema = &build->own.schema,
		.report = report,
		.values = config,
		.met = build->met,
		.section_lines = build->section_lines};
	return KVW_OK;
}

/* Parses a default like a user's text; a list is parsed as a small document of its own. */
static enum kvw_err set_default(
	struct kvw_build *build, const struct kvw_key *key, void *base, bool *valid)
{
	struct kvw_document document = {0};
	struct kvw_given given = {.text = kvw_slice_of(key->def)};
	enum kvw_err err = KVW_OK;

	if (key->type->item != NULL) {
		err = kvw_document_parse(key->def, strlen(key->def), build->walk.report, &document);
		if (err != KVW_OK)
			return err;
		given.node = document.root;
	}
	err = kvw_walk_value(&build->walk, key, key->path, &given, base, valid);
	kvw_document_finish(&document);
	return err;
}

/* Reports it if another flag has set the key before, and returns whether that is so. */
static bool is_set_twice(const struct kvw_build *build, size_t key, const char *flag)
{
	const struct kvw_met *met = &build->met[key];

	if (met->given)
		kvw_report_mistake(build->walk.report, (struct kvw_place){.flag = flag}, NULL,
			"found together with %s, expected one of the two: both set `%s`",
			met->place.flag, kvw_own_key(&build->own, key)->path);
	return met->given;
}

enum kvw_err kvw_build_set_flag(
	struct kvw_build *build, size_t key, const char *flag, const char *text)
{
	const struct kvw_given given = {.place = {.flag = flag}, .text = kvw_slice_of(text)};

	return is_set_twice(build, key, flag) ? KVW_OK : kvw_walk_key(&build->walk, key, &given);
}

enum kvw_err kvw_build_set_flag_list(
	struct kvw_build *build, size_t key, const char *flag, const char *item)
{
	struct kvw_given given = {.place = {.flag = flag}};
	const union kvw_value value = {.text = (char *)(uintptr_t)item};
	struct kvw_document document = {0};
	char yaml[600] = "[";
	enum kvw_err err;

	if (is_set_twice(build, key, flag))
		return KVW_OK;
	kvw_text_print(&kvw_type_TOKEN, &value, yaml + 1, sizeof(yaml) - 2);
	strcat(yaml, "]");
	err = kvw_document_parse(yaml, strlen(yaml), build->walk.report, &document);
	if (err != KVW_OK)
		return err;
	given.node = document.root;
	for (struct kvw_node *node = document.root->first; node != NULL; node = node->next)
		node->place = given.place;
	err = kvw_walk_key(&build->walk, key, &given);
	kvw_document_finish(&document);
	return err;
}

enum kvw_err kvw_build_reserve_workers(struct kvw_build *build, size_t count)
{
	struct kvw_worker_config *workers = NULL;

	assert(build->config->workers == NULL && count <= KVW_MAX_WORKERS);
	if (count > 0) {
		workers = calloc(count, sizeof(*workers));
		if (workers == NULL)
			return KVW_ENOMEM;
	}
	build->config->workers = workers;
	build->worker_room = count;
	return KVW_OK;
}

void kvw_build_add_worker(struct kvw_build *build)
{
	assert(build->config->worker_count < build->worker_room);
	build->config->worker_count++;
}

struct kvw_worker_config *kvw_build_newest_worker(struct kvw_build *build)
{
	return &build->config->workers[build->config->worker_count - 1];
}

void kvw_build_drop_worker(struct kvw_build *build)
{
	struct kvw_worker_config *worker = kvw_build_newest_worker(build);

	kvw_keys_release(kvw_worker_keys, KVW_WORKER_KEY_COUNT, worker);
	memset(worker, 0, sizeof(*worker));
	build->config->worker_count--;
}

enum kvw_err kvw_build_end_worker(struct kvw_build *build,
	const struct kvw_met met[KVW_WORKER_KEY_COUNT], struct kvw_place place)
{
	const struct kvw_config *config = build->config;
	struct kvw_worker_config *worker = kvw_build_newest_worker(build);
	const struct kvw_met *url = &met[KVW_WORKER_KEY_url];
	enum kvw_err err = KVW_OK;
	bool valid;

	for (size_t key = 0; key < KVW_WORKER_KEY_COUNT && err == KVW_OK; key++) {
		if (met[key].given)
			continue;
		if (key == KVW_WORKER_KEY_url)
			kvw_rules_missing_url(build->walk.report, config->worker_count - 1, place);
		else
			err = set_default(build, &kvw_worker_keys[key], worker, &valid);
	}
	if (err == KVW_OK && worker->url != NULL)
		kvw_rules_check_worker(build->walk.report, config, url->given ? url->place : place);
	if (err == KVW_OK)
		kvw_rules_check_worker_events(
			build->walk.report, worker, config->worker_count - 1, place);
	if (err == KVW_OK)
		kvw_rules_check_worker_tls(
			build->walk.report, worker, config->worker_count - 1, place);
	return err;
}

static enum kvw_err list_worker(struct kvw_build *build, size_t index, const struct kvw_node *node)
{
	struct kvw_met met[KVW_WORKER_KEY_COUNT] = {0};
	enum kvw_err err;
	bool whole;

	kvw_build_add_worker(build);
	err = kvw_walk_entry(&build->walk, &kvw_worker_schema, "workers", index, node,
		kvw_build_newest_worker(build), met, &whole);
	return err == KVW_OK && whole ? kvw_build_end_worker(build, met, node->place) : err;
}

enum kvw_err kvw_build_list_workers(struct kvw_build *build, const struct kvw_node *list)
{
	size_t count = list->count < KVW_MAX_WORKERS ? list->count : KVW_MAX_WORKERS;
	const struct kvw_node *node = list->first;
	enum kvw_err err = kvw_build_reserve_workers(build, count);

	for (size_t i = 0; i < count && err == KVW_OK; i++, node = node->next)
		err = list_worker(build, i, node);
	if (err == KVW_OK && node != NULL)
		kvw_report_mistake(build->walk.report, node->place, "workers",
			"found %zu workers, expected at most %d", list->count, KVW_MAX_WORKERS);
	return err;
}

enum kvw_err kvw_build_end(struct kvw_build *build, struct kvw_config **out)
{
	enum kvw_err err = KVW_OK;

	for (size_t key = 0; key < build->own.schema.key_count && err == KVW_OK; key++)
		if (!build->met[key].given)
			err = set_default(build, kvw_own_key(&build->own, key), build->config,
				&build->met[key].valid);
	if (err == KVW_OK) {
		kvw_rules_check(build);
		kvw_rules_check_kvaware(build);
		kvw_rules_check_discovery(build);
		kvw_rules_check_pools(build);
		kvw_rules_check_admission(build);
		kvw_rules_check_paths(build);
		kvw_rules_check_auth(build);
		kvw_rules_check_admin(build);
		kvw_rules_check_proxies(build);
		kvw_rules_check_tracing(build);
		kvw_model_aliases_resolve(build);
		kvw_model_aliases_check(build);
		kvw_model_groups_check(build);
		err = kvw_rules_check_tls(build);
	}
	if (err == KVW_OK && build->walk.report->mistakes > 0)
		err = KVW_EINVAL;
	if (err == KVW_OK) {
		*out = build->config;
		build->config = NULL;
	}
	kvw_build_drop(build);
	return err;
}

void kvw_build_drop(struct kvw_build *build)
{
	kvw_config_destroy(build->config);
	build->config = NULL;
}

enum kvw_err kvw_worker_config_copy(
	const struct kvw_worker_config *from, struct kvw_worker_config *to)
{
	*to = (struct kvw_worker_config){.url = NULL};
	for (size_t i = 0; i < KVW_WORKER_KEY_COUNT; i++) {
		if (kvw_key_copy(&kvw_worker_keys[i], from, to) == KVW_OK)
			continue;
		kvw_worker_config_release(to);
		return KVW_ENOMEM;
	}
	return KVW_OK;
}

bool kvw_worker_config_equal(const struct kvw_worker_config *a, const struct kvw_worker_config *b)
{
	for (size_t i = 0; i < KVW_WORKER_KEY_COUNT; i++)
		if (!kvw_key_same(&kvw_worker_keys[i], a, b))
			return false;
	return true;
}

void kvw_worker_config_release(struct kvw_worker_config *worker)
{
	kvw_keys_release(kvw_worker_keys, KVW_WORKER_KEY_COUNT, worker);
	*worker = (struct kvw_worker_config){.url = NULL};
}

void kvw_config_destroy(struct kvw_config *config)
{
	if (config == NULL)
		return;
	for (size_t i = 0; i < config->worker_count; i++)
		kvw_keys_release(kvw_worker_keys, KVW_WORKER_KEY_COUNT, &config->workers[i]);
	free(config->workers);
	kvw_service_levels_release(config);
	kvw_rate_limits_release(config);
	kvw_pools_release(config);
	kvw_model_aliases_release(config);
	kvw_model_groups_release(config);
	kvw_keys_release(kvw_keys, KVW_KEY_COUNT, config);
	free(config);
}
