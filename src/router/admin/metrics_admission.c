/*
 * metrics_admission.c - counts promises to requests, by class.
 *
 * Names of classes come with the configuration, which reloads change, and stay: a loop adds one
 * without a lock, and finds its place when it takes over a configuration.
 */
#include <stdlib.h>
#include <string.h>

#include "admin/metrics_shard.h"

uint8_t kvw_metrics_class(struct kvw_metrics_shard *shard, struct kvw_slice name)
{
	char *own = NULL;
	uint8_t i = 0;

	if (name.len == 0)
		name = KVW_SLICE("default");
	for (; i < KVW_CLASS_NAMES; i++) {
		char *_Atomic *place = &shard->classes->names[i];
		char *there = atomic_load_explicit(place, memory_order_acquire);

		if (there == NULL && own == NULL && (own = strndup(name.data, name.len)) == NULL)
			return KVW_CLASS_OTHER;
		if (there == NULL && atomic_compare_exchange_strong(place, &there, own))
			return i;
		if (kvw_slice_equal(kvw_slice_of(there), name))
			break;
	}
	free(own);
	return i;
}

void kvw_metrics_kept(struct kvw_metrics_shard *shard, uint8_t class, enum kvw_kept kept)
{
	kvw_bump(&shard->kept[class][kept], 1);
}

void kvw_metrics_refused(
	struct kvw_metrics_shard *shard, uint8_t class, enum kvw_counter counter)
{
	size_t reason = counter == KVW_COUNT_REFUSED_SERVICE_LEVEL ? 0
			: counter == KVW_COUNT_REFUSED_DEADLINE    ? 1
								   : 2;

	kvw_metrics_add(shard, counter, 1);
	kvw_bump(&shard->refused[class][reason], 1);
}

void kvw_metrics_first_token(
	struct kvw_metrics_shard *shard, int64_t predicted_ns, int64_t actual_ns)
{
	int64_t error_ns =
		predicted_ns > actual_ns ? predicted_ns - actual_ns : actual_ns - predicted_ns;

	kvw_bump(&shard->tallies[KVW_TALLY_FIRST_TOKENS], 1);
	kvw_bump(&shard->tallies[KVW_TALLY_FIRST_TOKEN_PREDICTED], (uint64_t)predicted_ns);
	kvw_bump(&shard->tallies[KVW_TALLY_FIRST_TOKEN_ACTUAL], (uint64_t)actual_ns);
	kvw_bump(&shard->tallies[KVW_TALLY_FIRST_TOKEN_ERROR], (uint64_t)error_ns);
}

void kvw_metrics_oldest(struct kvw_metrics_shard *shard, int64_t came_ns)
{
	atomic_store_explicit(&shard->oldest_ns, came_ns, memory_order_relaxed);
}

void kvw_metric_classes_finish(struct kvw_metric_classes *classes)
{
	for (size_t i = 0; i < KVW_CLASS_NAMES; i++)
		free(atomic_load_explicit(&classes->names[i], memory_order_relaxed));
}
