/*
 * manifest.c - reads a manifest by the table of fields.
 *
 * The types of Kubernetes itself (probes, volumes, affinity) are not checked here: they are passed
 * on, and the cluster checks them. The table's regular expressions are matched against short texts
 * only, because no longer text can match.
 */
#include "render/manifest.h"

#include <inttypes.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "settings/suggest.h"

#define LONGEST    4096 /* most bytes of a text for which there is an expression */
#define PATH_ROOM  256
#define QUANTITY   "^[0-9]+(\\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e[0-9]+)?$"
#define NAME_START "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"

struct reader {
	struct kvw_manifest *manifest;
	struct kvw_report *mistakes, *notes;
};

static void wrong(
	struct reader *r, const struct kvw_node *node, const char *path, const char *expected)
{
	char quoted[KVW_REPORT_QUOTE];
	const char *found = kvw_node_kind_name(node);

	if (node->kind == KVW_NODE_BAD) {
		r->mistakes->mistakes++;
		return;
	}
	if (kvw_node_is_null(node))
		found = "nothing";
	else if (node->kind == KVW_NODE_SCALAR)
		found = kvw_report_quote(quoted, node->text, node->len);
	kvw_report_mistake(
		r->mistakes, node->place, path, "found %s, expected %s", found, expected);
}

bool kvw_manifest_fits(const char *text, const char *expression)
{
	regex_t compiled;
	bool fits;

	if (expression[0] == '\0')
		return true;
	if (strlen(text) > LONGEST || regcomp(&compiled, expression, REG_EXTENDED | REG_NOSUB) != 0)
		return false;
	fits = regexec(&compiled, text, 0, NULL, 0) == 0;
	regfree(&compiled);
	return fits;
}

/* Returns whether a text is one of the words between `|`. */
static bool is_word(const char *text, const char *words, bool anycase)
{
	size_t len = strlen(text);

	for (const char *word = words; *word != '\0';) {
		size_t its = strcspn(word, "|");

		if (its == len && (anycase ? strncasecmp : strncmp)(word, text, len) == 0)
			return true;
		word += its + (word[its] == '|');
	}
	return false;
}

static void expect_words(struct reader *r, const struct kvw_node *node, const char *path,
	const struct kvw_field *field)
{
	char expected[256] = "";
	struct kvw_suggest near;
	char words[8][64];
	size_t count = 0;

	kvw_suggest_start(&near, node->kind == KVW_NODE_SCALAR ? node->text : "");
	for (const char *word = field->limit; *word != '\0' && count < 8; count++) {
		size_t len = strcspn(word, "|"), used = strlen(expected);

		snprintf(words[count], sizeof(words[0]), "%.*s", (int)len, word);
		if (used + len + 2 < sizeof(expected))
			sprintf(expected + used, "%s%s", used > 0 ? ", " : "", words[count]);
		kvw_suggest_offer(&near, words[count], words[count]);
		word += len + (word[len] == '|');
	}
	if (near.best != NULL) {
		size_t used = strlen(expected);

		snprintf(expected + used, sizeof(expected) - used, "; did you mean `%s`?",
			near.best);
	}
	wrong(r, node, path, expected);
}

/* Returns whether a node is a scalar that has no NUL. */
static bool is_text(const struct kvw_node *node)
{
	return node->kind == KVW_NODE_SCALAR && !kvw_node_is_null(node) &&
	       strlen(node->text) == node->len;
}

static bool read_int(const struct kvw_node *node, int64_t *out)
{
	char *end;

	if (!is_text(node) || node->len == 0 || node->len > 18)
		return false;
	*out = strtoll(node->text, &end, 10);
	return *end == '\0' && node->text[0] >= '-' && node->text[0] <= '9';
}

