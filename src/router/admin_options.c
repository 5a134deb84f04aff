/*
 * admin_options.c - reads the flags that several commands share.
 */
#include "admin_options.h"

#include <stdarg.h>
#include <string.h>

#include "settings/address.h"
#include "settings/suggest.h"

void kvw_admin_line_fail(struct kvw_admin_line *line)
{
	fprintf(line->err, "Try `kvway %s --help`.\n", line->command);
	line->bad = true;
}

void kvw_admin_line_wrong(struct kvw_admin_line *line, const char *format, ...)
{
	va_list arguments;

	fprintf(line->err, "kvway %s: ", line->command);
	va_start(arguments, format);
	(void)vfprintf(line->err, format, arguments);
	va_end(arguments);
	fputc('\n', line->err);
	kvw_admin_line_fail(line);
}

void kvw_admin_line_text(struct kvw_admin_line *line, const char **field, const char *flag)
{
	if (*field != NULL)
		kvw_admin_line_wrong(line, "%s was given twice", flag);
	else
		*field = optarg;
}

static void take_admin(struct kvw_admin_line *line, struct kvw_admin_options *options)
{
	static const char https[] = "https://";
	struct kvw_address address;
	bool named = strncmp(optarg, https, sizeof(https) - 1) == 0;

	if (named)
		optarg += sizeof(https) - 1;
	options->https = options->https || named;
	if (kvw_address_split(kvw_slice_of(optarg), &address) != KVW_ADDRESS_OK ||
		address.port == 0)
		kvw_admin_line_wrong(line,
			"--admin: found `%s`, expected HOST:PORT or https://HOST:PORT", optarg);
	else
		kvw_admin_line_text(line, &options->admin, "--admin");
}

static void take_tls(struct kvw_admin_line *line, struct kvw_admin_options *options,
	const char **field, const char *flag)
{
	kvw_admin_line_text(line, field, flag);
	options->https = true;
}

/* Takes a flag of KVW_ADMIN_FLAGS. False: it is another one. */
static bool take_shared(struct kvw_admin_line *line, int option)
{
	struct kvw_admin_options *options = line->router;

	switch (option) {
	case KVW_FLAG_CONFIG:
		kvw_admin_line_text(line, &options->config, "-c");
		return true;
	case KVW_FLAG_ADMIN:
		take_admin(line, options);
		return true;
	case KVW_FLAG_CA:
		take_tls(line, options, &options->ca, "--ca");
		return true;
	case KVW_FLAG_CERT:
		take_tls(line, options, &options->cert, "--cert");
		return true;
	case KVW_FLAG_CERT_KEY:
		take_tls(line, options, &options->cert_key, "--key");
		return true;
	case KVW_FLAG_SERVER_NAME:
		take_tls(line, options, &options->server_name, "--server-name");
		return true;
	case KVW_FLAG_KEY_FILE:
		kvw_admin_line_text(line, &options->key_file, "--key-file");
		return true;
	case KVW_FLAG_JSON:
		options->json = true;
		return true;
	case KVW_FLAG_HELP:
		line->help(line);
		line->helped = true;
		return true;
	default:
		return false;
	}
}

/* Reports a flag that is unknown or lacks its value: option is ':' or '?', and argument the text
 * that was read. */
static void refuse_unknown(struct kvw_admin_line *line, int option, const char *argument)
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
		for (size_t i = 0; line->flags[i].name != NULL; i++)
			kvw_suggest_offer(&near, line->flags[i].name, line->flags[i].name);
		if (near.best != NULL)
			kvw_admin_line_wrong(
				line, "unknown flag %s; did you mean `--%s`?", argument, near.best);
		else
			kvw_admin_line_wrong(line, "unknown flag %s", argument);
	}
}

bool kvw_admin_line_read(struct kvw_admin_line *line, int argc, char **argv)
{
	int option;

	opterr = 0;
	optind = 0; /* glibc: starts over and forgets an earlier call */
	while (!line->helped && !line->bad) {
		option = getopt_long(argc, argv, line->letters, line->flags, NULL);
		if (option == -1)
			break;
		if (!take_shared(line, option) && !line->take(line, option))
			refuse_unknown(line, option, argv[optind - 1]);
	}
	return !line->helped && !line->bad;
}

void kvw_admin_line_check(struct kvw_admin_line *line, const struct kvw_admin_options *options)
{
	if (options->admin != NULL && options->config != NULL)
		kvw_admin_line_wrong(line, "give --admin ADDR or -c FILE, not both");
	else if (options->cert_key != NULL && options->cert == NULL)
		kvw_admin_line_wrong(line, "--key: found no --cert FILE, whose key it would be");
}
