/*
 * admin_options.c - reads the flags that several commands share, and a command's own.
 */
#include "admin_options.h"

#include <assert.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "settings/address.h"
#include "settings/suggest.h"

#define FLAGS_MOST 24
#define NUMBER     256 /* getopt_long's number of the first flag; letters are below */

void kvw_admin_line_wrong(struct kvw_admin_line *line, const char *format, ...)
{
	va_list arguments;

	fprintf(line->err, "kvway %s: ", line->command);
	va_start(arguments, format);
	(void)vfprintf(line->err, format, arguments);
	va_end(arguments);
	fprintf(line->err, "\nTry `kvway %s --help`.\n", line->command);
	line->bad = true;
}

/* --- the flags that all commands have --- */

static const char *take_admin(struct kvw_admin_line *line, const char *value)
{
	static const char https[] = "https://";
	struct kvw_address address;

	if (strncmp(value, https, sizeof(https) - 1) == 0) {
		value += sizeof(https) - 1;
		line->options->https = true;
	}
	if (kvw_address_split(kvw_slice_of(value), &address) == KVW_ADDRESS_OK && address.port != 0)
		return value;
	kvw_admin_line_wrong(
		line, "--admin: found `%s`, expected HOST:PORT or https://HOST:PORT", value);
	return NULL;
}

static const char *take_tls(struct kvw_admin_line *line, const char *value)
{
	line->options->https = true;
	return value;
}

#define AT(member) offsetof(struct kvw_admin_options, member)

static const struct kvw_admin_flag shared[] = {
	{.name = "config", .letter = 'c', .offset = AT(config)},
	{.name = "help", .letter = 'h', .offset = AT(help), .bare = true},
	{.name = "admin", .offset = AT(admin), .take = take_admin},
	{.name = "json", .offset = AT(json), .bare = true},
	{.name = "key-file", .offset = AT(key_file)},
	{.name = "ca", .offset = AT(ca), .take = take_tls},
	{.name = "cert", .offset = AT(cert), .take = take_tls},
	{.name = "key", .offset = AT(cert_key), .take = take_tls},
	{.name = "server-name", .offset = AT(server_name), .take = take_tls},
	{.name = NULL},
};

/* --- reading --- */

static void take_number(
	struct kvw_admin_line *line, const struct kvw_admin_flag *flag, const char *value)
{
	char *end;
	long number = strtol(value, &end, 10);

	if (*value < '0' || *value > '9' || *end != '\0' || number > flag->most)
		kvw_admin_line_wrong(line, "--%s: found `%s`, expected a number up to %ld",
			flag->name, value, flag->most);
}

static void take_flag(struct kvw_admin_line *line, const struct kvw_admin_flag *flag)
{
	void *member = (char *)line->options + flag->offset;
	const char **text = member, *value = optarg;

	if (flag->bare) {
		*(bool *)member = true;
		return;
	}
	if (flag->most > 0)
		take_number(line, flag, value);
	if (flag->take != NULL)
		value = flag->take(line, value);
	if (value == NULL || line->bad)
		return;
	if (*text == NULL)
		*text = value;
	else if (flag->letter != '\0')
		kvw_admin_line_wrong(line, "-%c was given twice", flag->letter);
	else
		kvw_admin_line_wrong(line, "--%s was given twice", flag->name);
}

/* Reports a flag that is unknown or lacks its value: option is ':' or '?', and argument the text
 * that was read. */
static void refuse_unknown(struct kvw_admin_line *line, const struct option *options, int option,
	const char *argument)
{
	struct kvw_suggest near;
	char name[KVW_SUGGEST_MAX + 1];
	const char *begin = argument + strspn(argument, "-");

	if (option == ':') {
		kvw_admin_line_wrong(line, "%s needs a value", argument);
	} else if (optopt != 0 && strncmp(argument, "--", 2) == 0) {
		kvw_admin_line_wrong(line, "%s: this flag takes no value", argument);
	} else if (optopt != 0) {
		kvw_admin_line_wrong(line, "unknown flag -%c", optopt);
	} else {
		(void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(begin, "="), begin);
		kvw_suggest_start(&near, name);
		for (; options->name != NULL; options++)
			kvw_suggest_offer(&near, options->name, options->name);
		if (near.best != NULL)
			kvw_admin_line_wrong(
				line, "unknown flag %s; did you mean `--%s`?", argument, near.best);
		else
			kvw_admin_line_wrong(line, "unknown flag %s", argument);
	}
}

/* Adds flags to the tables of getopt_long; returns how many it has now. */
static size_t add_flags(const struct kvw_admin_flag *flag, const struct kvw_admin_flag **flags,
	struct option *options, size_t count, char *letters)
{
	for (; flag->name != NULL; flag++, count++) {
		assert(count < FLAGS_MOST);
		flags[count] = flag;
		options[count] = (struct option){flag->name,
			flag->bare ? no_argument : required_argument, NULL,
			flag->letter != '\0' ? flag->letter : NUMBER + (int)count};
		if (flag->letter != '\0')
			strcat(strncat(letters, &flag->letter, 1), flag->bare ? "" : ":");
	}
	return count;
}

static void read_flags(struct kvw_admin_line *line, int argc, char **argv)
{
	const struct kvw_admin_flag *flags[FLAGS_MOST];
	struct option options[FLAGS_MOST + 1] = {{0}};
	char letters[2 * FLAGS_MOST + 2] = ":";
	size_t count = add_flags(shared, flags, options, 0, letters);

	count = add_flags(line->flags, flags, options, count, letters);
	opterr = 0;
	optind = 0; /* glibc: starts over and forgets an earlier call */
	while (!line->options->help && !line->bad) {
		int option = getopt_long(argc, argv, letters, options, NULL);
		size_t i = 0;

		if (option == -1)
			break;
		while (i < count && options[i].val != option)
			i++;
		if (i < count)
			take_flag(line, flags[i]);
		else
			refuse_unknown(line, options, option, argv[optind - 1]);
	}
}

static void check_router(struct kvw_admin_line *line)
{
	const struct kvw_admin_options *options = line->options;

	if (options->admin != NULL && options->config != NULL)
		kvw_admin_line_wrong(line, "give --admin ADDR or -c FILE, not both");
	else if (options->cert_key != NULL && options->cert == NULL)
		kvw_admin_line_wrong(line, "--key: found no --cert FILE, whose key it would be");
}

bool kvw_admin_line_read(
	struct kvw_admin_line *line, int argc, char **argv, enum kvw_exit *status)
{
	read_flags(line, argc, argv);
	line->words = argv + optind;
	line->word_count = (size_t)(argc - optind);
	if (line->options->help && !line->bad) {
		fputs(line->help, line->out);
	} else if (!line->bad) {
		if (line->stray != NULL && line->word_count > 0)
			kvw_admin_line_wrong(line, "found `%s`, %s", line->words[0], line->stray);
		if (!line->bad && line->check != NULL)
			line->check(line);
		if (!line->bad)
			check_router(line);
	}
	*status = line->bad ? KVW_EXIT_USAGE : KVW_EXIT_OK;
	return !line->bad && !line->options->help;
}
