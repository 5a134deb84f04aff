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
#include "config/rules.h"

enum kvw_err kvw_build_start(struct kvw_build *build, struct kvw_report *report,
	const struct kvw_strategy_ops *const *strategies)
{
	struct kvw_config *config = calloc(1, sizeof(*config));

	if (config == NULL)
		return KVW_ENOMEM;
	*build = (struct kvw_build){.config = config, .report = report};
	kvw_own_keys_init(&build->own, strategies);
	return KVW_OK;
}

static struct kvw_given given_of_node(const struct kvw_node *node)
{
	return (struct kvw_given){
		.place = node->place, .text = {node->text, node->len}, .node = node};
}

/* "found X, expected Y", once for every mistake in a value. */
static void report_value(struct kvw_build *build, const struct kvw_given *given, const char *shown,
	const struct kvw_type *type, const struct kvw_fault *fault)
{
	const struct kvw_node *node = given->node;
	const char *expected = fault->expected[0] != '\0' ? fault->expected : type->expected;
	char quoted[KVW_REPORT_QUOTE];
	const char *found;

	if (fault->found != NULL)
		found = fault->found;
	else if (node != NULL && node->kind != KVW_NODE_SCALAR)
		found = kvw_node_kind_name(node);
	else if (node != NULL && kvw_node_is_null(node))
		found = "nothing";
	else if (given->text.len == 0)
		found = "empty text";
	else if (type->secret)
		found = "a value that is not printed here";
	else
		found = kvw_report_quote(quoted, given->text.data, given->text.len);
	if (fault->suggestion[0] != '\0')
		kvw_report_mistake(build->report, given->place, shown,
			"found %s, expected %s; did you mean `%s`?", found, expected,
			fault->suggestion);
	else
		kvw_report_mistake(build->report, given->place, shown, "found %s, expected %s",
			found, expected);
}

/* Parses one scalar into *value. False in *valid: reported, and *value holds nothing. */
static enum kvw_err parse_scalar(struct kvw_build *build, const struct kvw_key *key,
	const char *shown, const struct kvw_given *given, union kvw_value *value, bool *valid)
{
	const struct kvw_node *node = given->node;
	struct kvw_slice text = given->text;
	struct kvw_fault fault;
	enum kvw_err err;

	*valid = false;
	if (node != NULL && node->kind == KVW_NODE_BAD)
		return KVW_OK;
	if (node != NULL && (node->kind != KVW_NODE_SCALAR || kvw_node_is_null(node)))
		text = KVW_SLICE("\x01"); /* no type accepts it, but says what it wants */
	err = kvw_key_parse(&build->own.schema, key, text, value, &fault);
	if (err == KVW_EINVAL)
		report_value(build, given, shown, key->type, &fault);
	*valid = err == KVW_OK;
	return err == KVW_ENOMEM ? err : KVW_OK;
}

static bool count_in_range(struct kvw_build *build, const struct kvw_key *key, const char *shown,
	const struct kvw_node *list)
{
	size_t most = key->max[0] != '\0' ? strtoul(key->max, NULL, 10) : SIZE_MAX;

	if (list->count <= most)
		return true;
	kvw_report_mistake(build->report, list->place, shown,
		"found %zu entries, expected at most %s", list->count, key->max);
	return false;
}

/* Entries of a list into *out, which then owns what was parsed, even where *valid is false. */
static enum kvw_err parse_entries(struct kvw_build *build, const struct kvw_key *key,
	const char *shown, const struct kvw_node *list, struct kvw_strings *out, bool *valid)
{
	const struct kvw_key item = {.type = key->type->item};
	char entry_shown[KVW_SCHEMA_MAX_PATH + 32];
	size_t index = 0;

	*valid = true;
	if (list->count == 0)
		return KVW_OK;
	out->items = calloc(list->count, sizeof(*out->items));
	if (out->items == NULL)
		return KVW_ENOMEM;
	for (const struct kvw_node *entry = list->first; entry != NULL; entry = entry->next) {
		struct kvw_given given = given_of_node(entry);
		struct kvw_fault fault = {.expected = "text"};
		union kvw_value value;
		bool entry_valid = false;
		enum kvw_err err;

		snprintf(entry_shown, sizeof(entry_shown), "%s[%zu]", shown, index++);
		err = parse_scalar(build, &item, entry_shown, &given, &value, &entry_valid);
		if (err != KVW_OK)
			return err;
		if (entry_valid && value.text[0] == '\0') {
			report_value(build, &given, entry_shown, key->type->item, &fault);
			free(value.text);
			entry_valid = false;
		}
		if (entry_valid)
			out->items[out->count++] = value.text;
		else
			*valid = false;
	}
	return KVW_OK;
}

