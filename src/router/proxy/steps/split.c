/*
 * split.c - decides whether two workers, one that prefills and one that decodes, would cost less
 * than one alone (pd.h).
 */
#include "proxy/step.h"

#include "admin/explanation.h"
#include "proxy/loop.h"
#include "proxy/pd.h"

static enum kvw_stepped split_run(struct kvw_exchange *x, struct kvw_way *way)
{
	struct kvw_attempt *a = &x->attempt;
	struct kvw_split found;
	bool open;

	if (!kvw_pd_has_roles(x) || !kvw_pd_chooses(x))
		return KVW_STEP_ON;
	open = kvw_pd_begin(x, way->on_lease);
	if (x->pd != NULL)
		x->pd->looked = true;
	if (!open || !kvw_pd_plan(x, &way->set, KVW_SPLIT_ANY, &found))
		return KVW_STEP_ON;
	if (kvw_pd_pick(x, &way->set, way->set.items[found.decoder].id, &a->decision) != KVW_OK) {
		x->pd->state = KVW_PD_UNPLANNED;
		return KVW_STEP_ON;
	}
	a->picked = true;
	a->decision.reason = KVW_REASON_SPLIT;
	a->decision.prefill_ns = (int64_t)found.transfer_ns;
	return KVW_STEP_CHOSEN;
}

static enum kvw_stepped split_dry(struct kvw_exchange *x, struct kvw_way *way)
{
	struct kvw_explanation *e = x->dry;
	struct kvw_split found;
	bool split;

	if (e->none || !kvw_pd_begin(x, NULL))
		return KVW_STEP_ON;
	split = kvw_pd_plan(x, &way->set, KVW_SPLIT_ANY, &found);
	if (!found.has_pair) {
		kvw_explanation_note(e, "no worker can prefill for another");
		return KVW_STEP_ON;
	}
	kvw_explanation_note(e, "%s; %s prefills, %s decodes: %.3f s, of which the transfer %.3f; "
				"one alone: %.3f s",
		split ? "split" : "not split",
		x->loop->fleet->workers[way->set.items[found.prefiller].id]->url,
		x->loop->fleet->workers[way->set.items[found.decoder].id]->url, found.split_ns / 1e9,
		found.transfer_ns / 1e9, found.here_ns / 1e9);
	if (!split)
		return KVW_STEP_ON;
	x->attempt.decision = e->decision;
	x->attempt.decision.pos = found.decoder;
	x->attempt.decision.worker_id = way->set.items[found.decoder].id;
	x->attempt.decision.reason = KVW_REASON_SPLIT;
	return KVW_STEP_CHOSEN;
}

static bool split_needed(const struct kvw_loop *loop, const struct kvw_config *config)
{
	(void)loop;
	return config->pd_transfer != KVW_PD_TRANSFER_OFF;
}

const struct kvw_step kvw_step_split = {
	.name = "split",
	.chooses = true,
	.needed = split_needed,
	.run = split_run,
	.dry = split_dry,
};