static void check_scalar(struct reader *r, const struct kvw_field *field,
	const struct kvw_node *node, const char *path)
{
	char expected[KVW_REPORT_QUOTE * 2];
	int64_t value, least, most;

	switch (field->type) {
	case KVW_FIELD_BOOL:
		if (!is_text(node) || node->quoted || !is_word(node->text, "true|false", false))
			wrong(r, node, path, "true or false");
		break;
	case KVW_FIELD_INT:
		if (sscanf(field->limit, "%" SCNd64 " %" SCNd64, &least, &most) != 2)
			break;
		snprintf(expected, sizeof(expected), "a whole number from %lld to %lld",
			(long long)least, (long long)most);
		if (!read_int(node, &value) || node->quoted || value < least || value > most)
			wrong(r, node, path, expected);
		break;
	case KVW_FIELD_WORD:
	case KVW_FIELD_ANYCASE:
		if (!is_text(node) ||
			!is_word(node->text, field->limit, field->type == KVW_FIELD_ANYCASE))
			expect_words(r, node, path, field);
		break;
	default:
		snprintf(expected, sizeof(expected), "a text that fits %s", field->limit);
		if (!is_text(node) || !kvw_manifest_fits(node->text, field->limit))
			wrong(r, node, path, field->limit[0] != '\0' ? expected : "a text");
	}
}

static void check_texts(struct reader *r, const struct kvw_field *field,
	const struct kvw_node *list, const char *path)
{
	char item[PATH_ROOM + 32];
	size_t index = 0;

	if (list->kind != KVW_NODE_LIST) {
		wrong(r, list, path, "a list");
		return;
	}
	for (const struct kvw_node *node = list->first; node != NULL; node = node->next) {
		snprintf(item, sizeof(item), "%s[%zu]", path, index++);
		check_scalar(r, field, node, item);
	}
}

/* Checks a mapping of names to texts or quantities. */
static void check_pairs(struct reader *r, const struct kvw_field *field, const struct kvw_node *map,
	const char *path)
{
	bool quantities = field->type == KVW_FIELD_QUANTITIES;
	char member[PATH_ROOM * 2];

	if (map->kind != KVW_NODE_MAP) {
		wrong(r, map, path, "a mapping");
		return;
	}
	for (const struct kvw_node *node = map->first; node != NULL; node = node->next) {
		if (node->key->kind != KVW_NODE_SCALAR)
			continue;
		snprintf(member, sizeof(member), "%s.%s", path, node->key->text);
		if (!is_text(node->key) || !kvw_manifest_fits(node->key->text, NAME_START))
			wrong(r, node->key, path, "a name of Kubernetes such as `nvidia.com/gpu`");
		else if (kvw_manifest_member(map, node->key->text) != node)
			wrong(r, node->key, member, "it once");
		else if (!is_text(node) ||
			 !kvw_manifest_fits(node->text, quantities ? QUANTITY : field->limit))
			wrong(r, node, member,
				quantities ? "a quantity such as 4, 500m or 30Gi"
					   : "a text of letters, digits and `-_.`");
	}
}

static void walk_map(struct reader *r, const struct kvw_node *map, const char *section,
	const char *shown, const struct kvw_node **seen);

static void walk_items(struct reader *r, const struct kvw_field *field, const struct kvw_node *list,
	const char *path)
{
	const struct kvw_node *seen[KVW_FIELD_COUNT];
	char section[PATH_ROOM], shown[PATH_ROOM + 32];
	size_t index = 0;

	if (list->kind != KVW_NODE_LIST) {
		wrong(r, list, path, "a list");
		return;
	}
	snprintf(section, sizeof(section), "%s[]", field->path);
	for (const struct kvw_node *node = list->first; node != NULL; node = node->next) {
		snprintf(shown, sizeof(shown), "%s[%zu]", path, index++);
		memset(seen, 0, sizeof(seen));
		if (node->kind == KVW_NODE_MAP)
			walk_map(r, node, section, shown, seen);
		else
			wrong(r, node, shown, "a mapping");
	}
}

/* Checks values of Kubernetes' own types, but only whether they are a list or a mapping. */
static void check_raw(struct reader *r, const struct kvw_field *field, const struct kvw_node *node,
	const char *path)
{
	bool list = field->type == KVW_FIELD_RAW_LIST;

	if (node->kind != (list ? KVW_NODE_LIST : KVW_NODE_MAP)) {
		wrong(r, node, path, list ? "a list of mappings" : "a mapping");
		return;
	}
	for (const struct kvw_node *item = node->first; list && item != NULL; item = item->next)
		if (item->kind != KVW_NODE_MAP || kvw_manifest_member(item, "name") == NULL)
			wrong(r, item, path, "mappings with a `name`");
}

