/*
 * arena_map.c - maps an arena's memory: anonymous, of huge pages, or shared; then sets its
 * properties, one by one.
 *
 * The order matters. The node is chosen before any page is touched, since pages stay on their node;
 * then a shared segment gets its memory allocated, and locking comes last, because it touches all
 * pages.
 *
 * The node is a preference (MPOL_PREFERRED) and no binding: with a binding a node that runs out of
 * memory ends the process, with huge pages by SIGBUS. Pages of hugetlbfs are touched at once for
 * the same reason: a reservation does not cover the limit of a cgroup. Anonymous pages are not
 * touched: the kernel provides them as chunks arrive. This file never grows, cuts, fills or unlinks
 * the caller's file (fd:N): other processes may be reading it.
 *
 * A forked child does not inherit private memory (MADV_DONTFORK): a device may be writing there,
 * and copies on write would move the pages. No part of the arena enters a core file.
 */
#include "memory/arena_map.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HUGE_BYTES     ((uint64_t)2 << 20) /* a transparent huge page's alignment */
#define NODES          1024
#define BITS           (8 * sizeof(unsigned long))
#define PREFERRED_NODE 1 /* MPOL_PREFERRED of linux/mempolicy.h */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Reads the first number after `name` in a file of "name value" lines; 0: there is none. */
static uint64_t number_in(const char *path, const char *name)
{
	uint64_t value = 0;
	FILE *file = fopen(path, "re");
	char line[256];

	if (file == NULL)
		return 0;
	while (fgets(line, sizeof(line), file) != NULL) {
		if (strncmp(line, name, strlen(name)) == 0) {
			(void)sscanf(line + strlen(name), "%lu", &value);
			break;
		}
	}
	fclose(file);
	return value;
}

/* Returns whether transparent huge pages are off in the whole machine. */
static bool thp_is_off(void)
{
	FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
	char line[128] = "";
	bool off;

	if (file == NULL)
		return false;
	off = fgets(line, sizeof(line), file) != NULL && strstr(line, "[never]") != NULL;
	fclose(file);
	return off;
}

/* Maps private memory for the arena, aligned for huge pages. */
static enum kvt_status map_aligned(
	struct kvt_arena_map *map, const struct kvt_surroundings *s, int protection)
{
	uint64_t room = map->bytes + HUGE_BYTES, before, after;
	char *at = mmap(NULL, room, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED) {
		kvt_arena_refused(
			map, s, "%llu bytes: %s", (unsigned long long)map->bytes, strerror(errno));
		return KVT_ENOMEM;
	}
	before = -(uintptr_t)at % HUGE_BYTES;
	after = room - before - map->bytes;
	if (before > 0)
		munmap(at, before);
	if (after > 0)
		munmap(at + before + map->bytes, after);
	map->base = at + before;
	return KVT_OK;
}

static enum kvt_status map_anon(struct kvt_arena_map *map, const struct kvt_surroundings *s)
{
	enum kvt_status status = map_aligned(map, s, PROT_READ | PROT_WRITE);

	if (status != KVT_OK)
		return status;
	strcpy(map->mode, "anon");
	if (madvise(map->base, map->bytes, MADV_HUGEPAGE) != 0)
		kvt_arena_refused(map, s, "huge pages: %s", strerror(errno));
	else if (thp_is_off())
		kvt_arena_refused(map, s, "huge pages: switched off in this machine");
	else
		strcpy(map->mode, "anon-thp");
	return KVT_OK;
}

static void prefer_node(struct kvt_arena_map *map, const struct kvt_surroundings *s, int node)
{
	unsigned long mask[NODES / BITS] = {0};

	if (node < 0)
		return;
	if (node >= NODES) {
		kvt_arena_refused(map, s, "NUMA node %d: there is none", node);
		return;
	}
	mask[(size_t)node / BITS] |= 1UL << (size_t)node % BITS;
	if (syscall(SYS_mbind, map->base, map->bytes, PREFERRED_NODE, mask, NODES + 1UL, 0UL) != 0)
		kvt_arena_refused(map, s, "NUMA node %d: %s", node, strerror(errno));
}

/* Maps hugetlbfs pages. KVT_MISS: too few huge pages. */
static enum kvt_status map_hugetlb(
	struct kvt_arena_map *map, const struct kvt_surroundings *s, int numa_node)
{
	uint64_t page = number_in("/proc/meminfo", "Hugepagesize:") * 1024;
	uint64_t bytes = page >= KVT_ARENA_UNIT ? map->bytes / page * page : 0, asked = map->bytes;
	void *at;

	if (bytes == 0) {
		kvt_arena_refused(map, s, "hugetlb: %s; anonymous memory instead",
			page == 0 ? "not in this kernel" : "less than one page asked for");
		return KVT_MISS;
	}
	at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB,
		-1, 0);
	if (at == MAP_FAILED) {
		kvt_arena_refused(map, s, "hugetlb: %llu bytes: %s; anonymous memory instead",
			(unsigned long long)bytes, strerror(errno));
		return KVT_MISS;
	}
	map->base = at;
	map->bytes = bytes;
	prefer_node(map, s, numa_node);
	if (madvise(at, bytes, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
		kvt_arena_refused(map, s, "hugetlb: %s; anonymous memory instead", strerror(errno));
		munmap(at, bytes);
		map->base = NULL;
		map->bytes = asked;
		return KVT_MISS;
	}
	strcpy(map->mode, "hugetlb");
	return KVT_OK;
}

