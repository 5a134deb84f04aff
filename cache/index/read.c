/*
 * read.c - match, hold and release, for readers without a lock.
 *
 * A lookup handles keys in groups: it first prefetches the table slots of all keys, then the
 * entries that the slots name, and then compares whole keys. So a chain in memory that is not
 * cached costs a few waits for memory per group, not two per chunk. The first candidate of a key is
 * nearly always the only one. If that candidate is wrong, or missing, a slow lookup walks the key's
 * whole row of slots, and checks whether slots moved meanwhile. The slow lookup happens once per
 * chain, at its end.
 *
 * entry.h explains why each answer is right; the table only proposes candidates.
 */
#include <assert.h>

#include "index/index_parts.h"

#define GROUP      32
#define LOOKS_MOST 64 /* limit of lookups in a table whose slots keep moving */

/* The parameters of one lookup. */
struct look {
	struct kvt_index *x;
	int64_t wall_ns; /* 0: not read yet */
	bool hold;
	bool use;
	int64_t newly_held;
};

static int64_t wall_of(struct look *look)
{
	if (look->wall_ns == 0)
		look->wall_ns = kvt_steady_wall(&look->x->surroundings);
	return look->wall_ns;
}

static bool is_over(struct look *look, const struct kvt_entry *e)
{
	int64_t expires = atomic_load_explicit(&e->expires_wall_ns, memory_order_relaxed);

	return expires != INT64_MAX && expires <= wall_of(look);
}

/* Moves the expiry of a held entry after a use. */
static void prolong(struct look *look, struct kvt_entry *e)
{
	uint64_t ttl_ns = kvt_ttl_ns(e->ttl);
	int64_t wall_ns = wall_of(look);

	if (ttl_ns > (uint64_t)(INT64_MAX - wall_ns))
		ttl_ns = (uint64_t)(INT64_MAX - wall_ns);
	atomic_store_explicit(&e->expires_wall_ns, wall_ns + (int64_t)ttl_ns, memory_order_relaxed);
}

/* Returns whether this entry is LIVE, has this key and is within its TTL. */
static bool shows(struct look *look, const struct kvt_entry *e, const struct kvt_key *key)
{
	uint64_t state = kvt_entry_state(e);

	if (kvt_state_phase(state) != KVT_LIVE || !kvt_entry_has_key(e, key) || is_over(look, e))
		return false;
	return kvt_entry_state(e) >> KVT_GENERATION_SHIFT == state >> KVT_GENERATION_SHIFT;
}

/* Returns whether the entry is live, of this key and within its TTL, as shows() does; if so, takes a
 * hold on it. */
static bool takes(struct look *look, struct kvt_entry *e, const struct kvt_key *key)
{
	uint64_t state = kvt_entry_state(e);

	do {
		if (kvt_state_phase(state) != KVT_LIVE ||
			kvt_state_holds(state) == KVT_HOLDS_MOST || !kvt_entry_has_key(e, key) ||
			is_over(look, e))
			return false;
	} while (!atomic_compare_exchange_weak_explicit(&e->state, &state, state + KVT_HOLD_ONE,
		memory_order_acq_rel, memory_order_acquire));
	look->newly_held += kvt_state_holds(state) == 0;
	if (look->use && e->ttl != 0)
		prolong(look, e);
	return true;
}

static inline bool is_it(struct look *look, uint32_t number, const struct kvt_key *key)
{
	struct kvt_entry *e = kvt_index_at(look->x, number);

	return look->hold ? takes(look, e, key) : shows(look, e, key);
}

/* Searches the whole row of slots, and again if slots moved meanwhile. */
static uint32_t find_slowly(struct look *look, uint32_t hash, const struct kvt_key *key)
{
	struct kvt_table *t = &look->x->table;

	for (int looks = 0; looks < LOOKS_MOST; looks++) {
		uint64_t moves = atomic_load_explicit(&t->moves, memory_order_acquire);
		struct kvt_slots *s = atomic_load_explicit(&t->now, memory_order_acquire);
		uint32_t at = kvt_slots_home(s, hash), steps = 0, number;

		while ((number = kvt_slots_find(s, hash, &at, &steps)) != KVT_NO_ENTRY)
			if (is_it(look, number, key))
				return number;
		if ((moves & 1) == 0 &&
			atomic_load_explicit(&t->moves, memory_order_acquire) == moves)
			break;
	}
	return KVT_NO_ENTRY;
}

/* Finds the first candidates of a group, and prefetches their memory. */
static void propose(const struct kvt_index *x, struct kvt_slots *s, const struct kvt_key *keys,
	size_t n, uint32_t *hashes, uint32_t *numbers)
{
	for (size_t i = 0; i < n; i++) {
		hashes[i] = kvt_index_hash(x, &keys[i]);
		__builtin_prefetch((const void *)&s->slot[kvt_slots_home(s, hashes[i])]);
	}
	for (size_t i = 0; i < n; i++) {
		uint32_t at = kvt_slots_home(s, hashes[i]), steps = 0;

		numbers[i] = kvt_slots_find(s, hashes[i], &at, &steps);
		if (numbers[i] != KVT_NO_ENTRY)
			__builtin_prefetch(kvt_index_at(x, numbers[i]));
	}
}

