/*
 * command.c - runs `kvway explain`: reads the request, gets the explanation, prints it, and below
 * it what is wrong with the router or its workers now, which often is why the answer is as it is.
 */
#include "explain/command.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/standard_out.h"
#include "cli.h"
#include "admin/explain.h"
#include "explain/ask.h"
#include "explain/table.h"
#include "top/page.h"

#define READ_STEP ((size_t)64 << 10)

/* Reads all of `in`, but at most one byte more than the limit. KVW_EIO, KVW_ENOMEM. */
static enum kvw_err read_all(FILE *in, char **data, size_t *len)
{
	char *text = NULL;
	size_t used = 0, room = 0;

	while (!feof(in) && used <= KVW_EXPLAIN_BODY_MAX) {
		if (room - used < READ_STEP) {
			size_t wanted = (room + READ_STEP) * 2;
			char *grown = realloc(text, wanted);

			if (grown == NULL) {
				free(text);
				return KVW_ENOMEM;
			}
			text = grown;
			room = wanted;
		}
		used += fread(text + used, 1, READ_STEP, in);
		if (ferror(in)) {
			free(text);
			return KVW_EIO;
		}
	}
	*data = text;
	*len = used;
	return KVW_OK;
}

static enum kvw_explain_status read_request(FILE *in, FILE *err, char **data, size_t *len)
{
	enum kvw_explain_status status = KVW_EXPLAIN_USAGE;
	enum kvw_err got;

	if (isatty(fileno(in)))
		fputs("kvway explain: type the request's JSON, then Ctrl-D\n", err);
	got = read_all(in, data, len);
	if (got != KVW_OK) {
		fprintf(err, "kvway explain: the request cannot be read: %s\n",
			got == KVW_ENOMEM ? "out of memory" : "standard input failed");
		status = KVW_EXPLAIN_FAILED;
	} else if (*len == 0) {
		fputs("kvway explain: no request on standard input: kvway explain < request.json\n"
		      "Try `kvway explain --help`.\n",
			err);
	} else if (*len > KVW_EXPLAIN_BODY_MAX) {
		fputs("kvway explain: a request above 64 MiB is not explained\n", err);
		status = KVW_EXPLAIN_FAILED;
	} else {
		status = KVW_EXPLAIN_OK;
	}
	return status;
}

/* Gets the explanation and, of a running router, *status, the document of /status; NULL: it is not
 * shown (--json), or not to be had, which hides nothing of the explanation. */
static enum kvw_explain_status get_reply(const struct kvw_explain_options *options,
	const struct kvw_config *config, struct kvw_slice request, FILE *err,
	struct kvw_admin_reply *reply, json_t **status)
{
	struct kvw_admin_where where;
	char *key = NULL;
	enum kvw_err got;

	if (options->cold) {
		got = kvw_explain_cold(config, options, request, reply);
	} else {
		if (kvw_admin_client_find(&options->router, config, "explain", err, &where) !=
			KVW_OK)
			return KVW_EXPLAIN_USAGE;
		if (options->router.key_file != NULL) {
			key = kvw_admin_client_key(options->router.key_file, "explain", err);
			if (key == NULL)
				return KVW_EXPLAIN_FAILED;
		}
		got = kvw_explain_ask(&where, options, key, request, err, reply);
		if (got == KVW_OK && !options->router.json)
			*status = kvw_explain_ask_status(&where, key);
		free(key);
	}
	if (got == KVW_EIO)
		return KVW_EXPLAIN_UNREACHABLE;
	if (got != KVW_OK)
		fputs("kvway explain: out of memory\n", err);
	return got == KVW_OK ? KVW_EXPLAIN_OK : KVW_EXPLAIN_FAILED;
}

static enum kvw_explain_status show_answer(const struct kvw_explain_options *options,
	const struct kvw_admin_reply *reply, FILE *out, FILE *err)
{
	struct kvw_slice json = {reply->body == NULL ? "" : reply->body, reply->len};

	if (options->router.json)
		fwrite(json.data, 1, json.len, out);
	if (reply->status == 200 &&
		(options->router.json || kvw_explain_table_print(json, out) == KVW_OK))
		return KVW_EXPLAIN_OK;
	kvw_explain_error_print(reply->status, json, err);
	return KVW_EXPLAIN_FAILED;
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
		fputs(shown++ == 0 ? "" : ", ", out);
		kvw_print_clean(out, model, strlen(model));
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

int kvw_explain_command(int argc, char **argv, FILE *in, FILE *out, FILE *err)
{
	struct kvw_explain_options options;
	struct kvw_admin_reply reply = {0};
	struct kvw_config *config = NULL;
	enum kvw_explain_status status;
	json_t *now = NULL;
	char *request = NULL;
	size_t len = 0;

	if (!kvw_explain_options_parse(argc, argv, out, err, &options, &status))
		return (int)status;
	if (options.router.config != NULL &&
		kvw_cli_load_file(options.router.config, err, &config) != KVW_OK)
		return KVW_EXPLAIN_FAILED;
	status = read_request(in, err, &request, &len);
	if (status == KVW_EXPLAIN_OK)
		status = get_reply(
			&options, config, (struct kvw_slice){request, len}, err, &reply, &now);
	if (status == KVW_EXPLAIN_OK) {
		status = show_answer(&options, &reply, out, err);
		show_status(now, reply.status, status == KVW_EXPLAIN_OK ? out : err);
	}
	json_decref(now);
	free(reply.body);
	free(request);
	kvw_config_destroy(config);
	return (int)status;
}
