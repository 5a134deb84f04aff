/*
 * schema.c - keys.def as tables.
 */
#include "config/schema.h"

#include <string.h>

#define RELOAD  true
#define RESTART false

const struct kvw_key kvw_keys[KVW_KEY_COUNT] = {
#define KVW_KEY(path, type, field, def, min, max, reload, text)                                    \
	{path, &kvw_type_##type, offsetof(struct kvw_config, field), def, min, max, reload, text},
#include "config/keys.def"
};

const struct kvw_key kvw_worker_keys[KVW_WORKER_KEY_COUNT] = {
#define KVW_WORKER_KEY(path, type, field, def, min, max, reload, text)                             \
	{path, &kvw_type_##type, offsetof(struct kvw_worker_config, field), def, min, max, reload, \
		text},
#include "config/keys.def"
};

const struct kvw_section kvw_sections[KVW_SECTION_COUNT] = {
#define KVW_SECTION(name, path, text) {path, text},
#include "config/keys.def"
};

size_t kvw_schema_find_key(const char *path)
{
	size_t i = 0;

	while (i < KVW_KEY_COUNT && strcmp(kvw_keys[i].path, path) != 0)
		i++;
	return i;
}

size_t kvw_schema_find_worker_key(const char *path)
{
	size_t i = 0;

	while (i < KVW_WORKER_KEY_COUNT && strcmp(kvw_worker_keys[i].path, path) != 0)
		i++;
	return i;
}

size_t kvw_schema_find_section(const char *path)
{
	size_t i = 0;

	while (i < KVW_SECTION_COUNT && strcmp(kvw_sections[i].path, path) != 0)
		i++;
	return i;
}
