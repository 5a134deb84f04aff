/*
 * rope_bench.c - keys of a fragment moved to other positions, against memcpy of the same bytes.
 *
 * Chunks of 4 MiB, many more than the core's caches hold, one thread. A chunk's keys are read at one place and written
 * at another, which is what blending does for every layer; memcpy takes turns with it over the same places. Half of a
 * chunk's bytes are values, which have no position and are copied: a chunk as blending sees it costs the mean of both.
 *
 * One JSON line per figure on stdout, a table on stderr.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fragments/rope.h"
#include "bench/timing.h"

#define CHUNK  ((size_t)4 << 20)
#define CHUNKS ((size_t)32) /* on each side: 128 MiB */
#define MOST   99           /* rounds */

struct kind {
	const char *values, *layout;
	enum kvt_rope_values as;
	uint32_t bytes; /* of a value */
	const char *model;
};

#define LLAMA "{\"model_type\": \"llama\", \"head_dim\": 128}"
#define GLM   "{\"model_type\": \"glm4\", \"head_dim\": 128}"
#define GPTJ  "{\"model_type\": \"gptj\", \"head_dim\": 128, \"rotary_dim\": 128}"
#define DEEPSEEK "{\"model_type\": \"deepseek_v3\", \"kv_lora_rank\": 512, \"qk_rope_head_dim\": 64}"

static const struct kind kinds[] = {
	{"bf16", "halves", KVT_ROPE_BF16, 2, LLAMA},
	{"f16", "halves", KVT_ROPE_F16, 2, LLAMA},
	{"f32", "halves", KVT_ROPE_F32, 4, LLAMA},
	{"bf16", "pairs", KVT_ROPE_BF16, 2, GPTJ},
	{"bf16", "pairs, half of a head", KVT_ROPE_BF16, 2, GLM},
	{"bf16", "latent keys", KVT_ROPE_BF16, 2, DEEPSEEK},
};

/* Bytes that are computed with like any keys: numbers of ordinary size. */
static void fill(char *to, const struct kind *kind)
{
	uint32_t dice = 1;

	for (size_t i = 0; i < CHUNK * CHUNKS / kind->bytes; i++) {
		float value;

		dice = dice * 1664525 + 1013904223;
		value = (float)(int32_t)dice * 0x1p-31F;
		if (kind->as == KVT_ROPE_F32)
			((float *)(void *)to)[i] = value;
		else
			((uint16_t *)(void *)to)[i] = (uint16_t)((kind->as == KVT_ROPE_BF16 ? 0x3f00 : 0x3800) | (dice >> 24));
	}
}

static void measure(const struct kind *kind, char *from, char *to, int rounds)
{
	double ours[MOST], theirs[MOST], ratios[MOST];
	char why[KVT_ROPE_TEXT];
	struct kvt_rope_turn turn;
	struct kvt_rope rope;

	if (kvt_rope_read(kind->model, strlen(kind->model), &rope, why) != KVT_OK) {
		fprintf(stderr, "%s\n", why);
		exit(1);
	}
	kvt_rope_turn_by(&rope, 4321, &turn);
	fill(from, kind);
	memset(to, 1, CHUNK * CHUNKS); /* touches every page before the first round */
	for (int r = 0; r < rounds; r++) {
		double start = kvb_cpu_seconds();

		for (size_t c = 0; c < CHUNKS; c++)
			kvt_rope_move(&turn, kind->as, to + c * CHUNK, from + c * CHUNK, CHUNK / kind->bytes / rope.head);
		ours[r] = CHUNK * CHUNKS / (kvb_cpu_seconds() - start);
		start = kvb_cpu_seconds();
		for (size_t c = 0; c < CHUNKS; c++)
			memcpy(to + c * CHUNK, from + c * CHUNK, CHUNK);
		theirs[r] = CHUNK * CHUNKS / (kvb_cpu_seconds() - start);
		ratios[r] = ours[r] / theirs[r];
	}
	fprintf(stderr, "%-6s %-22s %8.2f GB/s %8.2f GB/s   %.2f", kind->values, kind->layout, kvb_median(ours, rounds) / 1e9,
		kvb_median(theirs, rounds) / 1e9, kvb_median(ratios, rounds));
	fprintf(stderr, " (%.2f to %.2f)\n", ratios[0], ratios[rounds - 1]);
	printf("{\"bench\":\"fragments\",\"metric\":\"rotate_bytes_per_second\",\"value\":%.0f,\"unit\":\"B/s\",\"peer\":\"memcpy\","
	       "\"ratio\":%.3f,\"low\":%.3f,\"high\":%.3f,\"values\":\"%s\",\"layout\":\"%s\",\"rounds\":%d}\n",
		kvb_median(ours, rounds), kvb_median(ratios, rounds), ratios[0], ratios[rounds - 1], kind->values, kind->layout, rounds);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	char *from, *to;
	int rounds = 15, option;

	while ((option = getopt(argc, argv, "r:")) != -1) {
		if (option != 'r' || (rounds = atoi(optarg)) < 1 || rounds > MOST) {
			fprintf(stderr, "usage: rope_bench [-r ROUNDS]  (1 to %d)\n", MOST);
			return 2;
		}
	}
	from = aligned_alloc(4096, CHUNK * CHUNKS);
	to = aligned_alloc(4096, CHUNK * CHUNKS);
	if (from == NULL || to == NULL) {
		fprintf(stderr, "no memory\n");
		return 1;
	}
	fprintf(stderr, "%-6s %-22s %13s %13s   ratio (spread)\n", "values", "pairs of a head", "moved", "memcpy");
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		measure(&kinds[i], from, to, rounds);
	free(from);
	free(to);
	return 0;
}
