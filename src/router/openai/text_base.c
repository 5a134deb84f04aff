/*
 * text_base.c - the inner loops over prompt text for any processor: SSE2 where that is the
 * baseline (x86-64), else plain C that a compiler may turn into the vectors it knows.
 */
#include "openai/text.h"

#ifdef __SSE2__
#include <emmintrin.h>

struct block {
	__m128i part[4];
};

static inline struct block load(const char *p)
{
	const __m128i *from = (const __m128i *)p;

	return (struct block){{_mm_loadu_si128(from), _mm_loadu_si128(from + 1),
		_mm_loadu_si128(from + 2), _mm_loadu_si128(from + 3)}};
}

static inline uint64_t equal(const struct block *block, char byte)
{
	const __m128i wanted = _mm_set1_epi8(byte);
	uint64_t mask = 0;

	for (int i = 0; i < 4; i++)
		mask |= (uint64_t)(unsigned)_mm_movemask_epi8(
				_mm_cmpeq_epi8(block->part[i], wanted))
			<< 16 * i;
	return mask;
}

/* Returns which bytes lie between `low` and `low + span`, as bits. */
static inline uint64_t within(const struct block *block, char low, char span)
{
	const __m128i base = _mm_set1_epi8(low), most = _mm_set1_epi8(span);
	uint64_t mask = 0;

	for (int i = 0; i < 4; i++) {
		__m128i v = _mm_sub_epi8(block->part[i], base);

		mask |= (uint64_t)(unsigned)_mm_movemask_epi8(
				_mm_cmpeq_epi8(_mm_min_epu8(v, most), v))
			<< 16 * i;
	}
	return mask;
}
#else
#include <string.h>

struct block {
	unsigned char byte[64];
};

static inline struct block load(const char *p)
{
	struct block block;

	memcpy(block.byte, p, sizeof(block.byte));
	return block;
}

static inline uint64_t equal(const struct block *block, char byte)
{
	uint64_t mask = 0;

	for (int i = 0; i < 64; i++)
		mask |= (uint64_t)(block->byte[i] == (unsigned char)byte) << i;
	return mask;
}

static inline uint64_t within(const struct block *block, char low, char span)
{
	uint64_t mask = 0;

	for (int i = 0; i < 64; i++)
		mask |= (uint64_t)((unsigned char)(block->byte[i] - (unsigned char)low) <=
				   (unsigned char)span)
			<< i;
	return mask;
}
#endif

static inline uint64_t backslashes(const struct block *block)
{
	return equal(block, '\\');
}

static inline uint64_t stops(const struct block *block)
{
	return equal(block, '"') | within(block, 0, 0x1f);
}

static inline bool has_special(const struct block *block)
{
	return (backslashes(block) | stops(block)) != 0;
}

static inline uint64_t short_escapes(const struct block *block)
{
	return equal(block, '"') | equal(block, '\\') | equal(block, 'b') | equal(block, 'f') |
	       equal(block, 'n') | equal(block, 'r') | equal(block, 't');
}

static inline void id_masks(
	const struct block *block, uint64_t *digits, uint64_t *commas, uint64_t *spaces)
{
	*digits = within(block, '0', 9);
	*commas = equal(block, ',');
	*spaces = equal(block, ' ');
}

static inline const char *unescape_none(const struct kvw_text *text, const char *p, const char *end)
{
	(void)text;
	(void)end;
	return p;
}

#define KERNEL_UNESCAPE unescape_none
#include "openai/text_kernel.h"

const struct kvw_text_ops kvw_text_base = {kernel_run, kernel_ids, "base"};
