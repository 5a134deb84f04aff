/*
 * unknown.c - reports an unknown key, with a suggestion.
 */
#include "settings/unknown.h"

#include <stdbool.h>
#include <string.h>

#include "settings/suggest.h"

/* Returns path number i: first keys, then sections, then the list and the extra names. NULL: there
 * are no more. */
static const char *path_at(const struct kvw_schema *schema, size_t i)
{
	if (i < schema->key_count)
		return schema->keys[i].path;
	i -= schema->key_count;
	if (i < schema->section_count)
		return schema->sections[i].path;
	i -= schema->section_count;
	if (i == 0 && schema->list != NULL)
		return schema->list;
	i -= schema->list != NULL;
	for (const char *const *name = schema->extra; name != NULL && *name != NULL; name++)
		if (i-- == 0)
			return *name;
	return NULL;
}

static void offer_names(
	const struct kvw_schema *schema, const char *section, struct kvw_suggest *near)
{
	const char *path;

	for (size_t i = 0; (path = path_at(schema, i)) != NULL; i++) {
		const char *name = kvw_name_in(section, path);

		if (name != NULL)
			kvw_suggest_offer(near, name, path);
	}
}

/* Returns a key of exactly this name in another section. */
static const char *find_elsewhere(const struct kvw_schema *schema, const char *name)
{
	for (size_t i = 0; i < schema->key_count; i++) {
		const char *dot = strrchr(schema->keys[i].path, '.');

		if (strcmp(dot != NULL ? dot + 1 : schema->keys[i].path, name) == 0)
			return schema->keys[i].path;
	}
	return NULL;
}

/* Returns the present path of a key that an earlier version had; "" if the key was removed. NULL:
 * there was no such key. */
static const char *find_renamed(const struct kvw_schema *schema, const char *path)
{
	for (const char *const *old = schema->renamed; old != NULL && *old != NULL; old += 2)
		if (strcmp(old[0], path) == 0)
			return old[1];
	return NULL;
}

/* Writes the names that a section may have, with commas between them; the text is cut if it does
 * not fit. */
static void list_names(const struct kvw_schema *schema, const char *section, char *out, size_t room)
{
	const char *path;
	size_t used = 0;

	out[0] = '\0';
	for (size_t i = 0; (path = path_at(schema, i)) != NULL; i++) {
		const char *name = kvw_name_in(section, path);
		int n;

		if (name == NULL)
			continue;
		n = snprintf(out + used, room - used, "%s%s", used > 0 ? ", " : "", name);
		if (n < 0 || (size_t)n >= room - used)
			break;
		used += (size_t)n;
	}
}

void kvw_report_unknown(struct kvw_report *report, const struct kvw_schema *schema,
	const char *section, const char *path, const struct kvw_node *key)
{
	const char *renamed = find_renamed(schema, path);
	struct kvw_suggest near;
	char names[640];

	if (!kvw_report_printing(report)) {
		kvw_report_mistake(report, key->place, path, "found an unknown key");
		return;
	}
	kvw_suggest_start(&near, key->text);
	offer_names(schema, section, &near);
	if (near.best == NULL)
		near.best = find_elsewhere(schema, key->text);
	if (renamed != NULL && renamed[0] == '\0') {
		kvw_report_mistake(report, key->place, path,
			"found a key of an earlier version, which was removed: delete this line");
	} else if (renamed != NULL) {
		kvw_report_mistake(report, key->place, path,
			"found a key of an earlier version, expected `%s`, as it is called now",
			renamed);
	} else if (strcmp(key->text, "<<") == 0) {
		kvw_report_mistake(report, key->place, path,
			"found a merge key, expected the keys written out");
	} else if (strchr(key->text, '.') != NULL &&
		   kvw_schema_find_key(schema, path) < schema->key_count) {
		kvw_report_mistake(report, key->place, path,
			"found a key with a dot, expected sections on lines of their own: the part "
			"before the dot, then below it and indented the part after it");
	} else if (near.best != NULL) {
		kvw_report_mistake(report, key->place, path,
			"found an unknown key, expected one of this section; did you mean `%s`?",
			near.best);
	} else {
		list_names(schema, section, names, sizeof(names));
		kvw_report_mistake(report, key->place, path,
			"found an unknown key, expected one of %s", names);
	}
}
