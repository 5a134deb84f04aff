/*
 * gate_inside.h - internals of a gate, shared by its files: gate.c judges requests, queues them and
 * decides when each is sent; gate_sent.c follows those that were sent, and learns from their first
 * tokens.
 */
#ifndef KVW_GATE_INSIDE_H
#define KVW_GATE_INSIDE_H

#include "admission/gate.h"

/* Safety margin before a request's latest time of sending. */
#define SAFE_NS INT64_C(100000000)

static inline int64_t longer(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* Returns how many tokens of a prompt a worker holds in any tier. */
static inline uint64_t hit_of(const uint32_t *hit_tokens)
{
	uint64_t sum = 0;

	for (size_t tier = 0; tier < KVW_TIER_COUNT; tier++)
		sum += hit_tokens[tier];
	return sum;
}

/* Makes the gate examine this worker again at the next judgement. */
static inline void forget_outlook(struct kvw_gate *gate, uint32_t worker)
{
	gate->outlooks->workers[worker].epoch = 0;
}

/* Counts the request once among those that were offered. */
void kvw_gate_offer(struct kvw_gate *gate, struct kvw_entrant *e, int64_t now_ns);

#endif
