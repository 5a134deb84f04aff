/*
 * file.c - reads a snapshot's file, only if it belongs to this user, and replaces it, only as a
 * whole.
 */
#include "state/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* PATH.new may be renamed by the process that holds its lock, so it is opened up to so many
 * times */
#define OPEN_TRIES 8

static enum kvw_err fail_file(char why[KVW_STATE_WHY], const char *what)
{
	(void)snprintf(why, KVW_STATE_WHY, "%s: %s", what, strerror(errno));
	return errno == ENOMEM ? KVW_ENOMEM : KVW_EIO;
}

static enum kvw_err refuse_file(char why[KVW_STATE_WHY], enum kvw_err err, const char *what)
{
	(void)snprintf(why, KVW_STATE_WHY, "%s", what);
	return err;
}

/* Checks that this is a plain file of this user that no other user could have written. */
static enum kvw_err check_owner(const struct stat *found, char why[KVW_STATE_WHY])
{
	if (!S_ISREG(found->st_mode))
		return refuse_file(why, KVW_EINVAL, "not a plain file");
	if (found->st_uid != geteuid()) {
		(void)snprintf(why, KVW_STATE_WHY, "belongs to user %u, kvway runs as user %u",
			(unsigned)found->st_uid, (unsigned)geteuid());
		return KVW_EINVAL;
	}
	if ((found->st_mode & (S_IWGRP | S_IWOTH)) != 0)
		return refuse_file(why, KVW_EINVAL, "other users may write it");
	return KVW_OK;
}

enum kvw_err kvw_state_file_open(const char *path, uint64_t most, int *fd, char why[KVW_STATE_WHY])
{
	int opened = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	enum kvw_err err;
	struct stat found;

	if (opened < 0 && errno == ENOENT)
		return KVW_ENOTFOUND;
	if (opened < 0 && errno == ELOOP)
		return refuse_file(why, KVW_EINVAL, "a symbolic link");
	if (opened < 0)
		return fail_file(why, "cannot open");
	err = fstat(opened, &found) != 0 ? fail_file(why, "cannot look at it")
					 : check_owner(&found, why);
	if (err == KVW_OK && (uint64_t)found.st_size > most) {
		(void)snprintf(why, KVW_STATE_WHY, "has %llu bytes, state.max_bytes is %llu",
			(unsigned long long)found.st_size, (unsigned long long)most);
		err = KVW_ELIMIT;
	}
	if (err != KVW_OK) {
		close(opened);
		return err;
	}
	*fd = opened;
	return KVW_OK;
}

/* Opens and locks PATH.new. KVW_ENOTFOUND: another process has renamed it meanwhile, so the caller
 * must try again. */
static enum kvw_err open_locked(const char *temporary, int *fd, char why[KVW_STATE_WHY])
{
	int opened =
		open(temporary, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	struct stat mine, there;
	enum kvw_err err;

	if (opened < 0)
		return fail_file(why, "cannot make PATH.new");
	if (fstat(opened, &mine) != 0)
		err = fail_file(why, "cannot look at PATH.new");
	else if (!S_ISREG(mine.st_mode) || mine.st_uid != geteuid() || mine.st_nlink > 1)
		err = refuse_file(why, KVW_EIO, "PATH.new is not kvway's");
	else if (flock(opened, LOCK_EX | LOCK_NB) != 0)
		err = errno == EWOULDBLOCK
			      ? refuse_file(why, KVW_EAGAIN, "another process writes it")
			      : fail_file(why, "cannot lock PATH.new");
	else if (stat(temporary, &there) != 0 || there.st_ino != mine.st_ino ||
		 there.st_dev != mine.st_dev)
		err = KVW_ENOTFOUND;
	else
		err = fchmod(opened, 0600) != 0 || ftruncate(opened, 0) != 0
			      ? fail_file(why, "cannot empty PATH.new")
			      : KVW_OK;
	if (err != KVW_OK) {
		close(opened);
		return err;
	}
	*fd = opened;
	return KVW_OK;
}

enum kvw_err kvw_state_file_begin(
	const char *path, struct kvw_state_file *file, char why[KVW_STATE_WHY])
{
	enum kvw_err err = KVW_ENOTFOUND;
	char *temporary;
	int fd = -1;

	if (asprintf(&temporary, "%s.new", path) < 0)
		return refuse_file(why, KVW_ENOMEM, "out of memory");
	(void)refuse_file(why, err, "other processes write it all the time");
	for (int i = 0; i < OPEN_TRIES && err == KVW_ENOTFOUND; i++)
		err = open_locked(temporary, &fd, why);
	if (err != KVW_OK) {
		free(temporary);
		return err == KVW_ENOTFOUND ? KVW_EAGAIN : err;
	}
	*file = (struct kvw_state_file){path, temporary, fd};
	return KVW_OK;
}

/* Returns the folder of a path; "." if the path has none. The caller frees the text; NULL: memory
 * is short. */
static char *folder_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	if (slash == NULL)
		return strdup(".");
	return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

static enum kvw_err sync_folder(const char *path, char why[KVW_STATE_WHY])
{
	char *folder = folder_of(path);
	int fd = folder == NULL ? -1 : open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	enum kvw_err err = KVW_OK;

	/* Some file systems cannot sync a folder and return these errors; there the rename needs no
	 * sync. */
	if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL && errno != EROFS))
		err = fail_file(why, "cannot sync its folder");
	if (fd >= 0)
		close(fd);
	free(folder);
	return err;
}

enum kvw_err kvw_state_file_commit(struct kvw_state_file *file, char why[KVW_STATE_WHY])
{
	enum kvw_err err;

	if (fsync(file->fd) != 0)
		err = fail_file(why, "cannot sync it");
	else if (rename(file->temporary, file->path) != 0)
		err = fail_file(why, "cannot rename it");
	else
		err = sync_folder(file->path, why);
	if (err != KVW_OK) {
		kvw_state_file_abandon(file);
		return err;
	}
	close(file->fd);
	free(file->temporary);
	return KVW_OK;
}

void kvw_state_file_abandon(struct kvw_state_file *file)
{
	/* The lock is held, so no other process has written there. */
	(void)unlink(file->temporary);
	close(file->fd);
	free(file->temporary);
}

bool kvw_state_file_may_write(const char *path, char why[KVW_STATE_WHY])
{
	char *folder = folder_of(path);
	struct stat found;
	bool may = false;

	if (folder == NULL)
		(void)refuse_file(why, KVW_ENOMEM, "out of memory");
	else if (stat(path, &found) == 0 && !S_ISREG(found.st_mode))
		(void)refuse_file(why, KVW_EINVAL, "not a plain file");
	else if (stat(folder, &found) != 0)
		(void)fail_file(why, "its folder");
	else if (!S_ISDIR(found.st_mode))
		(void)refuse_file(why, KVW_EINVAL, "its folder is none");
	else if (access(folder, W_OK | X_OK) != 0)
		(void)fail_file(why, "its folder");
	else
		may = true;
	free(folder);
	return may;
}
