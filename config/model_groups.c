/*
 * model_groups.c - reads, checks, compares and writes the list `model_groups`.
 */
#include "config/model_groups.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/search.h"
#include "config/entries_text.h"

#define GROUPS "a list with an entry such as `- {model: NAME, group: canary, weight: 10, workers: [canary]}`"

/* An entry that is being read. */
struct reading {
	struct kvw_model_group group; /* first: what is sorted */
	struct kvw_place place;
	size_t index;
	bool good;
};

/* --- keys of workers and groups --------------------------------------------------------------- */

/* FNV-1a, with its bits mixed: the result is the same in every replica and version. */
uint64_t kvw_group_key(const char *text)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	if (text == NULL || text[0] == '\0')
		return 0;
	for (; *text != '\0'; text++)
		hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
	hash ^= hash >> 32;
	hash *= UINT64_C(0x9e3779b97f4a7c15);
	hash ^= hash >> 29;
	return hash == 0 ? 1 : hash;
}

bool kvw_group_has(const struct kvw_model_group *group, uint64_t label_key, uint64_t url_key)
{
	for (size_t i = 0; i < group->workers.count; i++)
		if (group->worker_keys[i] == label_key || group->worker_keys[i] == url_key)
			return true;
	return group->workers.count == 0;
}

/* --- reading ---------------------------------------------------------------------------------- */

static enum kvw_err set_empty(char **text)
{
	union kvw_value value;
	enum kvw_err err = *text != NULL ? KVW_OK : kvw_text_copy(KVW_SLICE(""), &value);

	if (err == KVW_OK && *text == NULL)
		*text = value.text;
	return err;
}

static bool is_name(const char *text)
{
	size_t len = strlen(text);

	return len > 0 && len <= KVW_GROUP_NAME_MOST &&
	       strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == len;
}

static bool any_mistake(const struct kvw_met *met)
{
	for (size_t i = 0; i < KVW_GROUP_KEY_COUNT; i++)
		if (met[i].given && !met[i].valid)
			return true;
	return false;
}

static bool is_url(const char *text)
{
	return strncmp(text, "http://", 7) == 0 || strncmp(text, "https://", 8) == 0;
}

/* Brings a URL into the form of workers' URLs, so that equal ones have the same key. */
static enum kvw_err take_url(
	struct kvw_walk *walk, const struct reading *entry, struct kvw_place place, char **text, bool *good)
{
	union kvw_value value;
	struct kvw_fault fault;
	char shown[64];
	size_t len;
	enum kvw_err err = kvw_key_parse(&kvw_worker_schema, &kvw_worker_keys[KVW_WORKER_KEY_url],
		kvw_slice_of(*text), &value, &fault);

	if (err == KVW_EINVAL) {
		snprintf(shown, sizeof(shown), KVW_MODEL_GROUPS "[%zu].workers", entry->index);
		kvw_report_mistake(walk->report, place, shown,
			"found a URL that is none, expected `http://HOST:PORT` or the `group` of workers");
		*good = false;
		return KVW_OK;
	}
	if (err != KVW_OK)
		return err;
	len = strlen(value.text);
	if (len > 0 && value.text[len - 1] == '/')
		value.text[len - 1] = '\0';
	free(*text);
	*text = value.text;
	return KVW_OK;
}

static enum kvw_err take_workers(struct kvw_walk *walk, struct reading *entry, struct kvw_place place)
{
	struct kvw_model_group *group = &entry->group;
	enum kvw_err err = KVW_OK;

	if (group->workers.count == 0)
		return KVW_OK;
	group->worker_keys = calloc(group->workers.count, sizeof(group->worker_keys[0]));
	if (group->worker_keys == NULL)
		return KVW_ENOMEM;
	for (size_t i = 0; i < group->workers.count && err == KVW_OK; i++) {
		if (is_url(group->workers.items[i]))
			err = take_url(walk, entry, place, &group->workers.items[i], &entry->good);
		group->worker_keys[i] = kvw_group_key(group->workers.items[i]);
	}
	return err;
}

