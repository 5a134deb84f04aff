/*
 * disk_loss.c - makes the disk that would be found after a kill or a loss of power.
 *
 * The pass over the record follows the order in which events took effect: finished events by their
 * moment, then those under way. Each event is sure, or its fate is drawn: kept, lost, or (writes)
 * torn into pages. Fates are drawn first, since a kept page implies all earlier writes of the same
 * page: a device receives a page as it was in memory at some time, never a mixture of two such
 * pages. Then the events are applied to a copy of the state at the record's beginning.
 *
 * Each history has a style, so that the extremes (all lost, all kept) are as frequent as mixtures.
 */
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "io/testing/disk_state.h"

/* The fate of one inode in the loss. */
struct lost_inode {
	struct disk_inode *to;
	uint64_t safe_until; /* finished writes up to this moment are safe */
	bool stopped;        /* a change of length was lost, and so are all later ones */
	/* for each page: 1 + the place, in the order of effects, of the last write that is kept */
	uint32_t *last;
	uint64_t pages;
};

enum fate { LOST, KEPT, FIRST_PAGES, LAST_PAGES, SOME_PAGES };

struct loss {
	struct kvt_disk *from, *to;
	enum kvt_disk_end end;
	uint64_t moment;
	uint64_t random;
	uint32_t losing; /* how many of 256 unsafe events are lost; 0: none, 256: all */
	bool journal;    /* changes of names are kept up to a random point, as by a journal */
	bool names_stopped;
	struct lost_inode *inodes;
	size_t inode_count;
	size_t *order; /* indexes of events in the order in which they took effect */
	size_t count;
};

/* --- sure events ------------------------------------------------------------------------------ */

static uint64_t effect_of(const struct loss *l, const struct disk_event *e)
{
	return e->finished <= l->moment ? e->finished : UINT64_MAX / 2 + e->begun;
}

/* Returns the moment up to which finished changes of a folder's names are safe. */
static uint64_t folder_safe_until(const struct loss *l, const char *folder)
{
	uint64_t until = 0;

	for (size_t i = 0; i < l->from->log.count; i++) {
		const struct disk_event *e = &l->from->log.items[i];

		if (e->kind == DISK_SYNC_FOLDER && e->finished <= l->moment && e->begun > until &&
			strcmp(e->folder, folder) == 0)
			until = e->begun;
	}
	return until;
}

static bool sure(const struct loss *l, const struct disk_event *e)
{
	uint64_t until;

	if (e->finished > l->moment)
		return false;
	if (l->end == KVT_DISK_KILL)
		return true;
	if (e->kind == DISK_WRITE || e->kind == DISK_LENGTH)
		until = l->inodes[e->inode->number].safe_until;
	else
		until = folder_safe_until(l, e->folder);
	if (e->kind == DISK_LENGTH && e->finished > until)
		until = folder_safe_until(l, e->inode->folder);
	return e->finished <= until;
}

static bool lose(struct loss *l)
{
	return kvw_random(&l->random) % 256 < l->losing;
}

/* --- writes
 * ------------------------------------------------------------------------------------- */

static enum fate draw_fate(struct loss *l)
{
	static const enum fate torn[] = {KEPT, KEPT, FIRST_PAGES, LAST_PAGES, SOME_PAGES};

	if (l->losing == 0)
		return KEPT;
	if (lose(l))
		return LOST;
	return torn[kvw_random(&l->random) % 5];
}

static void draw_pages(struct loss *l, const struct disk_event *e, size_t place)
{
	struct lost_inode *inode = &l->inodes[e->inode->number];
	uint64_t first = e->offset / KVT_DISK_PAGE;
	uint64_t count = e->bytes == 0 ? 0 : (e->offset + e->bytes - 1) / KVT_DISK_PAGE - first + 1;
	enum fate fate = draw_fate(l);
	uint64_t cut = count == 0 ? 0 : kvw_random(&l->random) % (count + 1);

	for (uint64_t i = 0; i < count; i++) {
		bool keep = fate == KEPT || (fate == FIRST_PAGES && i < cut) ||
			(fate == LAST_PAGES && i >= cut) ||
			(fate == SOME_PAGES && kvw_random(&l->random) % 2 == 0);

		if (keep)
			inode->last[first + i] = (uint32_t)place + 1;
	}
}

