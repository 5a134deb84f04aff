/*
 * pin.c - sends a request that names its worker to that worker (http.pin).
 */
#include "proxy/step.h"

#include "fleet/pin.h"
#include "proxy/lacking.h"
#include "proxy/loop.h"
#include "proxy/reply.h"

static enum kvw_stepped pin_run(struct kvw_exchange *x, struct kvw_way *way)
{
	char why[320];
	size_t pos;

	if (x->pin.len == 0)
		return KVW_STEP_ON;
	if (x->tried.count > 0)
		return kvw_lacking_worker(x);
	if (kvw_pin_find(x->loop->fleet, &way->set, x->pin, kvw_exchange_computes(x), &pos, why,
		    sizeof(why)) != KVW_OK) {
		kvw_reply_error_as(x, 503, NULL, NULL, "retry-after: 1\r\n", why);
		return KVW_STEP_ANSWERED;
	}
	x->attempt.decision = (struct kvw_decision){
		.pos = pos, .reason = KVW_REASON_PINNED, .worker_id = way->set.items[pos].id};
	return KVW_STEP_CHOSEN;
}

static bool pin_needed(const struct kvw_loop *loop, const struct kvw_config *config)
{
	(void)loop;
	return config->http_pin;
}

const struct kvw_step kvw_step_pin = {
	.name = "pin",
	.chooses = true,
	.needed = pin_needed,
	.run = pin_run,
};
