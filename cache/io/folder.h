/*
 * folder.h - actions on a folder that take several system calls: creation with its parents, list,
 * lock, and a test of O_DIRECT. Errors are errno values.
 */
#ifndef KVT_FOLDER_H
#define KVT_FOLDER_H

#include <stdint.h>

#include "io/direct.h"

/* Returns a descriptor of the folder, which is created durably with mode 0700 if missing, like its
 * missing parents. -1 with errno. */
int kvt_folder_open(const char *path);

/* Calls each() with the name of every regular file except `except`. */
int kvt_folder_list(int folder, const char *except, void (*each)(void *self, const char *name),
	void *self);

/* Locks the file `name` and writes the pid into it. Returns -1 on failure: *error is errno, or 0 if
 * another process has the lock; then *owner is its pid, 0 if unknown. */
int kvt_folder_lock(int folder, const char *name, int64_t *owner, int *error);
/* Returns whether the file of that name in the folder is still the locked one. */
bool kvt_folder_holds(int folder, const char *name, int lock);
void kvt_folder_unlock(int lock);

/* Tests O_DIRECT: writes a block into a file without a name, and notes how the file behaves. */
void kvt_folder_probe(int folder, struct kvt_direct *out);

/* Sets the length of a file to `bytes`, with all blocks allocated. If the file system cannot
 * allocate blocks in advance, writes zeros into the new part. */
int kvt_folder_reserve(int fd, uint64_t bytes);

#endif
