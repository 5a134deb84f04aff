/*
 * gpu_bench_host.c - the host backend against memcpy.
 *
 * The paged cache and the chunks are 512 MiB each, so that no cache of the processor holds them, in huge
 * pages where the machine has them, touched before the clock starts. The peer copies the same memory, 4 MiB
 * at a time, in the same direction.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/cache/memory/figures.h"
#include "bench/cache/gpu/gpu_bench.h"

struct bench {
	char *paged, *chunks; /* bytes each */
	uint64_t bytes;
	int64_t *ids;
	struct kvt_gpu *gpu;
};

static char *map(uint64_t bytes)
{
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		kvb_fail("no memory for buffers");
	(void)madvise(at, bytes, MADV_HUGEPAGE);
	memset(at, 1, bytes);
	return at;
}

static double our_rate(struct bench *b, bool scatter)
{
	double begin = kvb_seconds();

	for (uint64_t i = 0; i < b->bytes / KVB_CHUNK; i++) {
		struct kvt_segment segment = {b->chunks + i * KVB_CHUNK, KVB_CHUNK, 0};
		struct kvt_gpu_job job = {.size = sizeof(job), .blocks = b->ids + i * KVB_BLOCKS,
			.block_count = KVB_BLOCKS, .count = KVB_BLOCKS, .segments = &segment,
			.segment_count = 1};
		uint64_t op;
		enum kvt_status status = scatter ? kvt_gpu_scatter_begin(b->gpu, &job, &op)
			: kvt_gpu_gather_begin(b->gpu, &job, &op);

		if (status != KVT_OK || kvt_gpu_poll(b->gpu, op) != KVT_OK)
			kvb_fail("a copy was refused");
	}
	return (double)b->bytes / (kvb_seconds() - begin);
}

static double peer_rate(struct bench *b, bool scatter)
{
	double begin = kvb_seconds();

	for (uint64_t at = 0; at < b->bytes; at += KVB_CHUNK)
		memcpy((scatter ? b->paged : b->chunks) + at,
			(scatter ? b->chunks : b->paged) + at, KVB_CHUNK);
	return (double)b->bytes / (kvb_seconds() - begin);
}

static void measure(struct bench *b, const struct kvb_gpu_options *options,
	const struct kvb_gpu_geometry *geometry)
{
	static const char *const metrics[] = {
		"host_gather_bytes_per_second", "host_scatter_bytes_per_second"};
	struct kvb_series series[2] = {0};
	struct kvt_gpu_config config;
	struct kvt_gpu_layout layout;
	void *layers[KVB_LAYERS];
	char more[64];

	kvt_gpu_config_init(&config, sizeof(config));
	kvb_gpu_layout(geometry, b->paged, b->bytes, layers, &layout);
	if (kvt_gpu_create(&config, &layout, &b->gpu) != KVT_OK)
		kvb_fail("the host backend is refused");
	if (kvt_gpu_chunk_bytes(b->gpu, KVB_BLOCKS) != KVB_CHUNK)
		kvb_fail("chunks are not of 4 MiB");
	for (unsigned round = 0; round < options->rounds; round++)
		for (int scatter = 0; scatter < 2; scatter++) {
			double peer = peer_rate(b, scatter);

			kvb_series_add(&series[scatter], our_rate(b, scatter), peer);
		}
	kvt_gpu_destroy(b->gpu);
	snprintf(more, sizeof(more), ", \"layout\": \"%s\"", geometry->name);
	for (int scatter = 0; scatter < 2; scatter++)
		kvb_series_print(&series[scatter], metrics[scatter], "B/s", "memcpy", more);
}

void kvb_gpu_host(const struct kvb_gpu_options *options)
{
	struct bench b = {.bytes = options->bytes};

	b.paged = map(b.bytes);
	b.chunks = map(b.bytes);
	b.ids = kvb_gpu_ids(b.bytes);
	for (unsigned i = 0; i < kvb_gpu_geometry_count; i++)
		measure(&b, options, &kvb_gpu_geometries[i]);
	free(b.ids);
	munmap(b.paged, b.bytes);
	munmap(b.chunks, b.bytes);
}
