/*
 * prefill.c - has the prompt prefilled by another worker, while the decoder's place is held (pd.h).
 *
 * This is the only step that waits after the lease was taken; the request then continues with this
 * step.
 */
#include "proxy/step.h"

#include "proxy/leg.h"
#include "proxy/loop.h"
#include "proxy/pd.h"
#include "proxy/reply.h"
#include "proxy/transfer.h"

/* True: the request waits for the leg. */
static bool begin_leg(struct kvw_exchange *x, struct kvw_way *way)
{
	struct kvw_loop *loop = x->loop;
	struct kvw_parted *pd = x->pd;
	enum kvw_err err;
	bool booked;

	if (pd->prefiller != NULL)
		kvw_links_unhold(&loop->links, pd->prefiller);
	pd->prefiller = loop->fleet->workers[pd->decision.worker_id];
	kvw_links_hold(&loop->links, pd->prefiller);
	if (!kvw_pd_leg_begins(x)) {
		kvw_leg_unbegun(x);
		return false;
	}
	pd->legs++;
	pd->state = KVW_PD_PREFILLING;
	booked = pd->leg_time == KVW_LEG_NEVER;
	err = booked ? kvw_leg_book(x) : kvw_leg_begin(x, way->on_leg);
	kvw_metrics_pd_plan(
		loop->metrics, err == KVW_EINVAL ? KVW_PD_PLAN_WHOLE : KVW_PD_PLAN_SPLIT);
	if (err == KVW_OK && pd->leg_time != KVW_LEG_FIRST)
		kvw_pd_hand_over(x);
	if (err == KVW_OK)
		return pd->leg_time == KVW_LEG_FIRST;
	kvw_leg_unbegun(x);
	if (err != KVW_EINVAL) {
		kvw_pd_leg_ended(x, KVW_PD_LEG_LOST, 0);
		return false;
	}
	pd->legs--;
	pd->state = KVW_PD_UNPLANNED;
	pd->settled = true;
	return false;
}

/* Lets the decoder serve the request whole after a failed leg. False: it must not. */
static bool fall_back(struct kvw_exchange *x)
{
	bool whole;

	if (x->pd->counted)
		return true;
	x->pd->counted = true;
	whole = x->config->pd_fallback || x->pd->denied;
	kvw_metrics_pd_decode(
		x->loop->metrics, whole ? KVW_PD_DECODE_FALLBACK : KVW_PD_DECODE_FAILED);
	return whole;
}

/* Does what was planned. */
static enum kvw_stepped go_on(struct kvw_exchange *x, struct kvw_way *way)
{
	if (x->pd->state == KVW_PD_PLANNED && begin_leg(x, way))
		return KVW_STEP_WAITS;
	if (x->pd->state == KVW_PD_PREFILLED)
		kvw_pd_hand_over(x);
	else if (x->pd->failed && !fall_back(x)) {
		kvw_reply_error_as(x, 502, NULL, NULL, NULL,
			"the prompt could not be prefilled, and pd.fallback is off");
		return KVW_STEP_ANSWERED;
	}
	return KVW_STEP_ON;
}

/* Counts a whole request of a prefiller; one that is named there, or tries it, is neither plan. */
static void count_whole(const struct kvw_exchange *x)
{
	const struct kvw_attempt *a = &x->attempt;

	if (a->worker->config.role != KVW_ROLE_PREFILL || x->pin.len > 0 ||
		a->decision.reason == KVW_REASON_TRIAL)
		return;
	kvw_metrics_pd_plan(x->loop->metrics, a->decision.reason == KVW_REASON_PREFILLER
						      ? KVW_PD_PLAN_PREFILLER_HERE
						      : KVW_PD_PLAN_PREFILLER_ALONE);
}

static enum kvw_stepped prefill_run(struct kvw_exchange *x, struct kvw_way *way)
{
	enum kvw_stepped stepped = x->pd != NULL ? go_on(x, way) : KVW_STEP_ON;

	if (stepped == KVW_STEP_ON)
		count_whole(x);
	return stepped;
}

static bool prefill_needed(const struct kvw_loop *loop, const struct kvw_config *config)
{
	(void)loop;
	return config->pd_transfer != KVW_PD_TRANSFER_OFF;
}

const struct kvw_step kvw_step_prefill = {
	.name = "prefill",
	.acts = true,
	.needed = prefill_needed,
	.run = prefill_run,
};
