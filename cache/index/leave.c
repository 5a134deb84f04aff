/*
 * leave.c - removes entries from an index: eviction, expiry, erasing.
 *
 * All removals pass through kvt_index_leave(), which makes an entry GOING: invisible, removed from
 * the table, the policy and its family. An entry without holds is freed at once, any other by its
 * last holder. Only kvt_index_bury() calls `gone` and frees the number.
 *
 * The index makes room in two steps: it chooses as many victims as needed, among entries that may
 * be evicted once the earlier victims are gone; then it evicts all of them or, if they are too few,
 * none.
 *
 * Walks over many entries release the mutex every few thousand entries.
 */
#include <stdlib.h>

#include "index/index_parts.h"

#define WALK_STEP   2048   /* entries that a walk visits before it releases the mutex */
#define EXPIRE_MOST 65536u /* entries visited per call of kvt_index_expire */
#define CHOICE_ROOM 16     /* initial size of the list of victims */
#define RACES_MOST  64     /* limit of successive victims on which a reader has just taken a hold */

static void count_leave(struct kvt_index *x, enum kvt_leave why)
{
	switch (why) {
	case KVT_LEAVE_LIMITED:
		x->counts.limited++;
		x->counts.evictions++;
		break;
	case KVT_LEAVE_EVICTED:
	case KVT_LEAVE_PASSED:
		x->counts.evictions++;
		break;
	case KVT_LEAVE_EXPIRED:
		x->counts.expired++;
		break;
	case KVT_LEAVE_ERASED:
		x->counts.erased++;
		break;
	case KVT_LEAVE_DROPPED:
		x->counts.dropped++;
		break;
	case KVT_LEAVE_DISCARDED:
		break;
	}
}

/* Returns with how many holds an entry may leave for this reason. */
static uint64_t holds_allowed(enum kvt_leave why)
{
	switch (why) {
	case KVT_LEAVE_EVICTED:
	case KVT_LEAVE_LIMITED:
		return 0;
	case KVT_LEAVE_PASSED:
		return 1;
	default:
		return KVT_HOLDS_MOST;
	}
}

bool kvt_index_leave(struct kvt_index *x, uint32_t number, enum kvt_leave why)
{
	struct kvt_entry *e = kvt_index_at(x, number);
	const uint64_t most_holds = holds_allowed(why);
	uint64_t state = kvt_entry_state(e);
	enum kvt_phase phase;

	do {
		phase = kvt_state_phase(state);
		if (phase != KVT_LIVE && phase != KVT_FILLING)
			return false;
		if (kvt_state_holds(state) > most_holds ||
			(why == KVT_LEAVE_PASSED && (state & KVT_PINNED) != 0))
			return false;
	} while (!atomic_compare_exchange_weak_explicit(&e->state, &state,
		kvt_state_with_phase(state, KVT_GOING) & ~KVT_PINNED, memory_order_acq_rel,
		memory_order_acquire));
	kvt_table_remove(&x->table, kvt_index_hash(x, kvt_entry_key(e)), number);
	if (phase == KVT_LIVE) {
		x->policy->ops->removed(x->policy, number, why == KVT_LEAVE_EVICTED);
		if (x->tenant_links != NULL)
			kvt_entry_list_remove(
				&kvt_tenant_at(x, e->tenant)->list, x->tenant_links, number);
		x->counts.entries--;
	}
	if ((state & KVT_PINNED) != 0)
		x->counts.pinned--;
	kvt_family_part(x, number);
	count_leave(x, why);
	if (kvt_state_holds(state) == 0)
		kvt_index_bury(x, number);
	return true;
}

void kvt_index_bury(struct kvt_index *x, uint32_t number)
{
	struct kvt_entry *e = kvt_index_at(x, number);
	uint64_t state = kvt_entry_state(e);
	struct kvt_entry_info info;

	kvt_index_info(x, number, &info);
	x->options.gone(x->options.self, number, kvt_entry_key(e), &info);
	x->counts.used -= info.charge;
	x->counts.payload -= info.bytes;
	if (info.expires_wall_ns != INT64_MAX || info.ttl_ns != 0)
		x->mortal--;
	kvt_tenant_discharge(x, e->tenant, info.charge);
	atomic_store_explicit(&e->state, kvt_state_with_phase(state, KVT_FREE) + KVT_GENERATION_ONE,
		memory_order_release);
	e->next = x->free;
	x->free = number;
	x->taken--;
}

/* --- making room --- */

static bool is_chosen(const struct kvt_index *x, uint32_t number)
{
	return (x->choice.bits[number / 64] >> number % 64 & 1) != 0;
}

