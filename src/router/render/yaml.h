/*
 * yaml.h - writing YAML: lines at a depth of two blanks each, and texts in quotes where they need
 * them.
 *
 * A depth counts mappings; the lines of a list's entry begin with "- " at the list's own depth and
 * go on one deeper, as kubectl prints it. Errors of the stream are its own (ferror).
 */
#ifndef KVW_RENDER_YAML_H
#define KVW_RENDER_YAML_H

#include <stdio.h>

#include "settings/document.h"

/* Writes a raw line. The format must write no text of a user's. */
void kvw_yaml_line(FILE *out, int depth, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* A text, in quotes unless every reader of YAML takes it for the same text without. */
void kvw_yaml_text(FILE *out, const char *text);

/* "key: text", the key as it is; "- text"; both as a text for every reader. */
void kvw_yaml_pair(FILE *out, int depth, const char *key, const char *text);
/* The key is a user's, too. */
void kvw_yaml_texts(FILE *out, int depth, const char *key, const char *text);
void kvw_yaml_item(FILE *out, int depth, const char *text);

/* "key:" and the value as it was written: numbers and truth values keep their types. */
void kvw_yaml_member(FILE *out, int depth, const char *key, const struct kvw_node *value);

/* The entries of a list, or the members of a mapping, at this depth; nothing for an empty one. */
void kvw_yaml_entries(FILE *out, int depth, const struct kvw_node *value);

/* "key: |" and the text's lines. */
void kvw_yaml_block(FILE *out, int depth, const char *key, const char *text);

#endif
