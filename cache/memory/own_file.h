/*
 * own_file.h - a user's side files in folders that all users write to: PARENT/kvtier-UID/NAME.
 *
 * The folder has mode 0700. It and the files must be the user's own and let no one else in; what is
 * not is not used, and `why` (KVT_REASON_BYTES) names it and says what to do.
 */
#ifndef KVT_OWN_FILE_H
#define KVT_OWN_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "kvtier/kvtier.h"

/* Makes the folder, or takes the one that is there; its path into `room` bytes. */
bool kvt_own_folder(
	const char *parent, char *path, size_t room, char why[KVT_REASON_BYTES]) KVT_MUST_CHECK;

/* Opens a file for reading and writing, or makes it. -1: it cannot be used. */
int kvt_own_file(const char *path, char why[KVT_REASON_BYTES]) KVT_MUST_CHECK;

#endif
