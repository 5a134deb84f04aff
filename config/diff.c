/*
 * diff.c - compares two configurations key by key, and worker by worker.
 *
 * Keys are taken from the tables of keys, so that a new key needs no code here. Arrays are
 * allocated for the number of differences, which are counted first.
 */
#include "config/diff.h"

#include <stdlib.h>
#include <string.h>

#include "config/model_aliases.h"
#include "config/model_groups.h"
#include "config/own_keys.h"
#include "config/pools.h"
#include "config/rate_limits.h"
#include "config/service_levels.h"

static enum kvw_err copy_text(const char *text, char **out)
{
	union kvw_value value;
	enum kvw_err err = kvw_text_copy(kvw_slice_of(text), &value);

	if (err == KVW_OK)
		*out = value.text;
	return err;
}

static enum kvw_err describe_key(const struct kvw_key *key, const void *before, const void *after,
	struct kvw_config_change *change)
{
	enum kvw_err err = copy_text(key->path, &change->path);

	change->reload = key->reload;
	if (err == KVW_OK)
		err = kvw_key_text(key, before, &change->before);
	if (err == KVW_OK)
		err = kvw_key_text(key, after, &change->after);
	return err;
}

static size_t count_keys(
	const struct kvw_key *keys, size_t count, const void *before, const void *after)
{
	size_t differ = 0;

	for (size_t i = 0; i < count; i++)
		differ += !kvw_key_same(&keys[i], before, after);
	return differ;
}

/* Appends the differences, after making room for `more` others. On failure *out and *out_count have
 * those found so far, which the caller releases. */
static enum kvw_err compare_keys(const struct kvw_key *keys, size_t count, const void *before,
	const void *after, size_t more, struct kvw_config_change **out, size_t *out_count)
{
	size_t differ = count_keys(keys, count, before, after);
	enum kvw_err err = KVW_OK;

	if (differ + more == 0)
		return KVW_OK;
	*out = calloc(differ + more, sizeof(**out));
	if (*out == NULL)
		return KVW_ENOMEM;
	for (size_t i = 0; i < count && err == KVW_OK; i++)
		if (!kvw_key_same(&keys[i], before, after))
			err = describe_key(&keys[i], before, after, &(*out)[(*out_count)++]);
	return err;
}

/* The list counts as one key, which a reload takes over. */
static enum kvw_err describe_levels(const struct kvw_config *before, const struct kvw_config *after,
	struct kvw_config_change *change)
{
	enum kvw_err err = copy_text(KVW_SERVICE_LEVELS, &change->path);

	change->reload = true;
	if (err == KVW_OK)
		err = kvw_service_levels_text(before, &change->before);
	if (err == KVW_OK)
		err = kvw_service_levels_text(after, &change->after);
	return err;
}

static enum kvw_err describe_rates(const struct kvw_config *before, const struct kvw_config *after,
	struct kvw_config_change *change)
{
	enum kvw_err err = copy_text(KVW_RATE_LIMITS, &change->path);

	change->reload = true;
	if (err == KVW_OK)
		err = kvw_rate_limits_text(before, &change->before);
	if (err == KVW_OK)
		err = kvw_rate_limits_text(after, &change->after);
	return err;
}

/* Likewise. */
static enum kvw_err describe_aliases(const struct kvw_config *before, const struct kvw_config *after,
	struct kvw_config_change *change)
{
	enum kvw_err err = copy_text(KVW_MODELS, &change->path);

	change->reload = true;
	if (err == KVW_OK)
		err = kvw_model_aliases_text(before, &change->before);
	if (err == KVW_OK)
		err = kvw_model_aliases_text(after, &change->after);
	return err;
}

static enum kvw_err describe_groups(const struct kvw_config *before, const struct kvw_config *after,
	struct kvw_config_change *change)
{
	enum kvw_err err = copy_text(KVW_MODEL_GROUPS, &change->path);

	change->reload = true;
	if (err == KVW_OK)
		err = kvw_model_groups_text(before, &change->before);
	if (err == KVW_OK)
		err = kvw_model_groups_text(after, &change->after);
	return err;
}

static enum kvw_err describe_pools(const struct kvw_config *before, const struct kvw_config *after,
	struct kvw_config_change *change)
{
	enum kvw_err err = copy_text(KVW_POOLS, &change->path);

	change->reload = false;
	if (err == KVW_OK)
		err = kvw_pools_text(before, &change->before);
	if (err == KVW_OK)
		err = kvw_pools_text(after, &change->after);
	return err;
}

/* --- workers ---------------------------------------------------------------------------------- */

/* Returns the index of the worker with this URL, or SIZE_MAX. */
static size_t find_worker(const struct kvw_config *config, const char *url)
{
	for (size_t i = 0; i < config->worker_count; i++)
		if (strcmp(config->workers[i].url, url) == 0)
			return i;
	return SIZE_MAX;
}

static bool same_worker(const struct kvw_worker_config *a, const struct kvw_worker_config *b)
{
	return count_keys(kvw_worker_keys, KVW_WORKER_KEY_COUNT, a, b) == 0;
}

static enum kvw_err add_worker(struct kvw_config_diff *diff, enum kvw_worker_change_kind kind,
	const char *url, size_t before, size_t after)
{
	struct kvw_worker_change *change = &diff->workers[diff->worker_count++];

	change->kind = kind;
	change->before = before;
	change->after = after;
	return copy_text(url, &change->url);
}

