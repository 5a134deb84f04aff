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

/* Does the node's daemon that config->node_* name answer here and now, within l2_connect_ns, and can
 * its segment be read? If not, `why` (KVT_REASON_BYTES) says so. Waits. */
bool kvt_node_answers(
	const struct kvt_config *config, const struct kvt_surroundings *surroundings, char *why);

/* Can the daemon's segment of this name be read? If not, `why` (KVT_REASON_BYTES) names its file.
 */
bool kvt_node_segment(const char *name, char *why);

#endif
