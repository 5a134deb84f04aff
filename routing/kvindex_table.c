/*
 * kvindex_table.c - buckets, slots and the copying of holders;
 * kvindex_table.h describes the scheme.
 */
#include "routing/kvindex_table.h"

#include <assert.h>
#include <stdbool.h>

#include "routing/spin.h"

#define TRIES 256  /* attempts of a reader before it treats a block as unknown */
#define STEPS 1024 /* most slots that a reader follows for one key */

_Static_assert(sizeof(struct kvw_kvslot) == 32, "two slots are a cache line");

/* Words of a head slot; those from FIRST on are holders. */
enum head_word { KEY_LOW, KEY_HIGH, NEXT, MORE, FIRST };

/* Words of a further slot. */
enum more_word { MORE_MORE, MORE_FIRST };

void kvw_kvtable_init(struct kvw_kvtable *table, void *memory, uint32_t count, uint64_t seed)
{
	*table = (struct kvw_kvtable){
		.slots = memory,
		.buckets = (struct kvw_kvbucket *)(void *)((struct kvw_kvslot *)memory + count + 1),
		.count = count,
		.fresh = 1,
		.seed = seed,
	};
}

/* Checks the index of a slot that was read without a lock; an invalid one becomes 0. */
static uint32_t checked(const struct kvw_kvtable *table, uint32_t slot)
{
	return slot <= table->count ? slot : 0;
}

static uint32_t get(const struct kvw_kvslot *slot, unsigned i)
{
	return atomic_load_explicit(&slot->w[i], memory_order_acquire);
}

static void put_value(struct kvw_kvslot *slot, unsigned i, uint32_t value)
{
	atomic_store_explicit(&slot->w[i], value, memory_order_release);
}

static bool has_key(const struct kvw_kvslot *slot, uint64_t key)
{
	return get(slot, KEY_LOW) == (uint32_t)key && get(slot, KEY_HIGH) == (uint32_t)(key >> 32);
}

/* --- writer --- */

static void change_begin(struct kvw_kvbucket *bucket)
{
	uint32_t seq = atomic_load_explicit(&bucket->seq, memory_order_relaxed);

	/* The stores that follow are releases: none becomes visible before this one. */
	atomic_store_explicit(&bucket->seq, seq + 1, memory_order_relaxed);
}

static void change_end(struct kvw_kvbucket *bucket)
{
	uint32_t seq = atomic_load_explicit(&bucket->seq, memory_order_relaxed);

	atomic_store_explicit(&bucket->seq, seq + 1, memory_order_release);
}

static void count_by(_Atomic uint64_t *counter, uint64_t by)
{
	uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);

	atomic_store_explicit(counter, value + by, memory_order_relaxed);
}

/* Takes a slot, whose words are all 0. */
static uint32_t take_slot(struct kvw_kvtable *table)
{
	uint32_t slot = table->free_slots;

	if (slot != 0)
		table->free_slots = get(&table->slots[slot], 0);
	else
		slot = table->fresh++;
	assert(slot <= table->count);
	for (unsigned i = 0; i < KVW_KVSLOT_WORDS; i++)
		put_value(&table->slots[slot], i, 0);
	count_by(&table->used, 1);
	return slot;
}

static void give_slot(struct kvw_kvtable *table, uint32_t slot)
{
	put_value(&table->slots[slot], 0, table->free_slots);
	table->free_slots = slot;
	count_by(&table->used, (uint64_t)-1);
}

/* Finds the head slot of a key, or 0. Sets *before to the head before it in the bucket, or 0. */
static uint32_t find_head(const struct kvw_kvtable *table, const struct kvw_kvbucket *bucket,
	uint64_t key, uint32_t *before)
{
	uint32_t at = atomic_load_explicit(&bucket->head, memory_order_relaxed);

	*before = 0;
	while (at != 0 && !has_key(&table->slots[at], key)) {
		*before = at;
		at = get(&table->slots[at], NEXT);
	}
	return at;
}

/* Finds the first position of `word` in a slot, from `from` on; KVW_KVSLOT_WORDS: there is none. */
static unsigned find_word(const struct kvw_kvslot *slot, unsigned from, uint32_t word)
{
	while (from < KVW_KVSLOT_WORDS && get(slot, from) != word)
		from++;
	return from;
}

void kvw_kvtable_add(struct kvw_kvtable *table, uint64_t key, uint32_t word)
{
	struct kvw_kvbucket *bucket = kvw_kvtable_bucket(table, key);
	uint32_t before = 0;
	uint32_t head = find_head(table, bucket, key, &before);
	unsigned place = KVW_KVSLOT_WORDS;
	uint32_t more = 0;

	change_begin(bucket);
	if (head == 0) {
		head = take_slot(table);
		put_value(&table->slots[head], KEY_LOW, (uint32_t)key);
		put_value(&table->slots[head], KEY_HIGH, (uint32_t)(key >> 32));
		put_value(&table->slots[head], NEXT,
			atomic_load_explicit(&bucket->head, memory_order_relaxed));
		atomic_store_explicit(&bucket->head, head, memory_order_release);
		count_by(&table->keys, 1);
	}
	place = find_word(&table->slots[head], FIRST, 0);
	if (place < KVW_KVSLOT_WORDS) {
		put_value(&table->slots[head], place, word);
	} else {
		more = get(&table->slots[head], MORE);
		if (more != 0)
			place = find_word(&table->slots[more], MORE_FIRST, 0);
		if (place == KVW_KVSLOT_WORDS) {
			uint32_t slot = take_slot(table);

			put_value(&table->slots[slot], MORE_MORE, more);
			put_value(&table->slots[head], MORE, slot);
			more = slot;
			place = MORE_FIRST;
		}
		put_value(&table->slots[more], place, word);
	}
	change_end(bucket);
}

