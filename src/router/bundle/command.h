/*
 * command.h - the command `kvway bundle`: one archive with what a support case needs.
 *
 * Call it before any thread is started: getopt_long keeps its state in globals.
 */
#ifndef KVW_BUNDLE_COMMAND_H
#define KVW_BUNDLE_COMMAND_H

#include <stdio.h>

/* argv[0] is the word `bundle`. Returns the exit status: 0 done, 1 the archive cannot be written,
 * or the configuration cannot be read, 2 wrong usage, 3 the archive was written, and lacks the
 * router's answers, since no router answers. */
int kvw_bundle_command(int argc, char **argv, FILE *out, FILE *err);

#endif
