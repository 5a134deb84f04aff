/*
 * kvindex_table.h - maps the key of a block to its holders; one writer, readers without locks.
 *
 * A holder is one word: its cell (worker, source, tier) and the generation that this *cell* had
 * when the block was stored. A word is alive while its cell still has that generation, so a purge
 * increments generations and visits no block. Holders of a key are a multiset: two engine hashes of
 * one source and tier with the same key are two equal words.
 *
 *     bucket | seq | head |        slots of 32 bytes
 *                      \--> | key . | next | more | word x 4 |     head slot of a key
 *                                       |      \--> | more | word x 7 |   further holders
 *                                       \--> next key of the bucket
 *
 * All slots of a key but the first in its chain of `more` are full: adding touches the head slot
 * and the next one, however many workers share a system prompt.
 *
 * Reading while the writer runs: each bucket has a sequence, odd while the writer changes the
 * bucket or its slots. A reader copies the words and accepts them only if the sequence is the same
 * even number before and after. Slots that are freed and reused move between buckets, which a
 * reader may not notice at once, but they leave a bucket only under its sequence. Everything a
 * reader loads is atomic: the writer stores with release after making the sequence odd, the reader
 * loads with acquire before it looks at the sequence again, hence a reader that saw any new value
 * also sees the sequence changed. After too many failures a reader treats the block as unknown. In
 * a torn chain each step stays within the slots and the steps are bounded.
 */
#ifndef KVW_KVINDEX_TABLE_H
#define KVW_KVINDEX_TABLE_H

#include <stdatomic.h>
#include <stdint.h>

#define KVW_KVSLOT_WORDS 8
#define KVW_KVWORDS_READ 2048 /* most holders of one key that a reader sees */

/* 32 bytes; a word of 0 is empty, slot 0 is not used. */
struct kvw_kvslot {
	_Atomic uint32_t w[KVW_KVSLOT_WORDS];
};

struct kvw_kvbucket {
	_Atomic uint32_t seq;
	_Atomic uint32_t head; /* slot */
};

struct kvw_kvtable {
	struct kvw_kvbucket *buckets; /* [count] */
	struct kvw_kvslot *slots;     /* [count + 1] */
	uint32_t count;
	uint32_t fresh;      /* first slot that was never used */
	uint32_t free_slots; /* chain by word 0 */
	uint64_t seed;
	_Atomic uint64_t keys; /* in the table */
	_Atomic uint64_t used; /* slots */
};

/* Memory per slot, and memory of the table besides the slots, in bytes. */
#define KVW_KVTABLE_SLOT_BYTES (sizeof(struct kvw_kvslot) + sizeof(struct kvw_kvbucket))
#define KVW_KVTABLE_MORE_BYTES sizeof(struct kvw_kvslot)

/* Initializes the table in zeroed memory, aligned to 64. It never needs more slots than it has
 * words. */
void kvw_kvtable_init(struct kvw_kvtable *table, void *memory, uint32_t count, uint64_t seed);

/* Spreads a hash over all bits. */
static inline uint64_t kvw_kvspread(uint64_t hash, uint64_t seed)
{
	uint64_t x = (hash ^ seed) * UINT64_C(0x9E3779B97F4A7C15);

	x = (x ^ x >> 32) * UINT64_C(0xD6E8FEB86659FD93);
	return x ^ x >> 32;
}

static inline struct kvw_kvbucket *kvw_kvtable_bucket(const struct kvw_kvtable *table, uint64_t key)
{
	uint64_t spread = kvw_kvspread(key, table->seed);

	return &table->buckets[(spread >> 32) * table->count >> 32];
}

/* --- writer --- */

/* Adds one word, which is not 0. There must be fewer than `count` words. */
void kvw_kvtable_add(struct kvw_kvtable *table, uint64_t key, uint32_t word);

/* Removes one such word, which must exist. */
void kvw_kvtable_drop(struct kvw_kvtable *table, uint64_t key, uint32_t word);

/* --- readers --- */

/* Prefetches a key's first slot; its bucket was prefetched before. */
static inline void kvw_kvtable_prefetch(const struct kvw_kvtable *table, uint64_t key)
{
	uint32_t head =
		atomic_load_explicit(&kvw_kvtable_bucket(table, key)->head, memory_order_relaxed);

	__builtin_prefetch(&table->slots[head <= table->count ? head : 0]);
}

/* Copies the holders of a key. Returns their number. */
uint32_t kvw_kvtable_read(
	const struct kvw_kvtable *table, uint64_t key, uint32_t words[KVW_KVWORDS_READ]);

#endif
