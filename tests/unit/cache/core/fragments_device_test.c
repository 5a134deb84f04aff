/*
 * fragments_device_test.c - fragments between a chunk and an engine's cache through the GPU interface, over the backend for
 * this machine's memory: the same chunks as those of the host's own way, the same keys, and the same refusals.
 */
#include <stdlib.h>
#include <string.h>

#include "kvtier/kvtier_cuda.h"
#include "paged.h"
#include "support.h"
#include "tests/unit/suite.h"

#define ROOM (1u << 20)

static struct rig rig;
static struct kvt_fragments *f;
static char *room, *other;

static struct kvt_fragments *fragments_of(uint32_t values, uint32_t heads)
{
	struct kvt_fragments_config c;
	struct kvt_fragments *made;
	char why[KVT_FRAGMENT_WHY] = "";

	kvt_fragments_config_init(&c, sizeof(c));
	c.values = values;
	c.model = paged_model;
	c.model_bytes = strlen(paged_model);
	c.layers = LAYERS;
	c.heads = heads;
	c.head = c.value_head = HEAD;
	c.chunk_tokens = TOKENS;
	ck_assert_msg(kvt_fragments_create(rig.k, &c, &made, why) == KVT_OK, "%s", why);
	return made;
}

static void begin(void)
{
	rig_init(&rig);
	rig_open(&rig);
	room = aligned_alloc(64, ROOM);
	other = aligned_alloc(64, ROOM);
}

static void end(void)
{
	free(room);
	free(other);
	rig_close(&rig);
}

/* What copies whole blocks of this cache: keys of all layers, then their values. */
static struct kvt_gpu *gpu_of(const struct paged *p)
{
	void *layers[2 * LAYERS];
	struct kvt_gpu_layout layout = {
		.size = sizeof(layout),
		.element_bytes = (uint32_t)p->bytes,
		.axis_count = 1,
		.layer_count = 2 * LAYERS,
		.axes = {{BLOCK * HEADS * HEAD, (int64_t)p->bytes}},
		.block_count = BLOCKS,
		.block_stride = p->place.keys.block,
		.layers = layers,
	};
	struct kvt_gpu_config config;
	struct kvt_gpu *g;

	memcpy(layers, p->key_layers, sizeof(p->key_layers));
	memcpy(layers + LAYERS, p->number_layers, sizeof(p->number_layers));
	kvt_gpu_config_init(&config, sizeof(config));
	ck_assert_int_eq(kvt_gpu_create(&config, &layout, &g), KVT_OK);
	return g;
}

/* A chunk in two segments, of which the first one has little more than the header. */
static void cut_room(struct kvt_segment segments[2], char *at, uint64_t bytes)
{
	segments[0] = (struct kvt_segment){at, 192, 0};
	segments[1] = (struct kvt_segment){at + 256, bytes - 192, 0};
}

static void wait_over(struct kvt_gpu *g, uint64_t op)
{
	ck_assert_int_eq(kvt_gpu_wait(g, op, 1000000000), KVT_OK);
}

