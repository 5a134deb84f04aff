/*
 * chunk_names.h - which chunks are named to the controller: storage key and LMCache's hash of each,
 * and the locations that hold it.
 *
 * A bounded table that is found by either name. Several chunks may have one hash (ranks of a test,
 * say); a location holds a hash as long as one of them is there, and only the first and the last of
 * these changes are reported. Not thread-safe.
 */
#ifndef KVT_CHUNK_NAMES_H
#define KVT_CHUNK_NAMES_H

#include <stdbool.h>

#include "kvtier/kvtier.h"

struct kvt_chunk_names;

struct kvt_chunk_names *kvt_chunk_names_create(uint32_t most); /* NULL: out of memory */
void kvt_chunk_names_destroy(struct kvt_chunk_names *names);   /* NULL is allowed */

/* What the caller has to report of a change. */
enum kvt_chunk_news { KVT_CHUNK_NOTHING, KVT_CHUNK_TOLD, KVT_CHUNK_NO_ROOM };

/* A location (0 to 7) holds a chunk now. */
enum kvt_chunk_news kvt_chunk_names_add(
	struct kvt_chunk_names *names, uint32_t location, const struct kvt_key *key, uint64_t hash);
/* It does not hold it any more; *hash is set with KVT_CHUNK_TOLD. */
enum kvt_chunk_news kvt_chunk_names_remove(struct kvt_chunk_names *names, uint32_t location,
	const struct kvt_key *key, uint64_t *hash);

/* Key of a chunk with this hash that the location holds. */
bool kvt_chunk_names_find(
	const struct kvt_chunk_names *names, uint32_t location, uint64_t hash, struct kvt_key *key);

/*
 * Walks over what is there, a piece at a time: up to `slots` places from *cursor on (0 at first),
 * hashes that the location holds go to out, which has room for as many. Returns their number; *cursor
 * is 0 again after the last place. What is added or removed between two pieces may be met or not.
 */
uint32_t kvt_chunk_names_walk(const struct kvt_chunk_names *names, uint32_t location,
	uint32_t *cursor, uint32_t slots, uint64_t *out);

uint32_t kvt_chunk_names_count(const struct kvt_chunk_names *names);
uint64_t kvt_chunk_names_bytes(const struct kvt_chunk_names *names);

#endif
