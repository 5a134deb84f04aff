/* bootstrap.c - see bootstrap.h. */
#include "fleet/bootstrap.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USUAL_PORT 8998 /* VLLM_MOONCAKE_BOOTSTRAP_PORT */
#define QUERY      "/query"
#define URL_ROOM   (KVW_BOOTSTRAP_QUERY_ROOM - (sizeof(QUERY) - 1))

bool kvw_bootstrap_wanted(const struct kvw_fleet *fleet, const struct kvw_worker *worker)
{
	return fleet->config->pd_transfer == KVW_PD_TRANSFER_MOONCAKE &&
	       atomic_load_explicit(&fleet->roles, memory_order_relaxed) > 0 &&
	       worker->config.role != KVW_ROLE_DECODE;
}

static int port_of(const struct kvw_config *config, const struct kvw_worker *worker)
{
	if (worker->config.kv_port > 0)
		return (int)worker->config.kv_port;
	return config->pd_port > 0 ? (int)config->pd_port : USUAL_PORT;
}

static void write_url(
	const struct kvw_config *config, const struct kvw_worker *worker, char url[URL_ROOM])
{
	bool v6 = strchr(worker->host, ':') != NULL;

	(void)snprintf(url, URL_ROOM, "http://%s%s%s:%d", v6 ? "[" : "", worker->host,
		v6 ? "]" : "", port_of(config, worker));
}

const char *kvw_bootstrap_query(const struct kvw_config *config,
	const struct kvw_worker *worker, char url[KVW_BOOTSTRAP_QUERY_ROOM])
{
	write_url(config, worker, url);
	return strcat(url, QUERY);
}

/* libcurl looks an address up by name and port, so that it gets the worker's addresses for this
 * port, too. */
static enum kvw_err resolve(
	struct kvw_probe_request *request, const struct kvw_worker *worker, int port)
{
	const char *addresses;
	char *entry;
	struct curl_slist *list;

	if (request->resolve == NULL) /* the host is an address */
		return KVW_OK;
	addresses = strchr(strchr(request->resolve->data, ':') + 1, ':') + 1;
	if (asprintf(&entry, "%s:%d:%s", worker->host, port, addresses) < 0)
		return KVW_ENOMEM;
	list = curl_slist_append(request->resolve, entry);
	free(entry);
	return list != NULL && curl_easy_setopt(request->easy, CURLOPT_RESOLVE, list) == CURLE_OK
		       ? KVW_OK
		       : KVW_ENOMEM;
}

enum kvw_err kvw_bootstrap_direct(struct kvw_probe_request *request,
	const struct kvw_config *config, const struct kvw_worker *worker)
{
	char url[KVW_BOOTSTRAP_QUERY_ROOM];

	if (curl_easy_setopt(request->easy, CURLOPT_URL,
		    kvw_bootstrap_query(config, worker, url)) != CURLE_OK ||
		curl_easy_setopt(request->easy, CURLOPT_HTTPHEADER, NULL) != CURLE_OK)
		return KVW_ENOMEM;
	return resolve(request, worker, port_of(config, worker));
}

/* Returns whether the text can stand in a JSON string as it is. */
static bool is_plain(const char *text)
{
	for (; *text != '\0'; text++)
		if (*text == '"' || *text == '\\' || (unsigned char)*text < ' ')
			return false;
	return true;
}

/* Returns the engine id of the worker's rank, or of a server without ranks; NULL: the page has
 * none. */
static const char *engine_of(const json_t *page, const struct kvw_worker *worker)
{
	uint32_t global = atomic_load_explicit(&worker->global_rank, memory_order_relaxed);
	const json_t *entry;
	char key[16];

	if (worker->rank == KVW_RANK_NONE)
		global = 0;
	else if (global == KVW_RANK_UNKNOWN)
		global = (uint32_t)worker->rank;
	(void)snprintf(key, sizeof(key), "%u", global);
	entry = json_object_get(page, key);
	if (entry == NULL && worker->rank == KVW_RANK_NONE)
		entry = json_object_iter_value(json_object_iter((json_t *)page));
	return json_string_value(json_object_get(entry, "engine_id"));
}

void kvw_bootstrap_take(struct kvw_probe_share *const *shares, const struct kvw_config *config,
	const char *body, size_t len)
{
	json_t *page = body == NULL ? NULL : json_loadb(body, len, 0, NULL);
	char url[URL_ROOM], text[KVW_KV_SOURCE_ROOM];

	for (size_t i = 0; i < KVW_RANKS_MOST; i++) {
		const char *engine;

		if (shares[i] == NULL)
			continue;
		engine = engine_of(page, shares[i]->worker);
		text[0] = '\0';
		write_url(config, shares[i]->worker, url);
		if (engine != NULL && is_plain(engine) &&
			snprintf(text, sizeof(text),
				"\"remote_bootstrap_addr\":\"%s\",\"remote_engine_id\":\"%s\"", url,
				engine) >= (int)sizeof(text))
			text[0] = '\0';
		kvw_worker_set_kv_source(shares[i]->worker, kvw_slice_of(text));
	}
	json_decref(page);
}
