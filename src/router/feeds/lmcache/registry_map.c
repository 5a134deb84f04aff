/*
 * registry_map.c - maps instances to workers of the fleet.
 *
 * In this order: by the worker's configuration; by address, if exactly one worker and one instance
 * have it; by prompts routed to the worker and admitted by the instance (diagnose.h). The last two
 * end when the worker's address changes. An instance belongs to one worker and a worker has one
 * instance. A mapping by address alone is a guess until a routed prompt is found among the
 * instance's admits, and ends when a second instance appears at that address.
 */
#include "feeds/lmcache/registry.h"

#include <string.h>

#include "base/log.h"

/* Makes the index count a chunk only if all ranks hold it. */
void kvw_lmreg_require(struct kvw_lmreg *reg, const struct kvw_lmreg_instance *instance)
{
	uint32_t mask = 0;

	if (instance->worker == KVW_LMREG_NONE)
		return;
	for (uint32_t i = 0; i < instance->rank_count; i++)
		if (instance->ranks[i].source != KVW_LMREG_NONE)
			mask |= 1u << instance->ranks[i].source;
	kvw_kvindex_require(reg->options.index, instance->worker, KVW_EXACT_LMCACHE_MASK, mask);
}

/* Returns why the instance is not FULL; "" if it is. */
static const char *what_is_wrong(const struct kvw_lmreg_instance *instance)
{
	const char *wrong = instance->doubted
				    ? "no routed prompt is found among what it stores: see the log"
				    : "";

	if (instance->recalled)
		return "what it holds is being read from the process before";
	for (uint32_t i = 0; i < instance->rank_count; i++) {
		const struct kvw_lmreg_rank *rank = &instance->ranks[i];

		if (rank->gone)
			return "a rank is gone";
		if (rank->sync.active)
			return "in a full sync";
		if (!rank->whole)
			wrong = rank->answers ? "something was missed; it is asked for a full sync"
					      : "something was missed, and without heartbeats "
						"it cannot be asked again";
	}
	return wrong;
}

void kvw_lmreg_update_coverage(struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance)
{
	const char *wrong = what_is_wrong(instance);
	enum kvw_coverage coverage = wrong[0] == '\0' ? KVW_COVERAGE_FULL : KVW_COVERAGE_BLIND;

	if (instance->worker == KVW_LMREG_NONE ||
		(instance->wrong == wrong && instance->coverage == coverage))
		return;
	instance->coverage = coverage;
	instance->wrong = wrong;
	reg->options.coverage(
		reg->options.ctx, instance->worker, coverage, instance->rank_count, wrong);
}

static void clear_index(struct kvw_lmreg *reg, uint32_t worker)
{
	for (uint32_t s = 0; s < KVW_EXACT_LMCACHE_SOURCES; s++)
		kvw_kvindex_cleared(
			reg->options.index, worker, KVW_EXACT_LMCACHE_SOURCE + s, KVW_KVINDEX_ANY);
}

void kvw_lmreg_unmap(struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance)
{
	uint32_t worker = instance->worker;

	if (worker == KVW_LMREG_NONE)
		return;
	clear_index(reg, worker);
	kvw_kvindex_require(reg->options.index, worker, KVW_EXACT_LMCACHE_MASK, 0);
	reg->options.coverage(reg->options.ctx, worker, KVW_COVERAGE_NONE, 0, "");
	reg->by_worker[worker] = NULL;
	instance->worker = KVW_LMREG_NONE;
	instance->how = KVW_LMREG_UNMAPPED;
	instance->coverage = KVW_COVERAGE_NONE;
	instance->wrong = NULL;
}

void kvw_lmreg_map(struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance, uint32_t worker,
	enum kvw_lmreg_how how)
{
	static const char *const hows[] = {"", "configuration", "address", "prompts"};

	if (reg->by_worker[worker] != NULL)
		kvw_lmreg_unmap(reg, reg->by_worker[worker]);
	kvw_lmreg_unmap(reg, instance);
	reg->by_worker[worker] = instance;
	instance->worker = worker;
	instance->how = how;
	kvw_lmreg_require(reg, instance);
	for (uint32_t i = 0; i < instance->rank_count; i++)
		kvw_lmreg_index_rank(reg, instance, &instance->ranks[i]);
	kvw_info("lmcache", "instance=%s belongs to worker=%u by=%s", instance->id, worker,
		hows[how]);
	kvw_lmreg_update_coverage(reg, instance);
}

void kvw_lmreg_set_space(struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance, uint32_t space)
{
	if (instance->space == space)
		return;
	if (instance->worker != KVW_LMREG_NONE)
		clear_index(reg, instance->worker);
	instance->space = space;
	for (uint32_t i = 0; i < instance->rank_count; i++)
		kvw_lmreg_index_rank(reg, instance, &instance->ranks[i]);
}

