/*
 * claims.c - keeps claims of blocks in a table without locks.
 *
 *     word | tag : 32 | worker : 10 | end : 22 |      end in units of 2^24 ns, about 17 ms
 *
 * The tag mixes in the worker's epoch, which kvw_claims_forget increments. Ends wrap after 19
 * hours; a claim is alive if its end is at most the longest life ahead, so an old word becomes
 * alive again only for a minute of those hours, and then only for its own key.
 *
 * Cost: a pick reads one cache line for each position at which some worker's blocks end, and one
 * for each claimed block after it. While nothing is claimed it reads one word.
 */
#include "routing/claims.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "routing/kvindex_table.h"

#define BUCKETS_LOG 14u
#define PER_BUCKET  8u
#define AHEAD       8u  /* number of claims whose cache lines are prefetched ahead */
#define MAX_ENDS    16u /* limit of different hit lengths that are extended */

#define WORKER_BITS 10u
#define END_BITS    22u
#define END_MASK    ((1u << END_BITS) - 1)
#define UNIT_SHIFT  24u
#define LIFE_UNITS  ((uint32_t)(KVW_CLAIMS_NS >> UNIT_SHIFT) + 2)

_Static_assert(KVW_MAX_WORKERS <= 1 << WORKER_BITS, "a worker fits into a word");
_Static_assert(KVW_CLAIMS_EACH % KVW_CLAIMS_STRIDE == 0, "both parts of a chain meet");

struct bucket {
	_Alignas(64) _Atomic uint64_t words[PER_BUCKET]; /* 0: none */
};

struct kvw_claims {
	struct bucket *buckets;
	uint64_t seed;
	_Alignas(64) _Atomic int64_t last_ns; /* all claims have ended by this time */
	_Alignas(64) _Atomic uint32_t epochs[KVW_MAX_WORKERS];
};

enum kvw_err kvw_claims_create(uint64_t seed, struct kvw_claims **out)
{
	size_t bytes = sizeof(struct bucket) << BUCKETS_LOG;
	struct kvw_claims *claims = aligned_alloc(64, sizeof(*claims));

	if (claims == NULL)
		return KVW_ENOMEM;
	memset(claims, 0, sizeof(*claims));
	claims->seed = seed;
	claims->buckets = aligned_alloc(64, bytes);
	if (claims->buckets == NULL) {
		free(claims);
		return KVW_ENOMEM;
	}
	memset(claims->buckets, 0, bytes);
	atomic_init(&claims->last_ns, INT64_MIN);
	*out = claims;
	return KVW_OK;
}

void kvw_claims_destroy(struct kvw_claims *claims)
{
	if (claims == NULL)
		return;
	free(claims->buckets);
	free(claims);
}

void kvw_claims_forget(struct kvw_claims *claims, uint32_t worker)
{
	atomic_fetch_add_explicit(&claims->epochs[worker], 1, memory_order_relaxed);
}

/* --- words --- */

static uint64_t spread_of(
	const struct kvw_claims *claims, const struct kvw_exact_chain *chain, uint32_t block)
{
	return kvw_kvspread(chain->keys[block] ^ kvw_kvspread(chain->space, 1), claims->seed);
}

static struct bucket *bucket_of(const struct kvw_claims *claims, uint64_t spread)
{
	return &claims->buckets[spread >> (64 - BUCKETS_LOG)];
}

static uint32_t unit_of(int64_t ns)
{
	return (uint32_t)((uint64_t)ns >> UNIT_SHIFT) & END_MASK;
}

/* Returns a worker's word for a block, without its end. */
static uint64_t word_of(const struct kvw_claims *claims, uint64_t spread, uint32_t worker)
{
	uint32_t epoch = atomic_load_explicit(&claims->epochs[worker], memory_order_relaxed);
	uint32_t tag = (uint32_t)spread ^ epoch * UINT32_C(0x9E3779B1);

	return (uint64_t)tag << 32 | (uint64_t)worker << END_BITS;
}

static uint32_t word_worker(uint64_t word)
{
	return (uint32_t)(word >> END_BITS) & ((1u << WORKER_BITS) - 1);
}

/* Returns the remaining units of a word's life; 0: it is dead. */
static uint32_t word_life(uint64_t word, uint32_t now)
{
	uint32_t left = ((uint32_t)word - now) & END_MASK;

	return word != 0 && left <= LIFE_UNITS ? left : 0;
}

/* --- chains --- */

/* Returns the first block at or after `block` that picks claim. */
static uint32_t claimed_from(uint32_t block)
{
	return block < KVW_CLAIMS_EACH ? block : block | (KVW_CLAIMS_STRIDE - 1);
}

static void prefetch(
	const struct kvw_claims *claims, const struct kvw_exact_chain *chain, uint32_t block)
{
	if (block < chain->count)
		__builtin_prefetch(bucket_of(claims, spread_of(claims, chain, block)));
}

/* --- making --- */

/* Overwrites the worker's own claim of this block, or the claim with the shortest remaining
 * life. */
static void claim_block(
	struct kvw_claims *claims, uint64_t spread, uint32_t worker, uint32_t now, uint32_t end)
{
	struct bucket *bucket = bucket_of(claims, spread);
	uint64_t word = word_of(claims, spread, worker);
	uint32_t least = UINT32_MAX;
	unsigned at = 0;

