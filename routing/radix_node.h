/*
 * radix_node.h - the memory of the prefix tree: slots of 256 bytes, and the locks of their fields.
 *
 * A slot is a node or, for a node with more than KVW_NODE_HOLDERS holders, an overflow list of
 * them. Slots have one size, so memory never fragments and their number keeps the byte limit. They
 * are reused but never unmapped: a late reader may find a wrong slot, never a wrong address, and
 * detects the wrong slot by its key.
 *
 * Fixed while a node is published: key, length, place, hashes, tokens, parent. Changing: holders
 * (under the node's lock, each entry one atomic word), refs, stamp, child. Readers load words with
 * acquire, holders before the key; reuse clears the key before anything else is stored: a reader
 * that saw a foreign holder sees a foreign key as well.
 *
 * refs counts children and the inserts that are attaching one, above KVW_NODE_LIVE. 0 is a slot
 * that is fresh, free, being built, or an overflow. Only a live node without references may be
 * evicted (LIVE -> 0), and no reference can be taken on a dead node, so a node's ancestors outlive
 * it. Eviction takes no lock: it marks the node dead, then checks whether the lock is held, and if
 * so marks it live again. A thread that takes the lock checks refs afterwards. So at least one of
 * the two threads sees the other.
 *
 * Order of locks: node, then pool or table shard, then view. A thread that may hold another node's
 * lock only tries to lock a node and never waits.
 */
#ifndef KVW_RADIX_NODE_H
#define KVW_RADIX_NODE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "routing/prefetch.h"
#include "routing/radix.h"
#include "routing/radix_scan.h"
#include "routing/radix_table.h"
#include "routing/radix_view.h"

#define KVW_NODE_WORDS    27
/* words 0 to 17 of a node are holders; the other words have parts of its hashes, three in a word */
#define KVW_NODE_HOLDERS  18
#define KVW_NODE_LIVE     UINT32_C(0x80000000)
#define KVW_POOLS         16
#define KVW_STAMP_SHIFT   24 /* shift from ns to units of a stamp, 16.8 ms */
#define KVW_EVICT_SAMPLES 5 /* nodes that an eviction samples */

struct kvw_slot {
	atomic_bool lock;          /* guards holders and overflow */
	_Atomic uint8_t length;    /* number of chunks in the run */
	_Atomic uint8_t used;      /* number of words that are or were holders */
	_Atomic uint8_t place;     /* place of the first chunk in its group */
	_Atomic uint32_t refs;     /* KVW_NODE_LIVE + children and attaching inserts; 0: dead */
	_Atomic uint32_t link;     /* node: its parent, 0: none; free slot: the next free one */
	_Atomic uint32_t stamp;    /* last use, in units of about 17 ms */
	_Atomic uint32_t overflow; /* another slot with more holders; 0: none */
	_Atomic uint32_t tokens;   /* tokens of the whole run */
	_Atomic uint64_t key;      /* hash of the first chunk; 0: not a node */
	/* node: the upper half of its group's spread hash, and its newest child as a hint. */
	_Atomic uint64_t below;
	_Atomic uint64_t word[KVW_NODE_WORDS];
};

/* Free slots. Every thread uses its own pool, so that loops seldom contend, and a thread reuses the
 * slot that it freed last, which is still in its cache. */
struct kvw_pool {
	_Alignas(64) atomic_bool lock; /* guards the next two members */
	_Atomic uint32_t free; /* head of a list by link; 0: empty; read without the lock too */
	/* Slots taken less slots freed; only the sum over all pools is meaningful. */
	int64_t taken;

	/* The members below are hints. Threads that share a pool may overwrite each other's hints,
	 * so that each index is checked before use. */
	_Atomic uint64_t random;                   /* state of the random numbers for eviction */
	/* nodes that were sampled for the next eviction, prefetched */
	_Atomic uint32_t picks[KVW_EVICT_SAMPLES];
	/* the next victim, with its time: last use << 32 | index; 0: none */
	_Atomic uint64_t victim;
	_Atomic uint32_t hand;      /* the next slot of the sweep */
	/* counter that decides when to borrow slots, and from which pool */
	_Atomic uint32_t neighbour;
};

#define KVW_SWEPT_MOST 16

/* Nodes found by a sweep, to be dropped a little later, when the prefetched memory has arrived. */
struct kvw_swept {
	uint32_t count;
	uint32_t nodes[KVW_SWEPT_MOST];
};

struct kvw_radix {
	struct kvw_slot *slots; /* [slot_count]; slot 0 is never used */
	uint32_t slot_count;
	struct kvw_views views;
	void *mapping;
	uint64_t mapped_bytes;
	uint64_t fixed_bytes; /* bytes of the mapping without the slots */
	struct kvw_table table;
	struct kvw_pool pools[KVW_POOLS];

	/* On another cache line than the members that every look-up reads. */
	_Alignas(64) _Atomic uint32_t fresh; /* slots from here on were never used */
	_Atomic uint32_t clock;              /* newest stamp: eviction's present time */
};

