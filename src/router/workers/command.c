/*
 * command.c - runs `kvway workers`. Each verb sends one request to the admin address.
 */
#include "workers/command.h"

#include <curl/curl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "admin_client.h"
#include "cli.h"
#include "workers/options.h"
#include "workers/table.h"

#define BODY_MOST ((size_t)1 << 20) /* as the router takes */
#define SPARE_MS  10000L            /* time that an answer may take in addition to the wait */

/* The request for a verb. */
struct request {
	struct kvw_admin_question question;
	char *target, *body; /* owned */
};

static void release_request(struct request *request)
{
	free(request->target);
	free(request->body);
}

/* Makes /workers/ID and the rest of the target. NULL: memory is short. */
static char *target_of(const char *id, const char *rest)
{
	char *coded = kvw_admin_client_encode(id), *target = NULL;

	if (coded != NULL && asprintf(&target, "/workers/%s%s", coded, rest) < 0)
		target = NULL;
	free(coded);
	return target;
}

/* Makes the body with the workers of `add`: one is an object, several are a list. */
static char *add_body(const struct kvw_workers_options *options)
{
	json_t *list = json_array(), *models = json_array();
	char *text;

	for (size_t i = 0; i < options->model_count; i++)
		json_array_append_new(models, json_string(options->models[i]));
	for (size_t i = 0; i < options->name_count; i++) {
		json_t *worker = json_pack("{s:s}", "url", options->names[i]);

		if (options->model_count > 0)
			json_object_set(worker, "models", models);
		json_array_append_new(list, worker);
	}
	text = json_dumps(
		json_array_size(list) == 1 ? json_array_get(list, 0) : list, JSON_COMPACT);
	json_decref(models);
	json_decref(list);
	return text;
}

/* Reads all of `in`, and puts a NUL after it. NULL: it cannot be read, or is too long. */
static char *read_body(FILE *in)
{
	char *text = malloc(BODY_MOST + 2);
	size_t len = text == NULL ? 0 : fread(text, 1, BODY_MOST + 1, in);

	if (text == NULL || ferror(in) || len > BODY_MOST) {
		free(text);
		return NULL;
	}
	text[len] = '\0';
	return text;
}

/* The number is sent as text, which the router reads as it reads a file's. */
static char *weight_body(const char *number)
{
	json_t *root = json_pack("{s:s}", "weight", number);
	char *text = json_dumps(root, JSON_COMPACT);

	json_decref(root);
	return text;
}

static char *drain_target(const struct kvw_workers_options *options)
{
	char rest[64];

	(void)snprintf(rest, sizeof(rest), "/drain?wait=%lldms%s", (long long)options->wait_ms,
		options->remove ? "&remove=true" : "");
	return target_of(options->names[0], rest);
}

/* Returns false if memory is too short for *body or *target. */
static bool make_request(const struct kvw_workers_options *options, FILE *in, struct request *r)
{
	bool from_in = options->verb == KVW_WORKERS_ADD && strcmp(options->names[0], "-") == 0;
	bool wants_body = false;

	r->question.method = "POST";
	switch (options->verb) {
	case KVW_WORKERS_LIST:
		r->question.method = "GET";
		r->target = strdup("/workers");
		break;
	case KVW_WORKERS_ADD:
		r->target = strdup("/workers");
		r->body = from_in ? read_body(in) : add_body(options);
		wants_body = true;
		break;
	case KVW_WORKERS_DRAIN:
		r->question.answer_ms = (long)options->wait_ms + SPARE_MS;
		r->target = drain_target(options);
		break;
	case KVW_WORKERS_UNDRAIN:
		r->target = target_of(options->names[0], "/undrain");
		break;
	case KVW_WORKERS_REMOVE:
		r->question.method = "DELETE";
		r->target = target_of(options->names[0], options->now ? "?now=true" : "");
		break;
	case KVW_WORKERS_WEIGHT:
		r->question.method = "PATCH";
		r->target = target_of(options->names[0], "");
		r->body = weight_body(options->names[1]);
		wants_body = true;
		break;
	}
	r->question.target = r->target;
	r->question.body = kvw_slice_of(r->body);
	return r->target != NULL && (!wants_body || r->body != NULL);
}

