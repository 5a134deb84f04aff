/*
 * own_file.c - opens a user's side files in folders that all users write to.
 *
 * In a folder with the sticky bit (/dev/shm, /tmp) other users can create a name first, but can
 * neither replace nor rename this user's entries: so this file checks the folder once, and paths
 * below it stay unchanged.
 */
#include "memory/own_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool cannot(const char *path, char why[KVT_REASON_BYTES])
{
	snprintf(why, KVT_REASON_BYTES, "%.90s: %s", path, strerror(errno));
	return false;
}

/* Returns whether the entry is of this kind (S_IFDIR or S_IFREG), belongs to this user, and admits
 * no other. */
static bool is_own(const char *path, const struct stat *st, mode_t kind, char why[KVT_REASON_BYTES])
{
	if ((st->st_mode & S_IFMT) != kind)
		snprintf(why, KVT_REASON_BYTES, "%.90s is no %s: remove it", path,
			kind == S_IFDIR ? "folder" : "file");
	else if (st->st_uid != geteuid())
		snprintf(why, KVT_REASON_BYTES,
			"%.90s belongs to another user (uid %u): remove it", path,
			(unsigned)st->st_uid);
	else if ((st->st_mode & 077) != 0)
		snprintf(why, KVT_REASON_BYTES,
			"%.90s is open to other users (mode %o): chmod go= it", path,
			(unsigned)st->st_mode & 0777);
	else
		return true;
	return false;
}

bool kvt_own_folder(const char *parent, char *path, size_t room, char why[KVT_REASON_BYTES])
{
	int n = snprintf(path, room, "%s/kvtier-%u", parent, (unsigned)geteuid());
	struct stat st;

	if (n < 0 || (size_t)n >= room) {
		snprintf(why, KVT_REASON_BYTES, "%.90s: the path is too long", parent);
		return false;
	}
	if ((mkdir(path, 0700) != 0 && errno != EEXIST) || lstat(path, &st) != 0)
		return cannot(path, why);
	return is_own(path, &st, S_IFDIR, why);
}

int kvt_own_file(const char *path, char why[KVT_REASON_BYTES])
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	struct stat st;

	if (fd < 0 && lstat(path, &st) == 0 && !is_own(path, &st, S_IFREG, why))
		return -1; /* `why` already has the cause */
	if (fd < 0 || fstat(fd, &st) != 0)
		(void)cannot(path, why);
	else if (is_own(path, &st, S_IFREG, why))
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}
