/*
 * bench_fragments.c - `kvtier bench --fragments`: stores text that is no prefix as chunks, and
 * loads it with its keys turned.
 *
 * The shape is that of a few layers of a model with 8 KV heads of 128 values in bfloat16, in blocks
 * of 16 tokens.
 */
#include <stdlib.h>
#include <string.h>

#include "command/bench.h"
#include "kvtier/kvtier_fragments.h"

#define LAYERS      4u
#define HEADS       8u
#define HEAD        128u
#define BLOCK       16u
#define TOKEN_BYTES (2u * LAYERS * HEADS * HEAD * 2u)
#define LEAST       16u
#define MOST        65536u
#define KEPT        8u /* number of fragments that are loaded one after the other */

static const char model[] = "{\"model_type\": \"llama\", \"head_dim\": 128, \"rope_theta\": 500000.0}";

/* A paged cache for one fragment, and the fragment's tokens. */
struct scene {
	uint32_t *tokens;
	int64_t *blocks;
	char *memory;
	void *keys[LAYERS], *values[LAYERS];
	struct kvt_fragment_text text;
	struct kvt_fragment_place place;
};

static void scene_finish(struct scene *s)
{
	free(s->tokens);
	free(s->blocks);
	free(s->memory);
}

static bool scene_init(struct scene *s, uint32_t tokens)
{
	size_t blocks = (tokens + BLOCK - 1) / BLOCK, plane = blocks * BLOCK * HEADS * HEAD * 2;
	const struct kvt_fragment_plane of = {NULL, BLOCK * HEADS * HEAD * 2, HEADS * HEAD * 2, HEAD * 2, 2};

	*s = (struct scene){.tokens = calloc(tokens, sizeof(*s->tokens)),
		.blocks = calloc(blocks, sizeof(*s->blocks)),
		.memory = malloc(2 * LAYERS * plane)};
	if (s->tokens == NULL || s->blocks == NULL || s->memory == NULL) {
		scene_finish(s);
		return false;
	}
	memset(s->memory, 0x3f, 2 * LAYERS * plane);
	for (size_t i = 0; i < blocks; i++)
		s->blocks[i] = (int64_t)(blocks - 1 - i);
	for (size_t l = 0; l < LAYERS; l++) {
		s->keys[l] = s->memory + 2 * l * plane;
		s->values[l] = s->memory + (2 * l + 1) * plane;
	}
	s->text = (struct kvt_fragment_text){.size = sizeof(s->text), .tokens = s->tokens, .count = tokens};
	s->place = (struct kvt_fragment_place){.size = sizeof(s->place),
		.block_tokens = BLOCK,
		.keys = of,
		.values = of,
		.block_count = blocks,
		.blocks = s->blocks,
		.blocks_listed = blocks};
	s->place.keys.layers = s->keys;
	s->place.values.layers = s->values;
	return true;
}

/* Returns bytes per second when every stored fragment is new. *number: number of the last
 * fragment. */
static double measure_store(struct kvt_bench *b, struct kvt_fragments *f, struct scene *s, uint32_t *number)
{
	uint64_t done = 0, fill = b->l1 / b->chunk;
	double begun = kvt_bench_now(), took = 0;

	while (done <= fill || took < b->seconds) {
		size_t stored = 0;

		s->tokens[0] = ++*number;
		if (kvt_fragments_store(f, &s->text, &s->place, &stored) != KVT_OK || stored != s->text.count)
			return 0;
		if (++done == fill)
			begun = kvt_bench_now();
		took = kvt_bench_now() - begun;
	}
	return (double)((done - fill) * s->text.count * TOKEN_BYTES) / took;
}

/* Returns bytes per second when fragments in memory are loaded to another position; distance 0: to
 * the same position, so keys are not turned. */
static double measure_load(struct kvt_bench *b, struct kvt_fragments *f, struct scene *s, uint32_t last, uint64_t distance)
{
	double begun = kvt_bench_now(), took = 0;
	uint64_t done = 0;

	for (; took < b->seconds; took = kvt_bench_now() - begun) {
		size_t loaded = 0;

		s->tokens[0] = last - (uint32_t)(done % KEPT);
		s->text.position = distance;
		if (kvt_fragments_load(f, &s->text, 0, &s->place, &loaded) != KVT_OK || loaded != s->text.count)
			return 0;
		done++;
	}
	return (double)(done * s->text.count * TOKEN_BYTES) / took;
}

bool kvt_bench_fragments(struct kvt_bench *b, struct kvt *k)
{
	uint64_t tokens = b->chunk / TOKEN_BYTES;
	struct kvt_fragments_config config;
	struct kvt_fragments *f = NULL;
	char why[KVT_FRAGMENT_WHY];
	uint32_t last = 0;
	struct scene s;

	tokens = tokens < LEAST ? LEAST : tokens > MOST ? MOST : tokens;
	kvt_fragments_config_init(&config, sizeof(config));
	config.values = KVT_FRAGMENT_BF16;
	config.model = model;
	config.model_bytes = strlen(model);
	config.layers = LAYERS;
	config.heads = HEADS;
	config.head = config.value_head = HEAD;
	config.chunk_tokens = (uint32_t)tokens;
	if (!scene_init(&s, (uint32_t)tokens)) {
		fputs("kvtier bench: no memory for a fragment\n", stderr);
		return false;
	}
	if (kvt_fragments_create(k, &config, &f, why) != KVT_OK) {
		fprintf(stderr, "kvtier bench: fragments: %s\n", why);
		scene_finish(&s);
		return false;
	}
	b->fragment_store_rate = measure_store(b, f, &s, &last);
	b->fragment_load_rate = measure_load(b, f, &s, last, 0);
	b->fragment_turn_rate = measure_load(b, f, &s, last, 1000);
	kvt_fragments_destroy(f);
	scene_finish(&s);
	return true;
}
