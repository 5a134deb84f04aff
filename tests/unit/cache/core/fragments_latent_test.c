/*
 * fragments_latent_test.c - fragments of a model with latent keys (MLA): a token's vector is the same bytes elsewhere, but for
 * the rotary key at its end, which is what it would be there. By the host's way and over the GPU interface.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fragments/number.h"
#include "fragments/value.h"
#include "kvtier/kvtier_cuda.h"
#include "support.h"
#include "tests/unit/suite.h"

#define LAYERS 2u
#define BLOCK  16u
#define BLOCKS 8u
#define LATENT 512u
#define ROTARY 64u
#define HEAD   (LATENT + ROTARY)
#define WIDE   640u /* values of a token's room, where there are gaps */
#define TOKENS 40u  /* of a fragment: two whole chunks and a shorter one */
#define CHUNK_TOKENS 16u
#define SCALE  1.37F /* what YaRN multiplies into keys stays in them, and comes once */

#define LATENT_MODEL(latent, rotary) \
	"{\"model_type\": \"deepseek_v3\", \"q_lora_rank\": 96, \"kv_lora_rank\": " latent ", \"qk_rope_head_dim\": " rotary ", " \
	"\"rope_theta\": 10000, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 40, \"mscale\": 1.0, \"mscale_all_dim\": 0, " \
	"\"original_max_position_embeddings\": 4096}}"

static const char model[] = LATENT_MODEL("512", "64");

static struct rig rig;
static uint32_t tokens[TOKENS];

/* --- an engine's cache: [block][token][value], the same with gaps, and [block][value][token] ---- */

enum { DENSE, GAPS, APART, LAYOUTS };

struct latents {
	uint32_t values;
	size_t bytes; /* of a value */
	char *memory[LAYERS];
	void *layers[LAYERS];
	int64_t ids[BLOCKS];
	struct kvt_fragment_place place;
};

static size_t layer_bytes(const struct latents *c)
{
	return (size_t)BLOCKS * BLOCK * WIDE * c->bytes;
}

static void latents_init(struct latents *c, int layout, uint32_t values)
{
	int64_t bytes = values == KVT_FRAGMENT_F32 ? 4 : 2;

	*c = (struct latents){.values = values, .bytes = (size_t)bytes};
	for (uint32_t l = 0; l < LAYERS; l++) {
		c->layers[l] = c->memory[l] = malloc(layer_bytes(c));
		memset(c->memory[l], 0x5a, layer_bytes(c));
	}
	for (uint32_t i = 0; i < BLOCKS; i++)
		c->ids[i] = (i * 5 + 3) % BLOCKS; /* in no order */
	c->place = (struct kvt_fragment_place){
		.size = sizeof(c->place),
		.block_tokens = BLOCK,
		.keys = {c->layers, BLOCK * WIDE * bytes, (layout == DENSE ? HEAD : WIDE) * bytes, 0, bytes},
		.block_count = BLOCKS,
		.blocks = c->ids,
		.blocks_listed = BLOCKS,
	};
	if (layout == APART)
		c->place.keys = (struct kvt_fragment_plane){c->layers, BLOCK * WIDE * bytes, bytes, 0, BLOCK * bytes};
}

static void latents_finish(struct latents *c)
{
	for (uint32_t l = 0; l < LAYERS; l++)
		free(c->memory[l]);
}

static char *at(const struct latents *c, uint32_t layer, uint64_t slot, uint32_t i)
{
	const struct kvt_fragment_plane *p = &c->place.keys;

	return c->memory[layer] + c->ids[slot / BLOCK] * p->block + (int64_t)(slot % BLOCK) * p->token + i * p->value;
}

static uint32_t bits_of(uint32_t layer, uint32_t t, uint32_t i)
{
	uint32_t x = ((layer * 1009 + t) * 613 + i) * 2654435761u;

	return x ^ x >> 15;
}

/* Value i of a token's rotary key before it is turned, from -1 to 1. */
static double plain(uint32_t layer, uint32_t t, uint32_t i)
{
	return (double)(bits_of(layer, t, LATENT + i) >> 8) / 8388608.0 - 1;
}

/* As a model computes it: neighbours are pairs. */
static double turned(const struct kvt_rope *rope, uint32_t layer, uint32_t t, uint32_t i, uint64_t position)
{
	double angle = (double)position * (double)rope->frequency[i / 2];
	double a = plain(layer, t, i & ~1u), b = plain(layer, t, i | 1u);

	return (double)SCALE * ((i & 1) == 0 ? a * cos(angle) - b * sin(angle) : b * cos(angle) + a * sin(angle));
}