	for (unsigned i = 0; i < PER_BUCKET; i++) {
		uint64_t old = atomic_load_explicit(&bucket->words[i], memory_order_relaxed);
		uint32_t life = word_life(old, now);

		if ((old & ~(uint64_t)END_MASK) == word && life > 0) {
			if (life >= ((end - now) & END_MASK))
				return;
			at = i;
			break;
		}
		if (life < least) {
			least = life;
			at = i;
		}
	}
	atomic_store_explicit(&bucket->words[at], word | end, memory_order_relaxed);
}

void kvw_claims_make(struct kvw_claims *claims, uint32_t worker,
	const struct kvw_exact_chain *chain, uint32_t held, int64_t now_ns, int64_t ns)
{
	uint32_t now = unit_of(now_ns);
	uint32_t block = claimed_from(held);
	int64_t end_ns = now_ns + (ns < KVW_CLAIMS_NS ? ns : KVW_CLAIMS_NS);
	int64_t last_ns = atomic_load_explicit(&claims->last_ns, memory_order_relaxed);

	if (block >= chain->count)
		return;
	/* Rounded, so that not every pick writes it. */
	if (end_ns > last_ns)
		atomic_store_explicit(&claims->last_ns, end_ns + (INT64_C(1) << UNIT_SHIFT),
			memory_order_relaxed);
	for (unsigned i = 0; i < KVW_CLAIMS_PROMPT && block < chain->count; i++) {
		prefetch(claims, chain, claimed_from(block + AHEAD));
		claim_block(claims, spread_of(claims, chain, block), worker, now, unit_of(end_ns));
		block = claimed_from(block + 1);
	}
}

/* --- dropping --- */

static void drop_block(struct kvw_claims *claims, uint64_t spread, uint32_t worker)
{
	struct bucket *bucket = bucket_of(claims, spread);
	uint64_t word = word_of(claims, spread, worker);

	for (unsigned i = 0; i < PER_BUCKET; i++) {
		uint64_t old = atomic_load_explicit(&bucket->words[i], memory_order_relaxed);

		if (old != 0 && (old & ~(uint64_t)END_MASK) == word)
			(void)atomic_compare_exchange_strong_explicit(&bucket->words[i], &old, 0,
				memory_order_relaxed, memory_order_relaxed);
	}
}

void kvw_claims_drop(struct kvw_claims *claims, uint32_t worker,
	const struct kvw_exact_chain *chain, uint32_t held)
{
	uint32_t block = claimed_from(held);

	for (unsigned i = 0; i < KVW_CLAIMS_PROMPT && block < chain->count; i++) {
		prefetch(claims, chain, claimed_from(block + AHEAD));
		drop_block(claims, spread_of(claims, chain, block), worker);
		block = claimed_from(block + 1);
	}
}

/* --- finding --- */

/* Extends the worker's hit, which ends at `from`, to `end`. */
static void carry_on(struct kvw_kvindex_hits *hits, uint32_t worker, uint32_t from, uint32_t end,
	uint32_t block_tokens)
{
	if (from == 0) {
		hits->workers[hits->count++] = (uint16_t)worker;
		memset(hits->tokens[worker], 0, sizeof(hits->tokens[worker]));
	}
	hits->blocks[worker] = end;
	hits->tokens[worker][KVW_TIER_DEVICE] += (end - from) * block_tokens;
	hits->tier[worker] = KVW_TIER_DEVICE;
}

/* Extends the hits of workers that hold exactly `held` blocks by their claims, each worker as far
 * as its claims go. */
static void extend_from(const struct kvw_claims *claims, const struct kvw_exact_chain *chain,
	uint32_t held, uint32_t now, struct kvw_kvindex_hits *hits)
{
	bool any = true;

	while (any && claimed_from(held) < chain->count) {
		uint32_t block = claimed_from(held);
		uint64_t spread = spread_of(claims, chain, block);
		const struct bucket *bucket = bucket_of(claims, spread);

		any = false;
		prefetch(claims, chain, claimed_from(block + AHEAD));
		for (unsigned i = 0; i < PER_BUCKET; i++) {
			uint64_t word =
				atomic_load_explicit(&bucket->words[i], memory_order_relaxed);
			uint32_t worker = word_worker(word);

			if (word_life(word, now) == 0 || hits->blocks[worker] != held ||
				(word & ~(uint64_t)END_MASK) != word_of(claims, spread, worker))
				continue;
			carry_on(hits, worker, held, block + 1, chain->block_tokens);
			any = true;
		}
		held = block + 1;
	}
}

/* Fills ends with the distinct lengths of hits, and 0 for workers without one. Returns how many. */
static uint32_t ends_of(const struct kvw_kvindex_hits *hits, uint32_t ends[MAX_ENDS])
{
	uint32_t count = 1;

	ends[0] = 0;
	for (uint32_t i = 0; i < hits->count && count < MAX_ENDS; i++) {
		uint32_t blocks = hits->blocks[hits->workers[i]];
		uint32_t at = 0;

		while (at < count && ends[at] != blocks)
			at++;
		if (at == count)
			ends[count++] = blocks;
	}
	return count;
}

void kvw_claims_extend(const struct kvw_claims *claims, const struct kvw_exact_chain *chain,
	int64_t now_ns, struct kvw_kvindex_hits *hits)
{
	uint32_t ends[MAX_ENDS];
	uint32_t count = 0;

	if (now_ns > atomic_load_explicit(&claims->last_ns, memory_order_relaxed))
		return;
	count = ends_of(hits, ends);
	for (uint32_t i = 0; i < count; i++)
		extend_from(claims, chain, ends[i], unit_of(now_ns), hits);
}