static bool apply_write(struct loss *l, const struct disk_event *e, size_t place)
{
	struct lost_inode *inode = &l->inodes[e->inode->number];
	bool all = sure(l, e), ok = true;
	uint64_t at = 0;

	while (ok && at < e->bytes) {
		uint64_t offset = e->offset + at;
		uint64_t n = KVT_DISK_PAGE - offset % KVT_DISK_PAGE;

		if (n > e->bytes - at)
			n = e->bytes - at;
		if (all || inode->last[offset / KVT_DISK_PAGE] > place)
			ok = disk_content_write(&inode->to->now, offset, e->data + at, n);
		at += n;
	}
	return ok;
}

/* --- lengths and names
 * -------------------------------------------------------------------------- */

static void apply_length(struct loss *l, const struct disk_event *e)
{
	struct lost_inode *inode = &l->inodes[e->inode->number];

	if (!sure(l, e)) {
		inode->stopped = inode->stopped || lose(l);
		if (inode->stopped)
			return;
	}
	disk_content_set_length(&inode->to->now, e->offset, e->bytes);
}

static bool apply_name(struct loss *l, const struct disk_event *e)
{
	struct disk_names *names = &l->to->names;
	struct disk_inode *moved;

	if (!sure(l, e)) {
		bool lost = lose(l);

		l->names_stopped = l->names_stopped || lost;
		if (l->journal ? l->names_stopped : lost)
			return true;
	}
	if (e->kind == DISK_CREATE)
		return disk_names_set(
			l->to, names, e->folder, e->name, l->inodes[e->inode->number].to);
	if (e->kind == DISK_REMOVE) {
		(void)disk_names_drop(l->to, names, e->folder, e->name);
		return true;
	}
	moved = disk_names_find(names, e->folder, e->name);
	if (moved == NULL)
		return true;
	if (!disk_names_set(l->to, names, e->folder, e->to, moved))
		return false;
	(void)disk_names_drop(l->to, names, e->folder, e->name);
	return true;
}

/* --- all
 * ---------------------------------------------------------------------------------------- */

static int by_effect(const void *a, const void *b, void *arg)
{
	const struct loss *l = arg;
	uint64_t x = effect_of(l, &l->from->log.items[*(const size_t *)a]);
	uint64_t y = effect_of(l, &l->from->log.items[*(const size_t *)b]);

	return x < y ? -1 : x > y;
}

static bool order_events(struct loss *l)
{
	const struct disk_log *log = &l->from->log;

	l->order = calloc(log->count + 1, sizeof(*l->order));
	if (l->order == NULL)
		return false;
	for (size_t i = 0; i < log->count; i++)
		if (log->items[i].begun <= l->moment)
			l->order[l->count++] = i;
	qsort_r(l->order, l->count, sizeof(*l->order), by_effect, l);
	return true;
}

/* Copies all inodes as they were when the record began, with their data. */
static bool copy_inodes(struct loss *l)
{
	uint32_t number = 0;

	for (const struct disk_inode *i = l->from->inodes; i != NULL; i = i->next)
		l->inode_count++;
	l->inodes = calloc(l->inode_count + 1, sizeof(*l->inodes));
	if (l->inodes == NULL)
		return false;
	for (struct disk_inode *i = l->from->inodes; i != NULL; i = i->next) {
		struct lost_inode *inode = &l->inodes[number];

		i->number = number++;
		inode->to = disk_inode_new(l->to, i->folder, i->id);
		if (inode->to == NULL || !disk_content_copy(&i->base, &inode->to->now))
			return false;
		inode->to->opens = 1; /* this function holds the inode until all names are known */
	}
	for (size_t i = 0; i < l->from->base_names.count; i++) {
		const struct disk_name *n = &l->from->base_names.items[i];

		if (!disk_names_set(l->to, &l->to->names, n->folder, n->name,
			    l->inodes[n->inode->number].to))
			return false;
	}
	return true;
}

