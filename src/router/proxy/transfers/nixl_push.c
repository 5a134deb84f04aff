/*
 * nixl_push.c - vLLM's NixlPushConnector: the decoder reports its blocks to the prefiller, which writes
 * the KV there.
 *
 * The prefiller matches the two requests by their ids (X-Request-Id up to the engine's own suffix). Two
 * requests of one id could get each other's KV, so both legs have an id of their own: the client's with
 * the transfer's behind it. To requests of /v1/responses engines give ids of their own, whatever the
 * head says: those never match, and are served whole.
 *
 * The decoder needs the prefiller's engine id and address before that has answered. The first
 * answer of a prefiller says them: its first request is asked first, and later ones at the same
 * time as the decoder's. An answer of another engine than the decoder was given ends the wait for
 * it.
 */
#include "proxy/transfer.h"

#include <string.h>

#include "fleet/worker.h"
#include "http/head.h"
#include "proxy/pd.h"

#define CLIENT_ID_MOST 128 /* a longer one is left out */

static enum kvw_leg_time push_when(struct kvw_exchange *x)
{
	if (x->path.api == KVW_API_RESPONSES)
		return KVW_LEG_UNREADY;
	return kvw_transfer_knows_source(x) ? KVW_LEG_BESIDE : KVW_LEG_FIRST;
}

static void write_member(struct kvw_writer *w, const char *name, struct kvw_slice value)
{
	if (value.len == 0)
		return;
	if (w->len > 0)
		kvw_write_literal(w, ",");
	kvw_write_literal(w, "\"");
	kvw_write(w, kvw_slice_of(name));
	kvw_write_literal(w, "\":");
	kvw_write(w, value);
}

/* Keeps what the next requests' decoders need. Returns whether this one's decoder got the same. */
static bool learn(struct kvw_exchange *x, const struct kvw_leg_params *params)
{
	char text[KVW_KV_SOURCE_ROOM];
	struct kvw_writer w = KVW_WRITER(text, sizeof(text) - 1);

	write_member(&w, "remote_engine_id", params->engine_id);
	write_member(&w, "remote_host", params->host);
	write_member(&w, "remote_port", params->port);
	write_member(&w, "tp_size", params->tp_size);
	write_member(&w, "dcp_size", params->dcp_size);
	write_member(&w, "pp_size", params->pp_size);
	text[w.overflow ? 0 : w.len] = '\0';
	kvw_worker_set_kv_source(x->pd->prefiller, kvw_slice_of(text));
	return strcmp(x->pd->source, text) == 0;
}

static bool push_take(struct kvw_exchange *x, struct kvw_slice answer)
{
	struct kvw_leg_params params;

	if (kvw_leg_params_read(answer, &params) != KVW_OK)
		return false;
	if (x->pd->leg_time == KVW_LEG_BESIDE)
		return learn(x, &params);
	(void)learn(x, &params);
	if (!kvw_pd_take_params(x, &params))
		return false;
	(void)kvw_transfer_knows_source(x); /* the engine is known as later legs know it */
	return true;
}

static struct kvw_slice push_give(struct kvw_exchange *x, struct kvw_writer *w)
{
	if (x->pd->leg_time == KVW_LEG_FIRST)
		return (struct kvw_slice){x->pd->params, x->pd->params_len};
	kvw_transfer_write_source(x, w);
	kvw_write_literal(w, ",\"remote_request_id\":\"");
	kvw_write(w, kvw_slice_of(x->pd->id));
	kvw_write_literal(w, "\"}");
	return (struct kvw_slice){w->data, w->len};
}

static void push_fields(const struct kvw_exchange *x, bool prefills, struct kvw_writer *w)
{
	(void)prefills;
	kvw_write_literal(w, "X-Request-Id: ");
	if (x->request_id.len <= CLIENT_ID_MOST) {
		kvw_write(w, x->request_id);
		kvw_write_literal(w, "-");
	}
	kvw_write(w, kvw_slice_of(x->pd->id));
	kvw_write_literal(w, "\r\n");
}

const struct kvw_transfer_kind kvw_transfer_nixl_push = {
	.leg = KVW_LEG_BESIDE,
	.when = push_when,
	.once = true,
	.ask = kvw_transfer_ask_nixl,
	.take = push_take,
	.give = push_give,
	.fields = push_fields,
	.renames = true,
};
