/*
 * probe_request.c - prepares the curl handle of a probe.
 *
 * A probe goes to the addresses of requests, with the configured Host, so DNS can neither block
 * this thread nor redirect a probe to another machine; no proxy from the environment, no redirect
 * and no other protocol can lead a probe, with the worker's key, elsewhere. libcurl gets all
 * addresses of a name, in the order in which requests would try them, and goes on to the next one
 * by itself. Connections are not kept: a probe must show that the worker accepts new ones, and vLLM
 * would close an idle one before the next round anyway.
 */
#include "fleet/probe_request.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tls/tls.h"

#define LIST_ROOM ((size_t)KVW_ADDRESSES_MAX * (INET6_ADDRSTRLEN + 3))

/* Returns whether the host of the worker's URL is an address; then *out is its form in a URL, with
 * the % of a scope id escaped by RFC 6874. */
static bool is_literal(const struct kvw_worker *worker, char *out, size_t room)
{
	unsigned char bytes[16];
	char host[NI_MAXHOST], *scope;
	const char *rest = "";

	(void)snprintf(host, sizeof(host), "%s", worker->host);
	scope = strchr(host, '%');
	if (scope != NULL) {
		*scope = '\0';
		rest = scope + 1;
	}
	if (inet_pton(AF_INET, host, bytes) == 1)
		(void)snprintf(out, room, "%s:%u", host, worker->port);
	else if (inet_pton(AF_INET6, host, bytes) == 1)
		(void)snprintf(out, room, "[%s%s%s]:%u", host, scope != NULL ? "%25" : "", rest,
			worker->port);
	else
		return false;
	return true;
}

/* Writes "HOST:PORT:ADDRESS,ADDRESS", the form that CURLOPT_RESOLVE takes. */
static enum kvw_err resolve(struct kvw_probe_request *request, struct kvw_worker *worker)
{
	char list[LIST_ROOM], ip[INET6_ADDRSTRLEN], *entry;
	struct sockaddr_storage address;
	size_t len = 0;

	for (size_t i = 0; kvw_worker_address(worker, i, &address); i++) {
		bool v6 = address.ss_family == AF_INET6;

		if (getnameinfo((const struct sockaddr *)&address, kvw_address_len(&address), ip,
			    sizeof(ip), NULL, 0, NI_NUMERICHOST) != 0)
			continue;
		len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%s%s%s",
			len == 0 ? "" : ",", v6 ? "[" : "", ip, v6 ? "]" : "");
	}
	if (len == 0)
		return KVW_ENOTFOUND;
	if (asprintf(&entry, "%s:%u:%s", worker->host, worker->port, list) < 0)
		return KVW_ENOMEM;
	request->resolve = curl_slist_append(NULL, entry);
	free(entry);
	return request->resolve != NULL && curl_easy_setopt(request->easy, CURLOPT_RESOLVE,
						   request->resolve) == CURLE_OK
		       ? KVW_OK
		       : KVW_ENOMEM;
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

/* Loads certificate and key into OpenSSL: libcurl would read the key by stdio, whose freed buffer
 * keeps the key's bytes. Called before each handshake, so that renewed files are used. */
static CURLcode show_certificate(CURL *easy, void *ctx, void *arg)
{
	const struct kvw_probe_request *request = arg;

	(void)easy;
	return kvw_tls_use_chain(ctx, request->certificate) && kvw_tls_use_key(ctx, request->key)
		       ? CURLE_OK
		       : CURLE_SSL_CERTPROBLEM;
}

static bool set_certificate(struct kvw_probe_request *request, const struct kvw_config *config)
{
	CURL *easy = request->easy;

	request->certificate = strdup(config->upstream_tls_certificate);
	request->key = strdup(config->upstream_tls_key);
	if (request->certificate == NULL || request->key == NULL)
		return false;
	if (curl_easy_setopt(easy, CURLOPT_SSL_CTX_FUNCTION, show_certificate) == CURLE_OK)
		return curl_easy_setopt(easy, CURLOPT_SSL_CTX_DATA, request) == CURLE_OK;
	/* A libcurl without OpenSSL. */
	return curl_easy_setopt(easy, CURLOPT_SSLCERT, request->certificate) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_SSLKEY, request->key) == CURLE_OK;
}

/* Applies upstream.tls. */
static enum kvw_err set_tls(struct kvw_probe_request *request, const struct kvw_config *config,
	const struct kvw_worker *worker)
{
	CURL *easy = request->easy;
	const char *ca_file = kvw_worker_ca_file(worker, config);
	bool ok = curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2) ==
		  CURLE_OK;

	if (ok && config->upstream_tls_insecure)
		ok = curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L) == CURLE_OK &&
		     curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L) == CURLE_OK;
	else if (ok && ca_file[0] != '\0')
		ok = curl_easy_setopt(easy, CURLOPT_CAINFO, ca_file) == CURLE_OK &&
		     curl_easy_setopt(easy, CURLOPT_CAPATH, NULL) == CURLE_OK;
	/* libcurl caches authorities for a day by their path, and would not see a renewed file. */
	if (ok && config->upstream_tls_certificate[0] != '\0')
		ok = set_certificate(request, config);
