/*
 * cuda_test.c - the CUDA backend over the fake driver: order, events, pieces, choices, and every call of
 * the driver failing in turn.
 */
#include <check.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake_cuda.h"
#include "gpu/gpu.h"
#include "paged_memory.h"
#include "tests/unit/steps.h"
#include "tests/unit/suite.h"

#define ROOM  ((size_t)4 << 20)
#define LIMIT ((uint64_t)1 << 62) /* the fake's time passes by itself */

static const uint64_t counts[4] = {32, 2, 16, 32}; /* blocks, heads, tokens, numbers */
static const int heads_apart[4] = {0, 2, 1, 3};

static struct place place;
static const struct fake_control *fake;
static struct kvt_clock clock_of_fake;
static struct cache cache;
static char *arena, *expected;
static char logged[8192];

static void keep_log(void *self, uint32_t level, const char *line)
{
	size_t len = strlen(logged);

	(void)self;
	(void)level;
	snprintf(logged + len, sizeof(logged) - len, "%s\n", line);
}

static int64_t wall(void *self)
{
	(void)self;
	return 0;
}

static void setup(void)
{
	const struct fake_control *(*control)(void);
	struct random r = {77};

	place_init(&place);
	*(void **)&control = dlsym(place.driver.handle, "fake_cuda_control");
	ck_assert_ptr_nonnull(control);
	fake = control();
	fake->seed(5);
	clock_of_fake = (struct kvt_clock){fake->now, wall, NULL};
	arena = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(arena, MAP_FAILED);
	expected = malloc(ROOM);
	cache_make(&cache, &place, counts, heads_apart, 2, 2);
	cache_fill(&cache, &r);
}

static void teardown(void)
{
	ck_assert_uint_eq(fake->misuses(), 0);
	cache_finish(&cache);
	ck_assert_uint_eq(fake->alive(), 2); /* the place's context and stream */
	free(expected);
	munmap(arena, ROOM);
	place_finish(&place);
}

static void configure(struct kvt_gpu_config *config)
{
	kvt_gpu_config_init(config, sizeof(*config));
	config->device = 0;
	config->driver = place.driver_path;
	config->library = place.library;
	config->memo = "";
	config->method = KVT_GPU_STAGING;
	config->pin_bytes = 1 << 20;
	config->staging_bytes = 64 * 1024;
	config->clock = &clock_of_fake;
	config->log = keep_log;
}

static struct kvt_gpu *open_gpu(const struct kvt_gpu_config *config)
{
	struct kvt_gpu *g;

	ck_assert_int_eq(kvt_gpu_create(config, &cache.layout, &g), KVT_OK);
	ck_assert_int_eq(kvt_gpu_pin(g, arena, ROOM), KVT_OK);
	return g;
}

/* Four blocks from number 4 * i on, into the arena's slot i. */
struct four {
	int64_t ids[4];
	struct kvt_segment segment;
	struct kvt_gpu_job job;
	uint64_t op;
};

static void make_four(struct four *f, struct kvt_gpu *g, int i)
{
	uint64_t bytes = kvt_gpu_chunk_bytes(g, 4);

	for (int k = 0; k < 4; k++)
		f->ids[k] = (i * 4 + 3 * k) % 32;
	f->segment = (struct kvt_segment){arena + (uint64_t)i * bytes, bytes, 0};
	f->job = (struct kvt_gpu_job){.size = sizeof(f->job), .blocks = f->ids, .block_count = 4,
		.count = 4, .segments = &f->segment, .segment_count = 1};
}

static bool is_gathered(struct four *f)
{
	cache_copy_naively(&cache, &f->job, expected, false);
	return memcmp(expected, f->segment.base, f->segment.bytes) == 0;
}

