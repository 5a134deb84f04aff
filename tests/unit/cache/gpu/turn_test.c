/*
 * turn_test.c - tokens out of a paged cache and into it, keys turned in place, against the naive way: over this machine's
 * memory, the fake driver, and on a machine that has one, a device. Layouts of any order of axes, with gaps; all types, both
 * ways to pair, heads that turn in part; chunks in pieces, pinned or not; by every method.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fragments/rope.h"
#include "gpu/gpu.h"
#include "paged_memory.h"

#define CASES     40
#define ROOM      ((size_t)4 << 20)
#define LONG_WAIT ((uint64_t)60 * 1000000000)
#define TOKENS    1500 /* of a job, at most: more than a launch has room for */

static struct place place;
static char *arena;
static char chunk[ROOM];

static void setup(void)
{
	place_init(&place);
	arena = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(arena, MAP_FAILED);
}

static void teardown(void)
{
	munmap(arena, ROOM);
	place_finish(&place);
}

/* A paged cache, its tokens as a view, and a turn. */
struct scene {
	struct cache cache; /* axes: tokens, heads, values */
	struct kvt_gpu_parts parts;
	struct kvt_gpu_layout tokens; /* axes: heads, values */
	struct kvt_gpu *g;
	uint32_t view;
	struct kvt_gpu_turn turn;
	float cosine[KVT_ROPE_HEAD_MAX / 2], sine[KVT_ROPE_HEAD_MAX / 2];
};

static struct kvt_gpu *open_gpu(const struct cache *c, uint32_t method)
{
	struct kvt_gpu_config config;
	struct kvt_gpu *g;

	kvt_gpu_config_init(&config, sizeof(config));
	config.device = place.device;
	config.driver = place.driver_path;
	config.library = place.library;
	config.memo = "";
	config.method = method;
	config.pin_bytes = 1 << 20;
	config.staging_bytes = 64 * 1024; /* several windows, on several streams unless keys turn */
	ck_assert_int_eq(kvt_gpu_create(&config, &c->layout, &g), KVT_OK);
	return g;
}

static void shuffle(int order[4], struct random *r)
{
	for (int i = 3; i > 0; i--) {
		int j = (int)random_below(r, (uint64_t)i + 1), other = order[i];

		order[i] = order[j];
		order[j] = other;
	}
}

static void make_turn(struct scene *s, struct random *r, uint64_t head)
{
	s->turn = (struct kvt_gpu_turn){
		.pairs = 1 + (uint32_t)random_below(r, head / 2),
		.neighbours = (uint32_t)random_below(r, 2),
		.layer_step = 1 + (uint32_t)random_below(r, 3),
		.cosine = s->cosine,
		.sine = s->sine,
	};
	s->turn.first_value = (uint32_t)(random_below(r, 2) * random_below(r, head - 2 * s->turn.pairs + 1));
	s->turn.values = s->cache.layout.element_bytes == 4 ? KVT_GPU_F32
		: random_below(r, 2) ? KVT_GPU_BF16 : KVT_GPU_F16;
	s->turn.first_layer = (uint32_t)random_below(r, s->cache.layout.layer_count);
	for (uint32_t i = 0; i < s->turn.pairs; i++) {
		double angle = (double)random_below(r, 1000000) / 1000;

		s->cosine[i] = (float)cos(angle);
		s->sine[i] = (float)sin(angle);
	}
}

