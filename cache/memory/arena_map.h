/*
 * arena_map.h - the memory under an arena: one mapping, the best that the machine allows.
 *
 * A refused request (huge pages, lock, node) is logged and put into `reason`; only missing memory is an error. Not
 * thread-safe; any thread.
 */
#ifndef KVT_ARENA_MAP_H
#define KVT_ARENA_MAP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "memory/arena.h"

#define KVT_SHM_NAME_BYTES 256

struct kvt_arena_map {
	void *base;
	uint64_t bytes; /* a multiple of KVT_ARENA_UNIT, at most the requested size */
	char mode[32];  /* "anon", "anon-thp", "hugetlb", "shm", "fd" */
	char reason[KVT_REASON_BYTES];
	pid_t owner; /* a forked child does nothing to the mapping */
	int shm_fd;  /* holds the lock that shows that the owner lives; -1: not shm */
	char shm_name[KVT_SHM_NAME_BYTES]; /* including the '/' */
};

/* KVT_EINVAL: backing or size; KVT_ENOMEM; KVT_ELOCKED: another living process owns shm:NAME; KVT_EIO. */
enum kvt_status kvt_arena_map(const struct kvt_arena_options *options,
	const struct kvt_surroundings *s, struct kvt_arena_map *out) KVT_MUST_CHECK;
void kvt_arena_unmap(struct kvt_arena_map *map);

/* arena_refused.c: writes a line for the log that is also a reason. */
void kvt_arena_refused(struct kvt_arena_map *map, const struct kvt_surroundings *s,
	const char *format, ...) __attribute__((format(printf, 3, 4)));

/* arena_shm.c: creates map->shm_fd, a new segment of map->bytes bytes that no other process has, without room; then
 * allocates its room, so that a lack of room is an error now and not a SIGBUS later. */
enum kvt_status kvt_arena_shm_create(struct kvt_arena_map *map, const struct kvt_surroundings *s,
	const char *name) KVT_MUST_CHECK;
enum kvt_status kvt_arena_shm_fill(
	struct kvt_arena_map *map, const struct kvt_surroundings *s) KVT_MUST_CHECK;
void kvt_arena_shm_remove(struct kvt_arena_map *map);

#endif
