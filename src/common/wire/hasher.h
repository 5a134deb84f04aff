/*
 * hasher.h - computes a digest of bytes that come piece by piece.
 *
 * The serialisations write into a hasher, so no buffer has to hold a whole chunk and its size is
 * unbounded. A hasher can also only count: pickle puts a value's length before the value, so a
 * value is written twice, first to count its bytes.
 *
 * One hasher serves any number of digests, one after the other, without allocating again. It
 * belongs to one thread.
 */
#ifndef KVW_HASHER_H
#define KVW_HASHER_H

#include <stddef.h>
#include <stdint.h>

#include "kvway/err.h"

enum kvw_digest_kind {
	KVW_DIGEST_SHA256 = 0,
	KVW_DIGEST_XXH3_128, /* in canonical form: the high half first, big-endian */
};

#define KVW_DIGEST_MAX 32u /* length of the longest digest */

struct kvw_hasher;

/* Creates a hasher that has begun a digest. KVW_ENOMEM. */
KVW_MUST_CHECK enum kvw_err kvw_hasher_create(enum kvw_digest_kind kind, struct kvw_hasher **out);
void kvw_hasher_destroy(struct kvw_hasher *hasher); /* NULL is allowed */

/* Returns the length of its digests: 32 or 16. */
size_t kvw_hasher_size(const struct kvw_hasher *hasher);

/* These begin again: bytes put from now on are only counted, or hashed. */
void kvw_hasher_start_count(struct kvw_hasher *hasher);
void kvw_hasher_start(struct kvw_hasher *hasher);

void kvw_hasher_put(struct kvw_hasher *hasher, const void *data, size_t len);

/* Returns the number of bytes put since the start. */
size_t kvw_hasher_length(const struct kvw_hasher *hasher);

/* Writes the digest, kvw_hasher_size() bytes, of all bytes put since kvw_hasher_start(). The next
 * call must be kvw_hasher_start() or kvw_hasher_start_count(). */
void kvw_hasher_finish(struct kvw_hasher *hasher, uint8_t digest[KVW_DIGEST_MAX]);

#endif