/* Returns whether the entry has children that stay. */
static bool keeps_children(const struct kvt_index *x, uint32_t number)
{
	uint32_t child;

	if (!kvt_family_has_children(x, number))
		return false;
	if (x->choice.count == 0)
		return true;
	child = kvt_index_at(x, number)->first_child;
	while (child != KVT_NO_ENTRY && is_chosen(x, child))
		child = kvt_index_at(x, child)->next;
	return child != KVT_NO_ENTRY;
}

static bool may_go(void *self, uint32_t number)
{
	const struct kvt_index *x = self;
	uint64_t state;

	if (keeps_children(x, number) || is_chosen(x, number) || number == x->guard)
		return false;
	state = kvt_entry_state(kvt_index_at(x, number));
	return kvt_state_phase(state) == KVT_LIVE && kvt_state_holds(state) == 0 &&
	       (state & KVT_PINNED) == 0;
}

/* Returns the next victim, among the entries of one tenant or (KVT_NO_ENTRY) of all. */
static uint32_t victim_of(struct kvt_index *x, uint32_t tenant)
{
	if (tenant == KVT_NO_ENTRY)
		return x->policy->ops->victim(x->policy, may_go, x);
	return kvt_entry_list_victim(&kvt_tenant_at(x, tenant)->list, x->tenant_links, may_go, x);
}

/* Adds an entry that may be evicted to the choice. KVT_ENOMEM. */
static enum kvt_status choose_entry(struct kvt_index *x, uint32_t victim)
{
	struct kvt_choice *c = &x->choice;
	uint32_t *entries;
	size_t room;

	if (c->count == c->room) {
		room = c->room != 0 ? 2 * c->room : CHOICE_ROOM;
		entries = reallocarray(c->entries, room, sizeof(*entries));
		if (entries == NULL)
			return KVT_ENOMEM;
		c->entries = entries;
		c->room = room;
	}
	c->entries[c->count++] = victim;
	c->bits[victim / 64] |= 1ull << victim % 64;
	c->charge += kvt_entry_charge(kvt_index_at(x, victim));
	return KVT_OK;
}

/* Chooses one more victim. KVT_FULL: no other entry may be evicted; KVT_ENOMEM. */
static enum kvt_status choose(struct kvt_index *x, uint32_t tenant)
{
	uint32_t victim = victim_of(x, tenant);

	return victim == KVT_NO_ENTRY ? KVT_FULL : choose_entry(x, victim);
}

/* Chooses those entries of these keys that are present. KVT_FULL: one of them may not be
 * evicted. */
static enum kvt_status choose_keys(struct kvt_index *x, const struct kvt_key *keys, size_t n)
{
	enum kvt_status status = KVT_OK;

	for (size_t i = 0; status == KVT_OK && i < n; i++) {
		uint32_t number = kvt_index_find(x, &keys[i]);

		if (number != KVT_NO_ENTRY)
			status = may_go(x, number) ? choose_entry(x, number) : KVT_FULL;
	}
	return status;
}

/* Returns the charge of the chosen entries that belong to other tenants. */
static uint64_t charge_of_others(const struct kvt_index *x, uint32_t tenant)
{
	const struct kvt_choice *c = &x->choice;
	uint64_t charge = 0;

	for (size_t i = 0; i < c->count; i++) {
		const struct kvt_entry *e = kvt_index_at(x, c->entries[i]);

		charge += e->tenant != tenant ? kvt_entry_charge(e) : 0;
	}
	return charge;
}

static void forget_choice(struct kvt_index *x)
{
	struct kvt_choice *c = &x->choice;

	for (size_t i = 0; i < c->count; i++)
		c->bits[c->entries[i] / 64] &= ~(1ull << c->entries[i] % 64);
	c->count = 0;
	c->charge = 0;
}

/* Chooses entries of the tenant itself, if it is at its limit. */
static enum kvt_status choose_of_tenant(
	struct kvt_index *x, const struct kvt_tenant *tenant, uint64_t charge)
{
	const uint64_t limit = kvt_tenant_limit_of(x, tenant);
	enum kvt_status status = KVT_OK;
	uint64_t others;
	uint32_t number;

	if (limit == 0)
		return KVT_OK;
	if (charge > limit)
		return KVT_FULL;
	number = kvt_tenant_find(x, tenant);
	others = charge_of_others(x, number);
	while (status == KVT_OK && number != KVT_NO_ENTRY &&
		kvt_tenant_at(x, number)->used + others - x->choice.charge > limit - charge)
		status = choose(x, number);
	return status;
}

/* Needs the mutex. */
static bool is_limited(struct kvt_index *x, const struct kvt_entry_info *info)
{
	bool is = choose_of_tenant(x, &info->tenant, info->charge) == KVT_FULL;

	forget_choice(x);
	return is;
}

bool kvt_index_is_limited(struct kvt_index *x, const struct kvt_entry_info *info)
{
	bool is;

	kvt_index_lock(x);
	is = is_limited(x, info);
	kvt_index_unlock(x);
	return is;
}

