/*
 * lmcache_collect.c - finds the value that is given for each key, by a variable or else by the
 * file.
 *
 * LMCache reads its file with PyYAML, which silently takes the second of two equal keys: kvtier
 * does the same, and reports the key. Variables are LMCACHE_<KEY> with the value as text; the names
 * "lmcache.<key>" in vLLM's kv_connector_extra_config are in the same list, after the others.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "lmcache/lmcache.h"
#include "settings/suggest.h"

#define PREFIX     "LMCACHE_"
#define OVERRIDE   "lmcache."
#define NAME_MOST  96 /* room for a variable's name */
#define FILE_NAMED "LMCACHE_CONFIG_FILE"
#define OTHER_MODE "mp." /* prefix of keys for LMCache's multi-process mode */

/* --- names ------------------------------------------------------------------------------------ */

size_t kvt_lmcache_find(const char *name, bool extra)
{
	const struct kvt_lmcache_alias *alias = kvt_lmcache_aliases;

	while (!extra && alias->old != NULL && strcmp(alias->old, name) != 0)
		alias++;
	if (!extra && alias->old != NULL)
		name = alias->name;
	for (size_t i = 0; i < KVT_LMC_COUNT; i++)
		if (kvt_lmcache_keys[i].extra == extra &&
			strcmp(kvt_lmcache_keys[i].name, name) == 0)
			return i;
	return KVT_LMC_COUNT;
}

static bool is_one_of(const char *names, const char *name)
{
	for (size_t len; (len = strcspn(names, " ")) > 0; names += len + (names[len] == ' ')) {
		if (names[len - 1] == '*' && strncmp(name, names, len - 1) == 0)
			return true;
		if (strlen(name) == len && memcmp(name, names, len) == 0)
			return true;
	}
	return false;
}

/* Reports a key of a feature that kvtier does not have. Returns false if the name is no such key.
 * `path` is NULL if the place shows it. */
static bool collect_other(struct kvt_lmcache_reading *r, const char *name, bool extra,
	struct kvw_place place, const char *path)
{
	const struct kvt_lmcache_other *other = kvt_lmcache_others;

	while (other->names != NULL && (other->extra != extra || !is_one_of(other->names, name)))
		other++;
	if (other->names == NULL)
		return false;
	if (other->fate == KVT_LMCACHE_IGNORED)
		kvw_report_mistake(&r->notes.report, place, path, "ignored: %s", other->text);
	else
		kvw_report_mistake(
			&r->mistakes.report, place, path, "cannot be had: %s", other->text);
	return true;
}

/* Returns the known name that is nearest to this one, or NULL. */
static const char *nearest(const char *name, bool extra)
{
	struct kvw_suggest near;

	if (strncmp(name, "resp_", 5) == 0) /* these variables of LMCache are no keys */
		return NULL;
	kvw_suggest_start(&near, name);
	for (size_t i = 0; i < KVT_LMC_COUNT; i++)
		if (kvt_lmcache_keys[i].extra == extra)
			kvw_suggest_offer(
				&near, kvt_lmcache_keys[i].name, kvt_lmcache_keys[i].name);
	return near.best;
}

const char *kvt_lmcache_variable(const char *const *variables, const char *name, size_t len)
{
	const char *found = NULL;

	for (; variables != NULL && *variables != NULL; variables++)
		if (strncmp(*variables, name, len) == 0 && (*variables)[len] == '=')
			found = *variables + len + 1;
	return found;
}

/* Splits "LMCACHE_CHUNK_SIZE=256" or "lmcache.chunk_size=256" into key and value. Returns false if
 * it is no such variable. */
static bool take_apart(const char *variable, char name[NAME_MOST], const char **value)
{
	size_t before = sizeof(PREFIX) - 1;
	const char *equal = strchr(variable, '=');
	bool upper = strncmp(variable, PREFIX, before) == 0;
	size_t len;

	if (equal == NULL || (!upper && strncmp(variable, OVERRIDE, before) != 0))
		return false;
	len = (size_t)(equal - variable) - before;
	if (len == 0 || len >= NAME_MOST)
		return false;
	for (size_t i = 0; i < len; i++) {
		char c = variable[before + i];

		name[i] = upper ? (char)tolower((unsigned char)c) : c;
		if (upper && islower((unsigned char)c))
			return false;
	}
	name[len] = '\0';
	*value = equal + 1;
	return true;
}

/* Returns whether the name is, or may be a misspelt, key. In vLLM's list that is every name except
 * those of the other mode. */
