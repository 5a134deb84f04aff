/*
 * options.c - parses the command line of `kvway explain`.
 */
#include "explain/options.h"

#include <string.h>

static const char help[] =
	"kvway explain shows which worker a request would go to, and why not to the others.\n"
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
	"      --admin ADDR         admin address of the router, [https://]HOST:PORT\n"
	"  -c, --config FILE        configuration of the router: its admin.listen; with --cold,\n"
	"                           its workers and strategy\n"
	"      --path PATH          path of the request; default: /v1/completions for a body with\n"
	"                           `prompt`, /v1/chat/completions for any other\n"
	"      --key-name NAME      as of the client whose key in auth.keys_file has this name, "
	"and\n"
	"                           what it has left of its limits\n"
	"  -H, --header 'NAME: VALUE'\n"
	"                           a header that matters, such as x-session-id; may be repeated\n"
	KVW_ADMIN_FLAGS_HELP
	"      --json               the explanation as JSON instead of a table\n"
	"      --cold               assume every worker usable and idle, nothing cached; needs -c\n"
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
	"3 no router answers.\n";

static const char *take_path(struct kvw_admin_line *line, const char *value)
{
	if (value[0] == '/')
		return value;
	kvw_admin_line_wrong(
		line, "--path: found `%s`, expected a path such as /v1/completions", value);
	return NULL;
}

static const char *take_header(struct kvw_admin_line *line, const char *value)
{
	struct kvw_explain_options *options = (struct kvw_explain_options *)line->options;
	const char *colon = strchr(value, ':');

	if (colon == NULL || colon == value || strpbrk(value, "\r\n") != NULL)
		kvw_admin_line_wrong(line, "--header: expected NAME: VALUE on one line");
	else if (options->header_count == KVW_EXPLAIN_HEADERS_MAX)
		kvw_admin_line_wrong(line, "more than %d headers", KVW_EXPLAIN_HEADERS_MAX);
	else
		options->headers[options->header_count++] = value;
	return NULL;
}

#define AT(member) offsetof(struct kvw_explain_options, member)

static const struct kvw_admin_flag flags[] = {
	{.name = "path", .offset = AT(path), .take = take_path},
	{.name = "key-name", .offset = AT(key)},
	{.name = "header", .letter = 'H', .take = take_header},
	{.name = "cold", .offset = AT(cold), .bare = true},
	{.name = NULL},
};

static void check_cold(struct kvw_admin_line *line)
{
	const struct kvw_explain_options *options = (struct kvw_explain_options *)line->options;

	if (!options->cold)
		return;
	if (options->router.config == NULL)
		kvw_admin_line_wrong(line, "--cold needs -c FILE, which lists the workers");
	else if (options->router.admin != NULL || options->router.key_file != NULL ||
		 options->router.https || options->key != NULL)
		kvw_admin_line_wrong(line,
			"--cold asks no router, which alone knows keys; leave out %s",
			options->router.admin != NULL      ? "--admin"
			: options->router.key_file != NULL ? "--key-file"
			: options->key != NULL             ? "--key-name"
				       : "--ca, --cert, --key and --server-name");
}

bool kvw_explain_options_parse(int argc, char **argv, FILE *out, FILE *err,
	struct kvw_explain_options *options, enum kvw_exit *status)
{
	struct kvw_admin_line line = {.command = "explain",
		.help = help,
		.flags = flags,
		.stray = "expected flags only; the request is read from standard input",
		.check = check_cold,
		.out = out,
		.err = err,
		.options = &options->router};

	*options = (struct kvw_explain_options){.cold = false};
	return kvw_admin_line_read(&line, argc, argv, status);
}
