/*
 * kvtierd_tenants.c - the table of tenants whose epochs are remembered, and which of them are held.
 *
 * It has room for KVTIERD_EPOCHS. A new one takes the place of the one that was looked at the longest ago, of those that
 * nothing waits for; one of which this handle holds chunks goes last, since it is looked at by the clock.
 */
#include <stdlib.h>
#include <string.h>

#include "tiers/kvtierd/kvtierd.h"

#define HELD_NS 3000000000 /* how long it counts that a tenant's chunks are held here */

bool kvtierd_epoch_is_held(const struct kvtierd_epoch *e, int64_t now_ns)
{
	return e->held_ns != 0 && now_ns - e->held_ns < HELD_NS;
}

static struct kvtierd_epoch **bucket_of(struct kvtierd *t, const struct kvt_tenant *tenant)
{
	return &t->epochs.buckets[tenant->bytes[0]]; /* a hash, or all zero */
}

static bool may_go(const struct kvtierd_epoch *e)
{
	return e->state == KVTIERD_EPOCH_IDLE && e->waiters == NULL && !e->dirty &&
	       !e->by_clock && e->late_up_to != UINT64_MAX;
}

/* One that is held goes last. */
static bool goes_before(const struct kvtierd_epoch *a, const struct kvtierd_epoch *b, int64_t now_ns)
{
	bool a_held = kvtierd_epoch_is_held(a, now_ns), b_held = kvtierd_epoch_is_held(b, now_ns);

	return a_held != b_held ? b_held : a->checked_ns < b->checked_ns;
}

/* Forgets the tenant that was looked at the longest ago. Under lock, on the tier's thread. */
static bool forget_one(struct kvtierd *t)
{
	struct kvtierd_epoch **oldest = NULL, *e;
	int64_t now_ns = kvt_now(t->s);

	for (size_t i = 0; i < 256; i++)
		for (struct kvtierd_epoch **at = &t->epochs.buckets[i]; *at != NULL;
			at = &(*at)->next)
			if (may_go(*at) && (oldest == NULL || goes_before(*at, *oldest, now_ns)))
				oldest = at;
	if (oldest == NULL)
		return false;
	e = *oldest;
	*oldest = e->next;
	t->epochs.count--;
	free(e);
	return true;
}

struct kvtierd_epoch *kvtierd_epoch_find(
	struct kvtierd *t, const struct kvt_tenant *tenant, bool may_forget)
{
	struct kvtierd_epoch **bucket, *e;

	if (tenant == NULL)
		return &t->epochs.all;
	bucket = bucket_of(t, tenant);
	for (e = *bucket; e != NULL; e = e->next)
		if (memcmp(&e->tenant, tenant, sizeof(*tenant)) == 0)
			return e;
	if (t->epochs.count >= KVTIERD_EPOCHS && (!may_forget || !forget_one(t)))
		return NULL;
	e = calloc(1, sizeof(*e));
	if (e == NULL)
		return NULL;
	e->t = t;
	e->tenant = *tenant;
	e->next = *bucket;
	*bucket = e;
	t->epochs.count++;
	return e;
}

void kvtierd_epochs_holds(struct kvtierd *t, const struct kvt_tenant *tenants, size_t n)
{
	struct kvtierd_epochs *all = &t->epochs;

	pthread_mutex_lock(&t->lock);
	for (size_t i = 0; i < n && all->hold_count < 2 * KVT_TENANTS_LISTED; i++)
		all->holds[all->hold_count++] = tenants[i];
	pthread_mutex_unlock(&t->lock);
}

void kvtierd_epochs_take_holds(struct kvtierd *t, int64_t now_ns)
{
	struct kvtierd_epochs *all = &t->epochs;

	for (uint32_t i = 0; i < all->hold_count; i++) {
		struct kvtierd_epoch *e = kvtierd_epoch_find(t, &all->holds[i], true);

		if (e != NULL)
			e->held_ns = now_ns;
		all->all.held_ns = now_ns;
		all->held = true;
	}
	all->hold_count = 0;
}
