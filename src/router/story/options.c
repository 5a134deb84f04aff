/*
 * options.c - parses the command line of `kvway trace`.
 */
#include "story/options.h"

#include <stdlib.h>
#include <string.h>

enum option_id {
	OPTION_ID = 256,
	OPTION_MODEL,
	OPTION_WORKER,
	OPTION_SLOW,
	OPTION_STATUS,
	OPTION_LAST,
	OPTION_FOLLOW
};

static const struct option flags[] = {
	KVW_ADMIN_FLAGS,
	{"id", required_argument, NULL, OPTION_ID},
	{"model", required_argument, NULL, OPTION_MODEL},
	{"worker", required_argument, NULL, OPTION_WORKER},
	{"slow", required_argument, NULL, OPTION_SLOW},
	{"status", required_argument, NULL, OPTION_STATUS},
	{"last", required_argument, NULL, OPTION_LAST},
	{"follow", no_argument, NULL, OPTION_FOLLOW},
	{NULL, 0, NULL, 0},
};

static void print_help(const struct kvw_admin_line *line)
{
	fputs("kvway trace shows what happened to requests of a running router: what each waited "
	      "for, which\n"
	      "worker it was sent to and why, what failed, and how it ended.\n"
	      "\n"
	      "Usage:\n"
	      "  kvway trace                     the last 10, those under way too\n"
	      "  kvway trace --id ID             one request: ID is its x-request-id, which the "
	      "answer's\n"
	      "                                  head and the access log show\n"
	      "  kvway trace --slow 3000         that took 3 s or longer, or wait for so long "
	      "already\n"
	      "  kvway trace --status 5xx        that were answered so\n"
	      "  kvway trace --follow            goes on with each request that ends\n"
	      "\n"
	      "Examples:\n"
	      "  why did my request take 3 seconds?   kvway trace --slow 3000\n"
	      "  why did it go to that worker?        kvway trace --id ID\n"
	      "  what goes wrong on one worker?       kvway trace --worker 10.0.0.7:8000 --status "
	      "5xx\n"
	      "  for a script                         kvway trace --json --last 1000 | jq "
	      ".total_ms\n"
	      "\n"
	      "      --id ID              the request with this id\n"
	      "      --model NAME         that ask for this model\n"
	      "      --worker WORKER      that this worker was asked for: its URL, or host:port\n"
	      "      --slow MS            that took so many milliseconds or longer\n"
	      "      --status STATUS      that ended with this status: 503, or 5xx\n"
	      "      --last N             how many, the newest (default 10)\n"
	      "      --follow             afterwards each that fits when it has ended, until "
	      "Ctrl-C\n"
	      "      --json               a line of JSON for each, with all that was noted\n"
	      "\n" KVW_ADMIN_ADDRESS_HELP KVW_ADMIN_FLAGS_HELP
	      "  -h, --help               this text\n"
	      "\n"
	      "Times are milliseconds since the request's first byte. kvway remembers the last "
	      "requests of\n"
	      "each event loop (trace.requests), and those that failed longer (trace.failed). "
	      "Prompts and keys\n"
	      "are never noted.\n"
	      "\n"
	      "Exit status: 0 done, 1 the router refuses, or traces nothing, 2 wrong usage, 3 no "
	      "router answers.\n",
		line->out);
}

/* A number, or wrong. */
static void take_number(
	struct kvw_admin_line *line, const char **field, const char *flag, long most)
{
	char *end;
	long value = strtol(optarg, &end, 10);

	if (*optarg < '0' || *optarg > '9' || *end != '\0' || value > most)
		kvw_admin_line_wrong(
			line, "%s: found `%s`, expected a number up to %ld", flag, optarg, most);
	else
		kvw_admin_line_text(line, field, flag);
}

static void take_status(struct kvw_admin_line *line, struct kvw_story_options *options)
{
	bool good = strlen(optarg) == 3 && optarg[0] >= '1' && optarg[0] <= '5' &&
		    (strcmp(optarg + 1, "xx") == 0 || strspn(optarg + 1, "0123456789") == 2);

	if (good)
		kvw_admin_line_text(line, &options->status, "--status");
	else
		kvw_admin_line_wrong(
			line, "--status: found `%s`, expected one such as 503, or 5xx", optarg);
}

static bool take_option(struct kvw_admin_line *line, int option)
{
	struct kvw_story_options *options = line->options;

	switch (option) {
	case OPTION_ID:
		kvw_admin_line_text(line, &options->id, "--id");
		break;
	case OPTION_MODEL:
		kvw_admin_line_text(line, &options->model, "--model");
		break;
	case OPTION_WORKER:
		kvw_admin_line_text(line, &options->worker, "--worker");
		break;
	case OPTION_SLOW:
		take_number(line, &options->slow, "--slow", 86400000);
		break;
	case OPTION_STATUS:
		take_status(line, options);
		break;
	case OPTION_LAST:
		take_number(line, &options->last, "--last", 10000);
		break;
	case OPTION_FOLLOW:
		options->follow = true;
		break;
	default:
		return false;
	}
	return true;
}

bool kvw_story_options_parse(int argc, char **argv, FILE *out, FILE *err,
	struct kvw_story_options *options, enum kvw_story_status *status)
{
	struct kvw_admin_line line = {.command = "trace",
		.flags = flags,
		.letters = ":c:h",
		.out = out,
		.err = err,
		.router = &options->router,
		.options = options,
		.help = print_help,
		.take = take_option};

	*options = (struct kvw_story_options){0};
	if (kvw_admin_line_read(&line, argc, argv) && optind < argc)
		kvw_admin_line_wrong(&line,
			"found `%s`, expected flags only; a request's id goes behind --id",
			argv[optind]);
	if (!line.helped && !line.bad)
		kvw_admin_line_check(&line, &options->router);
	*status = line.bad ? KVW_STORY_USAGE : KVW_STORY_OK;
	return !line.helped && !line.bad;
}
