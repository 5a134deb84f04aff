/*
 * drive.h - a process that uses libkvtier as an engine would and takes commands, one a line.
 *
 * Every chunk's bytes are a function of its key, so that any process can check whether what it got
 * is right, whichever process stored it and whatever happened in between. A test starts it with a
 * configuration in YAML, writes commands to its standard input, reads one line of JSON for each,
 * kills it, stops it, starts it again. It uses the public header alone and links the shared
 * object.
 */
#ifndef DRIVE_H
#define DRIVE_H

#include <stdbool.h>
#include <stdio.h>

#include "kvtier/kvtier.h"

#define DRIVE_WORDS 16
#define DRIVE_CHAIN 256 /* most chunks of one chain */

struct drive {
	struct kvt_config config; /* owns its texts */
	struct kvt *k;
};

/* One command: its words, [0] its name. Prints members of a JSON object, each with a comma before
 * it; false: `error` (256 bytes) says why. */
struct drive_command {
	const char *name;
	size_t least, most; /* how many words may follow the name */
	bool (*run)(struct drive *d, char **words, size_t count, char *error);
};

extern const struct drive_command drive_commands[]; /* ends with a NULL name */

/* --- chunk.c: the bytes of a key's chunk; functions without state --- */

/* Makes the key of chunk `index` in chain `seed`. */
void drive_key(uint64_t seed, uint32_t index, struct kvt_key *out);
void drive_tenant(uint64_t seed, struct kvt_tenant *out); /* makes the tenant of chain `seed` */
/* Returns the length of a key's chunk, from least to most. */
uint64_t drive_bytes(const struct kvt_key *key, uint64_t least, uint64_t most);
/* Writes bytes at .. at + count of the key's chunk. */
void drive_fill(const struct kvt_key *key, uint64_t at, void *to, uint64_t count);

#define DRIVE_RIGHT UINT64_MAX
/* Returns the offset of the first byte of a lease's chunk that differs from drive_fill's, or at
 * which it is too short or long; DRIVE_RIGHT: none does. */
uint64_t drive_check(
	const struct kvt_lease *lease, size_t index, const struct kvt_key *key, uint64_t bytes);

int64_t drive_now(void); /* nanoseconds, monotonic */

/* --- random.c --- */

/* run SEED MILLISECONDS THREADS CHAINS DEPTH LEAST MOST LIMIT_MS [PUTS_PERCENT] */
bool drive_run(struct drive *d, char **words, size_t count, char *error);

#endif
