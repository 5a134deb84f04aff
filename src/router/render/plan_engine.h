/*
 * plan_engine.h - a part of plan.h: reads the arguments and variables of the workers' engine.
 */
#ifndef KVW_RENDER_PLAN_ENGINE_H
#define KVW_RENDER_PLAN_ENGINE_H

#include "render/plan.h"

/* Sets the members for the container: arguments, variables, image, port, GPUs and ranks. */
void kvw_plan_engine(
	const struct kvw_manifest *manifest, struct kvw_report *mistakes, struct kvw_plan *plan);

/* Fills tensor_parallel and ranks of the plan of one pool, and checks its GPUs and port. */
void kvw_plan_ranks(
	const struct kvw_manifest *manifest, struct kvw_report *mistakes, struct kvw_plan *plan);

#endif