START_TEST(chunks_and_keys_are_those_of_the_host)
{
	uint32_t values = (uint32_t)_i / 2;
	struct kvt_fragment_piece piece = {.size = sizeof(piece), .tokens = TOKENS, .position = 700, .end = TOKENS};
	struct kvt_fragment_copy copy = {.size = sizeof(copy), .piece = &piece, .segment_count = 2};
	struct kvt_fragments_stats stats = {.size = sizeof(stats)};
	struct kvt_segment segments[2], theirs[2];
	struct paged from, to;
	struct kvt_gpu *g;
	uint64_t bytes, op;

	f = fragments_of(values, HEADS);
	bytes = kvt_fragments_chunk_bytes(f, TOKENS);
	ck_assert_uint_lt(bytes + 64, ROOM);
	cut_room(segments, room, bytes);
	cut_room(theirs, other, bytes);
	memset(room, 1, ROOM);
	memset(other, 1, ROOM);
	paged_init(&from, _i % 2, values);
	compute(&from, 21, piece.position);
	from.place.slot = 21;
	g = gpu_of(&from);
	copy.place = &from.place;
	copy.segments = segments;
	ck_assert_int_eq(kvt_fragments_view(f, g, &from.place, &copy.view), KVT_OK);
	ck_assert_int_eq(kvt_fragments_gather_begin(f, g, &copy, &op), KVT_OK);
	wait_over(g, op);
	ck_assert_int_eq(kvt_fragments_pack(f, &piece, &from.place, theirs, 2), KVT_OK);
	ck_assert_mem_eq(room, other, ROOM);
	kvt_gpu_destroy(g);

	for (int layout = 0; layout < 2; layout++) {
		for (uint32_t skip = 0; skip < 2; skip++) {
			paged_init(&to, layout, values);
			to.place.slot = 37;
			piece.position = layout == 0 ? 90000 : skip == 0 ? 700 : 3;
			piece.skip = skip * 33;
			piece.end = TOKENS - skip * 50;
			g = gpu_of(&to);
			copy.place = &to.place;
			ck_assert_int_eq(kvt_fragments_view(f, g, &to.place, &copy.view), KVT_OK);
			ck_assert_int_eq(kvt_fragments_scatter_begin(f, g, &copy, &op), KVT_OK);
			wait_over(g, op);
			check_place(&to, 37, piece.position, piece.skip, piece.end);
			kvt_gpu_destroy(g);
			paged_finish(&to);
		}
	}
	ck_assert_mem_eq(room, other, ROOM); /* a load leaves the chunk as it is */
	ck_assert_int_eq(kvt_fragments_stats(f, &stats), KVT_OK);
	ck_assert_uint_eq(stats.stored_chunks, 2);
	ck_assert_uint_eq(stats.stored_bytes, 2 * bytes);
	ck_assert_uint_eq(stats.hit_tokens, 2 * (TOKENS + TOKENS - 83));
	ck_assert_uint_eq(stats.moved_bytes, (TOKENS + 2 * (TOKENS - 83)) * LAYERS * HEADS * HEAD * from.bytes);
	paged_finish(&from);
	kvt_fragments_destroy(f);
}
END_TEST

/* A chunk that is not what it has to be, at each byte of its header but its position: nothing is written. */
START_TEST(a_wrong_header_writes_nothing)
{
	struct kvt_fragment_piece piece = {.size = sizeof(piece), .tokens = TOKENS, .position = 5, .end = TOKENS};
	struct kvt_fragment_copy copy = {.size = sizeof(copy), .piece = &piece, .segment_count = 2};
	struct kvt_fragments_stats stats = {.size = sizeof(stats)};
	struct kvt_segment segments[2];
	uint64_t op = 77, refused = 0;
	struct paged from, to;
	struct kvt_gpu *g;

	f = fragments_of(KVT_FRAGMENT_BF16, HEADS);
	cut_room(segments, room, kvt_fragments_chunk_bytes(f, TOKENS));
	paged_init(&from, ROWS, KVT_FRAGMENT_BF16);
	paged_init(&to, ROWS, KVT_FRAGMENT_BF16);
	compute(&from, 0, 5);
	ck_assert_int_eq(kvt_fragments_pack(f, &piece, &from.place, segments, 2), KVT_OK);
	g = gpu_of(&to);
	copy.place = &to.place;
	copy.segments = segments;
	ck_assert_int_eq(kvt_fragments_view(f, g, &to.place, &copy.view), KVT_OK);
	for (size_t i = 0; i < sizeof(struct kvt_fragment_head); i++) {
		if (i >= 16 && i < 24) /* where it was computed: any is possible, and a checksum covers it */
			continue;
		room[i] ^= 4;
		ck_assert_int_eq(kvt_fragments_scatter_begin(f, g, &copy, &op), KVT_ECORRUPT);
		room[i] ^= 4;
	}
	ck_assert_uint_eq(op, 77);
	ck_assert_int_eq(kvt_fragments_stats(f, &stats), KVT_OK);
	for (int i = 0; i < KVT_FRAGMENT_REFUSALS; i++)
		refused += stats.refused[i];
	ck_assert_uint_eq(refused, sizeof(struct kvt_fragment_head) - 8);
	check_place(&to, 5, 5, 0, 0);
	kvt_gpu_destroy(g);
	paged_finish(&from);
	paged_finish(&to);
	kvt_fragments_destroy(f);
}
END_TEST

static enum kvt_status scatter(struct kvt_gpu *g, const struct kvt_fragment_copy *copy)
{
	uint64_t op;

	return kvt_fragments_scatter_begin(f, g, copy, &op);
}