/* A holder: worker w holds the run's chunks [0, upto). It last used [0, mid) at `tick`, and the
 * rest `older` ticks before: prompts that end or branch off inside the run use its beginning later
 * than the rest. A third time of use is rounded to one of the two. One word per worker and node; 0:
 * no holder. */
struct kvw_holder {
	uint32_t tick;
	uint32_t worker;
	uint32_t mid; /* 1 to upto */
	uint32_t upto;
	uint32_t older; /* 0 if mid is upto */
};

#define KVW_HOLDER_OLDEST ((UINT32_C(1) << 12) - 1) /* ticks; windows are shorter */

static inline uint64_t kvw_holder_pack(struct kvw_holder h)
{
	return (uint64_t)h.tick << 32 | h.older << 20 | h.mid << 15 | h.upto << 10 | h.worker;
}

static inline struct kvw_holder kvw_holder_unpack(uint64_t word)
{
	return (struct kvw_holder){
		.tick = (uint32_t)(word >> 32),
		.worker = (uint32_t)word & (KVW_MAX_WORKERS - 1),
		.upto = (uint32_t)word >> 10 & 31,
		.mid = (uint32_t)word >> 15 & 31,
		.older = (uint32_t)word >> 20,
	};
}

/* Returns the tick of the last use of the chunks from number h.mid on, h.older before h.tick. */
static inline uint32_t kvw_holder_rest_tick(struct kvw_holder h)
{
	return h.tick - h.older;
}

/* Returns how many chunks of the run are held: upto, mid or 0. */
static inline uint32_t kvw_holder_extent(struct kvw_holder h, uint64_t window)
{
	uint32_t held = kvw_view_alive(window, kvw_holder_rest_tick(h)) ? h.upto : h.mid;

	return kvw_view_alive(window, h.tick) ? held : 0;
}

static inline bool kvw_holder_alive(struct kvw_radix *tree, struct kvw_holder h)
{
	return kvw_view_alive(kvw_view_window(&tree->views, h.worker), h.tick);
}

static inline struct kvw_slot *kvw_slot_at(struct kvw_radix *tree, uint32_t index)
{
	return &tree->slots[index];
}

/* Makes the index of a slot safe to use that was read from shared memory. */
static inline uint32_t kvw_slot_check(const struct kvw_radix *tree, uint32_t index)
{
	return index < tree->slot_count ? index : 0;
}

/* Sequentially consistent: a caller that has locked the node sees an earlier eviction. */
static inline uint32_t kvw_slot_refs(struct kvw_slot *slot)
{
	return atomic_load(&slot->refs);
}

static inline uint64_t kvw_slot_key(struct kvw_slot *slot)
{
	return atomic_load_explicit(&slot->key, memory_order_acquire);
}

/* Words that are or were holders. */
static inline unsigned kvw_slot_used(struct kvw_slot *slot)
{
	unsigned used = atomic_load_explicit(&slot->used, memory_order_acquire);

	return used < KVW_NODE_WORDS ? used : KVW_NODE_WORDS;
}

/* Position of the stored part of the hash of the run's chunk i > 0. The hash of the first chunk is
 * stored as a whole, as the key. */
#define KVW_NODE_PARTS     3 /* in a word */
#define KVW_NODE_PART_BITS 21
#define KVW_NODE_PART      ((UINT64_C(1) << KVW_NODE_PART_BITS) - 1)

static inline unsigned kvw_slot_part_word(uint32_t i)
{
	return KVW_NODE_HOLDERS + (i - 1) / KVW_NODE_PARTS;
}

static inline unsigned kvw_slot_part_shift(uint32_t i)
{
	return (i - 1) % KVW_NODE_PARTS * KVW_NODE_PART_BITS;
}

/* Returns whether the run's chunk i has this hash; for i > 0 a match is wrong with probability
 * 2^-21. */
static inline bool kvw_slot_matches(struct kvw_slot *slot, uint32_t i, uint64_t hash)
{
	uint64_t word;

	if (i == 0)
		return kvw_slot_key(slot) == hash;
	word = atomic_load_explicit(&slot->word[kvw_slot_part_word(i)], memory_order_acquire);
	return ((word >> kvw_slot_part_shift(i) ^ hash) & KVW_NODE_PART) == 0;
}

static inline void kvw_slot_prefetch_hash(struct kvw_slot *slot, uint32_t i)
{
	if (i > 0)
		__builtin_prefetch(&slot->word[kvw_slot_part_word(i)]);
}

/* Returns whether the slot is a live node whose run begins with `chunks` chunks, the last of which
 * has this hash. The hash is cumulative and so checks all of them: the slot may have been reused
 * for another prompt with the same first chunk. */
static inline bool kvw_slot_begins(struct kvw_slot *slot, uint32_t chunks, uint64_t last)
{
	return kvw_slot_refs(slot) != 0 &&
	       atomic_load_explicit(&slot->key, memory_order_acquire) != 0 &&
	       atomic_load_explicit(&slot->length, memory_order_acquire) >= chunks &&
	       kvw_slot_matches(slot, chunks - 1, last);
}

/* Returns the tokens of the run's chunks [from, upto), as shares of the whole, so that parts add
 * up. */
