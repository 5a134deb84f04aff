/*
 * sources.c - passes the proxy's questions about a request on to the feeds.
 *
 * LMCache's users look for the lines "Routing request to INSTANCE found by kvaware router" and
 * "Matched instance url None". One line of each per second is written at info, the rest at debug: a
 * line for each request would cost more than the request.
 */
#include "feeds/sources.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "feeds/coordinator/coordinator.h"
#include "feeds/lmcache/lmcache.h"
#include "routing/exact.h"

#define INSTANCE_MAX  256
#define LOG_NS        KVW_NS_PER_S
/* assumed tokens of a block, if the worker does not report its block size */
#define BLOCK_ASSUMED 16

enum kvw_err kvw_sources_create(const struct kvw_sources_deps *deps, struct kvw_sources **out)
{
	struct kvw_sources *sources = calloc(1, sizeof(*sources));

	if (sources == NULL)
		return KVW_ENOMEM;
	*sources = (struct kvw_sources){
		.tokens = deps->tokens,
		.spaces = deps->spaces,
		.exact = deps->exact,
		.lmcache = kvw_lmcache_of(deps->feed),
		.coordinator = kvw_coordinator_of(deps->feed),
		.tokens_timeout_ms = deps->config->kvaware_tokens_timeout_ms,
		.lmcache_chunk = kvw_lmcache_of(deps->feed) == NULL
					 ? 0
					 : (uint32_t)deps->config->kvaware_lmcache_chunk,
		.checks = calloc(KVW_MAX_WORKERS, sizeof(sources->checks[0])),
	};
	if (sources->checks == NULL) {
		free(sources);
		return KVW_ENOMEM;
	}
	*out = sources;
	return KVW_OK;
}

void kvw_sources_destroy(struct kvw_sources *sources)
{
	if (sources == NULL)
		return;
	free(sources->checks);
	free(sources);
}

void kvw_sources_reconfigure(struct kvw_sources *sources, const struct kvw_config *config)
{
	atomic_store(&sources->tokens_timeout_ms, config->kvaware_tokens_timeout_ms);
}

void kvw_sources_forget(struct kvw_sources *sources, uint32_t worker)
{
	kvw_prediction_check_clear(&sources->checks[worker]);
}

bool kvw_sources_unmapped(const struct kvw_sources *sources)
{
	struct kvw_lmcache_stats stats;

	if (sources->coordinator != NULL && kvw_coordinator_asks(sources->coordinator))
		return true;
	if (sources->lmcache == NULL)
		return false;
	kvw_lmcache_stats(sources->lmcache, &stats);
	return stats.instances > 0;
}

static size_t instance_in(struct kvw_lmcache *lmcache, struct kvw_coordinator *coordinator,
	uint32_t worker, char *name, size_t size)
{
	size_t len = 0;

	if (size > 0)
		name[0] = '\0';
	if (lmcache != NULL)
		len = kvw_lmcache_instance_of(lmcache, worker, name, size);
	if (len == 0 && coordinator != NULL)
		len = kvw_coordinator_instance_of(coordinator, worker, name, size);
	return len;
}

size_t kvw_sources_instance_of(
	const struct kvw_feed *feed, uint32_t worker, char *name, size_t size)
{
	return instance_in(kvw_lmcache_of(feed), kvw_coordinator_of(feed), worker, name, size);
}

/* Returns whether the worker was chosen because of blocks that it reported. Then *name is LMCache's
 * name of it, or its URL if only the engine reports. Blocks of prompts that were sent and not
 * reported yet (routing/claims.h) do not count. */
static bool found_by_reports(const struct kvw_sources *sources,
	const struct kvw_route_request *route, const struct kvw_worker *worker, char *name,
	size_t size)
{
	struct kvw_kvindex_hits hits; /* filled only for workers that exist */
	bool found = false;

	for (uint32_t i = 0; i < route->exact_count; i++) {
		const struct kvw_exact_chain *chain = &route->exact[i];

		if (chain->count == 0 || kvw_exact_coverage(sources->exact, worker->id,
						 chain->reporter) != KVW_COVERAGE_FULL)
			continue;
		kvw_exact_match(sources->exact, chain, &hits);
		if (hits.blocks[worker->id] == 0)
			continue;
		if (chain->reporter == KVW_REPORTER_LMCACHE &&
			instance_in(
				sources->lmcache, sources->coordinator, worker->id, name, size) > 0)
			return true;
		(void)snprintf(name, size, "%s", worker->url);
		found = true;
	}
	return found;
}

