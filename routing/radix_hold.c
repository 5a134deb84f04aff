/*
 * radix_hold.c - keeps the holders of a node.
 *
 * A worker has one entry in a node, with two times: when it last used the run's beginning, and when
 * it last used the rest. A use of the first k chunks gives these chunks the newest time, and leaves
 * the chunks beyond k at their old time. If k lies within the beginning, three times would result;
 * then all chunks beyond k get the time of their larger part. So recency is nearly exact for each
 * chunk, although the node is never split.
 *
 * Dead entries (aged or purged) are overwritten by the next new holder, so a node's lists are no
 * longer than the most holders it ever had at once.
 */
#include "routing/radix_node.h"

#include "routing/spin.h"

#define MAX_OVERFLOW 64 /* limit of slots of a chain: they have more words than there are workers */

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

/* The place of an entry in a node, or the place for a new one. */
struct place {
	struct kvw_slot *slot; /* NULL: nowhere */
	unsigned word;
};

/* Finds the worker's entry. */
static struct place find_worker(struct kvw_radix *tree, struct kvw_slot *node, uint32_t worker)
{
	for (struct kvw_slot *s = node; s != NULL; s = next_slot(tree, s)) {
		uint32_t mine = kvw_scan_of_worker(s->word, kvw_slot_used(s), worker);

		if (mine != 0)
			return (struct place){s, (unsigned)__builtin_ctz(mine)};
	}
	return (struct place){NULL, 0};
}

static struct kvw_holder holder_at(struct place place)
{
	return kvw_holder_unpack(load_word(place.slot, place.word));
}

/* Returns whether the worker used the first `upto` chunks so recently that no write is needed. */
static bool held_lately(struct kvw_radix *tree, struct kvw_slot *slot, uint32_t upto,
	const struct kvw_ledger *ledger)
{
	struct place place = find_worker(tree, slot, ledger->worker);
	struct kvw_holder h;
	uint32_t tick = 0;

	if (place.slot == NULL)
		return false;
	h = holder_at(place);
	tick = upto <= h.mid ? h.tick : kvw_holder_rest_tick(h);
	return h.worker == ledger->worker && upto <= h.upto &&
	       (int32_t)(ledger->now - tick) <= (int32_t)ledger->slack &&
	       kvw_view_alive(kvw_view_window(&tree->views, h.worker), tick);
}

/* Adds a place at the end of a node's lists. The node is locked. */
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
		uint32_t more = length > MAX_OVERFLOW ? 0 : kvw_slot_take(tree, pool);

		if (more == 0)
			return false;
		atomic_store_explicit(&slot->overflow, more, memory_order_release);
		slot = kvw_slot_at(tree, more);
		used = 0;
	}
	/* The word is stored before the count, so that no reader sees an old word. */
	store_word(slot, used, 0);
	atomic_store_explicit(&slot->used, (uint8_t)(used + 1), memory_order_release);
	*place = (struct place){slot, used};
	return true;
}

/* Returns whether the entry is not newer than the ledger's time; another loop's ledger may have
 * been ahead of this one. */
static bool is_past(struct kvw_holder h, uint32_t now)
{
	return now - h.tick <= KVW_HOLDER_OLDEST &&
	       now - kvw_holder_rest_tick(h) <= KVW_HOLDER_OLDEST;
}

/* Returns the tick for the chunks beyond `upto`, which lies in the run's beginning: the tick of
 * their larger part; the tokens of the other part are moved to it. */
static uint32_t merge_rest(struct kvw_slot *node, struct kvw_holder h, uint32_t extent,
	uint32_t upto, struct kvw_ledger *ledger)
{
	uint32_t rest = kvw_holder_rest_tick(h);
	int64_t middle = kvw_slot_tokens(node, upto, h.mid);
	int64_t tail = kvw_slot_tokens(node, h.mid, extent);

	if (tail > middle) {
		kvw_ledger_shift(ledger, h.tick, rest, middle);
		return rest;
	}
	kvw_ledger_shift(ledger, rest, h.tick, tail);
	return h.tick;
}

/* Returns the worker's entry, with `extent` chunks held, after a new use of the first `upto`; also
 * updates the ledger. The node is locked. */
static struct kvw_holder use_again(struct kvw_slot *node, struct kvw_holder h, uint32_t extent,
	uint32_t upto, struct kvw_ledger *ledger)
{
	uint32_t used = upto < extent && is_past(h, ledger->now) ? upto : extent;
	uint32_t head = used < h.mid ? used : h.mid;
	uint32_t end = upto > extent ? upto : extent;
	uint32_t rest = kvw_holder_rest_tick(h);

	kvw_ledger_move(ledger, h.tick, kvw_slot_tokens(node, 0, head));
	if (used > h.mid)
		kvw_ledger_move(ledger, rest, kvw_slot_tokens(node, h.mid, used));
	if (used < h.mid)
		rest = merge_rest(node, h, extent, used, ledger);
	kvw_ledger_add(ledger, kvw_slot_tokens(node, extent, end));
	return (struct kvw_holder){
		.tick = ledger->now,
		.worker = ledger->worker,
		.mid = used < extent ? used : end,
		.upto = end,
		.older = used < extent ? ledger->now - rest : 0,
	};
}

