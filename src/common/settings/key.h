/*
 * key.h - tables of a configuration's keys, and the conversion of one key's text to its value.
 *
 * A program lists its keys in a .def file, which becomes a schema. All other parts walk the schema:
 * the document's reader (walk.h), messages about unknown keys (unknown.h) and the reference pages
 * (reference.h). Schemas are constant and shared between threads.
 */
#ifndef KVW_CONFIG_KEY_H
#define KVW_CONFIG_KEY_H

#include "settings/types.h"

#define KVW_SCHEMA_MAX_PATH 128  /* longest dotted path, with room for an index */
#define KVW_KEY_PRINT       4128 /* room for any value as text */

struct kvw_key {
	const char *path; /* "routing.strategy"; of a list's entry "url" */
	const struct kvw_type *type;
	size_t offset;               /* of the member in the struct of values */
	const char *def, *min, *max; /* YAML text; min and max "" where there is none */
	const char *text;            /* description for the reference page */
	const char *unit;            /* unit of the number; "" if the type implies it */
	bool reload;                 /* a reload applies a new value */
};

/* A mapping that holds keys. The first one of a schema, "", is the file itself. */
struct kvw_section {
	const char *path;
	const char *text; /* for the reference page; may be "" */
};

/* Messages and pages come in two wordings, which users and their scripts know. */
enum kvw_wording {
	/* kvway's form: "a whole number from 1 to 64"; pages say what a change needs. */
	KVW_WORDING_FULL,
	KVW_WORDING_BRIEF, /* of the cache: "1 to 64" */
};

/* All keys of one configuration; borrowed. A section comes after its parent. */
struct kvw_schema {
	const struct kvw_key *keys;
	size_t key_count;
	const struct kvw_section *sections; /* [0] is the top */
	size_t section_count;
	const char *list; /* a further name of the top, a list; NULL: none */
	const char *const *extra; /* more paths, for walk.extra, NULL at the end; NULL: none */
	const char *const *names; /* of strategies, for the type STRATEGY; else NULL */
	const char *one_of;       /* name of the keys for messages; of a list's entry only */
	/* Old and new path ("": removed) in turn, NULL at the end; NULL: no key was renamed. */
	const char *const *renamed;
	const char *such_as;      /* an example, for messages: "sections such as `l1:`" */
	enum kvw_wording wording;
};

/* Index by full path, or the count if there is none. */
size_t kvw_schema_find_key(const struct kvw_schema *schema, const char *path);
size_t kvw_schema_find_section(const struct kvw_schema *schema, const char *path);

/* The last part of a path directly below a section ("" is the top); NULL: the path is elsewhere. */
const char *kvw_name_in(const char *section, const char *path);

/* Converts a text to a value within the type's and the key's limits. The text ends with a NUL
 * beyond its length. KVW_EINVAL fills *fault, `expected` always. A text's value is on the heap, the
 * caller's. KVW_ENOMEM. */
enum kvw_err kvw_key_parse(const struct kvw_schema *schema, const struct kvw_key *key,
	struct kvw_slice text, union kvw_value *out, struct kvw_fault *fault) KVW_MUST_CHECK;

/* Whether YAML can express the member's value; if not, what was expected. Not for texts. */
bool kvw_key_holds(const struct kvw_schema *schema, const struct kvw_key *key, const void *values,
	struct kvw_fault *fault);

/* Prints the member as YAML that parses to the same value; "" for an empty or missing text. Not for
 * secrets and lists. */
void kvw_key_print(const struct kvw_key *key, const void *values, char out[KVW_KEY_PRINT]);

/* The same for every type, of any length, on the heap; the caller's. A secret shows as "(secret)",
 * an empty one as "\"\"". KVW_ENOMEM. */
enum kvw_err kvw_key_text(const struct kvw_key *key, const void *values, char **out) KVW_MUST_CHECK;

/* Whether the member has the same value in both. */
bool kvw_key_same(const struct kvw_key *key, const void *a, const void *b);

/* Replaces the member of `to`, which owns its texts and lists, by a copy of `from`'s. KVW_ENOMEM
 * leaves `to` as it was. */
enum kvw_err kvw_key_copy(const struct kvw_key *key, const void *from, void *to) KVW_MUST_CHECK;

/* Frees texts and lists of a struct that owns them. */
void kvw_keys_release(const struct kvw_key *keys, size_t count, void *values);

#endif
