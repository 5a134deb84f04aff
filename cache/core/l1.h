/*
 * l1.h - chunks in CPU memory: an index over an arena.
 *
 * Threads as in cache_index.h: match, hold and release without a lock. An entry has its extents in
 * the arena, its checksum, and the engine's names if the put gave some. The bytes of a published
 * entry never change until its last hold is gone.
 */
#ifndef KVT_L1_H
#define KVT_L1_H

#include "memory/arena.h"
#include "index/cache_index.h"
#include "chunk/checksum.h"
#include "tiers/tier.h"

struct kvt_l1;

/* `why` has room for KVT_REASON_BYTES. KVT_EINVAL, KVT_ENOMEM, KVT_EIO. */
enum kvt_status kvt_l1_create(const struct kvt_config *config, const struct kvt_surroundings *s,
	const struct kvt_tier_watch *watch, char *why, struct kvt_l1 **out) KVT_MUST_CHECK;
void kvt_l1_destroy(struct kvt_l1 *l1); /* requires that no entry is held; NULL is allowed */

struct kvt_arena *kvt_l1_arena(struct kvt_l1 *l1);

size_t kvt_l1_match(struct kvt_l1 *l1, const struct kvt_key *keys, size_t n);
/* Holds the first chunks of the chain up to the first that L1 lacks, and counts a use of each;
 * returns how many. */
size_t kvt_l1_hold(struct kvt_l1 *l1, const struct kvt_key *keys, size_t n, uint32_t *entries);
/* Holds one chunk, and counts a use of it if `use`. KVT_MISS. */
enum kvt_status kvt_l1_hold_one(
	struct kvt_l1 *l1, const struct kvt_key *key, bool use, uint32_t *entry) KVT_MUST_CHECK;
void kvt_l1_release(struct kvt_l1 *l1, uint32_t entry);
bool kvt_l1_is_filling(struct kvt_l1 *l1, const struct kvt_key *key); /* as kvt_index_is_filling */
bool kvt_l1_is_live(struct kvt_l1 *l1, uint32_t entry); /* as kvt_index_is_live */
/* Like kvt_index_pass: held chunks are evicted when released, unless other holders want them. */
size_t kvt_l1_pass(struct kvt_l1 *l1, const uint32_t *entries, size_t n);
/* Like kvt_index_pass_for: evicts these chunks for a put of `item`, unless `item` would not fit
 * even then. */
bool kvt_l1_pass_for(
	struct kvt_l1 *l1, const struct kvt_key *keys, size_t n, const struct kvt_item *item);

/* Writes the segments of an entry that is held or being filled. Returns their number (at most
 * KVT_MAX_EXTENTS). */
uint32_t kvt_l1_segments(struct kvt_l1 *l1, uint32_t entry, struct kvt_segment *out);
const struct kvt_key *kvt_l1_key(struct kvt_l1 *l1, uint32_t entry);
uint64_t kvt_l1_bytes(struct kvt_l1 *l1, uint32_t entry);
struct kvt_checksum kvt_l1_checksum(struct kvt_l1 *l1, uint32_t entry);
/* Returns whether the bytes of a held entry still match its checksum. Reads all bytes. */
bool kvt_l1_intact(struct kvt_l1 *l1, uint32_t entry);

/* Purposes of room. */
enum kvt_l1_use {
	KVT_L1_LOAD,  /* a load: may use the staging share */
	KVT_L1_PUT,   /* a put whose parent need not be in L1, since a lower tier may have it */
	KVT_L1_CHILD, /* a put whose parent must be in L1 or being filled; else KVT_MISS */
};
/* Reserves room for a chunk: the entry is FILLING and held by the caller. KVT_EXISTS, KVT_FULL,
 * KVT_MISS, KVT_ENOMEM. */
enum kvt_status kvt_l1_reserve(struct kvt_l1 *l1, const struct kvt_item *item, enum kvt_l1_use use,
	uint32_t *entry) KVT_MUST_CHECK;
/*
 * Makes a chunk visible; the caller's hold stays. Copies the names without the token ids, and
 * reports them unchanged to the watch; names NULL: no events. KVT_MISS: the chunk was erased
 * meanwhile.
 */
enum kvt_status kvt_l1_publish(struct kvt_l1 *l1, uint32_t entry, const struct kvt_checksum *sum,
	const struct kvt_blocks *names) KVT_MUST_CHECK;
void kvt_l1_discard(struct kvt_l1 *l1, uint32_t entry); /* also releases the caller's hold */

size_t kvt_l1_erase(struct kvt_l1 *l1, const struct kvt_key *keys, size_t n);
size_t kvt_l1_erase_tenant(struct kvt_l1 *l1, const struct kvt_tenant *tenant);
size_t kvt_l1_erase_slots(struct kvt_l1 *l1, const struct kvt_slot_set *slots);
size_t kvt_l1_erase_all(struct kvt_l1 *l1);
/* Removes chunks that are not pinned; lower tiers may still have them. Sets *tokens to the sum of
 * their tokens. Returns their number. */
size_t kvt_l1_clear(struct kvt_l1 *l1, uint64_t *tokens);
/* Drops a chunk whose bytes are wrong: counts it and makes it invisible; the caller's hold
 * stays. */
void kvt_l1_drop(struct kvt_l1 *l1, uint32_t entry);
/* As kvt_index_tally. */
void kvt_l1_tally(
	struct kvt_l1 *l1, const struct kvt_tenant *tenant, uint64_t *chunks, uint64_t *bytes);
/* As kvt_index_tenants. */
void kvt_l1_tenants(struct kvt_l1 *l1, size_t most, struct kvt_tenant_list *out);
/* Reads a chunk's size, tenant and state without counting a use. KVT_MISS. */
enum kvt_status kvt_l1_known(
	struct kvt_l1 *l1, const struct kvt_key *key, struct kvt_entry_info *out) KVT_MUST_CHECK;
/* Sets how many bytes of L1 a tenant may hold, as kvt_index_limit_tenant. */
enum kvt_status kvt_l1_limit_tenant(
	struct kvt_l1 *l1, const struct kvt_tenant *tenant, uint64_t bytes) KVT_MUST_CHECK;
/* Returns whether the tenant's limit would refuse a put of this chunk, as kvt_index_is_limited. */
bool kvt_l1_is_limited(struct kvt_l1 *l1, const struct kvt_item *item);
/* Counts a chunk for which the tenant's limit left no room, as kvt_index_count_limited. */
void kvt_l1_count_limited(struct kvt_l1 *l1, const struct kvt_item *item);
size_t kvt_l1_pin(struct kvt_l1 *l1, const struct kvt_key *keys, size_t n, bool pin);

/* Background work: removes expired chunks, and checks up to `bytes` bytes of others (at least one
 * chunk if not 0). Returns how many chunks were removed or checked; *checked (NULL is allowed):
 * bytes checked. One thread at a time. */
size_t kvt_l1_tend(struct kvt_l1 *l1, uint64_t bytes, uint64_t *checked);

void kvt_l1_stats(struct kvt_l1 *l1, struct kvt_tier_stats *out);
/* Like `limited` of a tier. */
void kvt_l1_limited(struct kvt_l1 *l1, uint64_t *evictions, uint64_t *refusals);

#endif
