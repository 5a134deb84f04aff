/* transfer.c - see transfer.h. */
#include "proxy/transfer.h"

#include "fleet/worker.h"

const struct kvw_transfer_kind *kvw_transfer_kind(const struct kvw_config *config)
{
	static const struct kvw_transfer_kind *const kinds[] = {
#define KVW_TRANSFER(name, value) [KVW_PD_TRANSFER_##value] = &kvw_transfer_##name,
#include "proxy/transfers.def"
#undef KVW_TRANSFER
		[KVW_PD_TRANSFER_OFF] = NULL,
	};

	return kinds[config->pd_transfer];
}

uint16_t kvw_transfer_port(const struct kvw_exchange *x, uint16_t usual)
{
	const struct kvw_worker *worker = x->pd->prefiller;
	uint32_t rank = atomic_load_explicit(&worker->global_rank, memory_order_relaxed);
	int64_t port = worker->config.kv_port;

	if (port == 0)
		port = x->config->pd_port > 0 ? x->config->pd_port : usual;
	if (worker->rank != KVW_RANK_NONE)
		port += rank == KVW_RANK_UNKNOWN ? (uint32_t)worker->rank : rank;
	return (uint16_t)port;
}
