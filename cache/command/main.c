/*
 * main.c - the program kvtier: finds the verb and calls it.
 */
#include <string.h>

#include "base/standard_out.h"
#include "command/command.h"
#include "command/help.h"

#define KVT_COMMAND(verb, summary) {#verb, kvt_command_##verb, summary, kvt_help_##verb},
const struct kvt_command kvt_commands[] = {
#include "command/commands.def"
	{NULL, NULL, NULL, NULL},
};

static void print_help(FILE *out)
{
	fputs("kvtier - inspects, checks and measures a tiered KV cache\n\n"
	      "usage: kvtier VERB [OPTION...] [ARGUMENT...]\n\n",
		out);
	for (const struct kvt_command *c = kvt_commands; c->name != NULL; c++)
		fprintf(out, "  %-10s %s\n", c->name, c->summary);
	fputs(kvt_help_program, out);
}

static const struct kvt_command *find(const char *name)
{
	for (const struct kvt_command *c = kvt_commands; c->name != NULL; c++)
		if (strcmp(c->name, name) == 0)
			return c;
	return NULL;
}

static int print_command_help(const struct kvt_command *command)
{
	printf("kvtier %s - %s\n\n%s", command->name, command->summary, command->help);
	return KVT_EXIT_OK;
}

static bool is_help(const char *word)
{
	return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static int run(int argc, char **argv)
{
	const struct kvt_command *command;

	if (argc < 2) {
		print_help(stderr);
		return KVT_EXIT_USAGE;
	}
	if (is_help(argv[1]) || (strcmp(argv[1], "help") == 0 && argc == 2)) {
		print_help(stdout);
		return KVT_EXIT_OK;
	}
	if (strcmp(argv[1], "--version") == 0) {
		printf("kvtier %s\n", KVW_VERSION);
		return KVT_EXIT_OK;
	}
	command = find(strcmp(argv[1], "help") == 0 ? argv[2] : argv[1]);
	if (command == NULL) {
		fprintf(stderr, "kvtier: no verb `%s`; `kvtier --help` lists them\n",
			strcmp(argv[1], "help") == 0 ? argv[2] : argv[1]);
		return KVT_EXIT_USAGE;
	}
	if (strcmp(argv[1], "help") == 0)
		return print_command_help(command);
	for (int i = 2; i < argc; i++)
		if (is_help(argv[i]))
			return print_command_help(command);
	return command->run(argc - 1, argv + 1);
}

/* The exit status shows truncated output, so that it does not look complete. */
int main(int argc, char **argv)
{
	int status = run(argc, argv);

	return !kvw_standard_out_whole("kvtier") && status == KVT_EXIT_OK ? KVT_EXIT_FAILED : status;
}
