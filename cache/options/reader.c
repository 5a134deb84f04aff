/*
 * reader.c - see reader.h.
 */
#include "options/reader.h"

#include <stdlib.h>
#include <string.h>

#include "settings/unknown.h"

static enum kvw_err walk_section(struct kvt_reader *r, size_t section, const struct kvw_node *map);

/* --- values ----------------------------------------------------------------------------------- */

static enum kvw_err keep_text(struct kvt_reader *r, char *text)
{
	struct kvt_config_texts *kept = malloc(sizeof(*kept));

	if (kept == NULL) {
		free(text);
		return KVW_ENOMEM;
	}
	kept->text = text;
	kept->next = r->texts;
	r->texts = kept;
	return KVW_OK;
}

static void report_value(struct kvt_reader *r, const char *path, const struct kvw_node *node,
	const struct kvw_fault *fault)
{
	char quoted[KVW_REPORT_QUOTE];
	const char *found = fault->found;

	if (found == NULL)
		found = node->len == 0 ? "an empty text"
				       : kvw_report_quote(quoted, node->text, node->len);
	if (fault->suggestion[0] != '\0')
		kvw_report_mistake(&r->report, node->place, path,
			"found %s, expected %s; did you mean `%s`?", found, fault->expected,
			fault->suggestion);
	else
		kvw_report_mistake(&r->report, node->place, path, "found %s, expected %s", found,
			fault->expected);
}

enum kvw_err kvt_reader_value(struct kvt_reader *r, const struct kvw_key *setting, const char *path,
	const struct kvw_node *node, void *values)
{
	struct kvw_slice text = {node->text, node->len};
	union kvw_value value;
	struct kvw_fault fault;
	enum kvw_err err;

	if (node->kind == KVW_NODE_BAD)
		return KVW_OK;
	if (node->kind != KVW_NODE_SCALAR || kvw_node_is_null(node)) {
		/* What would have been right, from a text that no type accepts. */
		err = kvw_key_parse(r->table, setting, KVW_SLICE("\x01"), &value, &fault);
		fault.found = node->kind == KVW_NODE_SCALAR ? "nothing" : kvw_node_kind_name(node);
	} else {
		err = kvw_key_parse(r->table, setting, text, &value, &fault);
	}
	if (err == KVW_EINVAL) {
		report_value(r, path, node, &fault);
		return KVW_OK;
	}
	if (err == KVW_OK && setting->type->owned)
		err = keep_text(r, value.text);
	if (err == KVW_OK)
		memcpy((char *)values + setting->offset, &value, setting->type->size);
	return err;
}

static enum kvw_err on_key(struct kvt_reader *r, size_t key, const struct kvw_node *node)
{
	const struct kvw_key *setting = &r->table->keys[key];

	if (r->given[key].line != 0) {
		kvw_report_mistake(&r->report, node->key->place, setting->path,
			"found a second time, expected once: first given in line %zu",
			r->given[key].line);
		return KVW_OK;
	}
	r->given[key] = node->place;
	return kvt_reader_value(r, setting, setting->path, node, r->values);
}

static const char *first_name(const struct kvw_schema *table, const char *section)
{
	const char *name = NULL;

	for (size_t i = 0; i < table->key_count && name == NULL; i++)
		name = kvw_name_in(section, table->keys[i].path);
	return name != NULL ? name : "";
}

static enum kvw_err on_section(struct kvt_reader *r, size_t section, const struct kvw_node *node)
{
	const char *path = r->table->sections[section].path;

	if (r->section_lines[section] != 0) {
		kvw_report_mistake(&r->report, node->key->place, path,
			"found a second time, expected once: first given in line %zu",
			r->section_lines[section]);
		return KVW_OK;
	}
	r->section_lines[section] = node->key->place.line;
	if (node->kind == KVW_NODE_MAP)
		return walk_section(r, section, node);
	if (node->kind != KVW_NODE_BAD && !kvw_node_is_null(node))
		kvw_report_mistake(&r->report, node->place, path,
			"found %s, expected keys such as `%s:` below it, indented",
			kvw_node_kind_name(node), first_name(r->table, path));
	return KVW_OK;
}

static size_t find_key(const struct kvw_schema *table, const char *path)
{
	size_t i = 0;

	while (i < table->key_count && strcmp(table->keys[i].path, path) != 0)
		i++;
	return i;
}

static size_t find_section(const struct kvw_schema *table, const char *path)
{
	size_t i = 0;

	while (i < table->section_count && strcmp(table->sections[i].path, path) != 0)
		i++;
	return i;
}

/* One name of a section: a key, a section in it, something else, or unknown. */
static enum kvw_err walk_name(struct kvt_reader *r, size_t section, const struct kvw_node *node)
{
	const char *parent = r->table->sections[section].path;
	char path[KVW_SCHEMA_MAX_PATH];
	bool whole = node->key->len == strlen(node->key->text); /* no NUL inside */
	bool taken = false;
	enum kvw_err err = KVW_OK;
	size_t key, inner;
	int n;

