/*
 * reference.h - writes a schema for people: the tables of a reference page, and a YAML file with
 * every key and its default. The text around them belongs to the program.
 */
#ifndef KVW_CONFIG_REFERENCE_H
#define KVW_CONFIG_REFERENCE_H

#include <stdio.h>

#include "settings/key.h"

/* Writes a heading and a table for each section. */
void kvw_reference_sections(FILE *out, const struct kvw_schema *schema);

/* Writes the table of a schema without sections. */
void kvw_reference_keys(FILE *out, const struct kvw_schema *schema);

/* Writes a text into a cell of a table, with '|' escaped, because that would end the cell. */
void kvw_reference_cell(FILE *out, const char *text);

/* Writes every section with every key, as YAML. */
void kvw_reference_example(FILE *out, const struct kvw_schema *schema);

/* Writes one key with its comment, under `name` at this depth of sections. */
void kvw_reference_example_key(FILE *out, const struct kvw_schema *schema,
	const struct kvw_key *key, const char *name, size_t depth);

#endif
