/*
 * neighbours.h - lets the caches of one machine see how much memory each may still take.
 *
 * An arena's memory is taken as chunks arrive, so that "available" still includes memory that an
 * open cache will use. Every cache has a record in one file of its user (own_file.h); the record
 * counts as long as its process holds a lock. Containers see that file if they share /dev/shm.
 */
#ifndef KVT_NEIGHBOURS_H
#define KVT_NEIGHBOURS_H

#include <stdint.h>

#include "memory/sizing.h"

/* A smaller cache is not worth a record. */
#define KVT_NEIGHBOURS_LEAST ((uint64_t)64 << 20)

/* A cache's record in that file. */
struct kvt_neighbours {
	int fd; /* an open file, which holds the record's lock; -1: none */
	uint32_t slot;
	uint64_t touched; /* bytes in memory, as written in the record */
	char why[KVT_REASON_BYTES]; /* why the other caches are unknown; "": they are known */
};

/*
 * Reads the other records: sets siblings, others and untouched of *m. ranks: of the caller's
 * engine; caches with the same number and session are its siblings. folder: NULL for the machine's
 * own, /dev/shm. If the file cannot be used the cache counts as alone, *n stays without a record,
 * and n->why has the cause. Until kvt_neighbours_enter or _leave is called, other callers wait (at
 * most 0.2 s; then they continue without the lock).
 */
void kvt_neighbours_look(
	struct kvt_neighbours *n, const char *folder, uint32_t ranks, struct kvt_machine *m);

/* Takes a record for a cache of `bytes` bytes. */
void kvt_neighbours_enter(struct kvt_neighbours *n, uint32_t ranks, uint64_t bytes);

/* Notes how many of these bytes are in memory now. */
void kvt_neighbours_touch(struct kvt_neighbours *n, uint64_t touched);

void kvt_neighbours_leave(struct kvt_neighbours *n);

#endif
