/*
 * exact.c - the index of blocks, and the coverage of each worker's reporters.
 *
 * Apart from its blocks, the state of a worker is one atomic byte: two bits of coverage per
 * reporter, and whether a purge was requested. So a pick reads one cache line for 64 workers, any
 * thread requests a purge with one instruction, and nothing here needs a lock. While a purge is
 * pending, every FULL reads as BLIND.
 *
 * A purge lowers the coverages before it clears the request, so no reader ever sees FULL together
 * with the old contents of the index. A request that arrives during a purge is left for the next
 * tick. Afterwards FULL has become BLIND: events that the worker published between the loss and the
 * tick were purged with the rest, so the index no longer holds all of its cache. Only a feed that
 * reads the worker's stream again may set FULL.
 */
#include "routing/exact.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#define PARK_SHARE 16                   /* parked blocks may have this part of all memory */
/* a parked block is dropped if its parent has not come by then */
#define PARK_NS    INT64_C(10000000000)

#define COVERAGE_BITS 2
#define COVERAGE_MASK 3u
#define PURGE      0x80u

_Static_assert(KVW_COVERAGE_FULL <= COVERAGE_MASK, "a coverage has two bits");
_Static_assert(KVW_REPORTER_COUNT *COVERAGE_BITS <= 7, "all coverages and PURGE share a byte");
_Static_assert(KVW_EXACT_LMCACHE_SOURCE + KVW_EXACT_LMCACHE_SOURCES <= KVW_KVINDEX_SOURCES,
	"both reporters have their sources");
_Static_assert(KVW_EXACT_ENGINE_SOURCES == KVW_KVINDEX_GROUP &&
		       KVW_EXACT_LMCACHE_SOURCE == KVW_KVINDEX_GROUP,
	"each reporter is a group of the index");

struct kvw_exact {
	struct kvw_kvindex *index;
	struct kvw_claims *claims;
	_Alignas(64) _Atomic uint8_t states[KVW_MAX_WORKERS]; /* coverages and PURGE */
	_Alignas(64) _Atomic bool asked; /* some worker's PURGE bit may be set */
};

enum kvw_err kvw_exact_create(const struct kvw_strategy_options *options, struct kvw_exact **out)
{
	struct kvw_exact *exact = aligned_alloc(64, sizeof(*exact));
	struct kvw_kvindex_options index = {
		.bytes = options->index_bytes - options->index_bytes / PARK_SHARE,
		.park_bytes = options->index_bytes / PARK_SHARE,
		.park_ns = PARK_NS,
		.seed = options->seed,
	};

	if (exact == NULL)
		return KVW_ENOMEM;
	exact->index = NULL;
	exact->claims = NULL;
	if (kvw_kvindex_create(&index, &exact->index) != KVW_OK ||
		kvw_claims_create(options->seed, &exact->claims) != KVW_OK) {
		kvw_exact_destroy(exact);
		return KVW_ENOMEM;
	}
	for (size_t i = 0; i < KVW_MAX_WORKERS; i++)
		atomic_init(&exact->states[i], 0);
	atomic_init(&exact->asked, false);
	*out = exact;
	return KVW_OK;
}

void kvw_exact_destroy(struct kvw_exact *exact)
{
	if (exact == NULL)
		return;
	kvw_kvindex_destroy(exact->index);
	kvw_claims_destroy(exact->claims);
	free(exact);
}

struct kvw_claims *kvw_exact_claims(const struct kvw_exact *exact)
{
	return exact->claims;
}

void kvw_exact_emptied(struct kvw_exact *exact, uint32_t worker)
{
	kvw_claims_forget(exact->claims, worker);
}

struct kvw_kvindex *kvw_exact_index(struct kvw_exact *exact)
{
	return exact->index;
}

/* --- coverages --- */

static unsigned coverage_in(unsigned state, enum kvw_reporter reporter)
{
	return state >> (reporter * COVERAGE_BITS) & COVERAGE_MASK;
}

static unsigned with_coverage(unsigned state, enum kvw_reporter reporter, unsigned coverage)
{
	unsigned shift = reporter * COVERAGE_BITS;

	return (state & ~(COVERAGE_MASK << shift)) | coverage << shift;
}

/* Returns the state with every FULL replaced by BLIND. */
static unsigned dimmed(unsigned state)
{
	for (unsigned reporter = 0; reporter < KVW_REPORTER_COUNT; reporter++)
		if (coverage_in(state, reporter) == KVW_COVERAGE_FULL)
			state = with_coverage(state, reporter, KVW_COVERAGE_BLIND);
	return state;
}

void kvw_exact_set_coverage(struct kvw_exact *exact, uint32_t worker, enum kvw_reporter reporter,
	enum kvw_coverage coverage)
{
	_Atomic uint8_t *state = NULL;
	uint8_t old = 0;

