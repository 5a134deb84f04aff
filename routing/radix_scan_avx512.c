/*
 * radix_scan_avx512.c - eight holders at once.
 *
 * Reaching: no worker joins after a prompt's first node. As long as few workers hold some of it, they
 * are a list of two vectors, and each holder of a later node is compared with all of it. A map by
 * worker would have to be gathered from and scattered to for each node, and each gather would wait
 * until the scatter before it has left the store buffer, behind whatever else is in there. Of many, a
 * map it is.
 *
 * A worker has one entry in a node, but a slot that is being reused may show two for a moment. Two that
 * are about to enter the list would enter it twice, so that vector goes the slow way.
 *
 * Compiled for AVX-512 (F, BW, CD, DQ, VL) and called only where the processor has it. A load of
 * 64 bytes is not atomic, but each of its aligned words is, which is all that a reader needs.
 */
#include <immintrin.h>
#include <string.h>

#include "routing/radix_scan.h"

#include "routing/radix_node.h"

#define LANES 8
#define WIDE  16 /* lanes of 32 bits */

_Static_assert(KVW_REACH_FEW == 2 * WIDE, "the list is two vectors");

/* Holders taken apart, 32 bits a lane. */
struct lanes {
	__m256i worker;
	__m256i extent; /* kvw_holder_extent */
	__m256i floor;  /* of the worker's window */
	__m256i span;   /* its length */
};

static inline __mmask8 lanes_of(unsigned left)
{
	return (__mmask8)(left < LANES ? (1u << left) - 1 : 0xff);
}

static inline struct lanes load(
	const _Atomic uint64_t *words, __mmask8 mask, const _Atomic uint64_t *windows)
{
	__m512i word = _mm512_maskz_loadu_epi64(mask, (const void *)words);
	__m256i low = _mm512_cvtepi64_epi32(word);
	__m256i tick = _mm512_cvtepi64_epi32(_mm512_srli_epi64(word, 32));
	__m256i worker = _mm256_and_si256(low, _mm256_set1_epi32(KVW_MAX_WORKERS - 1));
	__m512i window = _mm512_i32gather_epi64(worker, (const void *)windows, 8);
	__m256i floor = _mm512_cvtepi64_epi32(_mm512_srli_epi64(window, 32));
	__m256i length = _mm256_sub_epi32(_mm512_cvtepi64_epi32(window), floor);
	__m256i age = _mm256_sub_epi32(tick, floor); /* of the window's beginning */
	__m256i rest = _mm256_sub_epi32(age, _mm256_srli_epi32(low, 20));
	__mmask8 known = mask & _mm512_test_epi64_mask(window, window);
	__mmask8 alive = _mm256_mask_cmple_epu32_mask(known, age, length);
	__mmask8 whole = _mm256_mask_cmple_epu32_mask(alive, rest, length);
	__m256i five = _mm256_set1_epi32(31);
	__m256i mid = _mm256_maskz_and_epi32(alive, _mm256_srli_epi32(low, 15), five);

	return (struct lanes){
		.worker = worker,
		.extent = _mm256_mask_and_epi32(mid, whole, _mm256_srli_epi32(low, 10), five),
		.floor = floor,
		.span = length,
	};
}

static uint32_t of_worker(const _Atomic uint64_t *words, unsigned used, uint32_t worker)
{
	uint32_t mine = 0;

	for (unsigned i = 0; i < used; i += LANES) {
		__m512i word =
			_mm512_maskz_loadu_epi64(lanes_of(used - i), (const void *)(words + i));
		__m512i whose = _mm512_and_si512(word, _mm512_set1_epi64(KVW_MAX_WORKERS - 1));

		mine |= (uint32_t)(_mm512_cmpeq_epi64_mask(whose, _mm512_set1_epi64(worker)) &
				   _mm512_test_epi64_mask(word, word))
			<< i;
	}
	return mine;
}

static uint32_t dead(const _Atomic uint64_t *words, unsigned used, const _Atomic uint64_t *windows)
{
	uint32_t gone = 0;

	for (unsigned i = 0; i < used; i += LANES) {
		__mmask8 mask = lanes_of(used - i);
		struct lanes lanes = load(words + i, mask, windows);

		gone |= (uint32_t)_mm256_mask_testn_epi32_mask(mask, lanes.extent, lanes.extent)
			<< i;
	}
	return gone;
}

/* Whether a worker occurs twice among these lanes. */
static inline bool has_twins(__m256i worker, __mmask8 lanes)
{
	/* The other lanes are all different from each other and from any worker. */
	const __m256i others = _mm256_setr_epi32(-1, -2, -3, -4, -5, -6, -7, -8);
	__m256i before = _mm256_conflict_epi32(_mm256_mask_mov_epi32(others, lanes, worker));

	return _mm256_test_epi32_mask(before, before) != 0;
}

