/*
 * command.h - `kvway workers`: shows and changes the workers of a running router.
 */
#ifndef KVW_WORKERS_COMMAND_H
#define KVW_WORKERS_COMMAND_H

#include <stdio.h>

/* argv[0] is the word `workers`. Only `add -` reads standard input. Returns the program's exit
 * status, an enum kvw_exit. */
int kvw_workers_command(int argc, char **argv, FILE *out, FILE *err);

#endif
