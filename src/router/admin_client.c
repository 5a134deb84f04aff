/*
 * admin_client.c - sends a request to a router's admin address.
 */
#include "admin_client.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>

#include "base/read_file.h"
#include "settings/address.h"

#define CONNECT_MS 3000L
#define ANSWER_MS  60000L
#define ANSWER_MAX ((size_t)64 << 20)
#define KEY_MAX    ((size_t)4096)

static size_t take_bytes(char *data, size_t size, size_t count, void *arg)
{
	struct kvw_admin_reply *reply = arg;
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

static bool add_header(struct curl_slist **list, const char *line)
{
	struct curl_slist *grown = curl_slist_append(*list, line);

	if (grown != NULL)
		*list = grown;
	return grown != NULL;
}

static bool add_headers(struct curl_slist **list, const struct kvw_admin_question *question)
{
	bool added = add_header(list, "Content-Type: application/json") &&
		     add_header(list, "Expect:"); /* without "Expect: 100-continue" */

	for (size_t i = 0; added && i < question->header_count; i++)
		added = add_header(list, question->headers[i]);
	if (added && question->key != NULL) {
		char *line = NULL;

		added = asprintf(&line, "Authorization: Bearer %s", question->key) >= 0 &&
			add_header(list, line);
		free(line);
	}
	return added;
}

static void set_options(CURL *easy, const struct kvw_admin_question *question)
{
	long answer_ms = question->answer_ms > 0 ? question->answer_ms : ANSWER_MS;

	curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
	curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, answer_ms);
	if (strcmp(question->method, "GET") == 0)
		return;
	curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)question->body.len);
	curl_easy_setopt(
		easy, CURLOPT_POSTFIELDS, question->body.len == 0 ? "" : question->body.data);
	curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, question->method);
}

/* Sets TLS, with verification: against the given name, or else the host's. *list: the caller frees
 * it afterwards. */
static bool set_tls(CURL *easy, const struct kvw_admin_where *where, struct curl_slist **list)
{
	char *line = NULL;
	bool added;

	curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	if (where->ca != NULL)
		curl_easy_setopt(easy, CURLOPT_CAINFO, where->ca);
	if (where->certificate != NULL) {
		curl_easy_setopt(easy, CURLOPT_SSLCERT, where->certificate);
		curl_easy_setopt(
			easy, CURLOPT_SSLKEY, where->key != NULL ? where->key : where->certificate);
	}
	if (where->name == NULL)
		return true;
	added = asprintf(&line, "::%s", where->address) >= 0 && add_header(list, line);
	free(line);
	curl_easy_setopt(easy, CURLOPT_CONNECT_TO, *list);
	return added;
}

/* Makes the URL, which the caller frees. NULL: out of memory. */
static char *url_of(const struct kvw_admin_where *where, const char *target)
{
	const char *port = strrchr(where->address, ':');
	char *url = NULL;
	int len;

	if (where->https && where->name != NULL)
		len = asprintf(&url,
			strchr(where->name, ':') != NULL ? "https://[%s]%s%s" : "https://%s%s%s",
			where->name, port, target);
	else
		len = asprintf(
			&url, "%s://%s%s", where->https ? "https" : "http", where->address, target);
	return len < 0 ? NULL : url;
}

enum kvw_err kvw_admin_client_ask(const struct kvw_admin_where *where,
	const struct kvw_admin_question *question, char *why, struct kvw_admin_reply *out)
{
	struct kvw_admin_reply reply = {0};
	struct curl_slist *headers = NULL, *route = NULL;
	char *url = NULL;
	CURL *easy = curl_easy_init();
	CURLcode code;
	enum kvw_err err = KVW_ENOMEM;

	why[0] = '\0';
	if (easy == NULL)
		goto out;
	url = url_of(where, question->target);
	if (url == NULL || !add_headers(&headers, question) ||
		(where->https && !set_tls(easy, where, &route)))
		goto out;
	set_options(easy, question);
	curl_easy_setopt(easy, CURLOPT_URL, url);
	curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_bytes);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, &reply);
	curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, why);
	code = curl_easy_perform(easy);
	if (code == CURLE_OK) {
		curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &reply.status);
		*out = reply;
		reply.body = NULL;
		err = KVW_OK;
	} else if (code != CURLE_OUT_OF_MEMORY) {
		if (why[0] == '\0')
			(void)snprintf(why, CURL_ERROR_SIZE, "%s", curl_easy_strerror(code));
		err = KVW_EIO;
	}