/* Returns how many keys from the first on are present; entries (NULL for match) receives their
 * numbers. */
static size_t walk(struct look *look, const struct kvt_key *keys, size_t n, uint32_t *entries)
{
	struct kvt_index *x = look->x;
	struct kvt_slots *s = atomic_load_explicit(&x->table.now, memory_order_acquire);
	uint32_t hashes[GROUP], numbers[GROUP];

	for (size_t done = 0; done < n; done += GROUP) {
		size_t count = n - done < GROUP ? n - done : GROUP;

		propose(x, s, keys + done, count, hashes, numbers);
		for (size_t i = 0; i < count; i++) {
			uint32_t number = numbers[i];

			if (number == KVT_NO_ENTRY || !is_it(look, number, &keys[done + i]))
				number = find_slowly(look, hashes[i], &keys[done + i]);
			if (number == KVT_NO_ENTRY)
				return done + i;
			if (entries != NULL)
				entries[done + i] = number;
		}
	}
	return n;
}

size_t kvt_index_match(struct kvt_index *x, const struct kvt_key *keys, size_t n)
{
	struct look look = {.x = x};

	return walk(&look, keys, n, NULL);
}

/* Reports uses, deepest first. If the ring has too little room it gets the entries near the chain's
 * beginning: the deepest entries, which then look unused, are the first to be evicted anyway. */
static void report(struct kvt_index *x, const uint32_t *entries, size_t n)
{
	uint64_t place, got;

	got = kvt_uses_reserve(&x->uses, n, &place);
	for (size_t i = (size_t)got; i-- > 0; place++)
		kvt_uses_put(&x->uses, place, entries[i],
			kvt_state_generation(kvt_entry_state(kvt_index_at(x, entries[i]))));
	if (kvt_uses_press(&x->uses) && pthread_mutex_trylock(&x->mutex) == 0) {
		kvt_index_report_uses(x, x->uses.size / 4);
		kvt_index_unlock(x);
	}
}

size_t kvt_index_hold_chain(
	struct kvt_index *x, const struct kvt_key *keys, size_t n, bool use, uint32_t *entries)
{
	struct look look = {.x = x, .hold = true, .use = use};
	size_t got = walk(&look, keys, n, entries);

	if (look.newly_held > 0)
		kvt_index_count_held(x, look.newly_held);
	if (use && got > 0)
		report(x, entries, got);
	return got;
}

enum kvt_status kvt_index_hold(
	struct kvt_index *x, const struct kvt_key *key, bool use, uint32_t *entry)
{
	return kvt_index_hold_chain(x, key, 1, use, entry) == 1 ? KVT_OK : KVT_MISS;
}

bool kvt_index_next(struct kvt_index *x, uint32_t *cursor, uint32_t *entry)
{
	const uint32_t fresh = atomic_load_explicit(&x->fresh, memory_order_acquire);
	struct look look = {.x = x, .hold = true};

	for (uint32_t number = *cursor; number < fresh; number++) {
		struct kvt_entry *e = kvt_index_at(x, number);
		uint64_t state = kvt_entry_state(e);

		while (kvt_state_phase(state) == KVT_LIVE &&
			kvt_state_holds(state) < KVT_HOLDS_MOST && !is_over(&look, e)) {
			if (!atomic_compare_exchange_weak_explicit(&e->state, &state,
				    state + KVT_HOLD_ONE, memory_order_acq_rel,
				    memory_order_acquire))
				continue;
			if (kvt_state_holds(state) == 0)
				kvt_index_count_held(x, 1);
			*entry = number;
			*cursor = number + 1;
			return true;
		}
	}
	*cursor = 0;
	return false;
}

bool kvt_index_is_live(const struct kvt_index *x, uint32_t entry)
{
	return kvt_entry_phase(kvt_index_at(x, entry)) == KVT_LIVE;
}

void kvt_index_release(struct kvt_index *x, uint32_t entry)
{
	struct kvt_entry *e = kvt_index_at(x, entry);
	uint64_t state = atomic_fetch_sub_explicit(&e->state, KVT_HOLD_ONE, memory_order_acq_rel);

	assert(kvt_state_holds(state) > 0);
	if (kvt_state_holds(state) > 1)
		return;
	assert(kvt_state_phase(state) == KVT_LIVE || kvt_state_phase(state) == KVT_GOING);
	kvt_index_count_held(x, -1);
	if (kvt_state_phase(state) == KVT_GOING) {
		kvt_index_lock(x);
		kvt_index_bury(x, entry);
		kvt_index_unlock(x);
	}
}