/* Returns whether the answer says that the worker is drained. A server with data-parallel ranks
 * answers with a list, whose entries are equal. */
static bool is_drained(struct kvw_slice json)
{
	json_t *root = json_loadb(json.data, json.len, 0, NULL);
	json_t *worker = json_is_array(root) ? json_array_get(root, 0) : root;
	bool drained = json_is_true(json_object_get(worker, "drained"));

	json_decref(root);
	return drained;
}

static enum kvw_workers_status show_workers(const struct kvw_workers_options *options,
	const struct kvw_admin_reply *reply, FILE *out, FILE *err)
{
	struct kvw_slice json = {reply->body == NULL ? "" : reply->body, reply->len};
	bool good = reply->status >= 200 && reply->status < 300;

	if (options->router.json) {
		fwrite(json.data, 1, json.len, out);
		if (json.len > 0 && json.data[json.len - 1] != '\n')
			fputc('\n', out);
	}
	if (!good || (!options->router.json && kvw_workers_table_print(json, out) != KVW_OK)) {
		kvw_workers_error_print(reply->status, json, err);
		return KVW_WORKERS_FAILED;
	}
	if (options->verb == KVW_WORKERS_DRAIN && options->wait != NULL && !is_drained(json)) {
		fprintf(err, "kvway workers: %s still has requests after %s\n", options->names[0],
			options->wait);
		return KVW_WORKERS_FAILED;
	}
	return KVW_WORKERS_OK;
}

/* Finds the admin address. *config must be destroyed after *where was used. */
static enum kvw_workers_status find_admin(const struct kvw_workers_options *options, FILE *err,
	struct kvw_config **config, struct kvw_admin_where *where)
{
	if (options->router.config != NULL &&
		kvw_cli_load_file(options->router.config, err, config) != KVW_OK)
		return KVW_WORKERS_FAILED;
	return kvw_admin_client_find(&options->router, *config, "workers", err, where) == KVW_OK
		       ? KVW_WORKERS_OK
		       : KVW_WORKERS_USAGE;
}

static enum kvw_workers_status ask_router(const struct kvw_admin_where *where,
	const struct request *request, FILE *err, struct kvw_admin_reply *reply)
{
	char why[CURL_ERROR_SIZE];

	switch (kvw_admin_client_ask(where, &request->question, why, reply)) {
	case KVW_OK:
		return KVW_WORKERS_OK;
	case KVW_EIO:
		kvw_admin_client_missed(where, "workers", why, "", err);
		return KVW_WORKERS_UNREACHABLE;
	default:
		fputs("kvway workers: out of memory\n", err);
		return KVW_WORKERS_FAILED;
	}
}

int kvw_workers_command(int argc, char **argv, FILE *in, FILE *out, FILE *err)
{
	struct kvw_workers_options options;
	struct kvw_admin_reply reply = {0};
	struct request request = {0};
	struct kvw_config *config = NULL;
	struct kvw_admin_where where;
	char *key = NULL;
	enum kvw_workers_status status;

	if (!kvw_workers_options_parse(argc, argv, out, err, &options, &status))
		return (int)status;
	status = find_admin(&options, err, &config, &where);
	if (status == KVW_WORKERS_OK && options.router.key_file != NULL) {
		key = kvw_admin_client_key(options.router.key_file, "workers", err);
		request.question.key = key;
		if (key == NULL)
			status = KVW_WORKERS_FAILED;
	}
	if (status == KVW_WORKERS_OK && !make_request(&options, in, &request)) {
		fputs("kvway workers: the request cannot be made: standard input failed or is "
		      "above 1 MiB, or out of memory\n",
			err);
		status = KVW_WORKERS_FAILED;
	}
	if (status == KVW_WORKERS_OK)
		status = ask_router(&where, &request, err, &reply);
	if (status == KVW_WORKERS_OK)
		status = show_workers(&options, &reply, out, err);
	free(reply.body);
	release_request(&request);
	free(key);
	kvw_config_destroy(config);
	return (int)status;
}
