/*
 * radix_table_avx512.c - a bucket of the prefix tree's table compared with a group at once.
 *
 * A bucket is one register: seven entries and the counts. The spread hashes of the group's eight
 * chunks are another; each entry fetches the one of its place and is compared with it.
 *
 * Compiled for AVX-512 (F, DQ, VL) and called only where the processor has it. An aligned load of
 * 64 bytes is not atomic, but each of its words is, which is all that a reader needs.
 */
#include <immintrin.h>

#include "routing/radix_table_look.h"

#define GROUP_SHIFT 4 /* words of 8 bytes from a group to the next: 16 */

_Static_assert(KVW_TABLE_GROUP * sizeof(struct kvw_chunk) == 8 << GROUP_SHIFT, "a group's step");
_Static_assert(KVW_TABLE_GROUPS == 8, "a window's groups are one vector");

/* The hashes of a group's chunks; what is beyond is 0. */
static inline __m512i load_hashes(const struct kvw_chunk *group, uint32_t count)
{
	const __m512i even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
	unsigned words = (1u << 2 * count) - 1;
	__m512i low = _mm512_maskz_loadu_epi64((__mmask8)words, group);
	__m512i high = _mm512_maskz_loadu_epi64(
		(__mmask8)(words >> KVW_TABLE_GROUP), group + KVW_TABLE_GROUP / 2);

	return _mm512_permutex2var_epi64(low, even, high);
}

/* kvw_table_spread of each. */
static inline __m512i spread_of(const struct kvw_table *table, __m512i hashes)
{
	const __m512i factor = _mm512_set1_epi64((long long)UINT64_C(0x9E3779B97F4A7C15));
	__m512i x = _mm512_mullo_epi64(
		_mm512_xor_si512(hashes, _mm512_set1_epi64((long long)table->seed)), factor);

	return _mm512_xor_si512(x, _mm512_srli_epi64(x, 32));
}

static inline __m512i node_mask(void)
{
	return _mm512_set1_epi64((long long)UINT64_C(0xFFFFFFFF00000000));
}

static inline unsigned match_group(const struct kvw_table *table, const struct kvw_bucket *bucket,
	const struct kvw_chunk *group, uint32_t count)
{
	__m512i line = _mm512_load_si512((const void *)bucket);
	__m512i place = _mm512_and_si512(
		_mm512_srli_epi64(line, PLACE_BIT), _mm512_set1_epi64(GROUP_MASK));
	__m512i mine = _mm512_permutexvar_epi64(place, spread_of(table, load_hashes(group, count)));
	__mmask8 equal = _mm512_testn_epi64_mask(
		_mm512_xor_si512(line, mine), _mm512_set1_epi64((long long)TAG_MASK));
	__mmask8 used = _mm512_test_epi64_mask(line, node_mask());
	__mmask8 inside = _mm512_cmplt_epu64_mask(place, _mm512_set1_epi64(count));
	__mmask8 crowded = _mm512_test_epi64_mask(line, line);

	return ((unsigned)(equal & used & inside) & (CROWDED - 1)) | (crowded & CROWDED);
}

static inline unsigned match_own(const struct kvw_bucket *bucket, uint64_t wanted)
{
	__m512i line = _mm512_load_si512((const void *)bucket);
	__mmask8 equal = _mm512_testn_epi64_mask(
		_mm512_xor_si512(line, _mm512_set1_epi64((long long)wanted)),
		_mm512_set1_epi64((long long)ENTRY_MASK));

	return (unsigned)(equal & _mm512_test_epi64_mask(line, node_mask())) & (CROWDED - 1);
}

/* kvw_table_home of each group's first hash. */
static void homes_of(const struct kvw_table *table, const struct kvw_chunk *chunks, uint32_t groups,
	uint32_t *homes)
{
	const __m512i step = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
	__mmask8 asked = (__mmask8)((1u << groups) - 1);
	__m512i hashes = _mm512_mask_i64gather_epi64(
		_mm512_setzero_si512(), asked, _mm512_slli_epi64(step, GROUP_SHIFT), chunks, 8);
	__m512i spread = spread_of(table, hashes);
	__m512i shard = _mm512_srl_epi64(spread, _mm_cvtsi32_si128(64 - (int)table->shard_bits));
	/* The product takes the lower half of it. */
	__m512i place = _mm512_sll_epi64(
		_mm512_srli_epi64(spread, 32), _mm_cvtsi32_si128((int)table->shard_bits));
	__m512i first =
		_mm512_mul_epu32(shard, _mm512_set1_epi64(table->shard_buckets + KVW_TABLE_PROBES));
	__m512i behind = _mm512_srli_epi64(
		_mm512_mul_epu32(place, _mm512_set1_epi64(table->shard_buckets)), 32);

	_mm256_storeu_si256(
		(__m256i *)(void *)homes, _mm512_cvtepi64_epi32(_mm512_add_epi64(first, behind)));
}

static void look_avx512(const struct kvw_table *table, const struct kvw_chunk *chunks,
	const struct kvw_table_asked *asked, struct kvw_table_found *found)
{
	static const struct look_ops ops = {match_group, match_own};

	look(&ops, table, chunks, asked, found);
}

const struct kvw_table_ops kvw_table_avx512 = {homes_of, look_avx512};
