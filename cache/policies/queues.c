/*
 * queues.c - what policies with several queues share: entries on up to eight lists, and their
 * sizes.
 */
#include <stdlib.h>

#include "policies/queues.h"

enum kvt_status kvt_queues_init(struct kvt_queues *q, const struct kvt_policy_options *options)
{
	const size_t n = options->max_entries;

	*q = (struct kvt_queues){0};
	while (options->capacity_bytes >> q->shift > KVT_MAX_UNITS)
		q->shift++;
	q->capacity = options->capacity_bytes >> q->shift;
	q->links = calloc(n, sizeof(*q->links));
	q->names = calloc(n, sizeof(*q->names));
	q->marks = calloc(n, sizeof(*q->marks));
	q->own = n * (sizeof(*q->links) + sizeof(*q->names) + sizeof(*q->marks));
	if (q->links == NULL || q->names == NULL || q->marks == NULL) {
		kvt_queues_finish(q);
		return KVT_ENOMEM;
	}
	return KVT_OK;
}

void kvt_queues_finish(struct kvt_queues *q)
{
	free(q->links);
	free(q->names);
	free(q->marks);
	*q = (struct kvt_queues){0};
}

static uint32_t units_of(const struct kvt_queues *q, uint64_t bytes)
{
	const uint64_t units = bytes >> q->shift;

	if (units >= KVT_MAX_UNITS)
		return KVT_MAX_UNITS;
	return units == 0 ? 1 : (uint32_t)units;
}

void kvt_queues_add(
	struct kvt_queues *q, unsigned queue, uint32_t entry, const struct kvt_policy_item *item)
{
	const uint32_t units = units_of(q, item->bytes);

	q->names[entry] = item->name;
	q->marks[entry] = (struct kvt_mark){.units = units & KVT_MAX_UNITS, .queue = queue & 7};
	q->units[queue] += units;
	kvt_entry_list_add(&q->lists[queue], q->links, entry);
}

void kvt_queues_move(struct kvt_queues *q, unsigned queue, uint32_t entry)
{
	struct kvt_mark *mark = &q->marks[entry];

	kvt_entry_list_remove(&q->lists[mark->queue], q->links, entry);
	q->units[mark->queue] -= mark->units;
	mark->queue = queue & 7;
	q->units[queue] += mark->units;
	kvt_entry_list_add(&q->lists[queue], q->links, entry);
}

void kvt_queues_remove(struct kvt_queues *q, uint32_t entry)
{
	const struct kvt_mark mark = q->marks[entry];

	kvt_entry_list_remove(&q->lists[mark.queue], q->links, entry);
	q->units[mark.queue] -= mark.units;
}

uint32_t kvt_queues_look(
	struct kvt_queues *q, unsigned queue, bool (*may)(void *self, uint32_t entry), void *self)
{
	uint32_t victim = KVT_NO_ENTRY;

	if (q->rest[queue] > 0) {
		q->rest[queue]--;
		return KVT_NO_ENTRY;
	}
	victim = kvt_entry_list_victim(&q->lists[queue], q->links, may, self);
	if (victim == KVT_NO_ENTRY)
		q->rest[queue] = q->lists[queue].count;
	return victim;
}

uint32_t kvt_queues_victim(struct kvt_queues *q, const uint8_t *order, unsigned count,
	bool (*may)(void *self, uint32_t entry), void *self)
{
	uint32_t victim = KVT_NO_ENTRY;

	for (unsigned i = 0; i < count && victim == KVT_NO_ENTRY; i++)
		victim = kvt_queues_look(q, order[i], may, self);
	for (unsigned i = 0; i < count && victim == KVT_NO_ENTRY; i++) {
		q->rest[order[i]] = 0;
		victim = kvt_queues_look(q, order[i], may, self);
	}
	return victim;
}
