/*
 * index.c - creates an index, inserts, pins, and counts.
 */
#include "index/index_parts.h"

#include <stdlib.h>
#include <sys/random.h>

/* --- names and the seed --- */

/* Returns the name by which policies know a key; it is the same in each run. */
static uint64_t name_of(const struct kvt_key *key)
{
	uint64_t w[KVT_KEY_BYTES / 8];

	memcpy(w, key, sizeof(w));
	return kvt_fold(w[0] ^ 0x9e3779b97f4a7c15ull, w[1] ^ 0xd1b54a32d192ed03ull) ^
	       kvt_fold(w[2] ^ 0x8cb92ba72f3d8dd7ull, w[3] ^ 0xaef17502108ef2d9ull);
}

static void make_seed(struct kvt_index *x)
{
	if (getrandom(x->seed, sizeof(x->seed), GRND_NONBLOCK) != (ssize_t)sizeof(x->seed))
		for (size_t i = 0; i < 4; i++)
			x->seed[i] = kvt_fold((uint64_t)kvt_now(&x->surroundings) + i,
				(uint64_t)(uintptr_t)x ^ 0x9e3779b97f4a7c15ull);
}

/* --- life --- */

static enum kvt_status make_policy(struct kvt_index *x)
{
	const struct kvt_policy_options options = {
		.max_entries = x->options.max_entries,
		.capacity_bytes = x->options.capacity,
		.max_ghost_bytes = x->options.max_ghost_bytes,
	};
	const struct kvt_policy_ops *ops = kvt_policy_named(x->options.policy);

	return ops == NULL ? KVT_EINVAL : ops->create(&options, &x->policy);
}

static enum kvt_status make_memory(struct kvt_index *x)
{
	const uint32_t most = x->options.max_entries;
	enum kvt_status status = kvt_region_init(&x->slab, (size_t)most * sizeof(*x->entries));

	if (status == KVT_OK)
		status = kvt_table_init(&x->table, most);
	if (status == KVT_OK)
		status = kvt_uses_init(&x->uses, most);
	if (status == KVT_OK)
		status = kvt_pool_init(&x->tenants, most, sizeof(struct kvt_tenant_record));
	if (status == KVT_OK)
		status = kvt_pool_init(
			&x->limits, KVT_TENANT_LIMITS, sizeof(struct kvt_tenant_limit));
	if (status == KVT_OK)
		status = kvt_pool_init(&x->missing, most / 4 + 1024, sizeof(struct kvt_missing));
	if (status == KVT_OK) {
		x->inner = calloc(most / 64 + 1, sizeof(*x->inner));
		x->choice.bits = calloc(most / 64 + 1, sizeof(*x->choice.bits));
		status = x->inner == NULL || x->choice.bits == NULL ? KVT_ENOMEM : KVT_OK;
	}
	if (status == KVT_OK && x->options.tenant_limit > 0) {
		x->tenant_links = calloc(most, sizeof(*x->tenant_links));
		status = x->tenant_links == NULL ? KVT_ENOMEM : KVT_OK;
	}
	return status;
}

static void free_index(struct kvt_index *x)
{
	if (x->policy != NULL)
		x->policy->ops->destroy(x->policy);
	free(x->tenant_links);
	free(x->inner);
	free(x->choice.bits);
	free(x->choice.entries);
	kvt_pool_finish(&x->missing);
	kvt_pool_finish(&x->limits);
	kvt_pool_finish(&x->tenants);
	kvt_uses_finish(&x->uses);
	kvt_table_finish(&x->table);
	kvt_region_finish(&x->slab);
	(void)pthread_mutex_destroy(&x->mutex);
	free(x);
}

