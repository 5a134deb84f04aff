/*
 * metrics_groups.c - counts requests by the group of their model.
 *
 * Names of groups come with the configuration, which reloads change, and stay, as those of classes
 * do. A loop makes the cell of a group with its first request.
 */
#include <stdlib.h>
#include <string.h>

#include "admin/metrics_shard.h"

static char *join(struct kvw_slice model, struct kvw_slice group)
{
	char *text = malloc(model.len + group.len + 2);

	if (text == NULL)
		return NULL;
	memcpy(text, model.data, model.len);
	text[model.len] = '\0';
	memcpy(text + model.len + 1, group.data, group.len);
	text[model.len + 1 + group.len] = '\0';
	return text;
}

static bool is(const char *name, struct kvw_slice model, struct kvw_slice group)
{
	return kvw_slice_equal(kvw_slice_of(name), model) &&
	       kvw_slice_equal(kvw_slice_of(name + model.len + 1), group);
}

uint8_t kvw_metrics_group(
	struct kvw_metrics_shard *shard, struct kvw_slice model, struct kvw_slice group)
{
	char *own = NULL;
	uint8_t i = 0;

	for (; i < KVW_GROUP_NAMES; i++) {
		char *_Atomic *place = &shard->groups->names[i];
		char *there = atomic_load_explicit(place, memory_order_acquire);

		if (there == NULL && own == NULL && (own = join(model, group)) == NULL)
			return KVW_GROUP_OTHER;
		if (there == NULL && atomic_compare_exchange_strong(place, &there, own))
			return i;
		if (is(there, model, group))
			break;
	}
	free(own);
	return i;
}

/* Returns the group's cell, and makes it if needed. NULL: out of memory, so that nothing is
 * counted. */
static struct kvw_group_cell *cell_of(struct kvw_metrics_shard *shard, uint8_t group)
{
	struct kvw_group_cell *_Atomic *place = &shard->group_cells[group];
	struct kvw_group_cell *cell = atomic_load_explicit(place, memory_order_relaxed);

	if (cell != NULL)
		return cell;
	cell = calloc(1, sizeof(*cell));
	if (cell != NULL)
		atomic_store_explicit(place, cell, memory_order_release);
	return cell;
}

void kvw_metrics_group_chosen(struct kvw_metrics_shard *shard, uint8_t group, enum kvw_group_by by)
{
	struct kvw_group_cell *cell = cell_of(shard, group);

	if (cell != NULL)
		kvw_bump(&cell->chosen[by], 1);
}

void kvw_metrics_group_kept(struct kvw_metrics_shard *shard, uint8_t group, enum kvw_kept kept)
{
	struct kvw_group_cell *cell = cell_of(shard, group);

	if (cell != NULL)
		kvw_bump(&cell->kept[kept], 1);
}

void kvw_metrics_group_gap(struct kvw_metrics_shard *shard, uint8_t group, int64_t gap_ns)
{
	struct kvw_group_cell *cell = cell_of(shard, group);

	if (cell != NULL)
		kvw_histogram_observe(&cell->gap, &shard->bounds->gap, gap_ns);
}

void kvw_metrics_group_shadow(
	struct kvw_metrics_shard *shard, uint8_t group, enum kvw_shadow_result result)
{
	struct kvw_group_cell *cell = cell_of(shard, group);

	if (cell != NULL)
		kvw_bump(&cell->shadows[result], 1);
}

void kvw_metrics_group_shadow_answer(
	struct kvw_metrics_shard *shard, uint8_t group, int64_t after_ns)
{
	struct kvw_group_cell *cell = cell_of(shard, group);

	if (cell != NULL)
		kvw_histogram_observe(&cell->shadow_answer, &shard->bounds->token, after_ns);
}

static struct kvw_pair_cell *pair_of(struct kvw_group_cell *cell, uint8_t of)
{
	struct kvw_pair_cell *_Atomic *place = &cell->pairs;
	struct kvw_pair_cell *pair;

