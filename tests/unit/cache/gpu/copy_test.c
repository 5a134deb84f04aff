/*
 * copy_test.c - random layouts, blocks, parts and segments, both ways, against the naive way: over
 * this machine's memory, the fake driver, and on a machine that has one, a device.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "paged_memory.h"

#define CASES     24
#define ROOM      ((size_t)8 << 20)
#define LONG_WAIT ((uint64_t)60 * 1000000000)

static struct place place;
static bool whole;  /* each chunk in one piece and complete, so that no call copies several pieces */
static char *arena; /* segments lie in it; pinned in part */
static char chunk[ROOM], expected[ROOM];

static void setup(void)
{
	place_init(&place);
	whole = getenv("KVT_GPU_TEST_WHOLE") != NULL;
	arena = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(arena, MAP_FAILED);
}

static void teardown(void)
{
	munmap(arena, ROOM);
	place_finish(&place);
}

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
	config.pin_bytes = whole ? ROOM : 1 << 20; /* several pieces in the arena */
	config.staging_bytes = 64 * 1024;
	ck_assert_int_eq(kvt_gpu_create(&config, &c->layout, &g), KVT_OK);
	return g;
}

/* A random job of this cache; ids of different blocks. */
struct made_job {
	struct kvt_gpu_job job;
	int64_t ids[64];
	struct kvt_segment segments[64];
	uint64_t bytes; /* of the chunk */
};

static void make_job(struct made_job *m, const struct cache *c, struct kvt_gpu *g, struct random *r)
{
	uint64_t blocks = c->layout.block_count, at = 0;
	size_t n = 0;

	memset(m, 0, sizeof(*m));
	m->job.size = sizeof(m->job);
	m->job.block_count = 1 + random_below(r, blocks);
	m->job.first = random_below(r, 2) && !whole ? random_below(r, 5) : 0;
	m->job.count = m->job.first + m->job.block_count +
		(random_below(r, 2) && !whole ? random_below(r, 5) : 0);
	for (uint64_t i = 0; i < blocks; i++)
		m->ids[i] = (int64_t)i;
	for (uint64_t i = random_below(r, 3) ? blocks - 1 : 0; i > 0; i--) {
		uint64_t j = random_below(r, i + 1);
		int64_t id = m->ids[i];

		m->ids[i] = m->ids[j];
		m->ids[j] = id;
	}
	m->bytes = kvt_gpu_chunk_bytes(g, m->job.count);
	ck_assert_uint_gt(m->bytes, 0);
	ck_assert_uint_lt(m->bytes, ROOM / 2);
	for (uint64_t left = m->bytes; left > 0; n++) { /* with gaps between them */
		uint64_t here = whole || n == 60 || random_below(r, 3) == 0 ? left
			: 1 + random_below(r, left);

		if (random_below(r, 2))
			here = here > 64 && here < left ? here & ~UINT64_C(63) : here;
		m->segments[n] = (struct kvt_segment){arena + at, here, at};
		at += here + (n < 40 ? random_below(r, 3) * 64 * random_below(r, 200) : 0);
		left -= here;
	}
	ck_assert_uint_le(at, ROOM);
	m->job.blocks = m->ids;
	m->job.segments = m->segments;
	m->job.segment_count = n;
}

static void to_arena(const struct made_job *m)
{
	char *from = chunk;

	for (size_t i = 0; i < m->job.segment_count; i++) {
		memcpy(m->segments[i].base, from, m->segments[i].bytes);
		from += m->segments[i].bytes;
	}
}

static void from_arena(const struct made_job *m)
{
	char *to = chunk;

	for (size_t i = 0; i < m->job.segment_count; i++) {
		memcpy(to, m->segments[i].base, m->segments[i].bytes);
		to += m->segments[i].bytes;
	}
}

static void do_it(struct kvt_gpu *g, const struct kvt_gpu_job *job, bool scatter)
{
	uint64_t op;
	enum kvt_status status = scatter ? kvt_gpu_scatter_begin(g, job, &op)
		: kvt_gpu_gather_begin(g, job, &op);

	ck_assert_int_eq(status, KVT_OK);
	ck_assert_int_eq(kvt_gpu_wait(g, op, LONG_WAIT), KVT_OK);
}

