/*
 * yaml.h - writes YAML: lines that are indented by two blanks for each depth, and texts in quotes
 * where they need them.
 *
 * A depth counts mappings. The lines of a list's entry begin with "- " at the list's own depth and
 * go on one deeper, as kubectl prints them. If writing fails, the stream has the error (ferror).
 */
#ifndef KVW_RENDER_YAML_H
#define KVW_RENDER_YAML_H

#include <stdio.h>

#include "settings/document.h"

/* Writes a line as it is, so the format must not contain a user's text. */
void kvw_yaml_line(FILE *out, int depth, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Writes a text, in quotes unless every reader of YAML reads it as the same text without them. */
void kvw_yaml_text(FILE *out, const char *text);

/* These write "key: text", where the key is not put into quotes, and "- text". */
void kvw_yaml_pair(FILE *out, int depth, const char *key, const char *text);
/* Writes "key: text" where the key is a user's text, too. */
void kvw_yaml_texts(FILE *out, int depth, const char *key, const char *text);
void kvw_yaml_item(FILE *out, int depth, const char *text);

/* Writes "key:" and the value as it is in the document: numbers and truth values keep their
 * types. */
void kvw_yaml_member(FILE *out, int depth, const char *key, const struct kvw_node *value);

/* Writes the entries of a list, or the members of a mapping, at this depth; nothing for an empty
 * one. */
void kvw_yaml_entries(FILE *out, int depth, const struct kvw_node *value);

/* Writes "key: |" and the lines of the text. */
void kvw_yaml_block(FILE *out, int depth, const char *key, const char *text);

#endif
