/*
 * sim_profile.h - the table of simulated models and GPUs (sim_profile.def).
 */
#ifndef KVB_SIM_PROFILE_H
#define KVB_SIM_PROFILE_H

#include <stdint.h>
#include <stdio.h>

/* The costs of one simulated engine, in simulated time. */
struct kvb_profile {
	const char *name, *model, *gpu;
	double prefill_tps; /* prompt tokens per second, without attention; 0: they take no time */
	double attention_ns;    /* per pair of tokens */
	double base_ms;         /* for every step that computes anything */
	double decode_ms;       /* for each sequence that decodes in a step */
	double context_ns; /* for each token that the sequence has so far, because its KV is read */
	uint32_t kv_tokens;     /* KV cache */
	uint32_t max_model_len; /* longest context, tokens */
	uint32_t kv_bytes;      /* bytes of KV for a token, in all layers */
	const char *source;     /* the source of each figure */
};

/* Returns a static profile; NULL if there is none of that name. */
const struct kvb_profile *kvb_profile_find(const char *name);
void kvb_profile_list(FILE *out);

#endif
