/*
 * density.c - evicts the chunk from whose room the fewest uses are expected; the policy learns
 * which chunks are used again.
 *
 * Chunks belong to eight classes: those used once, twice, three or four times, up to nine, more;
 * and those not used yet, by their parent: no parent (FRESH), a chunk that all prompts share
 * (POPULAR), or a chain that was used a few times (CONTINUED: the tail of one user's own prompt).
 * Each class is a list in the order of the last use. The policy counts how often chunks of a class
 * are used again, and after how long, while the tier runs (lives.h), including chunks that have
 * left, as long as ghosts remember them. The victim is the oldest leaf of the class whose oldest
 * chunk is worth least.
 *
 * So the policy is like LRU where recency predicts best, and like LFU where frequency does. Many
 * new chunks pass through their own class, as with S3-FIFO and W-TinyLFU. No share of the tier need
 * be configured. The ghost keeps the count of uses after an eviction: without ghosts the policy is
 * no better than LRU.
 *
 * 24 bytes per entry, ghosts for up to four times as many names as entries; every call O(1), and
 * some microseconds each time an eighth of the capacity was inserted.
 */
#include <stdlib.h>

#include "policies/ghosts.h"
#include "policies/lives.h"
#include "policies/policies.h"
#include "policies/queues.h"

enum { FRESH, CONTINUED, POPULAR, USED_ONCE, USED_TWICE, USED_FEW, USED_SEVERAL, USED_OFTEN };

_Static_assert(USED_OFTEN + 1 == KVT_LIFE_CLASSES && KVT_LIFE_CLASSES <= KVT_QUEUES,
	"each class is a queue");

/* Without knowledge, more past uses mean a higher weight. */
static const float weights[KVT_LIFE_CLASSES] = {1, 1, 1, 2, 3, 4, 6, 8};

#define POPULAR_USES 4 /* uses of a parent that many chains share */
#define GHOSTS_EACH  4 /* ghosts per entry, if memory for ghosts allows */

struct density {
	struct kvt_policy base;
	struct kvt_queues queues;
	struct kvt_ghosts ghosts;
	struct kvt_lives lives;
	uint32_t entries;
	uint32_t *began; /* epoch in which each entry's present life began; owned */
};

/* A ghost's note has the epoch, the class and the number of uses. */
#define NOTE_EPOCH_SHIFT 7
#define NOTE_EPOCH_MOST  (UINT32_MAX >> NOTE_EPOCH_SHIFT)
#define NOTE_CLASS_SHIFT 4

static uint32_t note_of(const struct density *d, uint32_t entry)
{
	const struct kvt_mark mark = d->queues.marks[entry];

	return d->began[entry] << NOTE_EPOCH_SHIFT | mark.queue << NOTE_CLASS_SHIFT | mark.uses;
}

/* Ends a life by its note, which has 25 bits of the epoch; the others are taken from the present
 * epoch. */
static void end_noted(struct density *d, uint32_t note, bool with_use)
{
	const uint32_t now = d->lives.epoch;
	const uint32_t age = (now - (note >> NOTE_EPOCH_SHIFT)) & NOTE_EPOCH_MOST;

	kvt_lives_end(&d->lives, note >> NOTE_CLASS_SHIFT & 7, now - age, with_use);
}

static void forgotten(void *self, uint32_t note)
{
	end_noted(self, note, false);
}

static void density_destroy(struct kvt_policy *p)
{
	struct density *d = (struct density *)p;

	if (d == NULL)
		return;
	kvt_queues_finish(&d->queues);
	kvt_ghosts_finish(&d->ghosts);
	free(d->began);
	free(d);
}

static enum kvt_status density_create(
	const struct kvt_policy_options *options, struct kvt_policy **out)
{
	struct density *d = calloc(1, sizeof(*d));
	enum kvt_status status = KVT_ENOMEM;

	if (d == NULL)
		return KVT_ENOMEM;
	d->base.ops = &kvt_policy_density;
	status = kvt_queues_init(&d->queues, options);
	if (status == KVT_OK)
		status = kvt_ghosts_init(&d->ghosts, options->max_ghost_bytes,
			(uint64_t)options->max_entries * GHOSTS_EACH);
	d->began = calloc(options->max_entries, sizeof(*d->began));
	if (status == KVT_OK && d->began == NULL)
		status = KVT_ENOMEM;
	if (status != KVT_OK) {
		density_destroy(&d->base);
		return status;
	}
	d->ghosts.forgotten = forgotten;
	d->ghosts.self = d;
	kvt_lives_init(&d->lives, d->queues.capacity, weights);
	*out = &d->base;
	return KVT_OK;
}

