/*
 * setting.h - settings.def as a schema: one row per key, and the types of its values.
 *
 * The public functions of the configuration (kvt_config_init, _read, _finish, kvt_text_free) walk
 * these tables, as do the reference page, `kvtier check` and the tests. All of it is constant.
 */
#ifndef KVT_SETTING_H
#define KVT_SETTING_H

#include "kvtier/kvtier.h"
#include "settings/key.h"

#define KVT_SETTINGS_MAX_BYTES (1u << 20) /* limit of bytes in one YAML text */
#define KVT_SETTING_PRINT      KVW_KEY_PRINT

/* Types of src/common/settings (settings/types.h); the others are in setting_types.c. */
#define kvt_setting_SIZE       kvw_type_SIZE
#define kvt_setting_AUTO_SIZE  kvw_type_AUTO_SIZE
#define kvt_setting_COUNT      kvw_type_COUNT
#define kvt_setting_AUTO_COUNT kvw_type_AUTO_COUNT
#define kvt_setting_NODE       kvw_type_NODE
#define kvt_setting_FLAG       kvw_type_FLAG
#define kvt_setting_TIME       kvw_type_TIME
#define kvt_setting_NUMBER     kvw_type_RATIO

#define KVT_SETTING_TYPES(X)                                                                       \
	X(SIZE, uint64_t)                                                                          \
	X(AUTO_SIZE, uint64_t)                                                                     \
	X(COUNT, uint32_t)                                                                         \
	X(AUTO_COUNT, uint32_t)                                                                    \
	X(NODE, int32_t)                                                                           \
	X(FLAG, uint32_t)                                                                          \
	X(TIME, uint64_t)                                                                          \
	X(NUMBER, double)                                                                          \
	X(TEXT, const char *)                                                                      \
	X(PATH, const char *)                                                                      \
	X(BACKING, const char *)                                                                   \
	X(POLICY, const char *)                                                                    \
	X(IO_MODE, const char *)                                                                   \
	X(L2_URL, const char *)                                                                    \
	X(NODE_SHARE, const char *)                                                                \
	X(CUT, const char *)                                                                       \
	X(ENDPOINT, const char *)                                                                  \
	X(ADDRESS, const char *)                                                                   \
	X(HOST, const char *)                                                                      \
	X(PORTS, const char *)                                                                     \
	X(HASH, const char *)                                                                      \
	X(HASH_NUMBER, const char *)                                                               \
	X(SEGMENT, const char *)                                                                   \
	X(LEVEL, uint32_t)                                                                         \
	X(ACCESS, uint32_t)                                                                        \
	X(THREADS, uint32_t)                                                                       \
	X(FINGERPRINT, struct kvt_fingerprint)

#define KVT_DECLARE_TYPE(name, c_type) extern const struct kvw_type kvt_setting_##name;
KVT_SETTING_TYPES(KVT_DECLARE_TYPE)
#undef KVT_DECLARE_TYPE

enum kvt_setting_index {
#define KVT_SETTING(path, type, member, def, min, max, unit, text) KVT_SETTING_##member,
#include "options/settings.def"
	KVT_SETTING_COUNT
};

enum kvt_setting_section_index {
#define KVT_SECTION(name, path, text) KVT_SETTING_SECTION_##name,
#include "options/settings.def"
	KVT_SETTING_SECTION_COUNT
};

extern const struct kvw_key kvt_settings[KVT_SETTING_COUNT];
extern const struct kvw_section kvt_setting_sections[KVT_SETTING_SECTION_COUNT];
extern const struct kvw_schema kvt_cache_settings; /* both */

/* A text that kvt_config_read allocated; freed with its configuration. */
struct kvt_config_texts {
	struct kvt_config_texts *next;
	char *text; /* owned */
};

/* Returns the index of a key by its full path; the number of keys: there is no such key. */
size_t kvt_setting_find(const char *path);
size_t kvt_setting_find_section(const char *path);

/* Parses a value like kvw_key_parse, for a key of this table. */
enum kvw_err kvt_setting_parse(const struct kvw_key *setting, struct kvw_slice text,
	union kvw_value *out, struct kvw_fault *fault) KVW_MUST_CHECK;

/* Prints a configuration's value as YAML; "" for an empty or missing text. */
void kvt_setting_print(const struct kvw_key *setting, const struct kvt_config *config,
	char out[KVT_SETTING_PRINT]);

/* Prints a value for display, from the struct of any table: hides a URL's user and password. */
void kvt_setting_show(
	const struct kvw_key *setting, const void *values, char out[KVT_SETTING_PRINT]);

/* Writes the default into the member; a text's default is static. */
void kvt_setting_set_default(const struct kvw_key *setting, void *values);

/* Returns whether a C caller's value is one that YAML could have given. */
bool kvt_setting_holds(
	const struct kvw_key *setting, const struct kvt_config *config, struct kvw_fault *fault);

#endif
