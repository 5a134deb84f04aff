/*
 * gpu_bench_device.c - the CUDA backend against one contiguous pinned copy, each way and both at
 * once.
 *
 * Ours: all chunks of a pass, as many begun as the backend takes, until the last is over. The peer:
 * one asynchronous copy of as many bytes between pinned memory and memory of the device, and for
 * both ways two of them on two streams. At the end, outside of the measured time, all blocks go out
 * and back in and are compared.
 *
 * Fragments: the same chunks as tokens of keys and values in turn, scattered as they are and with
 * all keys turned.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gpu/cuda_driver.h"
#include "gpu/gpu.h"
#include "bench/cache/memory/figures.h"
#include "bench/cache/gpu/gpu_bench.h"

#define MOST_BYTES ((uint64_t)256 << 20)
#define UNDER_WAY  32u
#define TOKENS     16u  /* of a block */
#define HEADS      8u
#define HEAD       128u /* values of a key: 256 bytes */
#define PATIENCE   ((uint64_t)10 * 1000000000)

struct bench {
	struct kvt_cuda_driver d;
	void *context, *streams[2];
	uint64_t device;      /* 2 * bytes of its memory */
	char *host;           /* 2 * bytes, pinned */
	uint64_t bytes;
	int64_t *ids;         /* ids of blocks, or of tokens where a view is set */
	uint32_t view, parts; /* 0, 1: whole blocks */
	const struct kvt_gpu_turn *turn; /* of scatters */
	struct kvt_gpu *gpu;
};

static void must(int error, const char *what)
{
	if (error != KVT_CUDA_SUCCESS)
		kvb_fail(what);
}

/* Returns our rate; gathers, scatters: the directions that run, at once if both. */
static double our_rate(struct bench *b, bool gathers, bool scatters)
{
	uint64_t n = b->bytes / KVB_CHUNK, ops[UNDER_WAY], begun = 0, over = 0;
	uint64_t all = n * ((uint64_t)gathers + scatters);
	double begin = kvb_seconds();

	while (over < all) {
		if (begun < all && begun - over < UNDER_WAY) {
			bool scatter = gathers && scatters ? begun % 2 == 1 : scatters;
			uint64_t i = gathers && scatters ? begun / 2 : begun;
			struct kvt_segment segment = {
				b->host + (scatter ? b->bytes : 0) + i * KVB_CHUNK, KVB_CHUNK, 0};
			struct kvt_gpu_job job = {.size = sizeof(job),
				.blocks = b->ids + i * KVB_BLOCKS * b->parts,
				.block_count = KVB_BLOCKS * b->parts, .count = KVB_BLOCKS * b->parts,
				.segments = &segment, .segment_count = 1};
			uint64_t *op = &ops[begun % UNDER_WAY];

			if (kvt_gpu_view_begin(b->gpu, b->view, &job, scatter, scatter ? b->turn : NULL, op) !=
				KVT_OK)
				kvb_fail("a copy was refused");
			begun++;
		} else {
			if (kvt_gpu_wait(b->gpu, ops[over % UNDER_WAY], PATIENCE) != KVT_OK)
				kvb_fail("a copy failed");
			over++;
		}
	}
	return (double)(all * KVB_CHUNK) / (kvb_seconds() - begin);
}

static double peer_rate(struct bench *b, bool gathers, bool scatters)
{
	double begin = kvb_seconds();

	if (gathers)
		must(b->d.copy_down(b->host, b->device, b->bytes, b->streams[0]), "copying");
	if (scatters)
		must(b->d.copy_up(b->device + b->bytes, b->host + b->bytes, b->bytes,
			b->streams[1]), "copying");
	must(b->d.stream_synchronize(b->streams[0]), "waiting");
	must(b->d.stream_synchronize(b->streams[1]), "waiting");
	return (double)(b->bytes * ((uint64_t)gathers + scatters)) / (kvb_seconds() - begin);
}