static void walk_value(struct reader *r, enum kvw_field_id id, const struct kvw_node *node,
	const char *path, const struct kvw_node **seen)
{
	const struct kvw_field *field = &kvw_fields[id];
	char once[64];

	if (seen[id] != NULL) {
		snprintf(once, sizeof(once), "it once; it is in line %zu already",
			seen[id]->key->place.line);
		wrong(r, node->key, path, once);
		return;
	}
	seen[id] = node;
	switch (field->type) {
	case KVW_FIELD_UNUSED:
		kvw_report_mistake(r->notes, node->key->place, path, "not used: %s", field->text);
		break;
	case KVW_FIELD_MAP:
		if (node->kind == KVW_NODE_MAP)
			walk_map(r, node, field->path, path, seen);
		else
			wrong(r, node, path, "a mapping");
		break;
	case KVW_FIELD_ITEMS:
		walk_items(r, field, node, path);
		break;
	case KVW_FIELD_TEXTS:
		check_texts(r, field, node, path);
		break;
	case KVW_FIELD_PAIRS:
	case KVW_FIELD_QUANTITIES:
		check_pairs(r, field, node, path);
		break;
	case KVW_FIELD_RAW_MAP:
	case KVW_FIELD_RAW_LIST:
		check_raw(r, field, node, path);
		break;
	default:
		check_scalar(r, field, node, path);
	}
}

/* Returns the field of this name in a section: the one for the manifest's kind, else one for any
 * kind, else the number of fields. */
static enum kvw_field_id find_field(
	const struct kvw_manifest *manifest, const char *section, const char *name)
{
	for (size_t i = 0; i < KVW_FIELD_COUNT; i++) {
		const char *its = kvw_field_name(section, kvw_fields[i].path);

		if (its != NULL && strcmp(its, name) == 0 &&
			(kvw_fields[i].kinds & manifest->kind) != 0)
			return (enum kvw_field_id)i;
	}
	return KVW_FIELD_COUNT;
}

static void unknown(
	struct reader *r, const struct kvw_node *key, const char *section, const char *path)
{
	char expected[160] = "a field of this section";
	struct kvw_suggest near;

	kvw_suggest_start(&near, key->text);
	for (size_t i = 0; i < KVW_FIELD_COUNT; i++) {
		const char *its = kvw_field_name(section, kvw_fields[i].path);

		if (its != NULL && (kvw_fields[i].kinds & r->manifest->kind) != 0)
			kvw_suggest_offer(&near, its, its);
	}
	if (near.best == NULL) /* elsewhere? */
		for (size_t i = 0; i < KVW_FIELD_COUNT; i++) {
			const char *last = strrchr(kvw_fields[i].path, '.');

			if (last != NULL && strcmp(last + 1, key->text) == 0 &&
				(kvw_fields[i].kinds & r->manifest->kind) != 0)
				near.best = kvw_fields[i].path;
		}
	if (near.best != NULL)
		snprintf(expected, sizeof(expected), "a field of this section; did you mean `%s`?",
			near.best);
	kvw_report_mistake(
		r->mistakes, key->place, path, "found an unknown field, expected %s", expected);
}

/* Reads a mapping. seen: for each field, whether it is in this section or below; each entry of a
 * list has its own. */
