/*
 * explain_cold.c - an explanation from a configuration file alone.
 *
 * Builds a fleet of the file's workers, without connecting to them, and the strategy that it names,
 * both as just after a start: no worker probed, nothing in flight, nothing remembered.
 */
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "app.h"
#include "base/clock.h"
#include "admin/explain.h"
#include "explain/ask.h"

/* "Name: value" lines as the admin address would have received them. */
static enum kvw_err parse_headers(
	const struct kvw_explain_options *options, struct evkeyvalq *headers)
{
	for (size_t i = 0; i < options->header_count; i++) {
		const char *colon = strchr(options->headers[i], ':');
		char *name = strndup(options->headers[i], (size_t)(colon - options->headers[i]));
		int added = -1;

		if (name != NULL)
			added = evhttp_add_header(headers, name, colon + 1 + strspn(colon + 1, " \t"));
		free(name);
		if (added != 0)
			return KVW_ENOMEM;
	}
	return KVW_OK;
}

enum kvw_err kvw_explain_cold(const struct kvw_config *config,
	const struct kvw_explain_options *options, struct kvw_slice request,
	struct kvw_explain_reply *out)
{
	struct kvw_strategy *strategy = NULL;
	struct kvw_fleet *fleet = NULL;
	struct kvw_local_answer answer;
	struct evkeyvalq headers;
	enum kvw_err err;

	TAILQ_INIT(&headers);
	err = parse_headers(options, &headers);
	if (err == KVW_OK)
		err = kvw_app_create_strategy(config, &strategy);
	if (err == KVW_OK)
		err = kvw_fleet_create_offline(config, &fleet);
	if (err == KVW_OK) {
		const struct kvw_explain_source source = {
			.config = config, .fleet = fleet, .strategy = strategy, .cold = true};
		const struct kvw_explain_query query = {
			.target = kvw_slice_of(options->path),
			.session = kvw_explain_session(config, &headers),
			.body = request,
		};

		err = kvw_explain(&source, &query, kvw_clock_ns(), &answer);
	}
	if (err == KVW_OK)
		*out = (struct kvw_explain_reply){
			.status = answer.status, .body = answer.body, .len = answer.len};
	kvw_fleet_destroy(fleet);
	if (strategy != NULL)
		strategy->ops->destroy(strategy);
	evhttp_clear_headers(&headers);
	return err;
}