/* False: nothing can turn keys here, and that is reported. */
static bool make_scene(struct scene *s, uint32_t method, struct random *r)
{
	static const uint64_t heads[] = {2, 8, 26, 64, 128, 320}; /* the last one: more pairs than a launch has room for */
	uint64_t head = heads[random_below(r, 6)];
	uint64_t counts[4] = {2 + random_below(r, 20), 1 + random_below(r, 16), 1 + random_below(r, 4), head};
	enum kvt_status status;
	int order[4] = {0, 1, 2, 3};

	if (random_below(r, 3) > 0)
		shuffle(order, r);
	cache_make(&s->cache, &place, counts, order, 1 + (uint32_t)random_below(r, 4), random_below(r, 3) ? 2 : 4);
	if (head > 2 && random_below(r, 2))
		s->cache.layout.axes[2].count = head - 2; /* behind each head a gap */
	cache_fill(&s->cache, r);
	s->g = open_gpu(&s->cache, method);
	s->tokens = s->cache.layout;
	s->tokens.axis_count = 2;
	s->tokens.axes[0] = s->cache.layout.axes[1];
	s->tokens.axes[1] = s->cache.layout.axes[2];
	s->parts = (struct kvt_gpu_parts){s->cache.layout.axes[0].count, s->cache.layout.axes[0].stride};
	status = kvt_gpu_view_add(s->g, &s->tokens, &s->parts, &s->view);
	if (status != KVT_OK) {
		ck_assert_int_eq(status, KVT_ENOTSUP);
		ck_assert(place.device >= 0); /* a build without a kernel */
		ck_assert_ptr_null(kvt_gpu_view(s->g, 1));
		kvt_gpu_destroy(s->g);
		cache_finish(&s->cache);
		return false;
	}
	make_turn(s, r, s->tokens.axes[1].count);
	return true;
}

static void finish_scene(struct scene *s)
{
	kvt_gpu_destroy(s->g);
	cache_finish(&s->cache);
}

/* --- the naive way ---------------------------------------------------------------------------- */

static char *mirrored(const struct scene *s, uint32_t layer, int64_t id, uint64_t head, uint64_t i)
{
	int64_t tokens = (int64_t)s->parts.count;

	return (char *)s->cache.mirror_layers[layer] + id / tokens * s->tokens.block_stride + id % tokens * s->parts.stride +
	       (int64_t)head * s->tokens.axes[0].stride + (int64_t)i * s->tokens.axes[1].stride;
}

static float load(uint32_t values, const char *at)
{
	float value;
	uint16_t narrow;

	if (values == KVT_GPU_F32) {
		memcpy(&value, at, 4);
		return value;
	}
	memcpy(&narrow, at, 2);
	return values == KVT_GPU_BF16 ? kvt_bf16_to_float(narrow) : kvt_half_to_float(narrow);
}

static void store(uint32_t values, char *at, float value)
{
	uint16_t narrow = values == KVT_GPU_BF16 ? kvt_float_to_bf16(value) : kvt_float_to_half(value);

	if (values == KVT_GPU_F32)
		memcpy(at, &value, 4);
	else
		memcpy(at, &narrow, 2);
}

static void turn_naively(struct scene *s, uint32_t layer, int64_t id, uint64_t head)
{
	const struct kvt_gpu_turn *t = &s->turn;

	for (uint32_t i = 0; i < t->pairs; i++) {
		uint32_t one = t->first_value + (t->neighbours ? 2 * i : i);
		char *a = mirrored(s, layer, id, head, one);
		char *b = mirrored(s, layer, id, head, t->neighbours ? one + 1 : one + t->pairs);
		float x = load(t->values, a), y = load(t->values, b);

		store(t->values, a, x * t->cosine[i] - y * t->sine[i]);
		store(t->values, b, y * t->cosine[i] + x * t->sine[i]);
	}
}

/* Token by token; chunk: all of it, contiguous. turned: the scatter turns keys. */
static void copy_naively(struct scene *s, const struct kvt_gpu_job *job, char *flat, bool scatter, bool turned)
{
	uint64_t heads = s->tokens.axes[0].count, head = s->tokens.axes[1].count, bytes = s->tokens.element_bytes;

	for (uint32_t layer = 0; layer < s->tokens.layer_count; layer++) {
		bool keys = turned && layer >= s->turn.first_layer &&
			(layer - s->turn.first_layer) % s->turn.layer_step == 0;

		for (size_t t = 0; t < job->block_count; t++)
			for (uint64_t h = 0; h < heads; h++) {
				for (uint64_t i = 0; i < head; i++) {
					char *one = mirrored(s, layer, job->blocks[t], h, i);
					char *other = flat +
						(((layer * job->count + job->first + t) * heads + h) * head + i) * bytes;

					memcpy(scatter ? one : other, scatter ? other : one, bytes);
				}
				if (keys)
					turn_naively(s, layer, job->blocks[t], h);
			}
	}
}

/* --- jobs ------------------------------------------------------------------------------------- */

