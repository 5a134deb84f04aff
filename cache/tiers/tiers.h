/*
 * tiers.h - the tiers of this build, from tiers.def.
 *
 * A tier whose create says KVT_MISS is not configured and simply left out.
 */
#ifndef KVT_TIERS_H
#define KVT_TIERS_H

#include "tiers/tier.h"

#define KVT_TIER(name) extern const struct kvt_tier_ops kvt_##name##_ops;
#include "tiers/tiers.def"

/* All of them, fastest first, NULL-terminated. Static. */
const struct kvt_tier_ops *const *kvt_tiers(void);

#endif
