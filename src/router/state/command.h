/*
 * command.h - `kvway state FILE`: shows a snapshot's contents, and whether the snapshot is whole.
 */
#ifndef KVW_STATE_COMMAND_H
#define KVW_STATE_COMMAND_H

#include <stdio.h>

/* argv[0] is the word `state`. Returns the exit status of the program: 0 it is whole, 1 it is not,
 * or there is none, 2 wrong usage. */
int kvw_state_command(int argc, char **argv, FILE *out, FILE *err);

#endif