static bool is_meant(const char *variable, const char *name)
{
	if (kvt_lmcache_find(name, false) < KVT_LMC_OUTER || nearest(name, false) != NULL)
		return true;
	return variable[0] == OVERRIDE[0] && strncmp(name, OTHER_MODE, sizeof(OTHER_MODE) - 1) != 0;
}

bool kvt_lmcache_has_variables(const char *const *variables)
{
	char name[NAME_MOST];
	const char *value;

	for (; variables != NULL && *variables != NULL; variables++)
		if (strncmp(*variables, FILE_NAMED "=", sizeof(FILE_NAMED)) == 0 ||
			(take_apart(*variables, name, &value) && is_meant(*variables, name)))
			return true;
	return false;
}

/* --- from YAML -------------------------------------------------------------------------------- */

static void set_node(struct kvt_lmcache_value *value, const struct kvw_node *node)
{
	value->given = true;
	value->node = node;
	value->text = node->kind == KVW_NODE_SCALAR ? node->text : NULL;
	value->len = node->len;
	value->quoted = node->quoted;
}

/* Collects a key at the top level of the file. */
static void collect_key(struct kvt_lmcache_reading *r, const struct kvw_node *node)
{
	const struct kvw_node *key = node->key;
	size_t i =
		strlen(key->text) == key->len ? kvt_lmcache_find(key->text, false) : KVT_LMC_COUNT;
	struct kvt_lmcache_value *value = &r->values[i < KVT_LMC_COUNT ? i : 0];
	const char *near = NULL;

	r->given++;
	if (i < KVT_LMC_COUNT) {
		if (value->given)
			kvw_report_mistake(&r->mistakes.report, key->place, key->text,
				"found a second time, expected once: first given in line %zu; this "
				"one applies",
				value->place.line);
		set_node(value, node);
		value->place = node->place;
		return;
	}
	if (strlen(key->text) == key->len &&
		collect_other(r, key->text, false, key->place, key->text))
		return;
	if (kvw_report_printing(&r->mistakes.report))
		near = nearest(key->text, false);
	kvw_report_mistake(&r->mistakes.report, key->place, key->text,
		near != NULL ? "found a key that LMCache does not have, and that has no effect; "
			       "did you mean `%s`?"
			     : "found a key that LMCache does not have, and that has no effect%s",
		near != NULL ? near : "");
}

static void collect_file(
	struct kvt_lmcache_reading *r, const char *name, const char *yaml, size_t len)
{
	struct kvw_place start = {.line = 1, .column = 1};
	const struct kvw_node *root;

	if (len > KVT_SETTINGS_MAX_BYTES) {
		kvw_report_mistake(&r->mistakes.report, start, NULL,
			"found more than %u bytes, expected a configuration; running without it",
			KVT_SETTINGS_MAX_BYTES);
		return;
	}
	r->name = name;
	r->err = kvw_document_parse(len > 0 ? yaml : "", len, &r->mistakes.report, &r->file);
	if (r->err == KVW_EINVAL) { /* the mistake was reported; reading goes on without the file */
		r->err = KVW_OK;
		return;
	}
	root = r->file.root;
	if (r->err != KVW_OK || root == NULL || kvw_node_is_null(root) ||
		root->kind == KVW_NODE_BAD)
		return;
	if (root->kind != KVW_NODE_MAP) {
		kvw_report_mistake(&r->mistakes.report, root->place, NULL,
			"found %s, expected keys such as `chunk_size: 256`; running without it",
			kvw_node_kind_name(root));
		return;
	}
	for (const struct kvw_node *node = root->first; node != NULL; node = node->next)
		if (node->key->kind == KVW_NODE_SCALAR)
			collect_key(r, node);
}

/* --- from variables --------------------------------------------------------------------------- */

/* Returns the length of the character at c if YAML allows it, else 0. */
static size_t character(const unsigned char *c)
{
	uint32_t code = c[0];
	size_t size = c[0] < 0x80 ? 1 : c[0] < 0xC2 ? 0 : c[0] < 0xE0 ? 2 : c[0] < 0xF0 ? 3 : 4;

	if (size == 0 || c[0] > 0xF4)
		return 0;
	code &= size == 1 ? 0x7F : 0xFFu >> (size + 1);
	for (size_t i = 1; i < size; i++) {
		if ((c[i] & 0xC0) != 0x80) /* this also fails for the NUL at the end */
			return 0;
		code = code << 6 | (c[i] & 0x3Fu);
	}
	if ((size == 3 && code < 0x800) || (size == 4 && (code < 0x10000 || code > 0x10FFFF)))
		return 0;
	return (code >= 0xD800 && code < 0xE000) || code == 0xFFFE || code == 0xFFFF ? 0 : size;
}

