/*
 * objects_admin.c - erases objects, lists them, and forgets names of objects that are gone.
 *
 * An erase changes a number that is part of keys (objects_names.c); from then on no request asks
 * for the former keys. Objects of this process under former keys are freed at once, as far as they
 * are known; others leave when room is needed.
 *
 * A put that ends after an erase was called counts as later: an erase concerns the objects that
 * existed when it was called. An erase of a tenant by name does not change keys: a put of that
 * tenant at the same moment may be lost.
 *
 * The catalog names what was put; whether an object still exists is asked of libkvtier, when a list
 * is made and in a slow sweep. A name is forgotten only while all tiers work: a tier that is not in
 * use at the moment, or whose store another process owns, still has its objects.
 */
#include <stdlib.h>
#include <string.h>

#include "core/generations.h"
#include "daemon/objects_parts.h"

#define WAIT_NS   1000000000u
#define AT_A_TIME 64          /* names */
#define LOOK_MOST 65536       /* limit of names that one list looks at and leaves out */
#define SWEEP_NS  10000000000 /* between two sweeps */

/* --- erasing ---------------------------------------------------------------------------------- */

/* Gives a slot another generation. */
static enum kvt_status change(struct kvt_objects *o, uint32_t slot)
{
	return o->shared ? kvt_table_raise(o->cache, slot, WAIT_NS)
			 : kvt_generation_table_raise(o->generations, slot, 1);
}

enum kvt_status kvt_object_rename(
	struct kvt_objects *o, const struct kvt_object_name *name, const struct kvt_key *old)
{
	enum kvt_status status = change(o, kvt_object_slot(name));

	if (status == KVT_OK)
		(void)!kvt_erase(o->cache, old, 1, 0, NULL); /* room */
	return status;
}

enum kvt_status kvt_object_erase(struct kvt_objects *o, const struct kvt_object_name *name)
{
	enum kvt_status status;
	struct kvt_key key;
	bool known;

	if (!kvt_object_name_valid(name))
		return KVT_EINVAL;
	kvt_object_key(o, name, &key);
	known = kvt_object_is_known(o, &key);
	if (!known && kvt_object_is_nowhere(o, &key))
		return KVT_MISS;
	status = kvt_object_rename(o, name, &key);
	if (status == KVT_OK)
		kvt_catalog_forget(o->catalog, name);
	return status == KVT_OK && !known ? KVT_MISS : status;
}

/* Erases a tenant's objects. Its slot may have another generation already. */
static enum kvt_status erase_tenant(struct kvt_objects *o, const struct kvt_tenant *tenant, size_t *erased)
{
	enum kvt_status status = kvt_erase_tenant(o->cache, tenant, WAIT_NS, erased);

	return status == KVT_MISS ? KVT_BUSY : status;
}

/* Makes everything that engines stored here unreachable: the names that engines use depend on the
 * generation of one of these slots. */
static enum kvt_status change_engines(struct kvt_objects *o)
{
	return kvt_generation_table_raise(o->generations, KVT_TENANT_SLOTS, KVT_VERSION_SLOTS);
}

enum kvt_status kvt_bucket_erase(struct kvt_objects *o, struct kvw_slice bucket,
	const struct kvt_tenant *tenant, size_t *erased)
{
	struct kvt_tenant own;
	enum kvt_status status;

	if (bucket.len == 0 || bucket.len > KVT_BUCKET_MOST)
		return KVT_EINVAL;
	*erased = 0;
	kvt_tenant_of(bucket.data, bucket.len, &own);
	if (tenant == NULL)
		kvt_catalog_forget_bucket(o->catalog, bucket);
	if (o->shared) /* later a sweep forgets a tenant's names */
		return erase_tenant(o, tenant != NULL ? tenant : &own, erased);
	status = tenant == NULL ? change_engines(o) : KVT_OK;
	if (status == KVT_OK)
		status = change(o, kvt_tenant_slot(tenant != NULL ? tenant : &own));
	if (status == KVT_OK && tenant != NULL)
		return erase_tenant(o, tenant, erased);
	if (status == KVT_OK)
		*erased = kvt_slot_free(o->cache, kvt_tenant_slot(&own));
	return status;
}

/* --- generations
 * ------------------------------------------------------------------------------- */

