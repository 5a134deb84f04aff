/*
 * jwt_cache.h - caches verified tokens by their SHA-256 until they expire, so that further requests
 * with a token cost only a look-up.
 *
 * It has a fixed size; each set of eight evicts the least recently used entry. An entry is valid
 * for one generation of the keys that verified it: with other keys tokens are verified again. Any
 * thread.
 */
#ifndef KVW_JWT_CACHE_H
#define KVW_JWT_CACHE_H

#include "auth/keyring.h"

struct kvw_jwt_cache;

/* most: number of entries, rounded up; 0: nothing is cached. KVW_ENOMEM. */
enum kvw_err kvw_jwt_cache_create(size_t most, struct kvw_jwt_cache **out) KVW_MUST_CHECK;
void kvw_jwt_cache_destroy(struct kvw_jwt_cache *cache); /* NULL is allowed */

/* Returns a reference to a keyring with the token's only key. NULL: the token is not cached, or has
 * expired. */
struct kvw_keyring *kvw_jwt_cache_find(struct kvw_jwt_cache *cache, const struct kvw_digest *digest,
	uint64_t generation, int64_t now_s);
/* Takes a reference of its own. ends_s: when the token expires. */
void kvw_jwt_cache_put(struct kvw_jwt_cache *cache, const struct kvw_digest *digest,
	uint64_t generation, int64_t ends_s, int64_t now_s, struct kvw_keyring *ring);

#endif
