/* command.h - runs the command `kvway top`. */
#ifndef KVW_TOP_COMMAND_H
#define KVW_TOP_COMMAND_H

#include <stdio.h>

/* argv[0] is "top". Returns the exit status of the program (enum kvw_exit). argv may be
 * reordered. */
int kvw_top_command(int argc, char **argv, FILE *out, FILE *err);

#endif
