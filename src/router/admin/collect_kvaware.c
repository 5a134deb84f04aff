/*
 * collect_kvaware.c - writes samples about the strategy kvaware: tokens, index, and workers'
 * reports.
 *
 * With another strategy there is no tokenizer and no feed, and these metrics have no samples.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "admin/collect.h"
#include "feeds/coordinator/coordinator.h"
#include "feeds/feed.h"
#include "fleet/fleet.h"
#include "feeds/lmcache/lmcache.h"
#include "feeds/tokens/tokens.h"

const char *kvw_inexact_name(enum kvw_inexact inexact)
{
	static const char *const names[KVW_INEXACT_COUNT] = {
		[KVW_INEXACT_NOT] = "exact",
		[KVW_INEXACT_NOT_WANTED] = "not_wanted",
		[KVW_INEXACT_NO_TOKENS] = "no_tokens",
		[KVW_INEXACT_NO_VIEW] = "no_view",
		[KVW_INEXACT_TIMEOUT] = "timeout",
		[KVW_INEXACT_FAILED] = "failed",
		[KVW_INEXACT_BUSY] = "busy",
		[KVW_INEXACT_NO_CHOICE] = "no_choice",
	};

	return names[inexact];
}

const char *kvw_reporter_name(enum kvw_reporter reporter)
{
	return reporter == KVW_REPORTER_ENGINE ? "engine" : "lmcache";
}

const char *kvw_coverage_name(enum kvw_coverage coverage)
{
	static const char *const names[] = {[KVW_COVERAGE_NONE] = "none",
		[KVW_COVERAGE_BLIND] = "blind",
		[KVW_COVERAGE_FULL] = "full"};

	return names[coverage];
}

void kvw_collect_inexact(struct kvw_collect *collect)
{
	const struct kvw_metrics *metrics = collect->metrics;

	if (metrics->sources.tokens == NULL)
		return;
	for (size_t i = 0; i < KVW_INEXACT_COUNT; i++) {
		uint64_t sum = 0;

		if (i == KVW_INEXACT_NOT_WANTED)
			continue; /* not prompts */
		for (size_t loop = 0; loop < metrics->loops; loop++)
			sum += kvw_counted(&metrics->shards[loop].inexact[i]);
		kvw_sample_named(
			&collect->out, "tokens", kvw_inexact_name((enum kvw_inexact)i), sum);
	}
}

void kvw_collect_knowledge(struct kvw_collect *collect)
{
	for (size_t i = 0; i < KVW_KNOWLEDGE_COUNT; i++) {
		const struct kvw_knowledge_text *text = kvw_knowledge_text((enum kvw_knowledge)i);
		struct kvw_label labels[2] = {{"degree", {NULL, 0}}, {"reason", {NULL, 0}}};

		if (collect->metrics->sources.tokens == NULL || text == NULL)
			continue;
		labels[0].value = kvw_slice_of(text->degree);
		labels[1].value = kvw_slice_of(text->reason);
		kvw_sample_u64(&collect->out, labels, 2,
			kvw_shards_sum(collect->metrics,
				offsetof(struct kvw_metrics_shard, knowledges) +
					i * sizeof(_Atomic uint64_t)));
	}
}

void kvw_collect_worker_knowledge(struct kvw_collect *collect)
{
	struct kvw_feed *feed = collect->metrics->sources.feed;
	const struct kvw_fleet *fleet = collect->metrics->fleet;

	for (size_t i = 0; feed != NULL && i < fleet->count; i++) {
		const struct kvw_worker *worker = kvw_metrics_worker(collect->metrics, i);
		enum kvw_knowledge knowledge;

		if (worker == NULL)
			continue;
		knowledge = kvw_feed_knowledge(feed, worker->id);
		kvw_sample_named(&collect->out, "worker", worker->url,
			knowledge == KVW_KNOWS_ALL          ? 2
			: knowledge == KVW_KNOWS_NO_REPORTS ? 0
							    : 1);
	}
}

void kvw_collect_wait(struct kvw_collect *collect)
{
	struct kvw_histogram_sum sum = {0};

	for (size_t i = 0; i < collect->metrics->loops; i++)
		kvw_histogram_collect(&collect->metrics->shards[i].wait, &sum);
	kvw_sample_histogram(&collect->out, NULL, 0, &collect->metrics->bounds.token, &sum);
}

