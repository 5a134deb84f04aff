/*
 * cache_index.h - the index of a tier: finds entries by key, and keeps chains, holds, the order of
 * eviction, TTL and tenants.
 *
 * L1 and NVMe have one index each; a tier alone knows the bytes of an entry and their location (its
 * `place`). Entries live in one slab that is never moved or freed while the index lives; an
 * open-addressed table of (tag, number) slots finds them.
 *
 * An entry's life: FILLING (inserted, invisible to match and hold, its key is taken) -> LIVE
 * (published) -> GOING (chosen as victim, erased or expired: invisible, its holders go on) -> free,
 * when its last hold is released; the index then calls `gone`, in which the tier frees the entry's
 * place. Every inserted entry leaves through `gone` exactly once.
 *
 * Threads: match, hold and release take no lock; a match takes 20 ns for each chunk when the index
 * is in the processor's cache. All other functions take the index's own mutex. Uses that hold()
 * reports to the policy pass through a bounded ring that the next holder of the mutex empties; a
 * full ring loses uses and never makes a reader wait.
 *
 * Chains: an entry knows its parent's entry if that is present; a parent has a list of its
 * children. A parent that is inserted after its child adopts the child. Entries with children are
 * never victims.
 */
#ifndef KVT_CACHE_INDEX_H
#define KVT_CACHE_INDEX_H

#include "chunk/slots.h"
#include "chunk/tenants.h"
#include "chunk/note.h"
#include "policies/policy.h"

struct kvt_index;

/* An entry's data besides its key, unpacked; the slab stores it in less space (tenants by
 * number). */
struct kvt_entry_info {
	uint64_t bytes;  /* payload */
	uint64_t charge; /* bytes occupied in the tier, rounding and header included */
	struct kvt_tenant tenant;
	int64_t expires_wall_ns; /* expiry as of the last use; INT64_MAX: never */
	uint64_t ttl_ns;         /* a use moves expires_wall_ns to wall + ttl; 0: a use does not */
	uint32_t tokens;
	uint64_t cost_ns;  /* for the policy */
	uint64_t place[4]; /* private to the tier: extents, offsets, pointers */
};

struct kvt_index_options {
	uint32_t max_entries;
	uint64_t capacity;     /* limit of the sum of all charges, in bytes */
	uint64_t tenant_limit; /* limit of the charges of a tenant; 0: none */
	const char *policy;
	uint64_t max_ghost_bytes;
	/* Called when an entry is free; its number is not reused before the call returned. Called
	 * with the index's mutex held, so that it must not call the index. */
	void (*gone)(void *self, uint32_t entry, const struct kvt_key *key,
		const struct kvt_entry_info *info);
	void *self;
};

enum kvt_status kvt_index_create(const struct kvt_index_options *options,
	const struct kvt_surroundings *s, struct kvt_index **out) KVT_MUST_CHECK;
/* requires that no entry is held; calls gone for all */
void kvt_index_destroy(struct kvt_index *x);

/* --- without a lock --- */

/* Returns how many keys from the first on are LIVE. Does not count as a use. */
size_t kvt_index_match(struct kvt_index *x, const struct kvt_key *keys, size_t n);

/* Takes a hold on a LIVE entry and reports a use (if `use`). KVT_MISS: no such entry. */
enum kvt_status kvt_index_hold(
	struct kvt_index *x, const struct kvt_key *key, bool use, uint32_t *entry) KVT_MUST_CHECK;
/* Takes holds on a chain; returns how many, from the first chunk on; reports uses, deepest
 * first. */
size_t kvt_index_hold_chain(
	struct kvt_index *x, const struct kvt_key *keys, size_t n, bool use, uint32_t *entries);
void kvt_index_release(struct kvt_index *x, uint32_t entry);
/* Returns whether a held entry is still LIVE: not erased, expired or dropped since the hold. */
bool kvt_index_is_live(const struct kvt_index *x, uint32_t entry);

/* Return data of an entry that the caller holds or is filling. The key is borrowed as long as the
 * hold. */
const struct kvt_key *kvt_index_key(const struct kvt_index *x, uint32_t entry);
void kvt_index_info(const struct kvt_index *x, uint32_t entry, struct kvt_entry_info *out);

/* --- with the mutex --- */

/* Reads the key of an entry's parent, present or missing; the caller holds the entry or is filling
 * it. False: the entry has no parent, or is GOING. */
bool kvt_index_parent(struct kvt_index *x, uint32_t entry, struct kvt_key *out);

/*
 * Inserts a new entry, FILLING, with one hold (the filler's). Makes room in `capacity`, in the
 * tenant's limit and in max_entries by evicting, calling gone() for each victim. KVT_FULL: too few
 * entries may go, so none goes. KVT_EXISTS: the key is present (*entry: its number, without a
 * hold). `parent` may be NULL.
 */
enum kvt_status kvt_index_insert(struct kvt_index *x, const struct kvt_key *key,
	const struct kvt_key *parent, const struct kvt_entry_info *info,
	uint32_t *entry) KVT_MUST_CHECK;
/* Does the same as kvt_index_insert, but leaves `spare` bytes of the capacity unused. chained:
 * inserts only if the entry has no parent, or the parent is present, FILLING or LIVE; otherwise
 * returns KVT_MISS, and evicts no entry. */
