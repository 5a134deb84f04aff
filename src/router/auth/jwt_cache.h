/*
 * jwt_cache.h - tokens that were verified, found by their SHA-256 until they end: a client's second
 * request costs a lookup.
 *
 * It has room for so many; each set of eight loses the one that was used least lately. An entry
 * holds for one generation of the keys that verified it: with other keys tokens are verified again.
 * Any thread.
 */
#ifndef KVW_JWT_CACHE_H
#define KVW_JWT_CACHE_H

#include "auth/keyring.h"

struct kvw_jwt_cache;

/* most: entries, rounded up; 0: it remembers nothing. KVW_ENOMEM. */
enum kvw_err kvw_jwt_cache_create(size_t most, struct kvw_jwt_cache **out) KVW_MUST_CHECK;
void kvw_jwt_cache_destroy(struct kvw_jwt_cache *cache); /* NULL is allowed */

/* A ring with the one key that the token stands for; the caller's reference.
 * NULL: it is not there, or not any more. */
struct kvw_keyring *kvw_jwt_cache_find(struct kvw_jwt_cache *cache, const struct kvw_digest *digest,
	uint64_t generation, int64_t now_s);
/* Takes a reference of its own. ends_s: when the token ends. */
void kvw_jwt_cache_put(struct kvw_jwt_cache *cache, const struct kvw_digest *digest,
	uint64_t generation, int64_t ends_s, int64_t now_s, struct kvw_keyring *ring);

#endif
