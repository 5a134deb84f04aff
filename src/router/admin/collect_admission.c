/*
 * collect_admission.c - writes samples of promises by class, and of waiting requests.
 */
#include <stddef.h>

#include "admin/collect.h"

/* Writes a sample for each known class and each of `names`. offset: of the first class's counts. */
static void by_class(struct kvw_collect *collect, size_t offset, const char *label,
	const char *const *names, size_t count)
{
	const struct kvw_metrics *metrics = collect->metrics;
	struct kvw_label labels[2] = {{"class", {NULL, 0}}, {label, {NULL, 0}}};

	for (size_t class = 0; class <= KVW_CLASS_OTHER; class++) {
		const char *name = class == KVW_CLASS_OTHER
					   ? "other"
					   : atomic_load_explicit(&metrics->classes.names[class],
						     memory_order_acquire);

		if (name == NULL)
			continue;
		labels[0].value = kvw_slice_of(name);
		for (size_t i = 0; i < count; i++) {
			uint64_t n = kvw_shards_sum(
				metrics, offset + (class * count + i) * sizeof(_Atomic uint64_t));

			labels[1].value = kvw_slice_of(names[i]);
			if (n > 0 || class != KVW_CLASS_OTHER)
				kvw_sample_u64(&collect->out, labels, 2, n);
		}
	}
}

const char *const kvw_kept_names[KVW_KEPT_COUNT] = {
	[KVW_KEPT] = "kept",
	[KVW_KEPT_LATE] = "late",
	[KVW_KEPT_SLOW] = "slow",
	[KVW_KEPT_FAILED] = "failed",
	[KVW_KEPT_REFUSED] = "refused",
	[KVW_KEPT_UNSEEN] = "unseen",
};

void kvw_collect_kept(struct kvw_collect *collect)
{
	by_class(collect, offsetof(struct kvw_metrics_shard, kept), "result", kvw_kept_names,
		KVW_KEPT_COUNT);
}

void kvw_collect_refused(struct kvw_collect *collect)
{
	static const char *const names[KVW_REFUSALS] = {"service_level", "deadline", "queue_full"};

	by_class(collect, offsetof(struct kvw_metrics_shard, refused), "reason", names,
		KVW_REFUSALS);
}

void kvw_collect_oldest(struct kvw_collect *collect)
{
	int64_t first_ns = collect->now_ns;

	for (size_t i = 0; i < collect->metrics->loops; i++) {
		int64_t came_ns = atomic_load_explicit(
			&collect->metrics->shards[i].oldest_ns, memory_order_relaxed);

		first_ns = came_ns != 0 && came_ns < first_ns ? came_ns : first_ns;
	}
	kvw_sample_double(&collect->out, NULL, 0, (double)(collect->now_ns - first_ns) / 1e9);
}

void kvw_collect_tally_seconds(struct kvw_collect *collect)
{
	size_t offset = offsetof(struct kvw_metrics_shard, tallies) +
			(size_t)collect->arg * sizeof(_Atomic uint64_t);

	kvw_sample_double(
		&collect->out, NULL, 0, (double)kvw_shards_sum(collect->metrics, offset) / 1e9);
}