static void tell(struct kvt_gpu *g, const char *layout)
{
	char text[2048];

	(void)kvt_gpu_describe(g, text, sizeof(text));
	fprintf(stderr, "\n%s:\n%s", layout, text);
}

/* Copies random blocks into chunks, wipes the blocks, copies back; ends the program if a byte
 * differs. */
static void check_bytes(struct bench *b)
{
	char *blocks = malloc(b->bytes), *other = b->host + b->bytes;
	void *stream = b->streams[0];
	uint64_t random = 1;

	if (blocks == NULL)
		kvb_fail("no memory");
	for (uint64_t at = 0; at < b->bytes; at += sizeof(random)) {
		random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		memcpy(blocks + at, &random, sizeof(random));
	}
	memcpy(other, blocks, b->bytes);
	must(b->d.copy_up(b->device, other, b->bytes, stream), "copying");
	must(b->d.stream_synchronize(stream), "waiting");
	memset(b->host, 0, b->bytes);
	(void)our_rate(b, true, false);
	memset(other, 0, b->bytes);
	must(b->d.copy_up(b->device, other, b->bytes, stream), "copying");
	must(b->d.stream_synchronize(stream), "waiting");
	memcpy(other, b->host, b->bytes);
	(void)our_rate(b, false, true);
	must(b->d.copy_down(b->host, b->device, b->bytes, stream), "copying");
	must(b->d.stream_synchronize(stream), "waiting");
	if (memcmp(b->host, blocks, b->bytes) != 0)
		kvb_fail("bytes came back wrong");
	free(blocks);
}

static void configure(struct kvt_gpu_config *config, const struct kvb_gpu_options *options)
{
	kvt_gpu_config_init(config, sizeof(*config));
	config->device = 0;
	config->driver = options->driver;
	config->library = options->library;
	config->memo = "";
	config->method = options->method;
	if (options->streams > 0)
		config->streams = options->streams;
	if (options->depth > 0)
		config->depth = options->depth;
	if (options->multiprocessor_share > 0)
		config->multiprocessor_share = options->multiprocessor_share;
	if (options->staging_bytes > 0)
		config->staging_bytes = options->staging_bytes;
}

static struct kvt_gpu_stats stats_of(struct kvt_gpu *g)
{
	struct kvt_gpu_stats stats = {.size = sizeof(stats)};

	if (kvt_gpu_stats(g, &stats) != KVT_OK)
		kvb_fail("no statistics");
	return stats;
}

/* Prints a figure with the way of copying and the most multiprocessors that it may use. */
static void print_series(const struct kvb_series *series, const char *metric, const char *layout,
	const struct kvt_gpu_stats *used)
{
	uint64_t all = used->by_kernel + used->by_copies + used->by_staging;
	uint32_t processors = all > used->by_copies ? used->multiprocessors : 0;
	char more[192];

	snprintf(more, sizeof(more),
		", \"layout\": \"%s\", \"by_kernel\": %.2f, \"by_copies\": %.2f, "
		"\"by_staging\": %.2f, \"multiprocessors\": %u",
		layout, (double)used->by_kernel / (double)all,
		(double)used->by_copies / (double)all, (double)used->by_staging / (double)all,
		processors);
	kvb_series_print(series, metric, "B/s", "contiguous copy", more);
}

