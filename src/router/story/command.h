/*
 * command.h - `kvway trace`: what happened to requests of a running router.
 */
#ifndef KVW_STORY_COMMAND_H
#define KVW_STORY_COMMAND_H

#include <stdio.h>

/* argv[0] is the word `trace`. Returns the exit status of the program, enum kvw_story_status. */
int kvw_story_command(int argc, char **argv, FILE *out, FILE *err);

#endif
