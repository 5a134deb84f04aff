/*
 * options.c - see options.h. After a mistyped command line it prints one line that names the mistake and one
 * that says where to read on.
 */
#include "workers/options.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "settings/address.h"
#include "settings/suggest.h"
#include "settings/types.h"

enum option_id {
	OPTION_CONFIG = 'c',
	OPTION_HELP = 'h',
	OPTION_ADMIN = 256,
	OPTION_JSON,
	OPTION_MODEL,
	OPTION_WAIT,
	OPTION_NOW,
	OPTION_REMOVE
};

static const struct option flags[] = {
	{"config", required_argument, NULL, OPTION_CONFIG},
	{"admin", required_argument, NULL, OPTION_ADMIN},
	{"json", no_argument, NULL, OPTION_JSON},
	{"model", required_argument, NULL, OPTION_MODEL},
	{"wait", required_argument, NULL, OPTION_WAIT},
	{"now", no_argument, NULL, OPTION_NOW},
	{"remove", no_argument, NULL, OPTION_REMOVE},
	{"help", no_argument, NULL, OPTION_HELP},
	{NULL, 0, NULL, 0},
};

/* least and most: words behind it. */
static const struct verb {
	const char *name, *words;
	size_t least, most;
} verbs[] = {
	[KVW_WORKERS_LIST] = {"list", "nothing more", 0, 0},
	[KVW_WORKERS_ADD] = {"add", "the URL of each worker, or - for JSON on standard input", 1, 1024},
	[KVW_WORKERS_DRAIN] = {"drain", "one ID", 1, 1},
	[KVW_WORKERS_UNDRAIN] = {"undrain", "one ID", 1, 1},
	[KVW_WORKERS_REMOVE] = {"remove", "one ID", 1, 1},
	[KVW_WORKERS_WEIGHT] = {"weight", "one ID and a number", 2, 2},
};

#define VERB_COUNT (sizeof(verbs) / sizeof(verbs[0]))

/* What was read so far. */
struct reader {
	FILE *out, *err;
	struct kvw_workers_options *options;
	enum kvw_workers_status status;
	bool done; /* nothing more to do, leave with status */
};

static void print_help(FILE *out)
{
	fputs("kvway workers shows the workers of a running router, and changes which there are.\n"
	      "Clients notice nothing: a worker that is drained or removed finishes its requests.\n"
	      "\n"
	      "Usage:\n"
	      "  kvway workers                          list them\n"
	      "  kvway workers add URL [--model NAME]   send requests to a new worker, too\n"
	      "  kvway workers drain ID [--wait 30s]    no new requests; waits until the last has ended\n"
	      "  kvway workers undrain ID               new requests again\n"
	      "  kvway workers remove ID [--now]        drain it, then forget it\n"
	      "  kvway workers weight ID 0.1            so much of an even share of the load, 0.01 to 1\n"
	      "\n"
	      "ID is a worker's host:port, as the list shows it, or its whole URL.\n"
	      "\n"
	      "Examples:\n"
	      "  kvway workers add http://10.0.0.7:8000 http://10.0.0.8:8000\n"
	      "  echo '{\"url\": \"http://10.0.0.7:8000\", \"api_key\": \"KEY\"}' | kvway workers add -\n"
	      "  kvway workers drain 10.0.0.7:8000 --wait 10m && systemctl restart vllm\n"
	      "  kvway workers drain 10.0.0.7:8000 --wait 10m --remove\n"
	      "  kvway workers --json | jq '.[] | select(.state != \"up\") | .url'\n"
	      "\n"
	      "      --admin ADDR         admin address of the router, HOST:PORT (default 127.0.0.1:9090)\n"
	      "  -c, --config FILE        configuration of the router: its admin.listen\n"
	      "      --model NAME         of `add`: a model that it serves; may be repeated; without it the\n"
	      "                           router asks the worker\n"
	      "      --wait TIME          of `drain`: how long to wait for its last request, up to 1h\n"
	      "      --remove             of `drain`: forget the worker afterwards\n"
	      "      --now                of `remove`: at once; its requests are moved or cut\n"
	      "      --json               what the router answers, as it is\n"
	      "  -h, --help               this text\n"
	      "\n"
	      "What is changed here holds until the router ends; the configuration file says what it starts\n"
	      "with. Columns: requests running there, seconds of prefill queued there (predicted), the share\n"
	      "of prompt tokens that its cache had, and the lists that name the worker.\n"
	      "\n"
	      "Exit status: 0 done, 1 the router refuses, or requests still run after --wait, 2 wrong usage,\n"
	      "3 no router answers.\n",
		out);
}

static void fail_usage(struct reader *r)
{
	fputs("Try `kvway workers --help`.\n", r->err);
	r->status = KVW_WORKERS_USAGE;
	r->done = true;
}

static void take_text(struct reader *r, const char **field, const char *flag)
{
	if (*field != NULL) {
		fprintf(r->err, "kvway workers: %s was given twice\n", flag);
		fail_usage(r);
		return;
	}
	*field = optarg;
}

static void take_admin(struct reader *r)
{
	struct kvw_address address;

	if (kvw_address_split(kvw_slice_of(optarg), &address) != KVW_ADDRESS_OK || address.port == 0) {
		fprintf(r->err, "kvway workers: --admin: found `%s`, expected HOST:PORT\n", optarg);
		fail_usage(r);
		return;
	}
	take_text(r, &r->options->admin, "--admin");
}

