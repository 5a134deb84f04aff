/*
 * standard_out.h - whether what a program printed has arrived.
 *
 * Threads: the one that ends the program.
 */
#ifndef KVW_STANDARD_OUT_H
#define KVW_STANDARD_OUT_H

#include <stdbool.h>

#include "kvway/err.h"

/* Writes what standard output still holds. False: something that was printed is lost, such as on a full disk; then it
 * says so on standard error, after `program`. */
bool kvw_standard_out_whole(const char *program) KVW_MUST_CHECK;

#endif
