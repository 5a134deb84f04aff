/*
 * plan_model.h - parts of plan.h: finds the model's source, and the number of GPUs of a
 * JumpStartModel.
 */
#ifndef KVW_RENDER_PLAN_MODEL_H
#define KVW_RENDER_PLAN_MODEL_H

#include "render/plan.h"

/* Sets the members for the model's volume. */
void kvw_plan_model(const struct kvw_manifest *manifest, struct kvw_report *mistakes,
	struct kvw_report *notes, struct kvw_plan *plan);

/* Sets gpus and gpu_resource. */
void kvw_plan_gpus(
	const struct kvw_manifest *manifest, struct kvw_report *mistakes, struct kvw_plan *plan);

#endif
