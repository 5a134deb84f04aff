/* entry_heap.c - a heap of entries from which those that may not be evicted are set aside. */
#include <stdlib.h>

#include "policies/entry_heap.h"

enum kvt_status kvt_entry_heap_init(struct kvt_entry_heap *heap, uint32_t max_entries)
{
	const size_t n = max_entries;

	*heap = (struct kvt_entry_heap){.max = max_entries};
	heap->slots = calloc(n, sizeof(*heap->slots));
	heap->places = calloc(n, sizeof(*heap->places));
	heap->keys = calloc(n, sizeof(*heap->keys));
	heap->own = n * (sizeof(*heap->slots) + sizeof(*heap->places) + sizeof(*heap->keys));
	if (heap->slots == NULL || heap->places == NULL || heap->keys == NULL) {
		kvt_entry_heap_finish(heap);
		return KVT_ENOMEM;
	}
	return KVT_OK;
}

void kvt_entry_heap_finish(struct kvt_entry_heap *heap)
{
	free(heap->slots);
	free(heap->places);
	free(heap->keys);
	*heap = (struct kvt_entry_heap){0};
}

static void put(struct kvt_entry_heap *heap, uint32_t slot, uint32_t entry)
{
	heap->slots[slot] = entry;
	heap->places[entry] = slot;
}

static void sift_up(struct kvt_entry_heap *heap, uint32_t slot, uint32_t entry)
{
	const uint64_t key = heap->keys[entry];

	while (slot > 0) {
		const uint32_t above = (slot - 1) / 2;

		if (heap->keys[heap->slots[above]] <= key)
			break;
		put(heap, slot, heap->slots[above]);
		slot = above;
	}
	put(heap, slot, entry);
}

static void sift_down(struct kvt_entry_heap *heap, uint32_t slot, uint32_t entry)
{
	const uint64_t key = heap->keys[entry];

	for (;;) {
		uint64_t below = 2 * (uint64_t)slot + 1;

		if (below >= heap->count)
			break;
		if (below + 1 < heap->count &&
			heap->keys[heap->slots[below + 1]] < heap->keys[heap->slots[below]])
			below++;
		if (heap->keys[heap->slots[below]] >= key)
			break;
		put(heap, slot, heap->slots[below]);
		slot = (uint32_t)below;
	}
	put(heap, slot, entry);
}

/* Removes an entry from the heap; the last entry takes its slot. */
static void take_out(struct kvt_entry_heap *heap, uint32_t slot)
{
	const uint32_t moved = heap->slots[--heap->count];

	if (slot == heap->count)
		return;
	if (slot > 0 && heap->keys[heap->slots[(slot - 1) / 2]] > heap->keys[moved])
		sift_up(heap, slot, moved);
	else
		sift_down(heap, slot, moved);
}

void kvt_entry_heap_add(struct kvt_entry_heap *heap, uint32_t entry, uint64_t key)
{
	heap->keys[entry] = key;
	sift_up(heap, heap->count++, entry);
}

static bool waits(const struct kvt_entry_heap *heap, uint32_t entry)
{
	return heap->places[entry] >= heap->max - heap->waiting;
}

void kvt_entry_heap_raise(struct kvt_entry_heap *heap, uint32_t entry, uint64_t key)
{
	heap->keys[entry] = key;
	if (!waits(heap, entry))
		sift_down(heap, heap->places[entry], entry);
}

/* Puts entries that were set aside back. */
static void come_back(struct kvt_entry_heap *heap)
{
	while (heap->waiting > 0) {
		const uint32_t entry = heap->slots[heap->max - heap->waiting];

		heap->waiting--;
		sift_up(heap, heap->count++, entry);
	}
}

void kvt_entry_heap_remove(struct kvt_entry_heap *heap, uint32_t entry)
{
	if (waits(heap, entry)) {
		const uint32_t first = heap->max - heap->waiting--;

		if (heap->places[entry] != first)
			put(heap, heap->places[entry], heap->slots[first]);
	} else {
		take_out(heap, heap->places[entry]);
	}
	if (heap->departures > 0 && --heap->departures == 0)
		come_back(heap);
}

/* Exchanges the keys of the last `count` entries that were set aside; they left the heap in the
 * order of their keys, smallest first. */
static void exchange_keys(struct kvt_entry_heap *heap, uint32_t count)
{
	uint32_t *run = &heap->slots[heap->max - heap->waiting];

	for (uint32_t i = 0; i < count / 2; i++) {
		const uint64_t key = heap->keys[run[i]];

		heap->keys[run[i]] = heap->keys[run[count - 1 - i]];
		heap->keys[run[count - 1 - i]] = key;
	}
}

static uint32_t search(
	struct kvt_entry_heap *heap, bool (*may)(void *self, uint32_t entry), void *self)
{
	uint32_t skipped = 0;

	while (heap->count > 0) {
		const uint32_t entry = heap->slots[0];

		if (may(self, entry))
			break;
		take_out(heap, 0);
		heap->waiting++;
		put(heap, heap->max - heap->waiting, entry);
		skipped++;
	}
	exchange_keys(heap, skipped);
	if (heap->departures == 0)
		heap->departures = skipped;
	return heap->count > 0 ? heap->slots[0] : KVT_NO_ENTRY;
}

uint32_t kvt_entry_heap_victim(
	struct kvt_entry_heap *heap, bool (*may)(void *self, uint32_t entry), void *self)
{
	uint32_t victim = search(heap, may, self);

	/* An entry that was set aside may be evictable by now. */
	if (victim == KVT_NO_ENTRY && heap->waiting > 0) {
		heap->departures = 0;
		come_back(heap);
		victim = search(heap, may, self);
	}
	return victim;
}
