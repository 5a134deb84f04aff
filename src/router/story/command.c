/*
 * command.c - runs `kvway trace`: sends GET /trace to the admin address, once, or again and again
 * for the requests after those in the last answer.
 */
#include "story/command.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "admin_client.h"
#include "admin_json.h"
#include "story/page.h"

#define FOLLOW_NS   INT64_C(300000000) /* between two questions */
#define CURSOR_MOST 8192

/* Borrowed from argv; NULL: not given. */
struct options {
	struct kvw_admin_options router;
	const char *id, *model, *worker, *slow, *status, *last;
	bool follow;
};

/* The data of one run of the command. */
struct run {
	struct kvw_admin_client client;
	struct options options;
	char cursor[CURSOR_MOST]; /* where the last answer ended; "": there was none */
	size_t shown;
};

/* --- command line --- */

static const char help[] =
	"kvway trace shows what happened to requests of a running router: what each waited for, "
	"which\n"
	"worker it was sent to and why, what failed, and how it ended.\n"
	"\n"
	"Usage:\n"
	"  kvway trace                     the last 10, those under way too\n"
	"  kvway trace --id ID             one request: ID is its x-request-id, which the "
	"answer's\n"
	"                                  head and the access log show\n"
	"  kvway trace --slow 3000         that took 3 s or longer, or wait for so long already\n"
	"  kvway trace --status 5xx        that were answered so\n"
	"  kvway trace --follow            goes on with each request that ends\n"
	"\n"
	"Examples:\n"
	"  why did my request take 3 seconds?   kvway trace --slow 3000\n"
	"  why did it go to that worker?        kvway trace --id ID\n"
	"  what goes wrong on one worker?       kvway trace --worker 10.0.0.7:8000 --status 5xx\n"
	"  for a script                         kvway trace --json --last 1000 | jq .total_ms\n"
	"\n"
	"      --id ID              the request with this id\n"
	"      --model NAME         that ask for this model\n"
	"      --worker WORKER      that this worker was asked for: its URL, or host:port\n"
	"      --slow MS            that took so many milliseconds or longer\n"
	"      --status STATUS      that ended with this status: 503, or 5xx\n"
	"      --last N             how many, the newest (default 10)\n"
	"      --follow             afterwards each that fits when it has ended, until Ctrl-C\n"
	"      --json               a line of JSON for each, with all that was noted\n"
	"\n" KVW_ADMIN_ADDRESS_HELP KVW_ADMIN_FLAGS_HELP
	"  -h, --help               this text\n"
	"\n"
	"Times are milliseconds since the request's first byte. kvway remembers the last requests "
	"of\n"
	"each event loop (trace.requests), and those that failed longer (trace.failed). Prompts "
	"and keys\n"
	"are never noted.\n"
	"\n"
	"Exit status: 0 done, 1 the router refuses, or traces nothing, 2 wrong usage, 3 no router "
	"answers.\n";

static const char *take_status(struct kvw_admin_line *line, const char *value)
{
	if (strlen(value) == 3 && value[0] >= '1' && value[0] <= '5' &&
		(strcmp(value + 1, "xx") == 0 || strspn(value + 1, "0123456789") == 2))
		return value;
	kvw_admin_line_wrong(line, "--status: found `%s`, expected one such as 503, or 5xx", value);
	return NULL;
}

#define AT(member) offsetof(struct options, member)

static const struct kvw_admin_flag flags[] = {
	{.name = "id", .offset = AT(id)},
	{.name = "model", .offset = AT(model)},
	{.name = "worker", .offset = AT(worker)},
	{.name = "slow", .offset = AT(slow), .most = 86400000},
	{.name = "status", .offset = AT(status), .take = take_status},
	{.name = "last", .offset = AT(last), .most = 10000},
	{.name = "follow", .offset = AT(follow), .bare = true},
	{.name = NULL},
};

/* --- the answer --- */

