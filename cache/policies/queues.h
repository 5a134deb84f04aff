/*
 * queues.h - what policies with several queues share: entries on up to eight lists, and their
 * sizes.
 *
 * Queues are measured in units, not in entries, since chunks differ in size: a unit is the smallest
 * power of two bytes of which the tier's capacity has fewer than 2^25. 20 bytes per entry.
 */
#ifndef KVT_QUEUES_H
#define KVT_QUEUES_H

#include "policies/entry_list.h"

#define KVT_QUEUES    8
#define KVT_MAX_UNITS ((1u << 25) - 1)
#define KVT_MAX_USES  15

struct kvt_mark {
	uint32_t units : 25; /* the entry's size in units, at least 1 */
	uint32_t queue : 3;
	uint32_t uses : 4; /* uses since the insertion, up to KVT_MAX_USES; counted by the policy */
};

struct kvt_queues {
	struct kvt_entry_list lists[KVT_QUEUES];
	uint64_t units[KVT_QUEUES]; /* sum of the units in each list */
	/* victims that other lists must provide before this list is searched again */
	uint32_t rest[KVT_QUEUES];
	uint64_t capacity;          /* capacity of the tier, in units */
	unsigned shift;             /* a unit is 1 << shift bytes */
	uint64_t own;               /* bytes allocated */
	struct kvt_links *links;    /* links by entry; owned, like the next two members */
	uint64_t *names;
	struct kvt_mark *marks;
};

enum kvt_status kvt_queues_init(
	struct kvt_queues *q, const struct kvt_policy_options *options) KVT_MUST_CHECK;
void kvt_queues_finish(struct kvt_queues *q);

/* Adds an entry as the newest of a queue, with no uses. */
void kvt_queues_add(
	struct kvt_queues *q, unsigned queue, uint32_t entry, const struct kvt_policy_item *item);
/* Moves an entry from its place to the newest of a queue, which may be the same. */
void kvt_queues_move(struct kvt_queues *q, unsigned queue, uint32_t entry);
void kvt_queues_remove(struct kvt_queues *q, uint32_t entry);
/*
 * Returns the oldest entry of a queue that may be evicted, or KVT_NO_ENTRY. A queue that was
 * searched in vain is not searched for as many calls as it has entries.
 */
uint32_t kvt_queues_look(
	struct kvt_queues *q, unsigned queue, bool (*may)(void *self, uint32_t entry), void *self);
/* Returns such an entry of the first of `count` queues that has one, in the given order; if no
 * queue would be searched now, all are. */
uint32_t kvt_queues_victim(struct kvt_queues *q, const uint8_t *order, unsigned count,
	bool (*may)(void *self, uint32_t entry), void *self);

#endif
