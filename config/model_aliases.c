/*
 * model_aliases.c - reads, checks, compares and writes the mapping `models`.
 */
#include "config/model_aliases.h"

#include <stdlib.h>
#include <string.h>

#define ALIASES "a mapping such as `gpt-4o: {to: MODEL}`"

static const struct kvw_key name_key = {.path = "name",
	.type = &kvw_type_STRING,
	.offset = offsetof(struct kvw_model_alias, name),
	.def = "",
	.min = "",
	.max = ""};
static const struct kvw_key to_key = {.path = "to",
	.type = &kvw_type_STRING,
	.offset = offsetof(struct kvw_model_alias, to),
	.def = "",
	.min = "",
	.max = ""};

/* --- reading ---------------------------------------------------------------------------------- */

static enum kvw_err take_name(struct kvw_build *build, const struct kvw_key *key, const struct kvw_node *node,
	const char *shown, struct kvw_model_alias *alias, bool *valid)
{
	const struct kvw_given given = kvw_given_of(node);
	char *const *text = (char *const *)(const void *)((const char *)alias + key->offset);
	enum kvw_err err = kvw_walk_value(&build->walk, key, shown, &given, alias, valid);
	size_t len;

	if (err != KVW_OK || !*valid)
		return err;
	len = strlen(*text);
	if (len > 0 && len <= KVW_ALIAS_MOST)
		return KVW_OK;
	kvw_report_mistake(build->walk.report, node->place, shown, "found %zu bytes, expected a model's name of 1 to %d",
		len, KVW_ALIAS_MOST);
	*valid = false;
	return KVW_OK;
}

static enum kvw_err take_target(struct kvw_build *build, const struct kvw_node *node, const char *shown,
	struct kvw_model_alias *alias, bool *valid)
{
	const struct kvw_node *member = node->kind == KVW_NODE_MAP ? node->first : NULL;
	char path[KVW_ALIAS_MOST + 32];

	*valid = false;
	if (node->kind == KVW_NODE_BAD)
		return KVW_OK;
	if (member == NULL || member->next != NULL || member->key->kind != KVW_NODE_SCALAR ||
		strcmp(member->key->text, "to") != 0) {
		kvw_report_mistake(build->walk.report, node->place, shown,
			"found %s, expected the one key `to`, such as `{to: MODEL}`",
			node->kind == KVW_NODE_MAP ? "other keys" : kvw_given_kind(node));
		return KVW_OK;
	}
	snprintf(path, sizeof(path), "%s.to", shown);
	return take_name(build, &to_key, member, path, alias, valid);
}

static enum kvw_err walk_alias(struct kvw_build *build, const struct kvw_node *node)
{
	struct kvw_model_alias *alias = &build->config->model_aliases[build->config->model_alias_count];
	char shown[KVW_ALIAS_MOST + 16];
	bool named, valid = false;
	enum kvw_err err;

	if (node->key->kind != KVW_NODE_SCALAR)
		return KVW_OK;
	err = take_name(build, &name_key, node->key, KVW_MODELS, alias, &named);
	if (err == KVW_OK && named) {
		snprintf(shown, sizeof(shown), KVW_MODELS ".%s", alias->name);
		err = take_target(build, node, shown, alias, &valid);
	}
	if (err != KVW_OK || !valid) {
		free(alias->name);
		free(alias->to);
		*alias = (struct kvw_model_alias){.name = NULL};
		return err;
	}
	alias->name_len = strlen(alias->name);
	alias->target = alias->to;
	build->alias_places[build->config->model_alias_count++] = node->key->place;
	return KVW_OK;
}

enum kvw_err kvw_model_aliases_walk(struct kvw_walk *walk, const struct kvw_node *map)
{
	struct kvw_build *build = (struct kvw_build *)walk;
	const struct kvw_node *node = map->first;
	enum kvw_err err = KVW_OK;

	if (build->aliases != NULL) {
		kvw_report_mistake(walk->report, map->key->place, KVW_MODELS,
			"found a second time, expected once: first given in line %zu",
			build->aliases->key->place.line);
		return KVW_OK;
	}
	build->aliases = map;
	if (map->kind == KVW_NODE_BAD)
		return KVW_OK;
	if (map->kind != KVW_NODE_MAP) {
		kvw_report_mistake(
			walk->report, map->place, KVW_MODELS, "found %s, expected " ALIASES, kvw_given_kind(map));
		return KVW_OK;
	}
	if (map->count > KVW_MAX_ALIASES) {
		kvw_report_mistake(walk->report, map->place, KVW_MODELS, "found %zu entries, expected at most %d",
			map->count, KVW_MAX_ALIASES);
		return KVW_OK;
	}
	if (map->count == 0)
		return KVW_OK;
	build->config->model_aliases = calloc(map->count, sizeof(struct kvw_model_alias));
	if (build->config->model_aliases == NULL)
		return KVW_ENOMEM;
	for (; node != NULL && err == KVW_OK; node = node->next)
		err = walk_alias(build, node);
	return err;
}

