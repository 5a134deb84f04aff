/*
 * folder.c - creates, lists, locks and tests a store's folder by system calls.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/folder.h"

#define PROBE_NAME  ".kvtier-probe"
#define ZERO_BYTES  (1u << 20)
#define PROBE_BYTES KVT_DIRECT_MAX_ALIGNMENT

/* --- creation
 * ---------------------------------------------------------------------------------- */

/* Creates `path`, and makes it durable in its parent. Returns 0 or errno; it is no error if the
 * path exists. */
static int make_one(char *path)
{
	char *slash = strrchr(path, '/');
	int parent, error = 0;

	if (mkdir(path, 0700) != 0)
		return errno == EEXIST ? 0 : errno;
	if (slash == NULL) {
		parent = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	} else {
		*slash = '\0';
		parent = open(slash == path ? "/" : path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		*slash = '/';
	}
	if (parent < 0)
		/* the parent may allow access but not reading, so it cannot be opened to be
		 * synced */
		return errno == EACCES ? 0 : errno;
	if (fsync(parent) != 0 && errno != EINVAL)
		error = errno;
	(void)close(parent);
	return error;
}

static int make_all(char *path)
{
	size_t len = strlen(path);
	int error = 0;

	while (len > 1 && path[len - 1] == '/')
		path[--len] = '\0';
	for (char *p = path + 1; error == 0 && *p != '\0'; p++) {
		if (*p != '/' || p[-1] == '/')
			continue;
		*p = '\0';
		error = make_one(path);
		*p = '/';
		/* The parent exists, and may be on a read-only file system or belong to another
		 * user. */
		if (error == EROFS || error == EACCES || error == EPERM)
			error = 0;
	}
	return error == 0 ? make_one(path) : error;
}

int kvt_folder_open(const char *path)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
	int fd = open(path, flags), error;
	char *copy;

	if (fd >= 0 || errno != ENOENT || path[0] == '\0')
		return fd;
	copy = strdup(path);
	if (copy == NULL)
		return -1;
	error = make_all(copy);
	free(copy);
	if (error != 0) {
		errno = error;
		return -1;
	}
	return open(path, flags);
}

/* --- list
 * -------------------------------------------------------------------------------------- */

static bool is_file(int folder, const struct dirent *entry)
{
	struct stat st;

	if (entry->d_type != DT_UNKNOWN)
		return entry->d_type == DT_REG;
	return fstatat(folder, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

int kvt_folder_list(int folder, const char *except, void (*each)(void *self, const char *name),
	void *self)
{
	int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), error;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (dir == NULL) {
		error = errno;
		if (fd >= 0)
			(void)close(fd);
		return error;
	}
	for (errno = 0; (entry = readdir(dir)) != NULL; errno = 0)
		if (strcmp(entry->d_name, except) != 0 && is_file(fd, entry))
			each(self, entry->d_name);
	error = errno;
	(void)closedir(dir);
	return error;
}

/* --- lock
 * -------------------------------------------------------------------------------------- */

static int64_t read_pid(int fd)
{
	char text[24] = "";
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
	long long pid;

	if (n <= 0)
		return 0;
	text[n] = '\0';
	pid = strtoll(text, NULL, 10);
	return pid > 0 ? pid : 0;
}

int kvt_folder_lock(int folder, const char *name, int64_t *owner, int *error)
{
	struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd = openat(folder, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	char text[24];
	int len;

	*error = 0;
	if (fd < 0) {
		*error = errno;
		return -1;
	}
	if (fcntl(fd, F_OFD_SETLK, &all) != 0) {
		if (errno == EAGAIN || errno == EACCES)
			*owner = read_pid(fd);
		else
			*error = errno;
		(void)close(fd);
		return -1;
	}
	/* The pid is only for people, so the store opens even if a full disk does not take it. */
	len = snprintf(text, sizeof(text), "%lld\n", (long long)getpid());
	if ((ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)len, 0) != len) && ftruncate(fd, 0) != 0)
		errno = 0; /* if the pid is wrong it stays so: it is only for people */
	return fd;
}

