/*
 * catalog.c - names of objects in memory: a sorted list of buckets, and in each bucket a skip list
 * of keys.
 *
 * Skip lists, because names come and go in any order while a reader takes a page from the middle,
 * and because the lock must be held for one page only. A node costs 40 bytes and its key; a change
 * costs about twenty comparisons.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/random.h"
#include "daemon/catalog_parts.h"

/* --- keys ------------------------------------------------------------------------------------- */

static char *key_of(struct kvt_catalog_node *node)
{
	return (char *)&node->next[node->levels];
}

static int compare(const char *a, size_t a_len, struct kvw_slice b)
{
	size_t n = a_len < b.len ? a_len : b.len;
	int order = n != 0 ? memcmp(a, b.data, n) : 0;

	if (order != 0)
		return order;
	return a_len < b.len ? -1 : a_len > b.len;
}

static size_t node_bytes(size_t key_len, unsigned levels)
{
	return sizeof(struct kvt_catalog_node) + levels * sizeof(struct kvt_catalog_node *) +
	       key_len + 1;
}

/* --- buckets; the lock is held
 * ----------------------------------------------------------------- */

/* Returns the index at which a bucket of this name is, or would be inserted. */
static size_t bucket_place(struct kvt_catalog *c, struct kvw_slice name, bool *found)
{
	size_t low = 0, high = c->bucket_count;

	*found = false;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		int order = compare(c->buckets[mid]->name, c->buckets[mid]->name_len, name);

		if (order == 0) {
			*found = true;
			return mid;
		}
		if (order < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static struct kvt_catalog_bucket *bucket_find(struct kvt_catalog *c, struct kvw_slice name)
{
	bool found;
	size_t at = bucket_place(c, name, &found);

	return found ? c->buckets[at] : NULL;
}

static struct kvt_catalog_bucket *bucket_make(struct kvt_catalog *c, struct kvw_slice name)
{
	struct kvt_catalog_bucket *bucket, **more;
	bool found;
	size_t at = bucket_place(c, name, &found);

	if (found)
		return c->buckets[at];
	if (c->bucket_count == KVT_CATALOG_BUCKETS)
		return NULL;
	if (c->bucket_count == c->bucket_room) {
		more = reallocarray(c->buckets, c->bucket_room * 2 + 16, sizeof(*more));
		if (more == NULL)
			return NULL;
		c->buckets = more;
		c->bucket_room = c->bucket_room * 2 + 16;
	}
	bucket = calloc(1, sizeof(*bucket));
	if (bucket == NULL)
		return NULL;
	memcpy(bucket->name, name.data, name.len);
	bucket->name_len = name.len;
	memmove(&c->buckets[at + 1], &c->buckets[at],
		(c->bucket_count - at) * sizeof(struct kvt_catalog_bucket *));
	c->buckets[at] = bucket;
	c->bucket_count++;
	c->memory += sizeof(*bucket);
	return bucket;
}

static void bucket_remove(struct kvt_catalog *c, struct kvt_catalog_bucket *bucket)
{
	bool found;
	size_t at = bucket_place(c, (struct kvw_slice){bucket->name, bucket->name_len}, &found);

	c->bucket_count--;
	memmove(&c->buckets[at], &c->buckets[at + 1],
		(c->bucket_count - at) * sizeof(struct kvt_catalog_bucket *));
	c->memory -= sizeof(*bucket);
	free(bucket);
}

/* --- keys of a bucket; the lock is held
 * -------------------------------------------------------- */

/* Finds, for each level, the link that leads to the first key that is not smaller than `key`. */
static struct kvt_catalog_node *seek(struct kvt_catalog_bucket *bucket, struct kvw_slice key,
	struct kvt_catalog_node **links[KVT_CATALOG_LEVELS])
{
	struct kvt_catalog_node **row = bucket->first, *next;

	for (int level = KVT_CATALOG_LEVELS - 1; level >= 0; level--) {
		while ((next = row[level]) != NULL && compare(key_of(next), next->key_len, key) < 0)
			row = next->next;
		links[level] = &row[level];
	}
	return *links[0];
}

static bool is_named(struct kvt_catalog_node *node, struct kvw_slice key)
{
	return node != NULL && compare(key_of(node), node->key_len, key) == 0;
}

/* Every other node has at least two levels, every fourth at least three, and so on. */
static unsigned draw_levels(struct kvt_catalog *c)
{
	unsigned levels = 1;

	for (uint64_t bits = kvw_random(&c->random); (bits & 1) != 0 && levels < KVT_CATALOG_LEVELS; bits >>= 1)
		levels++;
	return levels;
}

static bool add_node(struct kvt_catalog *c, struct kvt_catalog_bucket *bucket, struct kvw_slice key,
	uint64_t bytes, struct kvt_catalog_node **links[KVT_CATALOG_LEVELS])
{
	unsigned levels = draw_levels(c);
	size_t size = node_bytes(key.len, levels);
	struct kvt_catalog_node *node;

	if (c->names >= c->most || c->memory + size > c->most_bytes)
		return false;
	node = malloc(size);
	if (node == NULL)
		return false;
	*node = (struct kvt_catalog_node){
		.bytes = bytes, .key_len = (uint16_t)key.len, .levels = (uint8_t)levels};
	memcpy(key_of(node), key.data, key.len);
	key_of(node)[key.len] = '\0';
	for (unsigned i = 0; i < levels; i++) {
		node->next[i] = *links[i];
		*links[i] = node;
	}
	node->stamp = ++c->stamps;
	bucket->objects++;
	bucket->bytes += bytes;
	c->names++;
	c->memory += size;
	c->live_bytes += kvt_catalog_record_bytes(bucket->name_len, key.len);
	return true;
}

static void remove_node(struct kvt_catalog *c, struct kvt_catalog_bucket *bucket,
	struct kvt_catalog_node *node, struct kvt_catalog_node **links[KVT_CATALOG_LEVELS])
{
	for (unsigned i = 0; i < node->levels; i++)
		*links[i] = node->next[i];
	bucket->objects--;
	bucket->bytes -= node->bytes;
	c->names--;
	c->memory -= node_bytes(node->key_len, node->levels);
	c->live_bytes -= kvt_catalog_record_bytes(bucket->name_len, node->key_len);
	free(node);
}

/* stamp 0: forgets the name whatever its stamp is. */
static void forget(
	struct kvt_catalog *c, struct kvw_slice name, struct kvw_slice key, uint64_t stamp)
{
	struct kvt_catalog_bucket *bucket = bucket_find(c, name);
	struct kvt_catalog_node **links[KVT_CATALOG_LEVELS], *node;

	if (bucket == NULL)
		return;
	node = seek(bucket, key, links);
	if (!is_named(node, key) || (stamp != 0 && node->stamp != stamp))
		return;
	remove_node(c, bucket, node, links);
	kvt_catalog_tell(c, KVT_NAME_GONE, name, key, 0);
	if (bucket->objects == 0)
		bucket_remove(c, bucket);
}

static void empty_bucket(struct kvt_catalog *c, struct kvt_catalog_bucket *bucket)
{
	struct kvt_catalog_node **links[KVT_CATALOG_LEVELS];

	for (int i = 0; i < KVT_CATALOG_LEVELS; i++)
		links[i] = &bucket->first[i];
	while (bucket->first[0] != NULL)
		remove_node(c, bucket, bucket->first[0], links);
	bucket_remove(c, bucket);
}

/* --- changes ---------------------------------------------------------------------------------- */

static void note(struct kvt_catalog *c, const struct kvt_object_name *name, uint64_t bytes)
{
	struct kvt_catalog_bucket *bucket = bucket_make(c, name->bucket);
	struct kvt_catalog_node **links[KVT_CATALOG_LEVELS], *node;

	if (bucket == NULL) {
		c->unlisted++;
		return;
	}
	node = seek(bucket, name->key, links);
	if (is_named(node, name->key)) {
		node->stamp = ++c->stamps;
		if (node->bytes == bytes)
			return;
		bucket->bytes += bytes - node->bytes;
		node->bytes = bytes;
	} else if (!add_node(c, bucket, name->key, bytes, links)) {
		c->unlisted++;
		if (bucket->objects == 0)
			bucket_remove(c, bucket);
		return;
	}
	kvt_catalog_tell(c, KVT_NAME_THERE, name->bucket, name->key, bytes);
}

void kvt_catalog_note(struct kvt_catalog *c, const struct kvt_object_name *name, uint64_t bytes)
{
	pthread_mutex_lock(&c->lock);
	note(c, name, bytes);
	pthread_mutex_unlock(&c->lock);
}

void kvt_catalog_forget(struct kvt_catalog *c, const struct kvt_object_name *name)
{
	pthread_mutex_lock(&c->lock);
	forget(c, name->bucket, name->key, 0);
	pthread_mutex_unlock(&c->lock);
}

void kvt_catalog_forget_item(struct kvt_catalog *c, const struct kvt_catalog_item *item)
{
	pthread_mutex_lock(&c->lock);
	forget(c, kvw_slice_of(item->bucket), kvw_slice_of(item->key), item->stamp);
	pthread_mutex_unlock(&c->lock);
}

void kvt_catalog_forget_bucket(struct kvt_catalog *c, struct kvw_slice name)
{
	struct kvt_catalog_bucket *bucket;

	pthread_mutex_lock(&c->lock);
	bucket = bucket_find(c, name);
	if (bucket != NULL) {
		empty_bucket(c, bucket);
		kvt_catalog_tell(c, KVT_NAME_BUCKET_GONE, name, (struct kvw_slice){0}, 0);
	}
	pthread_mutex_unlock(&c->lock);
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Copies up to n items of a bucket after a key; the lock is held. */
static size_t copy_after(struct kvt_catalog_bucket *bucket, struct kvw_slice after,
	struct kvt_catalog_item *items, size_t n)
{
	struct kvt_catalog_node **links[KVT_CATALOG_LEVELS];
	struct kvt_catalog_node *node = seek(bucket, after, links);
	size_t count = 0;

	if (is_named(node, after))
		node = node->next[0];
	for (; node != NULL && count < n; node = node->next[0], count++) {
		items[count].bytes = node->bytes;
		items[count].stamp = node->stamp;
		memcpy(items[count].bucket, bucket->name, bucket->name_len + 1);
		memcpy(items[count].key, key_of(node), (size_t)node->key_len + 1);
	}
	return count;
}

size_t kvt_catalog_page(struct kvt_catalog *c, struct kvw_slice name, struct kvw_slice after,
	struct kvt_catalog_item *items, size_t n)
{
	struct kvt_catalog_bucket *bucket;
	size_t count = 0;

	pthread_mutex_lock(&c->lock);
	bucket = bucket_find(c, name);
	if (bucket != NULL)
		count = copy_after(bucket, after, items, n);
	pthread_mutex_unlock(&c->lock);
	return count;
}

size_t kvt_catalog_walk(struct kvt_catalog *c, const struct kvt_catalog_item *after,
	struct kvt_catalog_item *items, size_t n)
{
	struct kvw_slice from = {0};
	size_t at = 0, count = 0;
	bool found = false;

	pthread_mutex_lock(&c->lock);
	if (after != NULL) {
		at = bucket_place(c, kvw_slice_of(after->bucket), &found);
		if (found)
			from = kvw_slice_of(after->key);
	}
	for (; at < c->bucket_count && count < n; at++) {
		count += copy_after(c->buckets[at], from, items + count, n - count);
		from = (struct kvw_slice){0};
	}
	pthread_mutex_unlock(&c->lock);
	return count;
}

size_t kvt_catalog_buckets(struct kvt_catalog *c,
	void (*visit)(void *user, const struct kvt_bucket_entry *entry), void *user)
{
	size_t count;

	pthread_mutex_lock(&c->lock);
	count = c->bucket_count;
	for (size_t i = 0; i < count; i++) {
		struct kvt_bucket_entry entry = {
			c->buckets[i]->name, c->buckets[i]->objects, c->buckets[i]->bytes};

		visit(user, &entry);
	}
	pthread_mutex_unlock(&c->lock);
	return count;
}

void kvt_catalog_stats(struct kvt_catalog *c, struct kvt_catalog_stats *out)
{
	pthread_mutex_lock(&c->lock);
	*out = (struct kvt_catalog_stats){
		.names = c->names,
		.buckets = c->bucket_count,
		.memory_bytes = c->memory + c->tail.room +
				c->bucket_room * sizeof(struct kvt_catalog_bucket *),
		.file_bytes = c->file_bytes,
		.unlisted = c->unlisted,
	};
	pthread_mutex_unlock(&c->lock);
}

/* --- life ------------------------------------------------------------------------------------- */

enum kvt_status kvt_catalog_create(
	const struct kvt_catalog_options *options, char *why, struct kvt_catalog **out)
{
	struct kvt_catalog *c = calloc(1, sizeof(*c));
	enum kvt_status status = KVT_OK;

	if (c == NULL)
		return KVT_ENOMEM;
	c->surroundings = options->surroundings;
	c->most = options->most;
	c->most_bytes = options->most_bytes;
	c->random = (uint64_t)kvt_now(c->surroundings);
	c->fd = c->new_fd = -1;
	pthread_mutex_init(&c->lock, NULL);
	if (options->path != NULL)
		status = kvt_catalog_file_open(c, options->path, why);
	if (status != KVT_OK)
		kvt_catalog_destroy(c);
	else
		*out = c;
	return status;
}

void kvt_catalog_destroy(struct kvt_catalog *c)
{
	if (c == NULL)
		return;
	kvt_catalog_file_close(c);
	while (c->bucket_count != 0)
		empty_bucket(c, c->buckets[0]);
	free(c->buckets);
	free(c->tail.at);
	pthread_mutex_destroy(&c->lock);
	free(c);
}
