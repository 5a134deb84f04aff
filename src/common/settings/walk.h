/*
 * walk.h - from a document to a struct, by a schema.
 *
 * The tree is walked once in the order of the file: sections are descended into, keys are looked
 * up, values parsed and written to their members. Every mistake is a line of the report, and the
 * walk goes on, so that one run finds all of them; a key with a mistake leaves its member as it
 * was. What fits together is not looked at here: rules between keys come after the walk and find in
 * `met` what was given where.
 */
#ifndef KVW_CONFIG_WALK_H
#define KVW_CONFIG_WALK_H

#include "settings/document.h"
#include "settings/key.h"
#include "settings/report.h"

/* A value as it was written. */
struct kvw_given {
	struct kvw_place place;
	struct kvw_slice text;       /* of a scalar; ends with a NUL beyond its length */
	const struct kvw_node *node; /* NULL: a flag or a default, which is a scalar */
};

/* What became of one key. */
struct kvw_met {
	struct kvw_place place; /* of its value */
	bool given;
	bool valid; /* the member has the value */
};

/* One pass over one document. All borrowed. */
struct kvw_walk {
	const struct kvw_schema *schema;
	struct kvw_report *report;
	void *values;          /* the struct that offsets count from */
	struct kvw_met *met;   /* [key_count], zeroed */
	size_t *section_lines; /* [section_count], zeroed */

	/* What stands under schema->list; NULL where there is no list. */
	enum kvw_err (*list)(struct kvw_walk *walk, const struct kvw_node *list);
	/* The same for each of schema->extra; `value->key` says which. */
	enum kvw_err (*extra)(struct kvw_walk *walk, const struct kvw_node *value);
	/* Takes a parsed text that a member now points at. NULL: the member owns it. */
	enum kvw_err (*keep)(struct kvw_walk *walk, char *text);
};

/* These return KVW_ENOMEM or KVW_OK; mistakes are in the report. */

/* A whole document; NULL: an empty one. */
enum kvw_err kvw_walk_root(struct kvw_walk *walk, const struct kvw_node *root) KVW_MUST_CHECK;

/* The key with this index. Twice is a mistake. */
enum kvw_err kvw_walk_key(
	struct kvw_walk *walk, size_t key, const struct kvw_given *given) KVW_MUST_CHECK;

/* One value into its member of `values`, reported under `shown`. */
enum kvw_err kvw_walk_value(struct kvw_walk *walk, const struct kvw_key *key, const char *shown,
	const struct kvw_given *given, void *values, bool *valid) KVW_MUST_CHECK;

/* Entry `index` of the list of this name, a mapping of the keys of `entry`, into `values`. *whole:
 * it was a mapping. met: [entry->key_count], zeroed. */
enum kvw_err kvw_walk_entry(struct kvw_walk *walk, const struct kvw_schema *entry, const char *list,
	size_t index, const struct kvw_node *node, void *values, struct kvw_met *met,
	bool *whole) KVW_MUST_CHECK;

struct kvw_given kvw_given_of(const struct kvw_node *node);

/* "nothing", "a list", "a mapping" or "text", for messages. */
const char *kvw_given_kind(const struct kvw_node *node);

#endif
