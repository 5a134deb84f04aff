/*
 * header_c_test.c - the public header alone, as C11 without extensions; a program over libkvtier.so.
 */
#include "kvtier/kvtier_cuda.h"

#include <stdio.h>
#include <string.h>

int main(void)
{
	char paged[4][8] = {"block 0", "block 1", "block 2", "block 3"}, chunk[16], text[200];
	void *layers[1];
	struct kvt_gpu_layout layout;
	struct kvt_gpu_config config;
	struct kvt_gpu_stats stats;
	struct kvt_segment segment = {NULL, sizeof(chunk), 0};
	const int64_t blocks[] = {3, 1};
	struct kvt_gpu_job job;
	struct kvt_gpu *g;
	uint64_t op;
	int fine;

	memset(&layout, 0, sizeof(layout));
	layout.size = sizeof(layout);
	layout.element_bytes = 1;
	layout.axis_count = 1;
	layout.layer_count = 1;
	layout.axes[0].count = 8;
	layout.axes[0].stride = 1;
	layout.block_count = 4;
	layout.block_stride = 8;
	layout.layers = layers;
	layers[0] = paged;
	kvt_gpu_config_init(&config, sizeof(config));
	if (kvt_gpu_create(&config, &layout, &g) != KVT_OK)
		return 1;
	memset(&job, 0, sizeof(job));
	job.size = sizeof(job);
	job.blocks = blocks;
	job.block_count = job.count = 2;
	job.segments = &segment;
	job.segment_count = 1;
	segment.base = chunk;
	fine = kvt_gpu_gather_begin(g, &job, &op) == KVT_OK && kvt_gpu_wait(g, op, 0) == KVT_OK &&
		memcmp(chunk, "block 3\0block 1", 16) == 0;
	memset(&stats, 0, sizeof(stats));
	stats.size = sizeof(stats);
	fine = fine && kvt_gpu_stats(g, &stats) == KVT_OK && stats.gather_bytes == 16 &&
		kvt_gpu_describe(g, text, sizeof(text)) > 0;
	kvt_gpu_destroy(g);
	printf("%s", text);
	return fine ? 0 : 1;
}