static bool look_at_events(struct loss *l)
{
	for (size_t i = 0; i < l->count; i++) {
		const struct disk_event *e = &l->from->log.items[l->order[i]];
		uint64_t pages = (e->offset + e->bytes + KVT_DISK_PAGE - 1) / KVT_DISK_PAGE;
		struct lost_inode *inode;

		if (e->inode == NULL)
			continue;
		inode = &l->inodes[e->inode->number];
		if (e->kind == DISK_SYNC && e->finished <= l->moment &&
			e->begun > inode->safe_until)
			inode->safe_until = e->begun;
		if (e->kind == DISK_WRITE && pages > inode->pages)
			inode->pages = pages;
	}
	for (size_t i = 0; i < l->inode_count; i++) {
		l->inodes[i].last = calloc(l->inodes[i].pages + 1, sizeof(*l->inodes[i].last));
		if (l->inodes[i].last == NULL)
			return false;
	}
	for (size_t i = 0; i < l->count; i++) {
		const struct disk_event *e = &l->from->log.items[l->order[i]];

		if (e->kind == DISK_WRITE && !sure(l, e))
			draw_pages(l, e, i);
	}
	return true;
}

static bool apply(struct loss *l)
{
	bool ok = true;

	for (size_t i = 0; ok && i < l->count; i++) {
		const struct disk_event *e = &l->from->log.items[l->order[i]];

		if (e->kind == DISK_WRITE)
			ok = apply_write(l, e, i);
		else if (e->kind == DISK_LENGTH)
			apply_length(l, e);
		else if (e->kind != DISK_SYNC && e->kind != DISK_SYNC_FOLDER)
			ok = apply_name(l, e);
	}
	return ok;
}

static void loss_finish(struct loss *l)
{
	for (size_t i = 0; i < l->inode_count && l->inodes != NULL; i++) {
		free(l->inodes[i].last);
		if (l->inodes[i].to != NULL) {
			l->inodes[i].to->opens = 0;
			disk_inode_let_go(l->to, l->inodes[i].to);
		}
	}
	free(l->inodes);
	free(l->order);
}

/* Draws which share of the unsafe events is lost: none, all, or any share. */
static uint32_t draw_losing(uint64_t *random)
{
	static const uint32_t often[] = {0, 256, 8, 64, 128, 192, 248};
	uint64_t r = kvw_random(random);

	return r % 4 == 0 ? (uint32_t)(r >> 32) % 257 : often[(r >> 8) % 7];
}

enum kvt_status kvt_disk_after(struct kvt_disk *disk, enum kvt_disk_end end, uint64_t moment,
	uint64_t seed, struct kvt_disk **out)
{
	struct kvt_disk_options options = disk->options;
	struct loss l = {.from = disk, .end = end, .moment = moment, .random = seed};
	bool ok;

	options.seed = seed;
	if (kvt_disk_create(&options, &l.to) != KVT_OK)
		return KVT_ENOMEM;
	l.losing = draw_losing(&l.random);
	l.journal = kvw_random(&l.random) % 3 != 0;
	pthread_mutex_lock(&disk->lock);
	ok = order_events(&l) && copy_inodes(&l) && look_at_events(&l) && apply(&l);
	pthread_mutex_unlock(&disk->lock);
	loss_finish(&l);
	ok = ok && disk_settle(l.to);
	if (!ok) {
		kvt_disk_destroy(l.to);
		return KVT_ENOMEM;
	}
	*out = l.to;
	return KVT_OK;
}
