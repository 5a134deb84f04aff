/*
 * wakes.c - models that have no worker at the moment: which of them may be woken, and how many
 * requests wait for each.
 */
#include "fleet/wake/wakes.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/clock.h"

static struct kvw_wake_model *first_of(const struct kvw_wakes *wakes)
{
	return atomic_load_explicit(&wakes->first, memory_order_acquire);
}

static size_t bucket_of(struct kvw_slice name)
{
	return XXH3_64bits(name.len == 0 ? "" : name.data, name.len) % KVW_WAKE_BUCKETS;
}

static struct kvw_wake_model *look_up(const struct kvw_wakes *wakes, struct kvw_slice name)
{
	struct kvw_wake_model *model =
		atomic_load_explicit(&wakes->buckets[bucket_of(name)], memory_order_acquire);

	while (model != NULL && !kvw_slice_equal(kvw_slice_of(model->name), name))
		model = model->below;
	return model;
}

/* Finds or makes the entry of that name. NULL: out of memory, or too many entries. */
static struct kvw_wake_model *get(struct kvw_wakes *wakes, struct kvw_slice name)
{
	struct kvw_wake_model *model = look_up(wakes, name);

	if (model != NULL)
		return model;
	pthread_mutex_lock(&wakes->lock);
	model = look_up(wakes, name);
	if (model == NULL && wakes->count < KVW_WAKE_MODELS_MOST) {
		size_t bucket = bucket_of(name);

		model = calloc(1, sizeof(*model));
		if (model != NULL)
			model->name = strndup(name.data, name.len);
		if (model != NULL && model->name == NULL) {
			free(model);
			model = NULL;
		}
		if (model != NULL) {
			model->next = first_of(wakes);
			model->below =
				atomic_load_explicit(&wakes->buckets[bucket], memory_order_relaxed);
			atomic_store_explicit(&wakes->buckets[bucket], model, memory_order_release);
			atomic_store_explicit(&wakes->first, model, memory_order_release);
			wakes->count++;
		}
	}
	pthread_mutex_unlock(&wakes->lock);
	return model;
}

enum kvw_err kvw_wakes_create(struct kvw_wakes **out)
{
	struct kvw_wakes *wakes = calloc(1, sizeof(*wakes));

	if (wakes == NULL)
		return KVW_ENOMEM;
	pthread_mutex_init(&wakes->lock, NULL);
	*out = wakes;
	return KVW_OK;
}

void kvw_wakes_destroy(struct kvw_wakes *wakes)
{
	struct kvw_wake_model *model, *next;

	if (wakes == NULL)
		return;
	for (model = first_of(wakes); model != NULL; model = next) {
		next = model->next;
		free(model->name);
		free(model);
	}
	pthread_mutex_destroy(&wakes->lock);
	free(wakes);
}

void kvw_wakes_served(struct kvw_wakes *wakes, const char *name)
{
	struct kvw_wake_model *model = get(wakes, kvw_slice_of(name));

	if (model != NULL)
		atomic_store_explicit(&model->served, true, memory_order_relaxed);
}

static bool is_among(const struct kvw_strings *names, struct kvw_slice name)
{
	for (size_t i = 0; i < names->count; i++)
		if (kvw_slice_equal(kvw_slice_of(names->items[i]), name))
			return true;
	return false;
}

static bool config_names(const struct kvw_config *config, struct kvw_slice name)
{
	bool named = is_among(&config->discovery_wake_models, name);

	for (size_t i = 0; i < config->pool_count && !named; i++)
		named = is_among(&config->pools[i].models, name);
	for (size_t i = 0; i < config->worker_count && !named; i++)
		named = is_among(&config->workers[i].models, name);
	return named;
}

struct kvw_wake_model *kvw_wakes_find(
	struct kvw_wakes *wakes, const struct kvw_config *config, struct kvw_slice name)
{
	struct kvw_wake_model *model = look_up(wakes, name);

	if (model != NULL && atomic_load_explicit(&model->served, memory_order_relaxed))
		return model;
	if (!config_names(config, name))
		return NULL;
	return model != NULL ? model : get(wakes, name);
}

bool kvw_wakes_any(const struct kvw_wakes *wakes, const struct kvw_config *config)
{
	if (first_of(wakes) != NULL || config->discovery_wake_models.count > 0)
		return true;
	for (size_t i = 0; i < config->pool_count; i++)
		if (config->pools[i].models.count > 0)
			return true;
	return false;
}

const struct kvw_wake_model *kvw_wakes_stuck(
	const struct kvw_wakes *wakes, int64_t hold_ms, int64_t now_ns)
{
	const struct kvw_wake_model *model = first_of(wakes);

	for (; model != NULL; model = model->next) {
		int64_t since_ns = atomic_load_explicit(&model->asleep_ns, memory_order_relaxed);

		if (atomic_load_explicit(&model->failed, memory_order_relaxed) ||
			(since_ns != 0 && now_ns - since_ns > hold_ms * KVW_NS_PER_MS))
			break;
	}
	return model;
}

void kvw_wakes_hold(struct kvw_wake_model *model)
{
	atomic_store_explicit(&model->asked, true, memory_order_relaxed);
	atomic_fetch_add_explicit(&model->held, 1, memory_order_relaxed);
	/* Set even if a request waits only briefly: it may have left before the control thread
	 * looks. */
	if (atomic_load_explicit(&model->asleep_ns, memory_order_relaxed) == 0)
		atomic_store_explicit(&model->wanted, true, memory_order_relaxed);
}

void kvw_wakes_release(struct kvw_wakes *wakes, struct kvw_wake_model *model,
	enum kvw_wake_result result, int64_t held_ns)
{
	atomic_fetch_sub_explicit(&model->held, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&wakes->results[result], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(
		&wakes->held_ns, held_ns > 0 ? (uint64_t)held_ns : 0, memory_order_relaxed);
}

void kvw_wakes_refuse(struct kvw_wakes *wakes, struct kvw_wake_model *model)
{
	atomic_store_explicit(&model->asked, true, memory_order_relaxed);
	atomic_store_explicit(&model->wanted, true, memory_order_relaxed);
	atomic_fetch_add_explicit(&wakes->results[KVW_WAKE_REFUSED], 1, memory_order_relaxed);
}

uint64_t kvw_wakes_held(const struct kvw_wakes *wakes)
{
	uint64_t held = 0;

	for (const struct kvw_wake_model *model = first_of(wakes); model != NULL;
		model = model->next)
		held += atomic_load_explicit(&model->held, memory_order_relaxed);
	return held;
}

bool kvw_wakes_pool_serves(const struct kvw_config *config, size_t pool, const char *model)
{
	struct kvw_slice name = kvw_slice_of(model);

	if (config->pools[pool].models.count > 0)
		return is_among(&config->pools[pool].models, name);
	for (size_t i = 0; i < config->pool_count; i++)
		if (is_among(&config->pools[i].models, name))
			return false;
	return true;
}

const char *kvw_wake_result_name(enum kvw_wake_result result)
{
	static const char *const names[KVW_WAKE_RESULTS] = {
		[KVW_WAKE_WOKEN] = "woken",
		[KVW_WAKE_EXPIRED] = "expired",
		[KVW_WAKE_LEFT] = "left",
		[KVW_WAKE_REFUSED] = "refused",
	};

	return names[result];
}