enum kvt_status kvt_index_create(const struct kvt_index_options *options,
	const struct kvt_surroundings *s, struct kvt_index **out)
{
	enum kvt_status status;
	struct kvt_index *x;

	if (options->max_entries == 0 || options->max_entries > KVT_INDEX_MOST ||
		options->gone == NULL || options->policy == NULL)
		return KVT_EINVAL;
	x = aligned_alloc(_Alignof(struct kvt_index), sizeof(*x));
	if (x == NULL)
		return KVT_ENOMEM;
	memset(x, 0, sizeof(*x));
	x->options = *options;
	x->surroundings = *s;
	x->free = x->guard = KVT_NO_ENTRY;
	(void)pthread_mutex_init(&x->mutex, NULL);
	make_seed(x);
	status = make_memory(x);
	if (status == KVT_OK)
		status = make_policy(x);
	if (status != KVT_OK) {
		free_index(x);
		return status;
	}
	x->entries = x->slab.base;
	x->options.policy = NULL; /* was borrowed */
	*out = x;
	return KVT_OK;
}

void kvt_index_destroy(struct kvt_index *x)
{
	if (x == NULL)
		return;
	(void)kvt_index_erase_all(x);
	free_index(x);
}

/* --- insertion --- */

static void fill(struct kvt_entry *e, const struct kvt_key *key, uint32_t tenant,
	const struct kvt_entry_info *info)
{
	const double cost = (double)info->cost_ns;

	kvt_entry_set_key(e, key);
	atomic_store_explicit(&e->expires_wall_ns, info->expires_wall_ns, memory_order_release);
	e->ttl = kvt_ttl_pack(info->ttl_ns);
	e->tenant = tenant;
	e->tokens = info->tokens;
	memcpy(e->place, info->place, sizeof(e->place));
	e->bytes_low = (uint32_t)info->bytes;
	e->bytes_high = (uint16_t)(info->bytes >> 32);
	e->charge_low = (uint32_t)info->charge;
	e->charge_high = (uint16_t)(info->charge >> 32);
	e->cost_ns = (float)(cost < 0x1p62 ? cost : 0x1p62);
}

/* Takes a free entry, of which there must be one, and makes its page of the slab usable.
 * KVT_ENOMEM. */
static enum kvt_status take_number(struct kvt_index *x, uint32_t *number)
{
	uint32_t fresh = atomic_load_explicit(&x->fresh, memory_order_relaxed);

	if (x->free != KVT_NO_ENTRY) {
		*number = x->free;
		x->free = kvt_index_at(x, x->free)->next;
	} else {
		if (kvt_region_grow(&x->slab, ((size_t)fresh + 1) * sizeof(*x->entries)) != KVT_OK)
			return KVT_ENOMEM;
		*number = fresh;
		atomic_store_explicit(&x->fresh, fresh + 1, memory_order_release);
	}
	x->taken++;
	return KVT_OK;
}

static void give_number_back(struct kvt_index *x, uint32_t number)
{
	kvt_index_at(x, number)->next = x->free;
	x->free = number;
	x->taken--;
}

/* Enters a new entry; all limits have room for it. */
static enum kvt_status enter(struct kvt_index *x, const struct kvt_key *key,
	const struct kvt_key *parent, const struct kvt_entry_info *info, uint32_t *entry)
{
	const uint32_t hash = kvt_index_hash(x, key);
	enum kvt_status status = kvt_table_make_room(&x->table);
	uint32_t number, tenant;
	struct kvt_entry *e;

	if (status == KVT_OK)
		status = take_number(x, &number);
	if (status != KVT_OK)
		return status;
	status = kvt_tenant_charge(x, &info->tenant, info->charge, &tenant);
	if (status != KVT_OK) {
		give_number_back(x, number);
		return status;
	}
	e = kvt_index_at(x, number);
	fill(e, key, tenant, info);
	kvt_family_join(x, number, hash, key, parent);
	atomic_store_explicit(&e->state,
		kvt_state_with_phase(kvt_entry_state(e), KVT_FILLING) + KVT_HOLD_ONE,
		memory_order_release);
	kvt_table_add(&x->table, hash, number);
	x->counts.used += info->charge;
	x->counts.payload += info->bytes;
	if (info->expires_wall_ns != INT64_MAX || info->ttl_ns != 0)
		x->mortal++;
	kvt_index_count_held(x, 1);
	*entry = number;
	return KVT_OK;
}

