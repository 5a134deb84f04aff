/*
 * command.c - runs `kvway workers`. Each verb sends one request to the admin address.
 */
#include "workers/command.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "admin_client.h"
#include "base/read_file.h"
#include "workers/options.h"
#include "workers/table.h"

#define BODY_MOST ((size_t)1 << 20) /* as the router takes */
#define SPARE_MS  10000L            /* time that an answer may take in addition to the wait */

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

/* The number is sent as text, which the router reads as it reads a file's. */
static char *weight_body(const char *number)
{
	json_t *root = json_pack("{s:s}", "weight", number);
	char *text = json_dumps(root, JSON_COMPACT);

	json_decref(root);
	return text;
}

/* Makes the body of a verb that has one; the caller frees *body. */
static enum kvw_exit make_body(struct kvw_admin_client *client,
	const struct kvw_workers_options *options, char **body)
{
	char why[KVT_READ_FILE_WHY];
	size_t len;

	if (options->verb == KVW_WORKERS_WEIGHT) {
		*body = weight_body(options->names[1]);
	} else if (options->verb != KVW_WORKERS_ADD) {
		return KVW_EXIT_OK;
	} else if (strcmp(options->names[0], "-") != 0) {
		*body = add_body(options);
	} else {
		*body = kvt_read_file("-", BODY_MOST, &len, why);
		if (*body == NULL)
			return kvw_admin_client_fail(client, "standard input %s", why);
	}
	if (*body == NULL)
		return kvw_admin_client_fail(client, "out of memory, or a text is no UTF-8");
	return KVW_EXIT_OK;
}

static enum kvw_exit ask(struct kvw_admin_client *client,
	const struct kvw_workers_options *options, const char *body, struct kvw_admin_reply *reply)
{
	static const struct {
		const char *method, *action;
		bool item;
	} verbs[] = {
		[KVW_WORKERS_LIST] = {NULL, NULL, false},
		[KVW_WORKERS_ADD] = {"POST", NULL, false},
		[KVW_WORKERS_DRAIN] = {"POST", "/drain", true},
		[KVW_WORKERS_UNDRAIN] = {"POST", "/undrain", true},
		[KVW_WORKERS_REMOVE] = {"DELETE", NULL, true},
		[KVW_WORKERS_WEIGHT] = {"PATCH", NULL, true},
	};
	bool drains = options->verb == KVW_WORKERS_DRAIN;
	char wait[32];
	const struct kvw_admin_question question = {.method = verbs[options->verb].method,
		.path = "/workers",
		.item = verbs[options->verb].item ? options->names[0] : NULL,
		.action = verbs[options->verb].action,
		.parameters = {{"wait", drains ? wait : NULL},
			{"remove", options->remove ? "true" : NULL},
			{"now", options->now ? "true" : NULL}},
		.body = kvw_slice_of(body),
		.answer_ms = drains ? (long)options->wait_ms + SPARE_MS : 0};

	(void)snprintf(wait, sizeof(wait), "%lldms", (long long)options->wait_ms);
	return kvw_admin_client_ask(client, &question, reply);
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

static enum kvw_exit show_workers(struct kvw_admin_client *client,
	const struct kvw_workers_options *options, const struct kvw_admin_reply *reply)
{
	struct kvw_slice text = {reply->body, reply->len};
	bool json = options->router.json;

	if (json)
		kvw_admin_client_pass(client, reply);
	if (reply->status < 200 || reply->status >= 300 ||
		(!json && kvw_workers_table_print(text, client->out) != KVW_OK))
		return kvw_admin_client_refused(client, "/workers", reply);
	if (options->verb == KVW_WORKERS_DRAIN && options->wait != NULL && !is_drained(text))
		return kvw_admin_client_fail(client, "%s still has requests after %s",
			options->names[0], options->wait);
	return KVW_EXIT_OK;
}

int kvw_workers_command(int argc, char **argv, FILE *out, FILE *err)
{
	struct kvw_workers_options options;
	struct kvw_admin_client client = {
		.command = "workers", .options = &options.router, .out = out, .err = err};
	struct kvw_admin_reply reply = {.body = NULL};
	enum kvw_exit status;
	char *body = NULL;

	if (!kvw_workers_options_parse(argc, argv, out, err, &options, &status))
		return (int)status;
	status = kvw_admin_client_open(&client);
	if (status == KVW_EXIT_OK)
		status = make_body(&client, &options, &body);
	if (status == KVW_EXIT_OK)
		status = ask(&client, &options, body, &reply);
	if (status == KVW_EXIT_OK)
		status = show_workers(&client, &options, &reply);
	free(reply.body);
	free(body);
	kvw_admin_client_close(&client);
	return (int)status;
}