START_TEST(what_does_not_fit_is_refused)
{
	struct kvt_fragment_piece piece = {.size = sizeof(piece), .tokens = TOKENS, .position = 5, .end = TOKENS}, wrong;
	struct kvt_fragment_copy copy = {.size = sizeof(copy), .piece = &piece, .segment_count = 2}, bad;
	struct kvt_fragments *narrow;
	struct kvt_fragment_place place;
	struct kvt_segment segments[2];
	struct paged p, apart, elsewhere;
	struct kvt_gpu *g;
	uint32_t view;
	uint64_t op;

	f = fragments_of(KVT_FRAGMENT_F32, HEADS);
	narrow = fragments_of(KVT_FRAGMENT_F32, HEADS - 1);
	cut_room(segments, room, kvt_fragments_chunk_bytes(f, TOKENS));
	paged_init(&p, ROWS, KVT_FRAGMENT_F32);
	paged_init(&elsewhere, ROWS, KVT_FRAGMENT_F32);
	paged_init(&apart, TRANSPOSED, KVT_FRAGMENT_F32);
	compute(&p, 5, 5);
	ck_assert_int_eq(kvt_fragments_pack(f, &piece, &p.place, segments, 2), KVT_OK);
	g = gpu_of(&p);
	ck_assert_int_eq(kvt_fragments_view(f, g, &apart.place, &view), KVT_ENOTSUP);
	ck_assert_int_eq(kvt_fragments_view(f, g, NULL, &view), KVT_EINVAL);
	place = p.place;
	place.keys.token = place.values.token = 4; /* tokens overlap */
	ck_assert_int_eq(kvt_fragments_view(f, g, &place, &view), KVT_EINVAL);
	copy.place = &p.place;
	copy.segments = segments;
	copy.view = 1;
	ck_assert_int_eq(scatter(g, &copy), KVT_EINVAL); /* no such view yet */
	place = p.place;
	place.blocks = NULL; /* not read */
	ck_assert_int_eq(kvt_fragments_view(f, g, &place, &copy.view), KVT_OK);
	ck_assert_int_eq(kvt_fragments_scatter_begin(narrow, g, &copy, &op), KVT_EINVAL);
	for (int i = 0; i < 9; i++) {
		bad = copy;
		wrong = piece;
		place = p.place;
		bad.piece = &wrong;
		bad.place = &place;
		bad.view = i == 0 ? 0 : i == 1 ? 2 : bad.view;
		bad.size -= i == 2;
		wrong.skip = i == 3 ? TOKENS : 0;
		wrong.end += i == 4;
		place.block_count *= i == 5 ? 2 : 1;
		place.block_tokens *= i == 6 ? 2 : 1;
		place.keys = i == 7 ? elsewhere.place.keys : place.keys;
		bad.order = i == 8 ? 3 : 0;
		ck_assert_msg(scatter(g, &bad) == KVT_EINVAL, "case %d", i);
	}
	place = p.place;
	place.slot = (uint64_t)BLOCKS * BLOCK - TOKENS + 1; /* one token more than the blocks hold */
	bad = copy;
	bad.place = &place;
	ck_assert_int_eq(scatter(g, &bad), KVT_EINVAL);
	segments[1].bytes--;
	ck_assert_int_eq(scatter(g, &copy), KVT_EINVAL);
	segments[1].bytes++;
	check_place(&p, 5, 5, 0, TOKENS);
	for (int i = 0; i < 7; i++)
		ck_assert_int_eq(kvt_fragments_view(f, g, &p.place, &view), KVT_OK);
	ck_assert_int_eq(kvt_fragments_view(f, g, &p.place, &view), KVT_FULL);
	kvt_gpu_destroy(g);
	paged_finish(&p);
	paged_finish(&apart);
	paged_finish(&elsewhere);
	kvt_fragments_destroy(narrow);
	kvt_fragments_destroy(f);
}
END_TEST

int main(void)
{
	TCase *one = tcase_create("fragments_device");

	tcase_add_checked_fixture(one, begin, end);
	tcase_add_loop_test(one, chunks_and_keys_are_those_of_the_host, 0, 6);
	tcase_add_test(one, a_wrong_header_writes_nothing);
	tcase_add_test(one, what_does_not_fit_is_refused);
	return run_tcase("cache/core/fragments_device", one);
}
