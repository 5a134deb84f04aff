/*
 * arena.h - the one piece of memory that chunks of L1 lie in.
 *
 * Mapped once, never grown: a hard limit. Huge pages where they can be had, bound to a NUMA node
 * and locked if asked; anonymous, from hugetlbfs, or a named POSIX shared memory segment that
 * another process (a GPU worker, a daemon's client) maps too. Addresses never change.
 * Thread-safe: an own short lock around the bookkeeping.
 */
#ifndef KVT_ARENA_H
#define KVT_ARENA_H

#include "memory/extents.h"
#include "chunk/note.h"

#define KVT_ARENA_UNIT ((uint64_t)64 * 1024) /* bytes; objects are rounded up to it, addresses aligned to it */

struct kvt_arena_options {
	uint64_t bytes;      /* rounded down to units */
	/* "anon", "hugetlb", "shm:NAME", "fd:N" (the caller's file, which has that size and room) */
	const char *backing;
	bool lock;
	int numa_node; /* -1: first touch */
};

struct kvt_arena;

/* KVT_EINVAL (backing), KVT_ENOMEM, KVT_EIO. What was asked and could not be had in part (huge
 * pages, lock, node) is reported in `reason` and in the log. */
enum kvt_status kvt_arena_create(const struct kvt_arena_options *options,
	const struct kvt_surroundings *s, struct kvt_arena **out) KVT_MUST_CHECK;
void kvt_arena_destroy(struct kvt_arena *a); /* NULL is allowed; removes shm:NAME */

/* Room for `bytes`; *n as kvt_extents_take. KVT_FULL. `keep_free` units stay free (staging for
 * loads is not for puts). */
enum kvt_status kvt_arena_take(struct kvt_arena *a, uint64_t bytes, uint64_t keep_free,
	struct kvt_extent *out, uint32_t *n) KVT_MUST_CHECK;
void kvt_arena_give(struct kvt_arena *a, const struct kvt_extent *runs, uint32_t n);

/* Addresses of `bytes` in these runs, one segment per run. */
void kvt_arena_segments(const struct kvt_arena *a, const struct kvt_extent *runs, uint32_t n,
	uint64_t bytes, struct kvt_segment *out);

void *kvt_arena_base(const struct kvt_arena *a);
uint64_t kvt_arena_capacity(const struct kvt_arena *a); /* bytes */
uint64_t kvt_arena_used(const struct kvt_arena *a);     /* bytes, whole units */
/* Bytes that memory or a device's registration occupies, to within 1/256 of the capacity: looks at pages that are
 * spread evenly, about 0.1 ms. */
uint64_t kvt_arena_resident(const struct kvt_arena *a);
const char *kvt_arena_mode(const struct kvt_arena *a);   /* "anon", "anon-thp", "hugetlb", "shm", "fd" */
const char *kvt_arena_reason(const struct kvt_arena *a); /* "" or what could not be had */
uint64_t kvt_arena_bookkeeping(const struct kvt_arena *a); /* bytes */

#endif