static void take_wait(struct reader *r)
{
	const struct kvw_type *type = &kvw_type_DURATION;
	struct kvw_fault fault = {0};
	union kvw_value value;

	if (type->parse(type, kvw_slice_of(optarg), NULL, &value, &fault) != KVW_OK ||
		value.integer < 0 || value.integer > INT64_C(3600000)) {
		fprintf(r->err, "kvway workers: --wait: found `%s`, expected a time up to 1h such as 30s\n",
			optarg);
		fail_usage(r);
		return;
	}
	r->options->wait_ms = value.integer;
	take_text(r, &r->options->wait, "--wait");
}

static void take_model(struct reader *r)
{
	struct kvw_workers_options *options = r->options;

	if (options->model_count == KVW_WORKERS_MODELS_MAX) {
		fprintf(r->err, "kvway workers: more than %d models; give the worker as JSON: add -\n",
			KVW_WORKERS_MODELS_MAX);
		fail_usage(r);
		return;
	}
	options->models[options->model_count++] = optarg;
}

static void report_bad_flag(struct reader *r, int option, const char *argument)
{
	struct kvw_suggest near;
	char name[KVW_SUGGEST_MAX + 1];
	const char *begin = argument + strspn(argument, "-");

	if (option == ':') {
		fprintf(r->err, "kvway workers: %s needs a value\n", argument);
	} else if (optopt != 0 && strncmp(argument, "--", 2) == 0) {
		fprintf(r->err, "kvway workers: %s: this flag takes no value\n", argument);
	} else if (optopt != 0) {
		fprintf(r->err, "kvway workers: unknown flag -%c\n", optopt);
	} else {
		(void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(begin, "="), begin);
		kvw_suggest_start(&near, name);
		for (size_t i = 0; flags[i].name != NULL; i++)
			kvw_suggest_offer(&near, flags[i].name, flags[i].name);
		fprintf(r->err, "kvway workers: unknown flag %s", argument);
		if (near.best != NULL)
			fprintf(r->err, "; did you mean `--%s`?", near.best);
		fputc('\n', r->err);
	}
	fail_usage(r);
}

static void take_option(struct reader *r, int option, const char *argument)
{
	switch (option) {
	case OPTION_CONFIG:
		take_text(r, &r->options->config, "-c");
		break;
	case OPTION_ADMIN:
		take_admin(r);
		break;
	case OPTION_WAIT:
		take_wait(r);
		break;
	case OPTION_MODEL:
		take_model(r);
		break;
	case OPTION_JSON:
		r->options->json = true;
		break;
	case OPTION_NOW:
		r->options->now = true;
		break;
	case OPTION_REMOVE:
		r->options->remove = true;
		break;
	case OPTION_HELP:
		print_help(r->out);
		r->done = true;
		break;
	default:
		report_bad_flag(r, option, argument);
	}
}

static void read_verb(struct reader *r, int argc, char **argv)
{
	struct kvw_workers_options *options = r->options;
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
		fprintf(r->err,
			"kvway workers: found `%s`, expected list, add, drain, undrain, remove or weight",
			argv[optind]);
		if (near.best != NULL)
			fprintf(r->err, "; did you mean `%s`?", near.best);
		fputc('\n', r->err);
		fail_usage(r);
		return;
	}
	options->verb = (enum kvw_workers_verb)verb;
	options->names = argv + optind + 1;
	options->name_count = (size_t)(argc - optind - 1);
	if (options->name_count >= verbs[verb].least && options->name_count <= verbs[verb].most)
		return;
	fprintf(r->err, "kvway workers %s: found %zu words behind it, expected %s\n", verbs[verb].name,
		options->name_count, verbs[verb].words);
	fail_usage(r);
}

/* A flag that belongs to another verb. */
static bool is_astray(struct reader *r, bool given, const char *flag, enum kvw_workers_verb verb)
{
	if (!given || r->options->verb == verb)
		return false;
	fprintf(r->err, "kvway workers: %s belongs to `kvway workers %s`\n", flag, verbs[verb].name);
	fail_usage(r);
	return true;
}

static void check_combination(struct reader *r)
{
	const struct kvw_workers_options *options = r->options;
	char *end;

	if (is_astray(r, options->wait != NULL, "--wait", KVW_WORKERS_DRAIN) ||
		is_astray(r, options->remove, "--remove", KVW_WORKERS_DRAIN) ||
		is_astray(r, options->now, "--now", KVW_WORKERS_REMOVE) ||
		is_astray(r, options->model_count > 0, "--model", KVW_WORKERS_ADD))
		return;
	if (options->verb == KVW_WORKERS_WEIGHT &&
		(strtod(options->names[1], &end) < 0 || end == options->names[1] || *end != '\0')) {
		fprintf(r->err, "kvway workers weight: found `%s`, expected a number such as 0.5\n",
			options->names[1]);
		fail_usage(r);
	} else if (options->admin != NULL && options->config != NULL) {
		fputs("kvway workers: give --admin ADDR or -c FILE, not both\n", r->err);
		fail_usage(r);
	}
}

bool kvw_workers_options_parse(int argc, char **argv, FILE *out, FILE *err,
	struct kvw_workers_options *options, enum kvw_workers_status *status)
{
	struct reader r = {.out = out, .err = err, .options = options};
	int option;

	*options = (struct kvw_workers_options){0};
	opterr = 0;
	optind = 0; /* glibc: start over, forget a former call */
	while (!r.done) {
		option = getopt_long(argc, argv, ":c:h", flags, NULL);
		if (option == -1)
			break;
		take_option(&r, option, argv[optind - 1]);
	}
	if (!r.done)
		read_verb(&r, argc, argv);
	if (!r.done)
		check_combination(&r);
	*status = r.status;
	return !r.done;
}