out:
	free(reply.body);
	curl_slist_free_all(headers);
	free(url);
	if (easy != NULL)
		curl_easy_cleanup(easy);
	curl_slist_free_all(route);
	return err;
}

static enum kvw_err address_of(const struct kvw_config *config, const char *command, FILE *err,
	char text[KVW_ADMIN_CLIENT_TEXT])
{
	struct kvw_address address;

	if (kvw_address_split(kvw_slice_of(config->admin_listen), &address) != KVW_ADDRESS_OK ||
		address.port == 0) {
		fprintf(err,
			"kvway %s: admin.listen is %s, which does not say on which port; give "
			"--admin ADDR\n",
			command, config->admin_listen);
		return KVW_EINVAL;
	}
	if (kvw_slice_equal(address.host, KVW_SLICE("0.0.0.0")))
		address.host = KVW_SLICE("127.0.0.1");
	else if (kvw_slice_equal(address.host, KVW_SLICE("::")))
		address.host = KVW_SLICE("::1");
	(void)snprintf(text, KVW_ADMIN_CLIENT_TEXT, address.v6 ? "[%.*s]:%u" : "%.*s:%u",
		(int)address.host.len, address.host.data, address.port);
	return KVW_OK;
}

enum kvw_err kvw_admin_client_find(const struct kvw_admin_options *options,
	const struct kvw_config *config, const char *command, FILE *err,
	struct kvw_admin_where *out)
{
	*out = (struct kvw_admin_where){.https = options->https,
		.ca = options->ca,
		.certificate = options->cert,
		.key = options->cert_key,
		.name = options->server_name};
	if (config != NULL) {
		out->https = config->admin_tls_certificate[0] != '\0';
		if (out->https && out->ca == NULL)
			out->ca = config->admin_tls_certificate; /* that very one */
		return address_of(config, command, err, out->address);
	}
	(void)snprintf(out->address, sizeof(out->address), "%s",
		options->admin != NULL ? options->admin : KVW_ADMIN_CLIENT_DEFAULT);
	return KVW_OK;
}

void kvw_admin_client_missed(const struct kvw_admin_where *where, const char *command,
	const char *why, const char *more, FILE *err)
{
	fprintf(err,
		"kvway %s: no kvway answers on %s: %s\n"
		"Is it running? --admin ADDR or -c FILE say where%s.\n",
		command, where->address, why, more);
	if (where->https)
		fputs("It was asked by TLS: --ca FILE, --server-name NAME, --cert FILE and --key "
		      "FILE say how.\n",
			err);
	else
		fputs("Where its admin address speaks TLS: --admin https://ADDR.\n", err);
}

char *kvw_admin_client_key(const char *path, const char *command, FILE *err)
{
	char why[KVT_READ_FILE_WHY];
	size_t len;
	char *text = kvt_read_file(path, KEY_MAX, &len, why);

	if (text == NULL) {
		fprintf(err, "kvway %s: --key-file %s: %s\n", command, path, why);
		return NULL;
	}
	len = strcspn(text, "\r\n");
	text[len] = '\0';
	if (len > 0 && strspn(text, " \t") == 0)
		return text;
	fprintf(err, "kvway %s: --key-file %s: found no key, expected it as the first line\n",
		command, path);
	free(text);
	return NULL;
}

char *kvw_admin_client_encode(const char *text)
{
	char *escaped = curl_easy_escape(NULL, text, 0), *copy = NULL;

	if (escaped != NULL)
		copy = strdup(escaped);
	curl_free(escaped);
	return copy;
}
