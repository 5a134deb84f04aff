/*
 * sim_profile.h - the table of simulated models and GPUs (sim_profile.def).
 */
#ifndef KVB_SIM_PROFILE_H
#define KVB_SIM_PROFILE_H

#include <stdint.h>
#include <stdio.h>

/* What one simulated engine costs. All figures are of simulated time. */
struct kvb_profile {
	const char *name, *model, *gpu;
	double prefill_tps;     /* prompt tokens a second, without attention; 0: free */
	double attention_ns;    /* per pair of tokens */
	double base_ms;         /* every step that computes anything */
	double decode_ms;       /* per sequence that decodes in a step */
	double context_ns;      /* per token of that sequence so far: its KV is read */
	uint32_t kv_tokens;     /* KV cache */
	uint32_t max_model_len; /* longest context, tokens */
	uint32_t kv_bytes;      /* of KV per token, all layers */
	const char *source;     /* where each figure comes from */
};

/* Static; NULL if there is none of that name. */
const struct kvb_profile *kvb_profile_find(const char *name);
void kvb_profile_list(FILE *out);

#endif