struct made_job {
	struct kvt_gpu_job job;
	int64_t ids[TOKENS];
	struct kvt_segment segments[8];
	uint64_t bytes;
};

static void make_job(struct made_job *m, const struct scene *s, struct random *r)
{
	uint64_t all = s->cache.layout.block_count * s->parts.count, first = random_below(r, all), at = 0;
	uint64_t token = s->tokens.axes[0].count * s->tokens.axes[1].count * s->tokens.element_bytes * s->tokens.layer_count;
	uint64_t step = all % 7 == 0 || random_below(r, 2) ? 1 : 7; /* each id once */
	size_t n = 0;

	memset(m, 0, sizeof(*m));
	m->job.size = sizeof(m->job);
	m->job.block_count = 1 + random_below(r, all);
	m->job.first = random_below(r, 2) * random_below(r, 9);
	m->job.count = m->job.first + m->job.block_count + random_below(r, 2) * random_below(r, 9);
	ck_assert_uint_le(m->job.block_count, TOKENS);
	for (size_t i = 0; i < m->job.block_count; i++)
		m->ids[i] = (int64_t)((first + i * step) % all);
	m->bytes = token * m->job.count;
	for (uint64_t left = m->bytes; left > 0; n++) {
		uint64_t here = n == 6 || random_below(r, 2) ? left : 1 + random_below(r, left);

		m->segments[n] = (struct kvt_segment){arena + at, here, at};
		at += here + (random_below(r, 2) ? 0 : 64);
		left -= here;
	}
	ck_assert_uint_le(at, ROOM);
	m->job.blocks = m->ids;
	m->job.segments = m->segments;
	m->job.segment_count = n;
}

static void pass_arena(const struct made_job *m, bool out)
{
	char *at = chunk;

	for (size_t i = 0; i < m->job.segment_count; at += m->segments[i++].bytes)
		memcpy(out ? at : m->segments[i].base, out ? m->segments[i].base : at, m->segments[i].bytes);
}

/* Numbers that a model could have: no NaN, whose bits no two kinds of machines agree on. */
static void fill_chunk(const struct scene *s, const struct made_job *m, struct random *r)
{
	for (uint64_t i = 0; i < m->bytes / s->tokens.element_bytes; i++)
		store(s->turn.values, chunk + i * s->tokens.element_bytes, ((float)random_below(r, 2000001) - 1e6F) * 1e-5F);
}

static void do_it(struct scene *s, const struct kvt_gpu_job *job, bool scatter, const struct kvt_gpu_turn *turn)
{
	uint64_t op;

	ck_assert_int_eq(kvt_gpu_view_begin(s->g, s->view, job, scatter, turn, &op), KVT_OK);
	ck_assert_int_eq(kvt_gpu_wait(s->g, op, LONG_WAIT), KVT_OK);
}

static void check_scene(struct scene *s, struct random *r)
{
	static char expected[ROOM];
	struct made_job m;

	make_job(&m, s, r);
	random_fill(r, chunk, m.bytes);
	memcpy(expected, chunk, m.bytes);
	pass_arena(&m, false);
	do_it(s, &m.job, false, NULL);
	pass_arena(&m, true);
	copy_naively(s, &m.job, expected, false, false);
	ck_assert_mem_eq(chunk, expected, m.bytes);
	for (int turned = 0; turned < 2; turned++) {
		fill_chunk(s, &m, r);
		memcpy(expected, chunk, m.bytes);
		pass_arena(&m, false);
		do_it(s, &m.job, true, turned ? &s->turn : NULL);
		copy_naively(s, &m.job, chunk, true, turned != 0);
		ck_assert(cache_is_mirrored(&s->cache)); /* what lies around is as it was */
		pass_arena(&m, true);
		ck_assert_mem_eq(chunk, expected, m.bytes);
	}
}

START_TEST(tokens_and_turns_are_naive)
{
	for (uint64_t i = 0; i < CASES; i++) {
		struct random r = {(uint64_t)_i * 1000 + i};
		struct scene s;

		if (!make_scene(&s, (uint32_t)_i, &r))
			return;
		if (i % 4 > 0)
			ck_assert_int_eq(kvt_gpu_pin(s.g, arena, i % 4 == 1 ? ROOM / 2 : ROOM), KVT_OK);
		check_scene(&s, &r);
		check_scene(&s, &r);
		finish_scene(&s);
	}
}
END_TEST

