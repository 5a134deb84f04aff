/*
 * connect.c - connects to the chosen worker: by an idle connection, or a new one.
 */
#include "proxy/step.h"

#include "proxy/send.h"
#include "proxy/loop.h"

static enum kvw_stepped connect_run(struct kvw_exchange *x, struct kvw_way *way)
{
	kvw_connect(x, false, way->on_link);
	return KVW_STEP_ON;
}

const struct kvw_step kvw_step_connect = {
	.name = "connect",
	.acts = true,
	.run = connect_run,
};