/* --- reaching --- */

static void reach_none(struct kvw_radix_reach *reach)
{
	reach->count = 0;
	reach->mapped = false;
}

/* Some lanes one after another; what follows in memory is overwritten up to LANES. */
static inline void store_some(uint32_t *to, __mmask8 some, __m256i lanes)
{
	_mm256_storeu_si256((__m256i *)(void *)to, _mm256_maskz_compress_epi32(some, lanes));
}

static void reach_mapped(const _Atomic uint64_t *words, unsigned used,
	const _Atomic uint64_t *windows, uint32_t start, uint32_t length,
	struct kvw_radix_reach *reach)
{
	const __m256i starts = _mm256_set1_epi32((int)start);
	const __m256i most = _mm256_set1_epi32((int)length);
	const __m256i limit = _mm256_set1_epi32((int)reach->limit);

	for (unsigned i = 0; i < used; i += LANES) {
		__mmask8 mask = lanes_of(used - i);
		struct lanes lanes = load(words + i, mask, windows);
		__m256i held = _mm256_i32gather_epi32((const int *)reach->map, lanes.worker, 4);
		__m256i upto = _mm256_min_epu32(lanes.extent, most);
		__mmask8 known = _mm256_mask_cmplt_epu32_mask(mask, lanes.worker, limit);
		__mmask8 counts =
			_mm256_mask_cmplt_epu32_mask(known, _mm256_sub_epi32(held, starts), upto);
		__mmask8 fresh = counts & _mm256_testn_epi32_mask(held, held);

		if (counts == 0)
			continue;
		if ((fresh & (fresh - 1)) != 0 && has_twins(lanes.worker, fresh)) {
			kvw_reach_slot_mapped(words + i, used - i < LANES ? used - i : LANES,
				windows, start, length, reach);
			continue;
		}
		_mm256_mask_i32scatter_epi32(
			(int *)reach->map, counts, lanes.worker, _mm256_add_epi32(starts, upto), 4);
		store_some(&reach->workers[reach->count], fresh, lanes.worker);
		reach->count += (uint32_t)__builtin_popcount(fresh);
	}
}

static inline __mmask16 wide_lanes_of(unsigned left)
{
	return (__mmask16)(left < WIDE ? (1u << left) - 1 : 0xffff);
}

static inline __m512i each(const uint32_t *value)
{
	return _mm512_set1_epi32((int)*value);
}

/* They are too many for the list. */
static void draw_map(struct kvw_radix_reach *reach)
{
	memset(reach->map, 0, reach->limit * sizeof(reach->map[0]));
	for (uint32_t i = 0; i < reach->count; i++)
		reach->map[reach->workers[i]] = reach->chunks[i];
	reach->mapped = true;
}

/* Whether a worker occurs twice among `count` listed ones. */
static bool has_twins_listed(const struct kvw_radix_reach *reach, uint32_t count)
{
	__m512i first = _mm512_loadu_si512(&reach->workers[0]);
	__m512i before = _mm512_conflict_epi32(first);
	__mmask16 twins = _mm512_mask_test_epi32_mask(wide_lanes_of(count), before, before);

	if (count > WIDE) {
		before = _mm512_conflict_epi32(_mm512_loadu_si512(&reach->workers[WIDE]));
		twins |= _mm512_mask_test_epi32_mask(wide_lanes_of(count - WIDE), before, before);
	}
	for (uint32_t i = WIDE; i < count; i++)
		twins |= _mm512_cmpeq_epi32_mask(first, each(&reach->workers[i]));
	return twins != 0;
}

/* Lists the holders of the first node that a slot has. False: they are too many, or one comes twice; the
 * list is as before. */
static bool list_few(const _Atomic uint64_t *words, unsigned used, const _Atomic uint64_t *windows,
	uint32_t length, struct kvw_radix_reach *reach)
{
	const __m256i most = _mm256_set1_epi32((int)length);
	const __m256i limit = _mm256_set1_epi32((int)reach->limit);
	uint32_t at = reach->count;

	for (unsigned i = 0; i < used; i += LANES) {
		struct lanes lanes = load(words + i, lanes_of(used - i), windows);
		__mmask8 fresh = _mm256_mask_cmplt_epu32_mask(
			_mm256_test_epi32_mask(lanes.extent, lanes.extent), lanes.worker, limit);

		if (at + (uint32_t)__builtin_popcount(fresh) > KVW_REACH_FEW)
			return false;
		store_some(&reach->workers[at], fresh, lanes.worker);
		store_some(&reach->chunks[at], fresh, _mm256_min_epu32(lanes.extent, most));
		store_some(&reach->floors[at], fresh, lanes.floor);
		store_some(&reach->spans[at], fresh, lanes.span);
		at += (uint32_t)__builtin_popcount(fresh);
	}
	if (has_twins_listed(reach, at))
		return false;
	reach->count = at;
	return true;
}

