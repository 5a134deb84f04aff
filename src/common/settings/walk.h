/*
 * walk.h - reads a document into a struct, by a schema.
 *
 * The walk visits the tree once in the order of the file: it descends into sections, looks up keys,
 * parses values and writes them to their members. Every mistake is a line of the report, and the
 * walk goes on, so that one run finds all mistakes; a key with a mistake leaves its member as it
 * was. The walk checks no rules between keys: those follow the walk and find the given keys and
 * their places in `met`.
 */
#ifndef KVW_CONFIG_WALK_H
#define KVW_CONFIG_WALK_H

#include "settings/document.h"
#include "settings/key.h"
#include "settings/report.h"

/* A value as it was written. */
struct kvw_given {
	struct kvw_place place;
	struct kvw_slice text;       /* text of a scalar, with a NUL after it */
	/* NULL: the value comes from a flag or a default, so it is a scalar */
	const struct kvw_node *node;
};

/* The result of reading one key. */
struct kvw_met {
	struct kvw_place place; /* place of its value */
	bool given;
	bool valid; /* the member was set to the value */
};

/* One pass over one document. All pointers are borrowed. */
struct kvw_walk {
	const struct kvw_schema *schema;
	struct kvw_report *report;
	void *values;          /* the struct from which offsets of members count */
	struct kvw_met *met;   /* [key_count], zeroed */
	size_t *section_lines; /* [section_count], zeroed */

	/* Reads the value of the list that schema->list names. NULL: there is no list. */
	enum kvw_err (*list)(struct kvw_walk *walk, const struct kvw_node *list);
	/* Reads the value of a name in schema->extra; `value->key` has the name. */
	enum kvw_err (*extra)(struct kvw_walk *walk, const struct kvw_node *value);
	/* Takes over a parsed text to which a member now points. NULL: the member owns it. */
	enum kvw_err (*keep)(struct kvw_walk *walk, char *text);
};

/* The functions below return KVW_ENOMEM or KVW_OK; mistakes are reported. */

/* Reads a whole document; NULL: an empty one. */
enum kvw_err kvw_walk_root(struct kvw_walk *walk, const struct kvw_node *root) KVW_MUST_CHECK;

/* Reads the value of the key with this index. A repeated key is a mistake. */
enum kvw_err kvw_walk_key(
	struct kvw_walk *walk, size_t key, const struct kvw_given *given) KVW_MUST_CHECK;

/* Reads one value into its member of `values`; mistakes are reported under the name `shown`. */
enum kvw_err kvw_walk_value(struct kvw_walk *walk, const struct kvw_key *key, const char *shown,
	const struct kvw_given *given, void *values, bool *valid) KVW_MUST_CHECK;

/* Reads entry `index` of the list of this name, a mapping with the keys of `entry`, into `values`.
 * *whole: the entry was a mapping. met has entry->key_count entries, all zeroes. */
enum kvw_err kvw_walk_entry(struct kvw_walk *walk, const struct kvw_schema *entry, const char *list,
	size_t index, const struct kvw_node *node, void *values, struct kvw_met *met,
	bool *whole) KVW_MUST_CHECK;

struct kvw_given kvw_given_of(const struct kvw_node *node);

/* Returns "nothing", "a list", "a mapping" or "text", for messages. */
const char *kvw_given_kind(const struct kvw_node *node);

#endif
