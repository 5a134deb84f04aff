/*
 * entry.c - functions that all files of the index use: its lock, the search for an entry, its data.
 */
#include "index/index_parts.h"

#define TTL_DIGITS 4 /* bits for the power of ten */
#define TTL_MOST   ((1u << 28) - 1)

uint32_t kvt_ttl_pack(uint64_t ns)
{
	uint32_t power = 0;

	for (; ns > TTL_MOST; ns /= 10)
		power++;
	return (uint32_t)ns << TTL_DIGITS | power;
}

uint64_t kvt_ttl_ns(uint32_t packed)
{
	uint64_t ns = packed >> TTL_DIGITS;

	for (uint32_t power = packed & ((1u << TTL_DIGITS) - 1); power > 0; power--)
		ns *= 10;
	return ns;
}

/* --- finding --- */

uint32_t kvt_index_hash(const struct kvt_index *x, const struct kvt_key *key)
{
	uint64_t w[KVT_KEY_BYTES / 8];

	memcpy(w, key, sizeof(w));
	w[0] = kvt_fold(w[0] ^ x->seed[0], w[1] ^ x->seed[1]);
	w[2] = kvt_fold(w[2] ^ x->seed[2], w[3] ^ x->seed[3]);
	return (uint32_t)(kvt_fold(w[0] ^ x->seed[2], w[2] ^ x->seed[1]) >> 32);
}

uint32_t kvt_index_find(const struct kvt_index *x, const struct kvt_key *key)
{
	const struct kvt_slots *s = atomic_load_explicit(&x->table.now, memory_order_relaxed);
	const uint32_t hash = kvt_index_hash(x, key);
	uint32_t at = kvt_slots_home(s, hash), steps = 0, number;

	do {
		number = kvt_slots_find(s, hash, &at, &steps);
	} while (number != KVT_NO_ENTRY && !kvt_entry_has_key(kvt_index_at(x, number), key));
	return number;
}

/* --- the lock, uses and holds --- */

void kvt_index_report_uses(struct kvt_index *x, uint64_t most)
{
	uint32_t entry, generation;

	while (most-- > 0 && kvt_uses_take(&x->uses, &entry, &generation)) {
		struct kvt_entry *e = kvt_index_at(x, entry);
		uint64_t state = kvt_entry_state(e);

		if (kvt_state_phase(state) != KVT_LIVE || kvt_state_generation(state) != generation)
			continue;
		x->policy->ops->used(x->policy, entry);
		if (x->tenant_links != NULL)
			kvt_entry_list_renew(
				&kvt_tenant_at(x, e->tenant)->list, x->tenant_links, entry);
	}
}

void kvt_index_lock(struct kvt_index *x)
{
	(void)pthread_mutex_lock(&x->mutex);
	kvt_index_report_uses(x, x->uses.size);
}

void kvt_index_unlock(struct kvt_index *x)
{
	(void)pthread_mutex_unlock(&x->mutex);
}

void kvt_index_count_held(struct kvt_index *x, int64_t change)
{
	uint64_t thread = (uint64_t)(uintptr_t)pthread_self() >> 12;
	struct kvt_held *held = &x->held[kvt_fold(thread, 0x9e3779b97f4a7c15ull) % KVT_HELD_SHARDS];

	atomic_fetch_add_explicit(&held->entries, change, memory_order_relaxed);
}

/* --- an entry's data --- */

const struct kvt_key *kvt_index_key(const struct kvt_index *x, uint32_t entry)
{
	return kvt_entry_key(kvt_index_at(x, entry));
}

void kvt_index_info(const struct kvt_index *x, uint32_t entry, struct kvt_entry_info *out)
{
	const struct kvt_entry *e = kvt_index_at(x, entry);

	*out = (struct kvt_entry_info){
		.bytes = kvt_entry_bytes(e),
		.charge = kvt_entry_charge(e),
		.tenant = kvt_tenant_at(x, e->tenant)->tenant,
		.expires_wall_ns = atomic_load_explicit(&e->expires_wall_ns, memory_order_relaxed),
		.ttl_ns = kvt_ttl_ns(e->ttl),
		.tokens = e->tokens,
		.cost_ns = (uint64_t)e->cost_ns,
	};
	memcpy(out->place, e->place, sizeof(out->place));
}