/* Words of a slot taken apart; -1 for no worker. In memory, from where each is compared with the list. */
struct parts {
	_Alignas(32) uint32_t worker[LANES], low[LANES], tick[LANES];
};

static inline struct parts take_apart(const _Atomic uint64_t *words, __mmask8 mask)
{
	__m512i word = _mm512_maskz_loadu_epi64(mask, (const void *)words);
	__m256i low = _mm512_cvtepi64_epi32(word);
	__m256i worker = _mm256_mask_and_epi32(_mm256_set1_epi32(-1),
		_mm512_test_epi64_mask(word, word), low, _mm256_set1_epi32(KVW_MAX_WORKERS - 1));
	struct parts parts;

	_mm256_store_si256((__m256i *)(void *)parts.worker, worker);
	_mm256_store_si256((__m256i *)(void *)parts.low, low);
	_mm256_store_si256(
		(__m256i *)(void *)parts.tick, _mm512_cvtepi64_epi32(_mm512_srli_epi64(word, 32)));
	return parts;
}

/* Words of WIDE listed workers in one node. */
struct found {
	__m512i low, tick; /* 0: none */
};

static inline struct found find_listed(
	struct found found, const uint32_t *list, struct parts *parts)
{
	__m512i workers = _mm512_loadu_si512(list);

	/* Broadcast from memory: in registers each would take a shuffle. */
	__asm__("" : "+m"(*parts));
	for (unsigned k = 0; k < LANES; k++) {
		__mmask16 mine = _mm512_cmpeq_epi32_mask(workers, each(&parts->worker[k]));

		found.low = _mm512_mask_mov_epi32(found.low, mine, each(&parts->low[k]));
		found.tick = _mm512_mask_mov_epi32(found.tick, mine, each(&parts->tick[k]));
	}
	return found;
}

/* Lets WIDE listed workers, from place `at` on, carry on. */
static inline void carry_on(struct found found, uint32_t start, uint32_t length,
	struct kvw_radix_reach *reach, unsigned at)
{
	const __m512i five = _mm512_set1_epi32(31);
	const __m512i starts = _mm512_set1_epi32((int)start);
	__m512i held = _mm512_loadu_si512(&reach->chunks[at]);
	__m512i span = _mm512_loadu_si512(&reach->spans[at]);

	/* kvw_holder_extent of each. */
	__m512i age = _mm512_sub_epi32(found.tick, _mm512_loadu_si512(&reach->floors[at]));
	__m512i rest = _mm512_sub_epi32(age, _mm512_srli_epi32(found.low, 20));
	__mmask16 alive = _mm512_cmple_epu32_mask(age, span);
	__mmask16 whole = _mm512_mask_cmple_epu32_mask(alive, rest, span);
	__m512i mid = _mm512_maskz_and_epi32(alive, _mm512_srli_epi32(found.low, 15), five);
	__m512i extent = _mm512_mask_and_epi32(mid, whole, _mm512_srli_epi32(found.low, 10), five);

	__m512i upto = _mm512_min_epu32(extent, _mm512_set1_epi32((int)length));
	__mmask16 counts = _mm512_cmplt_epu32_mask(_mm512_sub_epi32(held, starts), upto);

	_mm512_storeu_si512(&reach->chunks[at], _mm512_mask_add_epi32(held, counts, starts, upto));
}

/* A later node. Places behind the list's end hold arbitrary values; what is computed from them is
 * unused. */
static void reach_few(const _Atomic uint64_t *words, unsigned used, uint32_t start, uint32_t length,
	struct kvw_radix_reach *reach)
{
	struct found first = {_mm512_setzero_si512(), _mm512_setzero_si512()};
	struct found second = first;
	bool both = reach->count > WIDE;

	for (unsigned i = 0; i < used; i += LANES) {
		struct parts parts = take_apart(words + i, lanes_of(used - i));

		first = find_listed(first, &reach->workers[0], &parts);
		if (both)
			second = find_listed(second, &reach->workers[WIDE], &parts);
	}
	carry_on(first, start, length, reach, 0);
	if (both)
		carry_on(second, start, length, reach, WIDE);
}

static void reach_slot(const _Atomic uint64_t *words, unsigned used,
	const _Atomic uint64_t *windows, uint32_t start, uint32_t length,
	struct kvw_radix_reach *reach)
{
	if (!reach->mapped && start > 0) {
		if (reach->count > 0)
			reach_few(words, used, start, length, reach);
		return;
	}
	if (!reach->mapped && list_few(words, used, windows, length, reach))
		return;
	if (!reach->mapped)
		draw_map(reach);
	reach_mapped(words, used, windows, start, length, reach);
}

const struct kvw_radix_scan kvw_radix_scan_avx512 = {
	of_worker, dead, reach_none, reach_slot, kvw_reach_done};
