/*
 * folder.h - system calls on a folder that take more than one: made with its parents, listed,
 * locked, and asked what O_DIRECT means in it. Errors are errno values.
 */
#ifndef KVT_FOLDER_H
#define KVT_FOLDER_H

#include <stdint.h>

#include "io/direct.h"

/* Descriptor of the folder, which is made with mode 0700, durably, as are missing parents. -1 with
 * errno. */
int kvt_folder_open(const char *path);

/* Calls each() for every regular file but `except`. */
int kvt_folder_list(int folder, const char *except, void (*each)(void *self, const char *name),
	void *self);

/* Takes the lock in the file `name` and writes the pid into it. -1: *error is errno, or 0 if
 * another process has it: *owner is its pid, 0 if unknown. */
int kvt_folder_lock(int folder, const char *name, int64_t *owner, int *error);
/* Is the lock the file of that name in the folder still? */
bool kvt_folder_holds(int folder, const char *name, int lock);
void kvt_folder_unlock(int lock);

/* Writes a block with O_DIRECT into a file without a name and looks at what became of it. */
void kvt_folder_probe(int folder, struct kvt_direct *out);

/* Length becomes `bytes`, all blocks allocated. Where the file system cannot allocate ahead, what
 * was not there before is written with zeros. */
int kvt_folder_reserve(int fd, uint64_t bytes);

#endif
