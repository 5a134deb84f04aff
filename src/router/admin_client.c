/*
 * admin_client.c - sends a request to a router's admin address.
 */
#include "admin_client.h"

#include <ctype.h>
#include <curl/curl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "admin_json.h"
#include "base/read_file.h"
#include "base/standard_out.h"
#include "cli.h"
#include "settings/address.h"

#define CONNECT_MS 3000L
#define ANSWER_MS  60000L
#define ANSWER_MIB ((size_t)64)
#define KEY_MAX    ((size_t)4096)

enum kvw_exit kvw_admin_client_fail(
	struct kvw_admin_client *client, const char *format, ...)
{
	va_list arguments;

	fprintf(client->err, "kvway %s: ", client->command);
	va_start(arguments, format);
	(void)vfprintf(client->err, format, arguments);
	va_end(arguments);
	fputc('\n', client->err);
	return KVW_EXIT_FAILED;
}

/* --- the router --- */

/* Takes address and trust from the configuration. False: it does not state a port. */
static bool take_config(struct kvw_admin_client *client)
{
	const struct kvw_config *config = client->config;
	struct kvw_address address;

	client->https = config->admin_tls_certificate[0] != '\0';
	if (client->https && client->ca == NULL)
		client->ca = config->admin_tls_certificate; /* that very one */
	if (kvw_address_split(kvw_slice_of(config->admin_listen), &address) != KVW_ADDRESS_OK ||
		address.port == 0) {
		(void)kvw_admin_client_fail(client,
			"admin.listen is %s, which does not say on which port; give --admin ADDR",
			config->admin_listen);
		return false;
	}
	if (kvw_slice_equal(address.host, KVW_SLICE("0.0.0.0")))
		address.host = KVW_SLICE("127.0.0.1");
	else if (kvw_slice_equal(address.host, KVW_SLICE("::")))
		address.host = KVW_SLICE("::1");
	(void)snprintf(client->address, sizeof(client->address),
		address.v6 ? "[%.*s]:%u" : "%.*s:%u", (int)address.host.len, address.host.data,
		address.port);
	return true;
}

/* Reads the key, which is the first line of a file. */
static enum kvw_exit read_key(struct kvw_admin_client *client)
{
	const char *path = client->options->key_file;
	char why[KVT_READ_FILE_WHY];
	size_t len;

	client->key = kvt_read_file(path, KEY_MAX, &len, why);
	if (client->key == NULL)
		return kvw_admin_client_fail(client, "--key-file %s: %s", path, why);
	client->key[strcspn(client->key, "\r\n")] = '\0';
	if (client->key[0] != '\0' && strspn(client->key, " \t") == 0)
		return KVW_EXIT_OK;
	return kvw_admin_client_fail(client,
		"--key-file %s: found no key, expected it as the first line", path);
}

enum kvw_exit kvw_admin_client_open(struct kvw_admin_client *client)
{
	const struct kvw_admin_options *options = client->options;

	client->https = options->https;
	client->ca = options->ca;
	(void)snprintf(client->address, sizeof(client->address), "%s",
		options->admin != NULL ? options->admin : "127.0.0.1:9090");
	if (options->config != NULL) {
		if (kvw_cli_load_file(options->config, client->err, &client->config) != KVW_OK)
			return KVW_EXIT_FAILED;
		if (!take_config(client))
			return KVW_EXIT_USAGE;
	}
	return options->key_file == NULL ? KVW_EXIT_OK : read_key(client);
}

void kvw_admin_client_close(struct kvw_admin_client *client)
{
	kvw_config_destroy(client->config);
	free(client->key);
}

/* --- a question --- */

/* Bytes of an answer as they come. */
struct answer {
	struct kvw_admin_reply reply;
	bool large; /* it was broken off, as it is too large */
};

