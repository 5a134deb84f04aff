/* option_table.c - command-line options as a table, which parses them and prints their help. */
#include "bench/load/option_table.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_WIDTH 27 /* width of the help's column of names */

static bool has_value(const struct kvb_option *row)
{
	return row->type != KVB_ON && row->type != KVB_OFF;
}

static void print_default(FILE *out, const struct kvb_option *row, const void *at)
{
	if (row->type == KVB_NUMBER)
		fprintf(out, " (%g)", *(const double *)at);
	else if (row->type == KVB_WHOLE)
		fprintf(out, " (%lld)", (long long)*(const int64_t *)at);
	else if (row->type == KVB_TEXT && *(const char *const *)at != NULL)
		fprintf(out, " (%s)", *(const char *const *)at);
	else if (row->type == KVB_CHOICE && *(const int *)at >= 0)
		fprintf(out, " (%s)", row->choices[*(const int *)at]);
}

/* "--name VALUE", cut at size. Returns its length. */
static int print_left(char *left, size_t size, const struct kvb_option *row)
{
	return snprintf(left, size, "--%s %s", row->name, row->value ? row->value : "");
}

void kvb_option_help(const struct kvb_option_table *table, int groups, FILE *out)
{
	int width = LEAST_WIDTH;
	char left[64];

	for (size_t i = 0; i < table->count; i++) {
		int len = print_left(left, sizeof(left), &table->rows[i]);

		if (table->rows[i].groups == groups && len > width)
			width = len;
	}
	for (size_t i = 0; i < table->count; i++) {
		const struct kvb_option *row = &table->rows[i];

		if (row->groups != groups)
			continue;
		print_left(left, sizeof(left), row);
		fprintf(out, "  %-*s %s", width, left, row->text);
		print_default(out, row, (const char *)table->defaults + row->offset);
		fputc('\n', out);
	}
}

const struct kvb_option *kvb_option_find(
	const struct kvb_option_table *table, const char *name, size_t len)
{
	for (size_t i = 0; i < table->count; i++)
		if (strlen(table->rows[i].name) == len &&
			memcmp(table->rows[i].name, name, len) == 0)
			return &table->rows[i];
	return NULL;
}

static enum kvw_err set_number(
	const struct kvb_option *row, void *at, const char *text, FILE *error)
{
	bool whole = row->type == KVB_WHOLE;
	double value;
	char *end;

	errno = 0;
	value = strtod(text, &end);
	if (errno || end == text || *end || !(value >= row->min && value <= row->max) ||
		(whole && value != floor(value))) {
		fprintf(error, "kvbench: --%s is '%s', expected a %snumber from %g to %g\n",
			row->name, text, whole ? "whole " : "", row->min, row->max);
		return KVW_EINVAL;
	}
	if (whole)
		*(int64_t *)at = (int64_t)value;
	else
		*(double *)at = value;
	return KVW_OK;
}

static enum kvw_err add_text(
	const struct kvb_option *row, struct kvb_texts *texts, const char *text, FILE *error)
{
	if (texts->count == KVB_MAX_TEXTS) {
		fprintf(error, "kvbench: at most %d --%s\n", KVB_MAX_TEXTS, row->name);
		return KVW_EINVAL;
	}
	texts->items[texts->count++] = text;
	return KVW_OK;
}

static enum kvw_err set_choice(const struct kvb_option *row, int *at, const char *text, FILE *error)
{
	for (int i = 0; row->choices[i] != NULL; i++) {
		if (strcmp(row->choices[i], text) != 0)
			continue;
		*at = i;
		return KVW_OK;
	}
	fprintf(error, "kvbench: --%s is '%s', expected ", row->name, text);
	for (int i = 0; row->choices[i] != NULL; i++)
		fprintf(error, "%s%s", i > 0 ? ", " : "", row->choices[i]);
	fputc('\n', error);
	return KVW_EINVAL;
}

enum kvw_err kvb_option_set(
	const struct kvb_option *row, void *options, const char *text, FILE *error)
{
	void *at = (char *)options + row->offset;

	switch (row->type) {
	case KVB_NUMBER:
	case KVB_WHOLE:
		return set_number(row, at, text, error);
	case KVB_TEXT:
		*(const char **)at = text;
		return KVW_OK;
	case KVB_TEXTS:
		return add_text(row, at, text, error);
	case KVB_CHOICE:
		return set_choice(row, at, text, error);
	case KVB_ON:
	case KVB_OFF:
		*(bool *)at = row->type == KVB_ON;
		return KVW_OK;
	}
	return KVW_EINVAL;
}

enum kvw_err kvb_option_parse(const struct kvb_option_table *table, int groups, const char *command,
	int argc, char **argv, int *i, void *options, const struct kvb_option **found, FILE *error)
{
	const char *name = argv[*i] + 2;
	size_t len = strcspn(name, "=");
	const struct kvb_option *row = NULL;

	if (strncmp(argv[*i], "--", 2) == 0)
		row = kvb_option_find(table, name, len);
	if (row == NULL) {
		fprintf(error, "kvbench: unknown option '%s'; kvbench --help lists them\n",
			argv[*i]);
		return KVW_EINVAL;
	}
	if (!(row->groups & groups)) {
		fprintf(error, "kvbench: --%s is not an option of '%s'\n", row->name, command);
		return KVW_EINVAL;
	}
	if (found != NULL)
		*found = row;
	if (!has_value(row) && name[len] == '=') {
		fprintf(error, "kvbench: --%s takes no value\n", row->name);
		return KVW_EINVAL;
	}
	if (!has_value(row))
		return kvb_option_set(row, options, NULL, error);
	if (name[len] == '=')
		return kvb_option_set(row, options, name + len + 1, error);
	if (*i + 1 == argc) {
		fprintf(error, "kvbench: --%s needs a value: %s\n", row->name, row->text);
		return KVW_EINVAL;
	}
	*i += 1;
	return kvb_option_set(row, options, argv[*i], error);
}
