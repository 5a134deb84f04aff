/*
 * prefiller.c - the other worker of a pair: of a decoder that admission has chosen, too. (pd.h)
 */
#include "proxy/step.h"

#include "proxy/loop.h"
#include "proxy/pd.h"

/* No pair was looked for, as admission has chosen. A worker that keeps what the request names, or is
 * tried after its ejection, serves it whole. */
static bool was_admitted(const struct kvw_exchange *x)
{
	return !x->pd.looked && x->admission.entered && x->attempt.picked;
}

static enum kvw_stepped prefiller_run(struct kvw_exchange *x, struct kvw_way *way)
{
	struct kvw_decision *decoder = &x->attempt.decision;
	struct kvw_split found;

	if (x->pd.state == KVW_PD_UNPLANNED && was_admitted(x) && kvw_pd_begin(x) &&
		kvw_pd_plan(x, &way->set, decoder->pos, &found)) {
		decoder->reason = KVW_REASON_SPLIT;
		decoder->prefill_ns = (int64_t)found.transfer_ns;
	}
	x->pd.looked = false;
	if (x->pd.state == KVW_PD_PLANNED &&
		kvw_pd_pick(x, &way->set, x->pd.decision.worker_id, &x->pd.decision) != KVW_OK)
		x->pd.state = KVW_PD_ALONE;
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
