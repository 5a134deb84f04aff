/*
 * service_levels.c - reads, compares and writes the list `service_levels`.
 */
#include "config/service_levels.h"

#include <stdlib.h>
#include <string.h>

#include "config/entries_text.h"

#define LEVELS "a list with an entry such as `- {model: NAME, ttft: 2s}`"

/* --- reading ---------------------------------------------------------------------------------- */

static enum kvw_err set_default(size_t key, char **out)
{
	union kvw_value value;
	enum kvw_err err = kvw_text_copy(kvw_slice_of(kvw_level_keys[key].def), &value);

	if (err == KVW_OK)
		*out = value.text;
	return err;
}

/* An entry that is no mapping is reported, and left empty. */
static enum kvw_err walk_level(struct kvw_build *build, size_t index, const struct kvw_node *node)
{
	struct kvw_service_level *level = &build->config->service_levels[index];
	struct kvw_met *met = build->level_met[index];
	enum kvw_err err;
	bool whole;

	level->ttft_ms = level->ttft_per_1k_ms = level->tpot_ms = KVW_INHERITED;
	level->class_index = KVW_EVERY_CLASS;
	build->level_places[index] = node->place;
	build->config->service_level_count++;
	err = kvw_walk_entry(&build->walk, &kvw_level_schema, KVW_SERVICE_LEVELS, index, node, level,
		met, &whole);
	if (!whole)
		return err;
	if (err == KVW_OK && !met[KVW_LEVEL_KEY_model].given)
		err = set_default(KVW_LEVEL_KEY_model, &level->model);
	if (err == KVW_OK && !met[KVW_LEVEL_KEY_class].given)
		err = set_default(KVW_LEVEL_KEY_class, &level->class);
	if (level->model != NULL)
		level->model_len = strlen(level->model);
	return err;
}

enum kvw_err kvw_service_levels_walk(struct kvw_walk *walk, const struct kvw_node *list)
{
	struct kvw_build *build = (struct kvw_build *)walk;
	const struct kvw_node *node = list->first;
	enum kvw_err err = KVW_OK;

	if (build->levels != NULL) {
		kvw_report_mistake(walk->report, list->key->place, KVW_SERVICE_LEVELS,
			"found a second time, expected once: first given in line %zu",
			build->levels->key->place.line);
		return KVW_OK;
	}
	build->levels = list;
	if (list->kind == KVW_NODE_BAD)
		return KVW_OK;
	if (list->kind != KVW_NODE_LIST || list->count > KVW_MAX_SERVICE_LEVELS) {
		if (list->kind != KVW_NODE_LIST)
			kvw_report_mistake(walk->report, list->place, KVW_SERVICE_LEVELS,
				"found %s, expected " LEVELS
				"; what holds for all is `service_level`",
				kvw_given_kind(list));
		else
			kvw_report_mistake(walk->report, list->place, KVW_SERVICE_LEVELS,
				"found %zu entries, expected at most %d", list->count,
				KVW_MAX_SERVICE_LEVELS);
		return KVW_OK;
	}
	if (list->count == 0)
		return KVW_OK;
	build->config->service_levels = calloc(list->count, sizeof(struct kvw_service_level));
	if (build->config->service_levels == NULL)
		return KVW_ENOMEM;
	for (size_t i = 0; node != NULL && err == KVW_OK; i++, node = node->next)
		err = walk_level(build, i, node);
	return err;
}

void kvw_service_levels_release(struct kvw_config *config)
{
	for (size_t i = 0; i < config->service_level_count; i++)
		kvw_keys_release(kvw_level_keys, KVW_LEVEL_KEY_COUNT, &config->service_levels[i]);
	free(config->service_levels);
}

/* --- comparing and writing -------------------------------------------------------------------- */