static void check_case(struct kvt_gpu *g, struct cache *c, struct random *r)
{
	struct made_job m;

	make_job(&m, c, g, r);
	random_fill(r, chunk, m.bytes);
	memcpy(expected, chunk, m.bytes);
	to_arena(&m);
	do_it(g, &m.job, false);
	from_arena(&m);
	cache_copy_naively(c, &m.job, expected, false);
	ck_assert_mem_eq(chunk, expected, m.bytes); /* what was not asked for is as it was */

	random_fill(r, chunk, m.bytes);
	to_arena(&m);
	do_it(g, &m.job, true);
	cache_copy_naively(c, &m.job, chunk, true);
	ck_assert(cache_is_mirrored(c));
	memcpy(expected, chunk, m.bytes);
	from_arena(&m);
	ck_assert_mem_eq(chunk, expected, m.bytes);
}

static void run_cases(uint32_t method, uint64_t seed, int pinned_mib)
{
	for (uint64_t i = 0; i < CASES; i++) {
		struct random r = {seed * 1000 + i};
		struct cache c;
		struct kvt_gpu *g;

		cache_make_random(&c, &place, &r);
		g = open_gpu(&c, method);
		if (pinned_mib > 0)
			ck_assert_int_eq(kvt_gpu_pin(g, arena, (uint64_t)pinned_mib << 20), KVT_OK);
		check_case(g, &c, &r);
		check_case(g, &c, &r);
		kvt_gpu_destroy(g);
		cache_finish(&c);
	}
}

START_TEST(kernel_is_naive)
{
	run_cases(KVT_GPU_KERNEL, 1, 8);
}
END_TEST

START_TEST(copies_are_naive)
{
	run_cases(KVT_GPU_COPIES, 2, 8);
}
END_TEST

START_TEST(staging_is_naive)
{
	run_cases(KVT_GPU_STAGING, 3, 8);
}
END_TEST

START_TEST(memory_that_is_not_pinned_or_in_part)
{
	run_cases(KVT_GPU_KERNEL, 4, 0);
	run_cases(KVT_GPU_KERNEL, 5, 1);
	run_cases(KVT_GPU_COPIES, 6, 1);
	run_cases(KVT_GPU_STAGING, 7, 1);
}
END_TEST

/* The layouts of engines: whole jobs of many blocks, and more of them than a launch has room for. */
START_TEST(layouts_of_engines)
{
	static const int orders[][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {1, 0, 2, 3}, {2, 0, 1, 3}};
	static const uint64_t counts[4] = {1400, 2, 4, 16};
	static int64_t ids[600];
	struct random r = {8};

	for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++)
		for (uint32_t method = KVT_GPU_KERNEL; method <= KVT_GPU_STAGING; method++) {
			struct kvt_segment segment = {arena, 0, 0};
			struct kvt_gpu_job job = {.size = sizeof(job), .blocks = ids,
				.block_count = 600, .first = whole ? 0 : 1,
				.count = whole ? 600 : 602, .segments = &segment,
				.segment_count = 1};
			struct cache c;
			struct kvt_gpu *g;

			cache_make(&c, &place, counts, orders[i], 3, 2);
			cache_fill(&c, &r);
			for (int k = 0; k < 600; k++)
				ids[k] = (k * 9) % 1400;
			g = open_gpu(&c, method);
			segment.bytes = kvt_gpu_chunk_bytes(g, job.count);
			ck_assert_uint_le(segment.bytes, ROOM);
			ck_assert_int_eq(kvt_gpu_pin(g, arena, ROOM), KVT_OK);
			memset(arena, 1, segment.bytes);
			memset(expected, 1, segment.bytes);
			do_it(g, &job, false);
			cache_copy_naively(&c, &job, expected, false);
			ck_assert_mem_eq(arena, expected, segment.bytes);
			random_fill(&r, arena, segment.bytes);
			do_it(g, &job, true);
			cache_copy_naively(&c, &job, arena, true);
			ck_assert(cache_is_mirrored(&c));
			kvt_gpu_destroy(g);
			cache_finish(&c);
		}
}
END_TEST