enum kvt_status kvt_index_insert_sparing(struct kvt_index *x, const struct kvt_key *key,
	const struct kvt_key *parent, const struct kvt_entry_info *info, uint64_t spare,
	bool chained, uint32_t *entry) KVT_MUST_CHECK;
/* Replaces info->place of an entry that is being filled; charge and bytes stay. */
void kvt_index_place(struct kvt_index *x, uint32_t entry, const uint64_t place[4]);
/* Returns whether an entry of this key is FILLING, and so may be LIVE a moment later. */
bool kvt_index_is_filling(struct kvt_index *x, const struct kvt_key *key);

/* Makes a FILLING entry LIVE. The filler's hold remains, and must be released. KVT_MISS: the entry
 * was erased meanwhile. */
enum kvt_status kvt_index_publish(struct kvt_index *x, uint32_t entry) KVT_MUST_CHECK;
/* Removes a FILLING entry, together with the filler's hold. */
void kvt_index_discard(struct kvt_index *x, uint32_t entry);

/* Evicts one entry, if any may be evicted (for a tier whose places are scarcer than its bytes). */
bool kvt_index_evict(struct kvt_index *x);
/* Evicts entries of a chain, parents first. The caller holds them, and keeps its holds. Entries
 * that are pinned, or that others hold too, stay. Returns how many were evicted. */
size_t kvt_index_pass(struct kvt_index *x, const uint32_t *entries, size_t n);

/* Evicts the entries of these keys, children before parents, and others if that is not enough, so
 * that an entry like `info` has room and `spare` stays unused. False: the room would not suffice,
 * or one of the entries may not be evicted (held, pinned, or with children); then none is. */
bool kvt_index_pass_for(struct kvt_index *x, const struct kvt_key *keys, size_t n,
	const struct kvt_entry_info *info, uint64_t spare);

/* Erase entries: LIVE or FILLING ones become GOING, and are invisible at once. Children stay, but
 * cannot be reached through their chain until the parent comes back. Return how many were
 * erased. */
size_t kvt_index_erase(struct kvt_index *x, const struct kvt_key *keys, size_t n);
size_t kvt_index_erase_tenant(struct kvt_index *x, const struct kvt_tenant *tenant);
size_t kvt_index_erase_slots(struct kvt_index *x, const struct kvt_slot_set *slots);
size_t kvt_index_erase_all(struct kvt_index *x);
/* Erases LIVE entries that are not pinned; *tokens: sum of their tokens. */
size_t kvt_index_clear(struct kvt_index *x, uint64_t *tokens);
/* Counts LIVE entries of a tenant, or (NULL) of all, and their payload. Walks all entries. */
void kvt_index_tally(
	struct kvt_index *x, const struct kvt_tenant *tenant, uint64_t *chunks, uint64_t *bytes);
/* Lists the tenants that have entries: at most `most` (up to KVT_TENANTS_LISTED) by name, those
 * with the most bytes. Walks all tenants. */
void kvt_index_tenants(struct kvt_index *x, size_t most, struct kvt_tenant_list *out);
/* Removes an entry that was found to be wrong. */
void kvt_index_drop(struct kvt_index *x, uint32_t entry);

#define KVT_TENANT_LIMITS 4096 /* most tenants that may have a limit of their own */
/* Sets a tenant's limit in place of options.tenant_limit, from the next insert on; 0: no limit.
 * KVT_FULL: too many tenants have a limit; KVT_ENOMEM. */
enum kvt_status kvt_index_limit_tenant(
	struct kvt_index *x, const struct kvt_tenant *tenant, uint64_t charge) KVT_MUST_CHECK;

/* Returns whether its tenant's limit keeps an entry like `info` out now, however much room there
 * is. */
bool kvt_index_is_limited(struct kvt_index *x, const struct kvt_entry_info *info);
/* Like kvt_index_is_limited, for an entry that the caller gives up: if limited, counts the entry as
 * refused, in all and for its tenant. */
bool kvt_index_count_limited(struct kvt_index *x, const struct kvt_entry_info *info);

size_t kvt_index_pin(struct kvt_index *x, const struct kvt_key *keys, size_t n, bool pin);

/* Removes expired entries, at most `most` a call; returns how many. */
size_t kvt_index_expire(struct kvt_index *x, size_t most);

/* Walks LIVE entries in no order, with a hold on each, which the caller releases; *cursor is 0 at
 * first, and 0 again after the last entry. For scrubbing, announcing, listing. */
bool kvt_index_next(struct kvt_index *x, uint32_t *cursor, uint32_t *entry);

struct kvt_index_stats {
	uint64_t entries, capacity, used, payload;
	uint64_t evictions, expired, erased, uses_lost, orphans;
	uint64_t held, pinned;
	uint64_t metadata_bytes; /* bytes of the slab, the table, and the policy's data */
	uint64_t ghost_bytes;
	uint64_t dropped;
	uint64_t limited; /* evictions because of a tenant's limit */
	uint64_t refused; /* entries that a tenant's limit kept out: kvt_index_count_limited */
};
void kvt_index_stats(struct kvt_index *x, struct kvt_index_stats *out);

#endif
