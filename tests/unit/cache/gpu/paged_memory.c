/*
 * paged_memory.c - random layouts in memory of a machine or of a device, and the naive way to copy.
 */
#include "paged_memory.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noreturn)) static void skip(const char *why)
{
	fprintf(stderr, "skipped: %s\n", why);
	exit(77);
}

/* Also outside of tests, where Check's own assertions may not even pass. */
static void must(int error)
{
	if (error == 0)
		return;
	fprintf(stderr, "the driver says %d\n", error);
	abort();
}

void place_init(struct place *p)
{
	const char *device = getenv("KVT_GPU_TEST_DEVICE");
	struct kvt_config config;
	int number = 0;

	memset(p, 0, sizeof(*p));
	p->device = device != NULL ? atoi(device) : -1;
	p->driver_path = getenv("KVT_GPU_TEST_DRIVER");
	p->library = getenv("KVT_GPU_TEST_LIBRARY");
	kvt_config_init(&config, sizeof(config));
	kvt_surroundings_init(&p->surroundings, &config);
	if (p->device < 0)
		return;
	if (kvt_cuda_driver_open(&p->driver, p->driver_path, &p->surroundings) != KVT_OK)
		skip("no driver");
	if (p->driver.init(0) != 0 || p->driver.device_get(&number, p->device) != 0)
		skip("no such device");
	if (p->driver.context_retain(&p->context, number) != 0 ||
		p->driver.context_push(p->context) != 0 ||
		p->driver.stream_create(&p->stream, KVT_CUDA_STREAM_NON_BLOCKING, 0) != 0)
		skip("the device cannot be used");
}

void place_finish(struct place *p)
{
	void *context;

	if (p->device < 0)
		return;
	must(p->driver.stream_destroy(p->stream));
	must(p->driver.context_pop(&context));
	must(p->driver.context_release(p->device));
	kvt_cuda_driver_close(&p->driver);
}

int place_run(const char *suite, struct TCase *tests)
{
	Suite *made = suite_create(suite);
	SRunner *runner = srunner_create(made);
	struct place probe;
	int failed;

	place_init(&probe); /* exits where there is nothing to run on */
	if (probe.device >= 0)
		srunner_set_fork_status(runner, CK_NOFORK); /* a device does not survive a fork */
	place_finish(&probe);
	suite_add_tcase(made, tests);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}

void *place_alloc(struct place *p, size_t bytes)
{
	uint64_t at = 0;
	void *memory = NULL;

	if (p->device < 0) {
		ck_assert_int_eq(posix_memalign(&memory, 256, bytes), 0);
		return memory;
	}
	must(p->driver.memory_alloc(&at, bytes));
	return (void *)(uintptr_t)at;
}

void place_free(struct place *p, void *at)
{
	if (p->device < 0)
		free(at);
	else
		must(p->driver.memory_free((uint64_t)(uintptr_t)at));
}

void place_write(struct place *p, void *to, const void *from, size_t bytes)
{
	if (p->device < 0) {
		memcpy(to, from, bytes);
		return;
	}
	must(p->driver.copy_up((uint64_t)(uintptr_t)to, from, bytes, p->stream));
	must(p->driver.stream_synchronize(p->stream));
}

void place_read(struct place *p, void *to, const void *from, size_t bytes)
{
	if (p->device < 0) {
		memcpy(to, from, bytes);
		return;
	}
	must(p->driver.copy_down(to, (uint64_t)(uintptr_t)from, bytes, p->stream));
	must(p->driver.stream_synchronize(p->stream));
}

uint64_t random_below(struct random *r, uint64_t n)
{
	r->state = r->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (r->state >> 33) % n;
}

void random_fill(struct random *r, void *to, size_t bytes)
{
	unsigned char *at = to;

	for (size_t i = 0; i < bytes; i++)
		at[i] = (unsigned char)random_below(r, 256);
}

/* An axis while strides are given out. */
struct slot {
	uint64_t count;
	int64_t stride;
};

/* Strides for axes in memory's order, innermost last. Returns the bytes of all. */
static uint64_t give_strides(struct slot **order, int n, uint64_t element, struct random *r)
{
	uint64_t extent = element;

	for (int i = n; i-- > 0;) {
		if (r != NULL && random_below(r, 4) == 0)
			extent += random_below(r, 9) * element;
		order[i]->stride = (int64_t)extent;
		extent *= order[i]->count;
	}
	return extent;
}

static void place_layers(struct cache *c, const struct slot *layers, uint64_t extent, uint64_t off)
{
	c->bytes = extent + off;
	c->memory = place_alloc(c->place, c->bytes);
	c->mirror = malloc(c->bytes);
	for (uint32_t i = 0; i < c->layout.layer_count; i++) {
		c->layers[i] = c->memory + off + i * (uint64_t)layers->stride;
		c->mirror_layers[i] = c->mirror + off + i * (uint64_t)layers->stride;
	}
	c->layout.layers = c->layers;
}

