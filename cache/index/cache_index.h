/*
 * cache_index.h - what a tier holds: key -> entry, chains, holds, eviction, TTL, tenants.
 *
 * L1 and NVMe have one each; what an entry's bytes are, and where, is the tier's business (its
 * `place`). Entries live in one slab that is never moved or freed while the index lives, found
 * through an open-addressed table of (tag, number) slots.
 *
 * An entry's life: FILLING (inserted, invisible to match and hold, its key is taken) -> LIVE
 * (published) -> GOING (chosen as victim, erased or expired: invisible, its holders go on) -> free,
 * when its last hold is released; then the tier gets it back through `gone` to free its place.
 * Every entry that was inserted leaves through `gone` exactly once.
 *
 * Threads: match, hold and release take no lock; a match is 20 ns a chunk when warm. Everything
 * else takes the index's own mutex. Uses that hold() reports to the policy go through a bounded
 * ring that the next holder of the mutex empties; on overflow they are lost, never waited for.
 *
 * Chains: an entry knows its parent's entry if that is there; children count. A parent that comes
 * later than its child adopts it. Entries with children are never victims.
 */
#ifndef KVT_CACHE_INDEX_H
#define KVT_CACHE_INDEX_H

#include "chunk/slots.h"
#include "chunk/tenants.h"
#include "chunk/note.h"
#include "policies/policy.h"

struct kvt_index;

/* What belongs to an entry besides its key, unpacked: the slab keeps it in less (tenants by
 * number). */
struct kvt_entry_info {
	uint64_t bytes;  /* payload */
	uint64_t charge; /* what it occupies in the tier, rounding and header included */
	struct kvt_tenant tenant;
	int64_t expires_wall_ns; /* of the last use; INT64_MAX: never */
	uint64_t ttl_ns;         /* a use moves expires_wall_ns to wall + ttl; 0: does not */
	uint32_t tokens;
	uint64_t cost_ns;  /* for the policy */
	uint64_t place[4]; /* the tier's own: extents, offsets, pointers */
};

struct kvt_index_options {
	uint32_t max_entries;
	uint64_t capacity;     /* of charges, bytes */
	uint64_t tenant_limit; /* of charges per tenant; 0: none */
	const char *policy;
	uint64_t max_ghost_bytes;
	/* Called when an entry is free for good; its number is not reused before this returned.
	 * Under the index's mutex: must not call the index. */
	void (*gone)(void *self, uint32_t entry, const struct kvt_key *key,
		const struct kvt_entry_info *info);
	void *self;
};

enum kvt_status kvt_index_create(const struct kvt_index_options *options,
	const struct kvt_surroundings *s, struct kvt_index **out) KVT_MUST_CHECK;
void kvt_index_destroy(struct kvt_index *x); /* nothing is held; calls gone for all */

/* --- without a lock --- */

/* How many keys from the first on are LIVE. Not a use. */
size_t kvt_index_match(struct kvt_index *x, const struct kvt_key *keys, size_t n);

/* Takes a hold on a LIVE entry and reports a use (if `use`). KVT_MISS. */
enum kvt_status kvt_index_hold(
	struct kvt_index *x, const struct kvt_key *key, bool use, uint32_t *entry) KVT_MUST_CHECK;
/* The same for a chain; returns how many from the first on; uses are reported deepest first. */
size_t kvt_index_hold_chain(
	struct kvt_index *x, const struct kvt_key *keys, size_t n, bool use, uint32_t *entries);
void kvt_index_release(struct kvt_index *x, uint32_t entry);
/* Is a held entry still LIVE, that is, not erased, expired or dropped since it was held? */
bool kvt_index_is_live(const struct kvt_index *x, uint32_t entry);

/* Of an entry that the caller holds, or is filling. The key is borrowed as long as the hold. */
const struct kvt_key *kvt_index_key(const struct kvt_index *x, uint32_t entry);
void kvt_index_info(const struct kvt_index *x, uint32_t entry, struct kvt_entry_info *out);

/* --- with the mutex --- */

/* Key of the parent, there or missing, of an entry that the caller holds or is filling. False: it
 * has none, or it is GOING. */
bool kvt_index_parent(struct kvt_index *x, uint32_t entry, struct kvt_key *out);

/*
 * A new entry, FILLING, with one hold (the filler's). Makes room in `capacity`, in the tenant's
 * limit and in max_entries by evicting, calling gone() for each. KVT_FULL: too little may go, and
 * then nothing does.
 * KVT_EXISTS: the key is there (*entry: its number, without a hold). `parent` may be NULL.
 */
enum kvt_status kvt_index_insert(struct kvt_index *x, const struct kvt_key *key,
	const struct kvt_key *parent, const struct kvt_entry_info *info,
	uint32_t *entry) KVT_MUST_CHECK;
/* The same; `spare` of the capacity is unused besides. `chained`: only where its parent, if it has
 * one, is here, FILLING or LIVE; else KVT_MISS, and nothing is evicted for it. */
