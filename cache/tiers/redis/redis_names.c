/*
 * redis_names.c - a hash table of names with a list by age; the oldest makes room.
 */
#include "tiers/redis/redis_names.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tiers/redis/redis_lmcache.h"

struct name {
	struct name *next;          /* of its bucket */
	struct name *newer, *older; /* by when they were added */
	struct kvt_key key;
	size_t len;
	char text[];
};

struct redis_names {
	pthread_mutex_t lock; /* of all below */
	struct name **buckets;
	uint32_t bucket_count; /* a power of two */
	struct name *newest, *oldest;
	uint32_t count, most;
	uint64_t bytes, most_bytes;
	uint64_t told;
	uint64_t seed;
};

enum kvt_status redis_names_create(uint32_t most, uint64_t most_bytes, struct redis_names **out)
{
	struct redis_names *n = calloc(1, sizeof(*n));
	uint32_t buckets = 16;

	if (n == NULL)
		return KVT_ENOMEM;
	while (buckets < most && buckets < (1u << 30))
		buckets *= 2;
	n->buckets = calloc(buckets, sizeof(struct name *));
	if (n->buckets == NULL) {
		free(n);
		return KVT_ENOMEM;
	}
	n->bucket_count = buckets;
	n->most = most;
	n->most_bytes = most_bytes;
	n->seed = (uint64_t)(uintptr_t)n->buckets;
	(void)pthread_mutex_init(&n->lock, NULL);
	*out = n;
	return KVT_OK;
}

static struct name **bucket_of(struct redis_names *n, const struct kvt_key *key)
{
	uint64_t hash = XXH3_64bits_withSeed(key->bytes, sizeof(key->bytes), n->seed);

	return &n->buckets[hash & (n->bucket_count - 1)];
}

static struct name *find(struct redis_names *n, const struct kvt_key *key)
{
	struct name *at = *bucket_of(n, key);

	while (at != NULL && memcmp(&at->key, key, sizeof(*key)) != 0)
		at = at->next;
	return at;
}

static uint64_t cost_of(const struct name *name)
{
	return sizeof(*name) + name->len + 1;
}

static void link_newest(struct redis_names *n, struct name *name)
{
	name->newer = NULL;
	name->older = n->newest;
	*(n->newest != NULL ? &n->newest->newer : &n->oldest) = name;
	n->newest = name;
}

static void unlink_age(struct redis_names *n, struct name *name)
{
	*(name->newer != NULL ? &name->newer->older : &n->newest) = name->older;
	*(name->older != NULL ? &name->older->newer : &n->oldest) = name->newer;
}

static void remove_name(struct redis_names *n, struct name *name)
{
	struct name **at = bucket_of(n, &name->key);

	while (*at != name)
		at = &(*at)->next;
	*at = name->next;
	unlink_age(n, name);
	n->count--;
	n->bytes -= cost_of(name);
	free(name);
}

void redis_names_destroy(struct redis_names *n)
{
	if (n == NULL)
		return;
	while (n->oldest != NULL)
		remove_name(n, n->oldest);
	(void)pthread_mutex_destroy(&n->lock);
	free(n->buckets);
	free(n);
}

/* Under lock. */
static void add(struct redis_names *n, const struct kvt_key *key, const char *text, size_t len)
{
	struct name *name = malloc(sizeof(*name) + len + 1);
	struct name **bucket = bucket_of(n, key);

	if (name == NULL)
		return;
	name->key = *key;
	name->len = len;
	memcpy(name->text, text, len + 1);
	name->next = *bucket;
	*bucket = name;
	link_newest(n, name);
	n->count++;
	n->bytes += cost_of(name);
	while (n->count > n->most || n->bytes > n->most_bytes)
		remove_name(n, n->oldest);
}

void redis_names_tell(struct redis_names *n, const struct kvt_key *key, const char *text)
{
	size_t len = strnlen(text, LMCACHE_NAME_MAX + 1);
	struct name *name;

	if (len == 0 || len > LMCACHE_NAME_MAX)
		return;
	pthread_mutex_lock(&n->lock);
	n->told++;
	name = find(n, key);
	if (name != NULL && name->len == len && memcmp(name->text, text, len) == 0) {
		unlink_age(n, name);
		link_newest(n, name);
	} else {
		if (name != NULL)
			remove_name(n, name);
		add(n, key, text, len);
	}
	pthread_mutex_unlock(&n->lock);
}

size_t redis_names_find(struct redis_names *n, const struct kvt_key *key, char *out, size_t room)
{
	const struct name *name;
	size_t len = 0;

	pthread_mutex_lock(&n->lock);
	name = find(n, key);
	if (name != NULL && name->len < room) {
		len = name->len;
		memcpy(out, name->text, len + 1);
	}
	pthread_mutex_unlock(&n->lock);
	return len;
}

bool redis_names_has(struct redis_names *n, const struct kvt_key *key)
{
	bool has;

	pthread_mutex_lock(&n->lock);
	has = find(n, key) != NULL;
	pthread_mutex_unlock(&n->lock);
	return has;
}

uint64_t redis_names_told(struct redis_names *n)
{
	uint64_t told;

	pthread_mutex_lock(&n->lock);
	told = n->told;
	pthread_mutex_unlock(&n->lock);
	return told;
}

uint64_t redis_names_bytes(struct redis_names *n)
{
	uint64_t bytes;

	pthread_mutex_lock(&n->lock);
	bytes = n->bytes + sizeof(*n) + n->bucket_count * sizeof(struct name *);
	pthread_mutex_unlock(&n->lock);
	return bytes;
}