bool kvt_lmcache_is_text(const char *text)
{
	const unsigned char *c = (const unsigned char *)text;

	while (*c != '\0') {
		size_t size = character(c);

		if (size == 0)
			return false;
		c += size;
	}
	return true;
}

static bool is_list(enum kvt_lmcache_type type)
{
	return type == KVT_LMCACHE_COUNTS || type == KVT_LMCACHE_NUMBERS ||
	       type == KVT_LMCACHE_TEXTS;
}

/* Sets the text of a variable, without white space around it, a pair of quotes, and the brackets of
 * a list. */
static enum kvw_err set_text(
	struct kvt_lmcache_value *value, enum kvt_lmcache_type type, const char *text)
{
	size_t len;

	text += strspn(text, " \t\r\n");
	len = strlen(text);
	while (len > 0 && strchr(" \t\r\n", text[len - 1]) != NULL)
		len--;
	if (len >= 2 && (text[0] == '"' || text[0] == '\'') && text[len - 1] == text[0]) {
		text++;
		len -= 2;
	}
	if (len >= 2 && is_list(type) && text[0] == '[' && text[len - 1] == ']') {
		text++;
		len -= 2;
	}
	value->copy = strndup(text, len);
	value->given = value->copy != NULL;
	value->text = value->copy;
	value->len = len;
	value->quoted = true;
	return value->given ? KVW_OK : KVW_ENOMEM;
}

/* Parses a text that contains a mapping, as YAML, of which JSON is a part. `name` is the text's
 * name in messages. */
static void parse_map(
	struct kvt_lmcache_reading *r, struct kvt_lmcache_value *value, const char *name)
{
	struct kvw_report report;

	kvw_report_start(&report, name, r->mistakes.file);
	kvw_document_finish(&r->extra);
	r->err = kvw_document_parse(value->text, value->len, &report, &r->extra);
	r->mistakes.report.mistakes += report.mistakes;
	value->given = r->err == KVW_OK && r->extra.root != NULL;
	if (value->given)
		set_node(value, r->extra.root);
	if (r->err == KVW_EINVAL)
		r->err = KVW_OK;
}

static void collect_unknown(struct kvt_lmcache_reading *r, const char *variable, const char *name)
{
	struct kvw_place place = {.flag = variable};
	const char *near = nearest(name, false);
	char label[KVT_LMCACHE_LABEL], shown[KVW_REPORT_QUOTE];

	kvw_report_quote(shown, variable, strcspn(variable, "="));
	snprintf(label, sizeof(label), "%.*s", (int)strlen(shown) - 2, shown + 1);
	place.flag = label;
	if (collect_other(r, name, false, place, NULL))
		return;
	if (near != NULL)
		kvw_report_mistake(&r->mistakes.report, place, NULL,
			"found a key that LMCache does not have, and that has no effect; did you "
			"mean `%s`?",
			near);
	else if (strncmp(variable, OVERRIDE, sizeof(OVERRIDE) - 1) == 0)
		kvw_report_mistake(&r->mistakes.report, place, NULL,
			"found a key that LMCache does not have, and that has no effect");
}

static void collect_variable(struct kvt_lmcache_reading *r, const char *variable)
{
	struct kvt_lmcache_value *value;
	char name[NAME_MOST];
	const char *text;
	size_t key;

	if (!take_apart(variable, name, &text) ||
		strncmp(variable, FILE_NAMED "=", sizeof(FILE_NAMED)) == 0)
		return;
	key = kvt_lmcache_find(name, false);
	if (key == KVT_LMC_COUNT) {
		collect_unknown(r, variable, name);
		return;
	}
	value = &r->values[key];
	r->given++;
	free(value->copy);
	*value = (struct kvt_lmcache_value){0};
	snprintf(value->label, sizeof(value->label), "%.*s", (int)strcspn(variable, "="), variable);
	value->place.flag = value->label;
	if (!kvt_lmcache_is_text(text)) {
		kvw_report_mistake(&r->mistakes.report, value->place, NULL,
			"found bytes that are not UTF-8, expected text");
		return;
	}
	r->err = set_text(value, kvt_lmcache_keys[key].type, text);
	if (r->err == KVW_OK && kvt_lmcache_keys[key].type == KVT_LMCACHE_MAP)
		parse_map(r, value, value->label);
}

