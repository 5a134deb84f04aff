/*
 * radix_hold.c - the holders of a node.
 *
 * A worker's entries in a node cover disjoint ranges that together reach from the run's beginning
 * to what the worker holds; the lower a range, the later it was used. Using the first k chunks
 * therefore replaces everything up to k by one entry with the newest tick and leaves what lies
 * beyond k at its old one: recency is exact to the chunk, although the node is never split.
 *
 * Dead entries (aged or purged) are overwritten by whoever needs a place, so a node's lists are
 * no longer than the most holders it ever had at once.
 */
#include "radix_node.h"

#include "spin.h"

#define MAX_OVERFLOW 128 /* slots; 3,598 entries: three for each of 1,024 workers */

static uint64_t load_word(struct kvw_slot *slot, unsigned i)
{
	return atomic_load_explicit(&slot->word[i], memory_order_acquire);
}

static void store_word(struct kvw_slot *slot, unsigned i, uint64_t word)
{
	atomic_store_explicit(&slot->word[i], word, memory_order_release);
}

static struct kvw_slot *next_slot(struct kvw_radix *tree, struct kvw_slot *slot)
{
	uint32_t next =
		kvw_slot_check(tree, atomic_load_explicit(&slot->overflow, memory_order_acquire));

	return next == 0 ? NULL : kvw_slot_at(tree, next);
}

/* Which words of a slot are this worker's, bit i for word i. */
static uint32_t words_of(struct kvw_radix *tree, struct kvw_slot *slot, uint32_t worker)
{
	return tree->scan->of_worker(slot->word, kvw_slot_used(slot), worker);
}

/* Whether the first `upto` chunks were used by this worker so lately that nothing need be
 * written: the entry that covers chunk upto - 1 says so, and those below it are newer. */
static bool held_lately(struct kvw_radix *tree, struct kvw_slot *slot, uint32_t upto,
	const struct kvw_ledger *ledger)
{
	for (struct kvw_slot *s = slot; s != NULL; s = next_slot(tree, s)) {
		for (uint32_t mine = words_of(tree, s, ledger->worker); mine != 0;
			mine &= mine - 1) {
			struct kvw_holder h =
				kvw_holder_unpack(load_word(s, (unsigned)__builtin_ctz(mine)));

			if (h.from < upto && upto <= h.upto)
				return (int32_t)(ledger->now - h.tick) <= (int32_t)ledger->slack &&
				       kvw_holder_alive(tree, h);
		}
	}
	return false;
}

/* Where an entry can go. */
struct place {
	struct kvw_slot *slot;
	unsigned word;
	bool own; /* overwrites an entry of the same worker: readers never see it gone */
};

/* Adds a place at the end of a node's lists. Node locked. */
static bool extend(
	struct kvw_radix *tree, struct kvw_pool *pool, struct kvw_slot *slot, struct place *place)
{
	unsigned capacity = KVW_NODE_HOLDERS;
	unsigned length = 1;
	unsigned used = 0;

	for (struct kvw_slot *s = next_slot(tree, slot); s != NULL; s = next_slot(tree, s)) {
		slot = s;
		length++;
	}
	if (length > 1)
		capacity = KVW_NODE_WORDS;
	used = kvw_slot_used(slot);
	if (used == capacity) {
		uint32_t more = length > MAX_OVERFLOW ? 0 : kvw_slot_take(tree, pool, 0);

		if (more == 0)
			return false;
		atomic_store_explicit(&slot->overflow, more, memory_order_release);
		slot = kvw_slot_at(tree, more);
		used = 0;
	}
	/* The word before the count: a reader never looks at a stale one. */
	store_word(slot, used, 0);
	atomic_store_explicit(&slot->used, (uint8_t)(used + 1), memory_order_release);
	*place = (struct place){slot, used, false};
	return true;
}

/* Takes what lies below `upto` out of one of the worker's entries. Returns the live tokens that
 * it covered there. Node locked. */
static int64_t cut_entry(struct kvw_radix *tree, struct kvw_slot *node, struct place at,
	uint32_t upto, struct kvw_ledger *ledger, struct place *place)
{
	struct kvw_holder h = kvw_holder_unpack(load_word(at.slot, at.word));
	bool alive = kvw_holder_alive(tree, h);
	int64_t tokens = 0;

	if (alive && h.from < upto) {
		tokens = kvw_slot_tokens(node, h.from, h.upto < upto ? h.upto : upto);
		kvw_ledger_move(ledger, h.tick, tokens);
	}
	if (alive && h.upto > upto) {
		if (h.from < upto) {
			h.from = upto;
			store_word(at.slot, at.word, kvw_holder_pack(h));
		}
	} else if (place->own) {
		store_word(at.slot, at.word, 0);
	} else {
		*place = at;
		place->own = true;
	}
	return tokens;
}

