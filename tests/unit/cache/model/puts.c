/*
 * puts.c - chunks are put: at once, or reserved, filled and committed or not, with time between.
 */
#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "history_parts.h"

/* A chunk that was just put is there, however little room there is. */
static void after_put(struct history *h, uint32_t id)
{
	struct kvt_key key = oracle_key(id);
	struct kvt_lease *lease = NULL;

	if (model_random_below(h, 2) == 0)
		return;
	if (kvt_get(h->k, &key, 1, 0, &lease) != KVT_OK)
		model_wrong(h, "chunk %u was put a moment ago and is missing", id);
	model_judge_lease(h, id, 1, lease);
	kvt_release(h->k, lease);
}

static void make_item(struct history *h, uint32_t id, struct kvt_item *item, struct kvt_key *parent,
	struct kvt_blocks *blocks, uint8_t hashes[16])
{
	model_make_blocks(id, hashes, blocks);
	*item = (struct kvt_item){
		.size = sizeof(*item),
		.tokens = 16,
		.key = oracle_key(id),
		.bytes = oracle_bytes(&h->oracle, id, model_entry(h, id)->generation),
		.tenant = oracle_tenant(&h->oracle, id),
		.blocks = blocks,
	};
	if (id % h->p->depth > 0) {
		*parent = oracle_key(id - 1);
		item->parent = parent;
	}
}

static void judge_exists(struct history *h, uint32_t id)
{
	if (model_entry(h, id)->presence == GONE && model_entry(h, id)->filling == 0)
		model_wrong(h, "chunk %u is gone and said to exist", id);
}

static bool parent_fills(const struct history *h, uint32_t id)
{
	return id % h->p->depth > 0 && model_is_filled(h, id - 1);
}

/* Refused, since its parent is nowhere: not of a first chunk, nor while the parent is there for certain. */
static void judge_orphan(struct history *h, uint32_t id)
{
	if (id % h->p->depth == 0 || parent_fills(h, id) ||
		(h->p->roomy && model_entry(h, id - 1)->presence == MUST))
		model_wrong(h, "chunk %u is refused as if its parent were nowhere", id);
}

/* A chunk to put: half of them go on where their chain ends, as engines do, so that there is more than fits. */
static uint32_t pick(struct history *h)
{
	uint32_t id = model_pick(h), head = model_head_of(h, id), at = head;

	if (model_random_below(h, 2) == 0)
		return id;
	while (at - head < h->p->depth && (model_entry(h, at)->presence != GONE || model_is_filled(h, at)))
		at++;
	return at - head < h->p->depth ? at : id;
}

void model_do_put(struct history *h)
{
	uint32_t id = pick(h);
	struct kvt_item item;
	struct kvt_key parent;
	struct kvt_blocks blocks;
	uint8_t hashes[16], *bytes;
	enum kvt_status status;

	make_item(h, id, &item, &parent, &blocks, hashes);
	bytes = malloc(item.bytes);
	oracle_fill(&h->oracle, id, model_entry(h, id)->generation, bytes);
	status = kvt_put(h->k, &item, bytes);
	model_trace(h, "chunk %u generation %u: %s", id, model_entry(h, id)->generation,
		kvt_status_text(status));
	free(bytes);
	switch (status) {
	case KVT_OK:
		oracle_committed(&h->oracle, id, model_now(h), model_now(h), parent_fills(h, id));
		after_put(h, id);
		break;
	case KVT_EXISTS:
		judge_exists(h, id);
		oracle_used(&h->oracle, id, model_now(h));
		break;
	case KVT_FULL:
		if (h->p->roomy)
			model_wrong(h, "no room for chunk %u", id);
		break;
	case KVT_MISS:
		judge_orphan(h, id);
		break;
	default:
		model_wrong(h, "put says %s", kvt_status_text(status));
	}
}

static void fill_segments(struct history *h, struct filling *f, size_t i,
	const struct kvt_segment *segments, uint32_t count, uint64_t len)
{
	uint8_t *bytes = malloc(len);
	uint64_t total = 0;

	oracle_fill(&h->oracle, f->ids[i], f->generations[i], bytes);
	for (uint32_t s = 0; s < count; s++)
		total += segments[s].bytes;
	if (total != len)
		model_wrong(h, "%" PRIu64 " bytes of room for %" PRIu64, total, len);
	kvt_fill(segments, count, bytes, len, &f->sums[i]);
	free(bytes);
}