static inline int64_t kvw_slot_tokens(struct kvw_slot *slot, uint32_t from, uint32_t upto)
{
	uint64_t all = atomic_load_explicit(&slot->tokens, memory_order_relaxed);
	uint32_t length = atomic_load_explicit(&slot->length, memory_order_relaxed);

	if (length == 0)
		return 0;
	/* Mostly the whole run is asked for, and then there is no division. */
	return (int64_t)((upto == length ? all : all * upto / length) -
			 (from == 0 ? 0 : all * from / length));
}

/* Prefetches the table's bucket for a node that begins at chunk `at`. */
static inline void kvw_prefetch_place(
	struct kvw_radix *tree, const struct kvw_chunk *chunks, uint32_t at)
{
	kvw_table_prefetch_write(&tree->table, kvw_table_group_home(&tree->table, chunks, at));
}

/* Returns the upper half of the spread hash of the node's group; it does not change while the node
 * is published. */
static inline uint32_t kvw_slot_group(struct kvw_slot *slot)
{
	return (uint32_t)(atomic_load_explicit(&slot->below, memory_order_relaxed) >> 32);
}

/* Returns the bucket of the table to which the node's group belongs. */
static inline uint32_t kvw_slot_home(struct kvw_radix *tree, struct kvw_slot *slot)
{
	return kvw_table_home(&tree->table, (uint64_t)kvw_slot_group(slot) << 32);
}

/* Returns the newest child; 0: none. */
static inline uint32_t kvw_slot_child(struct kvw_slot *slot)
{
	return (uint32_t)atomic_load_explicit(&slot->below, memory_order_acquire);
}

static inline void kvw_slot_set_child(struct kvw_slot *slot, uint32_t group, uint32_t child)
{
	atomic_store_explicit(&slot->below, (uint64_t)group << 32 | child, memory_order_release);
}

/* Returns how many chunks of a settled path its step i covers. */
static inline uint32_t kvw_path_length(const struct kvw_radix_path *path, uint32_t i)
{
	uint32_t end = i + 1 < path->count ? path->steps[i + 1].start : path->matched;

	return end - path->steps[i].start;
}

/* --- radix.c --- */

/* Compares the run of the path's last node with the prompt, if that was not done yet. If the slot
 * has another node now, the path ends before it. */
void kvw_path_settle(struct kvw_radix *tree, const struct kvw_chunk *chunks, uint32_t count,
	struct kvw_radix_path *path);

/* --- radix_pool.c --- */

/* Returns the calling thread's pool. The first KVW_POOLS threads have one of their own. */
struct kvw_pool *kvw_pool_mine(struct kvw_radix *tree);

/* Returns a dead and empty slot that no other thread can reach; evicts if needed. 0: none left. */
uint32_t kvw_slot_take(struct kvw_radix *tree, struct kvw_pool *pool);

/* Empties a slot that no other thread can reach, and marks it as dead. kvw_slot_give does this,
 * too. */
void kvw_slot_reset(struct kvw_slot *slot);

/* Frees a slot that no other thread can reach. */
void kvw_slot_give(struct kvw_radix *tree, struct kvw_pool *pool, uint32_t index);

/* --- radix_evict.c --- */

/* Drops a branch that was not used for long, beginning with its end. Returns one of the freed
 * slots, dead and empty and still counted as taken; the others go to the pool. 0: there is no
 * branch to drop. */
uint32_t kvw_radix_evict(struct kvw_radix *tree, struct kvw_pool *pool);

/* Prefetches the memory that the next eviction will write, besides its victim. */
void kvw_radix_expect_eviction(struct kvw_radix *tree, struct kvw_pool *pool);

/* Sweeps the next few slots and records nodes without holders. */
void kvw_radix_sweep(
	struct kvw_radix *tree, struct kvw_pool *pool, uint32_t slots, struct kvw_swept *swept);

/* Drops those recorded nodes that still have no holder. */
void kvw_radix_drop(struct kvw_radix *tree, struct kvw_pool *pool, const struct kvw_swept *swept);

/* --- radix_hold.c --- */

/* Records that the ledger's worker uses the first `upto` chunks of a node, the last of which has
 * the hash `last`. False: that node is gone. */
bool kvw_node_hold(struct kvw_radix *tree, struct kvw_pool *pool, uint32_t index, uint32_t upto,
	uint64_t last, uint32_t stamp, struct kvw_ledger *ledger);

/* Reduces what the worker holds to the first `keep` chunks, in a node whose chunk `upto - 1` has
 * the hash `last`; no effect if that node is gone. */
void kvw_node_cut(struct kvw_radix *tree, uint32_t index, uint32_t upto, uint64_t last,
	uint32_t worker, uint32_t keep);

/* Removes all holders from a dead node, with their tokens. */
void kvw_node_clear(struct kvw_radix *tree, struct kvw_pool *pool, struct kvw_slot *slot);

/* Returns whether any holder is alive. */
bool kvw_node_held(struct kvw_radix *tree, struct kvw_slot *slot);

/* Drops dead holders of a locked node and the overflow slots that this empties. */
void kvw_node_tidy(struct kvw_radix *tree, struct kvw_pool *pool, struct kvw_slot *slot);

#endif
