/*
 * own_file.h - opens a user's side files, PARENT/kvtier-UID/NAME, in folders that all users write
 * to.
 *
 * The folder has mode 0700. Folder and files must belong to the user and admit no other user;
 * otherwise kvtier does not use them, and `why` (KVT_REASON_BYTES) names the path and a remedy.
 */
#ifndef KVT_OWN_FILE_H
#define KVT_OWN_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "kvtier/kvtier.h"

/* Makes the folder, or takes the existing one; writes its path into `room` bytes. */
bool kvt_own_folder(
	const char *parent, char *path, size_t room, char why[KVT_REASON_BYTES]) KVT_MUST_CHECK;

/* Opens a file for reading and writing, or makes it. -1: the file cannot be used. */
int kvt_own_file(const char *path, char why[KVT_REASON_BYTES]) KVT_MUST_CHECK;

#endif
