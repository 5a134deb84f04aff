/*
 * comments.c - starts the comments for a client whose request may wait from now on (silence.h).
 */
#include "proxy/step.h"

#include "proxy/loop.h"
#include "proxy/silence.h"

static enum kvw_stepped comments_run(struct kvw_exchange *x, struct kvw_way *way)
{
	(void)way;
	kvw_silence_await(x);
	return KVW_STEP_ON;
}

static bool comments_needed(const struct kvw_loop *loop, const struct kvw_config *config)
{
	(void)loop;
	return config->keep_alive_comments_ms > 0;
}

const struct kvw_step kvw_step_comments = {
	.name = "comments",
	.acts = true,
	.needed = comments_needed,
	.run = comments_run,
};
