/*
 * owners.c - remembers which worker keeps which object.
 *
 * Entries stand in a ring in the order of their creation; buckets chain them by hash. The table
 * keeps only a 64-bit hash of an id: when two ids have the same hash a request may go to a worker
 * that answers 404, as it may without the table.
 */
#include "proxy/owners.h"

#include <pthread.h>
#include <stdlib.h>
#include <xxhash.h>

#define NO_ENTRY UINT32_MAX

struct entry {
	uint64_t hash;
	uint64_t tenant;
	uint32_t worker;
	uint32_t next; /* next entry in the bucket; NO_ENTRY: last */
};

struct kvw_owners {
	pthread_mutex_t lock; /* guards all members below */
	struct entry *entries; /* [limit], a ring */
	uint32_t *buckets;     /* [bucket_count] first entry or NO_ENTRY */
	size_t limit, bucket_count, count, oldest;
};

enum kvw_err kvw_owners_create(size_t limit, struct kvw_owners **out)
{
	struct kvw_owners *owners = calloc(1, sizeof(*owners));

	if (owners == NULL)
		return KVW_ENOMEM;
	owners->limit = limit;
	owners->bucket_count = 1;
	while (owners->bucket_count < limit)
		owners->bucket_count *= 2;
	pthread_mutex_init(&owners->lock, NULL);
	*out = owners;
	return KVW_OK;
}

void kvw_owners_destroy(struct kvw_owners *owners)
{
	if (owners == NULL)
		return;
	pthread_mutex_destroy(&owners->lock);
	free(owners->entries);
	free(owners->buckets);
	free(owners);
}

static bool allocate(struct kvw_owners *owners)
{
	if (owners->entries != NULL)
		return true;
	owners->entries = malloc(owners->limit * sizeof(owners->entries[0]));
	owners->buckets = malloc(owners->bucket_count * sizeof(owners->buckets[0]));
	if (owners->entries == NULL || owners->buckets == NULL) {
		free(owners->entries);
		free(owners->buckets);
		owners->entries = NULL;
		owners->buckets = NULL;
		return false;
	}
	for (size_t i = 0; i < owners->bucket_count; i++)
		owners->buckets[i] = NO_ENTRY;
	return true;
}

static uint32_t *owner_bucket_of(struct kvw_owners *owners, uint64_t hash)
{
	return &owners->buckets[hash & (owners->bucket_count - 1)];
}

static struct entry *find_owner(struct kvw_owners *owners, uint64_t hash)
{
	uint32_t at = owners->entries == NULL ? NO_ENTRY : *owner_bucket_of(owners, hash);

	while (at != NO_ENTRY && owners->entries[at].hash != hash)
		at = owners->entries[at].next;
	return at == NO_ENTRY ? NULL : &owners->entries[at];
}

/* Removes the oldest entry from its bucket, so that its place is free. */
static uint32_t evict(struct kvw_owners *owners)
{
	uint32_t place = (uint32_t)owners->oldest;
	uint32_t *link = owner_bucket_of(owners, owners->entries[place].hash);

	while (*link != place)
		link = &owners->entries[*link].next;
	*link = owners->entries[place].next;
	owners->oldest = (owners->oldest + 1) % owners->limit;
	owners->count--;
	return place;
}

static void set_owner(struct kvw_owners *owners, uint64_t hash, uint64_t tenant, uint32_t worker)
{
	struct entry *known;

	pthread_mutex_lock(&owners->lock);
	known = find_owner(owners, hash);
	if (known != NULL) {
		if (known->tenant == tenant || known->worker == NO_ENTRY) {
			known->tenant = tenant;
			known->worker = worker;
		}
	} else if (allocate(owners)) {
		uint32_t place = owners->count < owners->limit
			? (uint32_t)((owners->oldest + owners->count) % owners->limit)
			: evict(owners);
		uint32_t *bucket = owner_bucket_of(owners, hash);

		owners->entries[place] = (struct entry){hash, tenant, worker, *bucket};
		*bucket = place;
		owners->count++;
	}
	pthread_mutex_unlock(&owners->lock);
}

uint64_t kvw_owners_tenant(struct kvw_slice tenant)
{
	return tenant.len == 0 ? 0 : XXH3_64bits(tenant.data, tenant.len) | 1;
}

void kvw_owners_set(
	struct kvw_owners *owners, struct kvw_slice id, uint64_t tenant, uint32_t worker)
{
	set_owner(owners, XXH3_64bits(id.data, id.len), tenant, worker);
}

size_t kvw_owners_copy(struct kvw_owners *owners, size_t *at, struct kvw_owner *out, size_t room)
{
	size_t count = 0;

	pthread_mutex_lock(&owners->lock);
	for (; *at < owners->count && count < room; ++*at) {
		const struct entry *entry =
			&owners->entries[(owners->oldest + *at) % owners->limit];

		if (entry->worker != NO_ENTRY)
			out[count++] =
				(struct kvw_owner){entry->hash, entry->tenant, entry->worker};
	}
	pthread_mutex_unlock(&owners->lock);
	return count;
}

void kvw_owners_recall(struct kvw_owners *owners, const struct kvw_owner *owner)
{
	set_owner(owners, owner->id, owner->tenant, owner->worker);
}

enum kvw_owned kvw_owners_find(
	struct kvw_owners *owners, struct kvw_slice id, uint64_t tenant, uint32_t *worker)
{
	enum kvw_owned owned = KVW_OWNED_UNKNOWN;
	const struct entry *entry;

	pthread_mutex_lock(&owners->lock);
	entry = find_owner(owners, XXH3_64bits(id.data, id.len));
	if (entry != NULL && entry->worker != NO_ENTRY) {
		owned = entry->tenant == tenant ? KVW_OWNED_KNOWN : KVW_OWNED_FOREIGN;
		*worker = entry->worker;
	}
	pthread_mutex_unlock(&owners->lock);
	return owned;
}

/* The entries keep their places until they are the oldest; the worker NO_ENTRY marks them as
 * forgotten. */
void kvw_owners_forget(struct kvw_owners *owners, uint32_t worker)
{
	pthread_mutex_lock(&owners->lock);
	for (size_t i = 0; i < owners->count; i++) {
		struct entry *entry = &owners->entries[(owners->oldest + i) % owners->limit];

		if (entry->worker == worker)
			entry->worker = NO_ENTRY;
	}
	pthread_mutex_unlock(&owners->lock);
}

struct kvw_slice kvw_owners_id_in(const char *data, size_t len, struct kvw_slice begins)
{
	static const char name[] = "\"id\"";
	const char *at = data, *end = data + len, *close;

	while ((at = memmem(at, (size_t)(end - at), name, sizeof(name) - 1)) != NULL) {
		at += sizeof(name) - 1;
		while (at < end && (*at == ' ' || *at == ':'))
			at++;
		if ((size_t)(end - at) < begins.len + 1 || *at != '"' ||
			memcmp(at + 1, begins.data, begins.len) != 0)
			continue;
		close = memchr(at + 1, '"', (size_t)(end - at - 1));
		if (close == NULL)
			break;
		return (struct kvw_slice){at + 1, (size_t)(close - at - 1)};
	}
	return (struct kvw_slice){NULL, 0};
}