static enum kvw_err check_entry(struct kvw_walk *walk, struct reading *entry, const struct kvw_met *met)
{
	const struct kvw_model_group *group = &entry->group;
	const struct kvw_met *name = &met[KVW_GROUP_KEY_group], *to = &met[KVW_GROUP_KEY_to];
	size_t model = strlen(group->model), serves = strlen(group->to);
	char shown[64];

	if (any_mistake(met))
		return KVW_OK;
	entry->good = true;
	snprintf(shown, sizeof(shown), KVW_MODEL_GROUPS "[%zu]", entry->index);
	if (model == 0 || model > KVW_ALIAS_MOST) {
		kvw_report_mistake(walk->report, entry->place, shown,
			"found a `model` of %zu bytes, expected a model's name of 1 to %d", model, KVW_ALIAS_MOST);
		entry->good = false;
	}
	if (!is_name(group->group)) {
		kvw_report_mistake(walk->report, name->given ? name->place : entry->place, shown,
			"found %s, expected `group` with a name of letters, digits and `._-`, at most %d",
			group->group[0] == '\0' ? "no name" : "another name", KVW_GROUP_NAME_MOST);
		entry->good = false;
	}
	if (serves > KVW_ALIAS_MOST) {
		kvw_report_mistake(walk->report, to->place, shown,
			"found a `to` of %zu bytes, expected a model's name of at most %d", serves, KVW_ALIAS_MOST);
		entry->good = false;
	}
	return take_workers(walk, entry, met[KVW_GROUP_KEY_workers].given ? met[KVW_GROUP_KEY_workers].place : entry->place);
}

static enum kvw_err walk_entry(
	struct kvw_walk *walk, size_t index, const struct kvw_node *node, struct reading *entry)
{
	struct kvw_met met[KVW_GROUP_KEY_COUNT] = {0};
	struct kvw_model_group *group = &entry->group;
	enum kvw_err err;
	bool whole;

	entry->place = node->place;
	entry->index = index;
	group->weight = 1;
	err = kvw_walk_entry(
		walk, &kvw_group_schema, KVW_MODEL_GROUPS, index, node, group, met, &whole);
	if (err == KVW_OK)
		err = set_empty(&group->model);
	if (err == KVW_OK)
		err = set_empty(&group->group);
	if (err == KVW_OK)
		err = set_empty(&group->to);
	if (err == KVW_OK && whole)
		err = check_entry(walk, entry, met);
	if (err != KVW_OK)
		return err;
	group->serves = group->to[0] != '\0' ? group->to : group->model;
	group->hash = kvw_group_key(group->group);
	group->weight_now = malloc(sizeof(*group->weight_now));
	if (group->weight_now == NULL)
		return KVW_ENOMEM;
	atomic_init(group->weight_now, group->weight);
	return KVW_OK;
}

static int by_name(const struct kvw_model_group *a, const struct kvw_model_group *b)
{
	int order = strcmp(a->model, b->model);

	return order != 0 ? order : strcmp(a->group, b->group);
}

/* Compares entries; those without a text, for lack of memory, come last. */
static int by_name_and_place(const void *a, const void *b)
{
	const struct reading *one = a, *two = b;
	int order = by_name(&one->group, &two->group);

	return order != 0 ? order : one->index < two->index ? -1 : 1;
}

static void check_twice(struct kvw_walk *walk, const struct reading *entries, size_t count)
{
	char shown[48];

	for (size_t i = 1; i < count; i++) {
		if (!entries[i].good || by_name(&entries[i - 1].group, &entries[i].group) != 0)
			continue;
		snprintf(shown, sizeof(shown), KVW_MODEL_GROUPS "[%zu]", entries[i].index);
		kvw_report_mistake(walk->report, entries[i].place, shown,
			"found the same model and group again, expected each once: it is " KVW_MODEL_GROUPS
			"[%zu] already",
			entries[i - 1].index);
	}
}

/* Sorts the entries by name, the order in which requests look them up. */
static enum kvw_err walk_entries(struct kvw_build *build, const struct kvw_node *list)
{
	struct kvw_config *config = build->config;
	struct reading *entries = calloc(list->count, sizeof(*entries));
	const struct kvw_node *node = list->first;
	enum kvw_err err = KVW_OK;

