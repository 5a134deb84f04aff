/*
 * options.c - parses the command line of `kvway top`.
 */
#include "top/options.h"

enum option_id { OPTION_ONCE = 256 };

static const struct option flags[] = {
	KVW_ADMIN_FLAGS,
	{"once", no_argument, NULL, OPTION_ONCE},
	{NULL, 0, NULL, 0},
};

static void print_help(const struct kvw_admin_line *line)
{
	fputs("kvway top shows what a running router and its workers do now, and what is wrong, "
	      "with "
	      "the\n"
	      "cause and what to do. The page /ui of the admin address shows the same.\n"
	      "\n"
	      "Usage:\n"
	      "  kvway top                  drawn again every second, until Ctrl-C\n"
	      "  kvway top --once           once, for a script or a report\n"
	      "  kvway top --once --json    the document itself: GET /status\n"
	      "\n"
	      "Examples:\n"
	      "  ssh router kvway top\n"
	      "  kvway top --once || echo 'requests fail'\n"
	      "  kvway top --once --json | jq '.workers[] | select(.slow) | .url, .slow'\n"
	      "\n"
	      "      --once               once, without codes for the terminal\n"
	      "      --json               the router's answer as it is, a line each time\n"
	      "\n" KVW_ADMIN_ADDRESS_HELP KVW_ADMIN_FLAGS_HELP
	      "  -h, --help               this text\n"
	      "\n"
	      "Columns: requests in prefill and in decode, seconds of prefill queued (predicted), "
	      "share of the\n"
	      "KV memory in use and of prompt tokens that were cached; of the last minute: "
	      "requests "
	      "and generated\n"
	      "tokens a second, time per token; prefill rate as learned.\n"
	      "\n"
	      "Exit status: 0 done, 1 the router refuses, 2 wrong usage, 3 no router answers, 4 "
	      "with "
	      "--once: a\n"
	      "problem of severity error.\n",
		line->out);
}

static bool take_option(struct kvw_admin_line *line, int option)
{
	struct kvw_top_options *options = line->options;

	options->once = options->once || option == OPTION_ONCE;
	return option == OPTION_ONCE;
}

bool kvw_top_options_parse(int argc, char **argv, FILE *out, FILE *err,
	struct kvw_top_options *options, enum kvw_top_status *status)
{
	struct kvw_admin_line line = {.command = "top",
		.flags = flags,
		.letters = ":c:h",
		.out = out,
		.err = err,
		.router = &options->router,
		.options = options,
		.help = print_help,
		.take = take_option};

	*options = (struct kvw_top_options){0};
	if (kvw_admin_line_read(&line, argc, argv) && optind < argc)
		kvw_admin_line_wrong(&line, "found `%s`, expected flags only", argv[optind]);
	if (!line.helped && !line.bad)
		kvw_admin_line_check(&line, &options->router);
	*status = line.bad ? KVW_TOP_USAGE : KVW_TOP_OK;
	return !line.helped && !line.bad;
}
