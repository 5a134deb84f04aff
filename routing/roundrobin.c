/*
 * roundrobin.c - gives each usable worker one request in turn.
 *
 * The cursor is a worker id, not an index. Workers join and leave; an index would then point at a
 * different worker, and a worker would be skipped or served twice. "The next id after the last one
 * served" stays valid after any change of the set, including the loss of that worker.
 *
 * Rounds are counted with the cursor. A worker with a limited share has a turn in that part of the
 * rounds; if all shares are limited, parts are relative to the largest.
 *
 * Loops race on the cursor with compare-and-swap: a loser tries again, so two loops never use the
 * same turn. Cost: O(n) per pick, no allocation.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "routing/choice.h"
#include "routing/strategies.h"

struct roundrobin {
	struct kvw_strategy base;
	struct kvw_prefill_model model;
	/* Low half: id of the last served worker + 1; 0 before the first pick. High half: the
	 * round. */
	_Alignas(64) _Atomic uint64_t cursor;
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

/* Returns the largest share of a usable worker. */
static double largest_share(const struct kvw_candidates *set)
{
	double largest = 0;

	for (size_t i = 0; i < set->count; i++)
		if (set->items[i].usable && set->items[i].share > largest)
			largest = set->items[i].share;
	return largest;
}

/* Returns whether a worker with this part (0 to 1) of the turns has a turn in this round: turns are
 * spread evenly, and differ between workers. */
static bool has_turn(uint32_t round, double part, uint32_t worker)
{
	uint64_t step = part < 1 ? (uint64_t)(part * 0x1p32) : UINT64_C(1) << 32;

	/* A sum that starts at a value of the worker's own and grows by `step` each round: the
	 * worker has a turn when it wraps. */
	return (uint32_t)(round * step + worker * UINT32_C(0x9E3779B9)) < step;
}

/* Finds the first usable worker from the cursor on that has a turn in its round, and moves the
 * cursor past it. In each round a worker of the largest share has a turn. */
static bool next_in_turn(const struct kvw_candidates *set, uint64_t *cursor, size_t *pos)
{
	size_t at = kvw_place_from(set, (uint32_t)*cursor);
	uint32_t round = (uint32_t)(*cursor >> 32);
	double largest = 0; /* not computed yet */

	for (size_t i = 0; i < 2 * set->count; i++, at++) {
		const struct kvw_candidate *c;

		if (at == set->count) {
			at = 0;
			round++;
		}
		c = &set->items[at];
		if (!c->usable)
			continue;
		if (c->share < 1 && largest <= 0)
			largest = largest_share(set);
		if (c->share < 1 && largest > 0 && !has_turn(round, c->share / largest, c->id))
			continue;
		*pos = at;
		*cursor = (uint64_t)round << 32 | (c->id + 1);
		return true;
	}
	return false;
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
	uint64_t next = 0;
	size_t chosen = 0;

	do {
		next = cursor;
		if (!next_in_turn(set, &next, &chosen))
			return KVW_ENOWORKER;
	} while (!atomic_compare_exchange_weak_explicit(
		&rr->cursor, &cursor, next, memory_order_relaxed, memory_order_relaxed));
	*out = decision_for(rr, request, set, chosen, now_ns);
	return KVW_OK;
}

static enum kvw_err roundrobin_explain(struct kvw_strategy *self,
	const struct kvw_route_request *request, const struct kvw_candidates *set, int64_t now_ns,
	struct kvw_cost *costs, struct kvw_decision *out)
{
	struct roundrobin *rr = (struct roundrobin *)self;
	uint64_t cursor = atomic_load_explicit(&rr->cursor, memory_order_relaxed);
	size_t chosen = 0;

	if (!next_in_turn(set, &cursor, &chosen))
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
