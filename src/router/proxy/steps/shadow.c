/*
 * shadow.c - makes copies for watched groups, once the request is on its way (shadow.h).
 */
#include "proxy/step.h"

#include "proxy/loop.h"
#include "proxy/shadow.h"

static enum kvw_stepped shadow_run(struct kvw_exchange *x, struct kvw_way *way)
{
	(void)way;
	kvw_shadow_offer(x);
	return KVW_STEP_ON;
}

static bool shadow_needed(const struct kvw_loop *loop, const struct kvw_config *config)
{
	(void)loop;
	return config->model_group_count > 0;
}

const struct kvw_step kvw_step_shadow = {
	.name = "shadow",
	.acts = true,
	.needed = shadow_needed,
	.run = shadow_run,
};
