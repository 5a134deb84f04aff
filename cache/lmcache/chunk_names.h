/*
 * chunk_names.h - the chunks known to the controller: storage key and LMCache's hash of each, and
 * the locations that hold it.
 *
 * A bounded table that is found by either name. Several chunks may have the same hash, for example
 * those of several ranks. A location holds a hash as long as it holds one of these chunks, so only
 * the first and the last change are reported. Not thread-safe.
 */
#ifndef KVT_CHUNK_NAMES_H
#define KVT_CHUNK_NAMES_H

#include <stdbool.h>

#include "kvtier/kvtier.h"

struct kvt_chunk_names;

struct kvt_chunk_names *kvt_chunk_names_create(uint32_t most); /* NULL: out of memory */
void kvt_chunk_names_destroy(struct kvt_chunk_names *names);   /* NULL is allowed */

/* The results of a change, by which the caller decides on a report to the controller. */
enum kvt_chunk_news { KVT_CHUNK_NOTHING, KVT_CHUNK_TOLD, KVT_CHUNK_NO_ROOM };

/* Notes that a location (0 to 7) holds a chunk now. */
enum kvt_chunk_news kvt_chunk_names_add(
	struct kvt_chunk_names *names, uint32_t location, const struct kvt_key *key, uint64_t hash);
/* Notes that the location no longer holds the chunk; *hash is set with KVT_CHUNK_TOLD. */
enum kvt_chunk_news kvt_chunk_names_remove(struct kvt_chunk_names *names, uint32_t location,
	const struct kvt_key *key, uint64_t *hash);

/* Finds the storage key of a chunk with this hash in the location. */
bool kvt_chunk_names_find(
	const struct kvt_chunk_names *names, uint32_t location, uint64_t hash, struct kvt_key *key);

/*
 * Walks over the entries, a piece at a time: up to `slots` places from *cursor on (0 at first),
 * writes hashes of the location to out, which has room for as many. Returns their number; *cursor
 * is 0 again after the last place. The walk may miss entries that are added or removed between two
 * pieces.
 */
uint32_t kvt_chunk_names_walk(const struct kvt_chunk_names *names, uint32_t location,
	uint32_t *cursor, uint32_t slots, uint64_t *out);

uint32_t kvt_chunk_names_count(const struct kvt_chunk_names *names);
uint64_t kvt_chunk_names_bytes(const struct kvt_chunk_names *names);

#endif
