/*
 * command.h - the commands `kvway groups` and `kvway compare`.
 */
#ifndef KVW_GROUPS_COMMAND_H
#define KVW_GROUPS_COMMAND_H

#include <stdio.h>

/* argv[0] is the word `groups` or `compare`. Returns the program's exit status. */
int kvw_groups_command(int argc, char **argv, FILE *out, FILE *err);

#endif
