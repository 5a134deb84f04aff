/*
 * reference.c - writes config/REFERENCE.md and config/examples/full.yaml from keys.def.
 *
 *     reference page FILE MINIMAL     the page; MINIMAL is the example at its top
 *     reference example FILE          every key with its default
 *     reference --check ...           compares FILE instead: exit 1 where it differs
 *
 * A program of the build, not of the product. Both files are committed, so that they can be read
 * without building; the tests run --check, so that neither can fall behind keys.def.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvway/route.h"
#include "config/own_keys.h"

#define WRAP_COLUMN 96

static void write_indent(FILE *out, size_t depth)
{
	fprintf(out, "%*s", (int)(2 * depth), "");
}

/* Backquotes around a value; `""` for an empty one. */
static void write_code(FILE *out, const char *text)
{
	fprintf(out, "`%s`", text[0] != '\0' ? text : "\"\"");
}

/* A cell of a table: '|' would end it. */
static void write_cell(FILE *out, const char *text)
{
	for (; *text != '\0'; text++)
		fprintf(out, *text == '|' ? "\\%c" : "%c", *text);
}

static void write_range(FILE *out, const struct kvw_key *key)
{
	if (key->type->words != NULL) {
		for (const struct kvw_word *word = key->type->words; word->name != NULL; word++)
			fprintf(out, "%s`%s`", word == key->type->words ? "" : ", ", word->name);
	} else if (key->type->item != NULL && key->max[0] != '\0') {
		fprintf(out, "at most %s", key->max);
	} else if (key->min[0] != '\0') {
		fprintf(out, "%s to %s", key->min, key->max);
	}
}

static void write_key(FILE *out, const struct kvw_key *key)
{
	fprintf(out, "| `%s` | %s | ", key->path, key->type->name);
	if (key->type->usual != NULL)
		fputs(key->type->usual, out);
	else
		write_code(out, key->def);
	fputs(" | ", out);
	write_range(out, key);
	fprintf(out, " | %s | ", key->reload ? "reload" : "restart");
	write_cell(out, key->text);
	fputs(" |\n", out);
}

static void write_table_head(FILE *out)
{
	fputs("| Key | Type | Default | Range | Change by | What it does |\n"
	      "|---|---|---|---|---|---|\n",
		out);
}

static void write_section(
	FILE *out, const struct kvw_own_keys *own, const struct kvw_section *section)
{
	if (section->path[0] != '\0')
		fprintf(out, "\n## %s\n\n", section->path);
	else
		fputs("\n## Top level\n\n", out);
	if (section->text[0] != '\0')
		fprintf(out, "%s\n\n", section->text);
	write_table_head(out);
	for (size_t i = 0; i < own->schema.key_count; i++)
		if (kvw_name_in(section->path, kvw_own_key(own, i)->path) != NULL)
			write_key(out, kvw_own_key(own, i));
}

static void write_workers(FILE *out)
{
	fprintf(out,
		"\n## workers\n\n"
		"The vLLM servers: a list, 1 to %d entries, no URL twice. Each entry has these "
		"keys.\n\n",
		KVW_MAX_WORKERS);
	write_table_head(out);
	for (size_t i = 0; i < KVW_WORKER_KEY_COUNT; i++)
		write_key(out, &kvw_worker_keys[i]);
}

