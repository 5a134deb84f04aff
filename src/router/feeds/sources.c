/*
 * sources.c - see sources.h.
 *
 * LMCache's users look for the line "Routing request to INSTANCE found by kvaware router" at info. One a
 * second and loop is written there, the rest at debug: a line for each request would cost more than the
 * request.
 */
#include "feeds/sources.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "feeds/lmcache/lmcache.h"

#define INSTANCE_MAX  256
#define BLOCK_ASSUMED 16 /* tokens, where the worker does not report its block size */

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
		.tokens_timeout_ms = deps->config->kvaware_tokens_timeout_ms,
		.lmcache_chunk = (uint32_t)deps->config->kvaware_lmcache_chunk,
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

	if (sources->lmcache == NULL)
		return false;
	kvw_lmcache_stats(sources->lmcache, &stats);
	return stats.instances > 0;
}

/* Did LMCache's reports decide? Then *instance is its name for the worker. */
static bool found_by_lmcache(const struct kvw_sources *sources, const struct kvw_decision *decision,
	char *instance, size_t size)
{
	uint32_t worker = decision->worker_id;

	return decision->exact && decision->reason == KVW_REASON_KVAWARE &&
	       kvw_exact_coverage(sources->exact, worker, KVW_REPORTER_LMCACHE) == KVW_COVERAGE_FULL &&
	       kvw_lmcache_instance_of(sources->lmcache, worker, instance, size) > 0;
}

void kvw_sources_routed(const struct kvw_sources *sources, const struct kvw_decision *decision,
	const struct kvw_kvprompt *prompt, int64_t now_ns, int64_t *logged_ns)
{
	char instance[INSTANCE_MAX];

	if (sources->lmcache == NULL)
		return;
	if (prompt != NULL)
		kvw_lmcache_routed(
			sources->lmcache, decision->worker_id, prompt->tokens, prompt->count, now_ns);
	if (!found_by_lmcache(sources, decision, instance, sizeof(instance))) {
		kvw_debug("proxy", "Matched instance url None");
	} else if (now_ns - *logged_ns < KVW_NS_PER_S) {
		kvw_debug("proxy", "Routing request to %s found by kvaware router", instance);
	} else {
		*logged_ns = now_ns;
		kvw_info("proxy", "Routing request to %s found by kvaware router", instance);
	}
}

/* A right prediction may be off by this many tokens: one block of its source. LMCache does not report
 * the engine's own cache, where the rest of one of its chunks may lie. */
static uint32_t slack_of(const struct kvw_sources *sources, const struct kvw_worker *worker)
{
	uint32_t block = atomic_load_explicit(&worker->block_size, memory_order_relaxed);
	uint32_t chunk = sources->lmcache_chunk;

	if (block == 0)
		block = BLOCK_ASSUMED;
	if (kvw_exact_coverage(sources->exact, worker->id, KVW_REPORTER_ENGINE) == KVW_COVERAGE_FULL)
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
