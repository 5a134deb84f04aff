/*
 * setting.h - settings.def as tables: one row per key, and how a text becomes its value.
 *
 * The public functions of the configuration (kvt_config_init, _read, _finish, kvt_text_free) walk
 * these tables, as do the reference page, `kvtier check` and the tests. All of it is constant.
 */
#ifndef KVT_SETTING_H
#define KVT_SETTING_H

#include <stdbool.h>
#include <stdio.h>

#include "kvtier/kvtier.h"
#include "kvway/err.h"
#include "kvway/slice.h"
#include "settings/types.h"
#include "settings/unknown.h"

#define KVT_SETTINGS_MAX_BYTES (1u << 20) /* of one YAML text */
#define KVT_SETTING_MAX_PATH   96         /* room for a dotted path */
#define KVT_SETTING_PRINT      4128       /* room for any value as text */

/* A value of any type. Members start at the same byte, so that a member of struct kvt_config is
 * filled by copying its type's size. */
union kvt_setting_value {
	uint32_t word;
	int32_t node;
	uint64_t size;
	double number;
	char *text; /* parsed: on the heap, owned by the value's holder */
	struct kvt_fingerprint fingerprint;
};

struct kvt_setting_type {
	const char *name;     /* as in REFERENCE.md */
	const char *expected; /* "a size such as 64MiB"; NULL: parse fills fault->expected */
	size_t bytes;         /* of the member */
	bool text;            /* the value is a text */
	bool automatic;       /* `auto` stands for 0, which is outside of the range */

	/* KVW_EINVAL fills *fault as far as `expected` does not say it. The text ends with a NUL
	 * beyond its length. */
	enum kvw_err (*parse)(
		struct kvw_slice text, union kvt_setting_value *out, struct kvw_fault *fault);
	/* <0, 0, >0. NULL: the type has no range. */
	int (*compare)(const union kvt_setting_value *a, const union kvt_setting_value *b);
	/* As YAML that parses to the same value. */
	void (*print)(const union kvt_setting_value *value, char *out, size_t room);
};

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
	X(L2_FORMAT, const char *)                                                                 \
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

#define KVT_DECLARE_TYPE(name, c_type) extern const struct kvt_setting_type kvt_setting_##name;
KVT_SETTING_TYPES(KVT_DECLARE_TYPE)
#undef KVT_DECLARE_TYPE

struct kvt_setting {
	const char *path; /* "l1.capacity" */
	const struct kvt_setting_type *type;
	size_t offset; /* of the member in the configuration's struct */
	const char *def, *min, *max;
	const char *unit;
	const char *text;
};

/* A mapping that holds keys. The first one, "", is the file itself. */
struct kvt_setting_section {
	const char *path;
	const char *text; /* may be "" */
};

/* All keys of one configuration. Static. */
struct kvt_setting_table {
	const struct kvt_setting *settings;
	size_t setting_count;
	const struct kvt_setting_section *sections; /* [0] is the top */
	size_t section_count;
	struct kvw_known known; /* the same as paths, and what else may stand there */
	const char *such_as;    /* sections, for a file that has none: "`l1:` and `nvme:`" */
};

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

extern const struct kvt_setting kvt_settings[KVT_SETTING_COUNT];
extern const struct kvt_setting_section kvt_setting_sections[KVT_SETTING_SECTION_COUNT];
extern const struct kvt_setting_table kvt_cache_settings; /* both */

/* A text that kvt_config_read made; goes when its configuration does. */
struct kvt_config_texts {
	struct kvt_config_texts *next;
	char *text; /* owned */
};

/* Index by full path, or the count if there is none. */
size_t kvt_setting_find(const char *path);
size_t kvt_setting_find_section(const char *path);

/* Text to value with the type's and the key's own limits. Fills *fault on KVW_EINVAL, expected
 * always. A text's value is owned by the caller. KVW_ENOMEM. */
enum kvw_err kvt_setting_parse(const struct kvt_setting *setting, struct kvw_slice text,
	union kvt_setting_value *out, struct kvw_fault *fault) KVW_MUST_CHECK;

/* The value that a configuration has, as YAML; "" for an empty or missing text. */
void kvt_setting_print(const struct kvt_setting *setting, const struct kvt_config *config,
	char out[KVT_SETTING_PRINT]);

/* The same for the struct of any table. */
void kvt_setting_print_at(
	const struct kvt_setting *setting, const void *values, char out[KVT_SETTING_PRINT]);

/* For people: as print, but a URL's user and password are hidden. */
void kvt_setting_show(
	const struct kvt_setting *setting, const void *values, char out[KVT_SETTING_PRINT]);

/* Writes the default into the member; a text's is static. */
void kvt_setting_set_default(const struct kvt_setting *setting, void *values);

/* The sections of a reference page, and of a YAML file with every key. Keys of one section stand
 * together in the table, and sections below another one after it. */
void kvt_setting_reference(FILE *out, const struct kvt_setting_table *table);
void kvt_setting_example(FILE *out, const struct kvt_setting_table *table, const void *values);

/* Whether a C caller's value could have been read from YAML. */
bool kvt_setting_holds(const struct kvt_setting *setting, const struct kvt_config *config,
	struct kvw_fault *fault);

#endif
