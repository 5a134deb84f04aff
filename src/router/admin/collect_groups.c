/*
 * collect_groups.c - samples of groups of models.
 */
#include <stddef.h>
#include <string.h>

#include "admin/collect.h"
#include "config/config.h"
#include "fleet/fleet.h"

/* Labels of a group that is known; false: there is none in this place. */
static bool label(const struct kvw_metrics *metrics, size_t group, struct kvw_label labels[2])
{
	const char *name = group == KVW_GROUP_OTHER
		? "other\0other"
		: atomic_load_explicit(&metrics->groups.names[group], memory_order_acquire);

	if (name == NULL)
		return false;
	labels[0] = (struct kvw_label){"model", kvw_slice_of(name)};
	labels[1] = (struct kvw_label){"group", kvw_slice_of(name + strlen(name) + 1)};
	return true;
}

/* Of a loop; NULL: it had no request of the group. */
static const struct kvw_group_cell *cell(const struct kvw_metrics *metrics, size_t loop, size_t group)
{
	return atomic_load_explicit(&metrics->shards[loop].group_cells[group], memory_order_acquire);
}

/* A sample for each group and each of `names`. offset: of the first count in a cell. */
static void by_name(
	struct kvw_collect *collect, size_t offset, const char *third, const char *const *names, size_t count)
{
	const struct kvw_metrics *metrics = collect->metrics;
	struct kvw_label labels[3];

	for (size_t group = 0; group <= KVW_GROUP_OTHER; group++) {
		for (size_t i = 0; i < count && label(metrics, group, labels); i++) {
			uint64_t n = 0;

			for (size_t k = 0; k < metrics->loops; k++) {
				const char *at = (const char *)cell(metrics, k, group);

				if (at != NULL)
					n += atomic_load_explicit(
						(const _Atomic uint64_t *)(const void *)(at + offset) + i,
						memory_order_relaxed);
			}
			labels[2] = (struct kvw_label){third, kvw_slice_of(names[i])};
			if (n > 0 || group != KVW_GROUP_OTHER)
				kvw_sample_u64(&collect->out, labels, 3, n);
		}
	}
}

void kvw_collect_group_chosen(struct kvw_collect *collect)
{
	const char *names[KVW_GROUP_BY_COUNT];

	for (size_t i = 0; i < KVW_GROUP_BY_COUNT; i++)
		names[i] = kvw_group_by_name((enum kvw_group_by)i);
	by_name(collect, offsetof(struct kvw_group_cell, chosen), "by", names, KVW_GROUP_BY_COUNT);
}

void kvw_collect_group_requests(struct kvw_collect *collect)
{
	static const char *const names[KVW_GROUP_RESULTS] = {
		[KVW_GROUP_OK] = "ok",
		[KVW_GROUP_ERROR] = "error",
		[KVW_GROUP_REFUSED] = "refused",
		[KVW_GROUP_LEFT] = "left",
	};

	by_name(collect, offsetof(struct kvw_group_cell, results), "result", names, KVW_GROUP_RESULTS);
}

void kvw_collect_group_tokens(struct kvw_collect *collect)
{
	static const char *const names[KVW_GROUP_TOKENS] = {
		[KVW_GROUP_PROMPT] = "prompt",
		[KVW_GROUP_CACHED] = "cached",
		[KVW_GROUP_COMPLETION] = "completion",
	};

	by_name(collect, offsetof(struct kvw_group_cell, tokens), "kind", names, KVW_GROUP_TOKENS);
}

void kvw_collect_group_kept(struct kvw_collect *collect)
{
	by_name(collect, offsetof(struct kvw_group_cell, kept), "result", kvw_kept_names, KVW_KEPT_COUNT);
}

void kvw_collect_group_shadow(struct kvw_collect *collect)
{
	static const char *const names[KVW_SHADOW_RESULTS] = {
		[KVW_SHADOW_OK] = "ok",
		[KVW_SHADOW_ERROR] = "error",
		[KVW_SHADOW_TIMEOUT] = "timeout",
		[KVW_SHADOW_LIMIT] = "limit",
		[KVW_SHADOW_CANCELLED] = "cancelled",
		[KVW_SHADOW_DROPPED] = "dropped",
	};

	by_name(collect, offsetof(struct kvw_group_cell, shadows), "result", names, KVW_SHADOW_RESULTS);
}

static const struct kvw_histogram *histogram_of(const struct kvw_group_cell *cell, int of)
{
	return of == KVW_OF_GAP ? &cell->gap : of == KVW_OF_SHADOW ? &cell->shadow_answer : &cell->first_token;
}

void kvw_collect_group_histogram(struct kvw_collect *collect)
{
	const struct kvw_metrics *metrics = collect->metrics;
	bool gap = collect->arg == KVW_OF_GAP;
	struct kvw_label labels[2];

	for (size_t group = 0; group <= KVW_GROUP_OTHER; group++) {
		struct kvw_histogram_sum sum = {0};

		if (!label(metrics, group, labels))
			continue;
		for (size_t k = 0; k < metrics->loops; k++) {
			const struct kvw_group_cell *at = cell(metrics, k, group);

			if (at != NULL)
				kvw_histogram_collect(histogram_of(at, collect->arg), &sum);
		}
		if (sum.count > 0)
			kvw_sample_histogram(&collect->out, labels, 2,
				gap ? &metrics->bounds.gap : &metrics->bounds.token, &sum);
	}
}

/* Of the configuration in force, on the thread that changes it. */
void kvw_collect_group_weight(struct kvw_collect *collect)
{
	const struct kvw_config *config = atomic_load(&collect->metrics->fleet->config);

	for (size_t i = 0; config != NULL && i < config->model_group_count; i++) {
		const struct kvw_model_group *group = &config->model_groups[i];
		struct kvw_label labels[2] = {
			{"model", kvw_slice_of(group->model)}, {"group", kvw_slice_of(group->group)}};

		kvw_sample_double(&collect->out, labels, 2,
			atomic_load_explicit(group->weight_now, memory_order_relaxed));
	}
}