	while ((pair = atomic_load_explicit(place, memory_order_relaxed)) != NULL && pair->of != of)
		place = &pair->next;
	if (pair != NULL)
		return pair;
	pair = calloc(1, sizeof(*pair));
	if (pair != NULL) {
		pair->of = of;
		atomic_store_explicit(place, pair, memory_order_release);
	}
	return pair;
}

void kvw_metrics_group_fidelity(struct kvw_metrics_shard *shard, uint8_t group, uint8_t of,
	enum kvw_fidelity_result result, const struct kvw_fidelity_lengths *lengths)
{
	struct kvw_group_cell *cell = cell_of(shard, group);
	struct kvw_pair_cell *pair = cell == NULL ? NULL : pair_of(cell, of);

	if (pair == NULL)
		return;
	kvw_bump(&pair->results[result], 1);
	if (result != KVW_FIDELITY_EQUAL && result != KVW_FIDELITY_DIFFERENT)
		return;
	kvw_bump(&pair->characters[0], lengths->client);
	kvw_bump(&pair->characters[1], lengths->copy);
	if (result == KVW_FIDELITY_DIFFERENT)
		kvw_histogram_observe(
			&pair->difference, &shard->bounds->difference, (int64_t)lengths->same);
}

void kvw_group_cell_destroy(struct kvw_group_cell *cell)
{
	struct kvw_pair_cell *pair, *next;

	if (cell == NULL)
		return;
	for (pair = atomic_load_explicit(&cell->pairs, memory_order_relaxed); pair != NULL;
		pair = next) {
		next = atomic_load_explicit(&pair->next, memory_order_relaxed);
		free(pair);
	}
	free(cell);
}

static enum kvw_group_result result_of(const struct kvw_request_record *record, bool failed)
{
	if (record->end == KVW_END_CLIENT_GONE)
		return KVW_GROUP_LEFT;
	if (!failed)
		return KVW_GROUP_OK;
	return record->status >= 400 && record->status < 500 ? KVW_GROUP_REFUSED : KVW_GROUP_ERROR;
}

void kvw_metrics_group_record(
	struct kvw_metrics_shard *shard, const struct kvw_request_record *record, bool failed)
{
	struct kvw_group_cell *cell = cell_of(shard, record->group_label);

	if (cell == NULL)
		return;
	kvw_bump(&cell->results[result_of(record, failed)], 1);
	if (record->prompt_known)
		kvw_bump(&cell->tokens[KVW_GROUP_PROMPT], record->prompt_tokens);
	if (record->cached_known)
		kvw_bump(&cell->tokens[KVW_GROUP_CACHED], record->cached_tokens);
	if (record->completion_known)
		kvw_bump(&cell->tokens[KVW_GROUP_COMPLETION], record->completion_tokens);
	if (!record->stream || record->first_token_ns <= 0)
		return;
	kvw_histogram_observe(&cell->first_token, &shard->bounds->token, record->first_token_ns);
	if (record->end == KVW_END_COMPLETE && record->completion_known &&
		record->completion_tokens > 1)
		kvw_histogram_observe(&cell->per_token, &shard->bounds->gap,
			(record->total_ns - record->first_token_ns) /
				(record->completion_tokens - 1));
}

void kvw_metric_groups_finish(struct kvw_metric_groups *groups)
{
	for (size_t i = 0; i < KVW_GROUP_NAMES; i++)
		free(atomic_load_explicit(&groups->names[i], memory_order_relaxed));
}

const char *kvw_group_by_name(enum kvw_group_by by)
{
	static const char *const names[KVW_GROUP_BY_COUNT] = {
		[KVW_GROUP_BY_SESSION] = "session",
		[KVW_GROUP_BY_CONVERSATION] = "conversation",
		[KVW_GROUP_BY_REQUEST] = "request",
		[KVW_GROUP_BY_HEADER] = "header",
		[KVW_GROUP_BY_WORKER] = "worker",
		[KVW_GROUP_BY_FALLBACK] = "fallback",
	};

	return names[by];
}
