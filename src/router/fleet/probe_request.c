/*
 * probe_request.c - see probe_request.h.
 *
 * A probe goes to the address that requests go to (the one resolved at start, Host as configured),
 * so DNS can neither block this thread nor make it judge another machine; no proxy from the
 * environment, no redirect and no other protocol can lead it elsewhere, with the worker's key in
 * hand. With https the URL keeps the host's name, which the certificate must bear, and libcurl is given
 * the address to connect to. Connections are not kept: a probe must show that the worker accepts new
 * ones, and vLLM would close an idle one before the next round anyway.
 */
#include "fleet/probe_request.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>

/* ADDRESS:PORT of where requests go; a scope id's % is escaped as RFC 6874 asks. */
static enum kvw_err make_address(const struct kvw_worker *worker, char *out, size_t room)
{
	char host[NI_MAXHOST], port[8], escaped[NI_MAXHOST * 3];
	size_t len = 0;

	if (getnameinfo((const struct sockaddr *)&worker->addr, worker->addr_len, host,
		    sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
		return KVW_EINVAL;
	for (const char *c = host; *c != '\0'; c++) {
		escaped[len++] = *c;
		if (*c == '%') {
			escaped[len++] = '2';
			escaped[len++] = '5';
		}
	}
	escaped[len] = '\0';
	snprintf(out, room, worker->addr.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", escaped,
		port);
	return KVW_OK;
}

static enum kvw_err add_header(
	struct kvw_probe_request *request, const char *name, const char *value)
{
	struct curl_slist *list;
	char *line;

	if (asprintf(&line, "%s: %s", name, value) < 0)
		return KVW_ENOMEM;
	list = curl_slist_append(request->headers, line);
	free(line);
	if (list == NULL)
		return KVW_ENOMEM;
	request->headers = list;
	return KVW_OK;
}

static enum kvw_err make_headers(struct kvw_probe_request *request, const struct kvw_worker *worker)
{
	enum kvw_err err = add_header(request, "Host", worker->authority);
	char *bearer;

	if (err == KVW_OK)
		err = add_header(request, "User-Agent", "kvway/" KVW_VERSION);
	if (err != KVW_OK || worker->api_key[0] == '\0')
		return err;
	if (asprintf(&bearer, "Bearer %s", worker->api_key) < 0)
		return KVW_ENOMEM;
	err = add_header(request, "Authorization", bearer);
	free(bearer);
	return err;
}

/* The rules of upstream.tls. */
static enum kvw_err set_tls(
	struct kvw_probe_request *request, const struct kvw_config *config, const char *address)
{
	CURL *easy = request->easy;
	const char *ca_file = config->upstream_tls_ca_file;
	char *connect_to;
	bool ok;

	if (asprintf(&connect_to, "::%s", address) < 0)
		return KVW_ENOMEM;
	request->connect_to = curl_slist_append(NULL, connect_to);
	free(connect_to);
	ok = request->connect_to != NULL &&
	     curl_easy_setopt(easy, CURLOPT_CONNECT_TO, request->connect_to) == CURLE_OK &&
	     curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2) == CURLE_OK;
	if (ok && config->upstream_tls_insecure)
		ok = curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L) == CURLE_OK &&
		     curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L) == CURLE_OK;
	else if (ok && ca_file[0] != '\0')
		ok = curl_easy_setopt(easy, CURLOPT_CAINFO, ca_file) == CURLE_OK &&
		     curl_easy_setopt(easy, CURLOPT_CAPATH, NULL) == CURLE_OK;
	return ok ? KVW_OK : KVW_ENOMEM;
}

static enum kvw_err set_options(struct kvw_probe_request *request, const char *url)
{
	CURL *easy = request->easy;
	bool ok = curl_easy_setopt(easy, CURLOPT_URL, url) == CURLE_OK &&
		  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, request->headers) == CURLE_OK &&
		  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
		  curl_easy_setopt(easy, CURLOPT_PROXY, "") == CURLE_OK &&
		  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
		  curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L) == CURLE_OK &&
		  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) ==
			  CURLE_OK &&
		  curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L) == CURLE_OK &&
		  curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L) == CURLE_OK &&
		  curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 16384L) == CURLE_OK;

	return ok ? KVW_OK : KVW_ENOMEM;
}

enum kvw_err kvw_probe_request_init(struct kvw_probe_request *request,
	const struct kvw_config *config, const struct kvw_worker *worker, const char *path)
{
	char address[NI_MAXHOST * 3 + 32], *url;
	enum kvw_err err = make_address(worker, address, sizeof(address));

	if (err != KVW_OK)
		return err;
	request->easy = curl_easy_init();
	if (request->easy == NULL)
		return KVW_ENOMEM;
	err = make_headers(request, worker);
	if (err == KVW_OK && worker->tls)
		err = set_tls(request, config, address);
	if (err != KVW_OK)
		return err;
	if (asprintf(&url, "%s://%s%s%s", worker->tls ? "https" : "http",
		    worker->tls ? worker->authority : address, worker->path_prefix, path) < 0)
		return KVW_ENOMEM;
	err = set_options(request, url);
	free(url);
	return err;
}

void kvw_probe_request_finish(struct kvw_probe_request *request)
{
	if (request->easy != NULL)
		curl_easy_cleanup(request->easy);
	curl_slist_free_all(request->headers);
	curl_slist_free_all(request->connect_to);
	*request = (struct kvw_probe_request){NULL, NULL, NULL};
}