	n = snprintf(path, sizeof(path), "%s%s%s", parent, parent[0] != '\0' ? "." : "",
		node->key->text);
	whole = whole && n > 0 && (size_t)n < sizeof(path) && kvw_name_in(parent, path) != NULL;
	key = find_key(r->table, path);
	inner = find_section(r->table, path);
	if (whole && key < r->table->key_count)
		return on_key(r, key, node);
	if (whole && inner < r->table->section_count)
		return on_section(r, inner, node);
	if (whole && r->other != NULL)
		err = r->other(r, path, node, &taken);
	if (err == KVW_OK && !taken)
		kvw_report_unknown(&r->report, r->table, parent, path, node->key);
	return err;
}

static enum kvw_err walk_section(struct kvt_reader *r, size_t section, const struct kvw_node *map)
{
	enum kvw_err err = KVW_OK;

	for (const struct kvw_node *node = map->first; node != NULL && err == KVW_OK;
		node = node->next)
		if (node->key->kind == KVW_NODE_SCALAR)
			err = walk_name(r, section, node);
	return err;
}

static enum kvw_err walk_root(struct kvt_reader *r, const struct kvw_node *root)
{
	if (root == NULL || root->kind == KVW_NODE_BAD || kvw_node_is_null(root))
		return KVW_OK;
	if (root->kind == KVW_NODE_MAP)
		return walk_section(r, 0, root);
	kvw_report_mistake(&r->report, root->place, NULL, "found %s, expected %s",
		kvw_node_kind_name(root), r->table->such_as);
	return KVW_OK;
}

/* --- what must hold between keys -------------------------------------------------------------- */

static bool is_empty(const char *text)
{
	return text == NULL || text[0] == '\0';
}

static void check_pauses(
	struct kvt_reader *r, size_t first, struct kvt_config *now, const struct kvt_config *before)
{
	size_t open = first + KVT_SETTING_breaker_open_ns;
	size_t most = first + KVT_SETTING_breaker_open_max_ns;
	size_t at = r->given[most].line != 0 ? most : open;

	if (now->breaker_open_max_ns >= now->breaker_open_ns ||
		(r->given[open].line == 0 && r->given[most].line == 0))
		return;
	kvw_report_mistake(&r->report, r->given[at], r->table->keys[at].path,
		"found a longest pause that is shorter than the first one, expected %s to be at "
		"least %s",
		r->table->keys[most].path, r->table->keys[open].path);
	now->breaker_open_ns = before->breaker_open_ns;
	now->breaker_open_max_ns = before->breaker_open_max_ns;
}

static void check_replay(
	struct kvt_reader *r, size_t first, struct kvt_config *now, const struct kvt_config *before)
{
	const struct kvw_place *place = &r->given[first + KVT_SETTING_events_replay];
	const char *replay = r->table->keys[first + KVT_SETTING_events_replay].path;
	const char *publish = r->table->keys[first + KVT_SETTING_events_publish].path;

	if (place->line == 0 || is_empty(now->events_replay))
		return;
	if (is_empty(now->events_publish)) {
		kvw_report_mistake(&r->report, *place, replay,
			"found an address for replay but nothing to replay, expected `%s` to be "
			"set too",
			publish);
	} else if (strcmp(now->events_publish, now->events_replay) == 0) {
		kvw_report_mistake(&r->report, *place, replay,
			"found the address of `%s`, expected an address of its own", publish);
	} else {
		return;
	}
	now->events_replay = before->events_replay;
}

void kvt_reader_cache_rules(
	struct kvt_reader *r, size_t first, struct kvt_config *now, const struct kvt_config *before)
{
	check_pauses(r, first, now, before);
	check_replay(r, first, now, before);
}

/* --- the whole -------------------------------------------------------------------------------- */

enum kvw_err kvt_reader_init(struct kvt_reader *r, const struct kvw_schema *table, void *values)
{
	memset(r, 0, sizeof(*r));
	r->table = table;
	r->values = values;
	r->given = calloc(table->key_count, sizeof(*r->given));
	r->section_lines = calloc(table->section_count, sizeof(*r->section_lines));
	if (r->given != NULL && r->section_lines != NULL)
		return KVW_OK;
	kvt_reader_finish(r);
	return KVW_ENOMEM;
}

void kvt_reader_finish(struct kvt_reader *r)
{
	kvt_config_texts_free(r->texts);
	free(r->given);
	free(r->section_lines);
	r->texts = NULL;
	r->given = NULL;
	r->section_lines = NULL;
}

enum kvw_err kvt_reader_read(struct kvt_reader *r, const char *yaml, size_t len)
{
	struct kvw_document document = {0};
	struct kvw_place start = {.line = 1, .column = 1};
	enum kvw_err err;

	if (len > KVT_SETTINGS_MAX_BYTES) {
		kvw_report_mistake(&r->report, start, NULL,
			"found more than %u bytes, expected a configuration",
			KVT_SETTINGS_MAX_BYTES);
		return KVW_EINVAL;
	}
	err = kvw_document_parse(len > 0 ? yaml : "", len, &r->report, &document);
	if (err != KVW_OK)
		return err;
	err = walk_root(r, document.root);
	kvw_document_finish(&document);
	return err;
}

void kvt_config_texts_free(struct kvt_config_texts *texts)
{
	while (texts != NULL) {
		struct kvt_config_texts *next = texts->next;

		free(texts->text);
		free(texts);
		texts = next;
	}
}
