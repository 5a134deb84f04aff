/*
 * token_cache.c - caches token ids.
 *
 * The cache has a few shards, chosen by key, each a table of chains and a list in order of use
 * under one lock. Loops look up, the tokenizer's thread stores; with four shards they hardly ever
 * contend. Returned lists are counted references, so that a list may leave the cache while a
 * request still reads it.
 */
#include "feeds/tokens/token_cache.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/queue.h>

#define SHARDS           4u
#define BYTES_PER_BUCKET 4096u
#define BUCKETS_MIN      64u
#define BUCKETS_MAX      65536u

struct entry {
	struct kvw_token_key key;
	struct kvw_token_list *list; /* a reference */
	int64_t until_ns;
	struct entry *next; /* in its bucket */
	TAILQ_ENTRY(entry) use;
};

TAILQ_HEAD(entry_list, entry);

struct shard {
	pthread_mutex_t lock; /* guards all below */
	struct entry **buckets; /* [mask + 1] */
	struct entry_list used; /* last used first */
	size_t mask, bytes, limit, count;
};

struct kvw_token_cache {
	struct shard shards[SHARDS];
	size_t ready; /* of shards */
	int64_t ttl_ns;
};

static enum kvw_err init_shard(struct shard *shard, size_t limit)
{
	size_t buckets = BUCKETS_MIN;

	while (buckets < BUCKETS_MAX && buckets * BYTES_PER_BUCKET < limit)
		buckets *= 2;
	shard->buckets = calloc(buckets, sizeof(struct entry *));
	if (shard->buckets == NULL)
		return KVW_ENOMEM;
	shard->mask = buckets - 1;
	shard->limit = limit;
	TAILQ_INIT(&shard->used);
	pthread_mutex_init(&shard->lock, NULL);
	return KVW_OK;
}

enum kvw_err kvw_token_cache_create(size_t bytes, int64_t ttl_ns, struct kvw_token_cache **out)
{
	struct kvw_token_cache *cache = calloc(1, sizeof(*cache));

	if (cache == NULL)
		return KVW_ENOMEM;
	cache->ttl_ns = ttl_ns;
	for (size_t i = 0; i < SHARDS; i++) {
		if (init_shard(&cache->shards[i], bytes / SHARDS) != KVW_OK) {
			kvw_token_cache_destroy(cache);
			return KVW_ENOMEM;
		}
		cache->ready++;
	}
	*out = cache;
	return KVW_OK;
}

static size_t entry_bytes(const struct kvw_token_list *list)
{
	return sizeof(struct entry) + kvw_token_list_bytes(list);
}

static struct entry **find_entry(struct shard *shard, struct kvw_token_key key)
{
	struct entry **at = &shard->buckets[key.high & shard->mask];

	while (*at != NULL && ((*at)->key.low != key.low || (*at)->key.high != key.high))
		at = &(*at)->next;
	return at;
}

static void drop(struct shard *shard, struct entry **at)
{
	struct entry *entry = *at;

	*at = entry->next;
	TAILQ_REMOVE(&shard->used, entry, use);
	shard->bytes -= entry_bytes(entry->list);
	shard->count--;
	kvw_token_list_put(entry->list);
	free(entry);
}

void kvw_token_cache_destroy(struct kvw_token_cache *cache)
{
	if (cache == NULL)
		return;
	for (size_t i = 0; i < cache->ready; i++) {
		struct shard *shard = &cache->shards[i];
		struct entry *entry;

		while ((entry = TAILQ_FIRST(&shard->used)) != NULL)
			drop(shard, find_entry(shard, entry->key));
		free(shard->buckets);
		pthread_mutex_destroy(&shard->lock);
	}
	free(cache);
}

struct kvw_token_list *kvw_token_cache_get(
	struct kvw_token_cache *cache, struct kvw_token_key key, int64_t now_ns)
{
	struct shard *shard = &cache->shards[key.low % SHARDS];
	struct kvw_token_list *list = NULL;
	struct entry **at;

	pthread_mutex_lock(&shard->lock);
	at = find_entry(shard, key);
	if (*at != NULL && (*at)->until_ns <= now_ns) {
		drop(shard, at);
	} else if (*at != NULL) {
		TAILQ_REMOVE(&shard->used, *at, use);
		TAILQ_INSERT_HEAD(&shard->used, *at, use);
		list = kvw_token_list_ref((*at)->list);
	}
	pthread_mutex_unlock(&shard->lock);
	return list;
}

void kvw_token_cache_put(struct kvw_token_cache *cache, struct kvw_token_key key,
	struct kvw_token_list *list, int64_t now_ns)
{
	struct shard *shard = &cache->shards[key.low % SHARDS];
	struct entry *entry = malloc(sizeof(*entry)), **at;
	size_t bytes = entry_bytes(list);

	if (entry == NULL || bytes > shard->limit) {
		free(entry);
		return;
	}
	*entry = (struct entry){.key = key, .list = kvw_token_list_ref(list)};
	entry->until_ns = now_ns + cache->ttl_ns;
	pthread_mutex_lock(&shard->lock);
	at = find_entry(shard, key);
	if (*at != NULL)
		drop(shard, at);
	while (shard->bytes + bytes > shard->limit)
		drop(shard, find_entry(shard, TAILQ_LAST(&shard->used, entry_list)->key));
	at = &shard->buckets[key.high & shard->mask];
	entry->next = *at;
	*at = entry;
	TAILQ_INSERT_HEAD(&shard->used, entry, use);
	shard->bytes += bytes;
	shard->count++;
	pthread_mutex_unlock(&shard->lock);
}

void kvw_token_cache_stats(struct kvw_token_cache *cache, struct kvw_token_cache_stats *out)
{
	*out = (struct kvw_token_cache_stats){0};
	for (size_t i = 0; i < SHARDS; i++) {
		struct shard *shard = &cache->shards[i];

		pthread_mutex_lock(&shard->lock);
		out->lists += shard->count;
		out->bytes += shard->bytes;
		out->bytes_limit += shard->limit;
		pthread_mutex_unlock(&shard->lock);
	}
}
