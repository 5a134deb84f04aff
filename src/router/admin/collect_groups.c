/*
 * collect_groups.c - writes samples about groups of models.
 */
#include <stddef.h>
#include <string.h>

#include "admin/collect.h"
#include "config/config.h"
#include "fleet/fleet.h"

/* Sets the labels of a group; false: no group has this index. */
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

/* Returns a loop's cell of the group; NULL: the loop had no request of the group. */
static const struct kvw_group_cell *cell(
	const struct kvw_metrics *metrics, size_t loop, size_t group)
{
	return atomic_load_explicit(
		&metrics->shards[loop].group_cells[group], memory_order_acquire);
}

/* Writes a sample for each group and each of `names`. offset: of the first count in a cell. */
static void by_name(struct kvw_collect *collect, size_t offset, const char *third,
	const char *const *names, size_t count)
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
						(const _Atomic uint64_t *)(const void *)(at +
											 offset) +
							i,
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

	by_name(collect, offsetof(struct kvw_group_cell, results), "result", names,
		KVW_GROUP_RESULTS);
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
	by_name(collect, offsetof(struct kvw_group_cell, kept), "result", kvw_kept_names,
		KVW_KEPT_COUNT);
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

	by_name(collect, offsetof(struct kvw_group_cell, shadows), "result", names,
		KVW_SHADOW_RESULTS);
}

/* Returns one loop's cell of the pair; NULL: there is none. */
static const struct kvw_pair_cell *pair(
	const struct kvw_metrics *metrics, size_t loop, size_t group, size_t of)
{
	const struct kvw_group_cell *at = cell(metrics, loop, group);
	const struct kvw_pair_cell *found =
		at == NULL ? NULL : atomic_load_explicit(&at->pairs, memory_order_acquire);

	while (found != NULL && found->of != of)
		found = atomic_load_explicit(&found->next, memory_order_acquire);
	return found;
}

/* Calls fn for each pair of groups whose answers were compared. */
static void each_pair(struct kvw_collect *collect,
	void (*write)(struct kvw_collect *collect, const struct kvw_pair_cell *sum,
		struct kvw_label labels[4]))
{
	const struct kvw_metrics *metrics = collect->metrics;
	struct kvw_label labels[4], other[2];

	for (size_t i = 0; i < (KVW_GROUP_OTHER + 1) * (KVW_GROUP_OTHER + 1); i++) {
		size_t group = i / (KVW_GROUP_OTHER + 1), of = i % (KVW_GROUP_OTHER + 1);
		struct kvw_pair_cell sum = {.of = (uint8_t)of};
		bool any = false;

		if (!label(metrics, group, labels) || !label(metrics, of, other))
			continue;
		for (size_t k = 0; k < metrics->loops; k++) {
			const struct kvw_pair_cell *at = pair(metrics, k, group, of);

			if (at == NULL)
				continue;
			any = true;
			for (size_t n = 0; n < KVW_FIDELITY_RESULTS; n++)
				sum.results[n] += kvw_counted(&at->results[n]);
			for (size_t n = 0; n < 2; n++)
				sum.characters[n] += kvw_counted(&at->characters[n]);
			for (size_t n = 0; n <= KVW_BOUNDS_MAX; n++)
				sum.difference.buckets[n] +=
					kvw_counted(&at->difference.buckets[n]);
			sum.difference.sum_ns += kvw_counted(&at->difference.sum_ns);
		}
		labels[2] = (struct kvw_label){"of", other[1].value};
		if (any)
			write(collect, &sum, labels);
	}
}

static void write_results(
	struct kvw_collect *collect, const struct kvw_pair_cell *sum, struct kvw_label labels[4])
{
	static const char *const names[KVW_FIDELITY_RESULTS] = {
		[KVW_FIDELITY_EQUAL] = "equal",
		[KVW_FIDELITY_DIFFERENT] = "different",
		[KVW_FIDELITY_UNFINISHED] = "unfinished",
		[KVW_FIDELITY_UNREAD] = "unread",
	};

	for (size_t i = 0; i < KVW_FIDELITY_RESULTS; i++) {
		labels[3] = (struct kvw_label){"result", kvw_slice_of(names[i])};
		kvw_sample_u64(&collect->out, labels, 4, kvw_counted(&sum->results[i]));
	}
}

