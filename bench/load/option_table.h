/*
 * option_table.h - command-line options as a table, which parses them and prints their help.
 *
 * A row has the place of the value in the caller's structure, its allowed values and its
 * description, so --help and the parser cannot disagree. An option is `--name value` or
 * `--name=value`.
 */
#ifndef KVB_OPTION_TABLE_H
#define KVB_OPTION_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "kvway/err.h"

#define KVB_MAX_TEXTS 64

enum kvb_option_type {
	KVB_NUMBER, /* double */
	KVB_WHOLE,  /* int64_t */
	KVB_TEXT,   /* const char *, borrowed from argv */
	KVB_TEXTS,  /* struct kvb_texts: the option may be repeated */
	KVB_CHOICE, /* int: index in the row's choices */
	KVB_ON,     /* bool, without a value: true */
	KVB_OFF,    /* bool, without a value: false */
};

/* All values of a repeatable option; strings are borrowed from argv. */
struct kvb_texts {
	const char *items[KVB_MAX_TEXTS];
	size_t count;
};

struct kvb_option {
	const char *name; /* without the dashes */
	enum kvb_option_type type;
	int groups;                 /* the commands that have this option, as bits */
	size_t offset;              /* place of the value in the caller's structure */
	double min, max;            /* of numbers */
	const char *value; /* name of the value in the help text; NULL: the option has no value */
	const char *text;           /* the option's description */
	const char *const *choices; /* ends with NULL */
};

struct kvb_option_table {
	const struct kvb_option *rows;
	size_t count;
	const void *defaults; /* the caller's structure with all defaults */
};

/* Returns the row of that name (len bytes); NULL: there is none. */
const struct kvb_option *kvb_option_find(
	const struct kvb_option_table *table, const char *name, size_t len);
/* Sets one option from text (NULL if its type has no value). KVW_EINVAL: a message was written to
 * error. */
enum kvw_err kvb_option_set(
	const struct kvb_option *row, void *options, const char *text, FILE *error) KVW_MUST_CHECK;
/*
 * Reads argv[*i], an option of one of the groups, and moves *i past its value. command: name of the
 * groups in messages. *found (may be NULL) becomes the row. KVW_EINVAL: a message was written to
 * error.
 */
enum kvw_err kvb_option_parse(const struct kvb_option_table *table, int groups, const char *command,
	int argc, char **argv, int *i, void *options, const struct kvb_option **found,
	FILE *error) KVW_MUST_CHECK;
/* Writes the help for the rows that belong to exactly these groups, with their defaults. */
void kvb_option_help(const struct kvb_option_table *table, int groups, FILE *out);

#endif