void kvw_model_aliases_resolve(struct kvw_build *build)
{
	struct kvw_config *config = build->config;

	for (size_t i = 0; i < config->model_alias_count; i++) {
		struct kvw_model_alias *alias = &config->model_aliases[i];
		const struct kvw_model_alias *next = alias;
		char shown[KVW_ALIAS_MOST + 16];
		size_t steps = 0;

		for (size_t k = 0; k < i; k++)
			if (strcmp(config->model_aliases[k].name, alias->name) == 0)
				steps = SIZE_MAX;
		snprintf(shown, sizeof(shown), KVW_MODELS ".%s", alias->name);
		if (steps == SIZE_MAX) {
			kvw_report_mistake(build->walk.report, build->alias_places[i], shown,
				"found a second time, expected once");
			continue;
		}
		while (next != NULL && steps++ <= config->model_alias_count) {
			alias->target = next->to;
			next = kvw_config_alias(config, kvw_slice_of(next->to));
		}
		if (next != NULL)
			kvw_report_mistake(build->walk.report, build->alias_places[i], shown,
				"found a loop, expected `to` to lead to a model that is no alias");
	}
}

static void check_model(
	struct kvw_build *build, const char *list, size_t index, const struct kvw_node *model)
{
	const struct kvw_model_alias *alias =
		kvw_config_alias(build->config, (struct kvw_slice){model->text, model->len});
	char shown[48], quoted[KVW_REPORT_QUOTE];

	if (alias == NULL)
		return;
	snprintf(shown, sizeof(shown), "%s[%zu].model", list, index);
	kvw_report_mistake(build->walk.report, model->place, shown,
		"found an alias of `" KVW_MODELS "`, expected the model that it stands for, %s",
		kvw_report_quote(quoted, alias->target, strlen(alias->target)));
}

static void check_list(struct kvw_build *build, const char *name, const struct kvw_node *list)
{
	const struct kvw_node *entry, *member;
	size_t index = 0;

	if (list == NULL || list->kind != KVW_NODE_LIST)
		return;
	for (entry = list->first; entry != NULL; entry = entry->next, index++)
		for (member = entry->kind == KVW_NODE_MAP ? entry->first : NULL; member != NULL; member = member->next)
			if (member->kind == KVW_NODE_SCALAR && member->key->kind == KVW_NODE_SCALAR &&
				strcmp(member->key->text, "model") == 0)
				check_model(build, name, index, member);
}

void kvw_model_aliases_check(struct kvw_build *build)
{
	if (build->config->model_alias_count == 0)
		return;
	check_list(build, KVW_SERVICE_LEVELS, build->levels);
	check_list(build, KVW_RATE_LIMITS, build->rate_limits);
	check_list(build, KVW_MODEL_GROUPS, build->groups);
}

void kvw_model_aliases_release(struct kvw_config *config)
{
	for (size_t i = 0; i < config->model_alias_count; i++) {
		free(config->model_aliases[i].name);
		free(config->model_aliases[i].to);
	}
	free(config->model_aliases);
}

/* --- comparing and writing -------------------------------------------------------------------- */

bool kvw_model_aliases_same(const struct kvw_config *a, const struct kvw_config *b)
{
	if (a->model_alias_count != b->model_alias_count)
		return false;
	for (size_t i = 0; i < a->model_alias_count; i++) {
		const struct kvw_model_alias *other = kvw_config_alias(b, kvw_slice_of(a->model_aliases[i].name));

		if (other == NULL || strcmp(other->to, a->model_aliases[i].to) != 0)
			return false;
	}
	return true;
}

static enum kvw_err print_alias(FILE *out, const struct kvw_model_alias *alias)
{
	char *name = NULL, *to = NULL;
	enum kvw_err err = kvw_key_text(&name_key, alias, &name);

	if (err == KVW_OK)
		err = kvw_key_text(&to_key, alias, &to);
	if (err == KVW_OK)
		fprintf(out, "%s: {to: %s}", name, to);
	free(name);
	free(to);
	return err;
}

enum kvw_err kvw_model_aliases_text(const struct kvw_config *config, char **out)
{
	char *text = NULL;
	size_t len = 0;
	FILE *stream = open_memstream(&text, &len);
	enum kvw_err err = KVW_OK;
	bool whole;

	if (stream == NULL)
		return KVW_ENOMEM;
	fputs("{", stream);
	for (size_t i = 0; i < config->model_alias_count && err == KVW_OK; i++) {
		fputs(i > 0 ? ", " : "", stream);
		err = print_alias(stream, &config->model_aliases[i]);
	}
	fputs("}", stream);
	whole = ferror(stream) == 0;
	if (fclose(stream) != 0 || !whole)
		err = KVW_ENOMEM;
	if (err == KVW_OK)
		*out = text;
	else
		free(text);
	return err;
}

/* --- answering -------------------------------------------------------------------------------- */

const struct kvw_model_alias *kvw_config_alias(const struct kvw_config *config, struct kvw_slice model)
{
	for (size_t i = 0; i < config->model_alias_count; i++) {
		const struct kvw_model_alias *alias = &config->model_aliases[i];

		if (alias->name_len == model.len && memcmp(alias->name, model.data, model.len) == 0)
			return alias;
	}
	return NULL;
}
