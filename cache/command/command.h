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
#define KVT_EXIT_USAGE  2 /* the command line is wrong */
#define KVT_EXIT_FAILED 3 /* the verb could not run: no such file, no memory */

struct kvt_command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary; /* one line */
	const char *help;    /* the rest of `kvtier NAME --help` */
};

/* All verbs of commands.def, ended by a NULL name. */
extern const struct kvt_command kvt_commands[];

#define KVT_COMMAND(verb, summary) int kvt_command_##verb(int argc, char **argv);
#include "command/commands.def"

/* One option of a verb: "--json", or "--chunk SIZE" where value is not NULL. */
struct kvt_option {
	const char *name;   /* "--json"; NULL ends the list */
	const char **value; /* receives the argument that follows; NULL: the option takes none */
	bool *flag;         /* set if the option is given; may be NULL */
};

/*
 * Parses options: *rest gets the first operand; there may be `operands` at most, and the result is
 * their number. -1: wrong, reported on standard error with "try kvtier VERB --help".
 */
int kvt_options_take(
	int argc, char **argv, const struct kvt_option *options, const char **rest, int operands);

/* Reports a usage mistake in one line; returns KVT_EXIT_USAGE. */
int kvt_command_wrong(const char *verb, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
