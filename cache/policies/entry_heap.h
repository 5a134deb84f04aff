/*
 * entry_heap.h - entries ordered by a number, the smallest first. 16 bytes per entry.
 *
 * The search for the smallest entry that may go removes entries that may not (inner chunks, pinned,
 * held ones). These wait after the heap's end in the same memory, until as many chunks have left as
 * their first search removed; so the departures before the same entries are met again pay for a
 * search. The removal reverses the order of these entries' keys, for the same reason for which
 * entry_list.h reverses its entries.
 */
#ifndef KVT_ENTRY_HEAP_H
#define KVT_ENTRY_HEAP_H

#include "policies/policy.h"

struct kvt_entry_heap {
	uint32_t *slots;     /* entries, owned: the heap from 0 on, entries that wait at the end */
	uint32_t *places;    /* slot of each entry; owned */
	uint64_t *keys;      /* owned: by entry */
	uint32_t max;        /* slots */
	uint32_t count;      /* entries in the heap */
	uint32_t waiting;    /* behind it */
	uint32_t departures; /* evictions left until the waiting entries return */
	uint64_t own;        /* bytes allocated */
};

enum kvt_status kvt_entry_heap_init(
	struct kvt_entry_heap *heap, uint32_t max_entries) KVT_MUST_CHECK;
void kvt_entry_heap_finish(struct kvt_entry_heap *heap);

void kvt_entry_heap_add(struct kvt_entry_heap *heap, uint32_t entry, uint64_t key);
/* Raises an entry's key. Keys only grow. */
void kvt_entry_heap_raise(struct kvt_entry_heap *heap, uint32_t entry, uint64_t key);
void kvt_entry_heap_remove(struct kvt_entry_heap *heap, uint32_t entry);
/* Returns the smallest entry that may be evicted, which stays in the heap; KVT_NO_ENTRY: there is
 * none. */
uint32_t kvt_entry_heap_victim(
	struct kvt_entry_heap *heap, bool (*may)(void *self, uint32_t entry), void *self);

#endif
