/*
 * record_ring.h - keeps the newest records, of any length, in a fixed piece of memory.
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
	struct kvt_record_place *places; /* owned; the place of record n is at index n % most */
	uint64_t most;                   /* number of records that are kept at most, at least 1 */
	uint64_t oldest, next;           /* numbers kept: oldest <= n < next */
	size_t tail;                     /* offset where the next record may begin */
	size_t held;                     /* bytes of the kept records */
};

/* Initializes a ring whose first record gets number `first`. KVT_ENOMEM. */
enum kvt_status kvt_record_ring_init(
	struct kvt_record_ring *ring, size_t size, uint64_t most, uint64_t first) KVT_MUST_CHECK;
void kvt_record_ring_finish(struct kvt_record_ring *ring); /* zeroed is allowed */

/*
 * Makes room for the next record, which the caller fills before the next call. NULL: the record is
 * longer than the whole ring; its number is used up nevertheless.
 */
void *kvt_record_ring_add(struct kvt_record_ring *ring, size_t len);

/* Returns record `number`, which must be one of those kept. len 0: the record was too long to
 * keep. */
const void *kvt_record_ring_at(const struct kvt_record_ring *ring, uint64_t number, size_t *len);

/* Returns the most bytes of memory that the ring uses. */
size_t kvt_record_ring_bytes(const struct kvt_record_ring *ring);

#endif
