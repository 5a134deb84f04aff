/*
 * policy.h - the contract of an eviction policy, which chooses the next entry to evict.
 *
 * Entries are numbers below max_entries; a policy keeps its data in arrays of that length, so that
 * it allocates nothing while chunks come and go. A policy never frees an entry: it names a victim.
 * All calls of one instance are made under its owner's lock; the order of the calls is its only
 * clock.
 *
 * Only leaves may be evicted: `may` refuses a chunk with a cached child in the same tier, and one
 * that is pinned or leased. A policy must bound the search past such entries: an entry's children
 * are younger than itself, and the owner reports uses of a chain deepest chunk first, so that the
 * tail of an LRU order is nearly always a leaf.
 *
 * One policy = one file here and one line in policies.def.
 */
#ifndef KVT_POLICY_H
#define KVT_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvtier/kvtier.h"

#define KVT_NO_ENTRY UINT32_MAX

struct kvt_policy_options {
	uint32_t max_entries;
	/* capacity of the tier, which policies with several queues divide among them */
	uint64_t capacity_bytes;
	uint64_t max_ghost_bytes; /* limit of memory for names of evicted chunks */
};

/* Data about a new entry, for a policy. */
struct kvt_policy_item {
	uint64_t name; /* 64 bits of the key, for ghosts and sketches */
	uint64_t bytes;
	uint64_t cost_ns; /* time to compute the chunk again, compared among entries; 0: unknown */
	uint32_t depth;   /* chunks before this one in its chain, as far as known */
	uint32_t parent;  /* entry + 1 of the previous chunk, if that was added; else 0 */
};

struct kvt_policy_ops;

struct kvt_policy {
	const struct kvt_policy_ops *ops;
};

struct kvt_policy_ops {
	const char *name; /* the name in l1_policy */
	enum kvt_status (*create)(
		const struct kvt_policy_options *options, struct kvt_policy **out);
	void (*added)(struct kvt_policy *p, uint32_t entry, const struct kvt_policy_item *item);
	void (*used)(struct kvt_policy *p, uint32_t entry);
	/* Removes an entry. evicted: the policy had chosen it; false: erased, expired or failed,
	 * and no ghost is kept */
	void (*removed)(struct kvt_policy *p, uint32_t entry, bool evicted);
	/* Returns the next victim among the entries that may be evicted, or KVT_NO_ENTRY. The entry
	 * stays until removed(). */
	uint32_t (*victim)(
		struct kvt_policy *p, bool (*may)(void *self, uint32_t entry), void *self);
	/* Returns memory in bytes: *own of per-entry arrays and sketches, *ghosts of ghosts. */
	void (*memory)(const struct kvt_policy *p, uint64_t *own, uint64_t *ghosts);
	void (*destroy)(struct kvt_policy *p); /* NULL is allowed */
};

/* Returns a policy by its name; "default" is one. NULL: there is no such policy. */
const struct kvt_policy_ops *kvt_policy_named(const char *name);
/* Returns all names except "default", NULL-terminated, for messages. */
const char *const *kvt_policy_names(void);

#endif