static void walk_map(struct reader *r, const struct kvw_node *map, const char *section,
	const char *shown, const struct kvw_node **seen)
{
	char path[PATH_ROOM];

	for (const struct kvw_node *node = map->first; node != NULL; node = node->next) {
		enum kvw_field_id id;

		if (node->key->kind != KVW_NODE_SCALAR || node->kind == KVW_NODE_BAD)
			continue; /* reported */
		snprintf(path, sizeof(path), "%s%s%s", shown, shown[0] != '\0' ? "." : "",
			node->key->text);
		id = is_text(node->key) ? find_field(r->manifest, section, node->key->text)
					: KVW_FIELD_COUNT;
		if (id < KVW_FIELD_COUNT)
			walk_value(r, id, node, path, seen);
		else
			unknown(r, node->key, section, path);
	}
	for (size_t i = 0; i < KVW_FIELD_COUNT; i++) {
		const struct kvw_field *field = &kvw_fields[i];
		const char *name = kvw_field_name(section, field->path);

		if (name == NULL || !field->needed || seen[i] != NULL ||
			(field->kinds & r->manifest->kind) == 0)
			continue;
		snprintf(path, sizeof(path), "%s%s%s", shown, shown[0] != '\0' ? "." : "", name);
		kvw_report_mistake(r->mistakes, map->place, path, "found nothing, expected %s",
			field->type == KVW_FIELD_MAP ? "a mapping" : "a value: it is required");
	}
}

/* Finds the kind of the manifest, on which its fields depend. */
static bool find_kind(struct reader *r)
{
	static const struct {
		const char *name;
		enum kvw_manifest_kind kind;
	} kinds[] = {{"InferenceEndpointConfig", KVW_KIND_ENDPOINT},
		{"JumpStartModel", KVW_KIND_JUMPSTART}};
	const struct kvw_node *root = r->manifest->document.root, *node;

	if (root == NULL || root->kind != KVW_NODE_MAP) {
		kvw_report_mistake(r->mistakes,
			root != NULL ? root->place : (struct kvw_place){.line = 1, .column = 1},
			NULL,
			"found no mapping, expected an InferenceEndpointConfig or a "
			"JumpStartModel");
		return false;
	}
	node = kvw_manifest_member(root, "kind");
	for (size_t i = 0; node != NULL && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (is_text(node) && strcmp(node->text, kinds[i].name) == 0)
			r->manifest->kind = kinds[i].kind;
	if (r->manifest->kind != 0)
		return true;
	if (node == NULL)
		kvw_report_mistake(r->mistakes, root->place, "kind",
			"found nothing, expected InferenceEndpointConfig or JumpStartModel");
	else
		expect_words(r, node, "kind", &kvw_fields[KVW_F_kind]);
	return false;
}

enum kvw_err kvw_manifest_parse(const char *text, size_t len, struct kvw_report *mistakes,
	struct kvw_report *notes, struct kvw_manifest *out)
{
	struct reader r = {.manifest = out, .mistakes = mistakes, .notes = notes};
	struct kvw_document document;
	enum kvw_err err = kvw_document_parse(text, len, mistakes, &document);

	if (err != KVW_OK)
		return err;
	*out = (struct kvw_manifest){.document = document};
	if (find_kind(&r))
		walk_map(&r, document.root, "", "", out->nodes);
	return KVW_OK;
}

void kvw_manifest_finish(struct kvw_manifest *manifest)
{
	kvw_document_finish(&manifest->document);
}

const char *kvw_manifest_text(const struct kvw_manifest *manifest, enum kvw_field_id field)
{
	const struct kvw_node *node = manifest->nodes[field];

	return node != NULL && node->kind == KVW_NODE_SCALAR ? node->text : kvw_fields[field].def;
}

bool kvw_manifest_bool(const struct kvw_manifest *manifest, enum kvw_field_id field)
{
	return strcmp(kvw_manifest_text(manifest, field), "true") == 0;
}

int64_t kvw_manifest_int(const struct kvw_manifest *manifest, enum kvw_field_id field)
{
	return strtoll(kvw_manifest_text(manifest, field), NULL, 10);
}

const struct kvw_node *kvw_manifest_member(const struct kvw_node *map, const char *name)
{
	if (map == NULL || map->kind != KVW_NODE_MAP)
		return NULL;
	for (const struct kvw_node *node = map->first; node != NULL; node = node->next)
		if (node->key->kind == KVW_NODE_SCALAR && strcmp(node->key->text, name) == 0)
			return node;
	return NULL;
}