/* In the file, extra_config may be a text, too: LMCache converts both in the same way. */
static void parse_extra(struct kvt_lmcache_reading *r)
{
	struct kvt_lmcache_value *whole = &r->values[KVT_LMC_extra_config];
	char name[512];

	if (!whole->given || whole->label[0] != '\0' || whole->node->kind != KVW_NODE_SCALAR ||
		kvw_node_is_null(whole->node))
		return;
	if (whole->len == 0) { /* for LMCache an empty text is no mapping */
		whole->given = false;
		return;
	}
	snprintf(name, sizeof(name), "%.400s:%zu:%zu: extra_config", r->name, whole->place.line,
		whole->place.column);
	parse_map(r, whole, name);
}

/* Divides extra_config into its keys. */
static void collect_extra(struct kvt_lmcache_reading *r)
{
	const struct kvt_lmcache_value *whole = &r->values[KVT_LMC_extra_config];

	if (!whole->given || whole->node == NULL || whole->node->kind != KVW_NODE_MAP)
		return;
	for (const struct kvw_node *node = whole->node->first; node != NULL; node = node->next) {
		size_t i = KVT_LMC_COUNT;
		struct kvt_lmcache_value *value, unknown = {0};

		if (node->key->kind != KVW_NODE_SCALAR)
			continue;
		if (strlen(node->key->text) == node->key->len)
			i = kvt_lmcache_find(node->key->text, true);
		value = i < KVT_LMC_COUNT ? &r->values[i] : &unknown;
		set_node(value, node);
		value->place = whole->node == r->extra.root ? whole->place : node->place;
		if (whole->label[0] != '\0') {
			char shown[KVW_REPORT_QUOTE];

			kvw_report_quote(shown, node->key->text, node->key->len);
			snprintf(value->label, sizeof(value->label), "%.*s.%.*s",
				(int)strlen(whole->label), whole->label, (int)strlen(shown) - 2,
				shown + 1);
			value->place.flag = value->label;
		}
		if (i == KVT_LMC_COUNT) {
			char path[KVT_LMCACHE_LABEL];

			snprintf(path, sizeof(path), "extra_config.%.80s", node->key->text);
			if (strlen(node->key->text) != node->key->len ||
				!collect_other(r, node->key->text, true, value->place, path))
				kvw_report_mistake(&r->notes.report, value->place, path,
					"ignored: LMCache 0.5.6 has no such key of its own");
		}
	}
}

void kvt_lmcache_collect(
	struct kvt_lmcache_reading *r, const char *name, const char *yaml, size_t len)
{
	const char *const *variables = r->source->variables;

	if (yaml != NULL)
		collect_file(r, name, yaml, len);
	for (; r->err == KVW_OK && variables != NULL && *variables != NULL; variables++)
		collect_variable(r, *variables);
	if (r->err == KVW_OK)
		parse_extra(r);
	if (r->err == KVW_OK)
		collect_extra(r);
}

/* --- the owner of a file ---------------------------------------------------------------------- */

static bool is_ours(const char *name)
{
	return kvt_setting_find(name) < KVT_SETTING_COUNT ||
	       kvt_setting_find_section(name) < KVT_SETTING_SECTION_COUNT;
}

/* Returns whether the keys of a mapping are LMCache's. *known: at least one of them is only
 * LMCache's or only kvtier's. */
static bool has_theirs(const struct kvw_node *map, bool *known)
{
	size_t theirs = 0, ours = 0;

	for (const struct kvw_node *n = map->first; n != NULL; n = n->next) {
		theirs += kvt_lmcache_find(n->key->text, false) < KVT_LMC_OUTER;
		ours += is_ours(n->key->text);
	}
	*known = theirs + ours > 0;
	for (const struct kvw_node *n = map->first; n != NULL && !*known; n = n->next) {
		theirs = nearest(n->key->text, false) != NULL;
		*known = theirs > 0;
	}
	return theirs > ours;
}

bool kvt_lmcache_is_likely(const char *name, const char *yaml, size_t len)
{
	struct kvw_report report = {.name = name, .mistakes = KVW_REPORT_MOST}; /* prints nothing */
	const char *base = strrchr(name, '/');
	struct kvw_document document = {0};
	bool likely = strcasestr(base != NULL ? base : name, "lmcache") != NULL;
	bool known = false, theirs = false;

	if (len <= KVT_SETTINGS_MAX_BYTES &&
		kvw_document_parse(yaml, len, &report, &document) == KVW_OK &&
		document.root != NULL && document.root->kind == KVW_NODE_MAP)
		theirs = has_theirs(document.root, &known);
	kvw_document_finish(&document);
	return known ? theirs : likely;
}
