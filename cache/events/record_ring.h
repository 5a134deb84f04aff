/*
 * record_ring.h - numbered records of any length in a fixed piece of memory, the newest ones.
 *
 * Every record gets the next number. A new record that needs room replaces the oldest. The memory
 * is allocated once and is a hard limit; its pages cost nothing until they are first written. A
 * record lies in one piece at an address that is a multiple of 8, and stays there until newer
 * records replace it.
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
	uint64_t most;                   /* most records kept, at least 1 */
	uint64_t oldest, next;           /* numbers kept: oldest <= n < next */
	size_t tail;                     /* where the next record may begin */
	size_t held;                     /* bytes of the kept records */
};

/* The first record gets number `first`. KVT_ENOMEM. */
enum kvt_status kvt_record_ring_init(
	struct kvt_record_ring *ring, size_t size, uint64_t most, uint64_t first) KVT_MUST_CHECK;
void kvt_record_ring_finish(struct kvt_record_ring *ring); /* zeroed is allowed */

/*
 * Makes room for the next record, which the caller fills before the next call. NULL: longer than
 * the whole ring; its number is used nevertheless, and its place is empty.
 */
void *kvt_record_ring_add(struct kvt_record_ring *ring, size_t len);

/* Record `number`, one of those kept. len 0: the record was too long to keep. */
const void *kvt_record_ring_at(const struct kvt_record_ring *ring, uint64_t number, size_t *len);

/* Limit of the ring's memory. */
size_t kvt_record_ring_bytes(const struct kvt_record_ring *ring);

#endif
