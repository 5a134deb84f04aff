/*
 * help.h - the texts that `kvtier --help` and `kvtier VERB --help` print.
 */
#ifndef KVT_HELP_H
#define KVT_HELP_H

extern const char kvt_help_program[];
#define KVT_COMMAND(verb, summary) extern const char kvt_help_##verb[];
#include "command/commands.def"

#endif