static enum kvt_status map_shm(struct kvt_arena_map *map, const struct kvt_surroundings *s,
	const char *name, int numa_node)
{
	enum kvt_status status = kvt_arena_shm_create(map, s, name);

	if (status != KVT_OK)
		return status;
	if (ftruncate(map->shm_fd, (off_t)map->bytes) != 0) {
		kvt_arena_refused(map, s, "shm: %s: %s", map->shm_name, strerror(errno));
		return KVT_EIO;
	}
	/* reserves the addresses that the segment then takes */
	status = map_aligned(map, s, PROT_NONE);
	if (status != KVT_OK)
		return status;
	if (mmap(map->base, map->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, map->shm_fd,
		    0) == MAP_FAILED) {
		kvt_arena_refused(map, s, "shm: %s: %s", map->shm_name, strerror(errno));
		return KVT_ENOMEM;
	}
	strcpy(map->mode, "shm");
	/* mostly without effect, since most machines do not allow huge pages for tmpfs */
	(void)madvise(map->base, map->bytes, MADV_HUGEPAGE);
	prefer_node(map, s, numa_node);
	return kvt_arena_shm_fill(map, s);
}

/* Returns the N of "fd:N". -1: another text. */
static int fd_named(const char *text)
{
	char *end;
	long n;

	if (text[0] < '0' || text[0] > '9')
		return -1;
	errno = 0;
	n = strtol(text, &end, 10);
	return errno == 0 && *end == '\0' && n <= INT_MAX ? (int)n : -1;
}

/* Maps a file of the caller, whose memory is allocated, and does not change it. */
static enum kvt_status map_fd(struct kvt_arena_map *map, const struct kvt_surroundings *s,
	const char *text, int numa_node)
{
	int fd = fd_named(text);
	enum kvt_status status;
	struct stat file;

	if (fd < 0 || fstat(fd, &file) != 0 || !S_ISREG(file.st_mode)) {
		kvt_arena_refused(map, s, "fd:%.20s is no open file", text);
		return KVT_EINVAL;
	}
	if ((uint64_t)file.st_size < map->bytes) {
		kvt_arena_refused(map, s, "fd:%d has %llu bytes, not %llu", fd,
			(unsigned long long)file.st_size, (unsigned long long)map->bytes);
		return KVT_EINVAL;
	}
	/* reserves the addresses that the file then takes */
	status = map_aligned(map, s, PROT_NONE);
	if (status != KVT_OK)
		return status;
	if (mmap(map->base, map->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
		MAP_FAILED) {
		status = errno == EACCES ? KVT_EINVAL : KVT_ENOMEM;
		kvt_arena_refused(map, s, "fd:%d: %s", fd, strerror(errno));
		return status;
	}
	strcpy(map->mode, "fd");
	/* mostly without effect, since most machines do not allow huge pages for tmpfs */
	(void)madvise(map->base, map->bytes, MADV_HUGEPAGE);
	prefer_node(map, s, numa_node);
	return KVT_OK;
}

static enum kvt_status map_backing(struct kvt_arena_map *map, const struct kvt_surroundings *s,
	const struct kvt_arena_options *options)
{
	const char *backing = options->backing != NULL ? options->backing : "anon";
	enum kvt_status status = KVT_MISS;

	if (strncmp(backing, "shm:", 4) == 0)
		return map_shm(map, s, backing + 4, options->numa_node);
	if (strncmp(backing, "fd:", 3) == 0)
		return map_fd(map, s, backing + 3, options->numa_node);
	if (strcmp(backing, "hugetlb") == 0)
		status = map_hugetlb(map, s, options->numa_node);
	else if (strcmp(backing, "anon") != 0) {
		kvt_arena_refused(map, s, "backing %.60s is not known", backing);
		return KVT_EINVAL;
	}
	if (status == KVT_MISS) {
		status = map_anon(map, s);
		if (status == KVT_OK)
			prefer_node(map, s, options->numa_node);
	}
	if (status == KVT_OK && madvise(map->base, map->bytes, MADV_DONTFORK) != 0)
		kvt_arena_refused(map, s, "keeping from forks: %s", strerror(errno));
	return status;
}

enum kvt_status kvt_arena_map(const struct kvt_arena_options *options,
	const struct kvt_surroundings *s, struct kvt_arena_map *out)
{
	struct kvt_arena_map map = {
		.bytes = options->bytes / KVT_ARENA_UNIT * KVT_ARENA_UNIT,
		.owner = getpid(),
		.shm_fd = -1,
	};
	enum kvt_status status;

	if (map.bytes == 0 || map.bytes / KVT_ARENA_UNIT >= UINT32_MAX) {
		kvt_arena_refused(&map, s, "%llu bytes are no size for an arena",
			(unsigned long long)options->bytes);
		return KVT_EINVAL;
	}
	status = map_backing(&map, s, options);
	if (status != KVT_OK) {
		kvt_arena_unmap(&map);
		return status;
	}
	if (madvise(map.base, map.bytes, MADV_DONTDUMP) != 0)
		kvt_arena_refused(&map, s, "keeping out of core files: %s", strerror(errno));
	if (options->lock && mlock(map.base, map.bytes) != 0)
		kvt_arena_refused(&map, s, "lock: %s", strerror(errno));
	*out = map;
	return KVT_OK;
}

void kvt_arena_unmap(struct kvt_arena_map *map)
{
	if (getpid() != map->owner) {
		if (map->shm_fd >= 0)
			close(map->shm_fd);
		return;
	}
	if (map->base != NULL)
		munmap(map->base, map->bytes);
	kvt_arena_shm_remove(map);
}
