/*
 * unit_map.c - sets ranges level by level, and searches up and down again.
 *
 * A search reads the rest of its word; without a set bit it goes up a level and reads the following
 * words, and from a set summary bit it goes down to the first (or last) set bit below. The
 * summaries are exact: a bit is set if and only if its word below is not zero.
 */
#include "memory/unit_map.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define WORD_BITS 64u

static uint64_t words_for(uint64_t bits)
{
	return (bits + WORD_BITS - 1) / WORD_BITS;
}

void kvt_unit_map_finish(struct kvt_unit_map *m)
{
	for (uint32_t level = 0; level < m->levels; level++)
		free(m->words[level]);
	memset(m, 0, sizeof(*m));
}

enum kvt_status kvt_unit_map_init(struct kvt_unit_map *m, uint32_t count)
{
	struct kvt_unit_map made = {.count = count};

	for (uint64_t bits = count; bits > 0;) {
		uint64_t words = words_for(bits);
		uint64_t *level = calloc(words, sizeof(*level));

		if (level == NULL) {
			kvt_unit_map_finish(&made);
			return KVT_ENOMEM;
		}
		made.words[made.levels++] = level;
		bits = words > 1 ? words : 0;
	}
	*m = made;
	return KVT_OK;
}

enum kvt_status kvt_unit_map_grow(struct kvt_unit_map *m, uint32_t count)
{
	struct kvt_unit_map grown;
	uint32_t at = 0;

	assert(count >= m->count);
	if (kvt_unit_map_init(&grown, count) != KVT_OK)
		return KVT_ENOMEM;
	while ((at = kvt_unit_map_next(m, at)) < m->count) {
		uint64_t word = m->words[0][at / WORD_BITS];
		uint32_t first = at / WORD_BITS * WORD_BITS;

		grown.words[0][at / WORD_BITS] = word;
		for (uint32_t level = 1, bit = at; level < grown.levels; level++) {
			bit /= WORD_BITS;
			grown.words[level][bit / WORD_BITS] |= UINT64_C(1) << bit % WORD_BITS;
		}
		if (m->count - first <= WORD_BITS)
			break;
		at = first + WORD_BITS;
	}
	kvt_unit_map_finish(m);
	*m = grown;
	return KVT_OK;
}

/* Returns a mask of the bits [first, end) of one word. */
static uint64_t mask_of(uint32_t first, uint32_t end)
{
	uint64_t below_end = end == WORD_BITS ? UINT64_MAX : (UINT64_C(1) << end) - 1;

	return below_end & ~((UINT64_C(1) << first) - 1);
}

/* Returns a mask of that part of [first, last] that lies in word w. */
static uint64_t mask_in(uint64_t w, uint32_t first, uint32_t last)
{
	uint32_t from = w == first / WORD_BITS ? first % WORD_BITS : 0;
	uint32_t end = w == last / WORD_BITS ? last % WORD_BITS + 1 : WORD_BITS;

	return mask_of(from, end);
}

void kvt_unit_map_set(struct kvt_unit_map *m, uint32_t first, uint32_t end)
{
	uint32_t last = end - 1;

	assert(first < end && end <= m->count);
	for (uint32_t level = 0; level < m->levels; level++) {
		for (uint64_t w = first / WORD_BITS; w <= last / WORD_BITS; w++)
			m->words[level][w] |= mask_in(w, first, last);
		first /= WORD_BITS;
		last /= WORD_BITS;
	}
}

void kvt_unit_map_clear(struct kvt_unit_map *m, uint32_t first, uint32_t end)
{
	uint32_t last = end - 1;

	assert(first < end && end <= m->count);
	for (uint32_t level = 0; level < m->levels; level++) {
		uint64_t *words = m->words[level];

		for (uint64_t w = first / WORD_BITS; w <= last / WORD_BITS; w++)
			words[w] &= ~mask_in(w, first, last);
		first /= WORD_BITS;
		last /= WORD_BITS;
		/* The words at both ends may keep other bits; those between become zero. */
		if (words[first] != 0) {
			if (first == last)
				return;
			first++;
		}
		if (words[last] != 0) {
			if (first == last)
				return;
			last--;
		}
	}
}

bool kvt_unit_map_all_set(const struct kvt_unit_map *m, uint32_t first, uint32_t end)
{
	uint32_t last = end - 1;

	assert(first < end && end <= m->count);
	for (uint64_t w = first / WORD_BITS; w <= last / WORD_BITS; w++) {
		uint64_t mask = mask_in(w, first, last);

		if ((m->words[0][w] & mask) != mask)
			return false;
	}
	return true;
}

static uint32_t lowest(uint64_t word)
{
	return (uint32_t)__builtin_ctzll(word);
}

static uint32_t highest(uint64_t word)
{
	return WORD_BITS - 1 - (uint32_t)__builtin_clzll(word);
}

uint32_t kvt_unit_map_next(const struct kvt_unit_map *m, uint32_t from)
{
	uint64_t bits = m->count, at = from;
	uint32_t level = 0;

	for (;; level++) {
		uint64_t word;

		if (level == m->levels || at >= bits)
			return m->count;
		word = m->words[level][at / WORD_BITS] & mask_of(at % WORD_BITS, WORD_BITS);
		if (word != 0) {
			at = at / WORD_BITS * WORD_BITS + lowest(word);
			break;
		}
		at = at / WORD_BITS + 1;
		bits = words_for(bits);
	}
	while (level > 0) {
		level--;
		at = at * WORD_BITS + lowest(m->words[level][at]);
	}
	return (uint32_t)at;
}

uint32_t kvt_unit_map_after_last(const struct kvt_unit_map *m, uint32_t before)
{
	uint64_t end = before; /* end of the bits that are searched in this level */
	uint64_t at;
	uint32_t level = 0;

	for (;; level++) {
		uint64_t word;

		if (level == m->levels || end == 0)
			return 0;
		at = end - 1;
		word = m->words[level][at / WORD_BITS] & mask_of(0, at % WORD_BITS + 1);
		if (word != 0) {
			at = at / WORD_BITS * WORD_BITS + highest(word);
			break;
		}
		end = at / WORD_BITS;
	}
	while (level > 0) {
		level--;
		at = at * WORD_BITS + highest(m->words[level][at]);
	}
	return (uint32_t)at + 1;
}

uint64_t kvt_unit_map_bytes(const struct kvt_unit_map *m)
{
	uint64_t bytes = 0;

	for (uint64_t bits = m->count, level = 0; level < m->levels; level++) {
		bits = words_for(bits);
		bytes += bits * sizeof(uint64_t);
	}
	return bytes;
}
