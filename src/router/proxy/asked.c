/*
 * asked.c - asks workers in turn for an object.
 *
 * Workers are asked in the order of their numbers, except the first, which the strategy chose. The
 * client gets the last worker's 404. A 404 is no fault of a worker: asking the next one is no
 * retry, and the worker is not graded.
 */
#include "proxy/asked.h"

#include "proxy/tried.h"
#include "proxy/whose.h"

/* Returns whether another worker may be asked after a 404. */
static bool askable(const struct kvw_exchange *x)
{
	if (x->path.made_id.len > 0)
		return (kvw_exchange_is_idempotent(x) ||
			       kvw_path_cancels(x->target, x->path.made_id)) &&
		       (x->whole || x->attempt.body_sent == 0);
	return x->asked.continues && x->whole;
}

/* Returns the position of the next worker to ask. SIZE_MAX: all were asked. */
static size_t next_to_ask(
	const struct kvw_exchange *x, const struct kvw_candidate *items, size_t count)
{
	size_t next = SIZE_MAX;

	for (size_t i = 0; i < count; i++) {
		uint32_t id = items[i].id;

		if (id < x->asked.to || id == x->asked.first ||
			!(items[i].usable || kvw_worker_rests(x->loop->fleet->workers[id])))
			continue;
		if (next == SIZE_MAX || id < items[next].id)
			next = i;
	}
	return next;
}

bool kvw_asked_leaves(struct kvw_exchange *x, const struct kvw_head *head)
{
	struct kvw_fleet_table *table = &x->loop->candidates;
	uint32_t worker = x->attempt.worker->id;

	if (head->status != 404) {
		if (x->asked.asking && head->status < 300 && x->path.made_id.len > 0)
			kvw_whose_take(x, x->path.made_id);
		return false;
	}
	if (x->pin.len > 0 || !askable(x) ||
		(!x->asked.asking && x->attempt.decision.reason == KVW_REASON_OWNER))
		return false;
	if (!x->asked.asking)
		x->asked.first = worker;
	kvw_tried_read_others(x, table);
	if (next_to_ask(x, table->items, table->count) == SIZE_MAX)
		return false;
	x->asked.asking = true;
	kvw_attempt_excused(&x->attempt, KVW_EXCUSE_LACKS, "it does not have what is asked for");
	return true;
}

bool kvw_asked_pick(struct kvw_exchange *x, const struct kvw_candidates *set)
{
	size_t next = x->asked.asking ? next_to_ask(x, set->items, set->count) : SIZE_MAX;

	x->asked.continues = x->route.previous_id.len > 0;
	if (next == SIZE_MAX)
		return false;
	x->asked.to = set->items[next].id + 1;
	x->attempt.decision = (struct kvw_decision){
		.pos = next, .reason = KVW_REASON_OWNER, .worker_id = set->items[next].id};
	return true;
}
