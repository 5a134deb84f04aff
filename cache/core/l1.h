/*
 * l1.h - chunks in CPU memory: an index over an arena.
 *
 * Threads as in cache_index.h: match, hold and release without a lock. An entry has its extents in the arena, its
 * checksum, and the engine's names if the put gave some. The bytes of a published entry never change until its last
 * hold is gone.
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
/* Takes a hold on each of the first chunks that are there, as a use; returns how many. */
size_t kvt_l1_hold(struct kvt_l1 *l1, const struct kvt_key *keys, size_t n, uint32_t *entries);
/* Takes a hold on one chunk. KVT_MISS. */
enum kvt_status kvt_l1_hold_one(
	struct kvt_l1 *l1, const struct kvt_key *key, bool use, uint32_t *entry) KVT_MUST_CHECK;
void kvt_l1_release(struct kvt_l1 *l1, uint32_t entry);
bool kvt_l1_is_filling(struct kvt_l1 *l1, const struct kvt_key *key); /* as kvt_index_is_filling */
bool kvt_l1_is_live(struct kvt_l1 *l1, uint32_t entry); /* as kvt_index_is_live */
/* Like kvt_index_pass: held chunks leave when their holder releases them, unless others want them. */
size_t kvt_l1_pass(struct kvt_l1 *l1, const uint32_t *entries, size_t n);
/* Like kvt_index_pass_for: makes these chunks leave for a put of this one, or keeps them if it would not fit anyway. */
bool kvt_l1_pass_for(
	struct kvt_l1 *l1, const struct kvt_key *keys, size_t n, const struct kvt_item *item);

/* Segments of an entry that is held or being filled. Returns their number (at most KVT_MAX_EXTENTS). */
uint32_t kvt_l1_segments(struct kvt_l1 *l1, uint32_t entry, struct kvt_segment *out);
const struct kvt_key *kvt_l1_key(struct kvt_l1 *l1, uint32_t entry);
uint64_t kvt_l1_bytes(struct kvt_l1 *l1, uint32_t entry);
struct kvt_checksum kvt_l1_checksum(struct kvt_l1 *l1, uint32_t entry);
/* Returns whether the bytes of a held entry still have its checksum. Reads them all. */
bool kvt_l1_intact(struct kvt_l1 *l1, uint32_t entry);

/* Purposes of room. */
enum kvt_l1_use {
	KVT_L1_LOAD,  /* may use the staging share */
	KVT_L1_PUT,   /* the parent need not be in L1: a lower tier may have it */
	KVT_L1_CHILD, /* a put; KVT_MISS: the parent is not in L1, nor being filled */
};
/* Reserves room for a chunk, FILLING, held by the filler. KVT_EXISTS, KVT_FULL, KVT_MISS, KVT_ENOMEM. */
enum kvt_status kvt_l1_reserve(struct kvt_l1 *l1, const struct kvt_item *item, enum kvt_l1_use use,
	uint32_t *entry) KVT_MUST_CHECK;
/*
 * Makes a chunk visible; the filler's hold stays. Copies names (NULL: none, and then no events) without the token ids,
 * and reports them to the watch unchanged. KVT_MISS: erased meanwhile.
 */
enum kvt_status kvt_l1_publish(struct kvt_l1 *l1, uint32_t entry, const struct kvt_checksum *sum,
	const struct kvt_blocks *names) KVT_MUST_CHECK;
void kvt_l1_discard(struct kvt_l1 *l1, uint32_t entry); /* together with the filler's hold */

size_t kvt_l1_erase(struct kvt_l1 *l1, const struct kvt_key *keys, size_t n);
size_t kvt_l1_erase_tenant(struct kvt_l1 *l1, const struct kvt_tenant *tenant);
size_t kvt_l1_erase_slots(struct kvt_l1 *l1, const struct kvt_slot_set *slots);
size_t kvt_l1_erase_all(struct kvt_l1 *l1);
/* Removes chunks that are not pinned; lower tiers may still have them. *tokens: sum of their tokens. */
size_t kvt_l1_clear(struct kvt_l1 *l1, uint64_t *tokens);
/* Drops a wrong chunk: counted and no longer visible; the caller's hold stays. */
void kvt_l1_drop(struct kvt_l1 *l1, uint32_t entry);
/* As kvt_index_tally. */
void kvt_l1_tally(
	struct kvt_l1 *l1, const struct kvt_tenant *tenant, uint64_t *chunks, uint64_t *bytes);
/* As kvt_index_tenants. */
void kvt_l1_tenants(struct kvt_l1 *l1, size_t most, struct kvt_tenant_list *out);
/* Data of a chunk, without counting a use. KVT_MISS. */
enum kvt_status kvt_l1_known(
	struct kvt_l1 *l1, const struct kvt_key *key, struct kvt_entry_info *out) KVT_MUST_CHECK;
/* As kvt_index_limit_tenant. */
enum kvt_status kvt_l1_limit_tenant(
	struct kvt_l1 *l1, const struct kvt_tenant *tenant, uint64_t bytes) KVT_MUST_CHECK;
/* Like kvt_index_is_limited, for a put of this chunk. */
bool kvt_l1_is_limited(struct kvt_l1 *l1, const struct kvt_item *item);
/* Like kvt_index_count_limited, for a chunk that found no room. */
void kvt_l1_count_limited(struct kvt_l1 *l1, const struct kvt_item *item);
size_t kvt_l1_pin(struct kvt_l1 *l1, const struct kvt_key *keys, size_t n, bool pin);

/* Background work: expires chunks, and checks up to `bytes` bytes of them (at least one chunk if not 0). Returns how
 * many chunks were removed or checked; *checked (NULL is allowed): the bytes. One thread at a time. */
size_t kvt_l1_tend(struct kvt_l1 *l1, uint64_t bytes, uint64_t *checked);

void kvt_l1_stats(struct kvt_l1 *l1, struct kvt_tier_stats *out);
/* Like `limited` of a tier. */
void kvt_l1_limited(struct kvt_l1 *l1, uint64_t *evictions, uint64_t *refusals);

#endif
