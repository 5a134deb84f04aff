/*
 * command.h - `kvway workers`: shows and changes the workers of a running router.
 */
#ifndef KVW_WORKERS_COMMAND_H
#define KVW_WORKERS_COMMAND_H

#include <stdio.h>

/* argv[0] is the word `workers`. Only `add -` reads from `in`. Returns the program's exit status,
 * an enum kvw_workers_status. */
int kvw_workers_command(int argc, char **argv, FILE *in, FILE *out, FILE *err);

#endif