void kvw_collect_token_wait(struct kvw_collect *collect)
{
	struct kvw_histogram_sum sum = {0};

	if (collect->metrics->sources.tokens == NULL)
		return;
	for (size_t i = 0; i < collect->metrics->loops; i++)
		kvw_histogram_collect(&collect->metrics->shards[i].token_wait, &sum);
	kvw_sample_histogram(&collect->out, NULL, 0, &collect->metrics->bounds.added, &sum);
}

static double tokens_value(const struct kvw_tokens_stats *stats, int arg)
{
	switch ((enum kvw_collect_of)arg) {
	case KVW_OF_TOKENS_ASKED:
		return (double)stats->asked;
	case KVW_OF_TOKENS_CACHED:
		return (double)stats->cached;
	case KVW_OF_TOKENS_ANSWERED:
		return (double)stats->answered;
	case KVW_OF_TOKENS_FAILED:
		return (double)stats->failed;
	case KVW_OF_TOKENS_SECONDS:
		return (double)stats->asking_ns / 1e9;
	case KVW_OF_TOKENS_INFLIGHT:
		return (double)stats->inflight;
	case KVW_OF_TOKENS_BYTES:
		return (double)stats->cache_bytes;
	case KVW_OF_TOKENS_LIMIT:
		return (double)stats->cache_bytes_limit;
	default:
		abort(); /* cannot happen: metrics.def gives this collector another arg */
	}
}

void kvw_collect_tokens(struct kvw_collect *collect)
{
	struct kvw_tokens *tokens = collect->metrics->sources.tokens;
	struct kvw_tokens_stats stats;

	if (tokens == NULL)
		return;
	kvw_tokens_stats(tokens, &stats);
	kvw_sample_double(&collect->out, NULL, 0, tokens_value(&stats, collect->arg));
}

uint64_t kvw_exact_gauge(const struct kvw_strategy_stats *stats, enum kvw_collect_of of)
{
	switch (of) {
	case KVW_OF_EXACT_BLOCKS:
		return stats->exact_blocks;
	case KVW_OF_EXACT_HOLDERS:
		return stats->exact_holders;
	case KVW_OF_EXACT_BYTES:
		return stats->exact_bytes;
	case KVW_OF_EXACT_LIMIT:
		return stats->exact_bytes_limit;
	case KVW_OF_EXACT_PARKED:
		return stats->exact_parked;
	case KVW_OF_EXACT_DROPPED:
		return stats->exact_dropped;
	case KVW_OF_EXACT_PARKED_DROPPED:
		return stats->exact_parked_dropped;
	case KVW_OF_EXACT_UNKNOWN:
		return stats->exact_unknown_removes;
	case KVW_OF_FRAGMENT_ENTRIES:
		return stats->fragment_entries;
	case KVW_OF_FRAGMENT_LIMIT:
		return stats->fragment_entries_limit;
	case KVW_OF_FRAGMENT_BYTES:
		return stats->fragment_bytes;
	default:
		abort();
	}
}

void kvw_collect_feed_counters(struct kvw_collect *collect)
{
	struct kvw_feed *feed = collect->metrics->sources.feed;
	struct kvw_feed_stats stats;

	if (feed == NULL)
		return;
	kvw_feed_stats(feed, &stats);
	for (size_t i = 0; i < KVW_FEED_COUNTERS; i++)
		kvw_sample_named(&collect->out, "what",
			kvw_feed_counter_name((enum kvw_feed_counter)i), stats.counts[i]);
}

void kvw_collect_feed_lag(struct kvw_collect *collect)
{
	struct kvw_feed *feed = collect->metrics->sources.feed;
	struct kvw_feed_stats stats;

	if (feed == NULL)
		return;
	kvw_feed_stats(feed, &stats);
	kvw_sample_buckets(&collect->out, NULL, 0, kvw_feed_lag_bounds, KVW_FEED_LAGS, stats.lags,
		stats.lag_sum_s);
}

static double lag_seconds(double ms)
{
	return ms < 0 ? -1 : ms / 1e3;
}

void kvw_collect_feed(struct kvw_collect *collect)
{
	struct kvw_feed *feed = collect->metrics->sources.feed;
	struct kvw_feed_stats stats;
	double value;

	if (feed == NULL)
		return;
	kvw_feed_stats(feed, &stats);
	switch ((enum kvw_collect_of)collect->arg) {
	case KVW_OF_FEED_LAG_P50:
		value = lag_seconds(stats.lag_p50_ms);
		break;
	case KVW_OF_FEED_LAG_P99:
		value = lag_seconds(stats.lag_p99_ms);
		break;
	case KVW_OF_FEED_CPU:
		value = (double)stats.cpu_ns / 1e9;
		break;
	case KVW_OF_FEED_SOCKETS:
		value = stats.sockets;
		break;
	case KVW_OF_FEED_HANDOVER:
		value = (double)stats.handover_ns / 1e9;
		break;
	default:
		abort();
	}
	kvw_sample_double(&collect->out, NULL, 0, value);
}