/* A gather waits for what the engine's stream holds, by a stream or by an event. */
static void gather_after(uint32_t order)
{
	struct kvt_gpu_config config;
	struct random r = {1};
	struct four f;
	struct kvt_gpu *g;
	void *event = NULL, *engine = place.stream;

	configure(&config);
	g = open_gpu(&config);
	ck_assert_int_eq(place.driver.event_create(&event, 2), 0);
	for (int round = 0; round < 20; round++) {
		random_fill(&r, cache.mirror, cache.bytes);
		memcpy(arena + ROOM / 2, cache.mirror, cache.bytes);
		fake->hold(true);
		ck_assert_int_eq(place.driver.copy_up((uint64_t)(uintptr_t)cache.memory,
			arena + ROOM / 2, cache.bytes, engine), 0);
		ck_assert_int_eq(place.driver.event_record(event, engine), 0);
		make_four(&f, g, round % 8);
		f.job.order = order;
		f.job.after = order == KVT_GPU_AFTER_EVENT ? event : engine;
		ck_assert_int_eq(kvt_gpu_gather_begin(g, &f.job, &f.op), KVT_OK);
		ck_assert_int_eq(kvt_gpu_poll(g, f.op), KVT_BUSY);
		fake->hold(false);
		ck_assert_int_eq(kvt_gpu_wait(g, f.op, LIMIT), KVT_OK);
		ck_assert(is_gathered(&f));
	}
	ck_assert_int_eq(place.driver.event_destroy(event), 0);
	kvt_gpu_destroy(g);
}

START_TEST(a_gather_comes_after_the_engines_work)
{
	gather_after(KVT_GPU_AFTER_EVENT);
	gather_after(KVT_GPU_AFTER_STREAM);
}
END_TEST

/* The engine still reads blocks that a scatter is given, into the arena's second half: does it find what
 * they held? `engine` is its stream, `order` and `after` say what the scatter waits for. */
static bool scatter_after(uint32_t order, void *after, void *engine, void *event)
{
	char *seen = arena + ROOM / 2, *held = malloc(cache.bytes);
	struct kvt_gpu_config config;
	struct random r = {2};
	bool fine = true;
	struct kvt_gpu *g;

	configure(&config);
	g = open_gpu(&config);
	for (int round = 0; round < 20; round++) {
		struct four f;

		memcpy(held, cache.mirror, cache.bytes);
		make_four(&f, g, round % 8);
		random_fill(&r, f.segment.base, f.segment.bytes);
		fake->delay(engine, 200);
		ck_assert_int_eq(place.driver.copy_down(
			seen, (uint64_t)(uintptr_t)cache.memory, cache.bytes, engine), 0);
		ck_assert_int_eq(place.driver.event_record(event, engine), 0);
		f.job.order = order;
		f.job.after = after;
		ck_assert_int_eq(kvt_gpu_scatter_begin(g, &f.job, &f.op), KVT_OK);
		ck_assert_int_eq(kvt_gpu_wait(g, f.op, LIMIT), KVT_OK);
		ck_assert_int_eq(place.driver.stream_synchronize(engine), 0);
		fine = fine && memcmp(seen, held, cache.bytes) == 0;
		cache_copy_naively(&cache, &f.job, f.segment.base, true);
		ck_assert(cache_is_mirrored(&cache));
	}
	kvt_gpu_destroy(g);
	free(held);
	return fine;
}

START_TEST(a_scatter_comes_after_the_engines_work)
{
	void *engine = place.stream, *event = NULL;

	ck_assert_int_eq(place.driver.event_create(&event, 2), 0);
	ck_assert(scatter_after(KVT_GPU_AFTER_EVENT, event, engine, event));
	ck_assert(scatter_after(KVT_GPU_AFTER_STREAM, engine, engine, event));
	/* the control: the default stream knows nothing of the engine's */
	ck_assert(!scatter_after(KVT_GPU_AFTER_STREAM, NULL, engine, event));
	ck_assert(!scatter_after(KVT_GPU_ANY, NULL, engine, event));
	ck_assert_int_eq(place.driver.event_destroy(event), 0);
}
END_TEST

START_TEST(loads_go_before_stores)
{
	struct kvt_gpu_config config;
	struct four f[8];
	struct kvt_gpu *g;
	char order[4096];

	configure(&config);
	config.method = KVT_GPU_COPIES;
	config.depth = 1;
	config.streams = 1;
	g = open_gpu(&config);
	fake->hold(true);
	fake->no_batches(true);
	fake->order(order, sizeof(order));
	for (int i = 0; i < 8; i++) { /* the first gather is on the device, the others wait */
		make_four(&f[i], g, i);
		ck_assert_int_eq(i < 4 ? kvt_gpu_gather_begin(g, &f[i].job, &f[i].op)
			: kvt_gpu_scatter_begin(g, &f[i].job, &f[i].op), KVT_OK);
	}
	fake->hold(false);
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(kvt_gpu_wait(g, f[i].op, LIMIT), KVT_OK);
	fake->order(order, sizeof(order));
	/* no gather but the first, and what overlaps with the last scatter, runs before the scatters */
	for (size_t i = 0, up = 0, down = 0; order[i] != '\0'; i++) {
		up += order[i] == 'u';
		down += order[i] == 'd';
		if (down > strlen(order) / 8)
			ck_assert_uint_ge(up, strlen(order) / 8 * 3);
	}
	kvt_gpu_destroy(g);
}
END_TEST