static bool is_due(_Atomic int64_t *logged_ns, int64_t now_ns)
{
	int64_t last = atomic_load_explicit(logged_ns, memory_order_relaxed);

	return now_ns - last >= LOG_NS &&
	       atomic_compare_exchange_strong_explicit(
		       logged_ns, &last, now_ns, memory_order_relaxed, memory_order_relaxed);
}

static void log_routed(struct kvw_sources *sources, const struct kvw_route_request *route,
	const struct kvw_decision *decision, const struct kvw_worker *worker, int64_t now_ns)
{
	bool found = decision->exact && decision->reason == KVW_REASON_KVAWARE;
	_Atomic int64_t *logged_ns = found ? &sources->found_ns : &sources->none_ns;
	enum kvw_log_level level;
	char name[INSTANCE_MAX];

	if (!kvw_log_enabled(KVW_LOG_DEBUG) &&
		now_ns - atomic_load_explicit(logged_ns, memory_order_relaxed) < LOG_NS)
		return;
	found = found && found_by_reports(sources, route, worker, name, sizeof(name));
	level = is_due(found ? &sources->found_ns : &sources->none_ns, now_ns) ? KVW_LOG_INFO
									       : KVW_LOG_DEBUG;
	if (found)
		kvw_log(level, "proxy", "Routing request to %s found by kvaware router", name);
	else
		kvw_log(level, "proxy", "Matched instance url None url=%s reason=%s", worker->url,
			kvw_reason_name(decision->reason));
}

uint32_t kvw_sources_routed(struct kvw_sources *sources, const struct kvw_route_request *route,
	const struct kvw_decision *decision, const struct kvw_worker *worker,
	const struct kvw_kvprompt *prompt, int64_t now_ns)
{
	uint32_t number = 0;

	if (sources->lmcache != NULL && prompt != NULL)
		kvw_lmcache_routed(
			sources->lmcache, worker->id, prompt->tokens, prompt->count, now_ns);
	if (sources->coordinator != NULL && prompt != NULL)
		number = kvw_coordinator_routed(sources->coordinator, worker->id, prompt);
	log_routed(sources, route, decision, worker, now_ns);
	return number;
}

void kvw_sources_first_token(struct kvw_sources *sources, uint32_t number, int64_t now_ns)
{
	kvw_coordinator_first_token(sources->coordinator, number, now_ns);
}

/* Returns the allowed error of a right prediction, in tokens: one block of its source. LMCache does
 * not report the engine's own cache, which may have the rest of an LMCache chunk. */
static uint32_t slack_of(const struct kvw_sources *sources, const struct kvw_worker *worker)
{
	uint32_t block = atomic_load_explicit(&worker->block_size, memory_order_relaxed);
	uint32_t chunk = sources->lmcache_chunk;

	for (size_t i = 0; sources->coordinator != NULL && i < kvw_kvspaces_count(sources->spaces);
		i++) {
		const struct kvw_kvspace *space = kvw_kvspaces_get(sources->spaces, i);

		if ((space->by_position || space->by_hash) && space->block_tokens > chunk)
			chunk = space->block_tokens;
	}
	if (block == 0)
		block = BLOCK_ASSUMED;
	if (kvw_exact_coverage(sources->exact, worker->id, KVW_REPORTER_ENGINE) ==
		KVW_COVERAGE_FULL)
		return block;
	return chunk > block ? chunk : block;
}

bool kvw_sources_check(const struct kvw_sources *sources, const struct kvw_worker *worker,
	uint32_t predicted, uint32_t cached)
{
	uint32_t slack = slack_of(sources, worker);
	bool too_many;

	if (kvw_prediction_check_note(
		    &sources->checks[worker->id], predicted, cached, slack, &too_many))
		kvw_prediction_check_complain(worker, too_many, predicted, cached);
	return kvw_prediction_check_right(predicted, cached, slack);
}
