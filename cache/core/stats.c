/*
 * stats.c - a cache's counters, contents and events.
 */
#include <stdio.h>

#include "core/lower.h"
#include "core/cache_metrics.h"

static uint64_t get(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

void kvt_fragment_counters_read(const struct kvt_fragment_counters *c, struct kvt_fragments_stats *s)
{
	s->stores = get(&c->stores);
	s->stored_chunks = get(&c->stored_chunks);
	s->stored_tokens = get(&c->stored_tokens);
	s->stored_bytes = get(&c->stored_bytes);
	s->loads = get(&c->loads);
	s->hit_tokens = get(&c->hit_tokens);
	s->missed_tokens = get(&c->missed_tokens);
	s->loaded_bytes = get(&c->loaded_bytes);
	s->moved_bytes = get(&c->moved_bytes);
	for (int i = 0; i < KVT_FRAGMENT_REFUSALS; i++)
		s->refused[i] = get(&c->refused[i]);
}

static void copy_text(char *to, size_t room, const char *from)
{
	snprintf(to, room, "%s", from);
}

static void add_l1(struct kvt *k, struct kvt_tier_stats *s)
{
	kvt_l1_stats(k->l1, s);
	s->hits = get(&k->counters.l1_hits);
	s->misses = get(&k->counters.l1_misses);
	s->loads = get(&k->counters.promotions);
	s->oldest_lease_ns = kvt_leases_oldest(&k->leases, kvt_clock(k));
}

static void add_lower(struct kvt_lower *b, struct kvt_tier_stats *s)
{
	struct kvt_tier *tier;

	pthread_mutex_lock(&b->k->lock);
	tier = b->tier;
	s->state = b->state;
	copy_text(s->reason, sizeof(s->reason), b->reason);
	pthread_mutex_unlock(&b->k->lock);
	if (tier == NULL)
		return;
	tier->ops->stats(tier, s);
	if (s->state == KVT_TIER_WORKS && !kvt_breaker_shows(&b->breaker))
		s->state = KVT_TIER_PAUSED;
	if (s->state == KVT_TIER_WORKS && !kvt_breaker_shows(&b->write_breaker)) {
		s->state = KVT_TIER_PAUSED;
		copy_text(s->reason, sizeof(s->reason),
			"it fails to store (the log says why), and is read from");
	}
	s->hits = get(&b->hits);
	s->misses = get(&b->misses);
	s->loads = get(&b->loads);
	s->load_bytes = get(&b->load_bytes);
	s->stores = get(&b->stores);
	s->store_bytes = get(&b->store_bytes);
	if (s->io_errors < get(&b->io_errors))
		s->io_errors = get(&b->io_errors);
	if (s->corrupt < get(&b->corrupt))
		s->corrupt = get(&b->corrupt);
	s->read_bytes_per_second = get(&b->reads.rate);
	s->write_bytes_per_second = get(&b->writes.rate);
	s->queued_read_bytes = get(&b->reads.queued);
	s->queued_write_bytes = get(&b->writes.queued);
	s->breaker_trips = get(&b->breaker.trips) + get(&b->write_breaker.trips);
}

static void add_limited(struct kvt *k, struct kvt_stats *s)
{
	kvt_l1_limited(k->l1, &s->tenant_evictions[KVT_TIER_L1], &s->tenant_refusals[KVT_TIER_L1]);
	for (size_t i = 0; i < k->lower_count; i++) {
		struct kvt_tier *tier = k->lower[i].tier;
		uint32_t id = k->lower[i].id;

		s->erased_elsewhere[id] = get(&k->lower[i].erased_elsewhere);
		if (tier != NULL && tier->ops->limited != NULL)
			tier->ops->limited(
				tier, &s->tenant_evictions[id], &s->tenant_refusals[id]);
	}
}

static void add_counters(const struct kvt_counters *c, struct kvt_stats *s)
{
	s->lookups = get(&c->lookups);
	s->lookup_chunks = get(&c->lookup_chunks);
	s->lookup_hits = get(&c->lookup_hits);
	s->gets = get(&c->gets);
	s->get_chunks = get(&c->get_chunks);
	s->get_hits = get(&c->get_hits);
	s->get_timeouts = get(&c->get_timeouts);
	s->puts = get(&c->puts);
	s->put_bytes = get(&c->put_bytes);
	s->put_exists = get(&c->put_exists);
	s->put_full = get(&c->put_full);
	s->stores_dropped = get(&c->stores_dropped);
	s->prefetches = get(&c->prefetches);
	s->promotions = get(&c->promotions);
	s->joined_loads = get(&c->joined_loads);
	s->not_worth_fetching = get(&c->not_worth);
	s->finds = get(&c->finds);
	s->probes = get(&c->probes);
	s->probe_chunks = get(&c->probe_chunks);
	s->probe_hits = get(&c->probe_hits);
	s->lock_refusals = get(&c->lock_refusals);
	s->tables_lost = get(&c->tables_lost);
	s->tables_refused = get(&c->tables_refused);
	s->put_orphans = get(&c->put_orphans);
	s->put_blended = get(&c->put_blended);
}

enum kvt_status kvt_stats(struct kvt *k, struct kvt_stats *out)
{
	enum kvt_status status = kvt_usable(k);
	struct kvt_stats s = {.size = sizeof(s)};
	struct kvt_event_log_stats events;
	size_t size;

	if (status != KVT_OK)
		return status;
	if (out == NULL || out->size < offsetof(struct kvt_stats, lookups))
		return KVT_EINVAL;
	add_l1(k, &s.tiers[KVT_TIER_L1]);
	for (size_t i = 0; i < k->lower_count; i++)
		add_lower(&k->lower[i], &s.tiers[k->lower[i].id]);
	add_limited(k, &s);
	add_counters(&k->counters, &s);
	kvt_event_log_stats(k->events, &events);
	s.events = events.events;
	s.events_lost = events.lost;
	s.prefill_tokens_per_second = get(&k->prefill.tokens_per_second);
	size = out->size < sizeof(s) ? out->size : sizeof(s);
	s.size = out->size;
	memcpy(out, &s, size);
	return KVT_OK;
}

size_t kvt_events(struct kvt *k, struct kvt_event *out, size_t max)
{
	if (kvt_usable(k) != KVT_OK || out == NULL)
		return 0;
	return kvt_event_log_take(k->events, out, max);
}

static void list_tenants(struct kvt *k, struct kvt_tenant_list lists[KVT_TIER_COUNT],
	const struct kvt_tenant_list *tenants[KVT_TIER_COUNT])
{
	size_t most = k->config.tenant_metrics;

	kvt_l1_tenants(k->l1, most, &lists[KVT_TIER_L1]);
	tenants[KVT_TIER_L1] = &lists[KVT_TIER_L1];
	for (size_t i = 0; i < k->lower_count; i++) {
		struct kvt_tier *tier = k->lower[i].tier;
		uint32_t id = k->lower[i].id;

		if (tier == NULL || tier->ops->tenants == NULL ||
			(id == KVT_TIER_L2 && k->config.tenant_l2_bytes == 0))
			continue;
		tier->ops->tenants(tier, most, &lists[id]);
		tenants[id] = &lists[id];
	}
}

enum kvt_status kvt_metrics(struct kvt *k, char **text)
{
	struct kvt_stats stats = {.size = sizeof(stats)};
	struct kvt_fragments_stats fragments = {.size = sizeof(fragments)};
	struct kvt_controller_stats controller;
	struct kvt_event_log_stats events;
	struct kvt_metrics_input in;
	struct kvt_tenant_list lists[KVT_TIER_COUNT];
	const struct kvt_tenant_list *tenants[KVT_TIER_COUNT] = {NULL};
	enum kvt_status status;

	if (text == NULL)
		return KVT_EINVAL;
	status = kvt_stats(k, &stats);
	if (status != KVT_OK)
		return status;
	list_tenants(k, lists, tenants);
	kvt_event_log_stats(k->events, &events);
	kvt_controller_stats(k->controller, &controller);
	kvt_fragment_counters_read(&k->counters.fragments, &fragments);
	in = (struct kvt_metrics_input){
		&stats, &events, &controller, &fragments, &k->latencies, tenants, k->config.tokens_per_chunk};
	return kvt_metrics_render(&in, text);
}