enum kvt_status kvt_index_insert_sparing(struct kvt_index *x, const struct kvt_key *key,
	const struct kvt_key *parent, const struct kvt_entry_info *info, uint64_t spare,
	bool chained, uint32_t *entry) KVT_MUST_CHECK;
/* Replaces info->place (and charge, bytes stay) of an entry that is being filled. */
void kvt_index_place(struct kvt_index *x, uint32_t entry, const uint64_t place[4]);
/* Is an entry of this key FILLING? It may be LIVE a moment later. */
bool kvt_index_is_filling(struct kvt_index *x, const struct kvt_key *key);

/* FILLING -> LIVE. The filler's hold remains: release it. KVT_MISS: it was erased meanwhile. */
enum kvt_status kvt_index_publish(struct kvt_index *x, uint32_t entry) KVT_MUST_CHECK;
/* FILLING -> gone, with the filler's hold. */
void kvt_index_discard(struct kvt_index *x, uint32_t entry);

/* Evicts one entry if any may go (for a tier whose places are scarcer than its charges). */
bool kvt_index_evict(struct kvt_index *x);
/* Entries that the caller holds, and keeps holding, leave as if evicted: a chain, parents first. Not
 * those that are pinned or that others hold too. Returns how many. */
size_t kvt_index_pass(struct kvt_index *x, const uint32_t *entries, size_t n);

/* The entries of these keys, children before parents, leave as if evicted, and others where that is not enough, so that
 * an entry like `info` has room and `spare` is unused besides. False: there would not be, or one of the entries may not
 * leave (something holds it, it is pinned, it has children); then nothing does. */
bool kvt_index_pass_for(struct kvt_index *x, const struct kvt_key *keys, size_t n,
	const struct kvt_entry_info *info, uint64_t spare);

/* Erasing: LIVE or FILLING -> GOING, at once invisible. Children stay (they are unreachable through
 * their chain until the parent comes back). Return how many. */
size_t kvt_index_erase(struct kvt_index *x, const struct kvt_key *keys, size_t n);
size_t kvt_index_erase_tenant(struct kvt_index *x, const struct kvt_tenant *tenant);
size_t kvt_index_erase_slots(struct kvt_index *x, const struct kvt_slot_set *slots);
size_t kvt_index_erase_all(struct kvt_index *x);
/* LIVE ones that are not pinned; *tokens: how many tokens they had. */
size_t kvt_index_clear(struct kvt_index *x, uint64_t *tokens);
/* LIVE entries of a tenant, or (NULL) of all, and their payload. Walks all entries. */
void kvt_index_tally(
	struct kvt_index *x, const struct kvt_tenant *tenant, uint64_t *chunks, uint64_t *bytes);
/* The tenants that have entries, those with the most bytes by name, `most` at most (of KVT_TENANTS_LISTED).
 * Walks all tenants. */
void kvt_index_tenants(struct kvt_index *x, size_t most, struct kvt_tenant_list *out);
/* An entry that was found to be wrong. */
void kvt_index_drop(struct kvt_index *x, uint32_t entry);

#define KVT_TENANT_LIMITS 4096 /* tenants that may have one of their own */
/* A tenant's limit in place of options.tenant_limit, 0: none; from the next insert on. KVT_FULL: too
 * many tenants have one; KVT_ENOMEM. */
enum kvt_status kvt_index_limit_tenant(
	struct kvt_index *x, const struct kvt_tenant *tenant, uint64_t charge) KVT_MUST_CHECK;

/* Is it its tenant's limit that keeps an entry like `info` out now, however much room there is? */
bool kvt_index_is_limited(struct kvt_index *x, const struct kvt_entry_info *info);
/* The same of an entry that is given up: if so, it counts as refused, in all and for its tenant. */
bool kvt_index_count_limited(struct kvt_index *x, const struct kvt_entry_info *info);

size_t kvt_index_pin(struct kvt_index *x, const struct kvt_key *keys, size_t n, bool pin);

/* Removes what has expired, at most `most` entries a call; returns how many. */
size_t kvt_index_expire(struct kvt_index *x, size_t most);

/* Walks LIVE entries in no order, giving a hold on each that the visitor releases; *cursor begins
 * at 0 and is 0 again after the last. For scrubbing, announcing, listing. */
bool kvt_index_next(struct kvt_index *x, uint32_t *cursor, uint32_t *entry);

struct kvt_index_stats {
	uint64_t entries, capacity, used, payload;
	uint64_t evictions, expired, erased, uses_lost, orphans;
	uint64_t held, pinned;
	uint64_t metadata_bytes; /* slab, table, policy's own */
	uint64_t ghost_bytes;
	uint64_t dropped;
	uint64_t limited; /* of the evictions, those for the limit of a tenant */
	uint64_t refused; /* entries that it kept out: kvt_index_count_limited */
};
void kvt_index_stats(struct kvt_index *x, struct kvt_index_stats *out);

#endif
