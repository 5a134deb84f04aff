/*
 * promise.c - what its service level promises, and when it came: of those that go on without waiting, too.
 */
#include "proxy/step.h"

#include "proxy/admit.h"
#include "proxy/loop.h"

static enum kvw_stepped run(struct kvw_exchange *x, struct kvw_way *way)
{
	(void)way;
	kvw_admit_enter(x);
	return KVW_STEP_ON;
}

static bool needed(const struct kvw_loop *loop, const struct kvw_config *config)
{
	(void)loop;
	return config->admission_enabled;
}

const struct kvw_step kvw_step_promise = {
	.name = "promise",
	.needed = needed,
	.run = run,
};
