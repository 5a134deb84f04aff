/*
 * options.c - parses the command line of `kvway explain`.
 */
#include "explain/options.h"

#include <string.h>

enum option_id {
	OPTION_HEADER = 'H',
	OPTION_PATH = 256,
	OPTION_KEY,
	OPTION_COLD
};

static const struct option flags[] = {
	KVW_ADMIN_FLAGS,
	{"path", required_argument, NULL, OPTION_PATH},
	{"key-name", required_argument, NULL, OPTION_KEY},
	{"header", required_argument, NULL, OPTION_HEADER},
	{"cold", no_argument, NULL, OPTION_COLD},
	{NULL, 0, NULL, 0},
};

static void print_help(const struct kvw_admin_line *line)
{
	fputs("kvway explain shows which worker a request would go to, and why not to the others.\n"
	      "The request is not forwarded, and the router does not remember it.\n"
	      "\n"
	      "Usage:\n"
	      "  kvway explain < request.json                ask the router on 127.0.0.1:9090\n"
	      "  kvway explain -c FILE < request.json        "
	      "ask the router at FILE's admin.listen\n"
	      "  kvway explain --cold -c FILE < request.json ask no router: as if it had just "
	      "started\n"
	      "\n"
	      "The request is the body that a client would POST to the router, for example\n"
	      "  echo '{\"model\": \"MODEL\", \"prompt\": \"Hello\"}' | kvway explain\n"
	      "\n"
	      "      --admin ADDR         admin address of the router, [https://]HOST:PORT\n"
	      "  -c, --config FILE        "
	      "configuration of the router: its admin.listen; with --cold,\n"
	      "                           its workers and strategy\n"
	      "      --path PATH          "
	      "path of the request; default: /v1/completions for a body with\n"
	      "                           `prompt`, /v1/chat/completions for any other\n"
	      "      --key-name NAME      "
	      "as of the client whose key in auth.keys_file has this name, and\n"
	      "                           what it has left of its limits\n"
	      "  -H, --header 'NAME: VALUE'\n"
	      "                           "
	      "a header that matters, such as x-session-id; may be repeated\n"
	      KVW_ADMIN_FLAGS_HELP
	      "      --json               the explanation as JSON instead of a table\n"
	      "      --cold               "
	      "assume every worker usable and idle, nothing cached; needs -c\n"
	      "  -h, --help               this text\n"
	      "\n"
	      "Lines above the table: whether the request would be sent now, wait or be refused\n"
	      "(Admission), what is left of its limits (Left of), and each step of its way that\n"
	      "decided something (Step). --json has all steps.\n"
	      "\n"
	      "Columns:\n"
	      "  hit          prompt tokens predicted to be cached on the worker\n"
	      "  queue ms     until the worker can begin this prompt\n"
	      "  prefill ms   of the tokens that it lacks\n"
	      "  others ms    by which this prefill delays the answers under way there\n"
	      "  context ms   for reading the contexts of the requests in flight there\n"
	      "  evict ms     for computing again what the prompt would push out of its cache\n"
	      "  total ms     the sum, which strategies compare; -: it weighs no cost\n"
	      "  in flight    requests that kvway has there\n"
	      "  verdict      why it was chosen or not; tie: as cheap, a hash decided\n"
	      "\n"
	      "Exit status: 0 explained, 1 an error, for example an unknown model, 2 wrong usage,\n"
	      "3 no router answers.\n",
		line->out);
}

static void take_path(struct kvw_admin_line *line)
{
	struct kvw_explain_options *options = line->options;

	if (optarg[0] != '/') {
		kvw_admin_line_wrong(line,
			"--path: found `%s`, expected a path such as /v1/completions", optarg);
		return;
	}
	kvw_admin_line_text(line, &options->path, "--path");
}

static void take_header(struct kvw_admin_line *line)
{
	struct kvw_explain_options *options = line->options;
	const char *colon = strchr(optarg, ':');

	if (colon == NULL || colon == optarg || strpbrk(optarg, "\r\n") != NULL) {
		kvw_admin_line_wrong(line, "--header: expected NAME: VALUE on one line");
	} else if (options->header_count == KVW_EXPLAIN_HEADERS_MAX) {
		kvw_admin_line_wrong(line, "more than %d headers", KVW_EXPLAIN_HEADERS_MAX);
	} else {
		options->headers[options->header_count++] = optarg;
	}
}

static bool take_option(struct kvw_admin_line *line, int option)
{
	struct kvw_explain_options *options = line->options;

	switch (option) {
	case OPTION_PATH:
		take_path(line);
		break;
	case OPTION_KEY:
		kvw_admin_line_text(line, &options->key, "--key-name");
		break;
	case OPTION_HEADER:
		take_header(line);
		break;
	case OPTION_COLD:
		options->cold = true;
		break;
	default:
		return false;
	}
	return true;
}

static void check_combination(struct kvw_admin_line *line, int argc, char **argv)
{
	const struct kvw_explain_options *options = line->options;

	if (optind < argc)
		kvw_admin_line_wrong(line,
			"found `%s`; the request is read from standard input: kvway explain < %s",
			argv[optind], argv[optind]);
	else if (options->cold && options->router.config == NULL)
		kvw_admin_line_wrong(line, "--cold needs -c FILE, which lists the workers");
	else if (options->cold && options->router.admin != NULL)
		kvw_admin_line_wrong(line, "--cold asks no router; leave out --admin");
	else if (options->cold && options->key != NULL)
		kvw_admin_line_wrong(line,
			"--cold asks no router, which alone knows keys; leave out --key-name");
	else if (options->cold && options->router.key_file != NULL)
		kvw_admin_line_wrong(line, "--cold asks no router; leave out --key-file");
	else if (options->cold && options->router.https)
		kvw_admin_line_wrong(line,
			"--cold asks no router; leave out --ca, --cert, --key and --server-name");
	else
		kvw_admin_line_check(line, &options->router);
}

bool kvw_explain_options_parse(int argc, char **argv, FILE *out, FILE *err,
	struct kvw_explain_options *options, enum kvw_explain_status *status)
{
	struct kvw_admin_line line = {.command = "explain",
		.flags = flags,
		.letters = ":c:H:h",
		.out = out,
		.err = err,
		.router = &options->router,
		.options = options,
		.help = print_help,
		.take = take_option};

	*options = (struct kvw_explain_options){0};
	if (kvw_admin_line_read(&line, argc, argv))
		check_combination(&line, argc, argv);
	*status = line.bad ? KVW_EXPLAIN_USAGE : KVW_EXPLAIN_OK;
	return !line.helped && !line.bad;
}
