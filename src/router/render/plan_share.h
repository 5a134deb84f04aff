/*
 * plan_share.h - parts of plan.h: what the nodes' kvtierds and the kvways share, and what it costs
 * where they do not.
 *
 * Remarks say what was decided. They are no faults of the manifest: --strict takes it all the same.
 */
#ifndef KVW_RENDER_PLAN_SHARE_H
#define KVW_RENDER_PLAN_SHARE_H

#include "render/plan.h"

/* After the cache: fills joined, redis_url, redis_shown, redis_secret and nvme,
 * and own_redis for kvtierds. */
void kvw_plan_share(
	const struct kvw_manifest *manifest, struct kvw_report *mistakes, struct kvw_plan *plan);

/* Of a plan that is whole. */
void kvw_plan_share_remarks(const struct kvw_manifest *manifest, struct kvw_report *remarks,
	const struct kvw_plan *plan);

#endif
