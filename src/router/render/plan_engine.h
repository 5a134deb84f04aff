/*
 * plan_engine.h - part of plan.h: reads the workers' arguments and variables of their engine.
 */
#ifndef KVW_RENDER_PLAN_ENGINE_H
#define KVW_RENDER_PLAN_ENGINE_H

#include "render/plan.h"

/* Fills the container's members: arguments, variables, image, port, GPUs and ranks. */
void kvw_plan_engine(
	const struct kvw_manifest *manifest, struct kvw_report *mistakes, struct kvw_plan *plan);

/* Fills tensor_parallel and ranks, and checks GPUs and port: of a view of one pool. */
void kvw_plan_ranks(
	const struct kvw_manifest *manifest, struct kvw_report *mistakes, struct kvw_plan *plan);

#endif
