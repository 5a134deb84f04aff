#include "invariants.h"

/* Whether all ranks that have a source hold the key somewhere. */
static bool claimed(const struct kvw_lmreg_instance *instance, uint64_t key)
{
	for (uint32_t r = 0; r < instance->rank_count; r++) {
		const struct kvw_lmreg_rank *rank = &instance->ranks[r];
		bool held = false;

		if (rank->source == KVW_LMREG_NONE)
			continue;
		for (uint32_t p = 0; p < rank->place_count; p++)
			held = held || kvw_keyset_has(&rank->places[p].keys, key);
		if (!held)
			return false;
	}
	return instance->rank_count > 0;
}

static const char *rank_fault(const struct kvw_lmreg_rank *rank)
{
	if (rank->place_count > KVW_LMREG_PLACES)
		return "too many places";
	if (rank->gone && (rank->whole || rank->announced || kvw_lmreg_key_count(rank) > 0))
		return "a rank that is gone holds or promises something";
	if (rank->sync.active && (rank->whole || rank->sync.received >= rank->sync.batch_count))
		return "a sync goes on that is complete, or is believed";
	if (rank->want != NULL && rank->whole)
		return "a sync is wanted of what is whole";
	return NULL;
}

/* What the index says of a worker is what the registry knows of its instance. */
static const char *index_fault(struct kvw_lmreg *reg, uint32_t worker, uint64_t key)
{
	static struct kvw_kvindex_hits hits;
	const struct kvw_lmreg_instance *instance = reg->by_worker[worker];
	bool expected = instance != NULL && claimed(instance, key);

	kvw_kvindex_match(
		reg->options.index, instance != NULL ? instance->space : 0, &key, 1, 16, &hits);
	if ((hits.blocks[worker] > 0) == expected)
		return NULL;
	return expected ? "the index misses a chunk" : "the index knows a chunk that is not held";
}

static const char *coverage_fault(const struct kvw_lmreg_instance *instance)
{
	bool whole = instance->rank_count > 0;

	for (uint32_t r = 0; r < instance->rank_count; r++)
		whole = whole && instance->ranks[r].whole && !instance->ranks[r].gone;
	if (instance->worker != KVW_LMREG_NONE && instance->coverage == KVW_COVERAGE_FULL && !whole)
		return "believed although something was missed";
	return NULL;
}

const char *lmreg_fault(struct kvw_lmreg *reg, const uint64_t *keys, uint32_t count)
{
	const char *fault = NULL;
	uint64_t total = 0;
	uint32_t mapped = 0, owners = 0;

	if (reg->count > KVW_LMREG_INSTANCES)
		return "too many instances";
	for (size_t i = 0; i < reg->count && fault == NULL; i++) {
		struct kvw_lmreg_instance *instance = reg->instances[i];
		bool alive = false;

		for (uint32_t r = 0; r < instance->rank_count && fault == NULL; r++) {
			fault = rank_fault(&instance->ranks[r]);
			total += kvw_lmreg_key_count(&instance->ranks[r]);
			alive = alive || !instance->ranks[r].gone;
		}
		if (fault == NULL)
			fault = coverage_fault(instance);
		if (fault == NULL && !alive)
			fault = "an instance without a living rank";
		mapped += instance->worker != KVW_LMREG_NONE;
		if (instance->worker != KVW_LMREG_NONE &&
			reg->by_worker[instance->worker] != instance)
			fault = "a worker that is another's";
	}
	for (uint32_t w = 0; w < reg->options.worker_count && fault == NULL; w++) {
		owners += reg->by_worker[w] != NULL;
		for (uint32_t k = 0; k < count && fault == NULL; k++)
			fault = index_fault(reg, w, keys[k]);
	}
	if (fault == NULL && mapped != owners)
		fault = "instances and workers do not agree";
	if (fault == NULL && total != reg->stats.keys)
		fault = "keys are counted wrongly";
	return fault;
}