static double get(const struct latents *c, const char *from)
{
	uint16_t narrow;
	float wide;

	if (c->values == KVT_FRAGMENT_F32) {
		memcpy(&wide, from, 4);
		return (double)wide;
	}
	memcpy(&narrow, from, 2);
	return (double)(c->values == KVT_FRAGMENT_BF16 ? kvt_bf16_to_float(narrow) : kvt_half_to_float(narrow));
}

static void set(const struct latents *c, char *to, double value)
{
	float wide = (float)value;
	uint16_t narrow = c->values == KVT_FRAGMENT_BF16 ? kvt_float_to_bf16(wide) : kvt_float_to_half(wide);

	memcpy(to, c->values == KVT_FRAGMENT_F32 ? (void *)&wide : (void *)&narrow, c->bytes);
}

static struct kvt_rope rope_of(const char *text)
{
	char why[KVT_ROPE_TEXT];
	struct kvt_rope rope;

	ck_assert_int_eq(kvt_rope_read(text, strlen(text), &rope, why), KVT_OK);
	return rope;
}

/* A model computes tokens [from, to) of the fragment at this position, behind this slot. A latent vector is any bits. */
static void compute(struct latents *c, uint64_t slot, uint64_t position, uint32_t from, uint32_t to)
{
	struct kvt_rope rope = rope_of(model);

	for (uint32_t l = 0; l < LAYERS; l++)
		for (uint32_t t = from; t < to; t++) {
			for (uint32_t i = 0; i < LATENT; i++) {
				uint32_t bits = bits_of(l, t, i);

				memcpy(at(c, l, slot + t, i), &bits, c->bytes);
			}
			for (uint32_t i = 0; i < ROTARY; i++)
				set(c, at(c, l, slot + t, LATENT + i), turned(&rope, l, t, i, position + t));
		}
}

/* Tokens [from, to) are as if they had been computed here; all other bytes, and latent vectors, are the same bits. */
static void check_place(struct latents *c, int layout, uint64_t slot, uint64_t position, uint32_t from, uint32_t to)
{
	static const double near[] = {1e-5, 0x1p-6, 0x1p-9};
	struct latents want;

	latents_init(&want, layout, c->values);
	compute(&want, slot, position, from, to);
	for (uint32_t l = 0; l < LAYERS; l++) {
		for (uint32_t t = from; t < to; t++)
			for (uint32_t i = LATENT; i < HEAD; i++) {
				char *mine = at(c, l, slot + t, i), *theirs = at(&want, l, slot + t, i);

				ck_assert_double_eq_tol(get(c, mine), get(&want, theirs), near[c->values]);
				memcpy(mine, theirs, c->bytes);
			}
		ck_assert_mem_eq(c->memory[l], want.memory[l], layer_bytes(c));
	}
	latents_finish(&want);
}

/* --- fragments -------------------------------------------------------------------------------- */

static enum kvt_status try_fragments(const char *text, uint32_t values, uint32_t heads, uint32_t value_head,
	struct kvt_fragments **out, char *why)
{
	struct kvt_fragments_config c;

	kvt_fragments_config_init(&c, sizeof(c));
	c.values = values;
	c.model = text;
	c.model_bytes = strlen(text);
	c.layers = LAYERS;
	c.heads = heads;
	c.head = HEAD;
	c.value_head = value_head;
	c.chunk_tokens = CHUNK_TOKENS;
	return kvt_fragments_create(rig.k, &c, out, why);
}

static struct kvt_fragments *fragments_of(const char *text, uint32_t values)
{
	char why[KVT_FRAGMENT_WHY] = "";
	struct kvt_fragments *f;

	ck_assert_msg(try_fragments(text, values, 1, 0, &f, why) == KVT_OK, "%s", why);
	return f;
}

static void begin(void)
{
	for (uint32_t i = 0; i < TOKENS; i++)
		tokens[i] = i * i + 5;
	rig_init(&rig);
	rig_open(&rig);
}

static void end(void)
{
	rig_close(&rig);
}

static struct kvt_fragment_text text_at(uint64_t position)
{
	return (struct kvt_fragment_text){
		.size = sizeof(struct kvt_fragment_text), .tokens = tokens, .count = TOKENS, .position = position};
}

