/*
 * document.h - a YAML text as a small tree in which every value knows its line and column.
 *
 * YAML is accepted as far as a configuration needs it: one document of mappings, lists and scalars
 * in UTF-8. Anchors, aliases and tags are refused by name: they make a value appear where the user
 * did not write it, so that a message could not give its place. A scalar's key determines its type,
 * never its form (`off` is a word, `8001` may be a name).
 */
#ifndef KVW_CONFIG_DOCUMENT_H
#define KVW_CONFIG_DOCUMENT_H

#include <stdbool.h>
#include <stddef.h>

#include "kvway/err.h"
#include "settings/report.h"

#define KVW_DOCUMENT_DEPTH 16      /* most levels of nesting; the configuration needs 4 */
#define KVW_DOCUMENT_NODES 200000u /* keys and values */

enum kvw_node_kind {
	KVW_NODE_SCALAR,
	KVW_NODE_LIST,
	KVW_NODE_MAP,
	KVW_NODE_BAD, /* a node with a mistake, which was reported: readers skip it */
};

/* Owned by its document. */
struct kvw_node {
	struct kvw_node *next;  /* next node of the same list or mapping */
	/* LIST: the first entry; MAP: the first value; in the order of the text */
	struct kvw_node *first;
	struct kvw_node *last;
	/* for a value in a mapping: its key, which is SCALAR or BAD; else NULL */
	struct kvw_node *key;
	/* the node that was created before this one: by this list the document frees its nodes */
	struct kvw_node *older;
	struct kvw_place place; /* its first character */
	enum kvw_node_kind kind;
	bool quoted;  /* SCALAR: written in quotes, or as a block */
	size_t count; /* LIST, MAP: values */
	size_t len;   /* SCALAR: bytes of the text, which may contain a NUL */
	char text[];  /* SCALAR: the text, with a NUL after its len bytes */
};

struct kvw_document {
	struct kvw_node *root; /* NULL: the text has no value */
	struct kvw_node *newest;
	size_t node_count;
};

/*
 * Reads `len` bytes. KVW_EINVAL: the text cannot be read as YAML; one line was added to `report`,
 * and there is nothing to release. KVW_OK: the tree is complete, but mistakes in it may have been
 * reported, too.
 */
enum kvw_err kvw_document_parse(const char *text, size_t len, struct kvw_report *report,
	struct kvw_document *out) KVW_MUST_CHECK;
/* Does the same with another limit on the number of nodes than KVW_DOCUMENT_NODES. */
enum kvw_err kvw_document_parse_most(const char *text, size_t len, size_t most,
	struct kvw_report *report, struct kvw_document *out) KVW_MUST_CHECK;
void kvw_document_finish(struct kvw_document *document);

/* Returns "a list", "a mapping" or "text", for messages. */
const char *kvw_node_kind_name(const struct kvw_node *node);

/* Returns whether a scalar is null: `key:`, `key: ~`, `key: null`. */
bool kvw_node_is_null(const struct kvw_node *node);

#endif
