/*
 * reference.c - writes a schema for people: the tables of a reference page, and a YAML file with
 * every key and its default.
 */
#include "settings/reference.h"

#include <stdlib.h>
#include <string.h>

#define WRAP_COLUMN 96

void kvw_reference_cell(FILE *out, const char *text)
{
	for (; *text != '\0'; text++)
		fprintf(out, *text == '|' ? "\\%c" : "%c", *text);
}

/* Writes the range, or the words if the type's name does not list them. */
static void write_range(FILE *out, const struct kvw_key *key)
{
	const struct kvw_word *words = key->type->words;

	if (words != NULL && key->type->name[0] != '`') {
		for (size_t i = 0; words[i].name != NULL; i++)
			fprintf(out, "%s`%s`", i == 0 ? "" : ", ", words[i].name);
	} else if (key->type->item != NULL && key->max[0] != '\0') {
		fprintf(out, "at most %s", key->max);
	} else if (key->min[0] != '\0') {
		fprintf(out, "%s to %s", key->min, key->max);
	}
}

/* Writes a key's row, with values in backquotes; an empty value is written as `""`. */
static void write_key(FILE *out, const struct kvw_schema *schema, const struct kvw_key *key)
{
	fprintf(out, "| `%s` | %s%s%s | ", key->path, key->type->name,
		key->unit[0] != '\0' ? ", " : "", key->unit);
	if (key->type->usual != NULL)
		fputs(key->type->usual, out);
	else if (key->type == &kvw_type_URL && key->def[0] == '\0')
		fputs("required", out);
	else
		fprintf(out, "`%s`", key->def[0] != '\0' ? key->def : "\"\"");
	fputs(" | ", out);
	write_range(out, key);
	if (schema->wording == KVW_WORDING_FULL)
		fprintf(out, " | %s", key->reload ? "reload" : "restart");
	fputs(" | ", out);
	kvw_reference_cell(out, key->text);
	fputs(" |\n", out);
}

static void write_table(FILE *out, const struct kvw_schema *schema, const char *section)
{
	fputs(schema->wording == KVW_WORDING_FULL
			? "| Key | Type | Default | Range | Change by | What it does |\n"
			  "|---|---|---|---|---|---|\n"
			: "| Key | Type | Default | Range | What it does "
			  "|\n|---|---|---|---|---|\n",
		out);
	for (size_t i = 0; i < schema->key_count; i++)
		if (kvw_name_in(section, schema->keys[i].path) != NULL)
			write_key(out, schema, &schema->keys[i]);
}

void kvw_reference_keys(FILE *out, const struct kvw_schema *schema)
{
	write_table(out, schema, "");
}

void kvw_reference_sections(FILE *out, const struct kvw_schema *schema)
{
	for (size_t i = 0; i < schema->section_count; i++) {
		const struct kvw_section *section = &schema->sections[i];

		fprintf(out, "\n## %s\n\n", section->path[0] != '\0' ? section->path : "Top level");
		if (section->text[0] != '\0')
			fprintf(out, "%s\n\n", section->text);
		write_table(out, schema, section->path);
	}
}

/* Writes a comment, in lines broken at spaces. */
static void write_comment(FILE *out, size_t depth, const char *text)
{
	size_t room = WRAP_COLUMN - 2 * depth - 2;

	while (*text != '\0') {
		size_t len = strlen(text);

		if (len > room) {
			len = room;
			while (len > 1 && text[len] != ' ')
				len--;
		}
		fprintf(out, "%*s# %.*s\n", (int)(2 * depth), "", (int)len, text);
		text += len;
		text += strspn(text, " ");
	}
}

/* Writes a default as YAML. Defaults in schemas of wording FULL need no quotes, except those with
 * blanks. */
static void write_default(FILE *out, const struct kvw_schema *schema, const struct kvw_key *key)
{
	struct kvw_key alone = *key;
	union kvw_value value = {0};
	char text[KVW_KEY_PRINT];
	struct kvw_fault fault;

	alone.offset = 0;
	if (schema->wording == KVW_WORDING_FULL) {
		fprintf(out, key->def[0] == '\0' || key->def[0] == ' ' ? "\"%s\"" : "%s", key->def);
	} else if (kvw_key_parse(schema, key, kvw_slice_of(key->def), &value, &fault) == KVW_OK) {
		kvw_key_print(&alone, &value, text);
		fputs(text, out);
		kvw_keys_release(&alone, 1, &value);
	}
}

void kvw_reference_example_key(FILE *out, const struct kvw_schema *schema,
	const struct kvw_key *key, const char *name, size_t depth)
{
	char range[128] = "", comment[2048];
	FILE *text = fmemopen(range, sizeof(range), "w");

	if (text != NULL) {
		write_range(text, key);
		fclose(text);
	}
	if (schema->wording == KVW_WORDING_FULL && range[0] != '\0' && key->type->words == NULL)
		snprintf(comment, sizeof(comment), "%s (%s)", key->text, range);
	else
		snprintf(comment, sizeof(comment), "%s", key->text);
	write_comment(out, depth, comment);
	fprintf(out, "%*s%s: ", (int)(2 * depth), "", name);
	write_default(out, schema, key);
	fputc('\n', out);
}

static size_t depth_of(const char *section)
{
	size_t depth = section[0] != '\0';

	for (; *section != '\0'; section++)
		depth += *section == '.';
	return depth;
}

void kvw_reference_example(FILE *out, const struct kvw_schema *schema)
{
	for (size_t s = 0; s < schema->section_count; s++) {
		const char *section = schema->sections[s].path;
		const char *dot = strrchr(section, '.');
		size_t depth = depth_of(section);

		fputc('\n', out);
		if (depth > 0) {
			if (schema->wording == KVW_WORDING_BRIEF && !schema->sections[s].text[0])
				fputc('\n', out);
			write_comment(out, depth - 1, schema->sections[s].text);
			fprintf(out, "%*s%s:\n", (int)(2 * depth - 2), "",
				dot != NULL ? dot + 1 : section);
		}
		for (size_t i = 0; i < schema->key_count; i++) {
			const char *name = kvw_name_in(section, schema->keys[i].path);

			if (name != NULL)
				kvw_reference_example_key(
					out, schema, &schema->keys[i], name, depth);
		}
	}
}
