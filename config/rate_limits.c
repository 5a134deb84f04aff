/*
 * rate_limits.c - reads, checks, compares and writes the list `rate_limits`.
 */
#include "config/rate_limits.h"

#include <stdlib.h>
#include <string.h>

#include "base/search.h"
#include "config/entries_text.h"

#define LIMITS "a list with an entry such as `- {tenant: NAME, requests_per_minute: 600}`"

/* An entry that is being read. */
struct reading {
	struct kvw_rate_limit limit; /* first: what is sorted */
	struct kvw_place place;
	size_t index;
};

/* --- reading ---------------------------------------------------------------------------------- */

static enum kvw_err set_empty(char **text)
{
	union kvw_value value;
	enum kvw_err err = *text != NULL ? KVW_OK : kvw_text_copy(KVW_SLICE(""), &value);

	if (err == KVW_OK && *text == NULL)
		*text = value.text;
	return err;
}

static bool limits_something(const struct kvw_rate_limit *limit)
{
	return limit->requests_per_minute > 0 || limit->tokens_per_minute > 0 ||
	       limit->tokens_per_day > 0 || limit->concurrent > 0;
}

static bool any_mistake(const struct kvw_met *met)
{
	for (size_t i = 0; i < KVW_RATE_KEY_COUNT; i++)
		if (met[i].given && !met[i].valid)
			return true;
	return false;
}

static void check_entry(struct kvw_walk *walk, const struct reading *entry, const struct kvw_met *met)
{
	const struct kvw_rate_limit *limit = &entry->limit;
	char shown[48];

	if (any_mistake(met))
		return;
	snprintf(shown, sizeof(shown), KVW_RATE_LIMITS "[%zu]", entry->index);
	if ((limit->tenant[0] == '\0') == (limit->model[0] == '\0'))
		kvw_report_mistake(walk->report, entry->place, shown,
			"found %s, expected one of `tenant` and `model`",
			limit->tenant[0] == '\0' ? "neither" : "both");
	else if (!limits_something(limit))
		kvw_report_mistake(walk->report, entry->place, shown,
			"found no limit, expected `requests_per_minute`, `tokens_per_minute`, `tokens_per_day` or "
			"`concurrent`");
}

static enum kvw_err walk_entry(
	struct kvw_walk *walk, size_t index, const struct kvw_node *node, struct reading *entry)
{
	struct kvw_met met[KVW_RATE_KEY_COUNT] = {0};
	enum kvw_err err;
	bool whole;

	entry->place = node->place;
	entry->index = index;
	err = kvw_walk_entry(
		walk, &kvw_rate_schema, KVW_RATE_LIMITS, index, node, &entry->limit, met, &whole);
	if (err == KVW_OK)
		err = set_empty(&entry->limit.tenant);
	if (err == KVW_OK)
		err = set_empty(&entry->limit.model);
	if (err == KVW_OK && whole)
		check_entry(walk, entry, met);
	return err;
}

static int by_name(const struct kvw_rate_limit *a, const struct kvw_rate_limit *b)
{
	int order = strcmp(a->tenant, b->tenant);

	return order != 0 ? order : strcmp(a->model, b->model);
}

static int by_name_and_place(const void *a, const void *b)
{
	const struct reading *one = a, *two = b;
	int order = by_name(&one->limit, &two->limit);

	return order != 0 ? order : one->index < two->index ? -1 : 1;
}

static void check_twice(struct kvw_walk *walk, const struct reading *entries, size_t count)
{
	char shown[48];

	for (size_t i = 1; i < count; i++) {
		const struct kvw_rate_limit *limit = &entries[i].limit;

		if (by_name(&entries[i - 1].limit, limit) != 0 ||
			(limit->tenant[0] == '\0' && limit->model[0] == '\0'))
			continue;
		snprintf(shown, sizeof(shown), KVW_RATE_LIMITS "[%zu]", entries[i].index);
		kvw_report_mistake(walk->report, entries[i].place, shown,
			"found the same %s again, expected each once: it is " KVW_RATE_LIMITS "[%zu] already",
			limit->tenant[0] != '\0' ? "tenant" : "model", entries[i - 1].index);
	}
}

/* Sorts the entries by name, the order in which requests look them up. */
static enum kvw_err walk_entries(struct kvw_build *build, const struct kvw_node *list)
{
	struct kvw_config *config = build->config;
	struct reading *entries = calloc(list->count, sizeof(*entries));
	const struct kvw_node *node = list->first;
	enum kvw_err err = KVW_OK;

	config->rate_limits = calloc(list->count, sizeof(*config->rate_limits));
	if (entries == NULL || config->rate_limits == NULL) {
		free(entries);
		return KVW_ENOMEM;
	}
	config->rate_limit_count = list->count;
	for (size_t i = 0; node != NULL && err == KVW_OK; i++, node = node->next)
		err = walk_entry(&build->walk, i, node, &entries[i]);
	if (err == KVW_OK) {
		qsort(entries, list->count, sizeof(*entries), by_name_and_place);
		check_twice(&build->walk, entries, list->count);
	}
	for (size_t i = 0; i < list->count; i++)
		config->rate_limits[i] = entries[i].limit;
	free(entries);
	return err;
}

