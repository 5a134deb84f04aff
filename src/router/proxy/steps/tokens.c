/*
 * tokens.c - asks for the exact tokens of a prompt, for a strategy that wants them (prepare.h).
 */
#include "proxy/step.h"

#include "proxy/loop.h"
#include "proxy/prepare.h"

static enum kvw_stepped tokens_run(struct kvw_exchange *x, struct kvw_way *way)
{
	return kvw_prepare_tokens(x, way->on_tokens) ? KVW_STEP_ON : KVW_STEP_WAITS;
}

static bool tokens_needed(const struct kvw_loop *loop, const struct kvw_config *config)
{
	(void)config;
	return loop->sources != NULL;
}

const struct kvw_step kvw_step_tokens = {
	.name = "tokens",
	.needed = tokens_needed,
	.run = tokens_run,
};
