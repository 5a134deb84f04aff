/* dummy_step.c - refuses what is for the model `dummy`, where a request may name its worker. */
#include "proxy/step.h"

#include "proxy/loop.h"
#include "proxy/reply.h"

static enum kvw_stepped run(struct kvw_exchange *x, struct kvw_way *way)
{
	(void)way;
	if (!kvw_slice_equal(x->route.model, KVW_SLICE("dummy")))
		return KVW_STEP_ON;
	kvw_reply_error_code(x, 403, NULL, "dummy", NULL, "the dummy refuses");
	return KVW_STEP_ANSWERED;
}

static bool needed(const struct kvw_loop *loop, const struct kvw_config *config)
{
	(void)loop;
	return config->http_pin;
}

const struct kvw_step kvw_step_dummy = {
	.name = "dummy",
	.needed = needed,
	.run = run,
};
