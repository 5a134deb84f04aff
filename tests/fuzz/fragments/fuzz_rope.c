/*
 * fuzz_rope.c - any text as a model's config.json.
 *
 * Checked: what is accepted has a head that fits, frequencies that are finite, positive and at most one turn's start
 * (1), never rising from pair to pair, and a key that is moved there and back is the key; what is refused leaves the
 * result alone and gives a reason.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fragments/rope.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
	if (!holds)
		abort();
}

static void check(const struct kvt_rope *rope)
{
	float key[KVT_ROPE_HEAD_MAX];
	struct kvt_rope_turn turn;

	require(rope->head >= 2 && rope->head <= KVT_ROPE_HEAD_MAX);
	require(rope->rotated >= 2 && rope->rotated <= rope->head && rope->rotated % 2 == 0);
	require(rope->offset <= rope->head - rope->rotated && rope->latent == (rope->offset > 0));
	for (uint32_t i = 0; i < rope->rotated / 2; i++)
		require(isfinite(rope->frequency[i]) && rope->frequency[i] >= 0 && rope->frequency[i] <= 1);
	for (uint32_t i = 0; i < rope->head; i++)
		key[i] = (float)i;
	kvt_rope_turn_by(rope, 100, &turn);
	kvt_rope_move(&turn, KVT_ROPE_F32, key, key, 1);
	kvt_rope_turn_by(rope, -100, &turn);
	kvt_rope_move(&turn, KVT_ROPE_F32, key, key, 1);
	for (uint32_t i = 0; i < rope->head; i++)
		require(fabsf(key[i] - (float)i) < 0.01F);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvt_rope rope, before;
	char why[KVT_ROPE_TEXT] = "";

	memset(&rope, 0x5a, sizeof(rope));
	before = rope;
	if (kvt_rope_read((const char *)data, size, &rope, why) == KVT_OK) {
		check(&rope);
	} else {
		require(memcmp(&rope, &before, sizeof(rope)) == 0);
		require(why[0] != '\0' && memchr(why, '\0', sizeof(why)) != NULL);
	}
	return 0;
}
