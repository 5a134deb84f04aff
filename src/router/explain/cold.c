/*
 * explain_cold.c - an explanation from a configuration file alone.
 *
 * Builds a fleet of the file's workers, without connecting to them, and the strategy that it names,
 * both as just after a start: no worker probed, nothing in flight, nothing remembered.
 */
#include <stdlib.h>
#include <string.h>

#include "admission/admission.h"
#include "fleet/settings.h"
#include "base/clock.h"
#include "admin/explain.h"
#include "explain/ask.h"

/* "Name: value" lines as fields of the head that the admin address would have received. */
static enum kvw_err take_headers(const struct kvw_explain_options *options, struct kvw_head *head)
{
	enum kvw_err err = kvw_head_init(head, options->header_count + 1);

	if (err != KVW_OK)
		return err;
	for (size_t i = 0; i < KVW_FIELD_COUNT; i++)
		head->first[i] = -1;
	for (size_t i = 0; i < options->header_count; i++) {
		const char *name = options->headers[i], *colon = strchr(name, ':');
		struct kvw_field field = {.name = {name, (size_t)(colon - name)},
			.value = kvw_slice_of(colon + 1 + strspn(colon + 1, " \t"))};

		if (kvw_slice_equal_nocase(field.name, KVW_SLICE("cookie"))) {
			field.id = KVW_FIELD_COOKIE;
			if (head->first[KVW_FIELD_COOKIE] < 0)
				head->first[KVW_FIELD_COOKIE] = (int16_t)i;
		}
		head->fields[head->field_count++] = field;
	}
	return KVW_OK;
}

enum kvw_err kvw_explain_cold(const struct kvw_config *config,
	const struct kvw_explain_options *options, struct kvw_slice request,
	struct kvw_admin_reply *out)
{
	struct kvw_strategy *strategy = NULL;
	struct kvw_fleet *fleet = NULL;
	struct kvw_admission *admission = NULL;
	struct kvw_local_answer answer;
	struct kvw_head head = {0};
	enum kvw_err err = take_headers(options, &head);

	if (err == KVW_OK)
		err = kvw_settings_strategy(config, NULL, &strategy);
	if (err == KVW_OK)
		err = kvw_fleet_create_offline(config, &fleet);
	if (err == KVW_OK && (admission = kvw_admission_create(0)) == NULL)
		err = KVW_ENOMEM;
	if (err == KVW_OK) {
		const struct kvw_explain_source source = {.config = config,
			.fleet = fleet,
			.strategy = strategy,
			.admission = admission,
			.cold = true};
		struct kvw_explain_query query = {
			.target = kvw_slice_of(options->path),
			.session = kvw_explain_session(config, &head),
			.pin = kvw_explain_pin(config, &head),
			.body = request,
		};

		kvw_explain_class(config, &head, NULL, &query);
		err = kvw_explain(&source, &query, kvw_clock_ns(), &answer);
	}
	if (err == KVW_OK)
		*out = (struct kvw_admin_reply){
			.status = answer.status, .body = answer.body, .len = answer.len};
	kvw_admission_destroy(admission);
	kvw_fleet_destroy(fleet);
	if (strategy != NULL)
		strategy->ops->destroy(strategy);
	kvw_head_finish(&head);
	return err;
}