void model_do_reserve(struct history *h)
{
	struct filling *f = &h->filling[model_random_below(h, RESERVATIONS)];
	struct kvt_item items[RESERVED_MAX];
	struct kvt_key parents[RESERVED_MAX];
	struct kvt_blocks blocks[RESERVED_MAX];
	uint8_t hashes[RESERVED_MAX][16];
	const struct kvt_segment *segments = NULL;
	uint32_t counts[RESERVED_MAX] = {0}, first = pick(h),
		 left = h->p->depth - first % h->p->depth;
	enum kvt_status status;

	if (f->reservation != NULL)
		return;
	f->count = 1 + model_random_below(h, RESERVED_MAX);
	f->count = f->count < left ? f->count : left;
	f->reserved_ns = model_now(h);
	for (size_t i = 0; i < f->count; i++) {
		f->ids[i] = first + (uint32_t)i;
		f->generations[i] = model_entry(h, f->ids[i])->generation;
		make_item(h, f->ids[i], &items[i], &parents[i], &blocks[i], hashes[i]);
	}
	status = kvt_put_reserve(
		h->k, items, f->count, &f->reservation, &segments, counts, f->status);
	if ((status == KVT_OK) != (f->reservation != NULL))
		model_wrong(h, "reserve says %s with reservation %p", kvt_status_text(status),
			(void *)f->reservation);
	for (size_t i = 0; i < f->count; i++) {
		model_trace(h, "chunk %u generation %u: %s", f->ids[i], f->generations[i],
			kvt_status_text(f->status[i]));
		if (f->status[i] == KVT_EXISTS)
			judge_exists(h, f->ids[i]);
		else if (f->status[i] == KVT_FULL && h->p->roomy)
			model_wrong(h, "no room for chunk %u", f->ids[i]);
		else if (f->status[i] == KVT_MISS)
			judge_orphan(h, f->ids[i]);
		if (f->status[i] != KVT_OK)
			continue;
		fill_segments(h, f, i, segments, counts[i], items[i].bytes);
		segments += counts[i];
		model_entry(h, f->ids[i])->filling++;
	}
}

/* Commits the first `ready` chunks of a reservation. */
static void commit(struct history *h, struct filling *f, size_t ready)
{
	enum kvt_status status = kvt_put_commit(
		h->k, f->reservation, ready, model_random_below(h, 2) == 0 ? f->sums : NULL);

	model_trace(h, "%zu of %zu chunks from %u: %s", ready, f->count, f->ids[0],
		kvt_status_text(status));
	if (status != KVT_OK && status != KVT_MISS)
		model_wrong(h, "commit says %s", kvt_status_text(status));
	for (size_t i = 0; i < f->count; i++) {
		if (f->status[i] != KVT_OK)
			continue;
		model_entry(h, f->ids[i])->filling--;
		/* erased in the meantime: what was erased must not come back by this */
		if (model_entry(h, f->ids[i])->generation != f->generations[i])
			continue;
		if (i < ready)
			oracle_committed(&h->oracle, f->ids[i], f->reserved_ns, model_now(h),
				parent_fills(h, f->ids[i]));
		else
			oracle_aborted(&h->oracle, f->ids[i]);
		f->status[i] = KVT_MISS; /* it is filled no more */
	}
	oracle_age(&h->oracle, model_now(h));
	f->reservation = NULL;
}

void model_abort_filling(struct history *h, struct filling *f)
{
	kvt_put_abort(h->k, f->reservation);
	for (size_t i = 0; i < f->count; i++)
		if (f->status[i] == KVT_OK) {
			model_entry(h, f->ids[i])->filling--;
			if (model_entry(h, f->ids[i])->generation == f->generations[i])
				oracle_aborted(&h->oracle, f->ids[i]);
		}
	f->reservation = NULL;
}

void model_do_finish(struct history *h)
{
	struct filling *f = &h->filling[model_random_below(h, RESERVATIONS)];

	if (f->reservation == NULL)
		return;
	if (model_random_below(h, 4) == 0)
		model_abort_filling(h, f);
	else
		commit(h, f,
			model_random_below(h, 3) == 0 ? model_random_below(h, f->count + 1)
						      : f->count);
}
