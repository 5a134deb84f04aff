/*
 * command.h - the verbs of the program `kvtier`: each is one file and one line in commands.def.
 *
 * A verb gets its arguments, its own name first, and returns the program's exit status. A verb
 * prints its result on standard output and everything else on standard error.
 */
#ifndef KVT_COMMAND_H
#define KVT_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define KVT_EXIT_OK     0
#define KVT_EXIT_DAMAGE 1 /* verify: damage; check: mistakes */
#define KVT_EXIT_USAGE  2 /* exit status: the command line is wrong */
/* exit status: the verb could not run, for example because a file is missing */
#define KVT_EXIT_FAILED 3

struct kvt_command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary; /* one line */
	const char *help;    /* the text of `kvtier NAME --help` after its first lines */
};

/* All verbs of commands.def, ended by a verb with the name NULL. */
extern const struct kvt_command kvt_commands[];

#define KVT_COMMAND(verb, summary) int kvt_command_##verb(int argc, char **argv);
#include "command/commands.def"

/* One option of a verb: "--json", or "--chunk SIZE" where value is not NULL. */
struct kvt_option {
	const char *name;   /* "--json"; NULL ends the list */
	const char **value; /* is set to the argument that follows; NULL: the option takes none */
	bool *flag;         /* set to true if the option is given; may be NULL */
};

/*
 * Parses options. *rest is set to the first operand; at most `operands` are allowed, and the result
 * is their number. -1: the command line is wrong, which is reported on standard error with "try
 * kvtier VERB --help".
 */
int kvt_options_take(
	int argc, char **argv, const struct kvt_option *options, const char **rest, int operands);

/* Reports that the command line is wrong, in one line; returns KVT_EXIT_USAGE. */
int kvt_command_wrong(const char *verb, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
