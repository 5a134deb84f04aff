/*
 * ghosts.h - names of what was evicted, so that a policy knows it when it comes back.
 *
 * One or two lists in one memory of fixed size; the oldest of a list goes when it is over its
 * share or memory is out. 36 bytes a name, of which up to 8 for the table that finds it. A name is 64
 * bits of a key: two keys with one name can make a policy mistake one for the other, which costs
 * a worse choice and nothing else.
 */
#ifndef KVT_GHOSTS_H
#define KVT_GHOSTS_H

#include "policies/entry_list.h"

#define KVT_GHOST_LISTS 2

struct kvt_ghost;

struct kvt_ghosts {
	struct kvt_entry_list lists[KVT_GHOST_LISTS];
	uint64_t units[KVT_GHOST_LISTS]; /* sum of the sizes of what each list remembers */
	uint32_t limit;                  /* names at once; 0: remembers nothing */
	uint32_t free, fresh;            /* slot + 1 given back last, slots never used */
	uint32_t mask;                   /* of the table */
	uint64_t bytes;                  /* allocated */
	struct kvt_ghost *items;         /* owned, as are the next two; by slot */
	struct kvt_links *links;
	uint32_t *table; /* slot + 1 of the first of a chain */
	/* NULL, or called with the note of each name that goes without having come back. */
	void (*forgotten)(void *self, uint32_t note);
	void *self;
};

/* At most max_bytes, and at most `wanted` names. */
enum kvt_status kvt_ghosts_init(
	struct kvt_ghosts *g, uint64_t max_bytes, uint64_t wanted) KVT_MUST_CHECK;
void kvt_ghosts_finish(struct kvt_ghosts *g);

/* As the newest of a list. Out of slots, the oldest of the longer list goes. The note is the
 * policy's own. */
void kvt_ghosts_remember(
	struct kvt_ghosts *g, unsigned list, uint64_t name, uint32_t units, uint32_t note);
/* Takes out a name that came back, says which list had it, and sets its note; -1: none had. */
int kvt_ghosts_recall(struct kvt_ghosts *g, uint64_t name, uint32_t *note);
/* Drops the oldest until the list's sum is at most `units`. */
void kvt_ghosts_trim(struct kvt_ghosts *g, unsigned list, uint64_t units);

#endif
