/*
 * worth.h - what a chain's chunks would cost to fetch, and to compute again.
 */
#ifndef KVT_WORTH_H
#define KVT_WORTH_H

#include "core/core.h"

void kvt_prefill_init(struct kvt_prefill *p, double tokens_per_second);
void kvt_prefill_finish(struct kvt_prefill *p);

/* As kvt_lookup says, without counting anything. tiers may be NULL. */
void kvt_plan(struct kvt *k, const struct kvt_key *keys, size_t n, uint32_t tier_mask, bool locked,
	uint8_t *tiers, struct kvt_lookup *out);

#endif
