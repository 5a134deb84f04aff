/*
 * paged.h - an engine's paged KV cache for tests, in several layouts, whose keys and values are a function of a fragment's
 * number, and of token, layer, head and position.
 */
#ifndef CORE_PAGED_H
#define CORE_PAGED_H

#include "fragments/value.h"

#define LAYERS 2u
#define HEADS  3u
#define HEAD   32u
#define BLOCK  16u
#define BLOCKS 64u
#define TOKENS 150u /* of a fragment: two whole chunks and a shorter one */
#define CHUNK_TOKENS 64u

extern const char paged_model[]; /* a config.json */

/* How it lies: [block][token][head][value], [block][head][token][value], and keys as [block][head][value][token]. */
enum { ROWS, HEADS_FIRST, TRANSPOSED, LAYOUTS };

struct paged {
	uint32_t values;
	uint32_t fragment; /* whose keys and values compute and check_place mean */
	size_t bytes; /* of a value */
	char *keys[LAYERS], *numbers[LAYERS];
	void *key_layers[LAYERS], *number_layers[LAYERS];
	struct kvt_fragment_place place;
	int64_t ids[BLOCKS];
};

void paged_init(struct paged *p, int layout, uint32_t values);
void paged_finish(struct paged *p);

/* A model computes the fragment at this position, behind this slot. */
void compute(struct paged *p, uint64_t slot, uint64_t position);

/* Tokens [from, to) are as if they had been computed here; what is around them is as it was. Fails the test if not. */
void check_place(const struct paged *p, uint64_t slot, uint64_t position, uint32_t from, uint32_t to);

#endif