	assert(worker < KVW_MAX_WORKERS);
	assert((unsigned)reporter < KVW_REPORTER_COUNT);
	state = &exact->states[worker];
	old = atomic_load_explicit(state, memory_order_relaxed);
	/* Release: a thread that reads FULL also sees what was written to the index before. */
	while (!atomic_compare_exchange_weak_explicit(state, &old,
		(uint8_t)with_coverage(old, reporter, coverage), memory_order_release,
		memory_order_relaxed)) {
	}
}

enum kvw_coverage kvw_exact_coverage(
	const struct kvw_exact *exact, uint32_t worker, enum kvw_reporter reporter)
{
	unsigned state = atomic_load_explicit(&exact->states[worker], memory_order_acquire);

	if ((state & PURGE) != 0)
		state = dimmed(state);
	return (enum kvw_coverage)coverage_in(state, reporter);
}

enum kvw_knowledge kvw_exact_knowledge(const struct kvw_exact *exact, uint32_t worker)
{
	enum kvw_coverage engine = kvw_exact_coverage(exact, worker, KVW_REPORTER_ENGINE);
	enum kvw_coverage lmcache = kvw_exact_coverage(exact, worker, KVW_REPORTER_LMCACHE);

	if (engine == KVW_COVERAGE_NONE && lmcache == KVW_COVERAGE_NONE)
		return KVW_KNOWS_NO_REPORTS;
	if (engine != KVW_COVERAGE_FULL && lmcache != KVW_COVERAGE_FULL)
		return KVW_KNOWS_MISSED;
	if (engine == KVW_COVERAGE_BLIND || lmcache == KVW_COVERAGE_BLIND)
		return KVW_KNOWS_PART;
	return KVW_KNOWS_ALL;
}

/* --- purges --- */

void kvw_exact_purge(struct kvw_exact *exact, uint32_t worker)
{
	assert(worker < KVW_MAX_WORKERS);
	atomic_fetch_or_explicit(&exact->states[worker], PURGE, memory_order_relaxed);
	atomic_store_explicit(&exact->asked, true, memory_order_release);
}

/* Executes one purge if one was requested. */
static bool purge_one(struct kvw_exact *exact, uint32_t worker)
{
	_Atomic uint8_t *state = &exact->states[worker];
	uint8_t old = atomic_load_explicit(state, memory_order_relaxed);

	do {
		if ((old & PURGE) == 0)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(state, &old,
		(uint8_t)(dimmed(old) & ~PURGE), memory_order_relaxed, memory_order_relaxed));
	kvw_kvindex_purge(exact->index, worker);
	return true;
}

size_t kvw_exact_purges(struct kvw_exact *exact, uint32_t *purged, size_t cap)
{
	size_t count = 0;
	uint32_t worker = 0;

	if (!atomic_load_explicit(&exact->asked, memory_order_relaxed) ||
		!atomic_exchange_explicit(&exact->asked, false, memory_order_acquire))
		return 0;
	for (; worker < KVW_MAX_WORKERS && count < cap; worker++)
		if (purge_one(exact, worker))
			purged[count++] = worker;
	/* the room for reported workers is used up: others may wait */
	if (worker < KVW_MAX_WORKERS)
		atomic_store_explicit(&exact->asked, true, memory_order_relaxed);
	return count;
}

size_t kvw_exact_tick(struct kvw_exact *exact, int64_t now_ns, uint32_t *purged, size_t cap)
{
	size_t count = kvw_exact_purges(exact, purged, cap);

	kvw_kvindex_tick(exact->index, now_ns);
	return count;
}

/* --- readers --- */

void kvw_exact_match(const struct kvw_exact *exact, const struct kvw_exact_chain *chain,
	struct kvw_kvindex_hits *hits)
{
	kvw_kvindex_match(
		exact->index, chain->space, chain->keys, chain->count, chain->block_tokens, hits);
}

uint32_t kvw_exact_held(const struct kvw_exact *exact, uint32_t worker)
{
	return kvw_kvindex_held(exact->index, worker, KVW_EXACT_ENGINE_MASK, KVW_TIER_DEVICE);
}

void kvw_exact_stats(const struct kvw_exact *exact, struct kvw_strategy_stats *out)
{
	struct kvw_kvindex_stats stats;

	kvw_kvindex_stats(exact->index, &stats);
	out->exact_blocks = stats.blocks;
	out->exact_holders = stats.holders;
	out->exact_bytes = stats.bytes + stats.parked_bytes;
	out->exact_bytes_limit = stats.bytes_limit + stats.parked_limit;
	out->exact_parked = stats.parked;
	out->exact_dropped = stats.dropped;
	out->exact_parked_dropped = stats.parked_dropped;
	out->exact_unknown_removes = stats.unknown_removes;
}
