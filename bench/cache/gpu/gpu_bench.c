/*
 * gpu_bench.c - gathers and scatters of 16-token blocks into chunks of 4 MiB, against plain copies.
 *
 * JSON lines on standard output, a table on standard error. Ours and the peer take turns within every
 * round; figures are medians over the rounds.
 */
#include "bench/cache/gpu/gpu_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/cache/memory/figures.h"

#define HALF ((int64_t)(KVB_BLOCK / 2))

/* bfloat16, 8 heads of 128 numbers, keys and values. Strides of blocks and halves of `apart` depend on the
 * number of blocks: kvb_gpu_layout fills them in. */
const struct kvb_gpu_geometry kvb_gpu_geometries[] = {
	{"block", 3, {{8, 8192}, {16, 512}, {256, 2}}, 1},
	{"rows", 3, {{8, 512}, {16, 4096}, {256, 2}}, 1},
	{"apart", 4, {{2, 0}, {16, 2048}, {8, 256}, {128, 2}}, 2},
};
const unsigned kvb_gpu_geometry_count = sizeof(kvb_gpu_geometries) / sizeof(kvb_gpu_geometries[0]);

void kvb_fail(const char *why)
{
	fprintf(stderr, "gpu_bench: %s\n", why);
	exit(1);
}

void kvb_gpu_layout(const struct kvb_gpu_geometry *geometry, char *base, uint64_t bytes,
	void **layers, struct kvt_gpu_layout *out)
{
	memset(out, 0, sizeof(*out));
	out->size = sizeof(*out);
	out->element_bytes = 2;
	out->axis_count = geometry->axis_count;
	out->layer_count = KVB_LAYERS;
	memcpy(out->axes, geometry->axes, sizeof(out->axes));
	out->block_count = bytes / KVB_LAYERS / KVB_BLOCK;
	out->block_stride = (int64_t)KVB_BLOCK;
	if (geometry->whole == 2) {
		out->block_stride = HALF;
		out->axes[0].stride = (int64_t)out->block_count * HALF;
	}
	for (unsigned i = 0; i < KVB_LAYERS; i++)
		layers[i] = base + i * (bytes / KVB_LAYERS);
	out->layers = layers;
}

int64_t *kvb_gpu_ids(uint64_t bytes)
{
	uint64_t n = bytes / KVB_LAYERS / KVB_BLOCK, random = 1;
	int64_t *ids = calloc(n, sizeof(*ids));

	if (ids == NULL)
		kvb_fail("no memory");
	for (uint64_t i = 0; i < n; i++) {
		uint64_t j;

		random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		j = (random >> 33) % (i + 1);
		ids[i] = ids[j];
		ids[j] = (int64_t)i;
	}
	return ids;
}

static bool take_option(struct kvb_gpu_options *options, int option)
{
	switch (option) {
	case 'r':
		options->rounds = (unsigned)atoi(optarg);
		return true;
	case 'm':
		options->bytes = strtoull(optarg, NULL, 10) << 20;
		return true;
	case 'd':
		options->driver = optarg;
		return true;
	case 'l':
		options->library = optarg;
		return true;
	case 'g':
		options->device_only = true;
		return true;
	case 'M':
		options->method = (uint32_t)atoi(optarg);
		return true;
	case 'S':
		options->multiprocessor_share = atof(optarg);
		return true;
	case 'T':
		options->streams = (uint32_t)atoi(optarg);
		return true;
	case 'D':
		options->depth = (uint32_t)atoi(optarg);
		return true;
	case 'W':
		options->staging_bytes = strtoull(optarg, NULL, 10) << 10;
		return true;
	default:
		return false;
	}
}

static const char usage[] =
	"usage: gpu_bench [-r ROUNDS] [-m MIB] [-d DRIVER] [-l LIBRARY] [-g] [-M METHOD]\n"
	"                 [-S SHARE] [-T STREAMS] [-D DEPTH] [-W KIB]\n\n"
	"  -g  the device only\n"
	"  -M  0 the fastest, 1 kernel, 2 copies, 3 staging; -S  of the multiprocessors;\n"
	"  -T  streams each way; -D  operations each way at once; -W  staging memory of a stream\n";

int main(int argc, char **argv)
{
	struct kvb_gpu_options options = {.rounds = 9, .bytes = UINT64_C(512) << 20};
	int option;

	while ((option = getopt(argc, argv, "r:m:d:l:gM:S:T:D:W:")) != -1)
		if (!take_option(&options, option)) {
			fputs(usage, stderr);
			return 2;
		}
	if (options.rounds < 1 || options.rounds > KVB_MOST_ROUNDS ||
		options.bytes < 4 * KVB_CHUNK || options.bytes % KVB_CHUNK != 0) {
		fprintf(stderr, "gpu_bench: 1 to %d rounds, 16 MiB at least, a multiple of 4\n",
			KVB_MOST_ROUNDS);
		return 2;
	}
	if (!options.device_only)
		kvb_gpu_host(&options);
	kvb_gpu_device(&options);
	return 0;
}
