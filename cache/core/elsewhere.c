/*
 * elsewhere.c - what other processes erase in a tier that this one shares with them.
 *
 * A shared tier finds out that another process erased a tenant, or all, and keeps that in a list. Here it is
 * erased in this handle, too, as kvt_erase does it, but for the shared tier itself: loads under way, stores that
 * wait, L1, and the handle's own tiers below.
 *
 * Which puts are of before the erase? All that the tier was given, or could be, before this handle has erased: the
 * list is taken and the chunks go under one `lock`, which is also what lets stores begin. The tier writes none of
 * those that came before.
 *
 * A process that finds all that it wants in memory would never ask the shared tier for anything. So it gives the
 * tier a list of the tenants whose chunks it holds, and the tier looks for erases of these tenants by the clock.
 */
#include <stdlib.h>

#include "core/elsewhere.h"
#include "core/loads.h"
#include "core/lower.h"
#include "core/refused.h"
#include "core/stores.h"

#define LIST_NS 1000000000

/* --- heeding ---------------------------------------------------------------------------------- */

static void flushed(struct kvt *k, struct kvt_job *job)
{
	(void)k;
	free(job);
}

/* What was erased there is to stay so after a crash. No caller waits for it; the tier itself says if it cannot. */
static void make_durable(struct kvt_lower *own)
{
	struct kvt_job *job = calloc(1, sizeof(*job));

	if (job == NULL)
		return;
	job->request.verb = KVT_TIER_FLUSH;
	kvt_lower_submit(own, job, flushed);
}

/* One of this handle's own tiers. Returns how many chunks went. */
static size_t erase_own(struct kvt_lower *own, const struct kvt_tenant *tenant)
{
	struct kvt_tier *tier = own->tier;
	size_t count = 0;

	if (tier == NULL) { /* its owner may not have seen it before its store comes to this handle */
		(void)!kvt_refused_erase_tenant(own, tenant);
		return 0;
	}
	if (tier->ops->unsure != NULL)
		return 0;
	if ((tenant != NULL ? tier->ops->erase_tenant(tier, tenant, &count)
			    : tier->ops->erase_all(tier, &count)) != KVT_OK)
		kvt_note(&own->k->surroundings, KVT_LOG_WARN,
			"%s: what another process erased is unreadable, but may come back after a crash",
			tier->ops->name);
	make_durable(own);
	return count;
}

/* As erase_many of erase.c. Returns how many chunks went. Under lock. */
static size_t erase(struct kvt *k, const struct kvt_tenant *tenant, enum kvt_elsewhere_depth depth)
{
	size_t most, count;

	if (depth == KVT_ELSEWHERE_ALL)
		kvt_loads_erase(k, NULL, 0, tenant);
	kvt_stores_erase(k, NULL, 0, tenant);
	most = tenant != NULL ? kvt_l1_erase_tenant(k->l1, tenant) : kvt_l1_erase_all(k->l1);
	for (size_t i = 0; depth == KVT_ELSEWHERE_ALL && i < k->lower_count; i++) {
		count = erase_own(&k->lower[i], tenant);
		most = count > most ? count : most;
	}
	return most;
}

static void heed_one(
	struct kvt_lower *b, const struct kvt_tenant *tenant, enum kvt_elsewhere_depth depth)
{
	size_t count;

	if (depth == KVT_ELSEWHERE_NOTHING)
		return;
	count = erase(b->k, tenant, depth);
	if (count == 0 && depth == KVT_ELSEWHERE_MEMORY)
		return; /* long ago, and nothing here was older */
	kvt_count(&b->erased_elsewhere, 1);
	kvt_note(&b->k->surroundings, KVT_LOG_INFO,
		"%s: another process erased %s: %zu chunks were erased here, too",
		b->tier->ops->name, tenant != NULL ? "a tenant" : "all", count);
}

size_t kvt_elsewhere_heed(struct kvt_lower *b)
{
	struct kvt_tier *tier = b->tier;
	struct kvt_elsewhere list;

	if (!atomic_load_explicit(&tier->elsewhere, memory_order_relaxed))
		return 0;
	pthread_mutex_lock(&b->k->lock);
	tier->ops->take_elsewhere(tier, &list);
	heed_one(b, NULL, list.all);
	for (size_t i = 0; i < list.count; i++)
		heed_one(b, &list.tenants[i], list.depths[i]);
	pthread_mutex_unlock(&b->k->lock);
	return 1;
}

/* --- what is held ------------------------------------------------------------------------------ */

static void pass_on(struct kvt_lower *b, const struct kvt_tenant_list *list)
{
	struct kvt_tenant tenants[KVT_TENANTS_LISTED];

	for (size_t i = 0; i < list->count; i++)
		tenants[i] = list->at[i].tenant;
	if (list->count > 0)
		b->tier->ops->holds(b->tier, tenants, list->count);
}

static bool listens(struct kvt_lower *b)
{
	return kvt_lower_shows(b) && b->tier->ops->holds != NULL;
}

void kvt_elsewhere_list(struct kvt *k, int64_t now_ns, int64_t *next_ns)
{
	struct kvt_tenant_list list;
	bool any = false;

	for (size_t i = 0; i < k->lower_count; i++)
		any = any || listens(&k->lower[i]);
	if (any && now_ns >= k->held_ns + LIST_NS) {
		k->held_ns = now_ns;
		for (size_t from = 0; from <= k->lower_count; from++) {
			struct kvt_tier *tier = from > 0 ? k->lower[from - 1].tier : NULL;

			if (from > 0 && (tier == NULL || tier->ops->unsure != NULL ||
						tier->ops->tenants == NULL))
				continue;
			if (from == 0)
				kvt_l1_tenants(k->l1, KVT_TENANTS_LISTED, &list);
			else
				tier->ops->tenants(tier, KVT_TENANTS_LISTED, &list);
			for (size_t i = 0; i < k->lower_count; i++)
				if (listens(&k->lower[i]))
					pass_on(&k->lower[i], &list);
		}
	}
	if (any && k->held_ns + LIST_NS < *next_ns)
		*next_ns = k->held_ns + LIST_NS;
}
