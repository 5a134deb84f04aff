/*
 * entry.h - the memory of one entry of an index, and its state word.
 *
 * An entry is two cache lines: a lookup reads only the first. Its memory stays valid while the
 * index lives, but a later life of the same entry changes the key, so a reader without a lock must
 * make sure that the words it read belong to one life:
 *
 *   - The state word holds a generation that increases whenever the entry becomes free. A writer
 *     changes the state first, then the key (release stores). A reader reads the state, then the
 *     key (acquire loads), then changes the state by compare-and-swap or reads it again: if a word
 *     of the key was of a later life, the state seen last is of a later life too.
 *   - Hence a compare-and-swap from exactly the word that was read before the comparison of keys
 *     takes a hold under the right key or not at all.
 *   - Holds are only added while LIVE. One thread brings the count to zero after the entry became
 *     GOING (its last holder, or the one that made it GOING without holds), and frees it.
 */
#ifndef KVT_ENTRY_H
#define KVT_ENTRY_H

#include <stdatomic.h>
#include <string.h>

#include "policies/policy.h"

enum kvt_phase { KVT_FREE = 0, KVT_FILLING = 1, KVT_LIVE = 2, KVT_GOING = 3 };

/* state: generation (37 bits) | pinned (1) | phase (2) | holds (24) */
#define KVT_HOLD_ONE         1ull
#define KVT_HOLDS_MOST       ((1ull << 24) - 1)
#define KVT_PHASE_SHIFT      24
#define KVT_PINNED           (1ull << 26)
#define KVT_GENERATION_SHIFT 27
#define KVT_GENERATION_ONE   (1ull << KVT_GENERATION_SHIFT)

/* a bit in `parent`: the rest is the number of a record of a missing parent, not of an entry */
#define KVT_MISSING_PARENT   (1u << 31)
#define KVT_INDEX_MOST       (KVT_MISSING_PARENT - 2) /* entries */
#define KVT_ENTRY_BYTES_MOST (((uint64_t)1 << 48) - 1)

struct kvt_entry {
	_Atomic uint64_t state;
	_Atomic uint64_t key[KVT_KEY_BYTES / 8];
	_Atomic int64_t expires_wall_ns; /* INT64_MAX: never; readers change it without a lock */
	/* The members from here on are written while the entry is FREE or FILLING, and constant
	 * while it is LIVE and held. */
	uint32_t ttl;    /* packed by kvt_ttl_pack */
	uint32_t tenant; /* number of the tenant's record */
	uint32_t tokens;
	uint32_t depth; /* chunks before this one, as far as known at its insertion */

	uint64_t place[4];
	uint32_t bytes_low, charge_low;
	uint16_t bytes_high, charge_high;
	float cost_ns;
	/* The following members are guarded by the index's mutex. They are entry numbers or
	 * KVT_NO_ENTRY. */
	uint32_t parent;
	uint32_t first_child;
	uint32_t next; /* next sibling; for a free entry the next free one */
	uint32_t previous;
};
_Static_assert(sizeof(struct kvt_entry) == 128, "an entry is two cache lines");

static inline uint64_t kvt_state_holds(uint64_t state)
{
	return state & KVT_HOLDS_MOST;
}

static inline enum kvt_phase kvt_state_phase(uint64_t state)
{
	return (enum kvt_phase)((state >> KVT_PHASE_SHIFT) & 3);
}

static inline uint64_t kvt_state_with_phase(uint64_t state, enum kvt_phase phase)
{
	return (state & ~(3ull << KVT_PHASE_SHIFT)) | (uint64_t)phase << KVT_PHASE_SHIFT;
}

static inline uint32_t kvt_state_generation(uint64_t state) /* the low 32 bits of the generation */
{
	return (uint32_t)(state >> KVT_GENERATION_SHIFT);
}

static inline uint64_t kvt_entry_state(const struct kvt_entry *e)
{
	return atomic_load_explicit(&e->state, memory_order_acquire);
}

static inline enum kvt_phase kvt_entry_phase(const struct kvt_entry *e)
{
	return kvt_state_phase(kvt_entry_state(e));
}

static inline bool kvt_entry_has_key(const struct kvt_entry *e, const struct kvt_key *key)
{
	uint64_t words[KVT_KEY_BYTES / 8], differ = 0;

	memcpy(words, key, sizeof(words));
	for (size_t i = 0; i < KVT_KEY_BYTES / 8; i++)
		differ |= words[i] ^ atomic_load_explicit(&e->key[i], memory_order_acquire);
	return differ == 0;
}

static inline void kvt_entry_set_key(struct kvt_entry *e, const struct kvt_key *key)
{
	uint64_t words[KVT_KEY_BYTES / 8];

	memcpy(words, key, sizeof(words));
	for (size_t i = 0; i < KVT_KEY_BYTES / 8; i++)
		atomic_store_explicit(&e->key[i], words[i], memory_order_release);
}

/* Returns the key of an entry whose key cannot change now: the entry is held, or the mutex is. */
static inline const struct kvt_key *kvt_entry_key(const struct kvt_entry *e)
{
	_Static_assert(sizeof(e->key) == sizeof(struct kvt_key), "a key's words are its bytes");
	return (const struct kvt_key *)(const void *)e->key;
}

static inline bool kvt_entry_has_expired(const struct kvt_entry *e, int64_t wall_ns)
{
	return atomic_load_explicit(&e->expires_wall_ns, memory_order_relaxed) <= wall_ns;
}

static inline uint64_t kvt_entry_bytes(const struct kvt_entry *e)
{
	return (uint64_t)e->bytes_high << 32 | e->bytes_low;
}

static inline uint64_t kvt_entry_charge(const struct kvt_entry *e)
{
	return (uint64_t)e->charge_high << 32 | e->charge_low;
}

/* Packs a TTL into four bytes: a number below 2^28 and a power of ten. Usual values ("30 min") are
 * kept exactly; others become shorter by less than one part in 10^7. */
uint32_t kvt_ttl_pack(uint64_t ns);
uint64_t kvt_ttl_ns(uint32_t packed);

#endif
