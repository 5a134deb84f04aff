/*
 * redis_shares.c - how many bytes each tenant has in Redis, as last reported to this handle; used
 * by metrics. Only as many tenants are kept as kvt_tenant_list has places, namely the largest.
 */
#include <stdlib.h>
#include <string.h>

#include "tiers/redis/redis_tier.h"

void redis_shares_note(
	struct redis_tier *t, const struct kvt_tenant *tenant, uint64_t bytes, uint64_t chunks)
{
	struct kvt_tenant_list *list = &t->shares;
	size_t at = 0, least = 0;

	pthread_mutex_lock(&t->lock);
	while (at < list->count && memcmp(&list->at[at].tenant, tenant, sizeof(*tenant)) != 0)
		at++;
	if (at == KVT_TENANTS_LISTED) {
		for (size_t i = 1; i < list->count; i++)
			least = list->at[i].bytes < list->at[least].bytes ? i : least;
		at = least;
	} else if (at == list->count) {
		list->at[list->count++] = (struct kvt_tenant_share){.tenant = *tenant};
	}
	if (memcmp(&list->at[at].tenant, tenant, sizeof(*tenant)) != 0)
		list->at[at] = (struct kvt_tenant_share){.tenant = *tenant};
	list->at[at].chunks = chunks;
	list->at[at].bytes = bytes;
	pthread_mutex_unlock(&t->lock);
}

void redis_shares_refused(struct redis_tier *t, const struct kvt_tenant *tenant)
{
	struct kvt_tenant_list *list = &t->shares;

	pthread_mutex_lock(&t->lock);
	t->counters.quota_refused++;
	for (size_t i = 0; i < list->count; i++)
		if (memcmp(&list->at[i].tenant, tenant, sizeof(*tenant)) == 0)
			list->at[i].refused++;
	pthread_mutex_unlock(&t->lock);
}

static int by_bytes(const void *a, const void *b)
{
	const struct kvt_tenant_share *x = a, *y = b;

	return x->bytes < y->bytes ? 1 : x->bytes > y->bytes ? -1 : 0;
}

void redis_shares_list(struct redis_tier *t, size_t most, struct kvt_tenant_list *out)
{
	pthread_mutex_lock(&t->lock);
	*out = t->shares;
	pthread_mutex_unlock(&t->lock);
	out->tenants = out->count;
	qsort(out->at, out->count, sizeof(out->at[0]), by_bytes);
	for (size_t i = most; i < out->count; i++) {
		out->others.chunks += out->at[i].chunks;
		out->others.bytes += out->at[i].bytes;
		out->others.refused += out->at[i].refused;
	}
	out->count = out->count < most ? out->count : most;
}
