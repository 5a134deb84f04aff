/*
 * wtinylfu.c - a window for new chunks, and a main part that only the more popular chunks enter.
 *
 * New chunks enter WINDOW. To make room, the policy compares the oldest chunk of WINDOW with the
 * next victim of the main part by how often each name was seen, and the less popular one leaves; a
 * winner from WINDOW moves to the main part. The main part is PROBATION and, for chunks used there,
 * PROTECTED, four fifths of it. (Einziger, Friedman and Manes, ACM TOS 2017.)
 *
 * Differences from the paper: only leaves are evicted, and inner chunks follow their leaves; sizes
 * are units; a chunk's popularity counts its insertion and its uses. Room is made for whole prompts
 * at a time, so WINDOW, meant to be a hundredth of the tier, is as large as the prompts under way
 * if that is more. The policy is strong where few chunks are used often, and weak on conversations,
 * whose chunks are used a second time only after they had to compete. 24 bytes per entry with the
 * sketch, no ghosts.
 */
#include <stdlib.h>

#include "policies/policies.h"
#include "policies/queues.h"
#include "policies/sketch.h"

enum { WINDOW, PROBATION, PROTECTED };

#define WINDOW_PARTS 100 /* WINDOW gets one part in this many of the tier */
#define INNER_MOST   4
#define FREE_PARTS   16 /* no chunk has to compete while at least one part in this many is free */

struct wtinylfu {
	struct kvt_policy base;
	struct kvt_queues queues;
	struct kvt_sketch sketch;
	uint64_t window, protect; /* target sizes in units */
};

static void wtinylfu_destroy(struct kvt_policy *p)
{
	struct wtinylfu *w = (struct wtinylfu *)p;

	if (w == NULL)
		return;
	kvt_queues_finish(&w->queues);
	kvt_sketch_finish(&w->sketch);
	free(w);
}

static enum kvt_status wtinylfu_create(
	const struct kvt_policy_options *options, struct kvt_policy **out)
{
	struct wtinylfu *w = calloc(1, sizeof(*w));
	enum kvt_status status = KVT_ENOMEM;

	if (w == NULL)
		return KVT_ENOMEM;
	w->base.ops = &kvt_policy_wtinylfu;
	status = kvt_queues_init(&w->queues, options);
	if (status == KVT_OK)
		status = kvt_sketch_init(&w->sketch, options->max_entries);
	if (status != KVT_OK) {
		wtinylfu_destroy(&w->base);
		return status;
	}
	w->window = w->queues.capacity / WINDOW_PARTS;
	w->protect = (w->queues.capacity - w->window) / 5 * 4;
	*out = &w->base;
	return KVT_OK;
}

static void wtinylfu_added(struct kvt_policy *p, uint32_t entry, const struct kvt_policy_item *item)
{
	struct wtinylfu *w = (struct wtinylfu *)p;
	const uint64_t *units = w->queues.units;
	const uint64_t nearly_full = w->queues.capacity / FREE_PARTS * (FREE_PARTS - 1);

	kvt_sketch_add(&w->sketch, item->name);
	kvt_queues_add(&w->queues, WINDOW, entry, item);
	while (units[WINDOW] > w->window &&
		units[WINDOW] + units[PROBATION] + units[PROTECTED] < nearly_full)
		kvt_queues_move(&w->queues, PROBATION, w->queues.lists[WINDOW].oldest - 1);
}

static void wtinylfu_used(struct kvt_policy *p, uint32_t entry)
{
	struct wtinylfu *w = (struct wtinylfu *)p;
	const unsigned queue = w->queues.marks[entry].queue;

	kvt_sketch_add(&w->sketch, w->queues.names[entry]);
	kvt_queues_move(&w->queues, queue == WINDOW ? WINDOW : PROTECTED, entry);
	while (w->queues.units[PROTECTED] > w->protect)
		kvt_queues_move(&w->queues, PROBATION, w->queues.lists[PROTECTED].oldest - 1);
}

static void wtinylfu_removed(struct kvt_policy *p, uint32_t entry, bool evicted)
{
	(void)evicted;
	kvt_queues_remove(&((struct wtinylfu *)p)->queues, entry);
}

/* Inner chunks cannot be evicted before their leaves, so they do not compete for the main part: the
 * oldest in WINDOW move there if they were used before, at most a few per call. */
static void let_inner_pass(struct wtinylfu *w, bool (*may)(void *self, uint32_t entry), void *self)
{
	for (unsigned i = 0; i < INNER_MOST && w->queues.units[WINDOW] > w->window; i++) {
		const uint32_t oldest = w->queues.lists[WINDOW].oldest - 1;

		if (kvt_sketch_count(&w->sketch, w->queues.names[oldest]) < 2 || may(self, oldest))
			break;
		kvt_queues_move(&w->queues, PROBATION, oldest);
	}
}

static uint32_t wtinylfu_victim(
	struct kvt_policy *p, bool (*may)(void *self, uint32_t entry), void *self)
{
	static const uint8_t all[] = {PROBATION, PROTECTED, WINDOW};
	struct wtinylfu *w = (struct wtinylfu *)p;
	uint32_t in, out;

	let_inner_pass(w, may, self);
	in = kvt_queues_look(&w->queues, WINDOW, may, self);
	out = kvt_queues_look(&w->queues, PROBATION, may, self);
	if (out == KVT_NO_ENTRY)
		out = kvt_queues_look(&w->queues, PROTECTED, may, self);
	if (out == KVT_NO_ENTRY && in == KVT_NO_ENTRY)
		return kvt_queues_victim(&w->queues, all, 3, may, self);
	if (in == KVT_NO_ENTRY || out == KVT_NO_ENTRY)
		return in == KVT_NO_ENTRY ? out : in;
	if (kvt_sketch_count(&w->sketch, w->queues.names[in]) <=
		kvt_sketch_count(&w->sketch, w->queues.names[out]))
		return in;
	kvt_queues_move(&w->queues, PROBATION, in);
	return out;
}

static void wtinylfu_memory(const struct kvt_policy *p, uint64_t *own, uint64_t *ghosts)
{
	const struct wtinylfu *w = (const struct wtinylfu *)p;

	*own = sizeof(*w) + w->queues.own + w->sketch.bytes;
	*ghosts = 0;
}

const struct kvt_policy_ops kvt_policy_wtinylfu = {
	.name = "wtinylfu",
	.create = wtinylfu_create,
	.added = wtinylfu_added,
	.used = wtinylfu_used,
	.removed = wtinylfu_removed,
	.victim = wtinylfu_victim,
	.memory = wtinylfu_memory,
	.destroy = wtinylfu_destroy,
};
