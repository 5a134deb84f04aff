/*
 * worth.h - compares the cost of fetching a chain's chunks with that of computing them again.
 */
#ifndef KVT_WORTH_H
#define KVT_WORTH_H

#include "core/core.h"

void kvt_prefill_init(struct kvt_prefill *p, double tokens_per_second);
void kvt_prefill_finish(struct kvt_prefill *p);

/* Like kvt_lookup, but does not count a use. tiers may be NULL. */
void kvt_plan(struct kvt *k, const struct kvt_key *keys, size_t n, uint32_t tier_mask, bool locked,
	uint8_t *tiers, struct kvt_lookup *out);

#endif
