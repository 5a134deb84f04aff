/*
 * arena.c - hands out parts of a mapping, under one lock.
 *
 * A thread holds the lock for the bookkeeping of one object: some searches in a tree and in a map,
 * about a microsecond, never for copies of bytes. The number of used bytes is a separate atomic
 * (relaxed: statistics), so that reading it takes no lock.
 */
#include "memory/arena.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/arena_map.h"

/* number of pages that are looked at to estimate how much of the arena is in memory */
#define SAMPLES 256

struct kvt_arena {
	struct kvt_arena_map map;
	pthread_mutex_t lock;        /* guards extents */
	struct kvt_extents *extents; /* owned */
	_Atomic uint64_t used;       /* bytes; written with the lock held */
	_Atomic uint64_t bookkeeping;
};

/* Needs the lock. */
static void keep_figures(struct kvt_arena *a)
{
	uint64_t free_bytes = (uint64_t)kvt_extents_free(a->extents) * KVT_ARENA_UNIT;

	atomic_store_explicit(&a->used, a->map.bytes - free_bytes, memory_order_relaxed);
	atomic_store_explicit(&a->bookkeeping, kvt_extents_bytes(a->extents), memory_order_relaxed);
}

enum kvt_status kvt_arena_create(const struct kvt_arena_options *options,
	const struct kvt_surroundings *s, struct kvt_arena **out)
{
	struct kvt_arena *a = calloc(1, sizeof(*a));
	enum kvt_status status;

	if (a == NULL)
		return KVT_ENOMEM;
	status = kvt_arena_map(options, s, &a->map);
	if (status != KVT_OK)
		goto no_map;
	status = kvt_extents_create((uint32_t)(a->map.bytes / KVT_ARENA_UNIT), &a->extents);
	if (status != KVT_OK)
		goto no_extents;
	if (pthread_mutex_init(&a->lock, NULL) != 0) {
		status = KVT_ENOMEM;
		goto no_lock;
	}
	keep_figures(a);
	*out = a;
	return KVT_OK;

no_lock:
	kvt_extents_destroy(a->extents);
no_extents:
	kvt_arena_unmap(&a->map);
no_map:
	free(a);
	return status;
}

void kvt_arena_destroy(struct kvt_arena *a)
{
	if (a == NULL)
		return;
	pthread_mutex_destroy(&a->lock);
	kvt_extents_destroy(a->extents);
	kvt_arena_unmap(&a->map);
	free(a);
}

enum kvt_status kvt_arena_take(struct kvt_arena *a, uint64_t bytes, uint64_t keep_free,
	struct kvt_extent *out, uint32_t *n)
{
	uint64_t units = bytes / KVT_ARENA_UNIT + (bytes % KVT_ARENA_UNIT > 0);
	enum kvt_status status = KVT_FULL;
	uint32_t left;

	if (units == 0)
		return KVT_EINVAL;
	pthread_mutex_lock(&a->lock);
	left = kvt_extents_free(a->extents);
	if (units <= left && keep_free <= left - units)
		status = kvt_extents_take(a->extents, (uint32_t)units, out, n);
	keep_figures(a);
	pthread_mutex_unlock(&a->lock);
	return status;
}

void kvt_arena_give(struct kvt_arena *a, const struct kvt_extent *runs, uint32_t n)
{
	pthread_mutex_lock(&a->lock);
	kvt_extents_give(a->extents, runs, n);
	keep_figures(a);
	pthread_mutex_unlock(&a->lock);
}

void kvt_arena_segments(const struct kvt_arena *a, const struct kvt_extent *runs, uint32_t n,
	uint64_t bytes, struct kvt_segment *out)
{
	for (uint32_t i = 0; i < n; i++) {
		uint64_t offset = (uint64_t)runs[i].first * KVT_ARENA_UNIT;
		uint64_t room = (uint64_t)runs[i].count * KVT_ARENA_UNIT;

		out[i].base = (char *)a->map.base + offset;
		out[i].bytes = room < bytes ? room : bytes;
		out[i].arena_offset = offset;
		bytes -= out[i].bytes;
	}
}

void *kvt_arena_base(const struct kvt_arena *a)
{
	return a->map.base;
}

uint64_t kvt_arena_capacity(const struct kvt_arena *a)
{
	return a->map.bytes;
}

uint64_t kvt_arena_used(const struct kvt_arena *a)
{
	return atomic_load_explicit(&a->used, memory_order_relaxed);
}

uint64_t kvt_arena_resident(const struct kvt_arena *a)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), step = a->map.bytes / SAMPLES;
	uint64_t found = 0;

	for (uint64_t i = 0; i < SAMPLES; i++) {
		unsigned char there = 0;
		char *at = (char *)a->map.base + i * step / page * page;

		if (mincore(at, page, &there) == 0)
			found += there & 1;
	}
	return found == SAMPLES ? a->map.bytes : found * step;
}

const char *kvt_arena_mode(const struct kvt_arena *a)
{
	return a->map.mode;
}

const char *kvt_arena_reason(const struct kvt_arena *a)
{
	return a->map.reason;
}

uint64_t kvt_arena_bookkeeping(const struct kvt_arena *a)
{
	return sizeof(*a) + atomic_load_explicit(&a->bookkeeping, memory_order_relaxed);
}
