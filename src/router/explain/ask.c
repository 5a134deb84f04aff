/*
 * ask.c - sends the request of `kvway explain` to a running router.
 */
#include "explain/ask.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>

/* Replaces *target by a target with this parameter in addition; it becomes NULL if memory is
 * short. */
static void add_parameter(char **target, const char *name, const char *value)
{
	char *before = *target, *escaped = value == NULL ? NULL : kvw_admin_client_encode(value);

	if (value == NULL || before == NULL)
		return;
	if (escaped == NULL || asprintf(target, "%s%s%s=%s", before,
				       strchr(before, '?') == NULL ? "?" : "&", name, escaped) < 0)
		*target = NULL;
	free(escaped);
	free(before);
}

/* Makes /explain[?path=...][&key=...]. Returns NULL if memory is short. */
static char *make_target(const struct kvw_explain_options *options)
{
	char *target = strdup("/explain");

	add_parameter(&target, "path", options->path);
	add_parameter(&target, "key", options->key);
	return target;
}

enum kvw_err kvw_explain_ask(const struct kvw_admin_where *where,
	const struct kvw_explain_options *options, const char *key, struct kvw_slice request,
	FILE *err, struct kvw_admin_reply *out)
{
	char *target = make_target(options), why[CURL_ERROR_SIZE];
	const struct kvw_admin_question question = {.method = "POST",
		.target = target,
		.body = request,
		.headers = options->headers,
		.header_count = options->header_count,
		.key = key};
	enum kvw_err result =
		target == NULL ? KVW_ENOMEM : kvw_admin_client_ask(where, &question, why, out);

	if (result == KVW_EIO)
		kvw_admin_client_missed(
			where, "explain", why, "; --cold -c FILE needs no router", err);
	free(target);
	return result;
}

json_t *kvw_explain_ask_status(const struct kvw_admin_where *where, const char *key)
{
	const struct kvw_admin_question question = {
		.method = "GET", .target = "/status", .key = key, .answer_ms = 5000};
	struct kvw_admin_reply reply = {0};
	char why[CURL_ERROR_SIZE];
	json_t *status = NULL;

	if (kvw_admin_client_ask(where, &question, why, &reply) == KVW_OK && reply.status == 200)
		status = json_loadb(reply.body, reply.len, 0, NULL);
	free(reply.body);
	return status;
}
