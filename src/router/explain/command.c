/*
 * command.c - runs `kvway explain`: reads the request, gets the explanation, prints it, and below
 * it what is wrong with the router or its workers now, which often is why the answer is as it is.
 */
#include "explain/command.h"

#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#include "admin/explain.h"
#include "admin_client.h"
#include "base/read_file.h"
#include "base/standard_out.h"
#include "cli.h"
#include "explain/cold.h"
#include "explain/table.h"
#include "top/page.h"

static enum kvw_exit read_request(
	struct kvw_admin_client *client, char **data, size_t *len)
{
	char why[KVT_READ_FILE_WHY];

	if (isatty(STDIN_FILENO))
		fputs("kvway explain: type the request's JSON, then Ctrl-D\n", client->err);
	*data = kvt_read_file("-", KVW_EXPLAIN_BODY_MAX, len, why);
	if (*data == NULL)
		return kvw_admin_client_fail(client, "the request %s", why);
	if (*len > 0)
		return KVW_EXIT_OK;
	(void)kvw_admin_client_fail(client,
		"no request on standard input: kvway explain < request.json\n"
		"Try `kvway explain --help`.");
	return KVW_EXIT_USAGE;
}

/* Gets the explanation and, of a running router, *status, the document of /status; NULL: it is not
 * shown (--json), or not to be had, which hides nothing of the explanation. */
static enum kvw_exit ask(struct kvw_admin_client *client,
	const struct kvw_explain_options *options, struct kvw_slice request,
	struct kvw_admin_reply *reply, json_t **status)
{
	const struct kvw_admin_question now = {.path = "/status", .answer_ms = 5000, .quiet = true};
	const struct kvw_admin_question question = {.method = "POST",
		.path = "/explain",
		.parameters = {{"path", options->path}, {"key", options->key}},
		.body = request,
		.headers = options->headers,
		.header_count = options->header_count};
	struct kvw_admin_reply document = {.body = NULL};
	enum kvw_exit asked;

	if (options->cold)
		return kvw_explain_cold(client->config, options, request, reply) == KVW_OK
			       ? KVW_EXIT_OK
			       : kvw_admin_client_fail(client, "out of memory");
	asked = kvw_admin_client_ask(client, &question, reply);
	if (asked == KVW_EXIT_UNREACHABLE)
		fputs("--cold -c FILE needs no router.\n", client->err);
	if (asked == KVW_EXIT_OK && !options->router.json &&
		kvw_admin_client_ask(client, &now, &document) == KVW_EXIT_OK &&
		document.status == 200)
		*status = json_loadb(document.body, document.len, 0, NULL);
	free(document.body);
	return asked;
}

static enum kvw_exit show_answer(struct kvw_admin_client *client, bool json,
	const struct kvw_admin_reply *reply)
{
	if (json)
		kvw_admin_client_pass(client, reply);
	if (reply->status == 200 &&
		(json || kvw_explain_table_print((struct kvw_slice){reply->body, reply->len},
				 client->out) == KVW_OK))
		return KVW_EXIT_OK;
	return kvw_admin_client_refused(client, "/explain", reply);
}

/* Prints the models that workers have, for a request whose model there is not. */
static void show_models(const json_t *status, FILE *out)
{
	const json_t *workers = json_object_get(status, "workers"), *worker, *name;
	json_t *names = json_object();
	const char *model;
	size_t i, k, shown = 0;

	json_array_foreach(workers, i, worker)
		json_array_foreach(json_object_get(worker, "models"), k, name)
			json_object_set_new(names, json_string_value(name), json_true());
	fputs("workers have: ", out);
	json_object_foreach(names, model, name)
	{
		kvw_printf(out, "%s%s", shown++ == 0 ? "" : ", ", model);
	}
	fputs(shown == 0 ? "no model\n" : "\n", out);
	json_decref(names);
}

/* Prints what is wrong now, beneath an explanation or an error. */
static void show_status(const json_t *status, long reply, FILE *out)
{
	const struct kvw_top_look look = {.width = 100};
	const json_t *problems = json_object_get(status, "problems");

	if (reply == 404 && status != NULL)
		show_models(status, out);
	if (json_array_size(problems) == 0)
		return;
	fputs("\nwhat is wrong now:\n", out);
	(void)kvw_top_print_problems(problems, &look, out);
}

int kvw_explain_command(int argc, char **argv, FILE *out, FILE *err)
{
	struct kvw_explain_options options;
	struct kvw_admin_client client = {
		.command = "explain", .options = &options.router, .out = out, .err = err};
	struct kvw_admin_reply reply = {.body = NULL};
	enum kvw_exit status;
	json_t *now = NULL;
	char *request = NULL;
	size_t len = 0;

	if (!kvw_explain_options_parse(argc, argv, out, err, &options, &status))
		return (int)status;
	if (!options.cold)
		status = kvw_admin_client_open(&client);
	else if (kvw_cli_load_file(options.router.config, err, &client.config) != KVW_OK)
		status = KVW_EXIT_FAILED;
	if (status == KVW_EXIT_OK)
		status = read_request(&client, &request, &len);
	if (status == KVW_EXIT_OK)
		status = ask(&client, &options, (struct kvw_slice){request, len}, &reply, &now);
	if (status == KVW_EXIT_OK) {
		status = show_answer(&client, options.router.json, &reply);
		show_status(now, reply.status, status == KVW_EXIT_OK ? out : err);
	}
	json_decref(now);
	free(reply.body);
	free(request);
	kvw_admin_client_close(&client);
	return (int)status;
}
