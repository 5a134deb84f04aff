/*
 * cli_diff.h - prints what a reload would change, for `kvway check --diff`.
 */
#ifndef KVW_CLI_DIFF_H
#define KVW_CLI_DIFF_H

#include <stdio.h>

#include "config/diff.h"

/* Prints a table of the differences, then a line that sums them up. running: the name of the old
 * configuration. */
void kvw_cli_print_diff(FILE *out, const struct kvw_config_diff *diff, const char *running);

#endif