void kvw_lmreg_worker_purged(struct kvw_lmreg *reg, uint32_t worker)
{
	struct kvw_lmreg_instance *instance =
		worker < reg->options.worker_count ? reg->by_worker[worker] : NULL;

	if (instance == NULL)
		return;
	/* Otherwise reports between the purge and now would count twice. */
	clear_index(reg, worker);
	for (uint32_t i = 0; i < instance->rank_count; i++)
		kvw_lmreg_index_rank(reg, instance, &instance->ranks[i]);
	instance->wrong = NULL; /* force a new report */
	kvw_lmreg_update_coverage(reg, instance);
}

static bool is_at(const struct kvw_lmreg_instance *instance, const char *ip)
{
	for (uint32_t i = 0; i < instance->rank_count; i++)
		if (instance->ranks[i].ip != NULL && strcmp(instance->ranks[i].ip, ip) == 0)
			return true;
	return false;
}

/* Returns the only worker at the instance's address that has no configured instance; NONE: none, or
 * several. */
static uint32_t worker_at(const struct kvw_lmreg *reg, const struct kvw_lmreg_instance *instance)
{
	uint32_t found = KVW_LMREG_NONE;

	for (uint32_t w = 0; w < reg->options.worker_count; w++) {
		const struct kvw_lmreg_worker *worker = &reg->options.workers[w];

		if (worker->instance[0] != '\0' || worker->ip[0] == '\0' ||
			!is_at(instance, worker->ip))
			continue;
		if (found != KVW_LMREG_NONE)
			return KVW_LMREG_NONE;
		found = w;
	}
	return found;
}

/* Returns whether another instance has the same address; if so, ends mappings that were guessed by
 * that address. */
static bool shares_address(
	struct kvw_lmreg *reg, const struct kvw_lmreg_instance *instance, uint32_t worker)
{
	bool shares = false;

	for (size_t i = 0; i < reg->count; i++) {
		struct kvw_lmreg_instance *other = reg->instances[i];

		if (other == instance || other->how == KVW_LMREG_BY_CONFIG ||
			!is_at(other, reg->options.workers[worker].ip))
			continue;
		if (other->how == KVW_LMREG_LEARNED && other->worker != worker)
			continue;
		shares = true;
		if (other->how == KVW_LMREG_BY_ADDRESS && other->matched == 0) {
			kvw_warn("lmcache",
				"instances %s and %s share the address %s: which of "
				"them is worker=%u shows when prompts are routed, or set "
				"lmcache_instance of that worker",
				instance->id, other->id, reg->options.workers[worker].ip, worker);
			kvw_lmreg_unmap(reg, other);
		}
	}
	return shares;
}

void kvw_lmreg_try_map(struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance)
{
	uint32_t worker;

	if (instance->how == KVW_LMREG_BY_CONFIG)
		return;
	for (worker = 0; worker < reg->options.worker_count; worker++)
		if (reg->options.workers[worker].instance[0] != '\0' &&
			strcmp(reg->options.workers[worker].instance, instance->id) == 0) {
			kvw_lmreg_map(reg, instance, worker, KVW_LMREG_BY_CONFIG);
			return;
		}
	if (instance->worker != KVW_LMREG_NONE)
		return;
	worker = worker_at(reg, instance);
	if (worker != KVW_LMREG_NONE && !shares_address(reg, instance, worker) &&
		reg->by_worker[worker] == NULL)
		kvw_lmreg_map(reg, instance, worker, KVW_LMREG_BY_ADDRESS);
}

void kvw_lmreg_worker_came(struct kvw_lmreg *reg)
{
	for (size_t i = 0; i < reg->count; i++)
		kvw_lmreg_try_map(reg, reg->instances[i]);
}

void kvw_lmreg_worker_left(struct kvw_lmreg *reg, uint32_t worker)
{
	if (reg->by_worker[worker] != NULL)
		kvw_lmreg_unmap(reg, reg->by_worker[worker]);
	for (size_t i = 0; i < reg->count; i++)
		if (reg->instances[i]->hint_worker == worker)
			reg->instances[i]->hint_worker = KVW_LMREG_NONE;
}

void kvw_lmreg_worker_moved(struct kvw_lmreg *reg, uint32_t worker)
{
	struct kvw_lmreg_instance *instance = reg->by_worker[worker];

	if (instance == NULL || instance->how == KVW_LMREG_BY_CONFIG)
		return;
	kvw_info("lmcache",
		"instance=%s does not belong to worker=%u any more: that has another address",
		instance->id, worker);
	kvw_lmreg_worker_left(reg, worker);
}