/* Returns whether the key is taken. Removes an expired entry of the key that is still present. */
static bool is_taken(struct kvt_index *x, const struct kvt_key *key, uint32_t *entry)
{
	uint32_t number = kvt_index_find(x, key);
	struct kvt_entry *e;

	if (number == KVT_NO_ENTRY)
		return false;
	e = kvt_index_at(x, number);
	if (kvt_entry_phase(e) == KVT_LIVE && kvt_entry_has_expired(e, kvt_steady_wall(&x->surroundings)))
		return !kvt_index_leave(x, number, KVT_LEAVE_EXPIRED);
	*entry = number;
	return true;
}

enum kvt_status kvt_index_insert(struct kvt_index *x, const struct kvt_key *key,
	const struct kvt_key *parent, const struct kvt_entry_info *info, uint32_t *entry)
{
	return kvt_index_insert_sparing(x, key, parent, info, 0, false, entry);
}

enum kvt_status kvt_index_insert_sparing(struct kvt_index *x, const struct kvt_key *key,
	const struct kvt_key *parent, const struct kvt_entry_info *info, uint64_t spare, bool chained,
	uint32_t *entry)
{
	enum kvt_status status = KVT_MISS;
	uint32_t above;

	if (info->bytes > KVT_ENTRY_BYTES_MOST || info->charge > KVT_ENTRY_BYTES_MOST)
		return KVT_EINVAL;
	kvt_index_lock(x);
	if (is_taken(x, key, entry)) {
		status = KVT_EXISTS;
	} else {
		above = parent == NULL ? KVT_NO_ENTRY : kvt_index_find(x, parent);
		if (chained && parent != NULL && above == KVT_NO_ENTRY)
			goto out;
		x->guard = above; /* making room for a child must not evict its parent */
		status = kvt_index_make_room(x, &info->tenant, info->charge, spare);
		x->guard = KVT_NO_ENTRY;
		if (status == KVT_OK)
			status = enter(x, key, parent, info, entry);
	}
out:
	kvt_index_unlock(x);
	return status;
}

bool kvt_index_is_filling(struct kvt_index *x, const struct kvt_key *key)
{
	uint32_t number;
	bool fills;

	kvt_index_lock(x);
	number = kvt_index_find(x, key);
	fills = number != KVT_NO_ENTRY && kvt_entry_phase(kvt_index_at(x, number)) == KVT_FILLING;
	kvt_index_unlock(x);
	return fills;
}

void kvt_index_place(struct kvt_index *x, uint32_t entry, const uint64_t place[4])
{
	kvt_index_lock(x);
	memcpy(kvt_index_at(x, entry)->place, place, sizeof(kvt_index_at(x, entry)->place));
	kvt_index_unlock(x);
}

/* Returns the parent's number + 1 for the policy; 0: the parent is missing, or still being
 * filled. */
static uint32_t parent_of(const struct kvt_index *x, const struct kvt_entry *e)
{
	if (e->parent == KVT_NO_ENTRY || (e->parent & KVT_MISSING_PARENT) != 0 ||
		kvt_entry_phase(kvt_index_at(x, e->parent)) != KVT_LIVE)
		return 0;
	return e->parent + 1;
}

enum kvt_status kvt_index_publish(struct kvt_index *x, uint32_t entry)
{
	struct kvt_entry *e = kvt_index_at(x, entry);
	enum kvt_status status = KVT_MISS;
	uint64_t state;