static void measure(struct bench *b, const struct kvb_gpu_options *options,
	const struct kvb_gpu_geometry *geometry)
{
	static const char *const metrics[] = {"gpu_gather_bytes_per_second",
		"gpu_scatter_bytes_per_second", "gpu_both_bytes_per_second"};
	struct kvb_series series[3] = {0};
	struct kvt_gpu_stats used[3] = {0};
	struct kvt_gpu_config config;
	struct kvt_gpu_layout layout;
	void *layers[KVB_LAYERS];

	configure(&config, options);
	kvb_gpu_layout(geometry, (char *)(uintptr_t)b->device, b->bytes, layers, &layout);
	if (kvt_gpu_create(&config, &layout, &b->gpu) != KVT_OK)
		kvb_fail("the CUDA backend is refused");
	if (kvt_gpu_pin(b->gpu, b->host, 2 * b->bytes) != KVT_OK)
		kvb_fail("memory cannot be pinned");
	tell(b->gpu, geometry->name);
	for (int warm = 0; warm < 2; warm++)
		(void)our_rate(b, true, true);
	for (unsigned round = 0; round < options->rounds; round++)
		for (int what = 0; what < 3; what++) {
			double peer = peer_rate(b, what != 1, what != 0);
			struct kvt_gpu_stats before = stats_of(b->gpu), after;

			kvb_series_add(&series[what], our_rate(b, what != 1, what != 0), peer);
			after = stats_of(b->gpu);
			used[what].by_kernel += after.by_kernel - before.by_kernel;
			used[what].by_copies += after.by_copies - before.by_copies;
			used[what].by_staging += after.by_staging - before.by_staging;
			used[what].multiprocessors = after.multiprocessors;
		}
	check_bytes(b);
	kvt_gpu_destroy(b->gpu);
	for (int what = 0; what < 3; what++)
		print_series(&series[what], metrics[what], geometry->name, &used[what]);
}

/* Adds a view of keys and values in the layout of vLLM's attention with the heads as an outer axis:
 * 256 bytes of a key, then those of its value. */
static enum kvt_status add_view(struct bench *b, void *const *layers, uint64_t blocks)
{
	const struct kvt_gpu_parts parts = {TOKENS, 4 * HEAD};
	void *halves[2 * KVB_LAYERS];
	struct kvt_gpu_layout layout = {.size = sizeof(layout),
		.element_bytes = 2,
		.axis_count = 2,
		.layer_count = 2 * KVB_LAYERS,
		.axes = {{HEADS, TOKENS * 4 * HEAD}, {HEAD, 2}},
		.block_count = blocks,
		.block_stride = (int64_t)KVB_BLOCK,
		.layers = halves};

	for (unsigned i = 0; i < 2 * KVB_LAYERS; i++)
		halves[i] = (char *)layers[i / 2] + i % 2 * 2 * HEAD;
	return kvt_gpu_view_add(b->gpu, &layout, &parts, &b->view);
}

static void measure_both_kinds(struct bench *b, const struct kvb_gpu_options *options)
{
	static const char *const metrics[] = {"gpu_scatter_tokens_bytes_per_second", "gpu_scatter_turned_bytes_per_second"};
	struct kvt_gpu_turn turn = {.values = KVT_GPU_BF16, .pairs = HEAD / 2, .layer_step = 2};
	struct kvb_series series[2] = {0};
	float cosine[HEAD / 2], sine[HEAD / 2];
	struct kvt_gpu_stats used[2] = {0};

	for (unsigned i = 0; i < HEAD / 2; i++) { /* 3, 4, 5: no need of a library */
		cosine[i] = i % 2 == 0 ? 0.6F : 0.8F;
		sine[i] = i % 2 == 0 ? 0.8F : 0.6F;
	}
	turn.cosine = cosine;
	turn.sine = sine;
	for (unsigned round = 0; round < options->rounds; round++)
		for (int what = 0; what < 2; what++) {
			double peer = peer_rate(b, false, true);
			struct kvt_gpu_stats before = stats_of(b->gpu), after;

			b->turn = what == 1 ? &turn : NULL;
			kvb_series_add(&series[what], our_rate(b, false, true), peer);
			after = stats_of(b->gpu);
			used[what].by_kernel += after.by_kernel - before.by_kernel;
			used[what].by_copies += after.by_copies - before.by_copies;
			used[what].by_staging += after.by_staging - before.by_staging;
			used[what].multiprocessors = after.multiprocessors;
		}
	b->turn = NULL;
	for (int what = 0; what < 2; what++)
		print_series(&series[what], metrics[what], "fragments", &used[what]);
}

