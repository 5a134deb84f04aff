/*
 * reference.c - the configuration's reference page and example, from settings.def.
 *
 * `kvtier reference` prints them; REFERENCE.md and examples/full.yaml are what it printed, and a
 * test compares them, so that neither can fall behind the table.
 */
#include <string.h>

#include "options/setting.h"
#include "options/settings.h"
#include "settings/unknown.h"

#define WRAP_COLUMN 96

/* Backquotes around a value; `""` for an empty one. */
static void write_code(FILE *out, const char *text)
{
	fprintf(out, "`%s`", text[0] != '\0' ? text : "\"\"");
}

static void write_words(FILE *out, const struct kvw_word *words)
{
	for (size_t i = 0; words[i].name != NULL; i++)
		fprintf(out, "%s`%s`", i == 0 ? "" : ", ", words[i].name);
}

static void write_setting(FILE *out, const struct kvw_key *setting)
{
	fprintf(out, "| `%s` | %s%s%s | ", setting->path, setting->type->name,
		setting->unit[0] != '\0' ? ", " : "", setting->unit);
	if (setting->type->usual != NULL)
		fputs(setting->type->usual, out);
	else
		write_code(out, setting->def);
	fputs(" | ", out);
	if (setting->type == &kvt_setting_POLICY)
		write_words(out, setting->type->words);
	else if (setting->min[0] != '\0')
		fprintf(out, "%s to %s", setting->min, setting->max);
	fprintf(out, " | %s |\n", setting->text);
}

static void write_section(
	FILE *out, const struct kvw_schema *table, const struct kvw_section *section)
{
	fprintf(out, "\n## %s\n\n", section->path[0] != '\0' ? section->path : "Top level");
	if (section->text[0] != '\0')
		fprintf(out, "%s\n\n", section->text);
	fputs("| Key | Type | Default | Range | What it does |\n|---|---|---|---|---|\n", out);
	for (size_t i = 0; i < table->key_count; i++)
		if (kvw_name_in(section->path, table->keys[i].path) != NULL)
			write_setting(out, &table->keys[i]);
}

void kvt_setting_reference(FILE *out, const struct kvw_schema *table)
{
	for (size_t i = 0; i < table->section_count; i++)
		write_section(out, table, &table->sections[i]);
}

void kvt_settings_reference(FILE *out)
{
	fputs("# Configuration of kvtier\n\n"
	      "Written by `kvtier reference` from `settings.def`; do not edit.\n\n"
	      "A YAML file of mappings; every key may be left out. The same names, with `_` for\n"
	      "dots, are the members of `struct kvt_config` (`include/kvtier/kvtier.h`), where\n"
	      "durations are in nanoseconds, `auto` is 0 and some names end in their unit.\n"
	      "A key with a mistake is reported with line and column and keeps its default; the\n"
	      "rest applies. `kvtier check FILE` shows all mistakes and what would be used "
	      "here.\n\n"
	      "Sizes are `64MiB` (KiB, MiB, GiB, TiB, or plain bytes), durations `250ms`, `2s`,\n"
	      "`10m`, `1h`.\n",
		out);
	kvt_setting_reference(out, &kvt_cache_settings);
}

/* Text as comment lines, wrapped between words. */
static void write_comment(FILE *out, size_t indent, const char *text)
{
	size_t column = 0;

	while (*text != '\0') {
		size_t word = strcspn(text, " ");

		if (column == 0 || column + 1 + word > WRAP_COLUMN) {
			fprintf(out, "%s%*s#", column == 0 ? "" : "\n", (int)indent, "");
			column = indent + 1;
		}
		fprintf(out, " %.*s", (int)word, text);
		column += 1 + word;
		text += word;
		text += strspn(text, " ");
	}
	fputc('\n', out);
}

/* The last name of a dotted path. */
static const char *last_name(const char *path)
{
	const char *dot = strrchr(path, '.');

	return dot != NULL ? dot + 1 : path;
}

static size_t depth_of(const char *path)
{
	size_t depth = path[0] != '\0';

	for (; *path != '\0'; path++)
		depth += *path == '.';
	return depth;
}

void kvt_setting_example(FILE *out, const struct kvw_schema *table, const void *values)
{
	char value[KVT_SETTING_PRINT];

	for (size_t s = 0; s < table->section_count; s++) {
		const char *section = table->sections[s].path;
		size_t depth = depth_of(section), indent = 2 * depth;

		fputc('\n', out);
		if (depth > 0) {
			write_comment(out, indent - 2, table->sections[s].text);
			fprintf(out, "%*s%s:\n", (int)indent - 2, "", last_name(section));
		}
		for (size_t i = 0; i < table->key_count; i++) {
			const char *name = kvw_name_in(section, table->keys[i].path);

			if (name == NULL)
				continue;
			kvw_key_print(&table->keys[i], values, value);
			write_comment(out, indent, table->keys[i].text);
			fprintf(out, "%*s%s: %s\n", (int)indent, "", name, value);
		}
	}
}

void kvt_settings_example(FILE *out)
{
	struct kvt_config config;

	kvt_config_init(&config, sizeof(config));
	fputs("# Every key of kvtier with its default. Written by `kvtier reference --example`.\n",
		out);
	kvt_setting_example(out, &kvt_cache_settings, &config);
}

/* What stands before the last @ of a URL becomes ***. Three bytes of room are there. */
static void hide_login(char *url)
{
	char *from = strstr(url, "://"), *to = strrchr(url, '@');

	if (from == NULL || to == NULL || to < from)
		return;
	memmove(from + 6, to, strlen(to) + 1);
	memcpy(from + 3, "***", 3);
}

void kvt_setting_show(
	const struct kvw_key *setting, const void *values, char out[KVT_SETTING_PRINT])
{
	kvw_key_print(setting, values, out);
	if (setting->type == &kvt_setting_L2_URL)
		hide_login(out);
}

void kvt_settings_print(const struct kvt_config *config, FILE *out)
{
	char value[KVT_SETTING_PRINT];

	for (size_t i = 0; i < KVT_SETTING_COUNT; i++) {
		kvt_setting_show(&kvt_settings[i], config, value);
		fprintf(out, "%s: %s\n", kvt_settings[i].path, value);
	}
}