/* Finds an empty word or a dead entry. The node is locked. */
static bool find_place(struct kvw_radix *tree, struct kvw_slot *node, struct place *place)
{
	for (struct kvw_slot *s = node; s != NULL; s = next_slot(tree, s)) {
		uint32_t dead = kvw_scan_dead(s->word, kvw_slot_used(s), tree->views.windows);

		if (dead != 0) {
			*place = (struct place){s, (unsigned)__builtin_ctz(dead)};
			return true;
		}
	}
	return false;
}

/* Enters the worker as a holder of the first `upto` chunks, used now. The node is locked. */
static void hold_locked(struct kvw_radix *tree, struct kvw_pool *pool, struct kvw_slot *node,
	uint32_t upto, struct kvw_ledger *ledger)
{
	struct place place = find_worker(tree, node, ledger->worker);
	struct kvw_holder h = {
		.tick = ledger->now, .worker = ledger->worker, .mid = upto, .upto = upto};
	uint32_t extent = 0;

	if (place.slot != NULL)
		extent = kvw_holder_extent(
			holder_at(place), kvw_view_window(&tree->views, ledger->worker));
	if (extent > 0)
		h = use_again(node, holder_at(place), extent, upto, ledger);
	else if (place.slot != NULL || find_place(tree, node, &place) ||
		 extend(tree, pool, node, &place))
		kvw_ledger_add(ledger, kvw_slot_tokens(node, 0, upto));
	else
		return; /* no memory for another holder */
	store_word(place.slot, place.word, kvw_holder_pack(h));
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

/* Node locked. */
static void cut_locked(
	struct kvw_radix *tree, struct kvw_slot *node, uint32_t worker, uint32_t keep)
{
	struct place place = find_worker(tree, node, worker);
	struct kvw_holder h;

	if (place.slot == NULL)
		return;
	h = holder_at(place);
	if (keep >= h.upto)
		return;
	kvw_view_forget(&tree->views, worker,
		(struct kvw_move[2]){
			{h.tick, kvw_slot_tokens(node, keep < h.mid ? keep : h.mid, h.mid)},
			{kvw_holder_rest_tick(h),
				kvw_slot_tokens(node, keep > h.mid ? keep : h.mid, h.upto)}});
	h.upto = keep;
	if (keep <= h.mid) {
		h.mid = keep;
		h.older = 0;
	}
	store_word(place.slot, place.word, keep == 0 ? 0 : kvw_holder_pack(h));
}

void kvw_node_cut(struct kvw_radix *tree, uint32_t index, uint32_t upto, uint64_t last,
	uint32_t worker, uint32_t keep)
{
	struct kvw_slot *slot = kvw_slot_at(tree, index);

	kvw_spin_lock(&slot->lock);
	if (kvw_slot_begins(slot, upto, last))
		cut_locked(tree, slot, worker, keep);
	kvw_spin_unlock(&slot->lock);
}

bool kvw_node_held(struct kvw_radix *tree, struct kvw_slot *slot)
{
	/* Mostly the first holder is alive, and is in the slot's first line, so that it is looked
	 * at first. */
	if (kvw_slot_used(slot) > 0 &&
		kvw_holder_alive(tree, kvw_holder_unpack(load_word(slot, 0))))
		return true;
	for (struct kvw_slot *s = slot; s != NULL; s = next_slot(tree, s)) {
		unsigned used = kvw_slot_used(s);

		if (kvw_scan_dead(s->word, used, tree->views.windows) !=
			(UINT32_C(1) << used) - 1)
			return true;
	}
	return false;
}

/* Frees the slots of the overflow chain that begins here. */
static void give_chain(struct kvw_radix *tree, struct kvw_pool *pool, uint32_t index)
{
	while (index != 0) {
		uint32_t next = kvw_slot_check(
			tree, atomic_load_explicit(
				      &kvw_slot_at(tree, index)->overflow, memory_order_relaxed));

		kvw_slot_give(tree, pool, index);
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

			if (word == 0)
				continue;
			kvw_view_forget(&tree->views, h.worker,
				(struct kvw_move[2]){{h.tick, kvw_slot_tokens(slot, 0, h.mid)},
					{kvw_holder_rest_tick(h),
						kvw_slot_tokens(slot, h.mid, h.upto)}});
		}
	}
	atomic_store_explicit(&slot->overflow, 0, memory_order_release);
	atomic_store_explicit(&slot->used, 0, memory_order_release);
	give_chain(tree, pool, overflow);
}

void kvw_node_tidy(struct kvw_radix *tree, struct kvw_pool *pool, struct kvw_slot *slot)
{
	struct kvw_slot *last = slot; /* the last slot that has a living entry */
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
