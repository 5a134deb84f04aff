/*
 * read_file.h - a whole file as text.
 */
#ifndef KVT_READ_FILE_H
#define KVT_READ_FILE_H

#include <stddef.h>

#define KVT_READ_FILE_WHY 128

/* Up to `most` bytes of a file ("-": standard input), with a NUL after them. NULL, and `why` has
 * the cause. The caller frees it. */
char *kvt_read_file(const char *path, size_t most, size_t *len, char why[KVT_READ_FILE_WHY]);

#endif
