/*
 * offload.c - computes from how many tokens on CPU memory and disk are of use to an engine on given
 * GPUs.
 */
#include "command/offload.h"

/* Returns how many tokens fit into this many bytes of one of `tensor` ranks. */
static double tokens_in(const struct kvt_model *m, double bytes, uint32_t tensor)
{
	double full = (double)kvt_model_token_bytes(m, KVT_LAYER_FULL, tensor);
	double window = (double)kvt_model_token_bytes(m, KVT_LAYER_WINDOW, tensor);

	if (bytes <= 0)
		return 0;
	if (full + window > 0 && bytes <= (full + window) * m->window)
		return bytes / (full + window);
	return full > 0 ? (bytes - window * m->window) / full : KVT_OFFLOAD_ALL;
}

static struct kvt_spread spread_of(
	const struct kvt_offload *o, const struct kvt_model *m, uint32_t gpus)
{
	struct kvt_spread s = {.gpus = gpus, .copies = o->count / gpus};
	double room = (double)gpus * (double)o->gpu.bytes * o->share - (double)o->weights;

	s.kv_bytes = room > 0 ? room : 0;
	s.tokens = tokens_in(m, s.kv_bytes / gpus, gpus);
	return s;
}

bool kvt_offload_spread(
	struct kvt_offload *o, const struct kvt_model *m, uint32_t gpus, uint64_t context)
{
	bool found = false;

	o->spread_count = 0;
	for (uint32_t n = 1; n <= o->count && o->spread_count < KVT_OFFLOAD_SPREADS;
		n = n < o->count && 2 * n > o->count ? o->count : 2 * n) {
		struct kvt_spread s = spread_of(o, m, n);

		if (!kvt_model_divides(m, n))
			continue;
		o->spreads[o->spread_count++] = s;
		if (!found) {
			o->chosen = s;
			found = s.tokens > 0 && s.tokens >= (double)context;
		}
	}
	if (gpus != 0)
		o->chosen = spread_of(o, m, gpus <= o->count ? gpus : o->count);
	return o->spread_count > 0 && gpus <= o->count && (gpus == 0 || kvt_model_divides(m, gpus));
}

void kvt_offload_below(struct kvt_offload *o, const struct kvt_model *m)
{
	o->memory_tokens = tokens_in(m, (double)o->ram * o->share, 1);
	o->disk_tokens = o->disk > 0 ? tokens_in(m, (double)o->disk * o->share, 1) : 0;
}

uint32_t kvt_offload_table(
	const struct kvt_offload *o, struct kvt_offload_row rows[KVT_OFFLOAD_ROWS])
{
	double gpu = o->chosen.tokens, below = gpu;
	uint32_t n = 0;

	if (gpu >= KVT_OFFLOAD_ALL)
		gpu = 0; /* no limit */
	if (o->chosen.tokens > 0)
		rows[n++] = (struct kvt_offload_row){0, gpu, "No offloading needed"};
	if (gpu == 0 && n > 0)
		return n;
	if (o->memory_tokens > gpu) {
		below = o->memory_tokens < KVT_OFFLOAD_ALL ? o->memory_tokens : 0;
		rows[n++] = (struct kvt_offload_row){gpu, below, "Consider CPU offloading"};
	}
	if (below > 0)
		rows[n++] = (struct kvt_offload_row){
			below, o->disk_tokens > below ? o->disk_tokens : 0, "Consider Disk offloading"};
	return n;
}

double kvt_offload_compute_s(const struct kvt_offload *o, const struct kvt_model *m, double tokens)
{
	if (o->prefill_flops <= 0 || m->active <= 0)
		return 0;
	return (2 * m->active * tokens + m->pair_flops * tokens * tokens) / o->prefill_flops;
}

double kvt_offload_fetch_s(const struct kvt_model *m, double tokens, double rate)
{
	return rate > 0 ? (double)kvt_model_context_bytes(m, (uint64_t)tokens, 1) / rate : 0;
}
