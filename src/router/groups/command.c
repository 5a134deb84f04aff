/*
 * command.c - runs `kvway groups` and `kvway compare`. Each sends one request to the admin address;
 * a comparison over time sends two.
 */
#include "groups/command.h"

#include <curl/curl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "admin_client.h"
#include "base/standard_out.h"
#include "cli.h"
#include "groups/compare.h"
#include "groups/options.h"

/* The router to ask. */
struct router {
	const struct kvw_groups_options *options;
	/* its texts are borrowed from the command line and from `config` */
	struct kvw_admin_where where;
	struct kvw_config *config;         /* the file of -c; owned; NULL: not given */
	char *key; /* owned */
	FILE *out, *err;
};

static enum kvw_groups_status ask_router(const struct router *router, const char *method,
	const char *target, const char *body, struct kvw_admin_reply *reply)
{
	const struct kvw_admin_question question = {
		.method = method, .target = target, .body = kvw_slice_of(body), .key = router->key};
	char why[CURL_ERROR_SIZE];

	switch (kvw_admin_client_ask(&router->where, &question, why, reply)) {
	case KVW_OK:
		return KVW_GROUPS_OK;
	case KVW_EIO:
		kvw_admin_client_missed(
			&router->where, router->options->command, why, "", router->err);
		return KVW_GROUPS_UNREACHABLE;
	default:
		fprintf(router->err, "kvway %s: out of memory\n", router->options->command);
		return KVW_GROUPS_FAILED;
	}
}

static void put_text(FILE *out, const char *text)
{
	if (text != NULL)
		kvw_print_clean(out, text, strlen(text));
}

static enum kvw_groups_status refused(
	const struct router *router, const struct kvw_admin_reply *reply)
{
	json_t *root = json_loadb(reply->body == NULL ? "" : reply->body, reply->len, 0, NULL);
	const char *message =
		json_string_value(json_object_get(json_object_get(root, "error"), "message"));

	fprintf(router->err, "kvway %s: the router answers %ld: ", router->options->command,
		reply->status);
	put_text(router->err, message != NULL ? message : "no groups are known there");
	fputc('\n', router->err);
	json_decref(root);
	return KVW_GROUPS_FAILED;
}

/* --- kvway groups --- */

/* Makes {"model": ..., "weights": ...}. Returns NULL if memory is short. */
static char *weights_body(const struct kvw_groups_options *options)
{
	json_t *weights = json_object(), *root;
	char *text;

	for (size_t i = 1; i < options->name_count; i++) {
		const char *word = options->names[i], *mark = strrchr(word, '=');

		json_object_setn_new_nocheck(
			weights, word, (size_t)(mark - word), json_real(strtod(mark + 1, NULL)));
	}
	root = json_pack("{s:s, s:o}", "model", options->names[0], "weights", weights);
	text = root == NULL ? NULL : json_dumps(root, JSON_COMPACT);
	json_decref(root);
	return text;
}

static void print_group(FILE *out, const json_t *group)
{
	double weight = json_number_value(json_object_get(group, "weight"));
	double configured = json_number_value(json_object_get(group, "configured_weight"));

	put_text(out, json_string_value(json_object_get(group, "model")));
	fputs("  ", out);
	put_text(out, json_string_value(json_object_get(group, "group")));
	fprintf(out, "  weight %g", weight);
	if (weight != configured)
		fprintf(out, " (in the file %g)", configured);
	fprintf(out, "  usable workers %lld  serves ",
		(long long)json_integer_value(json_object_get(group, "usable_workers")));
	put_text(out, json_string_value(json_object_get(group, "to")));
	fputc('\n', out);
}

static enum kvw_groups_status show_groups(
	const struct router *router, const struct kvw_admin_reply *reply)
{
	json_t *list;
	size_t i;
	json_t *group;

	if (reply->status != 200)
		return refused(router, reply);
	if (router->options->router.json) {
		fwrite(reply->body, 1, reply->len, router->out);
		if (reply->len > 0 && reply->body[reply->len - 1] != '\n')
			fputc('\n', router->out);
		return KVW_GROUPS_OK;
	}
	list = json_loadb(reply->body, reply->len, 0, NULL);
	if (json_is_array(list) && json_array_size(list) == 0)
		fputs("No model has groups (model_groups).\n", router->out);
	json_array_foreach(list, i, group)
		print_group(router->out, group);
	json_decref(list);
	return KVW_GROUPS_OK;
}

static enum kvw_groups_status groups(const struct router *router)
{
	bool weighs = router->options->verb == KVW_GROUPS_WEIGHT;
	char *body = weighs ? weights_body(router->options) : NULL;
	struct kvw_admin_reply reply = {0};
	enum kvw_groups_status status = KVW_GROUPS_FAILED;

	if (weighs && body == NULL)
		fputs("kvway groups: out of memory, or a name is no UTF-8\n", router->err);
	else
		status = ask_router(router, weighs ? "PATCH" : "GET", "/groups", body, &reply);
	if (status == KVW_GROUPS_OK)
		status = show_groups(router, &reply);
	free(reply.body);
	free(body);
	return status;
}

/* --- kvway compare --- */

