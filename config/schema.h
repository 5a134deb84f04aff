/*
 * schema.h - keys.def as tables that the loader and the reference generator walk.
 *
 * Static and constant; a key's index in kvw_keys is its enumerator KVW_KEY_<field>.
 */
#ifndef KVW_CONFIG_SCHEMA_H
#define KVW_CONFIG_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>

#include "config/config.h"
#include "config/enum_types.h"
#include "settings/types.h"

#define KVW_SCHEMA_MAX_PATH 128 /* longest dotted path, with room for an index */

struct kvw_key {
	const char *path; /* "routing.strategy"; of a worker's key "url" */
	const struct kvw_type *type;
	size_t offset; /* of the field in struct kvw_config or kvw_worker_config */
	const char *def, *min, *max;
	bool reload;
	const char *text;
};

/* A mapping that holds keys. The first one, "", is the file itself. */
struct kvw_section {
	const char *path;
	const char *text; /* for REFERENCE.md; may be "" */
};

enum kvw_key_index {
#define KVW_KEY(path, type, field, def, min, max, reload, text) KVW_KEY_##field,
#include "config/keys.def"
	KVW_KEY_COUNT
};

enum kvw_worker_key_index {
#define KVW_WORKER_KEY(path, type, field, def, min, max, reload, text) KVW_WORKER_KEY_##field,
#include "config/keys.def"
	KVW_WORKER_KEY_COUNT
};

enum kvw_section_index {
#define KVW_SECTION(name, path, text) KVW_SECTION_##name,
#include "config/keys.def"
	KVW_SECTION_COUNT
};

extern const struct kvw_key kvw_keys[KVW_KEY_COUNT];
extern const struct kvw_key kvw_worker_keys[KVW_WORKER_KEY_COUNT];
extern const struct kvw_section kvw_sections[KVW_SECTION_COUNT];

/* Index by full path, or the count if there is none. */
size_t kvw_schema_find_key(const char *path);
size_t kvw_schema_find_worker_key(const char *path);
size_t kvw_schema_find_section(const char *path);

#endif
