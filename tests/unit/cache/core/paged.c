/*
 * paged.c - an engine's paged KV cache for tests, in several layouts, whose keys and values are a
 * function of a fragment's number, and of token, layer, head and position.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "paged.h"

const char paged_model[] = "{\"model_type\": \"llama\", \"head_dim\": 32, \"rope_theta\": 10000.0}";

static struct kvt_fragment_plane plane(int layout, bool keys, int64_t value, void *const *layers)
{
	int64_t block = (int64_t)BLOCK * HEADS * HEAD * value;

	if (layout == ROWS)
		return (struct kvt_fragment_plane){layers, block, HEADS * HEAD * value, HEAD * value, value};
	if (layout == HEADS_FIRST || !keys)
		return (struct kvt_fragment_plane){layers, block, HEAD * value, BLOCK * HEAD * value, value};
	return (struct kvt_fragment_plane){layers, block, value, BLOCK * HEAD * value, BLOCK * value};
}

void paged_init(struct paged *p, int layout, uint32_t values)
{
	size_t all;

	*p = (struct paged){.values = values, .bytes = values == KVT_FRAGMENT_F32 ? 4 : 2};
	all = (size_t)BLOCKS * BLOCK * HEADS * HEAD * p->bytes;
	for (uint32_t l = 0; l < LAYERS; l++) {
		p->key_layers[l] = p->keys[l] = malloc(all);
		p->number_layers[l] = p->numbers[l] = malloc(all);
		memset(p->keys[l], 0x5a, all);
		memset(p->numbers[l], 0x5a, all);
	}
	for (uint32_t i = 0; i < BLOCKS; i++)
		p->ids[i] = (i * 37 + 11) % BLOCKS; /* in no order */
	p->place = (struct kvt_fragment_place){
		.size = sizeof(p->place),
		.block_tokens = BLOCK,
		.keys = plane(layout, true, (int64_t)p->bytes, p->key_layers),
		.values = plane(layout, false, (int64_t)p->bytes, p->number_layers),
		.block_count = BLOCKS,
		.blocks = p->ids,
		.blocks_listed = BLOCKS,
	};
}

void paged_finish(struct paged *p)
{
	for (uint32_t l = 0; l < LAYERS; l++) {
		free(p->keys[l]);
		free(p->numbers[l]);
	}
}

static char *at(const struct paged *p, bool keys, uint32_t layer, uint64_t slot, uint32_t head, uint32_t i)
{
	const struct kvt_fragment_plane *s = keys ? &p->place.keys : &p->place.values;

	return (char *)s->layers[layer] + p->ids[slot / BLOCK] * s->block + (int64_t)(slot % BLOCK) * s->token +
	       head * s->head + i * s->value;
}

static uint16_t to_bf16(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* A half next to it. */
static uint16_t to_half(float value)
{
	uint16_t low = 0, high = 0x7c00;

	while (high - low > 1) {
		uint16_t middle = (uint16_t)((low + high) / 2);

		if (kvt_rope_half_to_float(middle) <= fabsf(value))
			low = middle;
		else
			high = middle;
	}
	return (uint16_t)(low | (value < 0 ? 0x8000 : 0));
}

static float get(const struct paged *p, bool keys, uint32_t layer, uint64_t slot, uint32_t head, uint32_t i)
{
	const char *from = at(p, keys, layer, slot, head, i);
	uint16_t narrow;
	uint32_t bits;
	float out;

	if (p->values == KVT_FRAGMENT_F32) {
		memcpy(&out, from, 4);
		return out;
	}
	memcpy(&narrow, from, 2);
	if (p->values == KVT_FRAGMENT_F16)
		return kvt_rope_half_to_float(narrow);
	bits = (uint32_t)narrow << 16;
	memcpy(&out, &bits, 4);
	return out;
}

static void set(const struct paged *p, bool keys, uint32_t layer, uint64_t slot, uint32_t head, uint32_t i, float value)
{
	uint16_t narrow;

	if (p->values == KVT_FRAGMENT_F32) {
		memcpy(at(p, keys, layer, slot, head, i), &value, 4);
		return;
	}
	narrow = p->values == KVT_FRAGMENT_BF16 ? to_bf16(value) : to_half(value);
	memcpy(at(p, keys, layer, slot, head, i), &narrow, 2);
}

/* What token t has before it is turned, from -1 to 1. */
static float plain(uint32_t fragment, bool keys, uint32_t layer, uint32_t t, uint32_t head, uint32_t i)
{
	uint32_t x = (((((keys ? 1u : 0u) + 2 * fragment) * 7 + layer) * 1009 + t) * 13 + head) * 101 + i;

	x = x * 2654435761u;
	return (float)(x >> 8) / 8388608.0F - 1;
}

/* The key of token t at a position, as a model computes it. */
static double turned(uint32_t fragment, const struct kvt_rope *rope, uint32_t layer, uint32_t t, uint32_t head, uint32_t i, uint64_t position)
{
	uint32_t n = HEAD / 2;
	double angle = (double)position * (double)rope->frequency[i % n];
	double a = (double)plain(fragment, true, layer, t, head, i % n), b = (double)plain(fragment, true, layer, t, head, i % n + n);

	return i < n ? a * cos(angle) - b * sin(angle) : b * cos(angle) + a * sin(angle);
}

static struct kvt_rope rope_of(const char *text)
{
	char why[KVT_ROPE_TEXT];
	struct kvt_rope rope;

	ck_assert_int_eq(kvt_rope_read(text, strlen(text), &rope, why), KVT_OK);
	return rope;
}

void compute(struct paged *p, uint64_t slot, uint64_t position)
{
	struct kvt_rope rope = rope_of(paged_model);

	p->place.slot = slot;
	for (uint32_t l = 0; l < LAYERS; l++)
		for (uint32_t t = 0; t < TOKENS; t++)
			for (uint32_t h = 0; h < HEADS; h++)
				for (uint32_t i = 0; i < HEAD; i++) {
					set(p, true, l, slot + t, h, i, (float)turned(p->fragment, &rope, l, t, h, i, position + t));
					set(p, false, l, slot + t, h, i, plain(p->fragment, false, l, t, h, i));
				}
}

void check_place(const struct paged *p, uint64_t slot, uint64_t position, uint32_t from, uint32_t to)
{
	static const double near[] = {1e-5, 0x1p-6, 0x1p-9};
	struct kvt_rope rope = rope_of(paged_model);
	uint16_t untouched;

	for (uint32_t l = 0; l < LAYERS; l++)
		for (uint32_t h = 0; h < HEADS; h++)
			for (uint32_t i = 0; i < HEAD; i++) {
				for (uint32_t t = from; t < to; t++) {
					ck_assert_double_eq_tol((double)get(p, true, l, slot + t, h, i),
						turned(p->fragment, &rope, l, t, h, i, position + t), near[p->values]);
					ck_assert_double_eq_tol((double)get(p, false, l, slot + t, h, i),
						(double)plain(p->fragment, false, l, t, h, i), near[p->values]);
				}
				for (int keys = 0; keys < 2; keys++) {
					memcpy(&untouched, at(p, keys != 0, l, slot + from - 1, h, i), 2);
					ck_assert_uint_eq(untouched, 0x5a5a);
					memcpy(&untouched, at(p, keys != 0, l, slot + to, h, i), 2);
					ck_assert_uint_eq(untouched, 0x5a5a);
				}
			}
}