static enum kvw_err compare_worker(struct kvw_config_diff *diff, const struct kvw_config *before,
	const struct kvw_config *after, size_t new_index)
{
	const struct kvw_worker_config *worker = &after->workers[new_index];
	size_t old_index = find_worker(before, worker->url);
	struct kvw_worker_change *change;
	enum kvw_err err;

	if (old_index == SIZE_MAX)
		return add_worker(diff, KVW_WORKER_ADDED, worker->url, SIZE_MAX, new_index);
	if (same_worker(&before->workers[old_index], worker))
		return KVW_OK;
	err = add_worker(diff, KVW_WORKER_CHANGED, worker->url, old_index, new_index);
	if (err != KVW_OK)
		return err;
	change = &diff->workers[diff->worker_count - 1];
	return compare_keys(kvw_worker_keys, KVW_WORKER_KEY_COUNT, &before->workers[old_index],
		worker, 0, &change->keys, &change->key_count);
}

static enum kvw_err compare_workers(struct kvw_config_diff *diff, const struct kvw_config *before,
	const struct kvw_config *after)
{
	enum kvw_err err = KVW_OK;
	size_t most = before->worker_count + after->worker_count;

	if (most == 0)
		return KVW_OK;
	diff->workers = calloc(most, sizeof(*diff->workers));
	if (diff->workers == NULL)
		return KVW_ENOMEM;
	for (size_t i = 0; i < before->worker_count && err == KVW_OK; i++)
		if (find_worker(after, before->workers[i].url) == SIZE_MAX)
			err = add_worker(
				diff, KVW_WORKER_REMOVED, before->workers[i].url, i, SIZE_MAX);
	for (size_t i = 0; i < after->worker_count && err == KVW_OK; i++)
		err = compare_worker(diff, before, after, i);
	return err;
}

/* --- the whole -------------------------------------------------------------------------------- */

static size_t count_restarts(const struct kvw_config_change *keys, size_t count)
{
	size_t restarts = 0;

	for (size_t i = 0; i < count; i++)
		restarts += !keys[i].reload;
	return restarts;
}

enum kvw_err kvw_config_diff(const struct kvw_config *before, const struct kvw_config *after,
	const struct kvw_strategy_ops *const *strategies, struct kvw_config_diff **out)
{
	struct kvw_config_diff *diff = calloc(1, sizeof(*diff));
	struct kvw_own_keys own;
	enum kvw_err err;
	bool levels, rates, aliases, groups, pools;

	if (diff == NULL)
		return KVW_ENOMEM;
	kvw_own_keys_init(&own, strategies);
	levels = !kvw_service_levels_same(before, after);
	rates = !kvw_rate_limits_same(before, after);
	aliases = !kvw_model_aliases_same(before, after);
	groups = !kvw_model_groups_same(before, after);
	pools = !kvw_pools_same(before, after);
	err = compare_keys(own.keys, own.schema.key_count, before, after,
		(size_t)levels + rates + aliases + groups + pools, &diff->keys, &diff->key_count);
	if (err == KVW_OK && levels)
		err = describe_levels(before, after, &diff->keys[diff->key_count++]);
	if (err == KVW_OK && rates)
		err = describe_rates(before, after, &diff->keys[diff->key_count++]);
	if (err == KVW_OK && aliases)
		err = describe_aliases(before, after, &diff->keys[diff->key_count++]);
	if (err == KVW_OK && groups)
		err = describe_groups(before, after, &diff->keys[diff->key_count++]);
	if (err == KVW_OK && pools)
		err = describe_pools(before, after, &diff->keys[diff->key_count++]);
	if (err == KVW_OK)
		err = compare_workers(diff, before, after);
	if (err != KVW_OK) {
		kvw_config_diff_destroy(diff);
		return err;
	}
	diff->restart_count = count_restarts(diff->keys, diff->key_count);
	for (size_t i = 0; i < diff->worker_count; i++)
		diff->restart_count +=
			count_restarts(diff->workers[i].keys, diff->workers[i].key_count);
	*out = diff;
	return KVW_OK;
}

static void release_keys(struct kvw_config_change *keys, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		free(keys[i].path);
		free(keys[i].before);
		free(keys[i].after);
	}
	free(keys);
}

void kvw_config_diff_destroy(struct kvw_config_diff *diff)
{
	if (diff == NULL)
		return;
	release_keys(diff->keys, diff->key_count);
	for (size_t i = 0; i < diff->worker_count; i++) {
		free(diff->workers[i].url);
		release_keys(diff->workers[i].keys, diff->workers[i].key_count);
	}
	free(diff->workers);
	free(diff);
}

static enum kvw_err take_keys(
	const struct kvw_key *keys, size_t count, const void *before, void *after)
{
	enum kvw_err err = KVW_OK;

	for (size_t i = 0; i < count && err == KVW_OK; i++)
		if (!keys[i].reload)
			err = kvw_key_copy(&keys[i], before, after);
	return err;
}

enum kvw_err kvw_config_take_restart_keys(const struct kvw_config *before, struct kvw_config *after,
	const struct kvw_strategy_ops *const *strategies)
{
	struct kvw_own_keys own;
	enum kvw_err err;

	kvw_own_keys_init(&own, strategies);
	err = take_keys(own.keys, own.schema.key_count, before, after);
	if (err == KVW_OK)
		err = kvw_pools_copy(before, after);
	for (size_t i = 0; i < after->worker_count && err == KVW_OK; i++) {
		size_t old = find_worker(before, after->workers[i].url);

		if (old != SIZE_MAX)
			err = take_keys(kvw_worker_keys, KVW_WORKER_KEY_COUNT,
				&before->workers[old], &after->workers[i]);
	}
	return err;
}