/* A whole chunk in several windows: on a device what turns them waits for all. */
START_TEST(a_turn_comes_behind_all_windows)
{
	static const uint64_t counts[4] = {96, 16, 2, 64};
	static const int order[4] = {0, 1, 2, 3};
	struct random r = {11};

	for (uint32_t method = KVT_GPU_KERNEL; method <= KVT_GPU_STAGING; method++) {
		struct scene s = {.tokens = {.size = 0}};
		struct made_job m;

		cache_make(&s.cache, &place, counts, order, 4, 2);
		cache_fill(&s.cache, &r);
		s.g = open_gpu(&s.cache, method);
		ck_assert_int_eq(kvt_gpu_pin(s.g, arena, ROOM), KVT_OK);
		s.tokens = s.cache.layout;
		s.tokens.axis_count = 2;
		s.tokens.axes[0] = s.cache.layout.axes[1];
		s.tokens.axes[1] = s.cache.layout.axes[2];
		s.parts = (struct kvt_gpu_parts){s.cache.layout.axes[0].count, s.cache.layout.axes[0].stride};
		if (kvt_gpu_view_add(s.g, &s.tokens, &s.parts, &s.view) == KVT_OK) {
			make_turn(&s, &r, 64);
			s.turn.first_layer = 0;
			for (int i = 0; i < 6; i++) {
				memset(&m, 0, sizeof(m));
				m.job = (struct kvt_gpu_job){.size = sizeof(m.job), .blocks = m.ids, .block_count = 1200,
					.count = 1200, .segments = m.segments, .segment_count = 1};
				for (int k = 0; k < 1200; k++)
					m.ids[k] = k + i;
				m.bytes = 1200 * 2 * 64 * 2 * 4;
				m.segments[0] = (struct kvt_segment){arena, m.bytes, 0};
				fill_chunk(&s, &m, &r);
				pass_arena(&m, false);
				do_it(&s, &m.job, true, &s.turn);
				copy_naively(&s, &m.job, chunk, true, true);
				ck_assert(cache_is_mirrored(&s.cache));
			}
		}
		finish_scene(&s);
	}
}
END_TEST

/* What a device does to a key is what the host's kernel does. */
START_TEST(a_turn_is_that_of_the_host)
{
	static const double steps[] = {0x1p-22, 0x1p-7, 0x1p-10};
	struct kvt_rope rope = {.head = 64, .rotated = 48, .offset = (uint32_t)_i * 16}; /* latent keys turn at their end */
	struct kvt_rope_turn turn;
	struct random r = {3};

	for (uint32_t i = 0; i < 24; i++)
		rope.frequency[i] = 1 / (float)pow(10000, i / 24.0);
	for (uint32_t values = KVT_GPU_F32; values <= KVT_GPU_F16; values++)
		for (uint32_t neighbours = 0; neighbours < 2; neighbours++) {
			static char ours[64 * 50 * 4], theirs[64 * 50 * 4];
			size_t bytes = values == KVT_GPU_F32 ? 4 : 2;
			struct kvt_gpu_turning t = {.layers = 0};
			uint64_t layer = (uint64_t)(uintptr_t)ours;

			rope.layout = neighbours ? KVT_ROPE_PAIRS : KVT_ROPE_HALVES;
			kvt_rope_turn_by(&rope, 4711, &turn);
			for (size_t i = 0; i < sizeof(ours) / 4; i++)
				store(values, ours + i * bytes, ((float)random_below(&r, 2001) - 1000) / 1000);
			memcpy(theirs, ours, sizeof(ours));
			t.shape.run = t.shape.block = kvt_gpu_divisor_of((uint32_t)(64 * 50 * bytes));
			t.shape.parts = t.blocks = kvt_gpu_divisor_of(1);
			t.layers = (uint64_t)(uintptr_t)&layer;
			t.layer_step = 1;
			t.count = 24 * 50;
			t.values = values;
			t.row_bytes = (uint32_t)(64 * bytes);
			t.first_value = rope.offset;
			t.all_pairs = 24;
			t.neighbours = neighbours;
			t.pairs = kvt_gpu_divisor_of(24);
			t.rows = kvt_gpu_divisor_of(50);
			memcpy(t.angles.cosine, turn.cosine, 24 * sizeof(float));
			memcpy(t.angles.sine, turn.sine, 24 * sizeof(float));
			for (uint32_t thread = 0; thread < 7; thread++)
				kvt_gpu_turn_thread(&t, &t.angles, thread, 7);
			kvt_rope_move(&turn, (enum kvt_rope_values)values, theirs, theirs, 50);
			for (size_t i = 0; i < sizeof(ours) / 4; i++) {
				float one = load(values, ours + i * bytes), other = load(values, theirs + i * bytes);

				ck_assert_double_le(fabs((double)one - (double)other), 1.42 * steps[values]);
			}
		}
}
END_TEST

