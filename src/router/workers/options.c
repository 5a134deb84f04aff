/*
 * options.c - parses the command line of `kvway workers`.
 */
#include "workers/options.h"

#include <stdlib.h>
#include <string.h>

#include "settings/suggest.h"
#include "settings/types.h"

enum option_id {
	OPTION_MODEL = 256,
	OPTION_WAIT,
	OPTION_NOW,
	OPTION_REMOVE
};

static const struct option flags[] = {
	KVW_ADMIN_FLAGS,
	{"model", required_argument, NULL, OPTION_MODEL},
	{"wait", required_argument, NULL, OPTION_WAIT},
	{"now", no_argument, NULL, OPTION_NOW},
	{"remove", no_argument, NULL, OPTION_REMOVE},
	{NULL, 0, NULL, 0},
};

/* least and most: number of words after the verb. */
static const struct verb {
	const char *name, *words;
	size_t least, most;
} verbs[] = {
	[KVW_WORKERS_LIST] = {"list", "nothing more", 0, 0},
	[KVW_WORKERS_ADD] = {"add", "the URL of each worker, or - for JSON on standard input", 1,
		1024},
	[KVW_WORKERS_DRAIN] = {"drain", "one ID", 1, 1},
	[KVW_WORKERS_UNDRAIN] = {"undrain", "one ID", 1, 1},
	[KVW_WORKERS_REMOVE] = {"remove", "one ID", 1, 1},
	[KVW_WORKERS_WEIGHT] = {"weight", "one ID and a number", 2, 2},
};

#define VERB_COUNT (sizeof(verbs) / sizeof(verbs[0]))

static void print_help(const struct kvw_admin_line *line)
{
	fputs("kvway workers shows the workers of a running router, and changes which there are.\n"
	      "Clients notice nothing: a worker that is drained or removed finishes its requests.\n"
	      "\n"
	      "Usage:\n"
	      "  kvway workers                          list them\n"
	      "  kvway workers add URL [--model NAME]   send requests to a new worker, too\n"
	      "  kvway workers drain ID [--wait 30s]    "
	      "no new requests; waits until the last has ended\n"
	      "  kvway workers undrain ID               new requests again\n"
	      "  kvway workers remove ID [--now]        drain it, then forget it\n"
	      "  kvway workers weight ID 0.1            "
	      "so much of an even share of the load, 0.01 to 1\n"
	      "\n"
	      "ID is a worker's host:port, as the list shows it, or its whole URL.\n"
	      "\n"
	      "Examples:\n"
	      "  kvway workers add http://10.0.0.7:8000 http://10.0.0.8:8000\n"
	      "  echo '{\"url\": \"http://10.0.0.7:8000\", \"api_key\": \"KEY\"}' | kvway workers "
	      "add -\n"
	      "  kvway workers drain 10.0.0.7:8000 --wait 10m && systemctl restart vllm\n"
	      "  kvway workers drain 10.0.0.7:8000 --wait 10m --remove\n"
	      "  kvway workers --json | jq '.[] | select(.state != \"up\") | .url'\n"
	      "\n"
	      KVW_ADMIN_ADDRESS_HELP
	      "      --model NAME         "
	      "of `add`: a model that it serves; may be repeated; without it the\n"
	      "                           router asks the worker\n"
	      "      --wait TIME          "
	      "of `drain`: how long to wait for its last request, up to 1h\n"
	      "      --remove             of `drain`: forget the worker afterwards\n"
	      "      --now                of `remove`: at once; its requests are moved or cut\n"
	      KVW_ADMIN_FLAGS_HELP
	      "      --json               what the router answers, as it is\n"
	      "  -h, --help               this text\n"
	      "\n"
	      "What is changed here holds until the router ends; the configuration file says what "
	      "it starts\n"
	      "with. Columns: requests running there, seconds of prefill queued there (predicted), "
	      "the share\n"
	      "of prompt tokens that its cache had, and the lists that name the worker.\n"
	      "\n"
	      "Exit status: 0 done, 1 the router refuses, or requests still run after --wait, 2 "
	      "wrong usage,\n"
	      "3 no router answers.\n",
		line->out);
}

static void take_wait(struct kvw_admin_line *line)
{
	struct kvw_workers_options *options = line->options;
	const struct kvw_type *type = &kvw_type_DURATION;
	struct kvw_fault fault = {0};
	union kvw_value value;

	if (type->parse(type, kvw_slice_of(optarg), NULL, &value, &fault) != KVW_OK ||
		value.integer < 0 || value.integer > INT64_C(3600000)) {
		kvw_admin_line_wrong(
			line, "--wait: found `%s`, expected a time up to 1h such as 30s", optarg);
		return;
	}
	options->wait_ms = value.integer;
	kvw_admin_line_text(line, &options->wait, "--wait");
}