/* A word that holds nothing, or nothing any more. Node locked. */
static bool find_place(struct kvw_radix *tree, struct kvw_slot *node, struct place *place)
{
	for (struct kvw_slot *s = node; s != NULL; s = next_slot(tree, s)) {
		uint32_t dead = tree->scan->dead(s->word, kvw_slot_used(s), tree->views.windows);

		if (dead != 0) {
			*place = (struct place){s, (unsigned)__builtin_ctz(dead), false};
			return true;
		}
	}
	return false;
}

/* Replaces the worker's entries below `upto` by one. Node locked. */
static void hold_locked(struct kvw_radix *tree, struct kvw_pool *pool, struct kvw_slot *node,
	uint32_t upto, struct kvw_ledger *ledger)
{
	struct place place = {NULL, 0, false};
	int64_t known = 0;

	for (struct kvw_slot *s = node; s != NULL; s = next_slot(tree, s)) {
		for (uint32_t mine = words_of(tree, s, ledger->worker); mine != 0;
			mine &= mine - 1) {
			struct place at = {s, (unsigned)__builtin_ctz(mine), false};

			known += cut_entry(tree, node, at, upto, ledger, &place);
		}
	}
	if (place.slot == NULL && !find_place(tree, node, &place) &&
		!extend(tree, pool, node, &place)) {
		/* No memory for another holder: what was cut out of old entries is gone. */
		kvw_ledger_add(ledger, -known);
		return;
	}
	kvw_ledger_add(ledger, kvw_slot_tokens(node, 0, upto) - known);
	store_word(place.slot, place.word,
		kvw_holder_pack((struct kvw_holder){ledger->now, ledger->worker, 0, upto}));
}

bool kvw_node_hold(struct kvw_radix *tree, struct kvw_pool *pool, uint32_t index, uint32_t upto,
	uint64_t last, uint32_t stamp, struct kvw_ledger *ledger)
{
	struct kvw_slot *slot = kvw_slot_at(tree, index);
	bool same = false;

	if (!held_lately(tree, slot, upto, ledger)) {
		kvw_spin_lock(&slot->lock);
		same = kvw_slot_begins(slot, upto, last);
		if (same)
			hold_locked(tree, pool, slot, upto, ledger);
		kvw_spin_unlock(&slot->lock);
	} else {
		same = kvw_slot_begins(slot, upto, last);
	}
	if (same && atomic_load_explicit(&slot->stamp, memory_order_relaxed) != stamp)
		atomic_store_explicit(&slot->stamp, stamp, memory_order_relaxed);
	return same;
}

bool kvw_node_held(struct kvw_radix *tree, struct kvw_slot *slot)
{
	for (struct kvw_slot *s = slot; s != NULL; s = next_slot(tree, s)) {
		unsigned used = kvw_slot_used(s);

		if (tree->scan->dead(s->word, used, tree->views.windows) !=
			(UINT32_C(1) << used) - 1)
			return true;
	}
	return false;
}

/* Gives back the slots of a chain that begins here. */
static void give_chain(struct kvw_radix *tree, struct kvw_pool *pool, uint32_t index)
{
	while (index != 0) {
		uint32_t next = kvw_slot_check(
			tree, atomic_load_explicit(
				      &kvw_slot_at(tree, index)->overflow, memory_order_relaxed));

		kvw_slot_give(tree, pool, index, 0);
		index = next;
	}
}

void kvw_node_clear(struct kvw_radix *tree, struct kvw_pool *pool, struct kvw_slot *slot)
{
	uint32_t overflow = atomic_load_explicit(&slot->overflow, memory_order_relaxed);

	for (struct kvw_slot *s = slot; s != NULL; s = next_slot(tree, s)) {
		unsigned used = kvw_slot_used(s);

		for (unsigned i = 0; i < used; i++) {
			uint64_t word = load_word(s, i);
			struct kvw_holder h = kvw_holder_unpack(word);

			if (word != 0)
				kvw_view_forget(&tree->views, h.worker, h.tick,
					kvw_slot_tokens(slot, h.from, h.upto));
		}
	}
	atomic_store_explicit(&slot->overflow, 0, memory_order_release);
	atomic_store_explicit(&slot->used, 0, memory_order_release);
	give_chain(tree, pool, overflow);
}

void kvw_node_tidy(struct kvw_radix *tree, struct kvw_pool *pool, struct kvw_slot *slot)
{
	struct kvw_slot *last = slot; /* last slot with a living entry */
	uint32_t rest = 0;

	for (struct kvw_slot *s = slot; s != NULL; s = next_slot(tree, s)) {
		unsigned used = kvw_slot_used(s);

		for (unsigned i = 0; i < used; i++) {
			uint64_t word = load_word(s, i);

			if (word != 0 && kvw_holder_alive(tree, kvw_holder_unpack(word)))
				last = s;
			else if (word != 0)
				store_word(s, i, 0);
		}
	}
	rest = atomic_load_explicit(&last->overflow, memory_order_relaxed);
	if (rest != 0) {
		atomic_store_explicit(&last->overflow, 0, memory_order_release);
		give_chain(tree, pool, rest);
	}
}