START_TEST(what_cannot_turn_is_refused)
{
	struct random r = {5};
	struct kvt_gpu_parts overlap;
	struct kvt_gpu_turn wrong;
	struct made_job m;
	struct scene s;
	uint32_t view;
	uint64_t op;

	if (!make_scene(&s, KVT_GPU_KERNEL, &r))
		return;
	make_job(&m, &s, &r);
	ck_assert_int_eq(kvt_gpu_view_begin(s.g, s.view, &m.job, false, &s.turn, &op), KVT_EINVAL); /* of a gather */
	ck_assert_int_eq(kvt_gpu_view_begin(s.g, 2, &m.job, true, &s.turn, &op), KVT_EINVAL);
	for (int i = 0; i < 9; i++) {
		wrong = s.turn;
		wrong.first_value = i == 7 ? (uint32_t)s.tokens.axes[1].count - 2 * wrong.pairs + 1 : i == 8 ? UINT32_MAX : 0;
		wrong.pairs = i == 0 ? 0 : i == 1 ? (uint32_t)s.tokens.axes[1].count / 2 + 1 : wrong.pairs;
		wrong.layer_step = i == 2 ? 0 : wrong.layer_step;
		wrong.first_layer = i == 3 ? s.tokens.layer_count : wrong.first_layer;
		wrong.values = i == 4 ? (s.tokens.element_bytes == 4 ? KVT_GPU_F16 : KVT_GPU_F32) : i == 5 ? 3 : wrong.values;
		wrong.sine = i == 6 ? NULL : wrong.sine;
		ck_assert_int_eq(kvt_gpu_view_begin(s.g, s.view, &m.job, true, &wrong, &op), KVT_EINVAL);
	}
	m.ids[0] = (int64_t)(s.cache.layout.block_count * s.parts.count);
	ck_assert_int_eq(kvt_gpu_view_begin(s.g, s.view, &m.job, true, NULL, &op), KVT_EINVAL);
	ck_assert(cache_is_mirrored(&s.cache));
	overlap = s.parts;
	overlap.count++;
	overlap.stride = 1;
	ck_assert_int_eq(kvt_gpu_view_add(s.g, &s.tokens, &overlap, &view), KVT_EINVAL);
	for (uint32_t i = 2; i <= KVT_GPU_VIEWS; i++) {
		ck_assert_int_eq(kvt_gpu_view_add(s.g, &s.tokens, &s.parts, &view), KVT_OK);
		ck_assert_uint_eq(view, i);
	}
	ck_assert_int_eq(kvt_gpu_view_add(s.g, &s.tokens, &s.parts, &view), KVT_FULL);
	finish_scene(&s);
}
END_TEST

int main(void)
{
	TCase *one = tcase_create("turn");

	tcase_add_checked_fixture(one, setup, teardown);
	tcase_set_timeout(one, 300);
	tcase_add_loop_test(one, tokens_and_turns_are_naive, KVT_GPU_KERNEL, KVT_GPU_STAGING + 1);
	tcase_add_test(one, a_turn_comes_behind_all_windows);
	tcase_add_loop_test(one, a_turn_is_that_of_the_host, 0, 2);
	tcase_add_test(one, what_cannot_turn_is_refused);
	return place_run("cache/gpu/turn", one);
}