static void measure_fragments(struct bench *b, const struct kvb_gpu_options *options)
{
	int64_t *blocks = b->ids, *tokens = calloc(b->bytes / KVB_LAYERS / KVB_BLOCK * TOKENS, sizeof(*tokens));
	struct kvt_gpu_config config;
	struct kvt_gpu_layout layout;
	void *layers[KVB_LAYERS];

	if (tokens == NULL)
		kvb_fail("no memory");
	configure(&config, options);
	kvb_gpu_layout(&kvb_gpu_geometries[0], (char *)(uintptr_t)b->device, b->bytes, layers, &layout);
	if (kvt_gpu_create(&config, &layout, &b->gpu) != KVT_OK ||
		kvt_gpu_pin(b->gpu, b->host, 2 * b->bytes) != KVT_OK)
		kvb_fail("the CUDA backend is refused");
	for (uint64_t i = 0; i < layout.block_count * TOKENS; i++)
		tokens[i] = blocks[i / TOKENS] * TOKENS + (int64_t)(i % TOKENS);
	if (add_view(b, layers, layout.block_count) == KVT_OK) {
		b->ids = tokens;
		b->parts = TOKENS;
		measure_both_kinds(b, options);
	} else {
		fprintf(stderr, "\nfragments on the GPU: SKIPPED, this build has no kernel that turns keys.\n");
	}
	b->view = 0;
	b->parts = 1;
	b->ids = blocks;
	kvt_gpu_destroy(b->gpu);
	free(tokens);
}

/* Returns false if there is no CUDA device. */
static bool find_device(struct bench *b, const struct kvb_gpu_options *options)
{
	struct kvt_surroundings s;
	struct kvt_config config;
	char name[64] = "";
	int device = 0;

	kvt_config_init(&config, sizeof(config));
	kvt_surroundings_init(&s, &config);
	if (kvt_cuda_driver_open(&b->d, options->driver, &s) != KVT_OK)
		return false;
	if (b->d.init(0) != KVT_CUDA_SUCCESS || b->d.device_get(&device, 0) != KVT_CUDA_SUCCESS) {
		kvt_cuda_driver_close(&b->d);
		return false;
	}
	must(b->d.device_name(name, sizeof(name), device), "asking for a name");
	fprintf(stderr, "\nDevice: %s\n", name);
	must(b->d.context_retain(&b->context, device), "taking a context");
	must(b->d.context_push(b->context), "entering a context");
	for (int i = 0; i < 2; i++)
		must(b->d.stream_create(&b->streams[i], KVT_CUDA_STREAM_NON_BLOCKING, 0),
			"making a stream");
	return true;
}

void kvb_gpu_device(const struct kvb_gpu_options *options)
{
	struct bench b = {.bytes = options->bytes < MOST_BYTES ? options->bytes : MOST_BYTES, .parts = 1};

	if (!find_device(&b, options)) {
		fprintf(stderr, "\nGPU, fragments too: SKIPPED, this machine has no usable CUDA device.\n");
		return;
	}
	b.host = mmap(NULL, 2 * b.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b.host == MAP_FAILED)
		kvb_fail("no memory");
	memset(b.host, 1, 2 * b.bytes);
	must(b.d.memory_alloc(&b.device, 2 * b.bytes), "memory of the device");
	b.ids = kvb_gpu_ids(b.bytes);
	for (unsigned i = 0; i < kvb_gpu_geometry_count; i++)
		measure(&b, options, &kvb_gpu_geometries[i]);
	measure_fragments(&b, options);
	free(b.ids);
	must(b.d.memory_free(b.device), "freeing memory");
	for (int i = 0; i < 2; i++)
		must(b.d.stream_destroy(b.streams[i]), "ending a stream");
	must(b.d.context_pop(&b.context), "leaving a context");
	must(b.d.context_release(0), "giving a context back");
	kvt_cuda_driver_close(&b.d);
	munmap(b.host, 2 * b.bytes);
}