	config->model_groups = calloc(list->count, sizeof(*config->model_groups));
	if (entries == NULL || config->model_groups == NULL) {
		free(entries);
		return KVW_ENOMEM;
	}
	config->model_group_count = list->count;
	for (size_t i = 0; node != NULL && err == KVW_OK; i++, node = node->next)
		err = walk_entry(&build->walk, i, node, &entries[i]);
	if (err == KVW_OK) {
		qsort(entries, list->count, sizeof(*entries), by_name_and_place);
		check_twice(&build->walk, entries, list->count);
	}
	for (size_t i = 0; i < list->count; i++) {
		config->model_groups[i] = entries[i].group;
		build->group_places[i] = entries[i].place;
		build->group_indexes[i] = entries[i].index;
	}
	free(entries);
	return err;
}

enum kvw_err kvw_model_groups_walk(struct kvw_walk *walk, const struct kvw_node *list)
{
	struct kvw_build *build = (struct kvw_build *)walk;

	if (build->groups != NULL) {
		kvw_report_mistake(walk->report, list->key->place, KVW_MODEL_GROUPS,
			"found a second time, expected once: first given in line %zu",
			build->groups->key->place.line);
		return KVW_OK;
	}
	build->groups = list;
	if (list->kind == KVW_NODE_BAD)
		return KVW_OK;
	if (list->kind != KVW_NODE_LIST) {
		kvw_report_mistake(walk->report, list->place, KVW_MODEL_GROUPS, "found %s, expected " GROUPS,
			kvw_given_kind(list));
		return KVW_OK;
	}
	if (list->count > KVW_MAX_MODEL_GROUPS) {
		kvw_report_mistake(walk->report, list->place, KVW_MODEL_GROUPS,
			"found %zu entries, expected at most %d", list->count, KVW_MAX_MODEL_GROUPS);
		return KVW_OK;
	}
	return list->count == 0 ? KVW_OK : walk_entries(build, list);
}

/* --- groups against each other ---------------------------------------------------------------- */

/* Returns a worker that both groups name; NULL: there is none. */
static const char *common_worker(const struct kvw_model_group *a, const struct kvw_model_group *b)
{
	for (size_t i = 0; i < a->workers.count; i++)
		for (size_t k = 0; k < b->workers.count; k++)
			if (a->worker_keys[i] == b->worker_keys[k])
				return a->workers.items[i];
	return NULL;
}

/* Returns whether the group gets no requests of clients, only copies. Such a group may have the
 * same workers as another one, to see how much a group differs from itself. */
static bool is_only_watched(const struct kvw_model_group *group)
{
	return group->weight == 0 && group->shadow > 0;
}

static void check_pair(struct kvw_build *build, size_t first, size_t second)
{
	const struct kvw_model_group *a = &build->config->model_groups[first];
	const struct kvw_model_group *b = &build->config->model_groups[second];
	const char *common = common_worker(a, b);
	char shown[48], quoted[KVW_REPORT_QUOTE];

	if (strcmp(a->serves, b->serves) != 0 || strcmp(a->group, b->group) == 0 || is_only_watched(a) ||
		is_only_watched(b))
		return;
	snprintf(shown, sizeof(shown), KVW_MODEL_GROUPS "[%zu]", build->group_indexes[second]);
	if (a->workers.count == 0 || b->workers.count == 0)
		kvw_report_mistake(build->walk.report, build->group_places[second], shown,
			"found the same workers as those of group `%s`, expected `workers` in both, or another `to`",
			a->group);
	else if (common != NULL)
		kvw_report_mistake(build->walk.report, build->group_places[second], shown,
			"found %s in `workers`, expected other workers than those of group `%s`",
			kvw_report_quote(quoted, common, strlen(common)), a->group);
}

void kvw_model_groups_check(struct kvw_build *build)
{
	const struct kvw_config *config = build->config;
	char shown[48];
	size_t end;

	if (build->walk.report->mistakes > 0)
		return; /* the list may be incomplete */
	for (size_t begin = 0; begin < config->model_group_count; begin = end) {
		double weights = 0;

		for (end = begin; end < config->model_group_count &&
				  strcmp(config->model_groups[end].model, config->model_groups[begin].model) == 0;
			end++) {
			weights += config->model_groups[end].weight;
			for (size_t i = begin; i < end; i++)
				check_pair(build, i, end);
		}
		if (weights > 0)
			continue;
		snprintf(shown, sizeof(shown), KVW_MODEL_GROUPS "[%zu]", build->group_indexes[begin]);
		kvw_report_mistake(build->walk.report, build->group_places[begin], shown,
			"found no group with a `weight` above 0 for this model, expected one");
	}
}