static size_t take_bytes(char *data, size_t size, size_t count, void *arg)
{
	struct answer *answer = arg;
	struct kvw_admin_reply *reply = &answer->reply;
	size_t n = size * count;
	char *grown;

	answer->large = n > (ANSWER_MIB << 20) - reply->len;
	grown = answer->large ? NULL : realloc(reply->body, reply->len + n);
	if (grown == NULL)
		return 0;
	memcpy(grown + reply->len, data, n);
	reply->body = grown;
	reply->len += n;
	return n;
}

static bool add_line(struct curl_slist **list, const char *line)
{
	struct curl_slist *grown = curl_slist_append(*list, line);

	if (grown != NULL)
		*list = grown;
	return grown != NULL;
}

/* Adds a line made of two texts. */
static bool add_pair(struct curl_slist **list, const char *first, const char *second)
{
	char *line = NULL;
	bool added = asprintf(&line, "%s%s", first, second) >= 0 && add_line(list, line);

	free(line);
	return added;
}

static bool add_headers(struct curl_slist **list, struct kvw_admin_client *client,
	const struct kvw_admin_question *question)
{
	bool added = add_line(list, "Content-Type: application/json") &&
		     add_line(list, "Expect:"); /* without "Expect: 100-continue" */

	for (size_t i = 0; added && i < question->header_count; i++)
		added = add_line(list, question->headers[i]);
	return added &&
	       (client->key == NULL || add_pair(list, "Authorization: Bearer ", client->key));
}

static void set_options(CURL *easy, const struct kvw_admin_question *question)
{
	long answer_ms = question->answer_ms > 0 ? question->answer_ms : ANSWER_MS;

	curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
	curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, answer_ms);
	if (question->method == NULL)
		return;
	curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)question->body.len);
	curl_easy_setopt(
		easy, CURLOPT_POSTFIELDS, question->body.len == 0 ? "" : question->body.data);
	curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, question->method);
}

/* Sets TLS, with verification: against the given name, or else the host's. *list: the caller frees
 * it afterwards. */
static bool set_tls(CURL *easy, struct kvw_admin_client *client, struct curl_slist **list)
{
	const struct kvw_admin_options *options = client->options;

	curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	if (client->ca != NULL)
		curl_easy_setopt(easy, CURLOPT_CAINFO, client->ca);
	if (options->cert != NULL) {
		curl_easy_setopt(easy, CURLOPT_SSLCERT, options->cert);
		curl_easy_setopt(easy, CURLOPT_SSLKEY,
			options->cert_key != NULL ? options->cert_key : options->cert);
	}
	if (options->server_name == NULL)
		return true;
	if (!add_pair(list, "::", client->address))
		return false;
	curl_easy_setopt(easy, CURLOPT_CONNECT_TO, *list);
	return true;
}

/* Writes a text percent-encoded, as a part of a URL. */
static void put_coded(FILE *out, const char *text)
{
	for (; *text != '\0'; text++)
		fprintf(out,
			isalnum((unsigned char)*text) || strchr("-._~", *text) != NULL ? "%c"
										       : "%%%02X",
			(unsigned char)*text);
}

/* Makes the URL, which the caller frees. NULL: out of memory. */
static char *make_url(
	struct kvw_admin_client *client, const struct kvw_admin_question *question)
{
	const char *name = client->https ? client->options->server_name : NULL, *mark = "?";
	char *url = NULL;
	size_t size;
	FILE *out = open_memstream(&url, &size);

	if (out == NULL)
		return NULL;
	if (name != NULL)
		fprintf(out, strchr(name, ':') != NULL ? "https://[%s]%s" : "https://%s%s", name,
			strrchr(client->address, ':'));
	else
		fprintf(out, "%s://%s", client->https ? "https" : "http", client->address);
	fputs(question->path, out);
	if (question->item != NULL) {
		fputc('/', out);
		put_coded(out, question->item);
	}
	if (question->action != NULL)
		fputs(question->action, out);
	for (size_t i = 0; i < sizeof(question->parameters) / sizeof(question->parameters[0]);
		i++) {
		if (question->parameters[i].value == NULL)
			continue;
		fprintf(out, "%s%s=", mark, question->parameters[i].name);
		put_coded(out, question->parameters[i].value);
		mark = "&";
	}
	if (fclose(out) == 0)
		return url;
	free(url);
	return NULL;
}