/* Else the bus would be idle one way as long as loads keep coming. */
START_TEST(stores_go_on_at_half_depth_beside_loads)
{
	struct kvt_gpu_config config;
	struct four f[24];
	struct kvt_gpu *g;
	char order[4096];
	size_t up = 0, down = 0, each;

	configure(&config);
	config.method = KVT_GPU_COPIES;
	config.depth = 8;
	g = open_gpu(&config);
	fake->no_batches(true);
	fake->order(order, sizeof(order));
	make_four(&f[0], g, 0);
	ck_assert_int_eq(kvt_gpu_gather_begin(g, &f[0].job, &f[0].op), KVT_OK);
	ck_assert_int_eq(kvt_gpu_wait(g, f[0].op, LIMIT), KVT_OK);
	fake->order(order, sizeof(order));
	each = strlen(order);
	ck_assert_uint_gt(each, 0);
	fake->hold(true);
	for (int i = 0; i < 24; i++) {
		make_four(&f[i], g, i);
		ck_assert_int_eq(i < 12 ? kvt_gpu_scatter_begin(g, &f[i].job, &f[i].op)
			: kvt_gpu_gather_begin(g, &f[i].job, &f[i].op), KVT_OK);
	}
	fake->hold(false);
	for (int i = 0; i < 200; i++) /* what the device has runs, and it gets no more */
		(void)place.driver.stream_query(place.stream);
	fake->order(order, sizeof(order));
	for (size_t i = 0; order[i] != '\0'; i++) {
		up += order[i] == 'u';
		down += order[i] == 'd';
	}
	ck_assert_uint_eq(up, 8 * each);
	ck_assert_uint_eq(down, 4 * each);
	for (int i = 0; i < 24; i++)
		ck_assert_int_eq(kvt_gpu_wait(g, f[i].op, LIMIT), KVT_OK);
	kvt_gpu_destroy(g);
}
END_TEST

START_TEST(too_many_are_busy_and_numbers_end)
{
	struct kvt_gpu_stats stats = {.size = sizeof(stats)};
	struct kvt_gpu_config config;
	struct four f[3];
	struct kvt_gpu *g;

	configure(&config);
	config.ops = 2;
	g = open_gpu(&config);
	fake->hold(true);
	for (int i = 0; i < 3; i++) {
		make_four(&f[i], g, i);
		ck_assert_int_eq(kvt_gpu_gather_begin(g, &f[i].job, &f[i].op),
			i < 2 ? KVT_OK : KVT_BUSY);
	}
	ck_assert_int_eq(kvt_gpu_wait(g, f[0].op, 2000), KVT_BUSY); /* a limit passes */
	fake->hold(false);
	ck_assert_int_eq(kvt_gpu_wait(g, f[0].op, LIMIT), KVT_OK);
	ck_assert_int_eq(kvt_gpu_poll(g, f[0].op), KVT_MISS);
	ck_assert_int_eq(kvt_gpu_gather_begin(g, &f[2].job, &f[2].op), KVT_OK);
	ck_assert_int_eq(kvt_gpu_poll(g, f[0].op), KVT_MISS); /* its place has a new number */
	ck_assert_int_eq(kvt_gpu_poll(g, 0), KVT_MISS);
	ck_assert_int_eq(kvt_gpu_poll(g, 99), KVT_MISS);
	ck_assert_int_eq(kvt_gpu_stats(g, &stats), KVT_OK);
	ck_assert_uint_eq(stats.refused, 1);
	ck_assert_uint_eq(stats.most_under_way, 2);
	ck_assert_uint_eq(stats.pinned_bytes, ROOM);
	ck_assert_uint_eq(stats.pinned_pieces, ROOM >> 20);
	kvt_gpu_destroy(g); /* with two under way */
}
END_TEST

