/*
 * wake.c - makes a request wait behind others that wait for its model (waking.h).
 */
#include "proxy/step.h"

#include "admin/explanation.h"
#include "proxy/loop.h"
#include "proxy/waking.h"
#include "proxy/whose.h"

static enum kvw_stepped wake_run(struct kvw_exchange *x, struct kvw_way *way)
{
	uint32_t owner;

	(void)way;
	/* A request for an object that one known worker keeps does not wait here: that worker
	 * serves the request even while it is drained. */
	return !kvw_whose_worker(x, &owner) && kvw_waking_queue(x) ? KVW_STEP_WAITS : KVW_STEP_ON;
}

static enum kvw_stepped wake_dry(struct kvw_exchange *x, struct kvw_way *way)
{
	(void)way;
	if (kvw_waking_others(x))
		kvw_explanation_note(
			x->dry, "others wait for a worker of its model: it would wait behind them");
	return KVW_STEP_ON;
}

static bool wake_needed(const struct kvw_loop *loop, const struct kvw_config *config)
{
	(void)loop;
	return config->discovery_wake_hold_ms > 0;
}

const struct kvw_step kvw_step_wake = {
	.name = "wake",
	.needed = wake_needed,
	.run = wake_run,
	.dry = wake_dry,
};
