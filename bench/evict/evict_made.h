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
	uint32_t system_prompts,
		system_chunks;               /* shared beginnings, the n-th 1/n as often; 0: none */
	uint32_t documents, document_chunks; /* asked about, likewise; 0: none */
	uint32_t turns;       /* of a conversation, in the mean; 0: no conversations */
	uint32_t turn_chunks; /* that a turn adds, in the mean */
	uint32_t open;        /* conversations at a time */
	uint32_t once;        /* of 100 requests, so many are seen once, long, and never again */
	const char *what;
};

extern const struct kvb_made kvb_made[]; /* ends with a NULL name */
const struct kvb_made *kvb_made_find(const char *name);

/* To be finished with kvb_trace_finish(). */
void kvb_made_trace(const struct kvb_made *made, uint64_t seed, struct kvb_trace *out);

#endif
