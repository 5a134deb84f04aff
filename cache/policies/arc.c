/*
 * arc.c - adaptive replacement: learns how much room recency gets and how much frequency.
 *
 * Chunks seen once are in RECENT, chunks seen again in FREQUENT, each in the order of last use;
 * ghosts remember the chunks that left either queue. A chunk that comes back soon after it left
 * RECENT shows that RECENT was too small, and likewise for FREQUENT; `target` is the size that
 * RECENT should have. (Megiddo and Modha, FAST 2003.)
 *
 * Differences from the paper: only leaves are evicted, so that if no chunk of the queue whose turn
 * it is may be evicted, one of the other queue is; sizes are units and not pages; room is made
 * before the policy sees the new chunk, so the tie rule for chunks that came back from FREQUENT's
 * ghosts is left out. 20 bytes per entry, every call O(1), ghosts for as much as the tier holds.
 */
#include <stdlib.h>

#include "policies/ghosts.h"
#include "policies/policies.h"
#include "policies/queues.h"

enum { RECENT, FREQUENT };

struct arc {
	struct kvt_policy base;
	struct kvt_queues queues;
	struct kvt_ghosts ghosts;
	uint64_t target; /* target size of RECENT, in units, at most the capacity */
};

static void arc_destroy(struct kvt_policy *p)
{
	struct arc *arc = (struct arc *)p;

	if (arc == NULL)
		return;
	kvt_queues_finish(&arc->queues);
	kvt_ghosts_finish(&arc->ghosts);
	free(arc);
}

static enum kvt_status arc_create(const struct kvt_policy_options *options, struct kvt_policy **out)
{
	struct arc *arc = calloc(1, sizeof(*arc));
	enum kvt_status status = KVT_ENOMEM;

	if (arc == NULL)
		return KVT_ENOMEM;
	arc->base.ops = &kvt_policy_arc;
	status = kvt_queues_init(&arc->queues, options);
	if (status == KVT_OK)
		status = kvt_ghosts_init(
			&arc->ghosts, options->max_ghost_bytes, options->max_entries);
	if (status != KVT_OK) {
		arc_destroy(&arc->base);
		return status;
	}
	*out = &arc->base;
	return KVT_OK;
}

/* Makes a queue's target larger after a chunk came back from its ghosts. */
static void adapt(struct arc *arc, unsigned list, uint64_t units)
{
	const uint64_t mine = arc->ghosts.units[list] + units;
	const uint64_t other = arc->ghosts.units[1 - list];
	const uint64_t step = units * (other > mine ? other / mine : 1);

	if (list == RECENT) {
		const uint64_t room = arc->queues.capacity - arc->target;

		arc->target += step < room ? step : room;
	} else {
		arc->target -= step < arc->target ? step : arc->target;
	}
}

static void arc_added(struct kvt_policy *p, uint32_t entry, const struct kvt_policy_item *item)
{
	struct arc *arc = (struct arc *)p;
	uint32_t note;
	const int ghost = kvt_ghosts_recall(&arc->ghosts, item->name, &note);

	kvt_queues_add(&arc->queues, ghost < 0 ? RECENT : FREQUENT, entry, item);
	if (ghost >= 0)
		adapt(arc, (unsigned)ghost, arc->queues.marks[entry].units);
}

static void arc_used(struct kvt_policy *p, uint32_t entry)
{
	kvt_queues_move(&((struct arc *)p)->queues, FREQUENT, entry);
}

static void arc_removed(struct kvt_policy *p, uint32_t entry, bool evicted)
{
	struct arc *arc = (struct arc *)p;
	const struct kvt_mark mark = arc->queues.marks[entry];
	const uint64_t capacity = arc->queues.capacity;

	kvt_queues_remove(&arc->queues, entry);
	if (!evicted)
		return;
	kvt_ghosts_remember(&arc->ghosts, mark.queue, arc->queues.names[entry], mark.units, 0);

	/* RECENT and its ghosts together have at most the tier's capacity, all queues and ghosts at
	 * most twice that. */
	const uint64_t recent = arc->queues.units[RECENT];
	const uint64_t frequent = arc->queues.units[FREQUENT];

	kvt_ghosts_trim(&arc->ghosts, RECENT, recent < capacity ? capacity - recent : 0);

	const uint64_t rest = recent + frequent + arc->ghosts.units[RECENT];

	kvt_ghosts_trim(&arc->ghosts, FREQUENT, rest < 2 * capacity ? 2 * capacity - rest : 0);
}

static uint32_t arc_victim(
	struct kvt_policy *p, bool (*may)(void *self, uint32_t entry), void *self)
{
	struct arc *arc = (struct arc *)p;
	static const uint8_t orders[2][2] = {{RECENT, FREQUENT}, {FREQUENT, RECENT}};
	const bool recent = arc->queues.units[RECENT] > arc->target;

	return kvt_queues_victim(&arc->queues, orders[recent ? 0 : 1], 2, may, self);
}

static void arc_memory(const struct kvt_policy *p, uint64_t *own, uint64_t *ghosts)
{
	const struct arc *arc = (const struct arc *)p;

	*own = sizeof(*arc) + arc->queues.own;
	*ghosts = arc->ghosts.bytes;
}

const struct kvt_policy_ops kvt_policy_arc = {
	.name = "arc",
	.create = arc_create,
	.added = arc_added,
	.used = arc_used,
	.removed = arc_removed,
	.victim = arc_victim,
	.memory = arc_memory,
	.destroy = arc_destroy,
};
