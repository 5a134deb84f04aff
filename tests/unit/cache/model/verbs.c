/*
 * verbs.c - everything else that can be asked of a cache.
 */
#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "history_parts.h"

static void get_now(struct history *h, uint32_t first, size_t n)
{
	struct kvt_key keys[64];
	struct kvt_lease *lease = NULL;
	enum kvt_status status;

	n = model_keys_of(h, first, n, keys);
	model_use_all(h, first, n);
	status = kvt_get(h->k, keys, n, 20 * SECOND, &lease);
	model_trace(h, "chunks %u..%zu: %s, %zu got", first, first + n - 1, kvt_status_text(status),
		lease == NULL ? 0 : lease->count);
	if ((status == KVT_OK) != (lease != NULL))
		model_wrong(h, "status %d and lease %p", status, (void *)lease);
	if (status != KVT_OK && status != KVT_MISS && status != KVT_BUSY)
		model_wrong(h, "get says %s", kvt_status_text(status));
	if (status == KVT_BUSY)
		return;
	oracle_age(&h->oracle, model_now(h));
	model_judge_lease(h, first, n, lease);
	model_keep_or_release(h, first, lease);
}

void model_do_get(struct history *h)
{
	uint32_t id = model_pick(h);
	uint32_t first = model_random_below(h, 4) == 0 ? id : model_head_of(h, id);

	get_now(h, first, 1 + model_random_below(h, h->p->depth));
}

void model_do_release(struct history *h)
{
	model_let_go(h, &h->held[model_random_below(h, LEASES)]);
}

void model_do_lookup(struct history *h)
{
	struct kvt_key keys[64];
	uint8_t tiers[64];
	struct kvt_lookup found = {0};
	uint32_t first = model_head_of(h, model_pick(h));
	size_t n = model_keys_of(h, first, 1 + model_random_below(h, h->p->depth), keys);
	enum kvt_status status;

	model_hear(h);
	status = kvt_lookup(h->k, keys, n, KVT_ALL_TIERS, tiers, &found);
	if (status != KVT_OK && status != KVT_MISS)
		model_wrong(h, "lookup says %s", kvt_status_text(status));
	if (found.hits > n || found.worth > found.hits)
		model_wrong(
			h, "%zu hits, %zu of them worth it, of %zu", found.hits, found.worth, n);
	for (size_t i = 0; i < n; i++) {
		uint32_t id = first + (uint32_t)i;

		if ((tiers[i] != KVT_TIER_NONE) != (i < found.hits))
			model_wrong(
				h, "%zu hits, and tier %u for chunk %u", found.hits, tiers[i], id);
		if (i < found.hits && model_entry(h, id)->presence == GONE)
			model_wrong(h, "chunk %u is gone, and found in tier %u", id, tiers[i]);
		if (i < found.hits && tiers[i] == KVT_TIER_L1 && h->told[tiers[i]][id] == 0)
			model_wrong(h, "chunk %u found in tier %u, which never reported it", id,
				tiers[i]);
		if (i == found.hits && model_demanded(h, id))
			model_wrong(h, "chunk %u is not found", id);
	}
}

/* Every chunk is asked for: what is gone is nowhere. */
void model_do_survey(struct history *h)
{
	struct kvt_lookup found;
	struct kvt_key key;
	uint8_t tier;

	for (uint32_t id = 0; id < h->p->chains * h->p->depth; id++) {
		key = oracle_key(id);
		found = (struct kvt_lookup){0};
		if (kvt_lookup(h->k, &key, 1, KVT_ALL_TIERS, &tier, &found) > KVT_MISS)
			model_wrong(h, "lookup fails");
		if (found.hits > 0 && model_entry(h, id)->presence == GONE)
			model_wrong(h, "chunk %u is gone, and found in tier %u", id, tier);
		if (found.hits == 0 && model_demanded(h, id))
			model_wrong(h, "chunk %u is not found", id);
	}
}

void model_do_prefetch(struct history *h)
{
	struct kvt_key keys[64] = {0};
	uint32_t first = model_head_of(h, model_pick(h));
	size_t n = model_keys_of(h, first, 1 + model_random_below(h, h->p->depth), keys);
	enum kvt_status status = kvt_prefetch(h->k, keys, n);

	model_use_all(h, first, n);
	model_trace(h, "chunks %u..%zu: %s", first, first + n - 1, kvt_status_text(status));
	if (status != KVT_OK && status != KVT_MISS && status != KVT_BUSY)
		model_wrong(h, "prefetch says %s", kvt_status_text(status));
}

