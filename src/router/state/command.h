/*
 * command.h - `kvway state FILE`: shows the contents of a snapshot, and whether it is undamaged.
 */
#ifndef KVW_STATE_COMMAND_H
#define KVW_STATE_COMMAND_H

#include <stdio.h>

/* argv[0] is the word `state`. Returns the program's exit status: 0 the snapshot is undamaged; 1 it
 * is damaged, or there is none; 2 the command line is wrong. */
int kvw_state_command(int argc, char **argv, FILE *out, FILE *err);

#endif