/* Reads the table: the shared tier's, if there is one. */
enum kvt_status kvt_objects_table(struct kvt_objects *o, struct kvt_table_ask *ask)
{
	if (o->shared)
		return kvt_table_read(o->cache, ask);
	kvt_generation_table_read(o->generations, ask);
	return KVT_OK;
}

enum kvt_status kvt_objects_raise(struct kvt_objects *o, const struct kvt_table_ask *ask)
{
	enum kvt_status status = change(o, ask->raise);

	if (status != KVT_OK || ask->tenant == NULL || o->shared)
		return status;
	/* frees room, since no request asks for these objects any more */
	(void)!kvt_erase_tenant(o->cache, ask->tenant, 0, NULL);
	return KVT_OK;
}

/* Returns which tier has an item's object; sets *key to its storage key. */
static uint8_t look_up(
	struct kvt_objects *o, const struct kvt_catalog_item *item, struct kvt_key *key)
{
	struct kvt_object_name name = {kvw_slice_of(item->bucket), kvw_slice_of(item->key)};

	kvt_object_key(o, &name, key);
	return kvt_object_tier(o, key);
}

/* --- names ------------------------------------------------------------------------------------ */

void kvt_names_sweep(struct kvt_objects *o)
{
	struct kvt_catalog_item *items;
	struct kvt_key key;
	size_t n = 0;

	if (kvt_now(o->surroundings) < o->sweep_ns || !kvt_object_tiers_work(o))
		return;
	items = calloc(AT_A_TIME, sizeof(*items));
	if (items != NULL)
		n = kvt_catalog_walk(o->catalog, o->swept->bucket[0] != '\0' ? o->swept : NULL,
			items, AT_A_TIME);
	for (size_t i = 0; i < n; i++)
		if (look_up(o, &items[i], &key) == KVT_TIER_NONE)
			kvt_catalog_forget_item(o->catalog, &items[i]);
	if (n != 0) {
		*o->swept = items[n - 1];
	} else {
		o->swept->bucket[0] = '\0';
		o->sweep_ns = kvt_now(o->surroundings) + SWEEP_NS;
	}
	free(items);
}

/* --- lists ------------------------------------------------------------------------------------ */

/* A list of objects that is being made. */
struct listing {
	struct kvt_objects *o;
	void (*visit)(void *user, const struct kvt_object_entry *entry);
	void *user;
	size_t count, most;
	bool forget; /* forgets names whose object no tier has */
	bool full;   /* more than `most` objects were found */
};

static void list_one(struct listing *list, const struct kvt_catalog_item *item)
{
	struct kvt_object_entry entry = {item->bucket, item->key, item->bytes, 0, 0};
	struct kvt_key key;

	entry.tier = look_up(list->o, item, &key);
	if (entry.tier == KVT_TIER_NONE) {
		if (list->forget)
			kvt_catalog_forget_item(list->o->catalog, item);
		return;
	}
	list->full = list->count == list->most;
	if (list->full)
		return;
	entry.leases = kvt_lease_table_count_of(list->o->leases, &key);
	list->count++;
	list->visit(list->user, &entry);
}

size_t kvt_objects_list(struct kvt_objects *o, struct kvw_slice bucket, struct kvw_slice after,
	size_t most, void (*visit)(void *user, const struct kvt_object_entry *entry), void *user,
	bool *more)
{
	struct listing list = {.o = o, .visit = visit, .user = user, .most = most};
	struct kvt_catalog_item *items = calloc(AT_A_TIME, sizeof(*items)), last;
	size_t looked = 0, n = AT_A_TIME;

	list.forget = kvt_object_tiers_work(o);
	while (items != NULL && !list.full && n == AT_A_TIME && looked < LOOK_MOST) {
		n = kvt_catalog_page(o->catalog, bucket, after, items, AT_A_TIME);
		for (size_t i = 0; i < n && !list.full; i++)
			list_one(&list, &items[i]);
		looked += n;
		if (n != 0)
			last = items[n - 1];
		after = n != 0 ? kvw_slice_of(last.key) : after;
	}
	*more = list.full || n == AT_A_TIME;
	free(items);
	return list.count;
}

size_t kvt_buckets_list(struct kvt_objects *o,
	void (*visit)(void *user, const struct kvt_bucket_entry *entry), void *user)
{
	return kvt_catalog_buckets(o->catalog, visit, user);
}
