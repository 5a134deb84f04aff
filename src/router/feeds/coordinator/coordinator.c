/*
 * coordinator.c - see coordinator.h: the module of the feed, time, and functions for other threads.
 */
#include "feeds/coordinator/parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "feeds/coordinator/plan.h"

#define TICK_NS      (100 * KVW_NS_PER_MS)
#define SLOW_TICK_NS KVW_NS_PER_S

static void publish(struct kvw_coordinator *coordinator)
{
	const struct kvw_cd *cd = coordinator->cd;
	const struct kvw_cd_instance *at;
	struct kvw_coordinator_stats stats = {
		.objects = cd->object_count,
		.l1 = cd->tier_count[KVW_CE_L1],
		.l2 = cd->tier_count[KVW_CE_L2],
		.bytes = cd->bytes,
		.bytes_limit = cd->options.bytes,
		.connections = atomic_load(&coordinator->server.server.connections),
		.counts = cd->counts,
		.refused = coordinator->refused,
		.posts = coordinator->posts,
		.named = coordinator->named,
		.l2_bytes = cd->tier_bytes[KVW_CE_L2],
		.l2_shared = kvw_cd_shared_bytes(cd),
		.l2_cap = kvw_coordinator_cap(coordinator),
		.l2_asked = cd->salts.asked_bytes,
		.pins = cd->pins.count,
		.recalled = coordinator->recall->placements,
		.listed = coordinator->listing.keys,
		.prefetches = coordinator->prefetch.begun,
		.prefetch_failures = coordinator->prefetch.failures,
		.prefetch_skipped = atomic_load(&coordinator->prefetch.skipped),
		.prefetched = coordinator->prefetch.keys,
		.prefetch_vain = coordinator->prefetch.vain,
		.prefetch_rests = coordinator->prefetch.rested,
		.snapshots = atomic_load(&coordinator->snapshot.written),
		.snapshot_failures = atomic_load(&coordinator->snapshot.failed),
		.quotas = cd->salts.limited,
		.evictions = coordinator->evict.requests,
		.eviction_failures = coordinator->evict.failures,
	};

	TAILQ_FOREACH(at, &cd->instances, entry)
	{
		const struct kvw_coordinator_node *node = at->user;
		bool mapped = node != NULL && node->count > 0;

		stats.instances += at->registered;
		stats.unmapped += at->registered && !mapped;
		stats.blind += mapped && node->coverage != KVW_COVERAGE_FULL;
	}
	pthread_mutex_lock(&coordinator->lock);
	coordinator->stats = stats;
	pthread_mutex_unlock(&coordinator->lock);
}

static void tick_coordinator(struct kvw_feed *feed, void *arg)
{
	struct kvw_coordinator *coordinator = arg;
	int64_t now_ns = kvw_feed_now(feed);

	if (kvw_feed_stopped(feed))
		return;
	kvw_coordinator_turn(coordinator);
	kvw_calls_turn(&coordinator->calls);
	if (now_ns - coordinator->ticked_ns >= SLOW_TICK_NS) {
		coordinator->ticked_ns = now_ns;
		kvw_cd_tick(coordinator->cd, atomic_load(&coordinator->timeout_ns), now_ns);
		coordinator->remap = true;
	}
	kvw_coordinator_follow(coordinator);
	kvw_coordinator_evict(coordinator);
	kvw_coordinator_list_tick(coordinator, now_ns);
	kvw_coordinator_prefetch_tick(coordinator, now_ns);
	kvw_coordinator_snapshot_tick(coordinator, now_ns);
	publish(coordinator);
}

/* --- the module ------------------------------------------------------------------------------- */

static void stop(void *state)
{
	struct kvw_coordinator *coordinator = state;

	kvw_coordinator_snapshot_end(coordinator);
	coordinator->in_charge = false;
	kvw_calls_close(&coordinator->calls);
	kvw_coordinator_prefetch_end(coordinator);
	kvw_coordinator_close(coordinator);
	if (coordinator->workers != NULL && coordinator->seen != NULL)
		kvw_coordinator_unfollow_all(coordinator);
	kvw_cd_destroy(coordinator->cd);
	pthread_mutex_destroy(&coordinator->lock);
	free(coordinator->reader);
	if (coordinator->recall != NULL)
		free(coordinator->recall->servers);
	free(coordinator->recall);
	free(coordinator->workers);
	free(coordinator->seen);
	free(coordinator);
}

static enum kvw_err make_parts(struct kvw_coordinator *coordinator)
{
	const struct kvw_config *config = coordinator->deps->config;
	const struct kvw_cd_options options = {
		.bytes = config->kvaware_lmcache_coordinator_memory,
		.seed = (uint64_t)kvw_clock_wall_ns() * UINT64_C(0x9e3779b97f4a7c15),
		.l1 = kvw_coordinator_l1,
		.can_name = kvw_coordinator_can_name,
		.freed = kvw_coordinator_freed,
		.ctx = coordinator,
	};

	coordinator->reader = calloc(1, sizeof(*coordinator->reader));
	coordinator->recall = calloc(1, sizeof(*coordinator->recall));
	coordinator->workers = calloc(KVW_MAX_WORKERS, sizeof(coordinator->workers[0]));
	coordinator->seen = calloc(KVW_MAX_WORKERS, sizeof(coordinator->seen[0]));
	if (coordinator->reader == NULL || coordinator->recall == NULL ||
		coordinator->workers == NULL || coordinator->seen == NULL)
		return KVW_ENOMEM;
	return kvw_cd_create(&options, &coordinator->cd);
}