void model_do_pin(struct history *h)
{
	struct kvt_key keys[64];
	uint32_t first = model_pick(h);
	size_t n = model_keys_of(h, first, 1 + model_random_below(h, 3), keys), changed = 0,
	       there = 0;
	bool unpin = model_random_below(h, 2) == 0;
	enum kvt_status status =
		unpin ? kvt_unpin(h->k, keys, n, &changed) : kvt_pin(h->k, keys, n, &changed);

	model_use_all(h, first, n);
	for (size_t i = 0; i < n; i++)
		there += model_entry(h, first + (uint32_t)i)->presence != GONE;
	if (status != KVT_OK && status != KVT_MISS)
		model_wrong(h, "pin says %s", kvt_status_text(status));
	if (changed > there)
		model_wrong(h, "%zu of %zu pinned, where at most %zu are", changed, n, there);
}

void model_unpin_all(struct history *h)
{
	struct kvt_key keys[64];

	for (uint32_t c = 0; c < h->p->chains; c++) {
		size_t n = model_keys_of(h, c * h->p->depth, h->p->depth, keys);

		if (kvt_unpin(h->k, keys, n, NULL) > KVT_MISS)
			model_wrong(h, "unpin fails");
	}
}

/* Enough, or nothing: then it is unreadable all the same, and only not known to be durable. */
static uint64_t erase_limit(struct history *h)
{
	return model_random_below(h, 3) == 0 ? 0 : 20 * SECOND;
}

/* May an erase count it? Also one that is gone by an erase that did not wait: the tier below may still have it. */
static bool may_count(struct history *h, uint32_t id)
{
	const struct entry *e = model_entry(h, id);

	return e->presence != GONE || e->filling > 0 || e->oldest < e->generation;
}

static void judge_erase(
	struct history *h, enum kvt_status status, uint64_t limit, size_t erased, size_t there)
{
	if (status != KVT_OK && !(status == KVT_MISS && (h->p->faults || limit == 0)))
		model_wrong(h, "erase says %s", kvt_status_text(status));
	if (erased > there)
		model_wrong(h, "%zu erased, where at most %zu were", erased, there);
}

void model_do_erase(struct history *h)
{
	struct kvt_key keys[64];
	uint32_t first = model_pick(h);
	size_t n = model_keys_of(h, first, 1 + model_random_below(h, 4), keys), erased = 0,
	       there = 0;
	uint64_t limit = erase_limit(h);
	enum kvt_status status;

	for (size_t i = 0; i < n; i++)
		there += may_count(h, first + (uint32_t)i);
	status = kvt_erase(h->k, keys, n, limit, &erased);
	model_trace(h, "chunks %u..%zu: %s, %zu", first, first + n - 1, kvt_status_text(status),
		erased);
	judge_erase(h, status, limit, erased, there);
	for (size_t i = 0; i < n; i++)
		oracle_gone(&h->oracle, first + (uint32_t)i, status == KVT_OK);
}

/* All chunks of one tenant, or of all (tenant == TENANTS). */
static void all_gone(struct history *h, uint32_t tenant, bool surely, size_t *there)
{
	for (uint32_t id = 0; id < h->p->chains * h->p->depth; id++) {
		if (tenant != TENANTS && oracle_tenant_number(&h->oracle, id) != tenant)
			continue;
		*there += may_count(h, id);
		oracle_gone(&h->oracle, id, surely);
	}
}

void model_do_erase_tenant(struct history *h)
{
	uint32_t id = model_pick(h);
	struct kvt_tenant tenant = oracle_tenant(&h->oracle, id);
	size_t erased = 0, there = 0;
	uint64_t limit = erase_limit(h);
	enum kvt_status status = kvt_erase_tenant(h->k, &tenant, limit, &erased);

	model_trace(h, "tenant %u: %s, %zu", oracle_tenant_number(&h->oracle, id),
		kvt_status_text(status), erased);
	all_gone(h, oracle_tenant_number(&h->oracle, id), status == KVT_OK, &there);
	judge_erase(h, status, limit, erased, there);
}