START_TEST(a_latent_vector_stays_and_its_key_turns)
{
	static const uint64_t positions[LAYOUTS] = {37, 1000, 90000};
	uint32_t values = (uint32_t)_i / LAYOUTS;
	struct kvt_fragments *f = fragments_of(model, values);
	struct kvt_fragments_stats stats = {.size = sizeof(stats)};
	struct kvt_fragment_text text = text_at(1000);
	struct latents from, to;
	size_t stored = 0, loaded = 0;

	latents_init(&from, _i % LAYOUTS, values);
	compute(&from, 21, text.position, 0, TOKENS);
	from.place.slot = 21;
	ck_assert_int_eq(kvt_fragments_store(f, &text, &from.place, &stored), KVT_OK);
	ck_assert_uint_eq(stored, TOKENS);
	ck_assert_uint_eq(kvt_fragments_chunk_bytes(f, 1), sizeof(struct kvt_fragment_head) + LAYERS * HEAD * from.bytes);
	for (int layout = 0; layout < LAYOUTS; layout++) {
		for (uint32_t skip = 0; skip < 2; skip++) {
			text = text_at(positions[layout]);
			latents_init(&to, layout, values);
			to.place.slot = 5;
			ck_assert_int_eq(kvt_fragments_load(f, &text, skip * 19, &to.place, &loaded), KVT_OK);
			ck_assert_uint_eq(loaded, TOKENS);
			check_place(&to, layout, 5, text.position, skip * 19, TOKENS);
			latents_finish(&to);
		}
	}
	ck_assert_int_eq(kvt_fragments_stats(f, &stats), KVT_OK);
	ck_assert_uint_eq(stats.stored_chunks, 3);
	ck_assert_uint_eq(stats.moved_bytes, 2 * (TOKENS + TOKENS - 19) * LAYERS * HEAD * from.bytes);
	latents_finish(&from);
	kvt_fragments_destroy(f);
}
END_TEST

/* --- a device --------------------------------------------------------------------------------- */

static struct kvt_gpu *gpu_of(const struct latents *c)
{
	struct kvt_gpu_layout layout = {
		.size = sizeof(layout),
		.element_bytes = (uint32_t)c->bytes,
		.axis_count = 1,
		.layer_count = LAYERS,
		.axes = {{(uint64_t)BLOCK * WIDE, (int64_t)c->bytes}},
		.block_count = BLOCKS,
		.block_stride = c->place.keys.block,
		.layers = c->layers,
	};
	struct kvt_gpu_config config;
	struct kvt_gpu *g;

	kvt_gpu_config_init(&config, sizeof(config));
	ck_assert_int_eq(kvt_gpu_create(&config, &layout, &g), KVT_OK);
	return g;
}

/* A chunk in two segments, of which the first one ends within a token. */
static void cut_room(struct kvt_segment segments[2], char *room, uint64_t bytes)
{
	segments[0] = (struct kvt_segment){room, 192, 0};
	segments[1] = (struct kvt_segment){room + 256, bytes - 192, 0};
}

static void wait_over(struct kvt_gpu *g, uint64_t op)
{
	ck_assert_int_eq(kvt_gpu_wait(g, op, SECOND), KVT_OK);
}

