/*
 * command.h - `kvway key`: makes a client's key, and checks a file of keys.
 */
#ifndef KVW_KEY_COMMAND_H
#define KVW_KEY_COMMAND_H

#include <stdio.h>

/* argv[0] is the word `key`. `in` is read by `check FILE -` alone. Returns the exit status of the
 * program: 0 success, 1 mistakes in the file or an invalid key, 2 wrong usage. */
int kvw_key_command(int argc, char **argv, FILE *in, FILE *out, FILE *err);

#endif
