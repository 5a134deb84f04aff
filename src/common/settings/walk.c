/*
 * walk.c - reads a document into a struct, by a schema.
 */
#include "settings/walk.h"

#include <stdlib.h>
#include <string.h>

#include "settings/suggest.h"
#include "settings/unknown.h"

static enum kvw_err walk_section(struct kvw_walk *w, size_t section, const struct kvw_node *map);

/* --- values ----------------------------------------------------------------------------------- */

struct kvw_given kvw_given_of(const struct kvw_node *node)
{
	return (struct kvw_given){
		.place = node->place, .text = {node->text, node->len}, .node = node};
}

const char *kvw_given_kind(const struct kvw_node *node)
{
	return kvw_node_is_null(node) ? "nothing" : kvw_node_kind_name(node);
}

/* Returns whether there is a text to parse. */
static bool is_text(const struct kvw_node *node)
{
	return node == NULL || (node->kind == KVW_NODE_SCALAR && !kvw_node_is_null(node));
}

/* Reports "found X, expected Y", the form of every mistake in a value. */
static void report_value(struct kvw_walk *w, const struct kvw_given *given, const char *shown,
	const struct kvw_type *type, const struct kvw_fault *fault)
{
	const char *found, *suggestion = fault->suggestion;
	bool suggest = suggestion[0] != '\0';
	char quoted[KVW_REPORT_QUOTE];

	if (fault->found != NULL)
		found = fault->found;
	else if (!is_text(given->node))
		found = kvw_given_kind(given->node);
	else if (given->text.len == 0)
		found = w->schema->wording == KVW_WORDING_BRIEF ? "an empty text" : "empty text";
	else if (type->secret)
		found = "a value that is not printed here";
	else
		found = kvw_report_quote(quoted, given->text.data, given->text.len);
	kvw_report_mistake(w->report, given->place, shown, "found %s, expected %s%s%s%s", found,
		fault->expected, suggest ? "; did you mean `" : "", suggestion,
		suggest ? "`?" : "");
}

/* Parses one scalar into *value. If *valid is false, a mistake was reported and *value is not
 * set. */
static enum kvw_err parse_scalar(struct kvw_walk *w, const struct kvw_key *key, const char *shown,
	const struct kvw_given *given, union kvw_value *value, bool *valid)
{
	struct kvw_slice text = given->text;
	struct kvw_fault fault;
	enum kvw_err err;

	if (!is_text(given->node))
		/* a text that no type accepts, so that the report has the expected form */
		text = KVW_SLICE("\x01");
	err = kvw_key_parse(w->schema, key, text, value, &fault);
	if (err == KVW_EINVAL)
		report_value(w, given, shown, key->type, &fault);
	*valid = err == KVW_OK;
	return err == KVW_ENOMEM ? err : KVW_OK;
}

/* Parses one entry of a list of texts. *text is NULL if a mistake was reported. */
static enum kvw_err parse_item(struct kvw_walk *w, const struct kvw_type *type, const char *shown,
	const struct kvw_node *node, char **text)
{
	const struct kvw_key item = {.type = type};
	struct kvw_given given = kvw_given_of(node);
	struct kvw_fault fault = {.expected = "text"};
	union kvw_value value;
	bool valid = false;
	enum kvw_err err = KVW_OK;

	*text = NULL;
	if (node->kind != KVW_NODE_BAD)
		err = parse_scalar(w, &item, shown, &given, &value, &valid);
	if (valid && value.text[0] == '\0') {
		report_value(w, &given, shown, type, &fault);
		free(value.text);
	} else if (valid) {
		*text = value.text;
	}
	return err;
}

/* Parses the entries of a list into *out, which then owns the parsed ones, even if *valid is
 * false. */
static enum kvw_err parse_items(struct kvw_walk *w, const struct kvw_key *key, const char *shown,
	const struct kvw_node *list, struct kvw_strings *out, bool *valid)
{
	char item_shown[KVW_SCHEMA_MAX_PATH + 32];
	size_t most = key->max[0] != '\0' ? strtoul(key->max, NULL, 10) : SIZE_MAX;
	enum kvw_err err = KVW_OK;
	size_t index = 0;

	if (list->count > most) {
		kvw_report_mistake(w->report, list->place, shown,
			"found %zu entries, expected at most %s", list->count, key->max);
		return KVW_OK;
	}
	*valid = true;
	if (list->count == 0)
		return KVW_OK;
	out->items = calloc(list->count, sizeof(*out->items));
	if (out->items == NULL)
		return KVW_ENOMEM;
	for (const struct kvw_node *item = list->first; item != NULL && err == KVW_OK;
		item = item->next) {
		char *text;

		snprintf(item_shown, sizeof(item_shown), "%s[%zu]", shown, index++);
		err = parse_item(w, key->type->item, item_shown, item, &text);
		if (text != NULL)
			out->items[out->count++] = text;
		else
			*valid = false;
	}
	return err;
}

