/*
 * tenants.c - counts and limits the bytes of each tenant in an index.
 *
 * Entries name their tenant by four bytes. A record lives as long as its tenant has entries, so
 * that records never outnumber entries, and a tenant without entries uses no memory.
 *
 * The limits of single tenants have records of their own, since they also hold while a tenant has
 * no entry. A tenant with a limit makes room from its own entries, oldest first, in a list per
 * tenant; the first limit creates the links of these lists, from the entries present then.
 */
#include "index/index_parts.h"

#include <stdlib.h>

static uint32_t hash_of(const struct kvt_index *x, const struct kvt_tenant *tenant)
{
	struct kvt_key key = {{0}};

	memcpy(key.bytes, tenant->bytes, sizeof(tenant->bytes));
	return kvt_index_hash(x, &key);
}

static uint32_t find(const struct kvt_index *x, uint32_t hash, const struct kvt_tenant *tenant)
{
	uint32_t number = kvt_pool_first(&x->tenants, hash);

	while (number != KVT_NO_ENTRY &&
		memcmp(&kvt_tenant_at(x, number)->tenant, tenant, sizeof(*tenant)) != 0)
		number = kvt_pool_next(&x->tenants, number);
	return number;
}

uint32_t kvt_tenant_find(const struct kvt_index *x, const struct kvt_tenant *tenant)
{
	return find(x, hash_of(x, tenant), tenant);
}

enum kvt_status kvt_tenant_charge(
	struct kvt_index *x, const struct kvt_tenant *tenant, uint64_t charge, uint32_t *number)
{
	uint32_t hash = hash_of(x, tenant), found = find(x, hash, tenant);
	struct kvt_tenant_record *record;

	if (found == KVT_NO_ENTRY) {
		if (kvt_pool_add(&x->tenants, hash, &found) != KVT_OK)
			return KVT_ENOMEM;
		kvt_tenant_at(x, found)->tenant = *tenant;
	}
	record = kvt_tenant_at(x, found);
	record->entries++;
	record->used += charge;
	*number = found;
	return KVT_OK;
}

void kvt_tenant_discharge(struct kvt_index *x, uint32_t number, uint64_t charge)
{
	struct kvt_tenant_record *record = kvt_tenant_at(x, number);

	record->used -= charge;
	if (--record->entries == 0)
		kvt_pool_remove(&x->tenants, number);
}

/* --- shares --- */

static void add_to_others(struct kvt_tenant_list *list, const struct kvt_tenant_share *share)
{
	list->others.chunks += share->chunks;
	list->others.bytes += share->bytes;
	list->others.refused += share->refused;
}

/* Adds a share to the list; a share that falls out of the list is added to the others. */
static void add_share(struct kvt_tenant_list *list, size_t most, struct kvt_tenant_share share)
{
	struct kvt_tenant_share swap;

	list->tenants++;
	if (list->count == most && most > 0 && list->at[most - 1].bytes >= share.bytes) {
		add_to_others(list, &share); /* the usual case if there are many tenants */
		return;
	}
	for (size_t i = 0; i < list->count; i++) {
		if (list->at[i].bytes >= share.bytes)
			continue;
		swap = list->at[i];
		list->at[i] = share;
		share = swap;
	}
	if (list->count < most) {
		list->at[list->count++] = share;
		return;
	}
	add_to_others(list, &share);
}

void kvt_index_tenants(struct kvt_index *x, size_t most, struct kvt_tenant_list *out)
{
	*out = (struct kvt_tenant_list){.count = 0};
	if (most > KVT_TENANTS_LISTED)
		most = KVT_TENANTS_LISTED;
	kvt_index_lock(x);
	for (uint32_t i = 0; i < x->tenants.fresh; i++) {
		const struct kvt_tenant_record *record = kvt_tenant_at(x, i);
		const struct kvt_tenant_share share = {
			record->tenant, record->entries, record->used, record->refused};

		if (record->entries > 0)
			add_share(out, most, share);
	}
	kvt_index_unlock(x);
}

/* --- limits --- */

static struct kvt_tenant_limit *limit_at(const struct kvt_index *x, uint32_t number)
{
	return kvt_pool_at(&x->limits, number);
}

static uint32_t find_limit(
	const struct kvt_index *x, uint32_t hash, const struct kvt_tenant *tenant)
{
	uint32_t number = kvt_pool_first(&x->limits, hash);

	while (number != KVT_NO_ENTRY &&
		memcmp(&limit_at(x, number)->tenant, tenant, sizeof(*tenant)) != 0)
		number = kvt_pool_next(&x->limits, number);
	return number;
}

uint64_t kvt_tenant_limit_of(const struct kvt_index *x, const struct kvt_tenant *tenant)
{
	uint32_t number = KVT_NO_ENTRY;

	if (x->limits.count != 0)
		number = find_limit(x, hash_of(x, tenant), tenant);
	return number != KVT_NO_ENTRY ? limit_at(x, number)->charge : x->options.tenant_limit;
}

static enum kvt_status make_lists(struct kvt_index *x)
{
	const uint32_t fresh = atomic_load_explicit(&x->fresh, memory_order_relaxed);

	if (x->tenant_links != NULL)
		return KVT_OK;
	x->tenant_links = calloc(x->options.max_entries, sizeof(*x->tenant_links));
	if (x->tenant_links == NULL)
		return KVT_ENOMEM;
	for (uint32_t i = 0; i < fresh; i++) {
		const struct kvt_entry *e = kvt_index_at(x, i);

		if (kvt_entry_phase(e) == KVT_LIVE)
			kvt_entry_list_add(&kvt_tenant_at(x, e->tenant)->list, x->tenant_links, i);
	}
	return KVT_OK;
}

enum kvt_status kvt_index_limit_tenant(
	struct kvt_index *x, const struct kvt_tenant *tenant, uint64_t charge)
{
	const uint32_t hash = hash_of(x, tenant);
	enum kvt_status status;
	uint32_t number;

	kvt_index_lock(x);
	status = make_lists(x);
	number = find_limit(x, hash, tenant);
	if (status == KVT_OK && number == KVT_NO_ENTRY)
		status = kvt_pool_add(&x->limits, hash, &number);
	if (status == KVT_OK) {
		limit_at(x, number)->tenant = *tenant;
		limit_at(x, number)->charge = charge;
	}
	kvt_index_unlock(x);
	return status;
}
