/*
 * standard_out.h - printing on standard output: texts cannot command a terminal, and a loss is
 * noticed.
 *
 * Threads: the thread that prints and ends the program.
 */
#ifndef KVW_STANDARD_OUT_H
#define KVW_STANDARD_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "kvway/err.h"

/* Prints text that others have chosen: `?` for each control character, also those of two bytes of
 * UTF-8 (C1), which some terminals obey. */
void kvw_print_clean(FILE *out, const char *text, size_t len);

/* Flushes standard output. False: printed text is lost, such as on a full disk; a line on standard
 * error says so, after `program`. */
bool kvw_standard_out_whole(const char *program) KVW_MUST_CHECK;

#endif