static void write_types(FILE *out)
{
	fputs("\n## Types\n\n"
	      "What a value means is decided by its key, never by how it looks: `off` is a word "
	      "and "
	      "`8001` may be\na name. Quotes are allowed around any value.\n\n"
	      "| Type | Written as |\n|---|---|\n"
	      "| address | `HOST:PORT`, `[IPV6]:PORT`; port 0 lets the kernel choose one |\n"
	      "| duration | a whole number and its unit: `250ms`, `2s`, `10m`, `1h` |\n"
	      "| list of names | `[one, two]`; names as HTTP fields and cookies may have |\n"
	      "| list of text | `[one, two]`, or one entry a line after `- ` |\n"
	      "| number | `0.25`, `8000`, `1e6` |\n"
	      "| one of | one of the words in the column Range |\n"
	      "| path | begins with `/` |\n"
	      "| secret | visible ASCII; no message ever prints it |\n"
	      "| size | bytes, or a whole number with `KiB`, `MiB`, `GiB`, `TiB`: `64MiB` |\n"
	      "| strategy | a name from the table of strategies |\n"
	      "| text | any characters but control characters |\n"
	      "| truth value | `true`, `false` |\n"
	      "| URL | `http://HOST:PORT`, `http://HOST:PORT/PREFIX`, the same with `https`; "
	      "without a port: 80, 443 |\n"
	      "| whole number | decimal digits |\n",
		out);
}

static void write_rules(FILE *out)
{
	fprintf(out,
		"\n## Rules of the file\n\n"
		"- One YAML document in UTF-8, at most %u KiB, indented with spaces.\n"
		"- Each key once; an unknown key is a mistake, never ignored.\n"
		"- No anchors, aliases, tags or merge keys; nothing is taken from the "
		"environment.\n"
		"- `limits.low_water` is below `limits.high_water`; `listen` and `admin.listen` "
		"do not share\n  a port.\n"
		"- `kvway check -c FILE` finds every mistake in one run and names line, column and "
		"key.\n",
		KVW_CONFIG_MAX_BYTES >> 10);
}

static void write_strategies(FILE *out)
{
	fputs("\n## Strategies\n\n| Name | How it chooses |\n|---|---|\n", out);
	for (size_t i = 0; kvw_strategies[i] != NULL; i++) {
		fprintf(out, "| `%s` | ", kvw_strategies[i]->name);
		write_cell(out, kvw_strategies[i]->help);
		fputs(" |\n", out);
	}
}

/* Copies the example file, without its comments. */
static bool write_minimal(FILE *out, const char *path)
{
	FILE *in = fopen(path, "r");
	char line[256];

	if (in == NULL) {
		perror(path);
		return false;
	}
	fputs("\n```yaml\n", out);
	while (fgets(line, sizeof(line), in) != NULL)
		if (line[0] != '#')
			fputs(line, out);
	fputs("```\n", out);
	fclose(in);
	return true;
}

static bool write_page(FILE *out, const struct kvw_own_keys *own, const char *minimal)
{
	fputs("# Configuration of kvway\n\n"
	      "<!-- Written by `ninja -C BUILD reference` from keys.def and the strategies' "
	      "tables. -->\n\n"
	      "The smallest useful file; everything else has a default:\n",
		out);
	if (!write_minimal(out, minimal))
		return false;
	fputs("\nRun it with `kvway -c FILE`, check it with `kvway check -c FILE`. The same "
	      "without "
	      "a file:\n\n"
	      "```sh\nkvway --listen 0.0.0.0:8080 --worker http://127.0.0.1:8001 --worker "
	      "http://127.0.0.1:8002\n```\n\n"
	      "`examples/full.yaml` has every key with its default, `examples/production.yaml` "
	      "shows a typical use.\nA dot in a key stands for a section: `routing.strategy` is "
	      "`strategy:` indented below `routing:`.\n"
	      "*Change by* says what a new value needs: `restart` of the process, or `reload` "
	      "where "
	      "the running\nprocess may take it over. This version reads its file at start only.\n",
		out);
	write_strategies(out);
	write_workers(out);
	for (size_t i = 0; i < own->schema.section_count; i++)
		write_section(out, own, &own->sections[i]);
	write_types(out);
	write_rules(out);
	return true;
}

/* A comment of several lines, broken at spaces. */
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
		write_indent(out, depth);
		fprintf(out, "# %.*s\n", (int)len, text);
		text += len;
		text += strspn(text, " ");
	}
}

