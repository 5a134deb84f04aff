/*
 * archive.h - writes files that are in memory as a .tar.gz.
 *
 * Format: ustar (POSIX.1-1988), compressed by zlib. All that is needed of it are regular files with
 * short names, which is less than what a library for archives brings along.
 */
#ifndef KVW_ARCHIVE_H
#define KVW_ARCHIVE_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "kvway/err.h"

struct kvw_archive {
	void *gz; /* zlib's */
	time_t now; /* time of all files */
};

/* Takes the descriptor. KVW_ENOMEM: it was closed. */
enum kvw_err kvw_archive_take(
	struct kvw_archive *archive, int fd, time_t now) KVW_MUST_CHECK;
/* Adds a file. name: at most 99 bytes. A failure is reported by kvw_archive_end. */
void kvw_archive_add(
	struct kvw_archive *archive, const char *name, const char *data, size_t len);
/* Ends the archive and closes the descriptor. KVW_EIO: something could not be written. */
enum kvw_err kvw_archive_end(struct kvw_archive *archive) KVW_MUST_CHECK;

#endif