static enum kvw_err set_list(struct kvw_build *build, const struct kvw_key *key, const char *shown,
	const struct kvw_given *given, struct kvw_strings *field, bool *valid)
{
	struct kvw_fault fault = {0};
	char quoted[KVW_REPORT_QUOTE];

	if (given->node->kind == KVW_NODE_BAD)
		return KVW_OK;
	if (given->node->kind == KVW_NODE_LIST) {
		if (!count_in_range(build, key, shown, given->node))
			return KVW_OK;
		return parse_entries(build, key, shown, given->node, field, valid);
	}
	if (given->node->kind == KVW_NODE_SCALAR && given->text.len > 0) {
		kvw_report_quote(quoted, given->text.data, given->text.len);
		kvw_fault_suggest(&fault, "[%.*s]", (int)strlen(quoted) - 2, quoted + 1);
	}
	report_value(build, given, shown, key->type, &fault);
	return KVW_OK;
}

/* Sets the field of one key in `base`, a configuration or a worker. */
static enum kvw_err set_field(struct kvw_build *build, const struct kvw_key *key, const char *shown,
	const struct kvw_given *given, void *base, bool *valid)
{
	char *field = (char *)base + key->offset;
	union kvw_value value = {0};
	enum kvw_err err;

	*valid = false;
	if (key->type->item != NULL)
		return set_list(
			build, key, shown, given, (struct kvw_strings *)(void *)field, valid);
	err = parse_scalar(build, key, shown, given, &value, valid);
	if (*valid)
		memcpy(field, &value, key->type->size);
	return err;
}

/* A default goes the way of a user's text; a list is a small document of its own. */
static enum kvw_err set_default(
	struct kvw_build *build, const struct kvw_key *key, void *base, bool *valid)
{
	struct kvw_document document = {0};
	struct kvw_given given = {.text = kvw_slice_of(key->def)};
	enum kvw_err err = KVW_OK;

	if (key->type->item != NULL) {
		err = kvw_document_parse(key->def, strlen(key->def), build->report, &document);
		if (err != KVW_OK)
			return err;
		given.node = document.root;
	}
	err = set_field(build, key, key->path, &given, base, valid);
	kvw_document_finish(&document);
	return err;
}

enum kvw_err kvw_build_set(struct kvw_build *build, size_t key, const struct kvw_given *given)
{
	const struct kvw_key *what = kvw_own_key(&build->own, key);

	assert(key < build->own.schema.key_count);
	if (build->given[key]) {
		kvw_report_mistake(build->report, given->place, what->path,
			"found a second time, expected once: first given in line %zu",
			build->places[key].line);
		return KVW_OK;
	}
	build->given[key] = true;
	build->places[key] = given->place;
	return set_field(build, what, what->path, given, build->config, &build->valid[key]);
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

static struct kvw_worker_config *newest_worker(struct kvw_build *build)
{
	return &build->config->workers[build->config->worker_count - 1];
}

enum kvw_err kvw_build_set_worker(
	struct kvw_build *build, size_t key, const char *shown, const struct kvw_given *given)
{
	bool valid;

	assert(key < KVW_WORKER_KEY_COUNT);
	return set_field(build, &kvw_worker_keys[key], shown, given, newest_worker(build), &valid);
}

enum kvw_err kvw_build_end_worker(struct kvw_build *build, const bool given[KVW_WORKER_KEY_COUNT],
	struct kvw_place place, struct kvw_place url_place)
{
	const struct kvw_config *config = build->config;
	struct kvw_worker_config *worker = newest_worker(build);
	enum kvw_err err = KVW_OK;
	bool valid;

	for (size_t key = 0; key < KVW_WORKER_KEY_COUNT && err == KVW_OK; key++) {
		if (given[key])
			continue;
		if (key == KVW_WORKER_KEY_url)
			kvw_rules_missing_url(build->report, config->worker_count - 1, place);
		else
			err = set_default(build, &kvw_worker_keys[key], worker, &valid);
	}
	if (err == KVW_OK && worker->url != NULL)
		kvw_rules_check_worker(build->report, config, url_place);
	if (err == KVW_OK)
		kvw_rules_check_worker_events(
			build->report, worker, config->worker_count - 1, place);
	return err;
}

enum kvw_err kvw_build_end(struct kvw_build *build, struct kvw_config **out)
{
	enum kvw_err err = KVW_OK;

	for (size_t key = 0; key < build->own.schema.key_count && err == KVW_OK; key++)
		if (!build->given[key])
			err = set_default(build, kvw_own_key(&build->own, key), build->config,
				&build->valid[key]);
	if (err == KVW_OK) {
		kvw_rules_check(build);
		kvw_rules_check_kvaware(build);
		err = kvw_rules_check_tls(build);
	}
	if (err == KVW_OK && build->report->mistakes > 0)
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

void kvw_config_destroy(struct kvw_config *config)
{
	if (config == NULL)
		return;
	for (size_t i = 0; i < config->worker_count; i++)
		kvw_keys_release(kvw_worker_keys, KVW_WORKER_KEY_COUNT, &config->workers[i]);
	free(config->workers);
	kvw_keys_release(kvw_keys, KVW_KEY_COUNT, config);
	free(config);
}
