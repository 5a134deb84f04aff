/*
 * p2p.c - the p2p tier of vLLM's OffloadingConnector: the prefiller stores the KV of a request under
 * an id, and the decoder fetches it from the prefiller's side channel.
 *
 * A decoder that finds nothing there waits (30 s and more) and computes the prompt.
 */
#include "proxy/transfer.h"

#include "fleet/worker.h"

#define USUAL_PORT 5710 /* VLLM_P2P_SIDE_CHANNEL_PORT */

static void write_id(const struct kvw_exchange *x, struct kvw_writer *w)
{
	kvw_write_literal(w, "{\"kv_request_id\":\"");
	kvw_write(w, kvw_slice_of(x->pd->id));
	kvw_write_literal(w, "\"");
}

static void p2p_ask(struct kvw_exchange *x, struct kvw_writer *w)
{
	kvw_write_literal(w, "{\"remote_decoder\":");
	write_id(x, w);
	kvw_write_literal(w, "}}");
}

static struct kvw_slice p2p_give(struct kvw_exchange *x, struct kvw_writer *w)
{
	kvw_write_literal(w, "{\"remote_prefiller\":");
	write_id(x, w);
	kvw_write_literal(w, ",\"remote_host\":\"");
	kvw_write(w, kvw_slice_of(x->pd->prefiller->host));
	kvw_write_literal(w, "\",\"remote_port\":");
	kvw_write_u64(w, kvw_transfer_port(x, USUAL_PORT));
	kvw_write_literal(w, "}}");
	return (struct kvw_slice){w->data, w->len};
}

const struct kvw_transfer_kind kvw_transfer_p2p = {
	.leg = KVW_LEG_FIRST,
	.once = true,
	.ask = p2p_ask,
	.give = p2p_give,
};
