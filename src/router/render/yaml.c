/*
 * yaml.c - writes YAML: lines that are indented by two blanks for each depth, and texts in quotes
 * where they need them.
 */
#include "render/yaml.h"

#include <ctype.h>
#include <stdarg.h>
#include <string.h>
#include <strings.h>

static void indent(FILE *out, int depth)
{
	fprintf(out, "%*s", depth * 2, "");
}

void kvw_yaml_line(FILE *out, int depth, const char *format, ...)
{
	va_list args;

	indent(out, depth);
	va_start(args, format);
	vfprintf(out, format, args);
	va_end(args);
	fputc('\n', out);
}

/* Returns whether a text needs no quotes: it has no special characters of YAML, and a colon only
 * within a word, as in an image or a URL. */
static bool is_plain(const char *text)
{
	for (const char *c = text; *c != '\0'; c++)
		if (!isalnum((unsigned char)*c) && strchr("_./@+-", *c) == NULL &&
			!(*c == ':' && c[1] != '\0' && c[1] != ' '))
			return false;
	return text[0] != '\0';
}

/* Returns whether some reader of YAML takes the word for another type. */
static bool is_word(const char *text)
{
	static const char *const words[] = {
		"y", "n", "yes", "no", "on", "off", "true", "false", "null"};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcasecmp(text, words[i]) == 0)
			return true;
	return false;
}

/* Returns the code point of a character that a reader of YAML would take for a line end, or refuse;
 * *size: its bytes. 0: it is none. The text is UTF-8. */
static unsigned unprintable(const char *text, size_t *size)
{
	const unsigned char *c = (const unsigned char *)text;

	*size = 1;
	if (c[0] < 0x20 || c[0] == 0x7F)
		return c[0];
	if (c[0] == 0xC2 && c[1] >= 0x80 && c[1] < 0xA0) {
		*size = 2;
		return c[1];
	}
	*size = 3;
	if (c[0] == 0xE2 && c[1] == 0x80 && (c[2] == 0xA8 || c[2] == 0xA9))
		return 0x2000u + c[2] - 0x80;
	if (c[0] == 0xEF && c[1] == 0xBB && c[2] == 0xBF)
		return 0xFEFF;
	*size = 1;
	return 0;
}

static void quoted(FILE *out, const char *text)
{
	fputc('"', out);
	while (*text != '\0') {
		size_t size;
		unsigned point = unprintable(text, &size);

		if (point != 0)
			fprintf(out, "\\u%04X", point);
		else
			fprintf(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
		text += size;
	}
	fputc('"', out);
}

void kvw_yaml_text(FILE *out, const char *text)
{
	bool begins = isalpha((unsigned char)text[0]) || text[0] == '/';

	if (begins && is_plain(text) && !is_word(text))
		fputs(text, out);
	else
		quoted(out, text);
}

void kvw_yaml_pair(FILE *out, int depth, const char *key, const char *text)
{
	indent(out, depth);
	fprintf(out, "%s: ", key);
	kvw_yaml_text(out, text);
	fputc('\n', out);
}

void kvw_yaml_texts(FILE *out, int depth, const char *key, const char *text)
{
	indent(out, depth);
	kvw_yaml_text(out, key);
	fputs(": ", out);
	kvw_yaml_text(out, text);
	fputc('\n', out);
}

void kvw_yaml_item(FILE *out, int depth, const char *text)
{
	indent(out, depth);
	fputs("- ", out);
	kvw_yaml_text(out, text);
	fputc('\n', out);
}

/* Writes a scalar of the document; one without quotes keeps its type. */
static void scalar(FILE *out, const struct kvw_node *node)
{
	if (kvw_node_is_null(node))
		fputs("null", out);
	else if (!node->quoted && is_plain(node->text))
		fputs(node->text, out);
	else
		kvw_yaml_text(out, node->text);
}

static void value_after(FILE *out, int depth, const struct kvw_node *value);

/* Writes the members of a mapping. continued: the first one goes on the line that has begun. */
static void members(FILE *out, int depth, const struct kvw_node *map, bool continued)
{
	for (const struct kvw_node *node = map->first; node != NULL; node = node->next) {
		if (!continued)
			indent(out, depth);
		continued = false;
		kvw_yaml_text(out, node->key->text);
		fputc(':', out);
		value_after(out, depth, node);
	}
}

static void items(FILE *out, int depth, const struct kvw_node *list)
{
	for (const struct kvw_node *node = list->first; node != NULL; node = node->next) {
		indent(out, depth);
		fputc('-', out);
		if (node->kind == KVW_NODE_MAP && node->count > 0) {
			fputc(' ', out);
			members(out, depth + 1, node, true);
		} else {
			value_after(out, depth + 1, node);
		}
	}
}

/* Writes the value after "key:" or "-", and the line end. */
static void value_after(FILE *out, int depth, const struct kvw_node *value)
{
	if (value->kind == KVW_NODE_MAP && value->count > 0) {
		fputc('\n', out);
		members(out, depth + 1, value, false);
	} else if (value->kind == KVW_NODE_LIST && value->count > 0) {
		fputc('\n', out);
		items(out, depth, value);
	} else {
		fputc(' ', out);
		if (value->kind == KVW_NODE_SCALAR)
			scalar(out, value);
		else
			fputs(value->kind == KVW_NODE_LIST ? "[]" : "{}", out);
		fputc('\n', out);
	}
}

void kvw_yaml_member(FILE *out, int depth, const char *key, const struct kvw_node *value)
{
	indent(out, depth);
	fprintf(out, "%s:", key);
	value_after(out, depth, value);
}

void kvw_yaml_entries(FILE *out, int depth, const struct kvw_node *value)
{
	if (value == NULL)
		return;
	if (value->kind == KVW_NODE_LIST)
		items(out, depth, value);
	else if (value->kind == KVW_NODE_MAP)
		members(out, depth, value, false);
}

void kvw_yaml_block(FILE *out, int depth, const char *key, const char *text)
{
	kvw_yaml_line(out, depth, "%s: |", key);
	for (const char *line = text; *line != '\0';) {
		size_t len = strcspn(line, "\n");

		if (len > 0)
			kvw_yaml_line(out, depth + 1, "%.*s", (int)len, line);
		else
			fputc('\n', out);
		line += len + (line[len] == '\n');
	}
}
