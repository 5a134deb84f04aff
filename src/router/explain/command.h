/*
 * explain_command.h - `kvway explain`: which worker would get a request, and why.
 */
#ifndef KVW_EXPLAIN_COMMAND_H
#define KVW_EXPLAIN_COMMAND_H

#include <stdio.h>

/* argv[0] is the word `explain`. Reads the request from `in`. Returns the exit status of the
 * program, enum kvw_explain_status. */
int kvw_explain_command(int argc, char **argv, FILE *in, FILE *out, FILE *err);

#endif