START_TEST(kernels_use_their_share)
{
	struct kvt_gpu_stats stats = {.size = sizeof(stats)};
	struct kvt_gpu_config config;
	struct four f;
	struct kvt_gpu *g;

	configure(&config);
	config.method = KVT_GPU_KERNEL;
	config.multiprocessor_share = 0.1; /* 13 of 132: three for each of four streams */
	g = open_gpu(&config);
	make_four(&f, g, 0);
	ck_assert_int_eq(kvt_gpu_gather_begin(g, &f.job, &f.op), KVT_OK);
	ck_assert_int_eq(kvt_gpu_wait(g, f.op, LIMIT), KVT_OK);
	ck_assert_int_eq(kvt_gpu_stats(g, &stats), KVT_OK);
	ck_assert_uint_eq(stats.multiprocessors, 12);
	ck_assert_uint_le(fake->widest() * 4, 12);
	ck_assert_uint_gt(fake->launches(), 0);
	kvt_gpu_destroy(g);
}
END_TEST

static void set_costs(int64_t batched_ns, int64_t across_ns, int64_t inside_ns)
{
	fake->cost(FAKE_COPY, 2000, 20);
	fake->cost(FAKE_BATCHED, batched_ns, 20);
	fake->cost(FAKE_KERNEL_ACROSS, 5000, across_ns);
	fake->cost(FAKE_KERNEL_INSIDE, 5000, inside_ns);
}

/* What describe says of gathers up to 8 MiB. */
static void choice_of(struct kvt_gpu_config *config, char *out, size_t bytes)
{
	char text[2048], *at;
	struct kvt_gpu *g;

	ck_assert_int_eq(kvt_gpu_create(config, &cache.layout, &g), KVT_OK);
	(void)kvt_gpu_describe(g, text, sizeof(text));
	at = strstr(text, "gather to 8 MiB: ");
	ck_assert_ptr_nonnull(at);
	at += strlen("gather to 8 MiB: ");
	snprintf(out, bytes, "%.*s", (int)strcspn(at, ",\n"), at);
	kvt_gpu_destroy(g);
}

START_TEST(the_fastest_is_chosen_and_remembered)
{
	char path[] = "/tmp/kvt-memo-XXXXXX", choice[32];
	struct kvt_gpu_config config;
	uint64_t calls;
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	close(fd);
	configure(&config);
	config.method = KVT_GPU_AUTO;
	config.staging_bytes = 8 << 20;
	config.memo = path;
	fake->idle(true);
	set_costs(5, 200, 200);
	choice_of(&config, choice, sizeof(choice));
	ck_assert_str_eq(choice, "copies");
	set_costs(3000, 20, 200); /* the memo knows, and nothing is measured */
	fake->arm(0, 0);
	choice_of(&config, choice, sizeof(choice));
	ck_assert_str_eq(choice, "copies");
	calls = fake->calls();
	ck_assert_int_eq(truncate(path, 0), 0);
	fake->arm(0, 0);
	choice_of(&config, choice, sizeof(choice));
	ck_assert_str_eq(choice, "kernel");
	ck_assert_uint_gt(fake->calls(), calls * 3);
	ck_assert_int_eq(truncate(path, 0), 0);
	set_costs(3000, 200, 1);
	choice_of(&config, choice, sizeof(choice));
	ck_assert_str_eq(choice, "staging");
	fake->idle(false);
	unlink(path);
}
END_TEST

START_TEST(a_driver_without_batches_copies_one_by_one)
{
	struct kvt_gpu_config config;
	struct four f;
	struct kvt_gpu *g;

	configure(&config);
	config.method = KVT_GPU_COPIES;
	fake->no_batches(true);
	g = open_gpu(&config);
	make_four(&f, g, 1);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(kvt_gpu_gather_begin(g, &f.job, &f.op), KVT_OK);
		ck_assert_int_eq(kvt_gpu_wait(g, f.op, LIMIT), KVT_OK);
		ck_assert(is_gathered(&f));
	}
	ck_assert_uint_eq(fake->batches(), 0);
	kvt_gpu_destroy(g);
}
END_TEST

/* Tokens are scattered and turned by half a turn, which changes their signs; what comes out well is right. Returns whether
 * it did. */
