/*
 * schema.h - the tables of keys, made from keys.def. The index of a key in kvw_keys is the
 * enumerator KVW_KEY_<field>.
 */
#ifndef KVW_CONFIG_SCHEMA_H
#define KVW_CONFIG_SCHEMA_H

#include "config/client_key_types.h"
#include "config/config.h"
#include "config/enum_types.h"
#include "settings/key.h"

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

enum kvw_level_key_index {
#define KVW_LEVEL_KEY(path, type, field, def, min, max, reload, text) KVW_LEVEL_KEY_##field,
#include "config/keys.def"
	KVW_LEVEL_KEY_COUNT
};

enum kvw_pool_key_index {
#define KVW_POOL_KEY(path, type, field, def, min, max, reload, text) KVW_POOL_KEY_##field,
#include "config/keys.def"
	KVW_POOL_KEY_COUNT
};

enum kvw_rate_key_index {
#define KVW_RATE_KEY(path, type, field, def, min, max, reload, text) KVW_RATE_KEY_##field,
#include "config/keys.def"
	KVW_RATE_KEY_COUNT
};

enum kvw_group_key_index {
#define KVW_GROUP_KEY(path, type, field, def, min, max, reload, text) KVW_GROUP_KEY_##field,
#include "config/keys.def"
	KVW_GROUP_KEY_COUNT
};

enum kvw_client_key_index {
#define KVW_CLIENT_KEY(path, type, field, def, min, max, reload, text) KVW_CLIENT_KEY_##field,
#include "config/keys.def"
	KVW_CLIENT_KEY_COUNT
};

enum kvw_section_index {
#define KVW_SECTION(name, path, text) KVW_SECTION_##name,
#include "config/keys.def"
	KVW_SECTION_COUNT
};

extern const struct kvw_key kvw_keys[KVW_KEY_COUNT];
extern const struct kvw_key kvw_worker_keys[KVW_WORKER_KEY_COUNT];
extern const struct kvw_key kvw_level_keys[KVW_LEVEL_KEY_COUNT];
extern const struct kvw_key kvw_pool_keys[KVW_POOL_KEY_COUNT];
extern const struct kvw_key kvw_rate_keys[KVW_RATE_KEY_COUNT];
extern const struct kvw_key kvw_group_keys[KVW_GROUP_KEY_COUNT];
extern const struct kvw_key kvw_client_keys[KVW_CLIENT_KEY_COUNT];
extern const struct kvw_section kvw_sections[KVW_SECTION_COUNT];
extern const char *const kvw_renamed_keys[];      /* as kvw_schema's `renamed` */
extern const struct kvw_schema kvw_worker_schema; /* for an entry of `workers` */
extern const struct kvw_schema kvw_level_schema;  /* for an entry of `service_levels` */
extern const struct kvw_schema kvw_pool_schema;   /* for an entry of `discovery.kubernetes.pools` */
extern const struct kvw_schema kvw_rate_schema;   /* for an entry of `rate_limits` */
extern const struct kvw_schema kvw_group_schema;  /* for an entry of `model_groups` */
extern const struct kvw_schema kvw_client_key_schema; /* for an entry of `auth.keys_file` */

#endif
