/*
 * kvtierd_segment.c - maps the daemon's segment, maps it again when the name has another one, and
 * copies from it.
 */
#include "tiers/kvtierd/kvtierd_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FEW_PIECES 32

enum kvt_status kvtierd_segment_init(struct kvtierd_segment *g, const char *name)
{
	*g = (struct kvtierd_segment){.fd = -1};
	if (name[0] == '/')
		name++;
	if (name[0] == '\0' || strlen(name) > NAME_MAX || strchr(name, '/') != NULL ||
		strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return KVT_EINVAL;
	(void)snprintf(g->path, sizeof(g->path), "/dev/shm/%s", name);
	return KVT_OK;
}

static void detach(struct kvtierd_segment *g)
{
	if (g->map != NULL)
		(void)munmap(g->map, g->bytes);
	if (g->fd >= 0)
		(void)close(g->fd);
	g->map = NULL;
	g->fd = -1;
	g->bytes = 0;
}

void kvtierd_segment_finish(struct kvtierd_segment *g)
{
	detach(g);
}

static enum kvt_status refuse(struct kvtierd_segment *g, const char *what, int error)
{
	char text[64];

	(void)snprintf(g->why, sizeof(g->why), "%s %.*s: %s", what, 80, g->path,
		strerror_r(error, text, sizeof(text)));
	return KVT_EIO;
}

static enum kvt_status attach(struct kvtierd_segment *g)
{
	int fd = open(g->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;
	void *map;
	int error;

	if (fd < 0)
		return refuse(g, "open", errno);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size <= 0) {
		(void)close(fd);
		return refuse(g, "no shared memory (or empty):", EINVAL);
	}
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) {
		error = errno;
		(void)close(fd);
		return refuse(g, "map", error);
	}
	(void)madvise(map, (size_t)st.st_size, MADV_DONTDUMP);
	detach(g);
	g->fd = fd;
	g->map = map;
	g->bytes = (uint64_t)st.st_size;
	g->device = st.st_dev;
	g->inode = st.st_ino;
	g->generation++;
	return KVT_OK;
}

static bool has_length(const struct kvtierd_segment *g, const struct stat *st)
{
	return st->st_size >= 0 && (uint64_t)st->st_size == g->bytes;
}

enum kvt_status kvtierd_segment_refresh(struct kvtierd_segment *g)
{
	struct stat st;
	enum kvt_status status;

	if (stat(g->path, &st) == 0) {
		if (g->fd >= 0 && st.st_dev == g->device && st.st_ino == g->inode &&
			has_length(g, &st))
			return KVT_OK;
		status = attach(g);
		if (status != KVT_OK)
			detach(g); /* the daemon's leases no longer refer to the old segment */
		return status;
	}
	if (g->fd < 0)
		return refuse(g, "open", errno);
	if (fstat(g->fd, &st) == 0 && has_length(g, &st))
		return KVT_OK; /* the segment lost its name, but the daemon still uses it */
	detach(g);
	return refuse(g, "open", ENOENT);
}

/* Finds the runs of memory that hold the leased object from byte `from` on. */
static size_t cut(const struct kvtierd_segment *g, const struct kvtierd_lease *lease, uint64_t from,
	struct kvt_segment *out)
{
	size_t n = 0;

	for (uint32_t i = 0; i < lease->count; i++) {
		struct kvtierd_piece p = lease->pieces[i];

		if (from >= p.bytes) {
			from -= p.bytes;
			continue;
		}
		out[n++] = (struct kvt_segment){
			.base = (char *)g->map + p.offset + from, .bytes = p.bytes - from};
		from = 0;
	}
	return n;
}

enum kvt_status kvtierd_segment_take(const struct kvtierd_segment *g,
	const struct kvtierd_lease *lease, uint64_t from, uint64_t bytes,
	const struct kvt_segment *to, size_t to_count, struct kvt_checksum *sum)
{
	struct kvt_segment few[FEW_PIECES], *source = few;
	enum kvt_status status = KVT_OK;
	size_t count;

	if (from > lease->bytes || bytes > lease->bytes - from ||
		!kvtierd_lease_fits(lease, g->bytes))
		return KVT_ECORRUPT;
	if (lease->count > FEW_PIECES) {
		source = calloc(lease->count, sizeof(source[0]));
		if (source == NULL)
			return KVT_ENOMEM;
	}
	count = cut(g, lease, from, source);
	if (kvt_checksum_take(to, to_count, source, count, bytes, sum) != bytes)
		status = KVT_ECORRUPT;
	if (source != few)
		free(source);
	return status;
}
