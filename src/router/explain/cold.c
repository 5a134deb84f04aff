/*
 * cold.c - see cold.h.
 *
 * It builds a fleet of the file's workers, without connecting to them, and the configured strategy,
 * both in their state after a start: no worker probed, no request in flight, nothing learned.
 */
#include "explain/cold.h"

#include <string.h>

#include "base/clock.h"
#include "fleet/settings.h"
#include "proxy/dry.h"

/* Adds "Name: value" lines to the head that the admin address would have received. */
static enum kvw_err take_headers(const struct kvw_explain_options *options, struct kvw_head *head)
{
	enum kvw_err err = kvw_head_init(head, options->header_count + 1);

	if (err != KVW_OK)
		return err;
	for (size_t i = 0; i < KVW_FIELD_COUNT; i++)
		head->first[i] = -1;
	head->name_lengths = UINT64_MAX;
	for (size_t i = 0; i < options->header_count; i++) {
		const char *name = options->headers[i], *colon = strchr(name, ':');

		head->fields[head->field_count++] =
			(struct kvw_field){.name = {name, (size_t)(colon - name)},
				.value = kvw_slice_of(colon + 1 + strspn(colon + 1, " \t"))};
	}
	return KVW_OK;
}

static enum kvw_err ask_dry_run(struct kvw_dry_deps *deps, const struct kvw_explain_query *query,
	struct kvw_admin_reply *out)
{
	const struct kvw_explain_tokens nowhere = {0};
	const struct kvw_explainer explainer = kvw_dry_explainer(deps);
	struct kvw_local_answer answer;
	struct kvw_dry_run *run;
	bool waits;
	enum kvw_err err =
		explainer.begin(explainer.arg, query, &nowhere, kvw_clock_ns(), &run, &waits);

	if (err != KVW_OK)
		return err;
	err = explainer.answer(run, kvw_clock_ns(), &answer);
	if (err == KVW_OK)
		*out = (struct kvw_admin_reply){
			.status = answer.status, .body = answer.body, .len = answer.len};
	explainer.end(run);
	return err;
}

enum kvw_err kvw_explain_cold(const struct kvw_config *config,
	const struct kvw_explain_options *options, struct kvw_slice request,
	struct kvw_admin_reply *out)
{
	struct kvw_strategy *strategy = NULL;
	struct kvw_fleet *fleet = NULL;
	struct kvw_shared shared = {0};
	struct kvw_account memory = {0};
	struct kvw_head head = {0};
	enum kvw_err err = take_headers(options, &head);

	if (err == KVW_OK)
		err = kvw_settings_strategy(config, NULL, &strategy);
	if (err == KVW_OK)
		err = kvw_fleet_create_offline(config, &fleet);
	kvw_account_set_most(&memory, config->limits_body_memory);
	if (err == KVW_OK)
		err = kvw_shared_init(&shared, config, &memory);
	if (err == KVW_OK) {
		struct kvw_dry_deps deps = {
			.proxy = {.config = config, .fleet = fleet, .strategy = strategy},
			.shared = &shared,
			.cold = true};
		const struct kvw_explain_query query = {
			.target = kvw_slice_of(options->path), .head = &head, .body = request};

		err = ask_dry_run(&deps, &query, out);
	}
	kvw_shared_finish(&shared);
	kvw_fleet_destroy(fleet);
	if (strategy != NULL)
		strategy->ops->destroy(strategy);
	kvw_head_finish(&head);
	return err;
}
