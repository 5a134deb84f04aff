/*
 * kvt_open.h - opens a cache over tiers that the caller brings.
 */
#ifndef KVT_KVT_OPEN_H
#define KVT_KVT_OPEN_H

#include "tiers/tier.h"

/* Like kvt_open, with the given tiers: NULL-terminated, fastest first, borrowed until kvt_close. */
enum kvt_status kvt_open_with(const struct kvt_config *config,
	const struct kvt_tier_ops *const *tiers, struct kvt **out) KVT_MUST_CHECK;

#endif