#if LIBCURL_VERSION_NUM >= 0x075700
	/* Not every TLS library that libcurl may use caches them, so that a failure is ignored. */
	(void)curl_easy_setopt(easy, CURLOPT_CA_CACHE_TIMEOUT, 0L);
#endif
	return ok ? KVW_OK : KVW_ENOMEM;
}

/* Opens a socket as libcurl would; libcurl itself does not report why that fails. */
static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
	struct kvw_probe_request *request = arg;
	int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);

	(void)purpose;
	if (fd < 0 && errno != EAFNOSUPPORT)
		request->lacking = true;
	return fd < 0 ? CURL_SOCKET_BAD : fd;
}

/* Returns "[" if the certificate's name is an IPv6 address. */
static const char *opening(const struct kvw_worker *worker)
{
	return strchr(worker->tls_name, ':') != NULL ? "[" : "";
}

static const char *closing(const struct kvw_worker *worker)
{
	return strchr(worker->tls_name, ':') != NULL ? "]" : "";
}

/* libcurl verifies the name in the URL. So the URL has the certificate's name, and this list has
 * the address to connect to. */
static enum kvw_err connect_to(
	struct kvw_probe_request *request, const struct kvw_worker *worker, const char *authority)
{
	char *entry;

	if (asprintf(&entry, "%s%s%s:%u:%s", opening(worker), worker->tls_name, closing(worker),
		    worker->port, authority) < 0)
		return KVW_ENOMEM;
	request->connect_to = curl_slist_append(NULL, entry);
	free(entry);
	return request->connect_to != NULL && curl_easy_setopt(request->easy, CURLOPT_CONNECT_TO,
						      request->connect_to) == CURLE_OK
		       ? KVW_OK
		       : KVW_ENOMEM;
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
		  curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket) == CURLE_OK &&
		  curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, request) == CURLE_OK &&
		  curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L) == CURLE_OK &&
		  curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L) == CURLE_OK &&
		  curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 16384L) == CURLE_OK;

	return ok ? KVW_OK : KVW_ENOMEM;
}

enum kvw_err kvw_probe_request_init(struct kvw_probe_request *request,
	const struct kvw_config *config, struct kvw_worker *worker, const char *path)
{
	char address[NI_MAXHOST + 32], *url;
	bool literal = is_literal(worker, address, sizeof(address));
	bool other_name = worker->tls && worker->tls_name != worker->host;
	enum kvw_err err = KVW_OK;

	request->easy = curl_easy_init();
	if (request->easy == NULL)
		return KVW_ENOMEM;
	if (!literal)
		err = resolve(request, worker);
	if (err == KVW_OK)
		err = make_headers(request, worker);
	if (err == KVW_OK && worker->tls)
		err = set_tls(request, config, worker);
	if (err == KVW_OK && other_name)
		err = connect_to(request, worker, literal ? address : worker->authority);
	if (err != KVW_OK)
		return err;
	if ((other_name ? asprintf(&url, "https://%s%s%s:%u%s%s", opening(worker), worker->tls_name,
				  closing(worker), worker->port, worker->path_prefix, path)
			: asprintf(&url, "%s://%s%s%s", worker->tls ? "https" : "http",
				  literal ? address : worker->authority, worker->path_prefix,
				  path)) < 0)
		return KVW_ENOMEM;
	err = set_options(request, url);
	free(url);
	return err;
}

void kvw_probe_request_connected(struct kvw_probe_request *request, struct kvw_worker *worker)
{
	struct sockaddr_storage address;
	char ip[INET6_ADDRSTRLEN], *connected = NULL;

	if (request->resolve == NULL ||
		curl_easy_getinfo(request->easy, CURLINFO_PRIMARY_IP, &connected) != CURLE_OK ||
		connected == NULL)
		return;
	for (size_t i = 0; kvw_worker_address(worker, i, &address); i++) {
		if (getnameinfo((const struct sockaddr *)&address, kvw_address_len(&address), ip,
			    sizeof(ip), NULL, 0, NI_NUMERICHOST) != 0 ||
			strcmp(ip, connected) != 0)
			continue;
		if (i > 0)
			kvw_worker_address_worked(worker, &address);
		return;
	}
}

void kvw_probe_request_finish(struct kvw_probe_request *request)
{
	if (request->easy != NULL)
		curl_easy_cleanup(request->easy);
	free(request->certificate);
	free(request->key);
	curl_slist_free_all(request->headers);
	curl_slist_free_all(request->resolve);
	curl_slist_free_all(request->connect_to);
	*request = (struct kvw_probe_request){.easy = NULL};
}
