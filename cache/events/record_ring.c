/*
 * record_ring.c - places records in the memory, and finds them by number.
 *
 * Records lie one after another; a record that does not fit before the end of the memory begins at
 * 0 again, and the bytes at the end stay unused until the next time round. The table of places
 * makes any record reachable by its number, so that readers keep a number and no address.
 */
#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

#include "events/record_ring.h"

#define ALIGN 8u

enum kvt_status kvt_record_ring_init(
	struct kvt_record_ring *ring, size_t size, uint64_t most, uint64_t first)
{
	*ring = (struct kvt_record_ring){
		.most = most == 0 ? 1 : most, .oldest = first, .next = first};
	ring->size = (size + ALIGN - 1) / ALIGN * ALIGN;
	ring->data = malloc(ring->size == 0 ? ALIGN : ring->size);
	ring->places = calloc(ring->most, sizeof(*ring->places));
	if (ring->data != NULL && ring->places != NULL)
		return KVT_OK;
	kvt_record_ring_finish(ring);
	return KVT_ENOMEM;
}

void kvt_record_ring_finish(struct kvt_record_ring *ring)
{
	free(ring->places);
	free(ring->data);
	*ring = (struct kvt_record_ring){0};
}

static struct kvt_record_place *place_of(const struct kvt_record_ring *ring, uint64_t number)
{
	return &ring->places[number % ring->most];
}

static void drop_oldest(struct kvt_record_ring *ring)
{
	ring->held -= place_of(ring, ring->oldest)->len;
	ring->oldest++;
}

/* Finds the begin of the oldest record that has bytes. Returns false if there is none, and so all
 * memory is free. */
static bool find_head(struct kvt_record_ring *ring, size_t *head)
{
	while (ring->oldest < ring->next && place_of(ring, ring->oldest)->len == 0 &&
		ring->held > 0)
		drop_oldest(ring);
	if (ring->held == 0)
		return false;
	*head = place_of(ring, ring->oldest)->offset;
	return true;
}

/* Finds an offset with `room` free bytes, which is at most the size; drops the oldest records for
 * it. */
static size_t make_room(struct kvt_record_ring *ring, size_t room)
{
	size_t head;

	while (find_head(ring, &head)) {
		if (ring->tail > head) { /* used: from head to tail */
			if (ring->size - ring->tail >= room)
				return ring->tail;
			if (head >= room)
				return 0;
		} else if (head - ring->tail >= room) {
			/* free: from tail to head; none if both are equal */
			return ring->tail;
		}
		drop_oldest(ring);
	}
	return 0;
}

void *kvt_record_ring_add(struct kvt_record_ring *ring, size_t len)
{
	size_t room = (len + ALIGN - 1) / ALIGN * ALIGN, offset;
	bool fits = len > 0 && len <= ring->size && room <= ring->size;

	if (ring->next - ring->oldest == ring->most)
		drop_oldest(ring);
	offset = fits ? make_room(ring, room) : ring->tail;
	*place_of(ring, ring->next) = (struct kvt_record_place){offset, fits ? len : 0};
	ring->next++;
	if (!fits)
		return NULL;
	ring->tail = offset + room;
	ring->held += len;
	return ring->data + offset;
}

const void *kvt_record_ring_at(const struct kvt_record_ring *ring, uint64_t number, size_t *len)
{
	const struct kvt_record_place *place = place_of(ring, number);

	assert(number >= ring->oldest && number < ring->next);
	*len = place->len;
	return ring->data + place->offset;
}

size_t kvt_record_ring_bytes(const struct kvt_record_ring *ring)
{
	return ring->size + ring->most * sizeof(*ring->places);
}
