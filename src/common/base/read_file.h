/*
 * read_file.h - a whole file as text.
 *
 * Threads: any.
 */
#ifndef KVT_READ_FILE_H
#define KVT_READ_FILE_H

#include <stddef.h>

#include "kvway/err.h"

#define KVT_READ_FILE_WHY 128

/* Up to `most` bytes of a file ("-": standard input), with a NUL after them. NULL, and `why` has
 * the cause. The caller frees it. */
char *kvt_read_file(const char *path, size_t most, size_t *len, char why[KVT_READ_FILE_WHY]);

/* Up to `room` bytes, of a pipe too; *len of them were read, also on failure. No NUL comes after
 * them, and when all of the room is used there may be more. KVW_EIO: errno has the cause. */
enum kvw_err kvw_read_all(int fd, char *buffer, size_t room, size_t *len) KVW_MUST_CHECK;

#endif