static unsigned class_of_uses(unsigned uses)
{
	static const uint8_t classes[] = {FRESH, USED_ONCE, USED_TWICE, USED_FEW, USED_FEW,
		USED_SEVERAL, USED_SEVERAL, USED_SEVERAL, USED_SEVERAL, USED_SEVERAL};

	return uses < sizeof(classes) ? classes[uses] : USED_OFTEN;
}

/* Returns the class of a chunk that was not used yet: by its parent's uses, or, if those are 0, the
 * parent's class. */
static unsigned class_of_new(const struct density *d, uint32_t parent)
{
	struct kvt_mark mark;

	if (parent == 0)
		return FRESH;
	mark = d->queues.marks[parent - 1];
	if (mark.uses > 0)
		return mark.uses < POPULAR_USES ? CONTINUED : POPULAR;
	return mark.queue;
}

static void begin(struct density *d, uint32_t entry)
{
	d->began[entry] = d->lives.epoch;
	kvt_lives_begin(&d->lives, d->queues.marks[entry].queue);
}

static void density_added(struct kvt_policy *p, uint32_t entry, const struct kvt_policy_item *item)
{
	struct density *d = (struct density *)p;
	unsigned uses = 0;
	uint32_t note;

	if (kvt_ghosts_recall(&d->ghosts, item->name, &note) >= 0) {
		end_noted(d, note, true);
		uses = note & KVT_MAX_USES;
		uses += uses < KVT_MAX_USES;
	}
	kvt_queues_add(&d->queues, uses > 0 ? class_of_uses(uses) : class_of_new(d, item->parent),
		entry, item);
	d->queues.marks[entry].uses = uses & KVT_MAX_USES;
	begin(d, entry);
	kvt_lives_pass(&d->lives, d->queues.marks[entry].units, ++d->entries);
}

static void density_used(struct kvt_policy *p, uint32_t entry)
{
	struct density *d = (struct density *)p;
	struct kvt_mark *mark = &d->queues.marks[entry];

	kvt_lives_end(&d->lives, mark->queue, d->began[entry], true);
	if (mark->uses < KVT_MAX_USES)
		mark->uses++;
	kvt_queues_move(&d->queues, class_of_uses(mark->uses), entry);
	begin(d, entry);
}

static void density_removed(struct kvt_policy *p, uint32_t entry, bool evicted)
{
	struct density *d = (struct density *)p;
	const struct kvt_mark mark = d->queues.marks[entry];

	d->entries--;
	kvt_queues_remove(&d->queues, entry);
	if (evicted)
		kvt_ghosts_remember(
			&d->ghosts, 0, d->queues.names[entry], mark.units, note_of(d, entry));
	else
		kvt_lives_end(&d->lives, mark.queue, d->began[entry], false);
}

static uint32_t density_victim(
	struct kvt_policy *p, bool (*may)(void *self, uint32_t entry), void *self)
{
	struct density *d = (struct density *)p;
	float worths[KVT_LIFE_CLASSES];
	uint8_t order[KVT_LIFE_CLASSES];
	unsigned count = 0;

	for (unsigned c = 0; c < KVT_LIFE_CLASSES; c++) {
		const uint32_t oldest = d->queues.lists[c].oldest;
		unsigned at = count;

		if (oldest == 0)
			continue;

		const float worth = kvt_lives_worth(&d->lives, c, d->began[oldest - 1]);

		for (; at > 0 && worths[at - 1] > worth; at--) {
			worths[at] = worths[at - 1];
			order[at] = order[at - 1];
		}
		worths[at] = worth;
		order[at] = (uint8_t)c;
		count++;
	}
	return kvt_queues_victim(&d->queues, order, count, may, self);
}

static void density_memory(const struct kvt_policy *p, uint64_t *own, uint64_t *ghosts)
{
	const struct density *d = (const struct density *)p;

	/* the array `began` has a fifth of the size of the others */
	*own = sizeof(*d) + d->queues.own + d->queues.own / 5;
	*ghosts = d->ghosts.bytes;
}

const struct kvt_policy_ops kvt_policy_density = {
	.name = "density",
	.create = density_create,
	.added = density_added,
	.used = density_used,
	.removed = density_removed,
	.victim = density_victim,
	.memory = density_memory,
	.destroy = density_destroy,
};
