/*
 * support.h - snapshots in memory, for the tests of the format and of what reads it.
 */
#ifndef KVW_TEST_STATE_SUPPORT_H
#define KVW_TEST_STATE_SUPPORT_H

#include <check.h>
#include <stdint.h>

#include "state/format.h"

/* The bytes of a file, the caller's to free. */
struct bytes {
	uint8_t *data;
	size_t len;
};

/* A new file in memory, at its beginning. */
int memory_file(void);
/* All of it, from its beginning. */
struct bytes bytes_of(int fd);
/* A file in memory with these bytes, at its beginning. */
int file_of(const void *data, size_t len);

/* A small snapshot of some records of several kinds. */
struct bytes small_snapshot(void);

/* Reads all of a snapshot. Its error; *why: what the reader says of it. */
enum kvw_err read_bytes(const void *data, size_t len, char why[KVW_STATE_WHY]);

#endif
