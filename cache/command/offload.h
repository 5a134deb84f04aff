/*
 * offload.h - computes from how many tokens on CPU memory and disk are of use to an engine on given
 * GPUs.
 *
 *	tokens in the GPUs = (GPUs of a copy x memory x share - weights) / KV bytes per token in them
 *	tokens in CPU memory, or on disk = bytes x share / KV bytes per token
 *
 * In the GPUs, two ranks with the same heads keep them twice; lower tiers store them once. CPU memory keeps a copy of
 * the GPUs' contents, so only CPU memory counts. Windowed layers keep only their last tokens. Pure functions; `share`
 * applies to a GPU's memory and to the machine's: the engine uses the rest.
 */
#ifndef KVT_OFFLOAD_H
#define KVT_OFFLOAD_H

#include "command/gpus.h"
#include "command/model.h"

#define KVT_OFFLOAD_SHARE   0.9 /* vLLM's gpu_memory_utilization */
#define KVT_OFFLOAD_SPREADS 16
#define KVT_OFFLOAD_ALL     1e15 /* number of tokens that is used if no layer keeps all of them */

/* One copy of the model on that many GPUs. */
struct kvt_spread {
	uint32_t gpus, copies;
	double kv_bytes; /* bytes left for KV in these GPUs together; 0: the weights do not fit */
	double tokens;
};

struct kvt_offload {
	uint32_t count; /* number of GPUs; 0: not given, and no other member is set */
	struct kvt_gpu gpu;
	double share;
	uint64_t weights;         /* bytes of one copy */
	const char *weights_from; /* "given", ... */
	uint64_t ram, disk;       /* bytes; disk 0: unknown */
	const char *ram_from;
	struct kvt_spread spreads[KVT_OFFLOAD_SPREADS];
	uint32_t spread_count;
	struct kvt_spread chosen;
	double memory_tokens, disk_tokens; /* disk_tokens 0: unknown */
	double prefill_flops; /* operations per second that a copy's GPUs reach; 0: unknown */
	double memory_rate; /* bytes per second from CPU memory to all GPUs together; 0: unknown */
	double disk_rate;     /* bytes per second from the machine's disk; 0: unknown */
};

/* Sets spreads and chosen: `gpus` GPUs; if that is 0, the fewest that have room for `context`
 * tokens, or all. Uses count, gpu, share and weights. Returns false if that many ranks cannot share
 * the heads, or are more than the GPUs. */
bool kvt_offload_spread(
	struct kvt_offload *o, const struct kvt_model *m, uint32_t gpus, uint64_t context);

/* Sets the members about lower tiers. */
void kvt_offload_below(struct kvt_offload *o, const struct kvt_model *m);

/* One row of the table. */
struct kvt_offload_row {
	double from, to; /* lengths of a context, in tokens; 0: no limit */
	const char *recommendation;
};

#define KVT_OFFLOAD_ROWS 3

/* Computes the rows of the table; returns their number. */
uint32_t kvt_offload_table(
	const struct kvt_offload *o, struct kvt_offload_row rows[KVT_OFFLOAD_ROWS]);

/* Return the seconds for a prompt of that many tokens; 0: a rate is unknown. */
double kvt_offload_compute_s(const struct kvt_offload *o, const struct kvt_model *m, double tokens);
double kvt_offload_fetch_s(const struct kvt_model *m, double tokens, double rate);

#endif
