/*
 * plan_engine.h - part of plan.h: what the workers' arguments and variables say of their engine.
 */
#ifndef KVW_RENDER_PLAN_ENGINE_H
#define KVW_RENDER_PLAN_ENGINE_H

#include "render/plan.h"

/* Fills what concerns the container: arguments, variables, image, port, GPUs and ranks. */
void kvw_plan_engine(
	const struct kvw_manifest *manifest, struct kvw_report *mistakes, struct kvw_plan *plan);

#endif