void model_do_reset(struct history *h)
{
	size_t there = 0;
	enum kvt_status status = kvt_reset(h->k);

	if (status != KVT_OK && !(status == KVT_MISS && h->p->faults)) /* as judge_erase */
		model_wrong(h, "reset says %s", kvt_status_text(status));
	all_gone(h, TENANTS, status == KVT_OK, &there);
}

void model_do_time(struct history *h)
{
	if (model_random_below(h, 8) == 0)
		model_pass_time(h, model_random_below(h, 60) * SECOND);
	else
		model_pass_time(h, model_random_below(h, 50) * SECOND / 1000);
}

void model_do_steps(struct history *h)
{
	for (uint32_t i = model_random_below(h, 20); i > 0; i--)
		(void)kvt_step(h->k, NULL);
}

/* Begins a get, lets things happen, takes it or not. */
void model_do_async(struct history *h)
{
	struct kvt_key keys[64];
	uint32_t first = model_head_of(h, model_pick(h));
	size_t n = model_keys_of(h, first, 1 + model_random_below(h, h->p->depth), keys);
	struct kvt_completion done = {0};
	struct kvt_lease *lease = NULL;
	uint64_t op = 0;
	bool cancel = model_random_below(h, 6) == 0;
	enum kvt_status status = kvt_get_begin(h->k, keys, n, 20 * SECOND, ++h->user, &op);

	model_use_all(h, first, n);
	if (status == KVT_BUSY)
		return;
	if (status != KVT_OK)
		model_wrong(h, "get_begin says %s", kvt_status_text(status));
	if (cancel)
		(void)!kvt_cancel(h->k, op);
	model_step_until_idle(h);
	for (int i = 0; kvt_poll(h->k, &done, 1) == 0; i++) {
		if (i > 1000)
			model_wrong(h, "a get does not complete");
		model_pass_time(h, SECOND / 10);
		model_step_until_idle(h);
	}
	if (done.op != op || done.user != h->user || done.kind != KVT_OP_GET)
		model_wrong(h, "a completion of something else");
	model_use_all(h, first, n);
	if (done.status != KVT_OK) {
		if (done.status == KVT_MISS && !cancel)
			model_judge_lease(h, first, n, NULL);
		if (kvt_get_take(h->k, op, &lease) == KVT_OK)
			model_wrong(h, "a lease of a get that failed");
		return;
	}
	if (kvt_get_take(h->k, op, &lease) != KVT_OK || lease == NULL)
		model_wrong(h, "a get's lease cannot be taken");
	if (done.count != lease->count)
		model_wrong(h, "%" PRIu64 " chunks reported, %zu got", done.count, lease->count);
	if (!cancel || lease->count == n)
		model_judge_lease(h, first, n, lease);
	model_keep_or_release(h, first, lease);
}

void model_drain(struct history *h)
{
	enum kvt_status status = kvt_drain(h->k, 60 * SECOND);

	if (status != KVT_OK && !(status == KVT_MISS && h->p->faults))
		model_wrong(h, "drain says %s", kvt_status_text(status));
	if (status == KVT_OK && h->p->nvme_capacity > 0)
		oracle_drained(&h->oracle);
}

void model_do_drain(struct history *h)
{
	model_drain(h);
}

void model_do_stats(struct history *h)
{
	struct kvt_stats stats = {.size = sizeof(stats)};
	size_t held = 0;
	char *text = NULL;

	for (int i = 0; i < LEASES; i++)
		held += h->held[i].lease != NULL;
	if (kvt_stats(h->k, &stats) != KVT_OK)
		model_wrong(h, "no stats");
	if (stats.tiers[KVT_TIER_L1].used > stats.tiers[KVT_TIER_L1].capacity ||
		stats.tiers[KVT_TIER_NVME].used > stats.tiers[KVT_TIER_NVME].capacity)
		model_wrong(h, "a tier occupies more than it may");
	if (held == 0 && stats.tiers[KVT_TIER_L1].oldest_lease_ns != 0)
		model_wrong(h, "a lease that no call holds");
	if (kvt_metrics(h->k, &text) != KVT_OK || text == NULL)
		model_wrong(h, "no metrics");
	kvt_text_free(text);
}
