/*
 * file.h - reads a snapshot's file, only if it belongs to this user, and replaces it, only as a
 * whole.
 *
 * A new snapshot is written to PATH.new (0600), synced, and renamed to PATH, and the folder is
 * synced, so that a crash or a loss of power leaves the old one or the new one. A lock on PATH.new
 * keeps two processes from writing it at once; the file that a killed process has left is
 * overwritten.
 *
 * Threads: any; no state is shared.
 */
#ifndef KVW_STATE_FILE_H
#define KVW_STATE_FILE_H

#include <stdbool.h>

#include "state/format.h"

/* Opens PATH for reading. KVW_ENOTFOUND: there is no such file; KVW_EINVAL: it is not a plain file
 * of this user, or others can write it; KVW_ELIMIT: it has more than `most` bytes; KVW_EIO. `why`
 * has the reason, except for KVW_ENOTFOUND. */
enum kvw_err kvw_state_file_open(
	const char *path, uint64_t most, int *fd, char why[KVW_STATE_WHY]) KVW_MUST_CHECK;

/* A snapshot's file that is being written. */
struct kvw_state_file {
	const char *path; /* borrowed */
	char *temporary;  /* owned */
	int fd;           /* the caller writes the snapshot to it */
};

/* Begins to write. KVW_EAGAIN: another process is writing the file now. KVW_EIO, KVW_ENOMEM. */
enum kvw_err kvw_state_file_begin(
	const char *path, struct kvw_state_file *file, char why[KVW_STATE_WHY]) KVW_MUST_CHECK;
/* Renames the written file to PATH. After an error PATH is as it was. */
enum kvw_err kvw_state_file_commit(
	struct kvw_state_file *file, char why[KVW_STATE_WHY]) KVW_MUST_CHECK;
/* Throws it away. */
void kvw_state_file_abandon(struct kvw_state_file *file);

/* Returns whether a file could be written there: its folder exists, and this user may create files
 * in it. Changes nothing. */
bool kvw_state_file_may_write(const char *path, char why[KVW_STATE_WHY]);

#endif