static void take_model(struct kvw_admin_line *line)
{
	struct kvw_workers_options *options = line->options;

	if (options->model_count == KVW_WORKERS_MODELS_MAX) {
		kvw_admin_line_wrong(line, "more than %d models; give the worker as JSON: add -",
			KVW_WORKERS_MODELS_MAX);
		return;
	}
	options->models[options->model_count++] = optarg;
}

static bool take_option(struct kvw_admin_line *line, int option)
{
	struct kvw_workers_options *options = line->options;

	switch (option) {
	case OPTION_WAIT:
		take_wait(line);
		break;
	case OPTION_MODEL:
		take_model(line);
		break;
	case OPTION_NOW:
		options->now = true;
		break;
	case OPTION_REMOVE:
		options->remove = true;
		break;
	default:
		return false;
	}
	return true;
}

static void read_verb(struct kvw_admin_line *line, int argc, char **argv)
{
	struct kvw_workers_options *options = line->options;
	struct kvw_suggest near;
	size_t verb = 0;

	if (optind == argc)
		return; /* list */
	kvw_suggest_start(&near, argv[optind]);
	while (verb < VERB_COUNT && strcmp(verbs[verb].name, argv[optind]) != 0) {
		kvw_suggest_offer(&near, verbs[verb].name, verbs[verb].name);
		verb++;
	}
	if (verb == VERB_COUNT) {
		kvw_admin_line_wrong(line,
			"found `%s`, expected list, add, drain, undrain, remove or weight%s%s%s",
			argv[optind], near.best != NULL ? "; did you mean `" : "",
			near.best != NULL ? near.best : "", near.best != NULL ? "`?" : "");
		return;
	}
	options->verb = (enum kvw_workers_verb)verb;
	options->names = argv + optind + 1;
	options->name_count = (size_t)(argc - optind - 1);
	if (options->name_count >= verbs[verb].least && options->name_count <= verbs[verb].most)
		return;
	fprintf(line->err, "kvway workers %s: found %zu words behind it, expected %s\n",
		verbs[verb].name, options->name_count, verbs[verb].words);
	kvw_admin_line_fail(line);
}

/* Reports a flag that belongs to another verb. */
static bool is_astray(
	struct kvw_admin_line *line, bool given, const char *flag, enum kvw_workers_verb verb)
{
	struct kvw_workers_options *options = line->options;

	if (!given || options->verb == verb)
		return false;
	kvw_admin_line_wrong(line, "%s belongs to `kvway workers %s`", flag, verbs[verb].name);
	return true;
}

static void check_combination(struct kvw_admin_line *line)
{
	const struct kvw_workers_options *options = line->options;
	char *end;

	if (is_astray(line, options->wait != NULL, "--wait", KVW_WORKERS_DRAIN) ||
		is_astray(line, options->remove, "--remove", KVW_WORKERS_DRAIN) ||
		is_astray(line, options->now, "--now", KVW_WORKERS_REMOVE) ||
		is_astray(line, options->model_count > 0, "--model", KVW_WORKERS_ADD))
		return;
	if (options->verb == KVW_WORKERS_WEIGHT &&
		(strtod(options->names[1], &end) < 0 || end == options->names[1] || *end != '\0')) {
		fprintf(line->err,
			"kvway workers weight: found `%s`, expected a number such as 0.5\n",
			options->names[1]);
		kvw_admin_line_fail(line);
	} else {
		kvw_admin_line_check(line, &options->router);
	}
}

bool kvw_workers_options_parse(int argc, char **argv, FILE *out, FILE *err,
	struct kvw_workers_options *options, enum kvw_workers_status *status)
{
	struct kvw_admin_line line = {.command = "workers",
		.flags = flags,
		.letters = ":c:h",
		.out = out,
		.err = err,
		.router = &options->router,
		.options = options,
		.help = print_help,
		.take = take_option};

	*options = (struct kvw_workers_options){0};
	if (kvw_admin_line_read(&line, argc, argv))
		read_verb(&line, argc, argv);
	if (!line.helped && !line.bad)
		check_combination(&line);
	*status = line.bad ? KVW_WORKERS_USAGE : KVW_WORKERS_OK;
	return !line.helped && !line.bad;
}