static enum kvw_err set_list(struct kvw_walk *w, const struct kvw_key *key, const char *shown,
	const struct kvw_given *given, struct kvw_strings *field, bool *valid)
{
	struct kvw_fault fault = {0};
	char quoted[KVW_REPORT_QUOTE];

	if (given->node->kind == KVW_NODE_LIST)
		return parse_items(w, key, shown, given->node, field, valid);
	if (given->node->kind == KVW_NODE_SCALAR && given->text.len > 0) {
		kvw_report_quote(quoted, given->text.data, given->text.len);
		kvw_fault_suggest(&fault, "[%.*s]", (int)strlen(quoted) - 2, quoted + 1);
	}
	snprintf(fault.expected, sizeof(fault.expected), "%s", key->type->expected);
	report_value(w, given, shown, key->type, &fault);
	return KVW_OK;
}

enum kvw_err kvw_walk_value(struct kvw_walk *w, const struct kvw_key *key, const char *shown,
	const struct kvw_given *given, void *values, bool *valid)
{
	char *field = (char *)values + key->offset;
	union kvw_value value;
	enum kvw_err err;

	*valid = false;
	if (given->node != NULL && given->node->kind == KVW_NODE_BAD)
		return KVW_OK;
	if (key->type->item != NULL)
		return set_list(w, key, shown, given, (struct kvw_strings *)(void *)field, valid);
	err = parse_scalar(w, key, shown, given, &value, valid);
	if (*valid && key->type->owned && w->keep != NULL)
		err = w->keep(w, value.text);
	if (*valid && err == KVW_OK)
		memcpy(field, &value, key->type->size);
	return err;
}

enum kvw_err kvw_walk_key(struct kvw_walk *w, size_t key, const struct kvw_given *given)
{
	const struct kvw_key *what = &w->schema->keys[key];
	struct kvw_met *met = &w->met[key];

	if (met->given) {
		kvw_report_mistake(w->report,
			given->node != NULL ? given->node->key->place : given->place, what->path,
			"found a second time, expected once: first given in line %zu",
			met->place.line);
		return KVW_OK;
	}
	met->given = true;
	met->place = given->place;
	return kvw_walk_value(w, what, what->path, given, w->values, &met->valid);
}

/* --- sections --------------------------------------------------------------------------------- */

/* Returns a key of a section, as an example. */
static const char *first_name(const struct kvw_schema *schema, const char *section)
{
	const char *name = NULL;

	for (size_t i = 0; i < schema->key_count && name == NULL; i++)
		name = kvw_name_in(section, schema->keys[i].path);
	return name != NULL ? name : "";
}

static enum kvw_err on_section(struct kvw_walk *w, size_t section, const struct kvw_node *node)
{
	const char *path = w->schema->sections[section].path;

	if (w->section_lines[section] != 0) {
		kvw_report_mistake(w->report, node->key->place, path,
			"found a second time, expected once: first given in line %zu",
			w->section_lines[section]);
		return KVW_OK;
	}
	w->section_lines[section] = node->key->place.line;
	if (node->kind == KVW_NODE_MAP)
		return walk_section(w, section, node);
	if (node->kind != KVW_NODE_BAD && !kvw_node_is_null(node))
		kvw_report_mistake(w->report, node->place, path,
			"found %s, expected keys such as `%s:` below it, indented",
			kvw_node_kind_name(node), first_name(w->schema, path));
	return KVW_OK;
}

static bool is_extra(const struct kvw_schema *schema, const char *path)
{
	for (const char *const *name = schema->extra; name != NULL && *name != NULL; name++)
		if (strcmp(path, *name) == 0)
			return true;
	return false;
}

/* Reads one name in a section: a key, a section, the list, an extra name, or an unknown one. */
static enum kvw_err walk_name(struct kvw_walk *w, size_t section, const struct kvw_node *node)
{
	const struct kvw_schema *schema = w->schema;
	const char *parent = schema->sections[section].path;
	const struct kvw_given given = kvw_given_of(node);
	char path[KVW_SCHEMA_MAX_PATH];
	bool whole = node->key->len == strlen(node->key->text); /* no NUL inside */
	size_t key, inner;
	int n;