/* Finds the model to which the groups belong. */
static enum kvw_groups_status find_model(
	const struct router *router, struct kvw_slice text, char model[KVW_SAMPLES_NAME])
{
	const struct kvw_groups_options *options = router->options;
	struct kvw_group_samples seen[2];
	size_t count = 0;

	if (options->model == NULL &&
		kvw_samples_model(text, options->names[0], options->names[1], model, &count) &&
		count == 1)
		return KVW_GROUPS_OK;
	if (options->model != NULL) {
		(void)snprintf(model, KVW_SAMPLES_NAME, "%s", options->model);
		for (size_t i = 0; i < 2; i++)
			kvw_samples_read(text, model, options->names[i], &seen[i]);
		if (seen[0].found && seen[1].found)
			return KVW_GROUPS_OK;
	}
	fprintf(router->err,
		count > 1 ? "kvway compare: %zu models have groups `%s` and `%s`, --model says "
			    "which\n"
			  : "kvway compare: %zu models have groups `%s` and `%s`; `kvway groups` "
			    "lists them\n",
		count, options->names[0], options->names[1]);
	return KVW_GROUPS_FAILED;
}

/* Reads the present numbers of both groups. If model is "", finds the model first. */
static enum kvw_groups_status look_at_pair(const struct router *router,
	char model[KVW_SAMPLES_NAME], struct kvw_comparison *comparison)
{
	struct kvw_admin_reply reply = {0};
	enum kvw_groups_status status = ask_router(router, "GET", "/metrics", NULL, &reply);
	struct kvw_slice text = {reply.body, reply.len};

	if (status == KVW_GROUPS_OK && (reply.status != 200 || reply.body == NULL))
		status = refused(router, &reply);
	if (status == KVW_GROUPS_OK && model[0] == '\0')
		status = find_model(router, text, model);
	for (size_t i = 0; status == KVW_GROUPS_OK && i < 2; i++)
		kvw_samples_read(text, model, comparison->names[i], &comparison->groups[i]);
	if (status == KVW_GROUPS_OK)
		kvw_samples_fidelity(text, model, comparison->names, &comparison->fidelity);
	free(reply.body);
	return status;
}

static void pause_ms(int64_t ms)
{
	struct timespec left = {ms / 1000, ms % 1000 * 1000000};

	while (nanosleep(&left, &left) != 0)
		;
}

static enum kvw_groups_status look_twice(const struct router *router, char model[KVW_SAMPLES_NAME],
	struct kvw_comparison *comparison)
{
	struct kvw_comparison before = *comparison;
	enum kvw_groups_status status = look_at_pair(router, model, &before);

	if (status != KVW_GROUPS_OK)
		return status;
	pause_ms(router->options->interval_ms);
	status = look_at_pair(router, model, comparison);
	if (status != KVW_GROUPS_OK ||
		(kvw_samples_subtract(&comparison->groups[0], &before.groups[0]) &&
			kvw_samples_subtract(&comparison->groups[1], &before.groups[1]) &&
			kvw_samples_subtract_fidelity(&comparison->fidelity, &before.fidelity)))
		return status;
	fputs("kvway compare: the router was restarted meanwhile\n", router->err);
	return KVW_GROUPS_FAILED;
}

static enum kvw_groups_status compare(const struct router *router)
{
	const struct kvw_groups_options *options = router->options;
	char model[KVW_SAMPLES_NAME] = "";
	struct kvw_comparison comparison = {.model = model,
		.names = {options->names[0], options->names[1]},
		.seconds = (double)options->interval_ms / 1000};
	enum kvw_groups_status status = options->interval_ms > 0
						? look_twice(router, model, &comparison)
						: look_at_pair(router, model, &comparison);

	if (status != KVW_GROUPS_OK)
		return status;
	if (!options->router.json) {
		kvw_comparison_print(&comparison, router->out);
		return KVW_GROUPS_OK;
	}
	if (kvw_comparison_json(&comparison, router->out) == KVW_OK)
		return KVW_GROUPS_OK;
	fputs("kvway compare: out of memory\n", router->err);
	return KVW_GROUPS_FAILED;
}

/* --- both --- */

static enum kvw_groups_status find_admin(struct router *router)
{
	const struct kvw_groups_options *options = router->options;

	if (options->router.config != NULL &&
		kvw_cli_load_file(options->router.config, router->err, &router->config) != KVW_OK)
		return KVW_GROUPS_FAILED;
	return kvw_admin_client_find(&options->router, router->config, options->command,
		       router->err, &router->where) == KVW_OK
		       ? KVW_GROUPS_OK
		       : KVW_GROUPS_USAGE;
}

int kvw_groups_command(int argc, char **argv, FILE *out, FILE *err)
{
	struct kvw_groups_options options;
	struct router router = {.options = &options, .out = out, .err = err};
	enum kvw_groups_status status;

	if (!kvw_groups_options_parse(argc, argv, out, err, &options, &status))
		return (int)status;
	status = find_admin(&router);
	if (status == KVW_GROUPS_OK && options.router.key_file != NULL) {
		router.key = kvw_admin_client_key(options.router.key_file, options.command, err);
		if (router.key == NULL)
			status = KVW_GROUPS_FAILED;
	}
	if (status == KVW_GROUPS_OK)
		status = options.verb == KVW_GROUPS_COMPARE ? compare(&router) : groups(&router);
	free(router.key);
	kvw_config_destroy(router.config);
	return (int)status;
}