static bool turn_once(struct kvt_gpu *g)
{
	static const float cosine[16] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}, sine[16];
	static const struct kvt_gpu_turn half = {
		.values = KVT_GPU_BF16, .pairs = 16, .layer_step = 1, .cosine = cosine, .sine = sine};
	struct kvt_gpu_parts parts = {counts[2], cache.layout.axes[1].stride};
	struct kvt_gpu_layout tokens = cache.layout;
	enum kvt_status status;
	uint32_t view;
	struct four f;

	tokens.axis_count = 2;
	tokens.axes[1] = cache.layout.axes[2];
	fake->pause(true);
	make_four(&f, g, 5);
	for (size_t i = 0; i < f.segment.bytes; i++)
		((char *)f.segment.base)[i] = (char)(i % 2 == 0 ? i * 31 >> 3 : 0x3f);
	for (int k = 0; k < 4; k++) /* tokens 3, 10, 17, 24 of 512, 64 of them make as many bytes as four blocks */
		f.ids[k] = 3 + 7 * k;
	f.job.count = 64;
	fake->pause(false);
	status = kvt_gpu_view_add(g, &tokens, &parts, &view);
	if (status != KVT_OK) {
		ck_assert(status == KVT_ENOTSUP || status == KVT_EIO);
		return false;
	}
	f.job.order = KVT_GPU_AFTER_STREAM;
	f.job.after = place.stream;
	status = kvt_gpu_view_begin(g, view, &f.job, true, &half, &f.op);
	if (status == KVT_OK)
		status = kvt_gpu_wait(g, f.op, LIMIT);
	ck_assert(status == KVT_OK || status == KVT_EIO);
	fake->pause(true);
	for (uint32_t layer = 0; layer < 2 && status == KVT_OK; layer++)
		for (uint32_t i = 0; i < 4 * 64; i++) { /* four tokens of two heads of 32 values */
			uint32_t token = 3 + 7 * (i / 64), head = i / 32 % 2, value = i % 32;
			char *at = (char *)cache.mirror_layers[layer] + token / counts[2] * (uint64_t)tokens.block_stride +
				token % counts[2] * (uint64_t)parts.stride + head * (uint64_t)tokens.axes[0].stride + value * 2;

			memcpy(at, (char *)f.segment.base + ((uint64_t)layer * 64 * 64 + i) * 2, 2);
			at[1] ^= (char)0x80;
		}
	if (status != KVT_OK)
		place_write(&place, cache.memory, cache.mirror, cache.bytes);
	ck_assert(cache_is_mirrored(&cache));
	fake->pause(false);
	return status == KVT_OK;
}

START_TEST(short_runs_go_by_staging_where_long_ones_go_by_copies)
{
	static const int block_is_a_run[4] = {0, 1, 2, 3};
	struct random r = {78};
	struct kvt_gpu_stats stats = {.size = sizeof(stats)};
	struct kvt_gpu_config config;
	struct kvt_gpu *g;

	cache_finish(&cache);
	cache_make(&cache, &place, counts, block_is_a_run, 2, 2);
	cache_fill(&cache, &r);
	configure(&config);
	config.method = KVT_GPU_AUTO;
	fake->idle(true);
	set_costs(5, 200, 200);
	g = open_gpu(&config);
	fake->idle(false);
	ck_assert(turn_once(g));
	ck_assert_int_eq(kvt_gpu_stats(g, &stats), KVT_OK);
	ck_assert_uint_eq(stats.by_staging, 1);
	ck_assert_uint_eq(stats.by_copies, 0);
	kvt_gpu_destroy(g);
}
END_TEST

/* Everything once, whatever fails: what comes out well is right, the rest is reported. Returns
 * whether all
 * came out well. */
