/*
 * plan_pools.h - plans how many workers and kvways there are, and the two pools of workers of a
 * manifest with spec.pdSpec.
 */
#ifndef KVW_RENDER_PLAN_POOLS_H
#define KVW_RENDER_PLAN_POOLS_H

#include "render/plan.h"

/* Fills scaling, kvway_scaling, pools, zone, transfer and threshold, and ranks where there are
 * pools. Routing and cache must be planned. */
void kvw_plan_workers(const struct kvw_manifest *manifest, struct kvw_report *mistakes,
	struct kvw_report *notes, struct kvw_report *remarks, struct kvw_plan *plan);

#endif