void cache_make_random(struct cache *c, struct place *place, struct random *r)
{
	static const uint64_t counts[] = {1, 2, 3, 4, 5, 8, 16, 32};
	struct slot slots[KVT_GPU_AXES + 2], *order[KVT_GPU_AXES + 2];
	uint32_t axes = 1 + (uint32_t)random_below(r, 5);
	uint64_t off;

	memset(c, 0, sizeof(*c));
	c->place = place;
	c->layout.size = sizeof(c->layout);
	c->layout.element_bytes = 1u << random_below(r, 4);
	c->layout.axis_count = axes;
	for (uint32_t i = 0; i < axes + 2; i++)
		slots[i] = (struct slot){counts[random_below(r, axes > 3 ? 4 : 8)], 0};
	slots[axes].count = 1 + random_below(r, 24);    /* blocks */
	slots[axes + 1].count = 1 + random_below(r, 4); /* layers */
	for (uint32_t i = 0; i < axes + 2; i++)
		order[i] = &slots[i];
	for (uint32_t i = axes + 1; i > 0; i--) { /* most often layers and blocks stay outside */
		uint32_t j = (uint32_t)random_below(r, random_below(r, 2) ? i + 1 : 1);
		struct slot *other = order[i];

		order[i] = order[j];
		order[j] = other;
	}
	off = random_below(r, 3) == 0 ? random_below(r, 16) * c->layout.element_bytes : 0;
	c->layout.layer_count = (uint32_t)slots[axes + 1].count;
	c->bytes = give_strides(order, (int)axes + 2, c->layout.element_bytes, r);
	for (uint32_t i = 0; i < axes; i++)
		c->layout.axes[i] = (struct kvt_gpu_axis){slots[i].count, slots[i].stride};
	c->layout.block_count = slots[axes].count;
	c->layout.block_stride = slots[axes].stride;
	place_layers(c, &slots[axes + 1], c->bytes, off);
	cache_fill(c, r);
}

void cache_make(struct cache *c, struct place *place, const uint64_t counts[4], const int order[4],
	uint32_t layers, uint32_t element_bytes)
{
	struct slot slots[5], *in_memory[5];
	uint64_t extent;

	memset(c, 0, sizeof(*c));
	c->place = place;
	c->layout.size = sizeof(c->layout);
	c->layout.element_bytes = element_bytes;
	c->layout.axis_count = 3;
	c->layout.layer_count = layers;
	slots[4] = (struct slot){layers, 0};
	in_memory[0] = &slots[4];
	for (int i = 0; i < 4; i++) {
		slots[i] = (struct slot){counts[i], 0};
		in_memory[1 + i] = &slots[order[i]];
	}
	extent = give_strides(in_memory, 5, element_bytes, NULL);
	for (int i = 0; i < 3; i++)
		c->layout.axes[i] = (struct kvt_gpu_axis){slots[i + 1].count, slots[i + 1].stride};
	c->layout.block_count = slots[0].count;
	c->layout.block_stride = slots[0].stride;
	place_layers(c, &slots[4], extent, 0);
}

void cache_fill(struct cache *c, struct random *r)
{
	random_fill(r, c->mirror, c->bytes);
	place_write(c->place, c->memory, c->mirror, c->bytes);
}

void cache_finish(struct cache *c)
{
	place_free(c->place, c->memory);
	free(c->mirror);
}

bool cache_is_mirrored(struct cache *c)
{
	char *now = malloc(c->bytes);
	bool same;

	place_read(c->place, now, c->memory, c->bytes);
	same = memcmp(now, c->mirror, c->bytes) == 0;
	free(now);
	return same;
}

void cache_copy_naively(struct cache *c, const struct kvt_gpu_job *job, char *chunk, bool scatter)
{
	const struct kvt_gpu_layout *l = &c->layout;
	uint64_t elements = 1;

	for (uint32_t axis = 0; axis < l->axis_count; axis++)
		elements *= l->axes[axis].count;
	for (uint64_t layer = 0; layer < l->layer_count; layer++)
		for (uint64_t i = 0; i < job->block_count * elements; i++) {
			uint64_t block = i / elements, rest = i % elements;
			uint64_t number =
				(layer * job->count + job->first + block) * elements + rest;
			char *flat = chunk + number * l->element_bytes;
			char *paged = (char *)c->mirror_layers[layer] +
				job->blocks[block] * l->block_stride;

			for (uint32_t axis = l->axis_count; axis-- > 0;) {
				paged += (int64_t)(rest % l->axes[axis].count) *
					l->axes[axis].stride;
				rest /= l->axes[axis].count;
			}
			memcpy(scatter ? paged : flat, scatter ? flat : paged, l->element_bytes);
		}
}
