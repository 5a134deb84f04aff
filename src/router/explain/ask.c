/*
 * explain_ask.c - the HTTP client of `kvway explain`. Proxies named in the environment are not used:
 * the admin address is private.
 */
#include "explain/ask.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_MS 3000L
#define ANSWER_MS  60000L
#define ANSWER_MAX ((size_t)64 << 20)

static size_t take_bytes(char *data, size_t size, size_t count, void *arg)
{
	struct kvw_explain_reply *reply = arg;
	size_t n = size * count;
	char *grown;

	if (n > ANSWER_MAX - reply->len)
		return 0;
	grown = realloc(reply->body, reply->len + n + 1);
	if (grown == NULL)
		return 0;
	memcpy(grown + reply->len, data, n);
	reply->body = grown;
	reply->len += n;
	return n;
}

/* http://ADMIN/explain[?path=...]. NULL: out of memory. Free with curl_free. */
static char *make_url(CURL *easy, const char *admin, const char *path)
{
	char *escaped = NULL, *url = NULL;
	int len;

	if (path != NULL) {
		escaped = curl_easy_escape(easy, path, 0);
		if (escaped == NULL)
			return NULL;
	}
	len = asprintf(&url, "http://%s/explain%s%s", admin,
		escaped != NULL ? "?path=" : "", escaped != NULL ? escaped : "");
	curl_free(escaped);
	return len < 0 ? NULL : url;
}

static bool add_header(struct curl_slist **list, const char *line)
{
	struct curl_slist *grown = curl_slist_append(*list, line);

	if (grown != NULL)
		*list = grown;
	return grown != NULL;
}

static bool add_headers(struct curl_slist **list, const struct kvw_explain_options *options)
{
	bool added = add_header(list, "Content-Type: application/json") &&
		add_header(list, "Expect:"); /* do not ask first */

	for (size_t i = 0; added && i < options->header_count; i++)
		added = add_header(list, options->headers[i]);
	return added;
}

enum kvw_err kvw_explain_ask(const char *admin, const struct kvw_explain_options *options,
	struct kvw_slice request, FILE *err, struct kvw_explain_reply *out)
{
	struct kvw_explain_reply reply = {0};
	struct curl_slist *headers = NULL;
	char *url = NULL, why[CURL_ERROR_SIZE] = "";
	CURL *easy = curl_easy_init();
	CURLcode code = CURLE_OUT_OF_MEMORY;
	enum kvw_err result = KVW_ENOMEM;

	if (easy == NULL)
		goto out;
	url = make_url(easy, admin, options->path);
	if (url == NULL || !add_headers(&headers, options))
		goto out;
	curl_easy_setopt(easy, CURLOPT_URL, url);
	curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
	curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, ANSWER_MS);
	curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request.len);
	curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request.data);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_bytes);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, &reply);
	curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, why);
	code = curl_easy_perform(easy);
	if (code == CURLE_OK) {
		curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &reply.status);
		*out = reply;
		reply.body = NULL;
		result = KVW_OK;
	} else if (code != CURLE_OUT_OF_MEMORY) {
		fprintf(err,
			"kvway explain: no kvway answers on %s: %s\n"
			"Is it running? --admin ADDR or -c FILE say where; --cold -c FILE needs no router.\n",
			admin, why[0] != '\0' ? why : curl_easy_strerror(code));
		result = KVW_EIO;
	}
out:
	free(reply.body);
	curl_slist_free_all(headers);
	free(url);
	if (easy != NULL)
		curl_easy_cleanup(easy);
	return result;
}
