/*
 * prefiller.c - picks the prefiller of a pair, also for a decoder that another step has chosen
 * (pd.h).
 */
#include "proxy/step.h"

#include "proxy/loop.h"
#include "proxy/pd.h"

/* Returns whether a chosen worker may still get a prefiller: it was chosen before a pair was looked
 * for, by admission, or by a strategy that computes no costs. A worker that keeps an object which
 * the request names, or that is tried after an ejection, serves the request whole. */
static bool is_open(const struct kvw_exchange *x)
{
	return x->attempt.picked &&
	       (x->pd == NULL ||
		       (!x->pd->looked && (x->pd->state == KVW_PD_UNPLANNED ||
						  x->pd->state == KVW_PD_PREFILLED)));
}

/* Picks the prefiller without the strategy, if it computes no costs: it would take the prefiller
 * for its choice in this session or turn. */
static void pick_prefiller(struct kvw_exchange *x, struct kvw_way *way)
{
	if (!kvw_pd_chooses(x))
		return;
	x->pd->picked = kvw_pd_pick(x, &way->set, x->pd->decision.worker_id, &x->pd->decision) ==
		       KVW_OK;
	if (!x->pd->picked)
		x->pd->state = KVW_PD_ALONE;
}

static enum kvw_stepped prefiller_run(struct kvw_exchange *x, struct kvw_way *way)
{
	struct kvw_decision *decoder = &x->attempt.decision;
	struct kvw_split found;

	if (!kvw_pd_has_roles(x) && x->pd == NULL)
		return KVW_STEP_ON;
	if (is_open(x) && kvw_pd_begin(x, way->on_lease) && kvw_pd_plan(x, &way->set, decoder->pos, &found)) {
		decoder->reason = KVW_REASON_SPLIT;
		decoder->prefill_ns = (int64_t)found.transfer_ns;
	}
	if (x->pd == NULL)
		return KVW_STEP_ON;
	x->pd->looked = false;
	if (x->pd->state == KVW_PD_PLANNED)
		pick_prefiller(x, way);
	return KVW_STEP_ON;
}

static bool prefiller_needed(const struct kvw_loop *loop, const struct kvw_config *config)
{
	(void)loop;
	return config->pd_transfer != KVW_PD_TRANSFER_OFF;
}

const struct kvw_step kvw_step_prefiller = {
	.name = "prefiller",
	.acts = true,
	.needed = prefiller_needed,
	.run = prefiller_run,
};
