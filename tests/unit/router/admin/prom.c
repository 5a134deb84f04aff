/*
 * prom.c - a strict reader of Prometheus text 0.0.4, for tests.
 */
#include "prom.h"

#include <check.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct series {
	char *text; /* name{labels} as written */
	char *name; /* without labels */
	char *rest; /* labels without le, for histograms */
	char *le;   /* NULL if there is none */
	double value;
	size_t family;
};

struct family {
	char *name, *type;
	size_t series_count;
};

struct prom {
	struct series *series;
	struct family *families;
	size_t series_count, family_count;
};

static bool name_char(char c, bool first, bool label)
{
	return isalpha((unsigned char)c) || c == '_' || (c == ':' && !label) ||
	       (isdigit((unsigned char)c) && !first);
}

static size_t name_length(const char *at, bool label)
{
	size_t n = 0;

	while (name_char(at[n], n == 0, label))
		n++;
	return n;
}

static size_t family_find(const struct prom *prom, const char *name, size_t len)
{
	for (size_t i = 0; i < prom->family_count; i++)
		if (strlen(prom->families[i].name) == len &&
			memcmp(prom->families[i].name, name, len) == 0)
			return i;
	return SIZE_MAX;
}

static size_t family_add(struct prom *prom, const char *name, size_t len)
{
	struct family *family;

	prom->families = realloc(
		prom->families, (prom->family_count + 1) * sizeof(*prom->families));
	family = &prom->families[prom->family_count];
	*family = (struct family){strndup(name, len), NULL, 0};
	return prom->family_count++;
}

/* # HELP name text   or   # TYPE name type */
static void parse_comment(struct prom *prom, const char *line)
{
	bool type = strncmp(line, "# TYPE ", 7) == 0;
	const char *name = line + 7, *value;
	size_t len, family;

	if (!type && strncmp(line, "# HELP ", 7) != 0)
		return;
	len = name_length(name, false);
	ck_assert_msg(len > 0 && name[len] == ' ', "bad comment: %s", line);
	value = name + len + 1;
	family = family_find(prom, name, len);
	if (!type) {
		ck_assert_msg(family == SIZE_MAX, "second HELP: %s", line);
		family_add(prom, name, len);
		return;
	}
	ck_assert_msg(family == prom->family_count - 1, "TYPE away from its HELP: %s", line);
	ck_assert_msg(prom->families[family].type == NULL, "second TYPE: %s", line);
	ck_assert_msg(strcmp(value, "counter") == 0 || strcmp(value, "gauge") == 0 ||
			      strcmp(value, "histogram") == 0,
		"unknown type: %s", line);
	prom->families[family].type = strdup(value);
}

/* The family of a sample's name: a histogram's samples carry suffixes. */
static size_t family_of(const struct prom *prom, const char *name, size_t len)
{
	static const char *const suffixes[] = {"_bucket", "_sum", "_count"};
	size_t family = family_find(prom, name, len);

	if (family != SIZE_MAX)
		return family;
	for (size_t i = 0; i < 3; i++) {
		size_t n = strlen(suffixes[i]);

		if (len <= n || memcmp(name + len - n, suffixes[i], n) != 0)
			continue;
		family = family_find(prom, name, len - n);
		if (family != SIZE_MAX && strcmp(prom->families[family].type, "histogram") == 0)
			return family;
	}
	return SIZE_MAX;
}

/* Checks the labels that start at the brace; collects them without le. Returns what follows. */
static const char *parse_labels(const char *at, const char *line, struct series *series)
{
	FILE *rest;
	size_t size;

	rest = open_memstream(&series->rest, &size);
	at++;
	while (*at != '}') {
		size_t len = name_length(at, true);
		const char *start = at, *value;
		bool le = len == 2 && memcmp(at, "le", 2) == 0;

		ck_assert_msg(len > 0 && at[len] == '=' && at[len + 1] == '"', "label: %s", line);
		value = at = at + len + 2;
		while (*at != '"') {
			ck_assert_msg(*at != '\0', "open label: %s", line);
			if (*at == '\\') {
				at++;
				ck_assert_msg(*at == '\\' || *at == '"' || *at == 'n',
					"bad escape: %s", line);
			}
			at++;
		}
		if (le)
			series->le = strndup(value, (size_t)(at - value));
		at++;
		if (!le)
			fprintf(rest, "%.*s;", (int)(at - start), start);
		ck_assert_msg(*at == '}' || *at == ',', "after label: %s", line);
		if (*at == ',')
			at++;
	}
	fclose(rest);
	return at + 1;
}

