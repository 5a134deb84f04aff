/*
 * options.c - parses the command lines of `kvway groups` and `kvway compare`.
 */
#include "groups/options.h"

#include <stdlib.h>
#include <string.h>

#include "settings/types.h"

enum option_id { OPTION_MODEL = 256, OPTION_INTERVAL };

static const struct option flags[] = {
	KVW_ADMIN_FLAGS,
	{"model", required_argument, NULL, OPTION_MODEL},
	{"interval", required_argument, NULL, OPTION_INTERVAL},
	{NULL, 0, NULL, 0},
};

static void print_groups_help(FILE *out)
{
	fputs("kvway groups shows the groups of workers that share a model's requests "
	      "(model_groups) in a running\n"
	      "router, and changes their weights. kvway compare says how two of them differ.\n"
	      "\n"
	      "Usage:\n"
	      "  kvway groups                                 list them\n"
	      "  kvway groups weight MODEL GROUP=NUMBER ...   "
	      "other weights, from the next request on\n"
	      "\n"
	      "Examples:\n"
	      "  kvway groups weight llama stable=80 canary=20\n"
	      "  kvway groups weight llama canary=0           no more requests for the canary\n"
	      "  kvway groups --json | jq '.[] | select(.usable_workers == 0)'\n"
	      "\n"
	      KVW_ADMIN_ADDRESS_HELP
	      KVW_ADMIN_FLAGS_HELP
	      "      --json               what the router answers, as it is\n"
	      "  -h, --help               this text\n"
	      "\n"
	      "Weights that are changed here hold until the router ends, or reloads a file that "
	      "says others.\n"
	      "\n"
	      "Exit status: 0 done, 1 the router refuses, 2 wrong usage, 3 no router answers.\n",
		out);
}

static void print_compare_help(FILE *out)
{
	fputs("kvway compare says how two groups of a model's workers (model_groups) differ in a "
	      "running router:\n"
	      "errors, time to first token, time between tokens, promises kept; with 95 % "
	      "intervals, and whether a\n"
	      "difference is beyond noise. Where one gets copies of the other's requests (shadow), "
	      "also whether both\n"
	      "write the same.\n"
	      "\n"
	      "Usage:\n"
	      "  kvway compare GROUP GROUP [--model MODEL] [--interval 60s]\n"
	      "\n"
	      "Examples:\n"
	      "  kvway compare stable canary\n"
	      "  kvway compare stable canary --model llama --interval 10m --json\n"
	      "\n"
	      "      --model MODEL        whose groups they are, where several models have both\n"
	      "      --interval TIME      "
	      "requests that end within so long from now on, up to 24h; without it all since\n"
	      "                           the router was started\n"
	      KVW_ADMIN_ADDRESS_HELP
	      KVW_ADMIN_FLAGS_HELP
	      "      --json               numbers instead of a table\n"
	      "  -h, --help               this text\n"
	      "\n"
	      "Groups that get requests by the hash of their sessions are comparable; one that "
	      "testers name is not.\n"
	      "\n"
	      "Exit status: 0 done, 1 there are no such groups, 2 wrong usage, 3 no router "
	      "answers.\n",
		out);
}

static void print_help(const struct kvw_admin_line *line)
{
	const struct kvw_groups_options *options = line->options;

	(options->verb == KVW_GROUPS_COMPARE ? print_compare_help : print_groups_help)(line->out);
}

static void take_interval(struct kvw_admin_line *line)
{
	struct kvw_groups_options *options = line->options;
	const struct kvw_type *type = &kvw_type_DURATION;
	struct kvw_fault fault = {0};
	union kvw_value value;

	if (type->parse(type, kvw_slice_of(optarg), NULL, &value, &fault) != KVW_OK ||
		value.integer <= 0 || value.integer > INT64_C(86400000)) {
		kvw_admin_line_wrong(line,
			"--interval: found `%s`, expected a time up to 24h such as 60s", optarg);
		return;
	}
	options->interval_ms = value.integer;
	kvw_admin_line_text(line, &options->interval, "--interval");
}

static bool take_option(struct kvw_admin_line *line, int option)
{
	struct kvw_groups_options *options = line->options;

	switch (option) {
	case OPTION_MODEL:
		kvw_admin_line_text(line, &options->model, "--model");
		break;
	case OPTION_INTERVAL:
		take_interval(line);
		break;
	default:
		return false;
	}
	return true;
}

/* GROUP=NUMBER */
static bool is_weight(const char *word)
{
	const char *mark = strrchr(word, '=');
	char *end;

	return mark != NULL && mark > word && strtod(mark + 1, &end) >= 0 && end != mark + 1 &&
	       *end == '\0';
}

static void read_weights(struct kvw_admin_line *line)
{
	struct kvw_groups_options *options = line->options;

	options->verb = KVW_GROUPS_WEIGHT;
	options->names++;
	options->name_count--;
	if (options->name_count < 2) {
		kvw_admin_line_wrong(
			line, "expected a model and weights: weight MODEL GROUP=NUMBER ...");
		return;
	}
	for (size_t i = 1; i < options->name_count && !line->bad; i++)
		if (!is_weight(options->names[i]))
			kvw_admin_line_wrong(line,
				"found `%s`, expected a weight such as canary=10",
				options->names[i]);
}

static void read_words(struct kvw_admin_line *line, int argc, char **argv)
{
	struct kvw_groups_options *options = line->options;

	options->names = argv + optind;
	options->name_count = (size_t)(argc - optind);
	if (options->verb == KVW_GROUPS_COMPARE) {
		if (options->name_count != 2)
			kvw_admin_line_wrong(
				line, "found %zu words, expected two groups", options->name_count);
		return;
	}
	if (options->model != NULL || options->interval != NULL)
		kvw_admin_line_wrong(line, "%s belongs to `kvway compare`",
			options->model != NULL ? "--model" : "--interval");
	else if (options->name_count > 0 && strcmp(options->names[0], "weight") == 0)
		read_weights(line);
	else if (options->name_count > 1 ||
		 (options->name_count == 1 && strcmp(options->names[0], "list") != 0))
		kvw_admin_line_wrong(
			line, "found `%s`, expected list or weight", options->names[0]);
}

bool kvw_groups_options_parse(int argc, char **argv, FILE *out, FILE *err,
	struct kvw_groups_options *options, enum kvw_groups_status *status)
{
	struct kvw_admin_line line = {.command = argv[0],
		.flags = flags,
		.letters = ":c:h",
		.out = out,
		.err = err,
		.router = &options->router,
		.options = options,
		.help = print_help,
		.take = take_option};

	*options = (struct kvw_groups_options){.command = argv[0],
		.verb = strcmp(argv[0], "compare") == 0 ? KVW_GROUPS_COMPARE : KVW_GROUPS_LIST};
	if (kvw_admin_line_read(&line, argc, argv))
		read_words(&line, argc, argv);
	if (!line.helped && !line.bad)
		kvw_admin_line_check(&line, &options->router);
	*status = line.bad ? KVW_GROUPS_USAGE : KVW_GROUPS_OK;
	return !line.helped && !line.bad;
}
