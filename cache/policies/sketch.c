/*
 * sketch.c - estimates how often a name was seen lately, in at most 4 bytes per entry of the tier.
 */
#include <stdlib.h>

#include "policies/sketch.h"

#define ROWS 4

enum kvt_status kvt_sketch_init(struct kvt_sketch *s, uint64_t entries)
{
	uint64_t words = 16;

	while (words * 4 <= entries)
		words *= 2;
	*s = (struct kvt_sketch){.mask = words - 1, .period = 4 * entries + 10};
	s->words = calloc(words, sizeof(*s->words));
	if (s->words == NULL)
		return KVT_ENOMEM;
	s->bytes = words * sizeof(*s->words);
	return KVT_OK;
}

void kvt_sketch_finish(struct kvt_sketch *s)
{
	free(s->words);
	*s = (struct kvt_sketch){0};
}

static uint64_t mixed(uint64_t x)
{
	x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
	x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
	return x ^ x >> 32;
}

/* Returns the counter's bit in its word. Row r has the counters 4r to 4r + 3 of every word. */
static unsigned counter_of(const struct kvt_sketch *s, uint64_t hash, unsigned row, uint64_t *word)
{
	const uint64_t own = mixed(hash + row * 0x9e3779b97f4a7c15u);

	*word = own & s->mask;
	return (row * 4 + (unsigned)(own >> 62)) * 4;
}

static void halve(struct kvt_sketch *s)
{
	for (uint64_t w = 0; w <= s->mask; w++)
		if (s->words[w] != 0)
			s->words[w] = s->words[w] >> 1 & 0x7777777777777777u;
	s->seen = 0;
}

void kvt_sketch_add(struct kvt_sketch *s, uint64_t name)
{
	const unsigned least = kvt_sketch_count(s, name);

	if (least < KVT_SKETCH_MOST) {
		for (unsigned row = 0; row < ROWS; row++) {
			uint64_t word;
			const unsigned bit = counter_of(s, name, row, &word);

			if ((s->words[word] >> bit & 15) == least)
				s->words[word] += (uint64_t)1 << bit;
		}
	}
	if (++s->seen >= s->period)
		halve(s);
}

unsigned kvt_sketch_count(const struct kvt_sketch *s, uint64_t name)
{
	unsigned least = KVT_SKETCH_MOST;

	for (unsigned row = 0; row < ROWS; row++) {
		uint64_t word;
		const unsigned bit = counter_of(s, name, row, &word);
		const unsigned count = s->words[word] >> bit & 15;

		if (count < least)
			least = count;
	}
	return least;
}
