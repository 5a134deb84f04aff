/*
 * mooncake.c - vLLM's MooncakeConnector: both workers get one transfer_id, and the decoder waits until
 * the prefiller has sent the KV.
 *
 * The decoder gets the prefiller's bootstrap server and its engine id there, which the probes ask for
 * (fleet/bootstrap.h); until they know it the decoder serves requests whole.
 */
#include "proxy/transfer.h"

static void write_id(const struct kvw_exchange *x, struct kvw_writer *w)
{
	kvw_write_literal(w, ",\"transfer_id\":\"xfer-");
	kvw_write(w, kvw_slice_of(x->pd->id));
	kvw_write_literal(w, "\"}");
}

static enum kvw_leg_time mooncake_when(struct kvw_exchange *x)
{
	return kvw_transfer_knows_source(x) ? KVW_LEG_BESIDE : KVW_LEG_UNREADY;
}

static void mooncake_ask(struct kvw_exchange *x, struct kvw_writer *w)
{
	kvw_write_literal(w, "{\"do_remote_decode\":true,\"do_remote_prefill\":false");
	write_id(x, w);
}

static struct kvw_slice mooncake_give(struct kvw_exchange *x, struct kvw_writer *w)
{
	kvw_transfer_write_source(x, w);
	write_id(x, w);
	return (struct kvw_slice){w->data, w->len};
}

const struct kvw_transfer_kind kvw_transfer_mooncake = {
	.leg = KVW_LEG_BESIDE,
	.when = mooncake_when,
	.once = true,
	.ask = mooncake_ask,
	.give = mooncake_give,
};
