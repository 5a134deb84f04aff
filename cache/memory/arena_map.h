/*
 * arena_map.h - maps the memory under an arena, as well as the machine allows.
 *
 * A refused request (huge pages, lock, node) is logged and put into `reason`; only missing memory
 * is an error. Not thread-safe; any thread.
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
	pid_t owner; /* the process that made it: a forked child does nothing to the mapping */
	/* file that holds the lock by which others see that the owner lives; -1: not shm */
	int shm_fd;
	char shm_name[KVT_SHM_NAME_BYTES]; /* including the '/' */
};

/* Maps the memory. KVT_EINVAL: backing or size; KVT_ENOMEM; KVT_ELOCKED: another living process
 * owns shm:NAME; KVT_EIO. */
enum kvt_status kvt_arena_map(const struct kvt_arena_options *options,
	const struct kvt_surroundings *s, struct kvt_arena_map *out) KVT_MUST_CHECK;
void kvt_arena_unmap(struct kvt_arena_map *map);

/* Logs a line about a refused request, and puts it into the map's reason (arena_refused.c). */
void kvt_arena_refused(struct kvt_arena_map *map, const struct kvt_surroundings *s,
	const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Creates map->shm_fd, a new segment of map->bytes bytes that no other process has, without memory;
 * then allocates its memory, so that too little memory is an error now and not a SIGBUS later
 * (arena_shm.c). */
enum kvt_status kvt_arena_shm_create(struct kvt_arena_map *map, const struct kvt_surroundings *s,
	const char *name) KVT_MUST_CHECK;
enum kvt_status kvt_arena_shm_fill(
	struct kvt_arena_map *map, const struct kvt_surroundings *s) KVT_MUST_CHECK;
void kvt_arena_shm_remove(struct kvt_arena_map *map);

#endif
