/*
 * standard_out.h - what a program prints: without effect on a terminal, and whether it has arrived.
 *
 * Threads: the one that prints, and ends the program.
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

/* Writes what standard output still holds. False: something that was printed is lost, such as on a
 * full disk; then it says so on standard error, after `program`. */
bool kvw_standard_out_whole(const char *program) KVW_MUST_CHECK;

#endif