	n = snprintf(path, sizeof(path), "%s%s%s", parent, parent[0] != '\0' ? "." : "",
		node->key->text);
	whole = whole && n > 0 && (size_t)n < sizeof(path) && kvw_name_in(parent, path) != NULL;
	key = kvw_schema_find_key(schema, path);
	inner = kvw_schema_find_section(schema, path);
	if (whole && key < schema->key_count)
		return kvw_walk_key(w, key, &given);
	if (whole && inner < schema->section_count)
		return on_section(w, inner, node);
	if (whole && schema->list != NULL && strcmp(path, schema->list) == 0)
		return w->list(w, node);
	if (whole && is_extra(schema, path))
		return w->extra(w, node);
	kvw_report_unknown(w->report, schema, parent, path, node->key);
	return KVW_OK;
}

static enum kvw_err walk_section(struct kvw_walk *w, size_t section, const struct kvw_node *map)
{
	enum kvw_err err = KVW_OK;

	for (const struct kvw_node *node = map->first; node != NULL && err == KVW_OK;
		node = node->next)
		if (node->key->kind == KVW_NODE_SCALAR)
			err = walk_name(w, section, node);
	return err;
}

enum kvw_err kvw_walk_root(struct kvw_walk *w, const struct kvw_node *root)
{
	if (root == NULL || root->kind == KVW_NODE_BAD || kvw_node_is_null(root))
		return KVW_OK;
	if (root->kind == KVW_NODE_MAP)
		return walk_section(w, 0, root);
	kvw_report_mistake(w->report, root->place, NULL, "found %s, expected %s",
		kvw_node_kind_name(root), w->schema->such_as);
	return KVW_OK;
}

/* --- entries of a list ------------------------------------------------------------------------ */

static void report_unknown_of_entry(struct kvw_walk *w, const struct kvw_schema *entry,
	const struct kvw_node *key, const char *shown, const char *path)
{
	bool brief = entry->wording == KVW_WORDING_BRIEF;
	struct kvw_suggest near;

	kvw_suggest_start(&near, key->text);
	for (size_t i = 0; i < entry->key_count && !brief; i++)
		kvw_suggest_offer(&near, entry->keys[i].path, entry->keys[i].path);
	kvw_report_mistake(w->report, key->place, brief ? shown : path,
		"found an unknown key, expected %s%s%s%s", entry->one_of,
		near.best != NULL ? "; did you mean `" : "", near.best != NULL ? near.best : "",
		near.best != NULL ? "`?" : "");
}

static enum kvw_err walk_key_of_entry(struct kvw_walk *w, const struct kvw_schema *entry,
	const char *shown, const struct kvw_node *node, void *values, struct kvw_met *met)
{
	const struct kvw_given given = kvw_given_of(node);
	size_t key = kvw_schema_find_key(entry, node->key->text);
	char path[KVW_SCHEMA_MAX_PATH];

	snprintf(path, sizeof(path), "%s.%s", shown, node->key->text);
	if (key == entry->key_count ||
		(entry->wording == KVW_WORDING_BRIEF && /* kvway reads the text only up to a NUL */
			node->key->len != strlen(node->key->text))) {
		report_unknown_of_entry(w, entry, node->key, shown, path);
		return KVW_OK;
	}
	if (met[key].given) {
		kvw_report_mistake(
			w->report, node->key->place, path, "found a second time, expected once");
		return KVW_OK;
	}
	met[key].given = true;
	met[key].place = node->place;
	return kvw_walk_value(w, &entry->keys[key], path, &given, values, &met[key].valid);
}

enum kvw_err kvw_walk_entry(struct kvw_walk *w, const struct kvw_schema *entry, const char *list,
	size_t index, const struct kvw_node *node, void *values, struct kvw_met *met, bool *whole)
{
	enum kvw_err err = KVW_OK;
	char shown[48];

	*whole = node->kind == KVW_NODE_MAP;
	snprintf(shown, sizeof(shown), "%s[%zu]", list, index);
	if (!*whole && node->kind != KVW_NODE_BAD)
		kvw_report_mistake(w->report, node->place, shown,
			"found %s, expected an entry such as `%s`", kvw_given_kind(node),
			entry->such_as);
	if (!*whole)
		return KVW_OK;
	for (const struct kvw_node *n = node->first; n != NULL && err == KVW_OK; n = n->next)
		if (n->key->kind == KVW_NODE_SCALAR)
			err = walk_key_of_entry(w, entry, shown, n, values, met);
	return err;
}
