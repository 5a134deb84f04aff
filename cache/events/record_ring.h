/*
 * record_ring.h - numbered records of any length in a fixed piece of memory, the newest ones.
 *
 * Every record gets the next number. When a new one needs room, the oldest go. The memory is taken
 * once and is a hard limit; its pages cost nothing until they are first written. A record lies in
 * one piece at an address that is a multiple of 8, and stays there until newer ones push it out.
 *
 * Not thread-safe: the owner has a lock, or one thread.
 */
#ifndef KVT_RECORD_RING_H
#define KVT_RECORD_RING_H

#include <stddef.h>
#include <stdint.h>

#include "kvtier/kvtier.h"

struct kvt_record_place {
	size_t offset, len;
};

struct kvt_record_ring {
	uint8_t *data; /* owned, `size` bytes */
	size_t size;
	struct kvt_record_place *places; /* owned; record n is at n % most */
	uint64_t most;                   /* records kept at most, at least 1 */
	uint64_t oldest, next;           /* numbers kept: oldest <= n < next */
	size_t tail;                     /* where the next one may begin */
	size_t held;                     /* bytes of the records that are kept */
};

/* The first record gets number `first`. KVT_ENOMEM. */
enum kvt_status kvt_record_ring_init(
	struct kvt_record_ring *ring, size_t size, uint64_t most, uint64_t first) KVT_MUST_CHECK;
void kvt_record_ring_finish(struct kvt_record_ring *ring); /* zeroed is allowed */

/*
 * Room for the next record, to be filled before the next call. NULL: longer than the whole ring;
 * its number is used up all the same, and its place is empty.
 */
void *kvt_record_ring_add(struct kvt_record_ring *ring, size_t len);

/* Record `number`, which is one of those kept. len 0: it was too long to keep. */
const void *kvt_record_ring_at(const struct kvt_record_ring *ring, uint64_t number, size_t *len);

/* Memory that the ring may come to use. */
size_t kvt_record_ring_bytes(const struct kvt_record_ring *ring);

#endif
