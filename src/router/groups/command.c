/*
 * command.c - runs `kvway groups` and `kvway compare`. Each sends one request to the admin address;
 * a comparison over time sends two.
 */
#include "groups/command.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "admin_client.h"
#include "admin_json.h"
#include "base/standard_out.h"
#include "groups/compare.h"
#include "groups/options.h"

/* One run of a command. */
struct run {
	struct kvw_admin_client client;
	struct kvw_groups_options options;
};

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
	double weight = kvw_json_number(group, "weight");
	double configured = kvw_json_number(group, "configured_weight");

	kvw_printf(out, "%s  %s  weight %g", kvw_json_text(group, "model"),
		kvw_json_text(group, "group"), weight);
	if (weight != configured)
		fprintf(out, " (in the file %g)", configured);
	kvw_printf(out, "  usable workers %.0f  serves %s\n",
		kvw_json_number(group, "usable_workers"), kvw_json_text(group, "to"));
}

static enum kvw_exit show_groups(
	struct kvw_admin_client *client, bool json, const struct kvw_admin_reply *reply)
{
	json_t *list = json_loadb(reply->body, reply->len, 0, NULL);
	enum kvw_exit status = KVW_EXIT_OK;
	json_t *group;
	size_t i;

	if (reply->status != 200 || !json_is_array(list)) {
		status = kvw_admin_client_refused(client, "/groups", reply);
	} else if (json) {
		kvw_admin_client_pass(client, reply);
	} else {
		if (json_array_size(list) == 0)
			fputs("No model has groups (model_groups).\n", client->out);
		json_array_foreach(list, i, group)
			print_group(client->out, group);
	}
	json_decref(list);
	return status;
}

static enum kvw_exit groups(struct run *run)
{
	const struct kvw_groups_options *options = &run->options;
	bool weighs = options->verb == KVW_GROUPS_WEIGHT;
	char *body = weighs ? weights_body(options) : NULL;
	const struct kvw_admin_question question = {.method = weighs ? "PATCH" : NULL,
		.path = "/groups",
		.body = kvw_slice_of(body)};
	struct kvw_admin_reply reply;
	enum kvw_exit status;

	if (weighs && body == NULL)
		return kvw_admin_client_fail(
			&run->client, "out of memory, or a name is no UTF-8");
	status = kvw_admin_client_ask(&run->client, &question, &reply);
	free(body);
	if (status == KVW_EXIT_OK) {
		status = show_groups(&run->client, options->router.json, &reply);
		free(reply.body);
	}
	return status;
}

/* --- kvway compare --- */

/* Finds the model to which the groups belong. */
static enum kvw_exit find_model(
	struct run *run, struct kvw_slice text, char model[KVW_SAMPLES_NAME])
{
	const struct kvw_groups_options *options = &run->options;
	struct kvw_group_samples seen[2];
	size_t count = 0;

	if (options->model == NULL &&
		kvw_samples_model(text, options->names[0], options->names[1], model, &count) &&
		count == 1)
		return KVW_EXIT_OK;
	if (options->model != NULL) {
		(void)snprintf(model, KVW_SAMPLES_NAME, "%s", options->model);
		for (size_t i = 0; i < 2; i++)
			kvw_samples_read(text, model, options->names[i], &seen[i]);
		if (seen[0].found && seen[1].found)
			return KVW_EXIT_OK;
	}
	return kvw_admin_client_fail(&run->client, "%zu models have groups `%s` and `%s`%s", count,
		options->names[0], options->names[1],
		count > 1 ? ", --model says which" : "; `kvway groups` lists them");
}

/* Reads the present numbers of both groups. If model is "", finds the model first. */
static enum kvw_exit look_at_pair(struct run *run, char model[KVW_SAMPLES_NAME],
	struct kvw_comparison *comparison)
{
	const struct kvw_admin_question question = {.path = "/metrics"};
	struct kvw_admin_reply reply = {.body = NULL};
	enum kvw_exit status = kvw_admin_client_ask(&run->client, &question, &reply);
	struct kvw_slice text = {reply.body, reply.len};

	if (status == KVW_EXIT_OK && (reply.status != 200 || reply.body == NULL))
		status = kvw_admin_client_refused(&run->client, "/metrics", &reply);
	if (status == KVW_EXIT_OK && model[0] == '\0')
		status = find_model(run, text, model);
	for (size_t i = 0; status == KVW_EXIT_OK && i < 2; i++)
		kvw_samples_read(text, model, comparison->names[i], &comparison->groups[i]);
	if (status == KVW_EXIT_OK)
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

static enum kvw_exit look_twice(struct run *run, char model[KVW_SAMPLES_NAME],
	struct kvw_comparison *comparison)
{
	struct kvw_comparison before = *comparison;
	enum kvw_exit status = look_at_pair(run, model, &before);

	if (status != KVW_EXIT_OK)
		return status;
	pause_ms(run->options.interval_ms);
	status = look_at_pair(run, model, comparison);
	if (status != KVW_EXIT_OK ||
		(kvw_samples_subtract(&comparison->groups[0], &before.groups[0]) &&
			kvw_samples_subtract(&comparison->groups[1], &before.groups[1]) &&
			kvw_samples_subtract_fidelity(&comparison->fidelity, &before.fidelity)))
		return status;
	return kvw_admin_client_fail(&run->client, "the router was restarted meanwhile");
}

static enum kvw_exit compare(struct run *run)
{
	const struct kvw_groups_options *options = &run->options;
	char model[KVW_SAMPLES_NAME] = "";
	struct kvw_comparison comparison = {.model = model,
		.names = {options->names[0], options->names[1]},
		.seconds = (double)options->interval_ms / 1000};
	enum kvw_exit status = options->interval_ms > 0 ? look_twice(run, model, &comparison)
							: look_at_pair(run, model, &comparison);

	if (status != KVW_EXIT_OK)
		return status;
	if (!options->router.json)
		kvw_comparison_print(&comparison, run->client.out);
	else if (kvw_comparison_json(&comparison, run->client.out) != KVW_OK)
		return kvw_admin_client_fail(&run->client, "out of memory");
	return KVW_EXIT_OK;
}

int kvw_groups_command(int argc, char **argv, FILE *out, FILE *err)
{
	struct run run = {.client = {.command = argv[0], .out = out, .err = err}};
	enum kvw_exit status;

	run.client.options = &run.options.router;
	if (!kvw_groups_options_parse(argc, argv, out, err, &run.options, &status))
		return (int)status;
	status = kvw_admin_client_open(&run.client);
	if (status == KVW_EXIT_OK)
		status = run.options.verb == KVW_GROUPS_COMPARE ? compare(&run) : groups(&run);
	kvw_admin_client_close(&run.client);
	return (int)status;
}
