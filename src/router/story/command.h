/*
 * command.h - `kvway trace`: shows what happened to requests of a running router.
 */
#ifndef KVW_STORY_COMMAND_H
#define KVW_STORY_COMMAND_H

#include <stdio.h>

/* argv[0] is the word `trace`. Returns the program's exit status, an enum kvw_exit. */
int kvw_story_command(int argc, char **argv, FILE *out, FILE *err);

#endif
