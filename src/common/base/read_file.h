/*
 * read_file.h - reads a whole file as text.
 *
 * Threads: any.
 */
#ifndef KVT_READ_FILE_H
#define KVT_READ_FILE_H

#include <stddef.h>

#include "kvway/err.h"

#define KVT_READ_FILE_WHY 128

/* Reads up to `most` bytes of a file ("-": standard input), and puts a NUL after them. Returns NULL
 * on failure; then `why` has the cause. The caller frees the text. */
char *kvt_read_file(const char *path, size_t most, size_t *len, char why[KVT_READ_FILE_WHY]);

/* Reads up to `room` bytes, also of a pipe; *len is their number, also on failure. No NUL follows
 * them, and if *len is room there may be more. KVW_EIO: errno has the cause. */
enum kvw_err kvw_read_all(int fd, char *buffer, size_t room, size_t *len) KVW_MUST_CHECK;

#endif