static bool whole_life(const struct kvt_gpu_config *config)
{
	struct random r = {3};
	struct four f[4];
	struct kvt_gpu *g;
	bool fine = true;

	if (kvt_gpu_create(config, &cache.layout, &g) != KVT_OK)
		return false;
	fine = kvt_gpu_pin(g, arena, ROOM) == KVT_OK && fine;
	for (int i = 0; i < 4; i++) {
		enum kvt_status status;

		make_four(&f[i], g, i);
		f[i].job.order = KVT_GPU_AFTER_STREAM;
		f[i].job.after = place.stream;
		if (i % 2 == 1)
			random_fill(&r, f[i].segment.base, f[i].segment.bytes);
		status = i % 2 == 1 ? kvt_gpu_scatter_begin(g, &f[i].job, &f[i].op)
			: kvt_gpu_gather_begin(g, &f[i].job, &f[i].op);
		if (status == KVT_OK)
			status = kvt_gpu_wait(g, f[i].op, LIMIT);
		ck_assert(status == KVT_OK || status == KVT_EIO);
		fine = fine && status == KVT_OK;
		fake->pause(true);
		if (i % 2 == 0) {
			ck_assert(status != KVT_OK || is_gathered(&f[i]));
		} else if (status == KVT_OK) {
			cache_copy_naively(&cache, &f[i].job, f[i].segment.base, true);
			ck_assert(cache_is_mirrored(&cache));
		} else { /* any of the blocks may be wrong: as after the engine computed them */
			place_write(&place, cache.memory, cache.mirror, cache.bytes);
		}
		fake->pause(false);
	}
	fine = turn_once(g) && fine;
	kvt_gpu_destroy(g);
	return fine;
}

/* The calls of a whole life fail one after another; everything is given back each time. Giving back itself
 * may fail: then the driver has what it refused to take. */
static void each_call_fails(uint32_t method, int error)
{
	uint64_t before = fake->alive();
	struct kvt_gpu_config config;

	configure(&config);
	config.method = method;
	fake->keep();
	for (uint64_t nth = 1;; nth += KVT_TEST_SEES_RACES ? 3 : 1) {
		const char *failed;
		uint64_t left;

		logged[0] = '\0';
		fake->seed(nth);
		fake->arm(nth, error);
		(void)whole_life(&config);
		failed = fake->failed();
		fake->arm(0, 0);
		if (failed == NULL)
			break;
		ck_assert_uint_lt(nth, 1000);
		left = fake->alive() - before;
		ck_assert_msg(left == 0 || strstr(failed, "Free") != NULL ||
			strstr(failed, "Destroy") != NULL || strstr(failed, "Release") != NULL ||
			strstr(failed, "Unregister") != NULL || strstr(failed, "Unload") != NULL ||
			strstr(failed, "Push") != NULL, "%s failed: %d are left", failed, (int)left);
		fake->forget();
	}
	ck_assert(whole_life(&config)); /* and nothing stays behind */
}

START_TEST(every_call_fails_in_turn)
{
	each_call_fails((uint32_t)_i, 999);
}
END_TEST

START_TEST(a_lost_device_fails_everything)
{
	struct kvt_gpu_config config;
	struct four f[3];
	struct kvt_gpu *g;

	configure(&config);
	g = open_gpu(&config);
	fake->hold(true);
	for (int i = 0; i < 2; i++) {
		make_four(&f[i], g, i);
		ck_assert_int_eq(kvt_gpu_gather_begin(g, &f[i].job, &f[i].op), KVT_OK);
	}
	fake->persist("cuEventQuery", 700);
	ck_assert_int_eq(kvt_gpu_wait(g, f[0].op, LIMIT), KVT_EIO);
	ck_assert_int_eq(kvt_gpu_wait(g, f[1].op, LIMIT), KVT_EIO);
	make_four(&f[2], g, 2);
	ck_assert_int_eq(kvt_gpu_scatter_begin(g, &f[2].job, &f[2].op), KVT_EIO);
	ck_assert_ptr_nonnull(strstr(logged, "was lost"));
	fake->persist(NULL, 0);
	fake->hold(false);
	kvt_gpu_destroy(g);
}
END_TEST

/* Its memory may still be written: it is not over before the driver says so. */
START_TEST(an_unanswered_operation_is_not_over)
{
	struct kvt_gpu_config config;
	struct four f;
	struct kvt_gpu *g;

	configure(&config);
	g = open_gpu(&config);
	make_four(&f, g, 0);
	ck_assert_int_eq(kvt_gpu_gather_begin(g, &f.job, &f.op), KVT_OK);
	fake->persist("cuEventQuery", 999);
	for (int i = 0; i < 50; i++)
		ck_assert_int_eq(kvt_gpu_poll(g, f.op), KVT_BUSY);
	fake->persist(NULL, 0);
	ck_assert_int_eq(kvt_gpu_wait(g, f.op, LIMIT), KVT_EIO);
	kvt_gpu_destroy(g);
}
END_TEST

