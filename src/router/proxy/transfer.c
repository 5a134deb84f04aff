/* transfer.c - see transfer.h. */
#include "proxy/transfer.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

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

void kvw_transfer_ask_nixl(struct kvw_exchange *x, struct kvw_writer *w)
{
	(void)x;
	kvw_write_literal(w,
		"{\"do_remote_decode\":true,\"do_remote_prefill\":false,\"remote_engine_id\":null,"
		"\"remote_block_ids\":null,\"remote_host\":null,\"remote_port\":null}");
}

bool kvw_transfer_knows_source(struct kvw_exchange *x)
{
	char *source = x->pd->source; /* another loop may change the worker's meanwhile */

	kvw_worker_kv_source(x->pd->prefiller, source);
	if (source[0] == '\0')
		return false;
	x->pd->engine = XXH3_64bits(source, strlen(source)) | 1;
	return true;
}

void kvw_transfer_write_source(const struct kvw_exchange *x, struct kvw_writer *w)
{
	kvw_write_literal(w, "{\"do_remote_prefill\":true,\"do_remote_decode\":false,");
	kvw_write(w, kvw_slice_of(x->pd->source));
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