bool kvt_folder_holds(int folder, const char *name, int lock)
{
	struct stat own, there;

	if (fstatat(folder, name, &there, AT_SYMLINK_NOFOLLOW) != 0)
		/* only these errors show that the file was removed; after others the lock counts as
		 * held */
		return errno != ENOENT && errno != ESTALE;
	return fstat(lock, &own) != 0 || (own.st_dev == there.st_dev && own.st_ino == there.st_ino);
}

void kvt_folder_unlock(int lock)
{
	if (ftruncate(lock, 0) != 0)
		/* the pid stays in the file, where no reader uses it while the lock is free */
		errno = 0;
	(void)close(lock);
}

/* --- O_DIRECT
 * ---------------------------------------------------------------------------------- */

static int open_probe(int folder)
{
	const int flags = O_RDWR | O_CLOEXEC | O_DIRECT;
	int fd = openat(folder, ".", flags | O_TMPFILE, 0600);

	if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT))
		return fd;
	(void)unlinkat(folder, PROBE_NAME, 0);
	fd = openat(folder, PROBE_NAME, flags | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
	if (fd >= 0)
		(void)unlinkat(folder, PROBE_NAME, 0);
	return fd;
}

void kvt_folder_probe(int folder, struct kvt_direct *out)
{
	int fd = open_probe(folder);
	void *block = NULL;

	*out = (struct kvt_direct){.alignment = 1, .reason = "the file system refuses it"};
	if (fd < 0) {
		if (errno != EINVAL)
			/* the folder cannot be written to, so the file system decides */
			kvt_direct_look(folder, out);
		return;
	}
	kvt_direct_look(fd, out);
	if (out->direct && posix_memalign(&block, PROBE_BYTES, out->alignment) == 0) {
		memset(block, 0, out->alignment);
		if (pwrite(fd, block, out->alignment, 0) < 0 && errno == EINVAL)
			*out = (struct kvt_direct){
				.alignment = 1, .reason = "a write with it was refused"};
		free(block);
	}
	(void)close(fd);
}

/* --- allocation
 * -------------------------------------------------------------------------------- */

/* Writes through the page cache, because `from` may not be aligned. */
static int write_zeros(int fd, uint64_t from, uint64_t to)
{
	int flags = fcntl(fd, F_GETFL), error = 0;
	void *zeros = calloc(1, ZERO_BYTES);

	if (zeros == NULL)
		return ENOMEM;
	if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_DIRECT) != 0)
		error = errno;
	while (error == 0 && from < to) {
		uint64_t left = to - from;
		ssize_t n = pwrite(fd, zeros, left < ZERO_BYTES ? left : ZERO_BYTES, (off_t)from);

		if (n > 0)
			from += (uint64_t)n;
		else if (n == 0 || errno != EINTR)
			error = n == 0 ? ENOSPC : errno;
	}
	if (flags >= 0 && fcntl(fd, F_SETFL, flags) != 0 && error == 0)
		error = errno;
	free(zeros);
	return error;
}

int kvt_folder_reserve(int fd, uint64_t bytes)
{
	struct stat st;
	int error = 0;

	if (bytes > INT64_MAX)
		return EFBIG;
	if (fstat(fd, &st) != 0)
		return errno;
	if (bytes > 0) {
		do {
			error = fallocate(fd, 0, 0, (off_t)bytes) == 0 ? 0 : errno;
		} while (error == EINTR);
		if (error == EOPNOTSUPP)
			error = write_zeros(fd, (uint64_t)st.st_size, bytes);
	}
	if (error == 0 && (bytes == 0 || (uint64_t)st.st_size > bytes))
		error = ftruncate(fd, (off_t)bytes) == 0 ? 0 : errno;
	else if (error != 0 && (uint64_t)st.st_size <= bytes && ftruncate(fd, st.st_size) != 0)
		/* giving back the allocated blocks may fail, too; the first error is the one that
		 * counts */
		errno = 0;
	return error;
}