/* Removes some holder from the slots after the head, or from the head if there are none. */
static uint32_t take_last(struct kvw_kvtable *table, uint32_t head)
{
	uint32_t more = get(&table->slots[head], MORE);
	struct kvw_kvslot *slot = &table->slots[more != 0 ? more : head];
	unsigned first = more != 0 ? (unsigned)MORE_FIRST : (unsigned)FIRST;
	unsigned place = KVW_KVSLOT_WORDS - 1;
	uint32_t word = 0;

	while (place > first && get(slot, place) == 0)
		place--;
	word = get(slot, place);
	put_value(slot, place, 0);
	if (more != 0 && place == first) {
		put_value(&table->slots[head], MORE, get(slot, MORE_MORE));
		give_slot(table, more);
	}
	return word;
}

/* Finds a word among the holders of a key: sets *slot and *place. */
static bool find_holder(const struct kvw_kvtable *table, uint32_t head, uint32_t word,
	uint32_t *slot, unsigned *place)
{
	*slot = head;
	*place = find_word(&table->slots[head], FIRST, word);
	if (*place < KVW_KVSLOT_WORDS)
		return true;
	*slot = get(&table->slots[head], MORE);
	while (*slot != 0) {
		*place = find_word(&table->slots[*slot], MORE_FIRST, word);
		if (*place < KVW_KVSLOT_WORDS)
			return true;
		*slot = get(&table->slots[*slot], MORE_MORE);
	}
	return false;
}

/* Takes a key out of its bucket. */
static void unlink_head(
	struct kvw_kvtable *table, struct kvw_kvbucket *bucket, uint32_t head, uint32_t before)
{
	uint32_t next = get(&table->slots[head], NEXT);

	if (before != 0)
		put_value(&table->slots[before], NEXT, next);
	else
		atomic_store_explicit(&bucket->head, next, memory_order_release);
	give_slot(table, head);
	count_by(&table->keys, (uint64_t)-1);
}

void kvw_kvtable_drop(struct kvw_kvtable *table, uint64_t key, uint32_t word)
{
	struct kvw_kvbucket *bucket = kvw_kvtable_bucket(table, key);
	uint32_t before = 0;
	uint32_t head = find_head(table, bucket, key, &before);
	uint32_t slot = 0;
	unsigned place = 0;
	uint32_t last = 0;
	bool found = head != 0 && find_holder(table, head, word, &slot, &place);

	assert(found);
	if (!found)
		return;
	change_begin(bucket);
	/* The last word fills the gap, unless it was itself the removed word: then its place is 0
	 * already. */
	last = take_last(table, head);
	if (last != word)
		put_value(&table->slots[slot], place, last);
	if (get(&table->slots[head], FIRST) == 0)
		unlink_head(table, bucket, head, before);
	change_end(bucket);
}

/* --- readers --- */

/* Appends the holders of one slot. Returns the new count. */
static uint32_t copy_words(
	const struct kvw_kvslot *slot, unsigned from, uint32_t *words, uint32_t count)
{
	for (; from < KVW_KVSLOT_WORDS && count < KVW_KVWORDS_READ; from++) {
		uint32_t word = get(slot, from);

		words[count] = word;
		count += word != 0;
	}
	return count;
}

/* Copies the holders of a key; they are valid only if the caller finds the bucket's sequence
 * unchanged. */
static uint32_t walk(const struct kvw_kvtable *table, const struct kvw_kvbucket *bucket,
	uint64_t key, uint32_t *words)
{
	uint32_t at = checked(table, atomic_load_explicit(&bucket->head, memory_order_acquire));
	unsigned steps = 0;
	uint32_t count = 0;

	while (at != 0 && !has_key(&table->slots[at], key) && steps++ < STEPS)
		at = checked(table, get(&table->slots[at], NEXT));
	if (at == 0 || steps > STEPS)
		return 0;
	count = copy_words(&table->slots[at], FIRST, words, 0);
	at = checked(table, get(&table->slots[at], MORE));
	while (at != 0 && steps++ < STEPS) {
		count = copy_words(&table->slots[at], MORE_FIRST, words, count);
		at = checked(table, get(&table->slots[at], MORE_MORE));
	}
	return count;
}

uint32_t kvw_kvtable_read(
	const struct kvw_kvtable *table, uint64_t key, uint32_t words[KVW_KVWORDS_READ])
{
	const struct kvw_kvbucket *bucket = kvw_kvtable_bucket(table, key);

	for (unsigned i = 0; i < TRIES; i++) {
		uint32_t seq = atomic_load_explicit(&bucket->seq, memory_order_acquire);
		uint32_t count = 0;

		if (seq % 2 == 0) {
			count = walk(table, bucket, key, words);
			if (atomic_load_explicit(&bucket->seq, memory_order_relaxed) == seq)
				return count;
		}
		kvw_spin_pause();
	}
	return 0;
}
