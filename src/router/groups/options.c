/*
 * options.c - parses the command lines of `kvway groups` and `kvway compare`.
 */
#include "groups/options.h"

#include <stdlib.h>
#include <string.h>

#include "settings/types.h"

static const char groups_help[] =
	"kvway groups shows the groups of workers that share a model's requests (model_groups) in "
	"a running\n"
	"router, and changes their weights. kvway compare says how two of them differ.\n"
	"\n"
	"Usage:\n"
	"  kvway groups                                 list them\n"
	"  kvway groups weight MODEL GROUP=NUMBER ...   other weights, from the next request on\n"
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
	"Weights that are changed here hold until the router ends, or reloads a file that says "
	"others.\n"
	"\n"
	"Exit status: 0 done, 1 the router refuses, 2 wrong usage, 3 no router answers.\n";

static const char compare_help[] =
	"kvway compare says how two groups of a model's workers (model_groups) differ in a running "
	"router:\n"
	"errors, time to first token, time between tokens, promises kept; with 95 % intervals, and "
	"whether a\n"
	"difference is beyond noise. Where one gets copies of the other's requests (shadow), also "
	"whether both\n"
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
	"      --interval TIME      requests that end within so long from now on, up to 24h; "
	"without it all since\n"
	"                           the router was started\n"
	KVW_ADMIN_ADDRESS_HELP
	KVW_ADMIN_FLAGS_HELP
	"      --json               numbers instead of a table\n"
	"  -h, --help               this text\n"
	"\n"
	"Groups that get requests by the hash of their sessions are comparable; one that testers "
	"name is not.\n"
	"\n"
	"Exit status: 0 done, 1 there are no such groups, 2 wrong usage, 3 no router answers.\n";

static const char *take_interval(struct kvw_admin_line *line, const char *value)
{
	const struct kvw_type *type = &kvw_type_DURATION;
	struct kvw_fault fault = {0};
	union kvw_value interval;

	if (type->parse(type, kvw_slice_of(value), NULL, &interval, &fault) != KVW_OK ||
		interval.integer <= 0 || interval.integer > INT64_C(86400000)) {
		kvw_admin_line_wrong(line,
			"--interval: found `%s`, expected a time up to 24h such as 60s", value);
		return NULL;
	}
	((struct kvw_groups_options *)line->options)->interval_ms = interval.integer;
	return value;
}

#define AT(member) offsetof(struct kvw_groups_options, member)

static const struct kvw_admin_flag flags[] = {
	{.name = "model", .offset = AT(model)},
	{.name = "interval", .offset = AT(interval), .take = take_interval},
	{.name = NULL},
};

/* GROUP=NUMBER */
static bool is_weight(const char *word)
{
	const char *mark = strrchr(word, '=');
	char *end;

	return mark != NULL && mark > word && strtod(mark + 1, &end) >= 0 && end != mark + 1 &&
	       *end == '\0';
}

static void read_weights(struct kvw_admin_line *line, struct kvw_groups_options *options)
{
	options->verb = KVW_GROUPS_WEIGHT;
	options->names++;
	options->name_count--;
	if (options->name_count < 2)
		kvw_admin_line_wrong(
			line, "expected a model and weights: weight MODEL GROUP=NUMBER ...");
	for (size_t i = 1; i < options->name_count && !line->bad; i++)
		if (!is_weight(options->names[i]))
			kvw_admin_line_wrong(line,
				"found `%s`, expected a weight such as canary=10",
				options->names[i]);
}

static void read_words(struct kvw_admin_line *line)
{
	struct kvw_groups_options *options = (struct kvw_groups_options *)line->options;

	options->names = line->words;
	options->name_count = line->word_count;
	if (options->verb == KVW_GROUPS_COMPARE) {
		if (options->name_count != 2)
			kvw_admin_line_wrong(
				line, "found %zu words, expected two groups", options->name_count);
	} else if (options->model != NULL || options->interval != NULL) {
		kvw_admin_line_wrong(line, "%s belongs to `kvway compare`",
			options->model != NULL ? "--model" : "--interval");
	} else if (options->name_count > 0 && strcmp(options->names[0], "weight") == 0) {
		read_weights(line, options);
	} else if (options->name_count > 1 ||
		   (options->name_count == 1 && strcmp(options->names[0], "list") != 0)) {
		kvw_admin_line_wrong(
			line, "found `%s`, expected list or weight", options->names[0]);
	}
}

bool kvw_groups_options_parse(int argc, char **argv, FILE *out, FILE *err,
	struct kvw_groups_options *options, enum kvw_exit *status)
{
	bool compares = strcmp(argv[0], "compare") == 0;
	struct kvw_admin_line line = {.command = argv[0],
		.help = compares ? compare_help : groups_help,
		.flags = flags,
		.check = read_words,
		.out = out,
		.err = err,
		.options = &options->router};

	*options = (struct kvw_groups_options){
		.verb = compares ? KVW_GROUPS_COMPARE : KVW_GROUPS_LIST};
	return kvw_admin_line_read(&line, argc, argv, status);
}
