/*
 * report.h - mistakes in a configuration, printed as they are found.
 *
 * One line each: `FILE:LINE:COLUMN: KEY: ...` for a file, `--flag: ...` for a flag. After
 * KVW_REPORT_MOST lines the rest is only counted, so that a file of another kind does not fill the
 * terminal. Text from the file is printed through quote(): short, one line, no control characters
 * that could act on a terminal.
 */
#ifndef KVW_CONFIG_REPORT_H
#define KVW_CONFIG_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define KVW_REPORT_MOST  100
#define KVW_REPORT_QUOTE 96 /* room for quote()'s output */

/* Where a value was written. */
struct kvw_place {
	const char *flag;    /* "--listen"; NULL: the mistake is in the file, at `at` */
	size_t line, column; /* from 1 */
};

struct kvw_report {
	FILE *out;        /* borrowed */
	const char *name; /* path of the file as the user gave it; borrowed */
	size_t mistakes;
};

void kvw_report_start(struct kvw_report *report, const char *name, FILE *out);

/* Prints a mistake, or counts it. key may be NULL for mistakes of syntax. The text has no line
 * end. */
void kvw_report_mistake(struct kvw_report *report, struct kvw_place place, const char *key,
	const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Prints the number of mistakes that were not printed. */
void kvw_report_finish(struct kvw_report *report);

/* Returns whether a mistake would still be printed: if not, a suggestion need not be computed. */
bool kvw_report_printing(const struct kvw_report *report);

/* Writes `text` in backquotes into out, and returns out. */
const char *kvw_report_quote(char out[KVW_REPORT_QUOTE], const char *text, size_t len);

#endif
