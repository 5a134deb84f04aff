/*
 * log_ring.c - a bounded ring of bytes for whole lines.
 */
#include "admin/log_ring.h"

#include <stdlib.h>
#include <string.h>

enum kvw_err kvw_log_ring_init(struct kvw_log_ring *ring, size_t size)
{
	size_t rounded = 4096;

	while (rounded < size)
		rounded *= 2;
	ring->data = malloc(rounded);
	if (ring->data == NULL)
		return KVW_ENOMEM;
	ring->size = rounded;
	ring->tail_seen = 0;
	atomic_init(&ring->head, 0);
	atomic_init(&ring->tail, 0);
	atomic_init(&ring->dropped, 0);
	return KVW_OK;
}

void kvw_log_ring_finish(struct kvw_log_ring *ring)
{
	free(ring->data);
	ring->data = NULL;
}

bool kvw_log_ring_put(struct kvw_log_ring *ring, const char *line, size_t len, bool *half)
{
	uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
	size_t at = head & (ring->size - 1);
	size_t first = ring->size - at < len ? ring->size - at : len;

	if (head + len - ring->tail_seen > ring->size / 2) {
		ring->tail_seen = atomic_load_explicit(&ring->tail, memory_order_acquire);
		*half = head + len - ring->tail_seen > ring->size / 2;
	} else {
		*half = false;
	}
	if (head + len - ring->tail_seen > ring->size) {
		atomic_store_explicit(&ring->dropped,
			atomic_load_explicit(&ring->dropped, memory_order_relaxed) + 1,
			memory_order_relaxed);
		return false;
	}
	memcpy(ring->data + at, line, first);
	memcpy(ring->data, line + first, len - first);
	atomic_store_explicit(&ring->head, head + len, memory_order_release);
	return true;
}

size_t kvw_log_ring_take(struct kvw_log_ring *ring, char *out, size_t room)
{
	uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
	uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
	size_t len = head - tail < room ? (size_t)(head - tail) : room;
	size_t at = tail & (ring->size - 1);
	size_t first = ring->size - at < len ? ring->size - at : len;
	const char *end;

	if (len == 0)
		return 0;
	memcpy(out, ring->data + at, first);
	memcpy(out + first, ring->data, len - first);
	end = memrchr(out, '\n', len);
	len = end == NULL ? 0 : (size_t)(end + 1 - out);
	atomic_store_explicit(&ring->tail, tail + len, memory_order_release);
	return len;
}
