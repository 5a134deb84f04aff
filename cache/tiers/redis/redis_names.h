/*
 * redis_names.h - other names of chunks: the latest that callers gave, in bounded memory.
 *
 * Thread-safe. A name that is forgotten is a chunk that cannot be found until it is given again.
 */
#ifndef KVT_REDIS_NAMES_H
#define KVT_REDIS_NAMES_H

#include <stdbool.h>

#include "kvtier/kvtier.h"

struct redis_names;

/* At most so many names, of so many bytes in all. KVT_ENOMEM. */
enum kvt_status redis_names_create(
	uint32_t most, uint64_t most_bytes, struct redis_names **out) KVT_MUST_CHECK;
void redis_names_destroy(struct redis_names *n); /* NULL is allowed */

/* Copies it. One that is empty or has no room in `room` of find is not kept. */
void redis_names_tell(struct redis_names *n, const struct kvt_key *key, const char *name);
/* Length of the name, which is copied with its NUL; 0: none is known. */
size_t redis_names_find(struct redis_names *n, const struct kvt_key *key, char *out, size_t room);
bool redis_names_has(struct redis_names *n, const struct kvt_key *key);
/* How many were given so far. */
uint64_t redis_names_told(struct redis_names *n);
uint64_t redis_names_bytes(struct redis_names *n);

#endif