static void show_request(struct run *run, const json_t *request, const char *line, size_t len)
{
	FILE *out = run->client.out;

	if (run->options.follow && json_object_get(request, "status") == NULL)
		return; /* it will be shown when it has ended */
	if (run->options.router.json) {
		fwrite(line, 1, len, out);
		fputc('\n', out);
	} else {
		if (run->shown > 0)
			fputc('\n', out);
		kvw_story_print(request, out);
	}
	run->shown++;
}

/* The last line. */
static void take_end(struct run *run, const json_t *end)
{
	double lost = kvw_json_number(end, "lost");

	(void)snprintf(run->cursor, sizeof(run->cursor), "%s", kvw_json_text(end, "cursor"));
	if (lost > 0)
		(void)kvw_admin_client_fail(&run->client,
			"%.0f requests ended and were forgotten before they were asked for; a "
			"larger trace.requests keeps more",
			lost);
}

/* Prints an answer. Returns false if it is not one of kvway's. */
static bool show(struct run *run, const struct kvw_admin_reply *reply)
{
	const char *at = reply->body, *end = reply->body + reply->len;
	bool whole = false;

	while (at != NULL && at < end) {
		const char *stop = memchr(at, '\n', (size_t)(end - at));
		size_t len = stop == NULL ? (size_t)(end - at) : (size_t)(stop - at);
		json_t *line = json_loadb(at, len, JSON_ALLOW_NUL, NULL);

		whole = json_is_string(json_object_get(line, "cursor"));
		if (whole)
			take_end(run, line);
		else if (json_is_array(json_object_get(line, "way")))
			show_request(run, line, at, len);
		json_decref(line);
		at += len + 1;
	}
	fflush(run->client.out);
	return whole;
}

static enum kvw_exit ask(struct run *run)
{
	const struct options *options = &run->options;
	bool goes_on = run->cursor[0] != '\0';
	const struct kvw_admin_question question = {.path = "/trace",
		.parameters = {{"id", options->id}, {"model", options->model},
			{"worker", options->worker}, {"slow", options->slow},
			{"status", options->status}, {"since", goes_on ? run->cursor : NULL},
			{"last", goes_on                 ? "10000"
				 : options->last != NULL ? options->last
							 : "10"}}};
	struct kvw_admin_reply reply;
	enum kvw_exit status = kvw_admin_client_ask(&run->client, &question, &reply);

	if (status != KVW_EXIT_OK)
		return status;
	if (reply.status != 200 || !show(run, &reply))
		status = kvw_admin_client_refused(&run->client, question.path, &reply);
	free(reply.body);
	return status;
}

static enum kvw_exit ask_all(struct run *run)
{
	const struct timespec pause = {.tv_nsec = FOLLOW_NS};
	enum kvw_exit status = ask(run);

	while (status == KVW_EXIT_OK && run->options.follow && !ferror(run->client.out)) {
		nanosleep(&pause, NULL);
		status = ask(run);
	}
	if (status == KVW_EXIT_OK && run->shown == 0 && !run->options.router.json)
		fputs("No request that kvway remembers fits.\n", run->client.err);
	return status;
}

int kvw_story_command(int argc, char **argv, FILE *out, FILE *err)
{
	struct run run = {.client = {.command = "trace", .out = out, .err = err}};
	struct kvw_admin_line line = {.command = "trace",
		.help = help,
		.flags = flags,
		.stray = "expected flags only; a request's id goes behind --id",
		.out = out,
		.err = err,
		.options = &run.options.router};
	enum kvw_exit status;

	run.client.options = &run.options.router;
	if (!kvw_admin_line_read(&line, argc, argv, &status))
		return (int)status;
	status = kvw_admin_client_open(&run.client);
	if (status == KVW_EXIT_OK)
		status = ask_all(&run);
	kvw_admin_client_close(&run.client);
	return (int)status;
}