void kvw_model_groups_release(struct kvw_config *config)
{
	for (size_t i = 0; i < config->model_group_count; i++) {
		kvw_keys_release(kvw_group_keys, KVW_GROUP_KEY_COUNT, &config->model_groups[i]);
		free(config->model_groups[i].worker_keys);
		free(config->model_groups[i].weight_now);
	}
	free(config->model_groups);
}

/* --- comparing and writing -------------------------------------------------------------------- */

bool kvw_model_group_has(const struct kvw_model_group *group, size_t key)
{
	if (key == KVW_GROUP_KEY_workers)
		return group->workers.count > 0;
	if (key == KVW_GROUP_KEY_shadow)
		return group->shadow > 0;
	return key != KVW_GROUP_KEY_to || group->to[0] != '\0';
}

static bool same(const struct kvw_model_group *a, const struct kvw_model_group *b)
{
	for (size_t key = 0; key < KVW_GROUP_KEY_COUNT; key++)
		if (!kvw_key_same(&kvw_group_keys[key], a, b))
			return false;
	return true;
}

bool kvw_model_groups_same(const struct kvw_config *a, const struct kvw_config *b)
{
	if (a->model_group_count != b->model_group_count)
		return false;
	for (size_t i = 0; i < a->model_group_count; i++)
		if (!same(&a->model_groups[i], &b->model_groups[i]))
			return false;
	return true;
}

static bool has(const void *entry, size_t key)
{
	return kvw_model_group_has(entry, key);
}

enum kvw_err kvw_model_groups_text(const struct kvw_config *config, char **out)
{
	const struct kvw_entries groups = {kvw_group_keys, KVW_GROUP_KEY_COUNT, has, config->model_groups,
		sizeof(config->model_groups[0]), config->model_group_count};

	return kvw_entries_text(&groups, out);
}

static bool same_weights(struct kvw_model_groups a, struct kvw_model_groups b)
{
	bool equal = a.count == b.count;

	for (size_t i = 0; i < a.count && equal; i++)
		equal = strcmp(a.items[i].group, b.items[i].group) == 0 &&
			kvw_key_same(&kvw_group_keys[KVW_GROUP_KEY_weight], &a.items[i], &b.items[i]);
	return equal;
}

void kvw_model_groups_keep(const struct kvw_config *before, const struct kvw_config *after)
{
	for (size_t i = 0; i < before->model_group_count; i++) {
		struct kvw_slice model = kvw_slice_of(before->model_groups[i].model);
		struct kvw_model_groups old = kvw_config_groups(before, model);
		struct kvw_model_groups new = kvw_config_groups(after, model);

		for (size_t k = 0; same_weights(old, new) && k < old.count; k++)
			atomic_store(new.items[k].weight_now, atomic_load(old.items[k].weight_now));
	}
}

/* --- answering -------------------------------------------------------------------------------- */

/* Compares for a search of the first group of a model, or of the place where it would be. */
static int at_model(const void *key, const void *items, size_t at)
{
	const struct kvw_slice *model = key;
	const struct kvw_model_group *group = (const struct kvw_model_group *)items + at;
	int order = kvw_search_order(*model, group->model);

	if (order != 0 || at == 0)
		return order;
	return strcmp(group[-1].model, group->model) == 0 ? -1 : 0;
}

struct kvw_model_groups kvw_config_groups(const struct kvw_config *config, struct kvw_slice model)
{
	struct kvw_model_groups found = {NULL, 0};
	bool there = false;
	size_t at = model.len == 0 ? 0
				   : kvw_search(&model, config->model_groups, config->model_group_count,
					     at_model, &there);

	if (!there)
		return found;
	found.items = &config->model_groups[at];
	while (at + found.count < config->model_group_count &&
		strcmp(found.items[found.count].model, found.items->model) == 0)
		found.count++;
	return found;
}
