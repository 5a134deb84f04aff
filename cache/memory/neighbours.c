/*
 * neighbours.c - a file with a record for each open cache of a user on this machine.
 *
 * A record's owner holds a lock on its bytes (of an open file description, so that it ends with the
 * last process that has the file open). A record without a lock is free, whatever its contents. One
 * more lock, far beyond the records, covers reading the records and taking one: two caches that
 * open at once do not both count the same memory as free.
 *
 * Impossible numbers count as 0.
 */
#include "memory/neighbours.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "memory/own_file.h"

#define SLOTS       1024
#define GUARD       ((off_t)1 << 30) /* offset of the common lock */
#define GUARD_TRIES 20
#define PAUSE_NS    10000000
#define MOST_BYTES  ((uint64_t)1 << 50)

struct record {
	uint64_t bytes, touched;
	uint64_t engine; /* the same number for all ranks of one engine */
};

static bool lock_at(int fd, off_t at, off_t len, short type)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = len};

	return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

static off_t place_of(uint32_t slot)
{
	return (off_t)slot * (off_t)sizeof(struct record);
}

static bool is_live(int fd, uint32_t slot)
{
	struct flock lock = {.l_type = F_WRLCK,
		.l_whence = SEEK_SET,
		.l_start = place_of(slot),
		.l_len = (off_t)sizeof(struct record)};

	return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* Returns a number for an engine: its ranks are processes of one session, and have the same number
 * of siblings. */
static uint64_t engine_of(uint32_t ranks)
{
	return (uint64_t)getsid(0) << 32 | ranks;
}

static int open_file(const char *folder, char why[KVT_REASON_BYTES])
{
	char own[256], path[300];

	if (!kvt_own_folder(folder != NULL ? folder : "/dev/shm", own, sizeof(own), why))
		return -1;
	snprintf(path, sizeof(path), "%s/caches", own);
	return kvt_own_file(path, why);
}

static void wait_for_guard(int fd)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};

	for (int i = 0; i < GUARD_TRIES && !lock_at(fd, GUARD, 1, F_WRLCK); i++)
		(void)nanosleep(&pause, NULL);
}

void kvt_neighbours_look(
	struct kvt_neighbours *n, const char *folder, uint32_t ranks, struct kvt_machine *m)
{
	struct record r;

	*n = (struct kvt_neighbours){.fd = -1};
	n->fd = open_file(folder, n->why);
	m->ranks = ranks;
	m->siblings = m->others = 0;
	m->untouched = 0;
	if (n->fd < 0)
		return;
	wait_for_guard(n->fd);
	for (uint32_t i = 0; i < SLOTS && pread(n->fd, &r, sizeof(r), place_of(i)) == (ssize_t)sizeof(r);
		i++) {
		if (r.bytes == 0 || !is_live(n->fd, i))
			continue;
		m->others++;
		m->siblings += r.engine == engine_of(ranks);
		if (r.bytes <= MOST_BYTES && r.touched < r.bytes)
			m->untouched += r.bytes - r.touched;
	}
}

void kvt_neighbours_enter(struct kvt_neighbours *n, uint32_t ranks, uint64_t bytes)
{
	struct record r = {.bytes = bytes, .engine = engine_of(ranks)};

	if (n->fd < 0)
		return;
	for (n->slot = 0; bytes >= KVT_NEIGHBOURS_LEAST && n->slot < SLOTS; n->slot++) {
		if (!lock_at(n->fd, place_of(n->slot), (off_t)sizeof(r), F_WRLCK))
			continue;
		if (pwrite(n->fd, &r, sizeof(r), place_of(n->slot)) != (ssize_t)sizeof(r))
			break;
		(void)lock_at(n->fd, GUARD, 1, F_UNLCK);
		return;
	}
	kvt_neighbours_leave(n);
}

void kvt_neighbours_touch(struct kvt_neighbours *n, uint64_t touched)
{
	off_t at = place_of(n->slot) + (off_t)offsetof(struct record, touched);

	if (n->fd >= 0 && touched != n->touched &&
		pwrite(n->fd, &touched, sizeof(touched), at) == (ssize_t)sizeof(touched))
		n->touched = touched;
}

void kvt_neighbours_leave(struct kvt_neighbours *n)
{
	if (n->fd >= 0)
		close(n->fd); /* the close releases every lock */
	n->fd = -1;
}
