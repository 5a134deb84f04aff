/* path_pattern.c - checks patterns for paths. */
#include "config/path_pattern.h"

#include <string.h>

#include "config/rules.h"

static bool good_segment(const char *text, size_t len)
{
	if (len == 0 || len > KVW_PATTERN_SEGMENT || strncmp(text, "..", len > 2 ? 3 : len) == 0)
		return false;
	for (size_t i = 0; i < len; i++)
		if (text[i] <= 0x20 || text[i] >= 0x7F || strchr("?#%*\\", text[i]) != NULL)
			return false;
	return true;
}

bool kvw_path_pattern_good(const char *text)
{
	size_t segments = 0;

	while (text[0] == '/') {
		size_t len = strcspn(text + 1, "/");

		if (strcmp(text + 1, "*") == 0)
			return true;
		if (++segments > KVW_PATTERN_SEGMENTS || !good_segment(text + 1, len))
			return false;
		text += 1 + len;
	}
	return segments > 0 && text[0] == '\0';
}

static void check_paths(struct kvw_build *build, enum kvw_key_index key, const struct kvw_strings *paths)
{
	const struct kvw_met *met = &build->met[key];
	char quoted[KVW_REPORT_QUOTE];

	for (size_t i = 0; met->valid && i < paths->count; i++)
		if (!kvw_path_pattern_good(paths->items[i]))
			kvw_report_mistake(build->walk.report, met->place, kvw_keys[key].path,
				"found %s, expected " KVW_PATTERN_EXPECTED,
				kvw_report_quote(quoted, paths->items[i], strlen(paths->items[i])));
}

void kvw_rules_check_paths(struct kvw_build *build)
{
	check_paths(build, KVW_KEY_expose_paths, &build->config->expose_paths);
	check_paths(build, KVW_KEY_admin_open, &build->config->admin_open);
}
