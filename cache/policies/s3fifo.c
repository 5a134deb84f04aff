/*
 * s3fifo.c - a small queue through which chunks with one use leave, a main queue, and ghosts.
 *
 * New chunks enter SMALL, a tenth of the tier; from there chunks used at least twice go on to MAIN
 * and the others out, remembered as ghosts; a chunk that comes back while its ghost is remembered
 * enters MAIN at once. MAIN is a clock: a used chunk gets another round for each use, up to three.
 * (Yang et al., SOSP 2023.)
 *
 * Differences from the paper: only leaves are evicted; sizes are units; at most SWEEP chunks change
 * their place in one call, after which the oldest chunk that may go is the victim, so that a call's
 * length is bounded. 20 bytes per entry, ghosts for as much as MAIN holds.
 */
#include <stdlib.h>

#include "policies/ghosts.h"
#include "policies/policies.h"
#include "policies/queues.h"

enum { SMALL, MAIN };

#define SMALL_PARTS 10 /* SMALL gets one part in this many of the tier */
#define MOVE_USES   2  /* uses in SMALL after which a chunk moves to MAIN */
#define MOST_USES   3
#define SWEEP       16

struct s3fifo {
	struct kvt_policy base;
	struct kvt_queues queues;
	struct kvt_ghosts ghosts;
};

static void s3fifo_destroy(struct kvt_policy *p)
{
	struct s3fifo *s3 = (struct s3fifo *)p;

	if (s3 == NULL)
		return;
	kvt_queues_finish(&s3->queues);
	kvt_ghosts_finish(&s3->ghosts);
	free(s3);
}

static enum kvt_status s3fifo_create(
	const struct kvt_policy_options *options, struct kvt_policy **out)
{
	struct s3fifo *s3 = calloc(1, sizeof(*s3));
	enum kvt_status status = KVT_ENOMEM;

	if (s3 == NULL)
		return KVT_ENOMEM;
	s3->base.ops = &kvt_policy_s3fifo;
	status = kvt_queues_init(&s3->queues, options);
	if (status == KVT_OK)
		status = kvt_ghosts_init(
			&s3->ghosts, options->max_ghost_bytes, options->max_entries);
	if (status != KVT_OK) {
		s3fifo_destroy(&s3->base);
		return status;
	}
	*out = &s3->base;
	return KVT_OK;
}

static void s3fifo_added(struct kvt_policy *p, uint32_t entry, const struct kvt_policy_item *item)
{
	struct s3fifo *s3 = (struct s3fifo *)p;
	uint32_t note;
	const bool back = kvt_ghosts_recall(&s3->ghosts, item->name, &note) >= 0;

	kvt_queues_add(&s3->queues, back ? MAIN : SMALL, entry, item);
}

static void s3fifo_used(struct kvt_policy *p, uint32_t entry)
{
	struct kvt_mark *mark = &((struct s3fifo *)p)->queues.marks[entry];

	if (mark->uses < MOST_USES)
		mark->uses++;
}

static void s3fifo_removed(struct kvt_policy *p, uint32_t entry, bool evicted)
{
	struct s3fifo *s3 = (struct s3fifo *)p;
	const struct kvt_mark mark = s3->queues.marks[entry];

	kvt_queues_remove(&s3->queues, entry);
	if (!evicted || mark.queue != SMALL)
		return;
	kvt_ghosts_remember(&s3->ghosts, 0, s3->queues.names[entry], mark.units, 0);
	kvt_ghosts_trim(&s3->ghosts, 0, s3->queues.capacity - s3->queues.capacity / SMALL_PARTS);
}

/* Returns whether the entry has earned another round, which then begins. */
static bool stays(struct s3fifo *s3, uint32_t entry)
{
	struct kvt_mark *mark = &s3->queues.marks[entry];

	if (mark->queue == SMALL) {
		if (mark->uses < MOVE_USES)
			return false;
		mark->uses = 0;
	} else {
		if (mark->uses == 0)
			return false;
		mark->uses--;
	}
	kvt_queues_move(&s3->queues, MAIN, entry);
	return true;
}

static uint32_t s3fifo_victim(
	struct kvt_policy *p, bool (*may)(void *self, uint32_t entry), void *self)
{
	struct s3fifo *s3 = (struct s3fifo *)p;
	static const uint8_t orders[2][2] = {{SMALL, MAIN}, {MAIN, SMALL}};
	uint32_t victim = KVT_NO_ENTRY;

	for (unsigned moved = 0; moved < SWEEP; moved++) {
		const uint64_t small = s3->queues.units[SMALL];
		const bool full = small > s3->queues.capacity / SMALL_PARTS;

		victim = kvt_queues_victim(&s3->queues, orders[full ? 0 : 1], 2, may, self);
		if (victim == KVT_NO_ENTRY || !stays(s3, victim))
			break;
	}
	return victim;
}

static void s3fifo_memory(const struct kvt_policy *p, uint64_t *own, uint64_t *ghosts)
{
	const struct s3fifo *s3 = (const struct s3fifo *)p;

	*own = sizeof(*s3) + s3->queues.own;
	*ghosts = s3->ghosts.bytes;
}

const struct kvt_policy_ops kvt_policy_s3fifo = {
	.name = "s3fifo",
	.create = s3fifo_create,
	.added = s3fifo_added,
	.used = s3fifo_used,
	.removed = s3fifo_removed,
	.victim = s3fifo_victim,
	.memory = s3fifo_memory,
	.destroy = s3fifo_destroy,
};