bool kvt_index_count_limited(struct kvt_index *x, const struct kvt_entry_info *info)
{
	uint32_t number;
	bool is;

	kvt_index_lock(x);
	is = is_limited(x, info);
	number = is ? kvt_tenant_find(x, &info->tenant) : KVT_NO_ENTRY;
	x->counts.refused += is;
	if (number != KVT_NO_ENTRY)
		kvt_tenant_at(x, number)->refused++;
	kvt_index_unlock(x);
	return is;
}

/* Evicts the chosen entries; those in [from, to) count as evicted for a tenant's limit. False: a
 * reader took a hold on one of them, which stays, and perhaps others do. */
static bool evict_chosen(struct kvt_index *x, size_t from, size_t to)
{
	struct kvt_choice *c = &x->choice;
	bool all = true;

	for (size_t i = 0; all && i < c->count; i++)
		all = kvt_index_leave(x, c->entries[i],
			i >= from && i < to ? KVT_LEAVE_LIMITED : KVT_LEAVE_EVICTED);
	forget_choice(x);
	return all;
}

/* Makes room, after a check: no entry is evicted if all that may be evicted would not suffice. The
 * entries of the n keys are all evicted in any case. */
static enum kvt_status make_room(struct kvt_index *x, const struct kvt_key *keys, size_t n,
	const struct kvt_tenant *tenant, uint64_t charge, uint64_t spare)
{
	const struct kvt_choice *c = &x->choice;
	const uint64_t most = x->options.capacity - spare - charge;

	if (spare > x->options.capacity || charge > x->options.capacity - spare)
		return KVT_FULL;
	for (int race = 0; race < RACES_MOST; race++) {
		enum kvt_status status = choose_keys(x, keys, n);
		size_t first = c->count, limited;

		if (status == KVT_OK)
			status = choose_of_tenant(x, tenant, charge);
		limited = c->count;
		while (status == KVT_OK && (x->counts.used - c->charge > most ||
						   x->taken - c->count >= x->options.max_entries))
			status = choose(x, KVT_NO_ENTRY);
		if (status != KVT_OK) {
			forget_choice(x);
			return status;
		}
		if (evict_chosen(x, first, limited))
			return KVT_OK;
	}
	return KVT_FULL;
}

enum kvt_status kvt_index_make_room(
	struct kvt_index *x, const struct kvt_tenant *tenant, uint64_t charge, uint64_t spare)
{
	return make_room(x, NULL, 0, tenant, charge, spare);
}

/* Evicts one entry, of any tenant. */
static bool evict_one(struct kvt_index *x)
{
	for (int race = 0; race < RACES_MOST; race++) {
		uint32_t victim = victim_of(x, KVT_NO_ENTRY);

		if (victim == KVT_NO_ENTRY)
			return false;
		if (kvt_index_leave(x, victim, KVT_LEAVE_EVICTED))
			return true;
	}
	return false;
}

bool kvt_index_evict(struct kvt_index *x)
{
	bool evicted;

	kvt_index_lock(x);
	evicted = evict_one(x);
	kvt_index_unlock(x);
	return evicted;
}

size_t kvt_index_pass(struct kvt_index *x, const uint32_t *entries, size_t n)
{
	size_t count = 0;

	kvt_index_lock(x);
	while (n-- > 0) /* children first, so that no entry has a missing parent meanwhile */
		count += kvt_index_leave(x, entries[n], KVT_LEAVE_PASSED);
	kvt_index_unlock(x);
	return count;
}

bool kvt_index_pass_for(struct kvt_index *x, const struct kvt_key *keys, size_t n,
	const struct kvt_entry_info *info, uint64_t spare)
{
	enum kvt_status status;

	kvt_index_lock(x);
	status = make_room(x, keys, n, &info->tenant, info->charge, spare);
	kvt_index_unlock(x);
	return status == KVT_OK;
}

/* --- erasing --- */

size_t kvt_index_erase(struct kvt_index *x, const struct kvt_key *keys, size_t n)
{
	size_t erased = 0;

	kvt_index_lock(x);
	for (size_t i = 0; i < n; i++) {
		uint32_t number = kvt_index_find(x, &keys[i]);

		if (number != KVT_NO_ENTRY && kvt_index_leave(x, number, KVT_LEAVE_ERASED))
			erased++;
	}
	kvt_index_unlock(x);
	return erased;
}

void kvt_index_drop(struct kvt_index *x, uint32_t entry)
{
	kvt_index_lock(x);
	(void)kvt_index_leave(x, entry, KVT_LEAVE_DROPPED);
	kvt_index_unlock(x);
}

/* Which entries a walk erases: those of a tenant, of slots (of its tenant, or in its key), or (both
 * NULL) all. */
struct erasure {
	const struct kvt_tenant *tenant;
	const struct kvt_slot_set *slots;
};

