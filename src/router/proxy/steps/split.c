/*
 * split.c - decides whether two workers, one that prefills and one that decodes, would cost less
 * than one alone (pd.h).
 *
 * Where pd.whole lets workers of role prefill serve whole requests, this step also decides whether
 * one of them serves this request. If none does, the step leaves the workers that decode to the
 * strategy, which does not know the price of the others.
 */
#include "proxy/step.h"

#include "admin/explanation.h"
#include "proxy/loop.h"
#include "proxy/pd.h"

/* Whether a worker of role prefill is the best for the whole request. */
static bool is_stray(const struct kvw_candidates *set, const struct kvw_split *found)
{
	return found->has_here && !found->split &&
	       set->items[found->here].role == KVW_ROLE_PREFILL;
}

/* Takes that worker of the set. */
static bool take(struct kvw_exchange *x, struct kvw_way *way, size_t pos, enum kvw_reason reason)
{
	struct kvw_attempt *a = &x->attempt;

	if (kvw_pd_pick(x, &way->set, way->set.items[pos].id, &a->decision) != KVW_OK)
		return false;
	a->picked = true;
	a->decision.reason = reason;
	return true;
}

/* Plans, and takes the decoder of the pair or a prefiller for the whole request. */
static bool decide(struct kvw_exchange *x, struct kvw_way *way)
{
	struct kvw_split found;

	if (!kvw_pd_plan(x, &way->set, KVW_SPLIT_ANY, &found))
		return is_stray(&way->set, &found) &&
		       take(x, way, found.here, KVW_REASON_PREFILLER);
	if (!take(x, way, found.decoder, KVW_REASON_SPLIT)) {
		x->pd->state = KVW_PD_UNPLANNED;
		return false;
	}
	x->attempt.decision.prefill_ns = (int64_t)found.transfer_ns;
	return true;
}

static enum kvw_stepped split_run(struct kvw_exchange *x, struct kvw_way *way)
{
	bool open;

	if (!kvw_pd_has_roles(x) || !kvw_pd_chooses(x))
		return KVW_STEP_ON;
	open = kvw_pd_begin(x, way->on_lease);
	if (x->pd != NULL)
		x->pd->looked = true;
	if (open && decide(x, way))
		return KVW_STEP_CHOSEN;
	kvw_pd_leave(x, &way->set);
	return KVW_STEP_ON;
}

static const char *url_of(
	const struct kvw_exchange *x, const struct kvw_candidates *set, size_t pos)
{
	return x->loop->fleet->workers[set->items[pos].id]->url;
}

static void note_prices(const struct kvw_exchange *x, const struct kvw_candidates *set,
	const struct kvw_split *found)
{
	if (found->has_pair)
		kvw_explanation_note(x->dry,
			"%s; %s prefills, %s decodes: %.3f s, of which the transfer %.3f; "
			"%s alone: %.3f s",
			found->split ? "split" : "not split", url_of(x, set, found->prefiller),
			url_of(x, set, found->decoder), found->split_ns / 1e9,
			found->transfer_ns / 1e9, url_of(x, set, found->here),
			found->here_ns / 1e9);
	else
		kvw_explanation_note(x->dry, "no worker can prefill for another");
}

/* The strategy's costs and choice of those that decode, in place of those of the comparison. */
static void weigh_others(struct kvw_exchange *x, struct kvw_way *way)
{
	kvw_pd_leave(x, &way->set);
	x->dry->none = x->strategy->ops->explain(x->strategy, &x->route, &way->set, x->loop->now_ns,
			       x->loop->gates.costs, &x->dry->decision) != KVW_OK;
}

static enum kvw_stepped split_dry(struct kvw_exchange *x, struct kvw_way *way)
{
	struct kvw_decision *decision = &x->attempt.decision;
	struct kvw_split found;

	if (x->dry->none || !kvw_pd_begin(x, NULL))
		return KVW_STEP_ON;
	(void)kvw_pd_plan(x, &way->set, KVW_SPLIT_ANY, &found);
	note_prices(x, &way->set, &found);
	if (!found.split && !is_stray(&way->set, &found)) {
		weigh_others(x, way);
		return KVW_STEP_ON;
	}
	*decision = x->dry->decision;
	decision->pos = found.split ? found.decoder : found.here;
	decision->worker_id = way->set.items[decision->pos].id;
	decision->reason = found.split ? KVW_REASON_SPLIT : KVW_REASON_PREFILLER;
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
