/*
 * token_cache.h - caches token ids of earlier prompts.
 *
 * The key is a hash of the whole body (tokens.c has the reasons). The least recently used entry is
 * evicted first, and every entry has a time to live: a chat template may write the date into the
 * prompt.
 *
 * Threads: any. Each shard has a lock that is held for a few memory accesses.
 */
#ifndef KVW_TOKEN_CACHE_H
#define KVW_TOKEN_CACHE_H

#include "kvway/err.h"
#include "feeds/tokens/token_list.h"

/* 128 bits, so that equal keys mean equal bodies. */
struct kvw_token_key {
	uint64_t low, high;
};

struct kvw_token_cache;

/* bytes: limit of the memory for lists and entries together. */
enum kvw_err kvw_token_cache_create(
	size_t bytes, int64_t ttl_ns, struct kvw_token_cache **out) KVW_MUST_CHECK;
void kvw_token_cache_destroy(struct kvw_token_cache *cache); /* NULL is allowed */

/* Finds a list. Returns a reference that the caller must put back, or NULL. */
struct kvw_token_list *kvw_token_cache_get(
	struct kvw_token_cache *cache, struct kvw_token_key key, int64_t now_ns);

/* Stores a list with a reference of the cache's own, if there is room and memory. Replaces the
 * key's former list. */
void kvw_token_cache_put(struct kvw_token_cache *cache, struct kvw_token_key key,
	struct kvw_token_list *list, int64_t now_ns);

struct kvw_token_cache_stats {
	uint64_t lists, bytes, bytes_limit;
};
void kvw_token_cache_stats(struct kvw_token_cache *cache, struct kvw_token_cache_stats *out);

#endif
