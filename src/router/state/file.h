/*
 * file.h - a snapshot in the file system: read only if it is this user's, replaced only as a whole.
 *
 * A new one is written to PATH.new (0600), synced, and renamed to PATH, and the folder is synced,
 * so that a crash or a loss of power leaves the old one or the new one. A lock on PATH.new keeps
 * two processes from writing it at once; the rest of a killed process is overwritten.
 *
 * Threads: any; no state is shared.
 */
#ifndef KVW_STATE_FILE_H
#define KVW_STATE_FILE_H

#include <stdbool.h>

#include "state/format.h"

/* Opens PATH for reading. KVW_ENOTFOUND: there is none; KVW_EINVAL: it is not a plain file of this
 * user that others cannot write; KVW_ELIMIT: it has more than `most` bytes; KVW_EIO. why: the
 * reason of all but the first. */
enum kvw_err kvw_state_file_open(
	const char *path, uint64_t most, int *fd, char why[KVW_STATE_WHY]) KVW_MUST_CHECK;

/* A file that is being written. */
struct kvw_state_file {
	const char *path; /* borrowed */
	char *temporary;  /* owned */
	int fd;           /* the caller writes to it */
};

/* KVW_EAGAIN: another process writes it now. KVW_EIO, KVW_ENOMEM. */
enum kvw_err kvw_state_file_begin(
	const char *path, struct kvw_state_file *file, char why[KVW_STATE_WHY]) KVW_MUST_CHECK;
/* Makes the written file PATH. After an error PATH is as it was. */
enum kvw_err kvw_state_file_commit(
	struct kvw_state_file *file, char why[KVW_STATE_WHY]) KVW_MUST_CHECK;
/* Throws it away. */
void kvw_state_file_abandon(struct kvw_state_file *file);

/* May a file be written there: does its folder exist, and may this user make files in it? Changes
 * nothing. */
bool kvw_state_file_may_write(const char *path, char why[KVW_STATE_WHY]);

#endif
