/*
 * roundrobin.c - give each usable worker one request in turn.
 *
 * The cursor is a worker id, not an index. Workers join and leave while we run; an index would then
 * point at a different worker, and a worker would be skipped or served twice. "The next id after the
 * last one served" stays true whatever happened to the set in between, including the loss of that
 * worker.
 *
 * Loops race on the cursor with compare-and-swap: a loser looks again, so two loops never give
 * the same turn away. Cost: O(n) per pick, no allocation.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "routing/choice.h"
#include "routing/strategies.h"

struct roundrobin {
	struct kvw_strategy base;
	struct kvw_prefill_model model;
	_Alignas(64) _Atomic uint64_t cursor; /* id served last + 1; 0 before the first pick */
};

static enum kvw_err roundrobin_create(
	const struct kvw_strategy_options *options, struct kvw_strategy **out)
{
	struct roundrobin *rr = aligned_alloc(64, sizeof(*rr));

	if (rr == NULL)
		return KVW_ENOMEM;
	*rr = (struct roundrobin){.base.ops = &kvw_roundrobin_ops};
	kvw_prefill_model_set(&rr->model, options);
	*out = &rr->base;
	return KVW_OK;
}

static void roundrobin_reconfigure(
	struct kvw_strategy *self, const struct kvw_strategy_options *options)
{
	kvw_prefill_model_set(&((struct roundrobin *)self)->model, options);
}

/* First usable worker with id >= from, else the first usable one at all. */
static bool next_in_turn(const struct kvw_candidates *set, uint64_t from, size_t *pos)
{
	bool found = false;

	for (size_t i = set->count; i-- > 0;) {
		if (!set->items[i].usable)
			continue;
		if (found && set->items[*pos].id >= from && set->items[i].id < from)
			break;
		*pos = i;
		found = true;
	}
	return found;
}

static struct kvw_decision decision_for(const struct roundrobin *rr,
	const struct kvw_route_request *request, const struct kvw_candidates *set, size_t pos,
	int64_t now_ns)
{
	return (struct kvw_decision){
		.pos = pos,
		.reason = KVW_REASON_TURN,
		.prompt_tokens = kvw_request_tokens(request),
		.prefill_ns = kvw_request_prefill_ns(&rr->model, request),
		.queue_ns = kvw_load_queue_ns(set->items[pos].load, now_ns),
		.inflight = kvw_load_inflight(set->items[pos].load),
		.worker_id = set->items[pos].id,
	};
}

static enum kvw_err roundrobin_pick(struct kvw_strategy *self,
	const struct kvw_route_request *request, const struct kvw_candidates *set, int64_t now_ns,
	struct kvw_decision *out)
{
	struct roundrobin *rr = (struct roundrobin *)self;
	uint64_t cursor = atomic_load_explicit(&rr->cursor, memory_order_relaxed);
	size_t chosen = 0;

	do {
		if (!next_in_turn(set, cursor, &chosen))
			return KVW_ENOWORKER;
	} while (!atomic_compare_exchange_weak_explicit(&rr->cursor, &cursor,
		(uint64_t)set->items[chosen].id + 1, memory_order_relaxed, memory_order_relaxed));
	*out = decision_for(rr, request, set, chosen, now_ns);
	return KVW_OK;
}

static enum kvw_err roundrobin_explain(struct kvw_strategy *self,
	const struct kvw_route_request *request, const struct kvw_candidates *set, int64_t now_ns,
	struct kvw_cost *costs, struct kvw_decision *out)
{
	struct roundrobin *rr = (struct roundrobin *)self;
	size_t chosen = 0;

	if (!next_in_turn(set, atomic_load_explicit(&rr->cursor, memory_order_relaxed), &chosen))
		return KVW_ENOWORKER;
	kvw_explain_unweighed(&rr->model, request, set, now_ns, chosen, costs);
	*out = decision_for(rr, request, set, chosen, now_ns);
	return KVW_OK;
}

static void roundrobin_destroy(struct kvw_strategy *self)
{
	free(self); /* base is the first member, so this is the whole object */
}

const struct kvw_strategy_ops kvw_roundrobin_ops = {
	.name = "roundrobin",
	.help = "each usable worker in turn",
	.prepare = KVW_PREPARE_FIELDS,
	.create = roundrobin_create,
	.pick = roundrobin_pick,
	.explain = roundrobin_explain,
	.reconfigure = roundrobin_reconfigure,
	.destroy = roundrobin_destroy,
};
