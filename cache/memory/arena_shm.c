/*
 * arena_shm.c - a named segment of POSIX shared memory with one living owner.
 *
 * The owner holds a lock (flock) on the segment's file as long as it lives; the kernel releases the
 * lock however the process ends. kvtier takes an existing name over only if it gets the lock: then
 * the owner is dead, and a new segment replaces the old one. The old segment is never reused:
 * processes that still map it keep the old bytes, and do not see the new ones.
 *
 * Another process may open a file between its creation and its lock. So each process checks, once
 * it has the lock, that the name still belongs to this file, and otherwise begins again.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "memory/arena_map.h"

#define TRIES      16
/* bytes that are allocated in one call: a signal then undoes only this much */
#define FILL_BYTES ((uint64_t)1 << 30)

static bool name_is_good(const char *name)
{
	size_t len = strlen(name);

	return len > 0 && len < KVT_SHM_NAME_BYTES - 1 && len < NAME_MAX && name[0] != '.' &&
	       strchr(name, '/') == NULL;
}

/* Returns whether the name belongs to the file that is open as fd. */
static bool is_named(const char *name, int fd)
{
	struct stat ours, named;
	int other = shm_open(name, O_RDONLY | O_CLOEXEC, 0);
	bool same = other >= 0 && fstat(fd, &ours) == 0 && fstat(other, &named) == 0 &&
		    ours.st_dev == named.st_dev && ours.st_ino == named.st_ino;

	if (other >= 0)
		close(other);
	return same;
}

/* Tries once to create the name; KVT_BUSY: another process changed it meanwhile. */
static enum kvt_status make(const char *name, int *out)
{
	int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0)
		return errno == EEXIST ? KVT_EXISTS : KVT_EIO;
	if (flock(fd, LOCK_EX | LOCK_NB) != 0 || !is_named(name, fd)) {
		close(fd);
		return KVT_BUSY;
	}
	*out = fd;
	return KVT_OK;
}

/* Removes a dead owner's segment. */
static enum kvt_status remove_stale(const char *name)
{
	enum kvt_status status = KVT_OK;
	int fd = shm_open(name, O_RDWR | O_CLOEXEC, 0);

	if (fd < 0)
		return errno == ENOENT ? KVT_OK : KVT_EIO;
	if (flock(fd, LOCK_EX | LOCK_NB) != 0)
		status = errno == EWOULDBLOCK ? KVT_ELOCKED : KVT_EIO;
	else if (is_named(name, fd) && shm_unlink(name) != 0)
		status = KVT_EIO;
	close(fd);
	return status;
}

enum kvt_status kvt_arena_shm_create(
	struct kvt_arena_map *map, const struct kvt_surroundings *s, const char *name)
{
	enum kvt_status status = KVT_EXISTS;
	bool stale = false;

	if (!name_is_good(name)) {
		kvt_arena_refused(map, s, "shm: %.60s is no name of a segment", name);
		return KVT_EINVAL;
	}
	snprintf(map->shm_name, sizeof(map->shm_name), "/%s", name);
	for (int i = 0; i < TRIES && (status == KVT_EXISTS || status == KVT_BUSY); i++) {
		status = make(map->shm_name, &map->shm_fd);
		if (status != KVT_EXISTS)
			continue;
		status = remove_stale(map->shm_name);
		stale = stale || status == KVT_OK;
		if (status == KVT_OK)
			status = KVT_EXISTS; /* the name is gone, so that it can be created */
	}
	if (status == KVT_ELOCKED)
		kvt_arena_refused(map, s, "shm: another process lives on %s", map->shm_name);
	else if (status != KVT_OK)
		kvt_arena_refused(map, s, "shm: %s: %s", map->shm_name, strerror(errno));
	else if (stale)
		kvt_note(s, KVT_LOG_INFO, "shm: %s was left by a dead process: created again",
			map->shm_name);
	return status == KVT_EXISTS || status == KVT_BUSY ? KVT_EIO : status;
}

enum kvt_status kvt_arena_shm_fill(struct kvt_arena_map *map, const struct kvt_surroundings *s)
{
	struct statvfs fs;
	uint64_t room;

	if (fstatvfs(map->shm_fd, &fs) == 0 && fs.f_blocks > 0) {
		room = (uint64_t)fs.f_bavail * fs.f_frsize;
		if (room < map->bytes) {
			kvt_arena_refused(map, s, "shm: %s needs %llu bytes, %llu are free",
				map->shm_name, (unsigned long long)map->bytes,
				(unsigned long long)room);
			return KVT_ENOMEM;
		}
	}
	for (uint64_t at = 0; at < map->bytes;) {
		uint64_t n = map->bytes - at < FILL_BYTES ? map->bytes - at : FILL_BYTES;
		int error = posix_fallocate(map->shm_fd, (off_t)at, (off_t)n);

		if (error == EINTR)
			continue;
		if (error != 0) {
			kvt_arena_refused(map, s, "shm: %s: %s", map->shm_name, strerror(error));
			return error == ENOSPC || error == ENOMEM ? KVT_ENOMEM : KVT_EIO;
		}
		at += n;
	}
	return KVT_OK;
}

void kvt_arena_shm_remove(struct kvt_arena_map *map)
{
	if (map->shm_fd < 0)
		return;
	if (is_named(map->shm_name, map->shm_fd))
		shm_unlink(map->shm_name);
	close(map->shm_fd);
	map->shm_fd = -1;
}
