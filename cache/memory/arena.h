/*
 * arena.h - the single mapping that holds the chunks of L1.
 *
 * The arena is mapped once and never grows, so that its size is a hard limit. It uses huge pages
 * where available, prefers a NUMA node, and is locked into memory on request; its memory is
 * anonymous, from hugetlbfs, or a named POSIX shared memory segment that another process (a GPU
 * worker, a daemon's client) maps too. Addresses never change. Thread-safe: a short lock guards the
 * bookkeeping.
 */
#ifndef KVT_ARENA_H
#define KVT_ARENA_H

#include "memory/extents.h"
#include "chunk/note.h"

/* bytes; sizes of objects are rounded up to it, and their addresses are aligned to it */
#define KVT_ARENA_UNIT ((uint64_t)64 * 1024)

struct kvt_arena_options {
	uint64_t bytes;      /* rounded down to units */
	/* "anon", "hugetlb", "shm:NAME", "fd:N" (the caller's file of that size, with its room
	 * allocated) */
	const char *backing;
	bool lock;
	int numa_node; /* -1: first touch */
};

struct kvt_arena;

/* Makes an arena. KVT_EINVAL (backing), KVT_ENOMEM, KVT_EIO. `reason` and the log name requests
 * that were not fully met (huge pages, lock, node). */
enum kvt_status kvt_arena_create(const struct kvt_arena_options *options,
	const struct kvt_surroundings *s, struct kvt_arena **out) KVT_MUST_CHECK;
void kvt_arena_destroy(struct kvt_arena *a); /* NULL is allowed; unlinks shm:NAME */

/* Takes room for `bytes`; *n as in kvt_extents_take. KVT_FULL. At least `keep_free` units stay free
 * (the staging share for loads, which puts may not use). */
enum kvt_status kvt_arena_take(struct kvt_arena *a, uint64_t bytes, uint64_t keep_free,
	struct kvt_extent *out, uint32_t *n) KVT_MUST_CHECK;
void kvt_arena_give(struct kvt_arena *a, const struct kvt_extent *runs, uint32_t n);

/* Writes the addresses of `bytes` bytes in these runs, one segment per run. */
void kvt_arena_segments(const struct kvt_arena *a, const struct kvt_extent *runs, uint32_t n,
	uint64_t bytes, struct kvt_segment *out);

void *kvt_arena_base(const struct kvt_arena *a);
uint64_t kvt_arena_capacity(const struct kvt_arena *a); /* bytes */
uint64_t kvt_arena_used(const struct kvt_arena *a);     /* bytes, whole units */
/* Returns the bytes that occupy memory, or that a device has registered, to within 1/256 of the
 * capacity: samples evenly spread pages, about 0.1 ms. */
uint64_t kvt_arena_resident(const struct kvt_arena *a);
/* "anon", "anon-thp", "hugetlb", "shm", "fd" */
const char *kvt_arena_mode(const struct kvt_arena *a);
/* "", or which requests were not fully met */
const char *kvt_arena_reason(const struct kvt_arena *a);
uint64_t kvt_arena_bookkeeping(const struct kvt_arena *a); /* bytes */

#endif