bool kvw_service_level_has(const struct kvw_service_level *level, size_t key)
{
	const char *field = (const char *)level + kvw_level_keys[key].offset;
	const char *text;
	int64_t ms;

	if (kvw_level_keys[key].type->owned) {
		memcpy(&text, field, sizeof(text));
		return text != NULL && text[0] != '\0';
	}
	memcpy(&ms, field, sizeof(ms));
	return ms != KVW_INHERITED;
}

static bool same_level(const struct kvw_service_level *a, const struct kvw_service_level *b)
{
	for (size_t i = 0; i < KVW_LEVEL_KEY_COUNT; i++)
		if (!kvw_key_same(&kvw_level_keys[i], a, b))
			return false;
	return true;
}

/* No entry is twice in a list. So if both lists have the same length, and each entry of `a` is in
 * `b`, they have the same entries. */
bool kvw_service_levels_same(const struct kvw_config *a, const struct kvw_config *b)
{
	size_t found = 0;

	for (size_t i = 0; i < a->service_level_count; i++)
		for (size_t k = 0; k < b->service_level_count; k++)
			found += same_level(&a->service_levels[i], &b->service_levels[k]);
	return found == a->service_level_count && found == b->service_level_count;
}

static bool has(const void *level, size_t key)
{
	return kvw_service_level_has(level, key);
}

enum kvw_err kvw_service_levels_text(const struct kvw_config *config, char **out)
{
	const struct kvw_entries levels = {kvw_level_keys, KVW_LEVEL_KEY_COUNT, has, config->service_levels,
		sizeof(config->service_levels[0]), config->service_level_count};

	return kvw_entries_text(&levels, out);
}

/* --- answering -------------------------------------------------------------------------------- */

static bool holds_for(const struct kvw_service_level *level, const char *model, size_t model_len,
	size_t class_index)
{
	if (level->class_index != KVW_EVERY_CLASS && level->class_index != class_index)
		return false;
	return level->model_len == 0 ||
	       (level->model_len == model_len && memcmp(level->model, model, model_len) == 0);
}

static void replace(int64_t *promise, int64_t ms)
{
	if (ms != KVW_INHERITED)
		*promise = ms;
}

/* Returns the index of the class; admission_classes.count if there is none. */
static size_t class_named(const struct kvw_strings *classes, struct kvw_slice name)
{
	size_t i = name.len > 0 ? 0 : classes->count;

	while (i < classes->count && !kvw_slice_equal_nocase(name, kvw_slice_of(classes->items[i])))
		i++;
	return i;
}

size_t kvw_config_class(const struct kvw_config *config, struct kvw_slice name)
{
	const struct kvw_strings *classes = &config->admission_classes;
	size_t class_index = class_named(classes, name);

	if (class_index == classes->count)
		class_index = class_named(classes, kvw_slice_of(config->admission_default_class));
	if (class_index == classes->count && class_index > 0)
		class_index--;
	return class_index;
}

void kvw_config_promise(const struct kvw_config *config, const char *model, size_t model_len,
	size_t class_index, struct kvw_service_level_ms *out)
{
	const struct kvw_service_level *by_rank[4] = {NULL}; /* 1: class, 2: model, 3: both */

	for (size_t i = 0; i < config->service_level_count; i++) {
		const struct kvw_service_level *level = &config->service_levels[i];

		if (holds_for(level, model, model_len, class_index))
			by_rank[(level->class_index != KVW_EVERY_CLASS) +
				2 * (level->model_len > 0)] = level;
	}
	*out = (struct kvw_service_level_ms){config->service_ttft_ms,
		config->service_ttft_per_1k_ms, config->service_tpot_ms};
	for (size_t rank = 1; rank < 4; rank++) {
		if (by_rank[rank] == NULL)
			continue;
		replace(&out->ttft, by_rank[rank]->ttft_ms);
		replace(&out->ttft_per_1k_tokens, by_rank[rank]->ttft_per_1k_ms);
		replace(&out->tpot, by_rank[rank]->tpot_ms);
	}
}