	kvt_index_lock(x);
	state = kvt_entry_state(e);
	if (kvt_state_phase(state) == KVT_FILLING) {
		const struct kvt_policy_item item = {
			.name = name_of(kvt_entry_key(e)),
			.bytes = kvt_entry_bytes(e),
			.cost_ns = (uint64_t)e->cost_ns,
			.depth = e->depth,
			.parent = parent_of(x, e),
		};

		/* no other thread changes the state of an entry that is being filled */
		atomic_store_explicit(
			&e->state, kvt_state_with_phase(state, KVT_LIVE), memory_order_release);
		x->policy->ops->added(x->policy, entry, &item);
		if (x->tenant_links != NULL)
			kvt_entry_list_add(
				&kvt_tenant_at(x, e->tenant)->list, x->tenant_links, entry);
		x->counts.entries++;
		status = KVT_OK;
	}
	kvt_index_unlock(x);
	return status;
}

void kvt_index_discard(struct kvt_index *x, uint32_t entry)
{
	struct kvt_entry *e = kvt_index_at(x, entry);

	kvt_index_lock(x);
	/* this has no effect if it was erased meanwhile */
	(void)kvt_index_leave(x, entry, KVT_LEAVE_DISCARDED);
	atomic_fetch_sub_explicit(&e->state, KVT_HOLD_ONE, memory_order_acq_rel);
	kvt_index_count_held(x, -1);
	kvt_index_bury(x, entry);
	kvt_index_unlock(x);
}

/* --- pins, statistics --- */

size_t kvt_index_pin(struct kvt_index *x, const struct kvt_key *keys, size_t n, bool pin)
{
	const int64_t wall_ns = kvt_steady_wall(&x->surroundings);
	size_t there = 0;

	kvt_index_lock(x);
	for (size_t i = 0; i < n; i++) {
		uint32_t number = kvt_index_find(x, &keys[i]);
		struct kvt_entry *e;
		uint64_t state;

		if (number == KVT_NO_ENTRY)
			continue;
		e = kvt_index_at(x, number);
		if (kvt_entry_phase(e) != KVT_LIVE || kvt_entry_has_expired(e, wall_ns))
			continue;
		there++;
		if (pin)
			state = atomic_fetch_or_explicit(
				&e->state, KVT_PINNED, memory_order_acq_rel);
		else
			state = atomic_fetch_and_explicit(
				&e->state, ~KVT_PINNED, memory_order_acq_rel);
		if (((state & KVT_PINNED) != 0) != pin)
			x->counts.pinned += pin ? 1 : (uint64_t)-1;
	}
	kvt_index_unlock(x);
	return there;
}

void kvt_index_stats(struct kvt_index *x, struct kvt_index_stats *out)
{
	uint64_t own = 0, ghosts = 0;
	int64_t held = 0;

	kvt_index_lock(x);
	*out = x->counts;
	out->capacity = x->options.capacity;
	out->uses_lost = atomic_load_explicit(&x->uses.lost, memory_order_relaxed);
	for (size_t i = 0; i < KVT_HELD_SHARDS; i++)
		held += atomic_load_explicit(&x->held[i].entries, memory_order_relaxed);
	out->held = held > 0 ? (uint64_t)held : 0;
	x->policy->ops->memory(x->policy, &own, &ghosts);
	out->ghost_bytes = ghosts;
	out->metadata_bytes = own + sizeof(*x) + x->slab.usable + kvt_table_bytes(&x->table) +
			      kvt_pool_bytes(&x->tenants) + kvt_pool_bytes(&x->limits) +
			      kvt_pool_bytes(&x->missing) +
			      x->uses.size * sizeof(*x->uses.slot) +
			      atomic_load_explicit(&x->fresh, memory_order_relaxed) / 8 * 2 +
			      x->choice.room * sizeof(*x->choice.entries);
	if (x->tenant_links != NULL)
		out->metadata_bytes += (uint64_t)x->options.max_entries * sizeof(*x->tenant_links);
	kvt_index_unlock(x);
}