/* Reads the controller's counters. False: there is no controller. */
static bool lmcache_stats(const struct kvw_collect *collect, struct kvw_lmcache_stats *stats)
{
	struct kvw_feed *feed = collect->metrics->sources.feed;
	struct kvw_lmcache *lmcache = feed == NULL ? NULL : kvw_lmcache_of(feed);

	if (lmcache != NULL)
		kvw_lmcache_stats(lmcache, stats);
	return lmcache != NULL;
}

/* A label value, and the offset of its number. */
struct member {
	const char *name;
	size_t offset;
};

#define MEMBER(name) {#name, offsetof(struct kvw_lmcache_stats, name)}

static void put_members(struct kvw_collect *collect, const struct member *members, size_t count)
{
	struct kvw_lmcache_stats stats;

	if (!lmcache_stats(collect, &stats))
		return;
	for (size_t i = 0; i < count; i++) {
		kvw_sample_named(&collect->out, "what", members[i].name,
			*(const uint64_t *)((const char *)&stats + members[i].offset));
	}
}

void kvw_collect_lmcache_now(struct kvw_collect *collect)
{
	static const struct member members[] = {MEMBER(instances), MEMBER(unmapped), MEMBER(blind),
		MEMBER(syncing), MEMBER(ranks), MEMBER(keys)};

	put_members(collect, members, sizeof(members) / sizeof(members[0]));
}

void kvw_collect_lmcache_since(struct kvw_collect *collect)
{
	static const struct member members[] = {MEMBER(admits), MEMBER(evicts),
		MEMBER(unknown_evicts), MEMBER(dropped), MEMBER(gaps), MEMBER(restarts),
		MEMBER(registered), MEMBER(deregistered), MEMBER(timeouts), MEMBER(lost),
		MEMBER(recalled), MEMBER(syncs_asked), MEMBER(syncs_done), MEMBER(syncs_failed),
		MEMBER(routed), MEMBER(matched), MEMBER(unmatched), MEMBER(learned),
		MEMBER(detected)};

	put_members(collect, members, sizeof(members) / sizeof(members[0]));
}

void kvw_collect_lmcache_messages(struct kvw_collect *collect)
{
	struct kvw_lmcache_stats stats;

	for (size_t i = 0; i < KVW_LMC_TYPE_COUNT && lmcache_stats(collect, &stats); i++) {
		kvw_sample_named(&collect->out, "type", kvw_lmcache_type_name((enum kvw_lmc_type)i),
			stats.messages[i]);
	}
}

void kvw_collect_lmcache_refused(struct kvw_collect *collect)
{
	struct kvw_lmcache_stats stats;

	for (size_t i = 0; i < KVW_LMCACHE_REFUSALS && lmcache_stats(collect, &stats); i++) {
		kvw_sample_named(&collect->out, "why",
			kvw_lmcache_refusal_name((enum kvw_lmcache_refusal)i), stats.refused[i]);
	}
}

/* Reads the coordinator's counters. False: there is no coordinator. */
static bool coordinator_stats(
	const struct kvw_collect *collect, struct kvw_coordinator_stats *stats)
{
	struct kvw_feed *feed = collect->metrics->sources.feed;
	struct kvw_coordinator *coordinator = feed == NULL ? NULL : kvw_coordinator_of(feed);

	if (coordinator != NULL)
		kvw_coordinator_stats(coordinator, stats);
	return coordinator != NULL;
}

void kvw_collect_coordinator_now(struct kvw_collect *collect)
{
	struct kvw_coordinator_stats stats;

	if (!coordinator_stats(collect, &stats))
		return;
	kvw_sample_named(&collect->out, "what", "instances", stats.instances);
	kvw_sample_named(&collect->out, "what", "unmapped", stats.unmapped);
	kvw_sample_named(&collect->out, "what", "blind", stats.blind);
	kvw_sample_named(&collect->out, "what", "keys", stats.objects);
	kvw_sample_named(&collect->out, "what", "l1_placements", stats.l1);
	kvw_sample_named(&collect->out, "what", "l2_placements", stats.l2);
	kvw_sample_named(&collect->out, "what", "bytes", stats.bytes);
	kvw_sample_named(&collect->out, "what", "bytes_limit", stats.bytes_limit);
	kvw_sample_named(&collect->out, "what", "connections", stats.connections);
	kvw_sample_named(&collect->out, "what", "l2_bytes", stats.l2_bytes);
	kvw_sample_named(&collect->out, "what", "l2_shared_bytes", stats.l2_shared);
	kvw_sample_named(&collect->out, "what", "l2_cap_bytes", stats.l2_cap);
	kvw_sample_named(&collect->out, "what", "l2_deleting_bytes", stats.l2_asked);
	kvw_sample_named(&collect->out, "what", "pins", stats.pins);
	kvw_sample_named(&collect->out, "what", "quotas", stats.quotas);
}

