/*
 * sim_transfer.c - see sim_transfer.h.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/sim/sim_nixl.h"
#include "bench/sim/sim_openai.h"
#include "bench/sim/sim_routes.h"
#include "bench/sim/sim_shared.h"
#include "bench/sim/sim_sidecar.h"
#include "bench/sim/sim_transfer.h"
#include "bench/sim/sim_worker.h"

static const json_t *param(const struct kvb_exchange *x, const char *name)
{
	return json_object_get(json_object_get(x->body, "kv_transfer_params"), name);
}

/* Returns a text parameter; NULL: the request lacks it, or it is null. */
static const char *text_param(const struct kvb_exchange *x, const char *name)
{
	return json_string_value(param(x, name));
}

static enum kvb_transfer kind_of(const struct kvb_exchange *x)
{
	return x->worker->options->nixl.kind;
}

/* --- the prefilling side --- */

bool kvb_transfer_answers(const struct kvb_exchange *x)
{
	enum kvb_transfer kind = kind_of(x);

	return x->worker->options->nixl.on && x->choice_count == 1 &&
	       (kind == KVB_TRANSFER_NIXL || kind == KVB_TRANSFER_PUSH ||
		       kind == KVB_TRANSFER_SIDECAR) &&
	       json_is_true(param(x, "do_remote_decode"));
}

bool kvb_transfer_name(struct kvb_exchange *x, char *out, size_t size)
{
	const char *name = NULL;

	if (!x->worker->options->nixl.on || x->choice_count != 1)
		return false;
	if (kind_of(x) == KVB_TRANSFER_P2P)
		name = json_string_value(
			json_object_get(param(x, "remote_decoder"), "kv_request_id"));
	else if (json_is_true(param(x, "do_remote_decode")))
		name = kind_of(x) == KVB_TRANSFER_MOONCAKE ? text_param(x, "transfer_id") : x->id;
	if (name == NULL || kind_of(x) == KVB_TRANSFER_SHARED)
		return false;
	if (kind_of(x) == KVB_TRANSFER_NIXL || kind_of(x) == KVB_TRANSFER_SIDECAR)
		snprintf(out, size, "cmpl-%s-%08x", name, (unsigned)kvb_worker_random(x->worker));
	else
		snprintf(out, size, "%s", name);
	return true;
}

void kvb_transfer_query(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	struct kvb_buf body = {0};

	(void)request;
	kvb_buf_text(&body, "{");
	for (uint32_t i = 0; i < worker->options->ranks; i++)
		kvb_buf_printf(&body,
			"%s\"%u\":{\"engine_id\":\"%s\",\"worker_addr\":{\"0\":{\"0\":\"tcp://%s:1\"}}}",
			i > 0 ? "," : "", worker->ranks[i]->global_rank,
			worker->ranks[i]->nixl.engine_id, worker->options->host);
	kvb_buf_text(&body, "}");
	kvb_reply_json(conn, 200, &body);
}

/* --- the decoding side --- */

/* Splits http://HOST:PORT into host and port. */
static bool split_url(const char *url, char *host, size_t size, int *port)
{
	const char *colon;

	if (url == NULL || strncmp(url, "http://", 7) != 0)
		return false;
	colon = strchr(url + 7, ':');
	if (colon == NULL || (size_t)(colon - url - 7) >= size)
		return false;
	snprintf(host, size, "%.*s", (int)(colon - url - 7), url + 7);
	*port = atoi(colon + 1);
	return true;
}

static bool begin_p2p(struct kvb_exchange *x)
{
	const json_t *from = param(x, "remote_prefiller");
	struct kvb_nixl_source source = {.engine = "",
		.request = json_string_value(json_object_get(from, "kv_request_id")),
		.host = json_string_value(json_object_get(from, "remote_host")),
		.port = (int)json_integer_value(json_object_get(from, "remote_port"))};

	return from != NULL && kvb_nixl_pull(x, &source, false);
}

static bool begin_mooncake(struct kvb_exchange *x)
{
	char host[64] = "";
	struct kvb_nixl_source source = {.engine = text_param(x, "remote_engine_id"),
		.request = text_param(x, "transfer_id"),
		.host = host};

	(void)split_url(
		text_param(x, "remote_bootstrap_addr"), host, sizeof(host), &source.port);
	return kvb_nixl_pull(x, &source, true);
}

bool kvb_transfer_begin(struct kvb_exchange *x, const struct kvb_request *request)
{
	struct kvb_nixl_source source = {.engine = text_param(x, "remote_engine_id"),
		.request = text_param(x, "remote_request_id"),
		.host = text_param(x, "remote_host"),
		.port = (int)json_integer_value(param(x, "remote_port"))};

	if (!x->worker->options->nixl.on)
		return false;
	switch (kind_of(x)) {
	case KVB_TRANSFER_SHARED:
		kvb_shared_find(x);
		return false;
	case KVB_TRANSFER_P2P:
		return begin_p2p(x);
	case KVB_TRANSFER_SIDECAR:
		if (kvb_sidecar_begin(x, request))
			return true;
		break;
	default:
		break;
	}
	if (!json_is_true(param(x, "do_remote_prefill")))
		return false;
	if (kind_of(x) == KVB_TRANSFER_MOONCAKE)
		return begin_mooncake(x);
	if (kind_of(x) == KVB_TRANSFER_PUSH) /* blocks are matched by the id of both requests */
		source.request = x->id;
	return kvb_nixl_pull(x, &source, kind_of(x) == KVB_TRANSFER_PUSH);
}
