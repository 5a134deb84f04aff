/*
 * standard_out.h - prints on standard output. Printed texts cannot act on the terminal, and lost
 * output is detected.
 *
 * Threads: only the thread that prints and ends the program.
 */
#ifndef KVW_STANDARD_OUT_H
#define KVW_STANDARD_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "kvway/err.h"

/* Prints text from outside, with `?` in place of each control character, also of those of two bytes
 * in UTF-8 (C1), which some terminals obey. */
void kvw_print_clean(FILE *out, const char *text, size_t len);
/* Prints like fprintf, but so. A newline at the end of the format is printed. */
__attribute__((format(printf, 2, 3))) void kvw_printf(FILE *out, const char *format, ...);
/* Prints a text so, and blanks behind it up to `width` characters of UTF-8. */
void kvw_print_column(FILE *out, const char *text, int width);

/* Flushes standard output. Returns false if printed text is lost, for example on a full disk; then
 * a line on standard error, which begins with `program`, says so. */
bool kvw_standard_out_whole(const char *program) KVW_MUST_CHECK;

#endif