static enum kvw_err start_coordinator(struct kvw_feed *feed, FILE *errors, void **state)
{
	const struct kvw_config *config = kvw_feed_deps(feed)->config;
	struct kvw_coordinator *coordinator;
	enum kvw_err err;

	if (config->kvaware_lmcache_coordinator[0] == '\0')
		return KVW_OK;
	coordinator = calloc(1, sizeof(*coordinator));
	if (coordinator == NULL)
		return KVW_ENOMEM;
	coordinator->feed = feed;
	coordinator->deps = kvw_feed_deps(feed);
	coordinator->listen_fd = -1;
	coordinator->only_worker = UINT32_MAX;
	coordinator->timeout_ns = config->kvaware_lmcache_timeout_ms * KVW_NS_PER_MS;
	pthread_mutex_init(&coordinator->lock, NULL);
	err = make_parts(coordinator);
	if (err == KVW_OK)
		err = kvw_coordinator_snapshot_open(coordinator);
	if (err == KVW_OK)
		err = kvw_calls_open(&coordinator->calls, feed);
	if (err == KVW_OK)
		err = kvw_coordinator_open(coordinator, errors);
	if (err == KVW_OK)
		err = kvw_feed_every(feed, TICK_NS, tick_coordinator, coordinator);
	if (err != KVW_OK) {
		stop(coordinator);
		return err;
	}
	publish(coordinator);
	coordinator->in_charge = !coordinator->deps->waits;
	*state = coordinator;
	return KVW_OK;
}

static void purged(void *state, const uint32_t *workers, size_t count)
{
	for (size_t i = 0; i < count; i++)
		kvw_coordinator_purged(state, workers[i]);
}

static void listen_now(void *state)
{
	struct kvw_coordinator *coordinator = state;

	if (coordinator->deps->waits && !coordinator->handed)
		kvw_coordinator_snapshot_read(coordinator);
	coordinator->in_charge = true;
	kvw_coordinator_listen(coordinator);
}

static void hand_over(void *state)
{
	struct kvw_coordinator *coordinator = state;

	coordinator->in_charge = false;
	kvw_coordinator_hand_over(coordinator);
}

static enum kvw_err keep(void *state, const struct kvw_keep_out *out)
{
	return kvw_cd_keep(((struct kvw_coordinator *)state)->cd, out);
}

static void recall(void *state, enum kvw_keep_kind kind, const uint8_t *record, size_t len)
{
	struct kvw_coordinator *coordinator = state;

	kvw_cd_recall(coordinator->cd, coordinator->recall, kind, record, len,
		kvw_feed_now(coordinator->feed));
}

static void recalled(void *state, bool all_came)
{
	struct kvw_coordinator *coordinator = state;

	coordinator->handed = true;
	if (coordinator->recall->failed)
		kvw_warn("coordinator", "a record of the process before us is wrong: servers go by "
					"text until their L1 was replaced");
	kvw_cd_recalled(coordinator->cd, coordinator->recall, all_came);
	coordinator->remap = true;
	kvw_coordinator_follow(coordinator);
}

const struct kvw_feed_module kvw_coordinator_module = {
	.name = "coordinator",
	.start = start_coordinator,
	.purged = purged,
	.listen = listen_now,
	.hand_over = hand_over,
	.keep = keep,
	.recall = recall,
	.recalled = recalled,
	.stop = stop,
};

struct kvw_coordinator *kvw_coordinator_of(const struct kvw_feed *feed)
{
	return kvw_feed_module_state(feed, &kvw_coordinator_module);
}

/* --- any thread ------------------------------------------------------------------------------- */

size_t kvw_coordinator_instance_of(
	struct kvw_coordinator *coordinator, uint32_t worker, char *text, size_t size)
{
	int length;

	if (size > 0)
		text[0] = '\0';
	if (worker >= KVW_MAX_WORKERS)
		return 0;
	pthread_mutex_lock(&coordinator->lock);
	length = snprintf(text, size, "%s", coordinator->seen[worker]);
	pthread_mutex_unlock(&coordinator->lock);
	return (size_t)length;
}

bool kvw_coordinator_asks(struct kvw_coordinator *coordinator)
{
	return atomic_load_explicit(&coordinator->hashes.asks, memory_order_relaxed);
}

uint32_t kvw_coordinator_routed(
	struct kvw_coordinator *coordinator, uint32_t worker, const struct kvw_kvprompt *prompt)
{
	kvw_coordinator_note_first(coordinator, prompt);
	return kvw_coordinator_prefetch(coordinator, worker, prompt);
}

void kvw_coordinator_stats(struct kvw_coordinator *coordinator, struct kvw_coordinator_stats *out)
{
	pthread_mutex_lock(&coordinator->lock);
	*out = coordinator->stats;
	pthread_mutex_unlock(&coordinator->lock);
}

void kvw_coordinator_reconfigure(const struct kvw_feed *feed, const struct kvw_config *config)
{
	struct kvw_coordinator *coordinator = kvw_coordinator_of(feed);

	if (coordinator == NULL)
		return;
	atomic_store(&coordinator->timeout_ns, config->kvaware_lmcache_timeout_ms * KVW_NS_PER_MS);
	kvw_coordinator_snapshot_reconfigure(coordinator, config);
}
