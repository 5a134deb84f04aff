/*
 * own_keys.c - adds the keys of strategies' settings to the schema.
 */
#include "config/own_keys.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static const struct kvw_type *type_of(enum kvw_setting_kind kind)
{
	switch (kind) {
	case KVW_SETTING_BOOL:
		return &kvw_type_BOOL;
	case KVW_SETTING_INT:
		return &kvw_type_INT;
	case KVW_SETTING_SIZE:
		return &kvw_type_SIZE;
	case KVW_SETTING_DURATION:
		return &kvw_type_DURATION;
	case KVW_SETTING_RATIO:
		break;
	}
	return &kvw_type_RATIO;
}

/* Makes the path "routing.NAME" or "routing.NAME.SETTING". */
static const char *make_path(struct kvw_own_keys *own, const char *name, const char *setting)
{
	char *path = own->paths[own->path_count++];
	int n = snprintf(path, KVW_SCHEMA_MAX_PATH, KVW_OWN_SECTION_PARENT ".%s%s%s", name,
		setting != NULL ? "." : "", setting != NULL ? setting : "");

	assert(n > 0 && n < KVW_SCHEMA_MAX_PATH);
	(void)n;
	return path;
}

static bool below_routing(const struct kvw_section *section)
{
	size_t len = strlen(KVW_OWN_SECTION_PARENT);

	return strncmp(section->path, KVW_OWN_SECTION_PARENT, len) == 0 &&
	       (section->path[len] == '\0' || section->path[len] == '.');
}

/* Inserts a section after the last one that is below `routing`. */
static void add_section(struct kvw_own_keys *own, const char *path)
{
	size_t at = own->schema.section_count;

	while (!below_routing(&own->sections[at - 1]))
		at--;
	memmove(&own->sections[at + 1], &own->sections[at],
		(own->schema.section_count - at) * sizeof(own->sections[0]));
	own->sections[at] = (struct kvw_section){path, "Settings of that strategy alone."};
	own->schema.section_count++;
	own->section_count++;
}

static void add_settings(struct kvw_own_keys *own, const struct kvw_strategy_ops *ops)
{
	const char *section = make_path(own, ops->name, NULL);

	if (kvw_own_find_section(own, section) == own->schema.section_count)
		add_section(own, section);
	for (const struct kvw_own_setting *s = ops->settings; s->name != NULL; s++) {
		size_t i = own->key_count++;

		assert(i < KVW_OWN_KEYS_MOST);
		own->keys[own->schema.key_count++] = (struct kvw_key){
			make_path(own, ops->name, s->name), type_of(s->kind),
			offsetof(struct kvw_config, own) + i * sizeof(union kvw_setting_value),
			s->def, s->min, s->max, s->text, "", s->reload};
	}
}

/* Further names at the top, and a path. */
static const char *const extra[] = {
	KVW_ROUTING_SPEC, KVW_SERVICE_LEVELS, KVW_RATE_LIMITS, KVW_MODELS, KVW_MODEL_GROUPS, KVW_POOLS,
	NULL};

void kvw_own_keys_init(struct kvw_own_keys *own, const struct kvw_strategy_ops *const *strategies)
{
	own->key_count = own->section_count = own->path_count = 0;
	memset(own->names, 0, sizeof(own->names));
	memcpy(own->keys, kvw_keys, sizeof(kvw_keys));
	memcpy(own->sections, kvw_sections, sizeof(kvw_sections));
	own->schema = (struct kvw_schema){.keys = own->keys,
		.key_count = KVW_KEY_COUNT,
		.sections = own->sections,
		.section_count = KVW_SECTION_COUNT,
		.list = "workers",
		.renamed = kvw_renamed_keys,
		.extra = extra,
		.names = own->names,
		.such_as = "keys such as `listen:` and `workers:`"};
	for (size_t i = 0; strategies[i] != NULL; i++) {
		assert(i < KVW_STRATEGIES_MOST);
		own->names[i] = strategies[i]->name;
		if (strategies[i]->settings != NULL)
			add_settings(own, strategies[i]);
	}
}

const union kvw_setting_value *kvw_config_own(const struct kvw_config *config,
	const struct kvw_strategy_ops *const *strategies, const struct kvw_strategy_ops *ops)
{
	size_t at = 0;

	for (size_t i = 0; strategies[i] != NULL && strategies[i] != ops; i++)
		for (size_t k = 0;
			strategies[i]->settings != NULL && strategies[i]->settings[k].name != NULL;
			k++)
			at++;
	return &config->own[at];
}