/* Sends the request. CURLE_OUT_OF_MEMORY also where its parts cannot be made. */
static CURLcode ask(struct kvw_admin_client *client,
	const struct kvw_admin_question *question, char why[CURL_ERROR_SIZE],
	struct answer *answer)
{
	struct curl_slist *headers = NULL, *route = NULL;
	char *url = make_url(client, question);
	CURL *easy = curl_easy_init();
	CURLcode code = CURLE_OUT_OF_MEMORY;

	if (easy != NULL && url != NULL && add_headers(&headers, client, question) &&
		(!client->https || set_tls(easy, client, &route))) {
		set_options(easy, question);
		curl_easy_setopt(easy, CURLOPT_URL, url);
		curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
		curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_bytes);
		curl_easy_setopt(easy, CURLOPT_WRITEDATA, answer);
		curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, why);
		code = curl_easy_perform(easy);
		curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &answer->reply.status);
	}
	curl_slist_free_all(headers);
	free(url);
	if (easy != NULL)
		curl_easy_cleanup(easy);
	curl_slist_free_all(route);
	return code;
}

enum kvw_exit kvw_admin_client_ask(struct kvw_admin_client *client,
	const struct kvw_admin_question *question, struct kvw_admin_reply *out)
{
	char error[CURL_ERROR_SIZE] = "";
	struct answer answer = {.large = false};
	CURLcode code = ask(client, question, error, &answer);

	if (code == CURLE_OK) {
		*out = answer.reply;
		return KVW_EXIT_OK;
	}
	free(answer.reply.body);
	if (answer.large)
		(void)snprintf(client->why, sizeof(client->why),
			"the answer of %s to %s is above %zu MiB; ask for less", client->address,
			question->path, ANSWER_MIB);
	else if (code == CURLE_OUT_OF_MEMORY || code == CURLE_WRITE_ERROR)
		(void)snprintf(client->why, sizeof(client->why), "out of memory");
	else
		(void)snprintf(client->why, sizeof(client->why), "no kvway answers on %s: %s",
			client->address, error[0] != '\0' ? error : curl_easy_strerror(code));
	if (!question->quiet)
		(void)kvw_admin_client_fail(client, "%s", client->why);
	if (code == CURLE_OUT_OF_MEMORY || code == CURLE_WRITE_ERROR)
		return KVW_EXIT_FAILED;
	if (!question->quiet)
		fprintf(client->err, "Is it running? --admin ADDR or -c FILE say where.\n%s\n",
			client->https
				? "It was asked by TLS: --ca FILE, --server-name NAME, --cert FILE "
				  "and --key FILE say how."
				: "Where its admin address speaks TLS: --admin https://ADDR.");
	return KVW_EXIT_UNREACHABLE;
}

/* --- the answer --- */

void kvw_admin_client_pass(
	struct kvw_admin_client *client, const struct kvw_admin_reply *reply)
{
	fwrite(reply->body, 1, reply->len, client->out);
	if (reply->len > 0 && reply->body[reply->len - 1] != '\n')
		fputc('\n', client->out);
}

enum kvw_exit kvw_admin_client_refused(struct kvw_admin_client *client, const char *path,
	const struct kvw_admin_reply *reply)
{
	json_t *root = json_loadb(reply->body, reply->len, 0, NULL);
	const char *message = kvw_json_text(json_object_get(root, "error"), "message");

	if (*message != '\0')
		kvw_printf(client->err, "kvway %s: %s\n", client->command, message);
	else
		kvw_printf(client->err,
			"kvway %s: what answers is no kvway with %s: status %ld, %.*s\n",
			client->command, path, reply->status,
			(int)(reply->len < 200 ? reply->len : 200),
			reply->body == NULL ? "" : reply->body);
	json_decref(root);
	return KVW_EXIT_FAILED;
}
