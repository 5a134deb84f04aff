/*
 * tiers.h - the tiers of this build, from tiers.def.
 *
 * A tier whose create function returns KVT_MISS is not configured, and is left out.
 */
#ifndef KVT_TIERS_H
#define KVT_TIERS_H

#include "tiers/tier.h"

#define KVT_TIER(name) extern const struct kvt_tier_ops kvt_##name##_ops;
#include "tiers/tiers.def"

/* Returns all tiers, the fastest first, ended by NULL. Static. */
const struct kvt_tier_ops *const *kvt_tiers(void);

/* Returns whether the node's daemon that config->node_* name answers within l2_connect_ns and its
 * segment can be read. If not, `why` (KVT_REASON_BYTES) says which of the two fails. Waits. */
bool kvt_node_answers(
	const struct kvt_config *config, const struct kvt_surroundings *surroundings, char *why);

/* Returns whether the shared memory of the daemon with this name can be read. If not, `why`
 * (KVT_REASON_BYTES) names its file. */
bool kvt_node_segment(const char *name, char *why);

#endif
