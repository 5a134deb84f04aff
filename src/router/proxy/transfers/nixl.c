/*
 * nixl.c - vLLM's NixlConnector: the decoder pulls the KV that the prefiller's answer names.
 */
#include "proxy/transfer.h"

#include "proxy/pd.h"

static bool nixl_take(struct kvw_exchange *x, struct kvw_slice answer)
{
	struct kvw_leg_params params;

	return kvw_leg_params_read(answer, &params) == KVW_OK && kvw_pd_take_params(x, &params);
}

static struct kvw_slice nixl_give(struct kvw_exchange *x, struct kvw_writer *w)
{
	(void)w;
	return (struct kvw_slice){x->pd->params, x->pd->params_len};
}

const struct kvw_transfer_kind kvw_transfer_nixl = {
	.leg = KVW_LEG_FIRST,
	.once = true,
	.ask = kvw_transfer_ask_nixl,
	.take = nixl_take,
	.give = nixl_give,
};
