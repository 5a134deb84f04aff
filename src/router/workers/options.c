/*
 * options.c - parses the command line of `kvway workers`.
 */
#include "workers/options.h"

#include <stdlib.h>
#include <string.h>

#include "settings/suggest.h"
#include "settings/types.h"

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

static const char help[] =
	"kvway workers shows the workers of a running router, and changes which there are.\n"
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
	KVW_ADMIN_ADDRESS_HELP
	"      --model NAME         of `add`: a model that it serves; may be repeated; without it "
	"the\n"
	"                           router asks the worker\n"
	"      --wait TIME          of `drain`: how long to wait for its last request, up to 1h\n"
	"      --remove             of `drain`: forget the worker afterwards\n"
	"      --now                of `remove`: at once; its requests are moved or cut\n"
	KVW_ADMIN_FLAGS_HELP
	"      --json               what the router answers, as it is\n"
	"  -h, --help               this text\n"
	"\n"
	"What is changed here holds until the router ends; the configuration file says what it "
	"starts\n"
	"with. Columns: requests running there, seconds of prefill queued there (predicted), the "
	"share\n"
	"of prompt tokens that its cache had, and the lists that name the worker.\n"
	"\n"
	"Exit status: 0 done, 1 the router refuses, or requests still run after --wait, 2 wrong "
	"usage,\n"
	"3 no router answers.\n";

static struct kvw_workers_options *options_of(const struct kvw_admin_line *line)
{
	return (struct kvw_workers_options *)line->options;
}

static const char *take_wait(struct kvw_admin_line *line, const char *value)
{
	const struct kvw_type *type = &kvw_type_DURATION;
	struct kvw_fault fault = {0};
	union kvw_value wait;

	if (type->parse(type, kvw_slice_of(value), NULL, &wait, &fault) != KVW_OK ||
		wait.integer < 0 || wait.integer > INT64_C(3600000)) {
		kvw_admin_line_wrong(
			line, "--wait: found `%s`, expected a time up to 1h such as 30s", value);
		return NULL;
	}
	options_of(line)->wait_ms = wait.integer;
	return value;
}

static const char *take_model(struct kvw_admin_line *line, const char *value)
{
	struct kvw_workers_options *options = options_of(line);

	if (options->model_count < KVW_WORKERS_MODELS_MAX)
		options->models[options->model_count++] = value;
	else
		kvw_admin_line_wrong(line, "more than %d models; give the worker as JSON: add -",
			KVW_WORKERS_MODELS_MAX);
	return NULL;
}

#define AT(member) offsetof(struct kvw_workers_options, member)

static const struct kvw_admin_flag flags[] = {
	{.name = "model", .take = take_model},
	{.name = "wait", .offset = AT(wait), .take = take_wait},
	{.name = "now", .offset = AT(now), .bare = true},
	{.name = "remove", .offset = AT(remove), .bare = true},
	{.name = NULL},
};

static void read_verb(struct kvw_admin_line *line)
{
	struct kvw_workers_options *options = options_of(line);
	struct kvw_suggest near;
	size_t verb = 0;

	if (line->word_count == 0)
		return; /* list */
	kvw_suggest_start(&near, line->words[0]);
	while (verb < VERB_COUNT && strcmp(verbs[verb].name, line->words[0]) != 0) {
		kvw_suggest_offer(&near, verbs[verb].name, verbs[verb].name);
		verb++;
	}
	if (verb == VERB_COUNT) {
		kvw_admin_line_wrong(line,
			"found `%s`, expected list, add, drain, undrain, remove or weight%s%s%s",
			line->words[0], near.best != NULL ? "; did you mean `" : "",
			near.best != NULL ? near.best : "", near.best != NULL ? "`?" : "");
		return;
	}
	options->verb = (enum kvw_workers_verb)verb;
	options->names = line->words + 1;
	options->name_count = line->word_count - 1;
	if (options->name_count < verbs[verb].least || options->name_count > verbs[verb].most)
		kvw_admin_line_wrong(line, "%s: found %zu words behind it, expected %s",
			verbs[verb].name, options->name_count, verbs[verb].words);
}

/* Reports a flag that belongs to another verb. */
static void check_flag(
	struct kvw_admin_line *line, bool given, const char *flag, enum kvw_workers_verb verb)
{
	if (!line->bad && given && options_of(line)->verb != verb)
		kvw_admin_line_wrong(
			line, "%s belongs to `kvway workers %s`", flag, verbs[verb].name);
}

static void check_verb(struct kvw_admin_line *line)
{
	const struct kvw_workers_options *options = options_of(line);
	char *end;

	read_verb(line);
	check_flag(line, options->wait != NULL, "--wait", KVW_WORKERS_DRAIN);
	check_flag(line, options->remove, "--remove", KVW_WORKERS_DRAIN);
	check_flag(line, options->now, "--now", KVW_WORKERS_REMOVE);
	check_flag(line, options->model_count > 0, "--model", KVW_WORKERS_ADD);
	if (!line->bad && options->verb == KVW_WORKERS_WEIGHT &&
		(strtod(options->names[1], &end) < 0 || end == options->names[1] || *end != '\0'))
		kvw_admin_line_wrong(line, "weight: found `%s`, expected a number such as 0.5",
			options->names[1]);
}

bool kvw_workers_options_parse(int argc, char **argv, FILE *out, FILE *err,
	struct kvw_workers_options *options, enum kvw_exit *status)
{
	struct kvw_admin_line line = {.command = "workers",
		.help = help,
		.flags = flags,
		.check = check_verb,
		.out = out,
		.err = err,
		.options = &options->router};

	*options = (struct kvw_workers_options){.verb = KVW_WORKERS_LIST};
	return kvw_admin_line_read(&line, argc, argv, status);
}
