/*
 * worth.h - costs of fetching a chain's chunks, and of computing them again.
 */
#ifndef KVT_WORTH_H
#define KVT_WORTH_H

#include "core/core.h"

void kvt_prefill_init(struct kvt_prefill *p, double tokens_per_second);
void kvt_prefill_finish(struct kvt_prefill *p);

/* Like kvt_lookup, without counting. tiers may be NULL. */
void kvt_plan(struct kvt *k, const struct kvt_key *keys, size_t n, uint32_t tier_mask, bool locked,
	uint8_t *tiers, struct kvt_lookup *out);

#endif
