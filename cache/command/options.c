/*
 * options.c - parses the options of a verb: only long names, whose argument is the next word or
 * follows a '='.
 */
#include <stdarg.h>
#include <string.h>

#include "command/command.h"

int kvt_command_wrong(const char *verb, const char *format, ...)
{
	va_list args;

	fprintf(stderr, "kvtier %s: ", verb);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "; try `kvtier %s --help`\n", verb);
	return KVT_EXIT_USAGE;
}

static const struct kvt_option *find(const struct kvt_option *options, const char *word, size_t len)
{
	for (const struct kvt_option *o = options; o->name != NULL; o++)
		if (strlen(o->name) == len && memcmp(o->name, word, len) == 0)
			return o;
	return NULL;
}

/* Takes one option at argv[*i]. */
static bool take(const char *verb, int argc, char **argv, int *i, const struct kvt_option *options)
{
	const char *word = argv[*i];
	const char *equal = strchr(word, '=');
	const struct kvt_option *option =
		find(options, word, equal != NULL ? (size_t)(equal - word) : strlen(word));

	if (option == NULL) {
		kvt_command_wrong(verb, "no option `%s`", word);
		return false;
	}
	if (option->flag != NULL)
		*option->flag = true;
	if (option->value == NULL) {
		if (equal != NULL)
			kvt_command_wrong(verb, "`%s` takes no value", option->name);
		return equal == NULL;
	}
	if (equal == NULL && *i + 1 == argc) {
		kvt_command_wrong(verb, "`%s` needs a value", option->name);
		return false;
	}
	*option->value = equal != NULL ? equal + 1 : argv[++*i];
	return true;
}

int kvt_options_take(
	int argc, char **argv, const struct kvt_option *options, const char **rest, int operands)
{
	bool only_operands = false;
	int count = 0;

	for (int i = 1; i < argc; i++) {
		if (!only_operands && strcmp(argv[i], "--") == 0) {
			only_operands = true;
		} else if (!only_operands && argv[i][0] == '-' && argv[i][1] != '\0') {
			if (!take(argv[0], argc, argv, &i, options))
				return -1;
		} else if (count == operands) {
			kvt_command_wrong(argv[0], "`%s` is one argument too many", argv[i]);
			return -1;
		} else {
			rest[count++] = argv[i];
		}
	}
	return count;
}