static bool is_meant(const struct erasure *of, const struct kvt_key *key, const struct kvt_tenant *tenant)
{
	if (of->tenant != NULL)
		return memcmp(tenant, of->tenant, sizeof(*tenant)) == 0;
	return of->slots == NULL || kvt_slot_set_has(of->slots, kvt_tenant_slot(tenant)) ||
	       kvt_slot_set_has(of->slots, kvt_key_slot(key));
}

/* The walk meets every entry that existed before the call, since entries do not move. */
static size_t erase_walk(struct kvt_index *x, const struct erasure *of)
{
	uint32_t fresh, number = 0;
	size_t erased = 0;

	do {
		kvt_index_lock(x);
		fresh = atomic_load_explicit(&x->fresh, memory_order_relaxed);
		for (uint32_t i = 0; i < WALK_STEP && number < fresh; i++, number++) {
			struct kvt_entry *e = kvt_index_at(x, number);

			if (kvt_entry_phase(e) == KVT_FREE)
				continue;
			if (!is_meant(of, kvt_entry_key(e), &kvt_tenant_at(x, e->tenant)->tenant))
				continue;
			if (kvt_index_leave(x, number, KVT_LEAVE_ERASED))
				erased++;
		}
		kvt_index_unlock(x);
	} while (number < fresh);
	return erased;
}

void kvt_index_tally(
	struct kvt_index *x, const struct kvt_tenant *tenant, uint64_t *chunks, uint64_t *bytes)
{
	uint32_t fresh, number = 0;

	*chunks = *bytes = 0;
	do {
		kvt_index_lock(x);
		fresh = atomic_load_explicit(&x->fresh, memory_order_relaxed);
		for (uint32_t i = 0; i < WALK_STEP && number < fresh; i++, number++) {
			struct kvt_entry *e = kvt_index_at(x, number);
			struct kvt_entry_info info;

			if (kvt_entry_phase(e) != KVT_LIVE)
				continue;
			kvt_index_info(x, number, &info);
			if (tenant != NULL && memcmp(&info.tenant, tenant, sizeof(*tenant)) != 0)
				continue;
			++*chunks;
			*bytes += info.bytes;
		}
		kvt_index_unlock(x);
	} while (number < fresh);
}

size_t kvt_index_clear(struct kvt_index *x, uint64_t *tokens)
{
	uint32_t fresh, number = 0;
	size_t cleared = 0;

	*tokens = 0;
	do {
		kvt_index_lock(x);
		fresh = atomic_load_explicit(&x->fresh, memory_order_relaxed);
		for (uint32_t i = 0; i < WALK_STEP && number < fresh; i++, number++) {
			struct kvt_entry *e = kvt_index_at(x, number);
			uint64_t of_entry = e->tokens;

			if (kvt_entry_phase(e) != KVT_LIVE ||
				(kvt_entry_state(e) & KVT_PINNED) != 0 ||
				!kvt_index_leave(x, number, KVT_LEAVE_ERASED))
				continue;
			cleared++;
			*tokens += of_entry;
		}
		kvt_index_unlock(x);
	} while (number < fresh);
	return cleared;
}

size_t kvt_index_erase_tenant(struct kvt_index *x, const struct kvt_tenant *tenant)
{
	const struct erasure of = {.tenant = tenant};

	return erase_walk(x, &of);
}

size_t kvt_index_erase_slots(struct kvt_index *x, const struct kvt_slot_set *slots)
{
	const struct erasure of = {.slots = slots};

	return erase_walk(x, &of);
}

size_t kvt_index_erase_all(struct kvt_index *x)
{
	const struct erasure of = {.tenant = NULL};

	return erase_walk(x, &of);
}

/* --- expiry --- */

size_t kvt_index_expire(struct kvt_index *x, size_t most)
{
	const int64_t wall_ns = kvt_steady_wall(&x->surroundings);
	uint32_t fresh, seen = 0;
	size_t expired = 0;
	bool more;

	do {
		kvt_index_lock(x);
		fresh = atomic_load_explicit(&x->fresh, memory_order_relaxed);
		more = x->mortal > 0;
		for (uint32_t i = 0; more && i < WALK_STEP; i++) {
			if (expired >= most || seen >= fresh || seen >= EXPIRE_MOST) {
				more = false;
				break;
			}
			if (x->expire_cursor >= fresh)
				x->expire_cursor = 0;
			struct kvt_entry *e = kvt_index_at(x, x->expire_cursor);

			if (kvt_entry_phase(e) == KVT_LIVE && kvt_entry_has_expired(e, wall_ns) &&
				kvt_index_leave(x, x->expire_cursor, KVT_LEAVE_EXPIRED))
				expired++;
			x->expire_cursor++;
			seen++;
		}
		kvt_index_unlock(x);
	} while (more);
	return expired;
}
