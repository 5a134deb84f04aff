/*
 * command.c - runs `kvway trace`: sends GET /trace to the admin address, once, or again and again
 * for the requests after those in the last answer.
 */
#include "story/command.h"

#include <curl/curl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "admin_client.h"
#include "cli.h"
#include "story/options.h"
#include "story/page.h"

#define FOLLOW_NS   INT64_C(300000000) /* between two questions */
#define CURSOR_MOST 8192

/* The data of one run of the command. */
struct run {
	const struct kvw_story_options *options;
	struct kvw_config *config; /* the file of -c; owned; NULL: not given */
	struct kvw_admin_where where;
	char *key;                /* owned */
	char cursor[CURSOR_MOST]; /* where the last answer ended; "": there was none */
	size_t shown;
	FILE *out, *err;
};

/* --- the question --- */

static void add(FILE *to, const char *name, const char *value)
{
	char *coded = value == NULL ? NULL : kvw_admin_client_encode(value);

	if (coded != NULL)
		fprintf(to, "%s=%s&", name, coded);
	free(coded);
}

/* Makes the target, which the caller frees. NULL: memory is short. */
static char *target_of(const struct run *run)
{
	const struct kvw_story_options *options = run->options;
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	if (to == NULL)
		return NULL;
	fputs("/trace?", to);
	add(to, "id", options->id);
	add(to, "model", options->model);
	add(to, "worker", options->worker);
	add(to, "slow", options->slow);
	add(to, "status", options->status);
	if (run->cursor[0] != '\0')
		add(to, "since", run->cursor);
	fprintf(to, "last=%s",
		run->cursor[0] != '\0'  ? "10000"
		: options->last != NULL ? options->last
					: "10");
	return fclose(to) == 0 ? text : NULL;
}

/* --- the answer --- */

static enum kvw_story_status refused(const struct run *run, const struct kvw_admin_reply *reply)
{
	json_t *root = json_loadb(reply->body == NULL ? "" : reply->body, reply->len, 0, NULL);
	const char *message =
		json_string_value(json_object_get(json_object_get(root, "error"), "message"));

	if (message != NULL)
		fprintf(run->err, "kvway trace: %s\n", message);
	else
		fprintf(run->err, "kvway trace: what answers is no kvway with /trace: status %ld\n",
			reply->status);
	json_decref(root);
	return KVW_STORY_FAILED;
}

static void show_request(struct run *run, const json_t *request, const char *line, size_t len)
{
	if (run->options->follow && json_object_get(request, "status") == NULL)
		return; /* it will be shown when it has ended */
	if (run->options->router.json) {
		fwrite(line, 1, len, run->out);
		fputc('\n', run->out);
	} else {
		if (run->shown > 0)
			fputc('\n', run->out);
		kvw_story_print(request, run->out);
	}
	run->shown++;
}

/* The last line. */
static void take_end(struct run *run, const json_t *end)
{
	double lost = json_number_value(json_object_get(end, "lost"));

	(void)snprintf(run->cursor, sizeof(run->cursor), "%s",
		json_string_value(json_object_get(end, "cursor")));
	if (lost > 0)
		fprintf(run->err,
			"kvway trace: %.0f requests ended and were forgotten before they were "
			"asked for; a larger trace.requests keeps more\n",
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
	fflush(run->out);
	return whole;
}

static enum kvw_story_status ask(struct run *run)
{
	char why[CURL_ERROR_SIZE], *target = target_of(run);
	const struct kvw_admin_question question = {
		.method = "GET", .target = target, .key = run->key};
	enum kvw_story_status status = KVW_STORY_OK;
	struct kvw_admin_reply reply = {0};
	enum kvw_err err = target == NULL
				   ? KVW_ENOMEM
				   : kvw_admin_client_ask(&run->where, &question, why, &reply);

	if (err == KVW_EIO) {
		kvw_admin_client_missed(&run->where, "trace", why, "", run->err);
		status = KVW_STORY_UNREACHABLE;
	} else if (err != KVW_OK) {
		fputs("kvway trace: out of memory\n", run->err);
		status = KVW_STORY_FAILED;
	} else if (reply.status != 200 || !show(run, &reply)) {
		status = refused(run, &reply);
	}
	free(reply.body);
	free(target);
	return status;
}

static enum kvw_story_status ask_all(struct run *run)
{
	const struct timespec pause = {.tv_nsec = FOLLOW_NS};
	enum kvw_story_status status = ask(run);

	while (status == KVW_STORY_OK && run->options->follow && !ferror(run->out)) {
		nanosleep(&pause, NULL);
		status = ask(run);
	}
	if (status == KVW_STORY_OK && run->shown == 0 && !run->options->router.json)
		fputs("No request that kvway remembers fits.\n", run->err);
	return status;
}

int kvw_story_command(int argc, char **argv, FILE *out, FILE *err)
{
	struct kvw_story_options options;
	struct run run = {.options = &options, .out = out, .err = err};
	enum kvw_story_status status;

	if (!kvw_story_options_parse(argc, argv, out, err, &options, &status))
		return (int)status;
	if (options.router.config != NULL &&
		kvw_cli_load_file(options.router.config, err, &run.config) != KVW_OK)
		return KVW_STORY_FAILED;
	if (kvw_admin_client_find(&options.router, run.config, "trace", err, &run.where) != KVW_OK)
		status = KVW_STORY_USAGE;
	if (status == KVW_STORY_OK && options.router.key_file != NULL) {
		run.key = kvw_admin_client_key(options.router.key_file, "trace", err);
		if (run.key == NULL)
			status = KVW_STORY_FAILED;
	}
	if (status == KVW_STORY_OK)
		status = ask_all(&run);
	free(run.key);
	kvw_config_destroy(run.config);
	return (int)status;
}
