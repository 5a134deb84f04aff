/*
 * cli_diff.h - what `kvway check --diff` prints: what a reload would change.
 */
#ifndef KVW_CLI_DIFF_H
#define KVW_CLI_DIFF_H

#include <stdio.h>

#include "config/diff.h"

/* A table of what differs, then a line that sums it up. `running` is the name of the old one. */
void kvw_cli_print_diff(FILE *out, const struct kvw_config_diff *diff, const char *running);

#endif
