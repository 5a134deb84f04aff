/*
 * gpu_bench.h - the two halves of gpu_bench, and what they share.
 */
#ifndef KVB_GPU_BENCH_H
#define KVB_GPU_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "kvtier/kvtier_cuda.h"

#define KVB_CHUNK  ((uint64_t)4 << 20)
#define KVB_BLOCKS 16u /* of a chunk */
#define KVB_LAYERS 4u
#define KVB_BLOCK  (KVB_CHUNK / KVB_BLOCKS / KVB_LAYERS) /* bytes of one layer's: 64 KiB */

struct kvb_gpu_options {
	unsigned rounds;
	uint64_t bytes;      /* copied in a pass, a multiple of KVB_CHUNK */
	const char *driver;  /* NULL: the machine's */
	const char *library; /* NULL: the one next to libkvtier */
	bool device_only;
	/* as in struct kvt_gpu_config; 0: the default */
	uint32_t method, streams, depth;
	double multiprocessor_share;
	uint64_t staging_bytes;
};

/* The layout of a paged cache, without its address. */
struct kvb_gpu_geometry {
	const char *name;
	uint32_t axis_count;
	struct kvt_gpu_axis axes[KVT_GPU_AXES];
	/* 1: a block's keys and values lie together; 2: all keys, then all values */
	uint64_t whole;
};

extern const struct kvb_gpu_geometry kvb_gpu_geometries[];
extern const unsigned kvb_gpu_geometry_count;

/* Describes a paged cache of `bytes` bytes, all layers together, at `base`; layers has
 * KVB_LAYERS entries. */
void kvb_gpu_layout(const struct kvb_gpu_geometry *geometry, char *base, uint64_t bytes,
	void **layers, struct kvt_gpu_layout *out);
/* Returns the blocks of a paged cache of so many bytes in random order. The caller frees them. */
int64_t *kvb_gpu_ids(uint64_t bytes);

void kvb_gpu_host(const struct kvb_gpu_options *options);   /* gpu_bench_host.c */
void kvb_gpu_device(const struct kvb_gpu_options *options); /* gpu_bench_device.c */
void kvb_fail(const char *why) __attribute__((noreturn));

#endif