static void write_example_key(FILE *out, size_t depth, const char *name, const struct kvw_key *key)
{
	char range[128], comment[512];
	FILE *text = fmemopen(range, sizeof(range), "w");

	range[0] = '\0';
	if (text != NULL) {
		write_range(text, key);
		fclose(text);
	}
	if (range[0] != '\0' && key->type->words == NULL)
		snprintf(comment, sizeof(comment), "%s (%s)", key->text, range);
	else
		snprintf(comment, sizeof(comment), "%s", key->text);
	write_comment(out, depth, comment);
	write_indent(out, depth);
	fprintf(out, "%s: %s\n", name, key->def[0] != '\0' ? key->def : "\"\"");
}

static size_t depth_of(const char *section)
{
	size_t depth = section[0] != '\0';

	for (; *section != '\0'; section++)
		depth += *section == '.';
	return depth;
}

static void write_example(FILE *out, const struct kvw_own_keys *own)
{
	fputs("# Every key of kvway with its default. Written by `ninja -C BUILD reference`.\n"
	      "# A file needs only what differs; minimal.yaml is the better beginning.\n",
		out);
	for (size_t i = 0; i < own->schema.section_count; i++) {
		const struct kvw_section *section = &own->sections[i];
		const char *path = section->path;
		const char *dot = strrchr(path, '.');
		size_t depth = depth_of(path);

		fputc('\n', out);
		if (depth > 0) {
			write_comment(out, depth - 1, section->text);
			write_indent(out, depth - 1);
			fprintf(out, "%s:\n", dot != NULL ? dot + 1 : path);
		}
		for (size_t k = 0; k < own->schema.key_count; k++) {
			const struct kvw_key *key = kvw_own_key(own, k);
			const char *name = kvw_name_in(path, key->path);

			if (name != NULL)
				write_example_key(out, depth, name, key);
		}
	}
	fputs("\n# The vLLM servers.\nworkers:\n  - url: http://127.0.0.1:8001\n", out);
	for (size_t k = 1; k < KVW_WORKER_KEY_COUNT; k++)
		write_example_key(out, 2, kvw_worker_keys[k].path, &kvw_worker_keys[k]);
}

static bool same_as_file(const char *path, const char *text, size_t len)
{
	FILE *in = fopen(path, "r");
	char *content = malloc(len + 1);
	bool same = false;

	if (in != NULL && content != NULL)
		same = fread(content, 1, len + 1, in) == len && memcmp(content, text, len) == 0;
	if (!same)
		fprintf(stderr, "%s differs from keys.def: run `ninja -C BUILD reference`\n", path);
	free(content);
	if (in != NULL)
		fclose(in);
	return same;
}

static bool write_file(const char *path, const char *text, size_t len)
{
	FILE *out = fopen(path, "w");
	bool ok = out != NULL && fwrite(text, 1, len, out) == len;

	if (out != NULL && fclose(out) != 0)
		ok = false;
	if (!ok)
		perror(path);
	return ok;
}

int main(int argc, char **argv)
{
	bool check = argc > 1 && strcmp(argv[1], "--check") == 0;
	char **words = argv + 1 + check;
	int count = argc - 1 - check;
	bool page = count == 3 && strcmp(words[0], "page") == 0;
	char *text = NULL;
	size_t len = 0;
	struct kvw_own_keys own;
	bool ok = true;
	FILE *out;

	if (!page && !(count == 2 && strcmp(words[0], "example") == 0)) {
		fputs("usage: reference [--check] page FILE MINIMAL | example FILE\n", stderr);
		return 2;
	}
	kvw_own_keys_init(&own, kvw_strategies);
	out = open_memstream(&text, &len);
	if (out == NULL) {
		perror("reference");
		return 1;
	}
	if (page)
		ok = write_page(out, &own, words[2]);
	else
		write_example(out, &own);
	if (fclose(out) != 0)
		ok = false;
	if (ok)
		ok = check ? same_as_file(words[1], text, len) : write_file(words[1], text, len);
	free(text);
	return ok ? 0 : 1;
}
