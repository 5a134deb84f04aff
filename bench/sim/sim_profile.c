/*
 * sim_profile.c - the table of profiles and how it is printed.
 */
#include <string.h>

#include "bench/sim/sim_profile.h"

static const struct kvb_profile profiles[] = {
#define KVB_PROFILE(                                                                               \
	name, model, gpu, tps, pair, base, decode, context, kv, longest, bytes, source)            \
	{#name, model, gpu, tps, pair, base, decode, context, kv, longest, bytes, source},
#include "bench/sim/sim_profile.def"
#undef KVB_PROFILE
};

const struct kvb_profile *kvb_profile_find(const char *name)
{
	for (size_t i = 0; i < sizeof(profiles) / sizeof(profiles[0]); i++)
		if (strcmp(profiles[i].name, name) == 0)
			return &profiles[i];
	return NULL;
}

void kvb_profile_list(FILE *out)
{
	fprintf(out,
		"Simulated, every one of them: figures say what a worker is pretended to cost.\n\n"
		"%-18s %10s %9s %8s %10s %8s %10s %8s %9s\n",
		"profile", "prefill", "attention", "base", "decode", "KV read", "KV cache",
		"context", "KV");
	fprintf(out, "%-18s %10s %9s %8s %10s %8s %10s %8s %9s\n", "", "tokens/s", "ns/pair",
		"ms/step", "ms/seq", "ns/token", "tokens", "tokens", "bytes/tok");
	for (size_t i = 0; i < sizeof(profiles) / sizeof(profiles[0]); i++) {
		const struct kvb_profile *p = &profiles[i];

		fprintf(out, "%-18s %10.0f %9.2f %8.1f %10.4f %8.1f %10u %8u %9u\n", p->name,
			p->prefill_tps, p->attention_ns, p->base_ms, p->decode_ms, p->context_ns,
			p->kv_tokens, p->max_model_len, p->kv_bytes);
	}
	for (size_t i = 0; i < sizeof(profiles) / sizeof(profiles[0]); i++)
		fprintf(out, "\n%s: %s on %s\n    %s\n", profiles[i].name, profiles[i].model,
			profiles[i].gpu, profiles[i].source);
}