/* Keys and values of all blocks apart, as older engines have them: [2, blocks, tokens, heads, size]. */
START_TEST(keys_and_values_apart)
{
	const uint64_t n = 9, tokens = 4, heads = 2, size = 8, block = tokens * heads * size * 2;
	struct cache c = {.place = &place, .bytes = 2 * n * block};
	struct random r = {9};
	struct kvt_gpu *g;

	c.memory = place_alloc(&place, c.bytes);
	c.mirror = malloc(c.bytes);
	c.layers[0] = c.memory;
	c.mirror_layers[0] = c.mirror;
	c.layout = (struct kvt_gpu_layout){
		.size = sizeof(c.layout),
		.element_bytes = 2,
		.axis_count = 4,
		.layer_count = 1,
		.axes = {{2, (int64_t)(n * block)}, {tokens, (int64_t)(heads * size * 2)},
			{heads, (int64_t)(size * 2)}, {size, 2}},
		.block_count = n,
		.block_stride = (int64_t)block,
		.layers = c.layers,
	};
	cache_fill(&c, &r);
	g = open_gpu(&c, KVT_GPU_STAGING);
	ck_assert_uint_eq(kvt_gpu_chunk_bytes(g, 3), 3 * 2 * block);
	for (int i = 0; i < 10; i++)
		check_case(g, &c, &r);
	kvt_gpu_destroy(g);
	cache_finish(&c);
}
END_TEST

START_TEST(many_at_once)
{
	static const uint64_t counts[4] = {64, 2, 16, 32};
	static const int order[4] = {0, 2, 1, 3};
	struct kvt_segment segments[16];
	int64_t ids[16][4];
	uint64_t ops[16], bytes;
	struct random r = {10};
	struct cache c;
	struct kvt_gpu *g;

	cache_make(&c, &place, counts, order, 2, 2);
	cache_fill(&c, &r);
	g = open_gpu(&c, KVT_GPU_KERNEL);
	ck_assert_int_eq(kvt_gpu_pin(g, arena, ROOM), KVT_OK);
	bytes = kvt_gpu_chunk_bytes(g, 4);
	for (int i = 0; i < 16; i++) {
		struct kvt_gpu_job job = {.size = sizeof(job), .blocks = ids[i], .block_count = 4,
			.count = 4, .segments = &segments[i], .segment_count = 1};

		segments[i] = (struct kvt_segment){arena + i * bytes, bytes, 0};
		for (int k = 0; k < 4; k++)
			ids[i][k] = i * 4 + k;
		if (i % 2 == 1)
			random_fill(&r, segments[i].base, bytes);
		ck_assert_int_eq(i % 2 == 1 ? kvt_gpu_scatter_begin(g, &job, &ops[i])
			: kvt_gpu_gather_begin(g, &job, &ops[i]), KVT_OK);
		cache_copy_naively(&c, &job, i % 2 == 1 ? segments[i].base : expected + i * bytes,
			i % 2 == 1);
	}
	for (int i = 16; i-- > 0;)
		ck_assert_int_eq(kvt_gpu_wait(g, ops[i], LONG_WAIT), KVT_OK);
	for (int i = 0; i < 16; i += 2)
		ck_assert_mem_eq(segments[i].base, expected + i * bytes, bytes);
	ck_assert(cache_is_mirrored(&c));
	kvt_gpu_destroy(g);
	cache_finish(&c);
}
END_TEST

int main(void)
{
	TCase *one = tcase_create("copy");

	tcase_add_checked_fixture(one, setup, teardown);
	tcase_set_timeout(one, 300);
	tcase_add_test(one, kernel_is_naive);
	tcase_add_test(one, copies_are_naive);
	tcase_add_test(one, staging_is_naive);
	tcase_add_test(one, memory_that_is_not_pinned_or_in_part);
	tcase_add_test(one, layouts_of_engines);
	tcase_add_test(one, keys_and_values_apart);
	tcase_add_test(one, many_at_once);
	return place_run("cache/gpu/copy", one);
}
