/*
 * standard_out.h - prints on standard output; texts cannot control a terminal, and a loss is
 * detected.
 *
 * Threads: the thread that prints and ends the program.
 */
#ifndef KVW_STANDARD_OUT_H
#define KVW_STANDARD_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "kvway/err.h"

/* Prints text from outside: `?` for each control character, also those of two bytes of UTF-8 (C1),
 * which some terminals obey. */
void kvw_print_clean(FILE *out, const char *text, size_t len);

/* Flushes standard output. False: printed text is lost, such as on a full disk; a line on standard
 * error, beginning with `program`, reports that. */
bool kvw_standard_out_whole(const char *program) KVW_MUST_CHECK;

#endif
