/*
 * plan_share.h - parts of plan.h: decides how the nodes' kvtierds, and kvways, share data, and
 * remarks if they do not.
 *
 * Remarks state decisions. They are not mistakes in the manifest, so --strict accepts them.
 */
#ifndef KVW_RENDER_PLAN_SHARE_H
#define KVW_RENDER_PLAN_SHARE_H

#include "render/plan.h"

/* To be called when the cache is decided: sets joined, redis_url, redis_shown, redis_secret and
 * nvme, and own_redis for kvtierds. */
void kvw_plan_share(
	const struct kvw_manifest *manifest, struct kvw_report *mistakes, struct kvw_plan *plan);

/* For a complete plan. */
void kvw_plan_share_remarks(const struct kvw_manifest *manifest, struct kvw_report *remarks,
	const struct kvw_plan *plan);

#endif
