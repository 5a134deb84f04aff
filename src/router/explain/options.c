/*
 * explain_options.c - see explain_options.h. After a mistyped command line it prints one line
 * that names the mistake and one that says where to read on.
 */
#include "explain/options.h"

#include <getopt.h>
#include <string.h>

#include "settings/address.h"
#include "settings/suggest.h"

enum option_id {
	OPTION_CONFIG = 'c',
	OPTION_HEADER = 'H',
	OPTION_HELP = 'h',
	OPTION_ADMIN = 256,
	OPTION_PATH,
	OPTION_JSON,
	OPTION_COLD
};

static const struct option flags[] = {
	{"config", required_argument, NULL, OPTION_CONFIG},
	{"admin", required_argument, NULL, OPTION_ADMIN},
	{"path", required_argument, NULL, OPTION_PATH},
	{"header", required_argument, NULL, OPTION_HEADER},
	{"json", no_argument, NULL, OPTION_JSON},
	{"cold", no_argument, NULL, OPTION_COLD},
	{"help", no_argument, NULL, OPTION_HELP},
	{NULL, 0, NULL, 0},
};

/* What was read so far. */
struct reader {
	FILE *out, *err;
	struct kvw_explain_options *options;
	enum kvw_explain_status status;
	bool done; /* nothing more to do, leave with status */
};

static void print_help(FILE *out)
{
	fputs("kvway explain shows which worker a request would go to, and why not to the others.\n"
	      "The request is not forwarded, and the router does not remember it.\n"
	      "\n"
	      "Usage:\n"
	      "  kvway explain < request.json                ask the router on 127.0.0.1:9090\n"
	      "  kvway explain -c FILE < request.json        ask the router at FILE's admin.listen\n"
	      "  kvway explain --cold -c FILE < request.json ask no router: as if it had just started\n"
	      "\n"
	      "The request is the body that a client would POST to the router, for example\n"
	      "  echo '{\"model\": \"MODEL\", \"prompt\": \"Hello\"}' | kvway explain\n"
	      "\n"
	      "      --admin ADDR         admin address of the router, HOST:PORT\n"
	      "  -c, --config FILE        configuration of the router: its admin.listen; with --cold,\n"
	      "                           its workers and strategy\n"
	      "      --path PATH          path of the request; default: /v1/completions for a body with\n"
	      "                           `prompt`, /v1/chat/completions for any other\n"
	      "  -H, --header 'NAME: VALUE'\n"
	      "                           a header that matters, such as x-session-id; may be repeated\n"
	      "      --json               the explanation as JSON instead of a table\n"
	      "      --cold               assume every worker usable and idle, nothing cached; needs -c\n"
	      "  -h, --help               this text\n"
	      "\n"
	      "Columns: prompt tokens predicted to be cached on the worker; milliseconds of prefill\n"
	      "already queued there, of this prompt's prefill, of the delay that this adds to the\n"
	      "requests running there, and the sum of these; requests in flight; why it was chosen or\n"
	      "not.\n"
	      "\n"
	      "Exit status: 0 explained, 1 an error, for example an unknown model, 2 wrong usage,\n"
	      "3 no router answers.\n",
		out);
}

static void fail_usage(struct reader *r)
{
	fputs("Try `kvway explain --help`.\n", r->err);
	r->status = KVW_EXPLAIN_USAGE;
	r->done = true;
}

static void take_text(struct reader *r, const char **field, const char *flag)
{
	if (*field != NULL) {
		fprintf(r->err, "kvway explain: %s was given twice\n", flag);
		fail_usage(r);
		return;
	}
	*field = optarg;
}

static void take_admin(struct reader *r)
{
	struct kvw_address address;

	if (kvw_address_split(kvw_slice_of(optarg), &address) != KVW_ADDRESS_OK ||
		address.port == 0) {
		fprintf(r->err, "kvway explain: --admin: found `%s`, expected HOST:PORT\n", optarg);
		fail_usage(r);
		return;
	}
	take_text(r, &r->options->admin, "--admin");
}

