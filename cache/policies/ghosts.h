/*
 * ghosts.h - names of evicted chunks, so that a policy recognises them when they come back.
 *
 * One or two lists share memory of fixed size; a list loses its oldest name when it exceeds its
 * share or no memory is left. 36 bytes a name, of which up to 8 for the table that finds it. A name
 * is 64 bits of a key: two keys with one name can make a policy mistake one for the other, which
 * costs a worse choice and nothing else.
 */
#ifndef KVT_GHOSTS_H
#define KVT_GHOSTS_H

#include "policies/entry_list.h"

#define KVT_GHOST_LISTS 2

struct kvt_ghost;

struct kvt_ghosts {
	struct kvt_entry_list lists[KVT_GHOST_LISTS];
	/* sum of the sizes of the chunks that each list remembers */
	uint64_t units[KVT_GHOST_LISTS];
	uint32_t limit;                  /* limit of names; 0: nothing is remembered */
	/* free: slot + 1 that was freed last; fresh: first slot that was never used */
	uint32_t free, fresh;
	uint32_t mask;                   /* mask of the table */
	uint64_t bytes;                  /* allocated */
	struct kvt_ghost *items;         /* ghosts by slot; owned, like the next two members */
	struct kvt_links *links;
	uint32_t *table; /* slot + 1 of the first ghost of each chain */
	/* NULL, or called with the note of each name that is dropped although it has not come
	 * back. */
	void (*forgotten)(void *self, uint32_t note);
	void *self;
};

/* Allocates memory of at most max_bytes, for at most `wanted` names. */
enum kvt_status kvt_ghosts_init(
	struct kvt_ghosts *g, uint64_t max_bytes, uint64_t wanted) KVT_MUST_CHECK;
void kvt_ghosts_finish(struct kvt_ghosts *g);

/* Adds a name as the newest of a list. If no slot is free, the oldest name of the longer list is
 * dropped. The policy chooses the meaning of `note`. */
void kvt_ghosts_remember(
	struct kvt_ghosts *g, unsigned list, uint64_t name, uint32_t units, uint32_t note);
/* Removes a name that came back, and sets its note; returns the list that had the name; -1: none
 * had it. */
int kvt_ghosts_recall(struct kvt_ghosts *g, uint64_t name, uint32_t *note);
/* Drops the oldest names until the list's sum is at most `units`. */
void kvt_ghosts_trim(struct kvt_ghosts *g, unsigned list, uint64_t units);

#endif