START_TEST(a_device_does_the_same)
{
	uint32_t values = (uint32_t)_i / LAYOUTS;
	struct kvt_fragments *f = fragments_of(model, values);
	struct kvt_fragment_piece piece = {.size = sizeof(piece), .tokens = TOKENS, .position = 700, .end = TOKENS};
	struct kvt_fragment_copy copy = {.size = sizeof(copy), .piece = &piece, .segment_count = 2};
	uint64_t bytes = kvt_fragments_chunk_bytes(f, TOKENS), op;
	char *room = aligned_alloc(64, bytes / 64 * 64 + 192), *other = aligned_alloc(64, bytes / 64 * 64 + 192);
	struct kvt_segment segments[2], theirs[2];
	struct latents from, to;
	struct kvt_gpu *g;

	cut_room(segments, room, bytes);
	cut_room(theirs, other, bytes);
	memset(room, 1, bytes / 64 * 64 + 192);
	memset(other, 1, bytes / 64 * 64 + 192);
	latents_init(&from, _i % LAYOUTS, values);
	compute(&from, 21, piece.position, 0, TOKENS);
	from.place.slot = 21;
	g = gpu_of(&from);
	copy.place = &from.place;
	copy.segments = segments;
	ck_assert_int_eq(kvt_fragments_view(f, g, &from.place, &copy.view), KVT_OK);
	ck_assert_int_eq(kvt_fragments_gather_begin(f, g, &copy, &op), KVT_OK);
	wait_over(g, op);
	ck_assert_int_eq(kvt_fragments_pack(f, &piece, &from.place, theirs, 2), KVT_OK);
	ck_assert_mem_eq(room, other, bytes / 64 * 64 + 192);
	kvt_gpu_destroy(g);
	for (uint32_t skip = 0; skip < 2; skip++) {
		piece.position = skip == 0 ? 90000 : 3;
		piece.skip = skip * 7;
		piece.end = TOKENS - skip * 9;
		latents_init(&to, _i % LAYOUTS, values);
		to.place.slot = 37;
		g = gpu_of(&to);
		copy.place = &to.place;
		ck_assert_int_eq(kvt_fragments_view(f, g, &to.place, &copy.view), KVT_OK);
		ck_assert_int_eq(kvt_fragments_scatter_begin(f, g, &copy, &op), KVT_OK);
		wait_over(g, op);
		check_place(&to, _i % LAYOUTS, 37, piece.position, piece.skip, piece.end);
		kvt_gpu_destroy(g);
		latents_finish(&to);
		latents_init(&to, _i % LAYOUTS, values);
		to.place.slot = 37;
		ck_assert_int_eq(kvt_fragments_unpack(f, &piece, &to.place, theirs, 2), KVT_OK);
		check_place(&to, _i % LAYOUTS, 37, piece.position, piece.skip, piece.end);
		latents_finish(&to);
	}
	free(room);
	free(other);
	latents_finish(&from);
	kvt_fragments_destroy(f);
}
END_TEST

/* --- refusals --------------------------------------------------------------------------------- */

START_TEST(only_the_same_split_finds_it)
{
	struct kvt_fragments *f = fragments_of(model, KVT_FRAGMENT_BF16), *other = fragments_of(LATENT_MODEL("510", "66"), KVT_FRAGMENT_BF16);
	struct kvt_fragment_text text = text_at(0);
	struct latents from;
	size_t found = 77;

	latents_init(&from, DENSE, KVT_FRAGMENT_BF16);
	compute(&from, 0, 0, 0, TOKENS);
	ck_assert_int_eq(kvt_fragments_store(f, &text, &from.place, NULL), KVT_OK);
	ck_assert_int_eq(kvt_fragments_find(f, &text, 0, &found), KVT_OK);
	ck_assert_uint_eq(found, TOKENS);
	ck_assert_int_eq(kvt_fragments_find(other, &text, 0, &found), KVT_OK);
	ck_assert_uint_eq(found, 0);
	latents_finish(&from);
	kvt_fragments_destroy(other);
	kvt_fragments_destroy(f);
}
END_TEST

START_TEST(what_is_not_latent_needs_values_and_what_is_has_none)
{
	static const char wide[] = "{\"model_type\": \"llama\", \"head_dim\": 576}";
	struct kvt_fragments *none = NULL;
	char why[KVT_FRAGMENT_WHY] = "";

	ck_assert_int_eq(try_fragments(model, KVT_FRAGMENT_BF16, 2, 0, &none, why), KVT_EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "latent keys"));
	why[0] = '\0';
	ck_assert_int_eq(try_fragments(model, KVT_FRAGMENT_BF16, 1, HEAD, &none, why), KVT_EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "latent keys"));
	ck_assert_int_eq(try_fragments(wide, KVT_FRAGMENT_BF16, 1, 0, &none, why), KVT_EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "out of range"));
	ck_assert_int_eq(try_fragments(LATENT_MODEL("512", "32"), KVT_FRAGMENT_BF16, 1, 0, &none, why), KVT_EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "by config.json 544"));
	ck_assert_ptr_null(none);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("fragments_latent");

	tcase_add_checked_fixture(tcase, begin, end);
	tcase_add_loop_test(tcase, a_latent_vector_stays_and_its_key_turns, 0, 3 * LAYOUTS);
	tcase_add_loop_test(tcase, a_device_does_the_same, 0, 3 * LAYOUTS);
	tcase_add_test(tcase, only_the_same_split_finds_it);
	tcase_add_test(tcase, what_is_not_latent_needs_values_and_what_is_has_none);
	return run_tcase("cache/core/fragments_latent", tcase);
}
