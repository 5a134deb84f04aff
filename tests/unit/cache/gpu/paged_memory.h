/*
 * paged_memory.h - random layouts in memory of a machine or of a device, and the naive way to copy.
 *
 * KVT_GPU_TEST_DEVICE (-1), KVT_GPU_TEST_DRIVER, KVT_GPU_TEST_LIBRARY say where: the same tests run over
 * this machine's memory, the fake driver and a real device.
 */
#ifndef PAGED_MEMORY_H
#define PAGED_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/cuda_driver.h"
#include "kvtier/kvtier_cuda.h"

struct TCase;

/* Where the paged cache lies. */
struct place {
	int device; /* -1: here */
	const char *driver_path, *library;
	struct kvt_surroundings surroundings;
	struct kvt_cuda_driver driver;
	void *context, *stream;
};

/* By the environment; exits with 77 where there is no such device. */
void place_init(struct place *p);
/* Runs tests over a place; a program's exit status. */
int place_run(const char *suite, struct TCase *tests);
void place_finish(struct place *p);

void *place_alloc(struct place *p, size_t bytes);
void place_free(struct place *p, void *at);
void place_write(struct place *p, void *to, const void *from, size_t bytes);
void place_read(struct place *p, void *to, const void *from, size_t bytes);

struct random {
	uint64_t state;
};
uint64_t random_below(struct random *r, uint64_t n);
void random_fill(struct random *r, void *to, size_t bytes);

/* A paged cache with a copy of its bytes that the naive way works on. */
struct cache {
	struct place *place;
	struct kvt_gpu_layout layout;
	void *layers[8], *mirror_layers[8];
	char *memory, *mirror; /* of the place; here */
	size_t bytes;
};

/* Any axes in any order, padded, with a gap of up to `most_gap` elements. */
void cache_make_random(struct cache *c, struct place *place, struct random *r);
/* [blocks, heads, tokens, numbers] with `inner` of the memory's order given as a permutation of these. */
void cache_make(struct cache *c, struct place *place, const uint64_t counts[4], const int order[4],
	uint32_t layers, uint32_t element_bytes);
void cache_finish(struct cache *c);
void cache_fill(struct cache *c, struct random *r);
bool cache_is_mirrored(struct cache *c); /* is the place's memory what the naive way made? */

/* Element by element, over the mirror. chunk: all of it, contiguous. */
void cache_copy_naively(
	struct cache *c, const struct kvt_gpu_job *job, char *chunk, bool scatter);

#endif
