/*
 * fuzz_fragments.c - any prompt, cut in any way, and any bytes as a fragment's chunk.
 *
 * Checked: fragments follow each other, cover the prompt and keep their lengths; tokens chosen to be computed again are of
 * fragments and no more than their share; a header that passes its check is a header of this model, and its chunk is put
 * into place without a byte outside of it.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fragments/value.h"

#define TOKENS 1024
#define MOST   TOKENS

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
	if (!holds)
		abort();
}

static void choose(const struct kvt_fragment *fragments, size_t n, size_t count, uint8_t share)
{
	struct kvt_blend blend = {sizeof(blend), share % 5, (double)share / 850};
	uint8_t chosen[TOKENS];
	float deviation[TOKENS];
	size_t made;

	for (size_t i = 0; i < count; i++)
		deviation[i] = (float)((i * 7919u + share) % 101u);
	require(kvt_blend_choose(&blend, fragments, n, deviation, count, chosen, &made) == KVT_OK);
	require((double)made <= (double)count * blend.share + 1e-6);
}

static void cut(const uint8_t *data, size_t size)
{
	struct kvt_fragment out[MOST];
	uint32_t tokens[TOKENS], bounds[4];
	size_t count = size - 8 < TOKENS ? size - 8 : TOKENS, found, end = 0;
	struct kvt_cut how = {.size = sizeof(how),
		.by = data[0] % 5u,
		.separator = tokens,
		.separator_count = data[1] % 66u,
		.bounds = bounds,
		.bound_count = data[2] % 5u,
		.min_tokens = data[3],
		.average_tokens = data[4] * 2u,
		.max_tokens = data[5] * 8u};

	for (size_t i = 0; i < count; i++)
		tokens[i] = data[8 + i] % 8u;
	for (size_t i = 0; i < 4; i++)
		bounds[i] = (uint32_t)(i + 1) * data[6];
	if (how.separator_count > count)
		how.separator_count = 0;
	if (kvt_fragments_cut(&how, tokens, count, out, MOST, &found) != KVT_OK)
		return;
	require(found <= MOST);
	for (size_t i = 0; i < found; i++) {
		require(out[i].first == end && out[i].count > 0);
		require(how.max_tokens == 0 || out[i].count <= how.max_tokens);
		end += out[i].count;
	}
	require(end == count);
	choose(out, found, count, data[7]);
}

static void unpack(const uint8_t *data, size_t size)
{
	bool latent = data[1] % 4u == 0;
	struct kvt_fragment_shape shape = {
		.values = data[0] % 3u, .layers = 1, .heads = 1u + data[1] % 2u, .head = 4, .value_head = latent ? 0 : 4};
	uint32_t tokens = 1u + data[2] % 8u;
	uint64_t bytes = kvt_fragment_value_bytes(&shape, tokens);
	const struct kvt_rope rope = {.head = 4, .offset = latent ? 2 : 0, .rotated = latent ? 2 : 4, .frequency = {1, 0.5F}};
	uint64_t cut = (data[3] * 8u) % bytes;
	char *chunk = malloc(bytes), *paged = calloc(1, 2u * 16 * 2 * 4 * 4);
	struct kvt_segment segments[2] = {{chunk, cut, 0}, {chunk + cut, bytes - cut, 0}};
	struct kvt_fragment_bytes from = {segments, 2};
	void *keys[1], *values[1];
	int64_t blocks[] = {1, 0};
	struct kvt_fragment_place place = {.size = sizeof(place), .block_tokens = 8, .keys = {keys, 256, 32, 16, 4},
		.values = {values, 256, 32, 16, 4}, .block_count = 2, .blocks = blocks, .blocks_listed = 2, .slot = data[4] % 16u};
	struct kvt_fragment_head head;
	struct kvt_rope_turn turn;

	require(chunk != NULL && paged != NULL);
	keys[0] = paged;
	values[0] = latent ? NULL : paged + 512;
	kvt_fragment_head_make(&shape, tokens, 0, 5, &head);
	memset(chunk, data[6], bytes);
	memcpy(chunk, &head, sizeof(head));
	memcpy(chunk, data + 8, size - 8 < bytes ? size - 8 : bytes);
	memcpy(&head, chunk, sizeof(head));
	kvt_rope_turn_by(&rope, data[5] - 128, &turn);
	if (kvt_fragment_head_check(&head, &shape, tokens, 0) == KVT_FRAGMENT_REFUSALS &&
		kvt_fragment_place_fits(&place, &shape, tokens) && cut >= sizeof(head))
		(void)kvt_fragment_unpack(&shape, data[7] % 2u != 0 ? &turn : NULL, tokens, data[7] % tokens, tokens, &place, 0, &from);
	free(chunk);
	free(paged);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 9)
		return 0;
	if (data[8] % 2 == 0)
		cut(data, size);
	else
		unpack(data, size);
	return 0;
}
