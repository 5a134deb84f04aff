/*
 * explain_ask.c - what `kvway explain` asks a running router.
 */
#include "explain/ask.h"

#include <curl/curl.h>
#include <stdlib.h>

/* /explain[?path=...]. NULL: out of memory. */
static char *make_target(const char *path)
{
	char *escaped = path == NULL ? NULL : kvw_admin_client_encode(path), *target = NULL;
	int len = -1;

	if (path == NULL || escaped != NULL)
		len = asprintf(&target, "/explain%s%s", path != NULL ? "?path=" : "",
			path != NULL ? escaped : "");
	free(escaped);
	return len < 0 ? NULL : target;
}

enum kvw_err kvw_explain_ask(const char *admin, const struct kvw_explain_options *options,
	const char *key, struct kvw_slice request, FILE *err, struct kvw_admin_reply *out)
{
	char *target = make_target(options->path), why[CURL_ERROR_SIZE];
	const struct kvw_admin_question question = {.method = "POST",
		.target = target,
		.body = request,
		.headers = options->headers,
		.header_count = options->header_count,
		.key = key};
	enum kvw_err result =
		target == NULL ? KVW_ENOMEM : kvw_admin_client_ask(admin, &question, why, out);

	if (result == KVW_EIO)
		fprintf(err,
			"kvway explain: no kvway answers on %s: %s\n"
			"Is it running? --admin ADDR or -c FILE say where; --cold -c FILE needs no router.\n",
			admin, why);
	free(target);
	return result;
}