static void parse_sample(struct prom *prom, const char *line)
{
	size_t len = name_length(line, false), family;
	const char *at = line + len;
	struct series series = {0};
	char *end;

	ck_assert_msg(len > 0, "no name: %s", line);
	family = family_of(prom, line, len);
	ck_assert_msg(family != SIZE_MAX && prom->families[family].type != NULL,
		"sample without HELP and TYPE: %s", line);
	ck_assert_msg(family == prom->family_count - 1, "sample away from its family: %s", line);
	series.family = family;
	series.name = strndup(line, len);
	if (*at == '{')
		at = parse_labels(at, line, &series);
	series.text = strndup(line, (size_t)(at - line));
	ck_assert_msg(*at == ' ', "no value: %s", line);
	series.value = strtod(at + 1, &end);
	ck_assert_msg(end != at + 1 && *end == '\0', "bad value: %s", line);
	for (size_t i = prom->series_count; i-- > 0 && prom->series[i].family == family;)
		ck_assert_msg(strcmp(prom->series[i].text, series.text) != 0, "twice: %s", line);
	ck_assert_msg(strcmp(prom->families[family].type, "counter") != 0 || series.value >= 0,
		"negative counter: %s", line);
	prom->series = realloc(prom->series, (prom->series_count + 1) * sizeof(*prom->series));
	prom->series[prom->series_count++] = series;
	prom->families[family].series_count++;
}

static bool same_labels(const struct series *a, const struct series *b)
{
	return strcmp(a->rest == NULL ? "" : a->rest, b->rest == NULL ? "" : b->rest) == 0;
}

/* Every bucket run ascends in bound and value and ends in +Inf, equal to _count. */
static void check_histograms(const struct prom *prom)
{
	for (size_t i = 0; i < prom->series_count; i++) {
		const struct series *s = &prom->series[i], *next = s + 1;
		double bound;

		if (s->le == NULL)
			continue;
		bound = strtod(s->le, NULL);
		ck_assert_msg(i + 1 < prom->series_count, "histogram cut: %s", s->text);
		if (!isinf(bound)) {
			ck_assert_msg(next->le != NULL && same_labels(s, next) &&
					      strtod(next->le, NULL) > bound &&
					      next->value >= s->value,
				"buckets do not ascend: %s", s->text);
			continue;
		}
		ck_assert_msg(strstr(next->name, "_sum") != NULL && same_labels(s, next),
			"no sum after: %s", s->text);
		ck_assert_msg(strstr(next[1].name, "_count") != NULL && same_labels(s, next + 1) &&
				      next[1].value == s->value,
			"no count, or another one, after: %s", s->text);
	}
}

struct prom *prom_parse(const char *text, size_t len)
{
	struct prom *prom = calloc(1, sizeof(*prom));
	char *copy = strndup(text, len), *rest = copy, *line;

	ck_assert_msg(strlen(copy) == len, "NUL in the text");
	ck_assert_msg(len > 0 && text[len - 1] == '\n', "the last line has no end");
	while ((line = strsep(&rest, "\n")) != NULL) {
		if (line[0] == '\0')
			ck_assert_msg(rest == NULL, "empty line");
		else if (line[0] == '#')
			parse_comment(prom, line);
		else
			parse_sample(prom, line);
	}
	free(copy);
	check_histograms(prom);
	return prom;
}

void prom_free(struct prom *prom)
{
	for (size_t i = 0; i < prom->series_count; i++) {
		free(prom->series[i].text);
		free(prom->series[i].name);
		free(prom->series[i].rest);
		free(prom->series[i].le);
	}
	for (size_t i = 0; i < prom->family_count; i++) {
		free(prom->families[i].name);
		free(prom->families[i].type);
	}
	free(prom->series);
	free(prom->families);
	free(prom);
}

double prom_value(const struct prom *prom, const char *series, bool *found)
{
	for (size_t i = 0; i < prom->series_count; i++) {
		*found = strcmp(prom->series[i].text, series) == 0;
		if (*found)
			return prom->series[i].value;
	}
	return 0;
}

double prom_get(const struct prom *prom, const char *series)
{
	bool found = false;
	double value = prom_value(prom, series, &found);

	ck_assert_msg(found, "no series %s", series);
	return value;
}

size_t prom_family(const struct prom *prom, const char *name, const char *type)
{
	size_t family = family_find(prom, name, strlen(name));

	ck_assert_msg(family != SIZE_MAX, "no family %s", name);
	if (type != NULL)
		ck_assert_str_eq(prom->families[family].type, type);
	return prom->families[family].series_count;
}
