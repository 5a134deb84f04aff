/*
 * evict_made.h - workloads that need no trace.
 *
 * Fixed by the seed: the same seed gives the same requests everywhere.
 */
#ifndef KVB_EVICT_MADE_H
#define KVB_EVICT_MADE_H

#include "bench/load/trace_file.h"

struct kvb_made {
	const char *name;
	uint32_t requests;
	/* shared beginnings of prompts; the n-th is used 1/n as often as the first; 0: none */
	uint32_t system_prompts, system_chunks;
	/* documents that prompts ask about, used in the same proportions; 0: none */
	uint32_t documents, document_chunks;
	uint32_t turns;       /* mean turns of a conversation; 0: no conversations */
	uint32_t turn_chunks; /* mean chunks that a turn adds */
	uint32_t open;        /* conversations that are open at a time */
	uint32_t once;        /* percentage of requests with a long prompt that comes only once */
	const char *what;
};

extern const struct kvb_made kvb_made[]; /* ends with a NULL name */
const struct kvb_made *kvb_made_find(const char *name);

/* Makes a trace, which the caller ends with kvb_trace_finish(). */
void kvb_made_trace(const struct kvb_made *made, uint64_t seed, struct kvb_trace *out);

#endif
