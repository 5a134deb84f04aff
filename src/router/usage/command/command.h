/*
 * command.h - `kvway usage`: shows what keys, tenants and models have used of a running router.
 */
#ifndef KVW_USAGE_COMMAND_H
#define KVW_USAGE_COMMAND_H

#include <stdio.h>

/* argv[0] is the word `usage`. Returns the program's exit status, an enum kvw_exit. */
int kvw_usage_command(int argc, char **argv, FILE *out, FILE *err);

#endif
