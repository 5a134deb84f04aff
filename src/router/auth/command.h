/*
 * command.h - `kvway key`: makes a client's key, and checks a file of keys.
 */
#ifndef KVW_KEY_COMMAND_H
#define KVW_KEY_COMMAND_H

#include <stdio.h>

/* argv[0] is the word `key`. Only `check FILE -` reads from `in`. Returns the program's exit
 * status: 0 success, 1 mistakes in the file or an invalid key, 2 a wrong command line. */
int kvw_key_command(int argc, char **argv, FILE *in, FILE *out, FILE *err);

#endif