static void write_characters(
	struct kvw_collect *collect, const struct kvw_pair_cell *sum, struct kvw_label labels[4])
{
	static const char *const names[2] = {"client", "copy"};

	for (size_t i = 0; i < 2; i++) {
		labels[3] = (struct kvw_label){"answer", kvw_slice_of(names[i])};
		kvw_sample_u64(&collect->out, labels, 4, kvw_counted(&sum->characters[i]));
	}
}

static void write_difference(
	struct kvw_collect *collect, const struct kvw_pair_cell *sum, struct kvw_label labels[4])
{
	const struct kvw_bounds *bounds = &collect->metrics->bounds.difference;
	struct kvw_histogram_sum counts = {0};
	double characters[KVW_BOUNDS_MAX];

	kvw_histogram_collect(&sum->difference, &counts);
	for (size_t i = 0; i < bounds->count; i++)
		characters[i] = (double)bounds->ns[i];
	if (counts.count > 0)
		kvw_sample_buckets(&collect->out, labels, 3, characters, bounds->count,
			counts.buckets, (double)counts.sum_ns);
}

void kvw_collect_group_fidelity(struct kvw_collect *collect)
{
	each_pair(collect, write_results);
}

void kvw_collect_group_characters(struct kvw_collect *collect)
{
	each_pair(collect, write_characters);
}

void kvw_collect_group_difference(struct kvw_collect *collect)
{
	each_pair(collect, write_difference);
}

static const struct kvw_histogram *histogram_of(const struct kvw_group_cell *cell, int of)
{
	switch (of) {
	case KVW_OF_GAP:
		return &cell->gap;
	case KVW_OF_PER_TOKEN:
		return &cell->per_token;
	case KVW_OF_SHADOW:
		return &cell->shadow_answer;
	default:
		return &cell->first_token;
	}
}

void kvw_collect_group_histogram(struct kvw_collect *collect)
{
	const struct kvw_metrics *metrics = collect->metrics;
	bool gap = collect->arg == KVW_OF_GAP || collect->arg == KVW_OF_PER_TOKEN;
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

/* Called by the thread that changes the configuration, since it reads the weights in force. */
void kvw_collect_group_weight(struct kvw_collect *collect)
{
	const struct kvw_config *config = atomic_load(&collect->metrics->fleet->config);

	for (size_t i = 0; config != NULL && i < config->model_group_count; i++) {
		const struct kvw_model_group *group = &config->model_groups[i];
		struct kvw_label labels[2] = {{"model", kvw_slice_of(group->model)},
			{"group", kvw_slice_of(group->group)}};

		kvw_sample_double(&collect->out, labels, 2,
			atomic_load_explicit(group->weight_now, memory_order_relaxed));
	}
}

/* Called by the same thread. A group that has drafted nothing gets no samples. */
void kvw_collect_group_drafts(struct kvw_collect *collect)
{
	const struct kvw_fleet *fleet = collect->metrics->fleet;
	const struct kvw_config *config = atomic_load(&fleet->config);
	struct kvw_candidate items[KVW_MAX_WORKERS];
	struct kvw_model *model;
	bool known;

	for (size_t i = 0; config != NULL && i < config->model_group_count; i++) {
		const struct kvw_model_group *group = &config->model_groups[i];
		struct kvw_label labels[3] = {{"model", kvw_slice_of(group->model)},
			{"group", kvw_slice_of(group->group)}};
		size_t count = kvw_fleet_candidates(
			fleet, kvw_slice_of(group->serves), items, &known, &model);
		uint64_t drafted = 0, accepted = 0;

		for (size_t k = 0; known && k < count; k++) {
			const struct kvw_worker *worker = fleet->workers[items[k].id];

			if (!kvw_group_has(group, worker->group_key, worker->url_key))
				continue;
			drafted += atomic_load(&worker->draft_tokens);
			accepted += atomic_load(&worker->draft_accepted);
		}
		if (drafted == 0)
			continue;
		labels[2] = (struct kvw_label){"kind", KVW_SLICE("drafted")};
		kvw_sample_u64(&collect->out, labels, 3, drafted);
		labels[2].value = KVW_SLICE("accepted");
		kvw_sample_u64(&collect->out, labels, 3, accepted);
	}
}
