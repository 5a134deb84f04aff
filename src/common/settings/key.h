/*
 * key.h - tables of a configuration's keys, and the conversion of one key's text to its value.
 *
 * A program lists its keys in a .def file, which becomes a schema. All other parts read the schema:
 * the document's reader (walk.h), messages about unknown keys (unknown.h) and the reference pages
 * (reference.h). Schemas are constant and shared between threads.
 */
#ifndef KVW_CONFIG_KEY_H
#define KVW_CONFIG_KEY_H

#include "settings/types.h"

#define KVW_SCHEMA_MAX_PATH 128  /* most bytes of a dotted path, with an index in it */
#define KVW_KEY_PRINT       4128 /* room for any value as text */

struct kvw_key {
	const char *path; /* "routing.strategy"; for an entry of a list only "url" */
	const struct kvw_type *type;
	size_t offset;               /* offset of the key's member in the struct of values */
	const char *def, *min, *max; /* texts in YAML; min and max are "" where there is none */
	const char *text;            /* description for the reference page */
	const char *unit;            /* unit of the number; "" if the type makes it clear */
	bool reload;                 /* a reload applies a new value */
};

/* A mapping that contains keys. The first one of a schema, "", is the whole file. */
struct kvw_section {
	const char *path;
	const char *text; /* description for the reference page; may be "" */
};

/* Messages and pages have two wordings, since users and their scripts know both. */
enum kvw_wording {
	/* kvway's wording: "a whole number from 1 to 64"; pages say whether a changed key needs a
	 * restart. */
	KVW_WORDING_FULL,
	KVW_WORDING_BRIEF, /* of the cache: "1 to 64" */
};

/* All keys of one configuration; borrowed. A section comes after the section that contains it. */
struct kvw_schema {
	const struct kvw_key *keys;
	size_t key_count;
	const struct kvw_section *sections; /* [0] is the top */
	size_t section_count;
	/* name of a list at the top, in addition to sections and keys; NULL: none */
	const char *list;
	/* further paths, which walk.extra reads, ended by NULL; NULL: none */
	const char *const *extra;
	const char *const *names; /* names of strategies, for the type STRATEGY; else NULL */
	const char *one_of;       /* for messages about an entry of a list: a name for its keys */
	/* Pairs of an old and a new path ("": the key was removed), ended by NULL; NULL: no key was
	 * renamed. */
	const char *const *renamed;
	const char *such_as;      /* an example, for messages: "sections such as `l1:`" */
	enum kvw_wording wording;
};

/* Returns the index of the key with this full path; the number of keys if there is none. */
size_t kvw_schema_find_key(const struct kvw_schema *schema, const char *path);
size_t kvw_schema_find_section(const struct kvw_schema *schema, const char *path);

/* Returns the last part of a path that is directly below a section ("": the top); NULL: the path is
 * elsewhere. */
const char *kvw_name_in(const char *section, const char *path);

/* Converts a text to a value within the limits of the type and the key. After the text there must
 * be a NUL. KVW_EINVAL sets *fault, in any case its `expected`. The value of a text is on the heap,
 * and belongs to the caller. KVW_ENOMEM. */
enum kvw_err kvw_key_parse(const struct kvw_schema *schema, const struct kvw_key *key,
	struct kvw_slice text, union kvw_value *out, struct kvw_fault *fault) KVW_MUST_CHECK;

/* Returns whether YAML can express the member's value; if not, writes what was expected. Not for
 * texts. */
bool kvw_key_holds(const struct kvw_schema *schema, const struct kvw_key *key, const void *values,
	struct kvw_fault *fault);

/* Writes the member as YAML from which the same value is read; "" for an empty or missing text. Not
 * for secrets and lists. */
void kvw_key_print(const struct kvw_key *key, const void *values, char out[KVW_KEY_PRINT]);

/* Does the same for every type and any length, into memory on the heap that belongs to the caller.
 * A secret is written as "(secret)", an empty one as "\"\"". KVW_ENOMEM. */
enum kvw_err kvw_key_text(const struct kvw_key *key, const void *values, char **out) KVW_MUST_CHECK;

/* Returns whether the member has the same value in both structs. */
bool kvw_key_same(const struct kvw_key *key, const void *a, const void *b);

/* Replaces the member of `to`, which owns its texts and lists, by a copy of the one of `from`.
 * KVW_ENOMEM: `to` is not changed. */
enum kvw_err kvw_key_copy(const struct kvw_key *key, const void *from, void *to) KVW_MUST_CHECK;

/* Frees the texts and lists in a struct that owns them. */
void kvw_keys_release(const struct kvw_key *keys, size_t count, void *values);

#endif
