/*
 * offload.h - from how many tokens on CPU memory and disk are of use to an engine on given GPUs.
 *
 *	tokens in the GPUs = (GPUs of a copy x memory x share - weights) / KV bytes per token in them
 *	tokens in CPU memory, or on disk = bytes x share / KV bytes per token
 *
 * In the GPUs, ranks of which two have the same heads keep them twice; below they are stored once. Memory below keeps
 * a copy of what the GPUs hold, so that it alone counts. Windowed layers keep their last tokens only.
 * Pure functions; `share` is of a GPU's memory and of the machine's: the rest is the engine's own.
 */
#ifndef KVT_OFFLOAD_H
#define KVT_OFFLOAD_H

#include "command/gpus.h"
#include "command/model.h"

#define KVT_OFFLOAD_SHARE   0.9 /* vLLM's gpu_memory_utilization */
#define KVT_OFFLOAD_SPREADS 16
#define KVT_OFFLOAD_ALL     1e15 /* tokens, where no layer keeps all of them */

/* One copy of the model on so many GPUs. */
struct kvt_spread {
	uint32_t gpus, copies;
	double kv_bytes; /* left for KV in all of them; 0: the weights do not fit */
	double tokens;
};

struct kvt_offload {
	uint32_t count; /* GPUs; 0: not asked about, and nothing else is set */
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
	double prefill_flops; /* a second, of the GPUs of a copy, as used; 0: unknown */
	double memory_rate;   /* bytes a second from CPU memory, of all of them; 0: unknown */
	double disk_rate;     /* of the machine; 0: unknown */
};

/* Sets spreads and chosen: on `gpus` of them, or, if that is 0, on the fewest that hold `context` tokens, or all. From
 * count, gpu, share and weights. False: such ranks cannot share the heads, or are more than there are. */
bool kvt_offload_spread(
	struct kvt_offload *o, const struct kvt_model *m, uint32_t gpus, uint64_t context);

/* Sets what lies below. */
void kvt_offload_below(struct kvt_offload *o, const struct kvt_model *m);

/* What a row of the table says. */
struct kvt_offload_row {
	double from, to; /* tokens of a context; 0: no limit */
	const char *recommendation;
};

#define KVT_OFFLOAD_ROWS 3

/* Returns how many. */
uint32_t kvt_offload_table(
	const struct kvt_offload *o, struct kvt_offload_row rows[KVT_OFFLOAD_ROWS]);

/* Seconds for a prompt of so many tokens. 0: a rate is unknown. */
double kvt_offload_compute_s(const struct kvt_offload *o, const struct kvt_model *m, double tokens);
double kvt_offload_fetch_s(const struct kvt_model *m, double tokens, double rate);

#endif
