/*
 * unknown.c - see unknown.h.
 */
#include "settings/unknown.h"

#include <stdbool.h>
#include <string.h>

#include "settings/suggest.h"

const char *kvw_name_in(const char *section, const char *path)
{
	size_t len = strlen(section);

	if (len > 0) {
		if (strncmp(path, section, len) != 0 || path[len] != '.')
			return NULL;
		path += len + 1;
	}
	return *path == '\0' || strchr(path, '.') != NULL ? NULL : path;
}

/* Path number i: keys first, then sections. NULL: there are no more. */
static const char *path_at(const struct kvw_known *known, size_t i)
{
	if (i < known->key_count)
		return known->keys[i];
	i -= known->key_count;
	return i < known->section_count ? known->sections[i] : NULL;
}

static void offer_names(
	const struct kvw_known *known, const char *section, struct kvw_suggest *near)
{
	const char *path;

	for (size_t i = 0; (path = path_at(known, i)) != NULL; i++) {
		const char *name = kvw_name_in(section, path);

		if (name != NULL)
			kvw_suggest_offer(near, name, path);
	}
}

/* A key that exists elsewhere under this very name. */
static const char *find_elsewhere(const struct kvw_known *known, const char *name)
{
	for (size_t i = 0; i < known->key_count; i++) {
		const char *dot = strrchr(known->keys[i], '.');

		if (strcmp(dot != NULL ? dot + 1 : known->keys[i], name) == 0)
			return known->keys[i];
	}
	return NULL;
}

static bool is_key(const struct kvw_known *known, const char *path)
{
	size_t i = 0;

	while (i < known->key_count && strcmp(known->keys[i], path) != 0)
		i++;
	return i < known->key_count;
}

/* The names that a section may hold, joined by commas; cut off where they do not fit. */
static void list_names(const struct kvw_known *known, const char *section, char *out, size_t room)
{
	const char *path;
	size_t used = 0;

	out[0] = '\0';
	for (size_t i = 0; (path = path_at(known, i)) != NULL; i++) {
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

void kvw_report_unknown(struct kvw_report *report, const struct kvw_known *known,
	const char *section, const char *path, const struct kvw_node *key)
{
	struct kvw_suggest near;
	char names[640];

	if (!kvw_report_printing(report)) {
		kvw_report_mistake(report, key->place, path, "found an unknown key");
		return;
	}
	kvw_suggest_start(&near, key->text);
	offer_names(known, section, &near);
	if (near.best == NULL)
		near.best = find_elsewhere(known, key->text);
	if (strcmp(key->text, "<<") == 0) {
		kvw_report_mistake(report, key->place, path,
			"found a merge key, expected the keys written out");
	} else if (strchr(key->text, '.') != NULL && is_key(known, path)) {
		kvw_report_mistake(report, key->place, path,
			"found a key with a dot, expected sections on lines of their own: the part "
			"before the dot, then below it and indented the part after it");
	} else if (near.best != NULL) {
		kvw_report_mistake(report, key->place, path,
			"found an unknown key, expected one of this section; did you mean `%s`?",
			near.best);
	} else {
		list_names(known, section, names, sizeof(names));
		kvw_report_mistake(report, key->place, path,
			"found an unknown key, expected one of %s", names);
	}
}