struct worker {
	struct kvt_gpu *g;
	int first; /* of its four slots */
};

static void *gather_often(void *item)
{
	struct worker *w = item;

	for (int round = 0; round < 20; round++) {
		struct four f;

		make_four(&f, w->g, w->first + round % 2);
		ck_assert_int_eq(kvt_gpu_gather_begin(w->g, &f.job, &f.op), KVT_OK);
		ck_assert_int_eq(kvt_gpu_wait(w->g, f.op, LIMIT), KVT_OK);
	}
	return NULL;
}

START_TEST(threads_copy_while_one_pins)
{
	struct kvt_gpu_config config;
	struct worker workers[3];
	pthread_t threads[3];
	struct kvt_gpu *g;

	configure(&config);
	config.log = NULL; /* the log of these tests is for one thread */
	config.pin_bytes = 1 << 20;
	ck_assert_int_eq(kvt_gpu_create(&config, &cache.layout, &g), KVT_OK);
	for (int i = 0; i < 3; i++) {
		workers[i] = (struct worker){g, 2 * i};
		ck_assert_int_eq(pthread_create(&threads[i], NULL, gather_often, &workers[i]), 0);
	}
	ck_assert_int_eq(kvt_gpu_pin(g, arena + ROOM / 2, ROOM / 2), KVT_OK);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	for (int i = 0; i < 6; i++) {
		struct four f;

		make_four(&f, g, i);
		ck_assert(is_gathered(&f));
	}
	kvt_gpu_destroy(g);
}
END_TEST

START_TEST(what_cannot_be_used_is_reported)
{
	struct kvt_gpu_config config;
	struct kvt_gpu *g;

	configure(&config);
	config.library = "/nonexistent/libkvtier_cuda.so";
	ck_assert_int_eq(kvt_gpu_create(&config, &cache.layout, &g), KVT_ENOTSUP);
	ck_assert_ptr_nonnull(strstr(logged, "no /nonexistent/libkvtier_cuda.so"));
	config.library = getenv("KVT_GPU_TEST_OLD_LIBRARY");
	ck_assert_int_eq(kvt_gpu_create(&config, &cache.layout, &g), KVT_ENOTSUP);
	ck_assert_ptr_nonnull(strstr(logged, "is of another version"));
	configure(&config);
	config.driver = "/nonexistent/libcuda.so";
	ck_assert_int_eq(kvt_gpu_create(&config, &cache.layout, &g), KVT_ENOTSUP);
	ck_assert_ptr_nonnull(strstr(logged, "no driver"));
	config.driver = "libm.so.6";
	ck_assert_int_eq(kvt_gpu_create(&config, &cache.layout, &g), KVT_ENOTSUP);
	ck_assert_ptr_nonnull(strstr(logged, "too old"));
	configure(&config);
	config.device = 5;
	ck_assert_int_eq(kvt_gpu_create(&config, &cache.layout, &g), KVT_ENOTSUP);
}
END_TEST

int main(void)
{
	TCase *one = tcase_create("cuda");

	tcase_add_checked_fixture(one, setup, teardown);
	tcase_set_timeout(one, 300);
	tcase_add_test(one, a_gather_comes_after_the_engines_work);
	tcase_add_test(one, a_scatter_comes_after_the_engines_work);
	tcase_add_test(one, loads_go_before_stores);
	tcase_add_test(one, stores_go_on_at_half_depth_beside_loads);
	tcase_add_test(one, too_many_are_busy_and_numbers_end);
	tcase_add_test(one, kernels_use_their_share);
	tcase_add_test(one, the_fastest_is_chosen_and_remembered);
	tcase_add_test(one, short_runs_go_by_staging_where_long_ones_go_by_copies);
	tcase_add_test(one, a_driver_without_batches_copies_one_by_one);
	tcase_add_loop_test(one, every_call_fails_in_turn, KVT_GPU_KERNEL, KVT_GPU_STAGING + 1);
	tcase_add_test(one, a_lost_device_fails_everything);
	tcase_add_test(one, an_unanswered_operation_is_not_over);
	tcase_add_test(one, threads_copy_while_one_pins);
	tcase_add_test(one, what_cannot_be_used_is_reported);
	return run_tcase("cache/gpu/cuda", one);
}