enum kvw_err kvw_rate_limits_walk(struct kvw_walk *walk, const struct kvw_node *list)
{
	struct kvw_build *build = (struct kvw_build *)walk;

	if (build->rate_limits != NULL) {
		kvw_report_mistake(walk->report, list->key->place, KVW_RATE_LIMITS,
			"found a second time, expected once: first given in line %zu",
			build->rate_limits->key->place.line);
		return KVW_OK;
	}
	build->rate_limits = list;
	if (list->kind == KVW_NODE_BAD)
		return KVW_OK;
	if (list->kind != KVW_NODE_LIST) {
		kvw_report_mistake(walk->report, list->place, KVW_RATE_LIMITS,
			"found %s, expected " LIMITS "; limits of single keys stand in `auth.keys_file`",
			kvw_given_kind(list));
		return KVW_OK;
	}
	if (list->count > KVW_MAX_RATE_LIMITS) {
		kvw_report_mistake(walk->report, list->place, KVW_RATE_LIMITS,
			"found %zu entries, expected at most %d", list->count, KVW_MAX_RATE_LIMITS);
		return KVW_OK;
	}
	return list->count == 0 ? KVW_OK : walk_entries(build, list);
}

void kvw_rate_limits_release(struct kvw_config *config)
{
	for (size_t i = 0; i < config->rate_limit_count; i++)
		kvw_keys_release(kvw_rate_keys, KVW_RATE_KEY_COUNT, &config->rate_limits[i]);
	free(config->rate_limits);
}

/* --- comparing and writing -------------------------------------------------------------------- */

bool kvw_rate_limit_has(const struct kvw_rate_limit *limit, size_t key)
{
	const char *field = (const char *)limit + kvw_rate_keys[key].offset;
	const char *text;
	int64_t number;

	if (kvw_rate_keys[key].type->owned) {
		memcpy(&text, field, sizeof(text));
		return text != NULL && text[0] != '\0';
	}
	memcpy(&number, field, sizeof(number));
	return number != 0;
}

bool kvw_rate_limits_same(const struct kvw_config *a, const struct kvw_config *b)
{
	if (a->rate_limit_count != b->rate_limit_count)
		return false;
	for (size_t i = 0; i < a->rate_limit_count; i++)
		for (size_t key = 0; key < KVW_RATE_KEY_COUNT; key++)
			if (!kvw_key_same(&kvw_rate_keys[key], &a->rate_limits[i], &b->rate_limits[i]))
				return false;
	return true;
}

static bool has(const void *entry, size_t key)
{
	return kvw_rate_limit_has(entry, key);
}

enum kvw_err kvw_rate_limits_text(const struct kvw_config *config, char **out)
{
	const struct kvw_entries limits = {kvw_rate_keys, KVW_RATE_KEY_COUNT, has, config->rate_limits,
		sizeof(config->rate_limits[0]), config->rate_limit_count};

	return kvw_entries_text(&limits, out);
}

/* --- answering -------------------------------------------------------------------------------- */

static int at_limit(const void *key, const void *items, size_t at)
{
	const struct kvw_slice *names = key; /* tenant, model */
	const struct kvw_rate_limit *limit = (const struct kvw_rate_limit *)items + at;
	int order = kvw_search_order(names[0], limit->tenant);

	return order != 0 ? order : kvw_search_order(names[1], limit->model);
}

static const struct kvw_rate_limit *find(
	const struct kvw_config *config, struct kvw_slice tenant, struct kvw_slice model)
{
	const struct kvw_slice names[] = {tenant, model};
	bool there;
	size_t at = kvw_search(names, config->rate_limits, config->rate_limit_count, at_limit, &there);

	return there ? &config->rate_limits[at] : NULL;
}

const struct kvw_rate_limit *kvw_config_tenant_rate(const struct kvw_config *config, struct kvw_slice tenant)
{
	return tenant.len == 0 ? NULL : find(config, tenant, KVW_SLICE(""));
}

const struct kvw_rate_limit *kvw_config_model_rate(const struct kvw_config *config, struct kvw_slice model)
{
	return model.len == 0 ? NULL : find(config, KVW_SLICE(""), model);
}

const struct kvw_rate_limit *kvw_config_served_rate(const struct kvw_config *config, struct kvw_slice name)
{
	const struct kvw_rate_limit *limit = kvw_config_model_rate(config, name);

	for (size_t i = 0; limit == NULL && i < config->model_group_count; i++)
		if (kvw_slice_equal(kvw_slice_of(config->model_groups[i].serves), name))
			limit = kvw_config_model_rate(config, kvw_slice_of(config->model_groups[i].model));
	return limit;
}

bool kvw_config_limits_models(const struct kvw_config *config)
{
	/* those of tenants follow */
	return config->rate_limit_count > 0 && config->rate_limits[0].tenant[0] == '\0';
}
