/*
 * command.h - `kvway explain`: shows which worker would get a request, and why.
 */
#ifndef KVW_EXPLAIN_COMMAND_H
#define KVW_EXPLAIN_COMMAND_H

#include <stdio.h>

/* argv[0] is the word `explain`. Reads the request from standard input. Returns the
 * program's exit status, an enum kvw_exit. */
int kvw_explain_command(int argc, char **argv, FILE *out, FILE *err);

#endif
