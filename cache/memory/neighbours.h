/*
 * neighbours.h - the caches of one machine know how much memory each of them may still take.
 *
 * Memory of an arena is taken as chunks come, so that "available" still counts what an open cache has
 * promised itself. Every cache has a record in one file of its user (own_file.h); a lock that dies with
 * its process says whether the record counts. In containers that file is seen by those that share
 * /dev/shm.
 */
#ifndef KVT_NEIGHBOURS_H
#define KVT_NEIGHBOURS_H

#include <stdint.h>

#include "memory/sizing.h"

/* A smaller cache is not worth a record. */
#define KVT_NEIGHBOURS_LEAST ((uint64_t)64 << 20)

/* A cache's place among them. */
struct kvt_neighbours {
	int fd; /* an open file, which holds the record's lock; -1: none */
	uint32_t slot;
	uint64_t touched; /* as the record says */
	char why[KVT_REASON_BYTES]; /* why the others are not known; "": they are */
};

/*
 * Looks at the others: sets siblings, others and untouched of *m. `ranks`: of the caller's engine; others
 * of the same number and session are its siblings. `folder`: NULL for the machine's own, /dev/shm. Where
 * the file cannot be had, a cache is alone, *n stays without a place, and n->why says it.
 * Until kvt_neighbours_enter, or _leave, other callers wait (at most 0.2 s, then they go on as they are).
 */
void kvt_neighbours_look(
	struct kvt_neighbours *n, const char *folder, uint32_t ranks, struct kvt_machine *m);

/* Takes a place with so many bytes. */
void kvt_neighbours_enter(struct kvt_neighbours *n, uint32_t ranks, uint64_t bytes);

/* So many of them are in memory now. */
void kvt_neighbours_touch(struct kvt_neighbours *n, uint64_t touched);

void kvt_neighbours_leave(struct kvt_neighbours *n);

#endif
