/*
 * text.h - makes prompt text from numbers.
 *
 * Text is a sequence of common English words of three letters, each followed by a space: four
 * bytes, and about one token in the usual tokenizers, so that a prompt meant to be n tokens long
 * is n tokens long for a simulated worker (4 bytes per token) and nearly so for a real one. The
 * words of a block follow from its id alone: equal ids give equal text in every process.
 */
#ifndef KVB_TEXT_H
#define KVB_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "bench/load/mem.h"

/* Returns the next number of a sequence from a seed (splitmix64). The caller owns the state. */
uint64_t kvb_random(uint64_t *state);
/* Uniform within [0, 1). */
double kvb_random_unit(uint64_t *state);
/* Returns exponentially distributed numbers with the given mean, as the gaps of a Poisson process
 * are. */
double kvb_random_exponential(uint64_t *state, double mean);

/* The words that texts are made of. i < KVB_TEXT_WORDS. */
#define KVB_TEXT_WORDS 128
const char *kvb_text_word(uint32_t i);
/*
 * Appends `bytes` bytes of the text that belongs to id. That text is endless; a shorter request
 * gives a prefix of a longer one.
 */
void kvb_text_add(struct kvb_buf *buf, uint64_t id, size_t bytes);

/* A prompt as a list of blocks, as in traces. */
struct kvb_blocks {
	const uint64_t *ids; /* borrowed */
	size_t id_count;
	uint32_t tokens;       /* length of the whole prompt */
	/* length of each block but the last, which may be shorter or longer */
	uint32_t block_tokens;
	double bytes_per_token;
};

/*
 * Appends the text of a prompt: equal ids at the beginning give equal text at the beginning. The
 * length in bytes is tokens * bytes_per_token, for any number of ids.
 */
void kvb_text_add_blocks(struct kvb_buf *buf, const struct kvb_blocks *blocks);

#endif
