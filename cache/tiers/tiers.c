/*
 * tiers.c - the list of the tiers that this build contains.
 */
#include "tiers/tiers.h"

const struct kvt_tier_ops *const *kvt_tiers(void)
{
	static const struct kvt_tier_ops *const list[] = {
#define KVT_TIER(name) &kvt_##name##_ops,
#include "tiers/tiers.def"
		NULL,
	};

	return list;
}