static void take_path(struct reader *r)
{
	if (optarg[0] != '/') {
		fprintf(r->err,
			"kvway explain: --path: found `%s`, expected a path such as /v1/completions\n",
			optarg);
		fail_usage(r);
		return;
	}
	take_text(r, &r->options->path, "--path");
}

static void take_header(struct reader *r)
{
	const char *colon = strchr(optarg, ':');

	if (colon == NULL || colon == optarg || strpbrk(optarg, "\r\n") != NULL) {
		fprintf(r->err, "kvway explain: --header: expected NAME: VALUE on one line\n");
		fail_usage(r);
	} else if (r->options->header_count == KVW_EXPLAIN_HEADERS_MAX) {
		fprintf(r->err, "kvway explain: more than %d headers\n", KVW_EXPLAIN_HEADERS_MAX);
		fail_usage(r);
	} else {
		r->options->headers[r->options->header_count++] = optarg;
	}
}

static void report_bad_flag(struct reader *r, int option, const char *argument)
{
	struct kvw_suggest near;
	char name[KVW_SUGGEST_MAX + 1];
	const char *begin = argument + strspn(argument, "-");

	if (option == ':') {
		fprintf(r->err, "kvway explain: %s needs a value\n", argument);
	} else if (optopt != 0 && strncmp(argument, "--", 2) == 0) {
		fprintf(r->err, "kvway explain: %s: this flag takes no value\n", argument);
	} else if (optopt != 0) {
		fprintf(r->err, "kvway explain: unknown flag -%c\n", optopt);
	} else {
		(void)snprintf(
			name, sizeof(name), "%.*s", (int)strcspn(begin, "="), begin);
		kvw_suggest_start(&near, name);
		for (size_t i = 0; flags[i].name != NULL; i++)
			kvw_suggest_offer(&near, flags[i].name, flags[i].name);
		fprintf(r->err, "kvway explain: unknown flag %s", argument);
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
	case OPTION_PATH:
		take_path(r);
		break;
	case OPTION_HEADER:
		take_header(r);
		break;
	case OPTION_JSON:
		r->options->json = true;
		break;
	case OPTION_COLD:
		r->options->cold = true;
		break;
	case OPTION_HELP:
		print_help(r->out);
		r->done = true;
		break;
	default:
		report_bad_flag(r, option, argument);
	}
}

static void check_combination(struct reader *r, int argc, char **argv)
{
	const struct kvw_explain_options *options = r->options;

	if (optind < argc)
		fprintf(r->err,
			"kvway explain: found `%s`; the request is read from standard input: "
			"kvway explain < %s\n",
			argv[optind], argv[optind]);
	else if (options->cold && options->config == NULL)
		fputs("kvway explain: --cold needs -c FILE, which lists the workers\n", r->err);
	else if (options->cold && options->admin != NULL)
		fputs("kvway explain: --cold asks no router; leave out --admin\n", r->err);
	else if (options->admin != NULL && options->config != NULL)
		fputs("kvway explain: give --admin ADDR or -c FILE, not both\n", r->err);
	else
		return;
	fail_usage(r);
}

bool kvw_explain_options_parse(int argc, char **argv, FILE *out, FILE *err,
	struct kvw_explain_options *options, enum kvw_explain_status *status)
{
	struct reader r = {.out = out, .err = err, .options = options};
	int option;

	*options = (struct kvw_explain_options){0};
	opterr = 0;
	optind = 0; /* glibc: start over, forget a former call */
	while (!r.done) {
		option = getopt_long(argc, argv, ":c:H:h", flags, NULL);
		if (option == -1)
			break;
		take_option(&r, option, argv[optind - 1]);
	}
	if (!r.done)
		check_combination(&r, argc, argv);
	*status = r.status;
	return !r.done;
}