void kvw_collect_coordinator_since(struct kvw_collect *collect)
{
	struct kvw_coordinator_stats stats;
	const struct kvw_cd_counts *counts = &stats.counts;

	if (!coordinator_stats(collect, &stats))
		return;
	kvw_sample_named(&collect->out, "what", "stored", counts->entries[KVW_CE_STORE]);
	kvw_sample_named(&collect->out, "what", "deleted", counts->entries[KVW_CE_DELETE]);
	kvw_sample_named(&collect->out, "what", "accessed", counts->entries[KVW_CE_ACCESS]);
	kvw_sample_named(&collect->out, "what", "unnamed", counts->unnamed);
	kvw_sample_named(&collect->out, "what", "dropped", counts->dropped);
	kvw_sample_named(&collect->out, "what", "indexed", stats.named);
	kvw_sample_named(&collect->out, "what", "posts", stats.posts);
	kvw_sample_named(&collect->out, "what", "refused", stats.refused);
	kvw_sample_named(&collect->out, "what", "duplicates", counts->duplicates);
	kvw_sample_named(&collect->out, "what", "stale", counts->stale);
	kvw_sample_named(&collect->out, "what", "gaps", counts->gaps);
	kvw_sample_named(&collect->out, "what", "restarts", counts->restarts);
	kvw_sample_named(&collect->out, "what", "registered", counts->registered);
	kvw_sample_named(&collect->out, "what", "left", counts->left);
	kvw_sample_named(&collect->out, "what", "timeouts", counts->timeouts);
	kvw_sample_named(&collect->out, "what", "evictions", stats.evictions);
	kvw_sample_named(&collect->out, "what", "eviction_failures", stats.eviction_failures);
	kvw_sample_named(&collect->out, "what", "evicted", counts->evicted);
	kvw_sample_named(&collect->out, "what", "evicted_bytes", counts->evicted_bytes);
	kvw_sample_named(&collect->out, "what", "forgotten", counts->forgotten);
	kvw_sample_named(&collect->out, "what", "recalled", stats.recalled);
	kvw_sample_named(&collect->out, "what", "listed", stats.listed);
	kvw_sample_named(&collect->out, "what", "prefetches", stats.prefetches);
	kvw_sample_named(&collect->out, "what", "prefetch_failures", stats.prefetch_failures);
	kvw_sample_named(&collect->out, "what", "prefetch_skipped", stats.prefetch_skipped);
	kvw_sample_named(&collect->out, "what", "prefetched", stats.prefetched);
	kvw_sample_named(&collect->out, "what", "prefetch_vain", stats.prefetch_vain);
	kvw_sample_named(&collect->out, "what", "prefetch_rests", stats.prefetch_rests);
	kvw_sample_named(&collect->out, "what", "snapshots", stats.snapshots);
	kvw_sample_named(&collect->out, "what", "snapshot_failures", stats.snapshot_failures);
}

void kvw_collect_coverage(struct kvw_collect *collect)
{
	struct kvw_feed *feed = collect->metrics->sources.feed;
	const struct kvw_fleet *fleet = collect->metrics->fleet;

	for (size_t i = 0; feed != NULL && i < fleet->count; i++) {
		const struct kvw_worker *worker = kvw_metrics_worker(collect->metrics, i);

		for (int reporter = 0; worker != NULL && reporter < KVW_REPORTER_COUNT;
			reporter++) {
			struct kvw_label labels[] = {
				{"worker", kvw_slice_of(worker->url)},
				{"reporter", kvw_slice_of(kvw_reporter_name(
						     (enum kvw_reporter)reporter))},
			};
			struct kvw_feed_status status;

			if (kvw_feed_worker_status(feed, worker->id,
				    (enum kvw_reporter)reporter, &status) != KVW_OK)
				continue;
			kvw_sample_u64(&collect->out, labels, 2,
				collect->arg == KVW_OF_COVERAGE ? (uint64_t)status.coverage
							     : status.sequence);
		}
	}
}
