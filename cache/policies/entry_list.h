/*
 * entry_list.h - lists of entries, from newest to oldest, that need no memory besides an array of
 * links.
 *
 * The lists of a policy share one array of links; an entry is on at most one of them. Links hold
 * numbers + 1, so that memory from calloc is a set of empty lists, and pages of unused entries are
 * never touched. 8 bytes per entry.
 *
 * The search for the oldest entry that may be evicted passes entries that may not: inner chunks of
 * a chain that were inserted before their children, pinned ones, held ones. The passed entries move
 * as many places towards the newer end as the walk was long, so that the next walks do not meet
 * them at once: the k evictions before the same entries are met again pay for a walk of k steps,
 * two steps per eviction in the long run. The move reverses the entries' order, because a chain
 * that was inserted from its root on has the root oldest, and can only leave from its other end.
 */
#ifndef KVT_ENTRY_LIST_H
#define KVT_ENTRY_LIST_H

#include "policies/policy.h"

struct kvt_links {
	uint32_t newer, older; /* entry + 1; 0: none */
};

struct kvt_entry_list {
	uint32_t newest, oldest; /* entry + 1; 0: empty */
	uint32_t count;
};

void kvt_entry_list_add(struct kvt_entry_list *list, struct kvt_links *links, uint32_t entry);
void kvt_entry_list_remove(struct kvt_entry_list *list, struct kvt_links *links, uint32_t entry);
/* Makes an entry of the list the newest. */
void kvt_entry_list_renew(struct kvt_entry_list *list, struct kvt_links *links, uint32_t entry);
/* Returns the oldest entry that may be evicted, which stays in its place; KVT_NO_ENTRY: there is
 * none. */
uint32_t kvt_entry_list_victim(struct kvt_entry_list *list, struct kvt_links *links,
	bool (*may)(void *self, uint32_t entry), void *self);

#endif
