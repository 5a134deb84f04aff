/*
 * kvt.c - opens and closes a cache.
 *
 * Opening settles the configuration, then makes the parts in the order in which they depend on each
 * other: event log, L1, lower tiers, threads. Every chunk is fetched into L1, so that a cache
 * cannot work without L1; a lower tier that cannot be made is left out.
 *
 * Fork. A handle has threads, files and locks that a forked child does not have. A page that the
 * kernel wipes in the child shows with one load whether this is a child; no global state is needed.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/barrier.h"
#include "core/lower.h"
#include "core/asked.h"
#include "core/controlled.h"
#include "core/generations.h"
#include "core/kvt_open.h"
#include "core/loads.h"
#include "core/names.h"
#include "core/node.h"
#include "core/ops.h"
#include "core/settle.h"
#include "core/step.h"
#include "core/stores.h"
#include "core/worth.h"
#include "options/settings.h"

/* --- fork ------------------------------------------------------------------------------------- */

static enum kvt_status make_alive(struct kvt *k)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *at = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return KVT_ENOMEM;
	k->alive = at;
	if (madvise(at, page, MADV_WIPEONFORK) != 0) {
		kvt_note(&k->surroundings, KVT_LOG_ERROR, "fork detection needs MADV_WIPEONFORK (Linux 4.14 or newer)");
		return KVT_ENOTSUP;
	}
	atomic_store(k->alive, 1);
	return KVT_OK;
}

static void finish_alive(struct kvt *k)
{
	if (k->alive != NULL)
		munmap(k->alive, (size_t)sysconf(_SC_PAGESIZE));
}

/* --- what tiers report ------------------------------------------------------------------------ */

static void report_stored(
	void *self, uint32_t tier, const struct kvt_key *key, const struct kvt_blocks *names)
{
	struct kvt *k = self;
	struct kvt_key own = *key;

	if (tier != KVT_TIER_L1)
		kvt_name_above(k, key, &own);
	kvt_controller_stored(k->controller, tier, &own, names);
	if (names != NULL)
		kvt_event_log_stored(k->events, tier, names);
}

static void report_removed(
	void *self, uint32_t tier, const struct kvt_key *key, const struct kvt_blocks *names)
{
	struct kvt *k = self;
	struct kvt_key own = *key;

	if (tier != KVT_TIER_L1)
		kvt_name_above(k, key, &own);
	kvt_trace_chunk(k, KVT_TRACE_REMOVED, tier, &own, KVT_WHY_NONE);
	kvt_controller_removed(k->controller, tier, &own);
	if (names != NULL)
		kvt_event_log_removed(k->events, tier, names);
}

static bool has_room(void *self)
{
	return kvt_event_log_has_room(((struct kvt *)self)->events);
}

/* --- close ------------------------------------------------------------------------------------ */

static void destroy(struct kvt *k)
{
	for (size_t i = 0; i < k->lower_count; i++)
		kvt_lower_finish(&k->lower[i]);
	if (k->ops.eventfd >= 0)
		kvt_ops_finish(k);
	kvt_barriers_finish(k);
	kvt_generations_finish(k);
	kvt_l1_destroy(k->l1);
	kvt_neighbours_leave(&k->neighbours);
	kvt_controller_destroy(k->controller);
	kvt_event_log_destroy(k->events);
	kvt_trace_destroy(k->trace);
	kvt_leases_finish(&k->leases);
	kvt_prefill_finish(&k->prefill);
	pthread_mutex_destroy(&k->step_lock);
	pthread_mutex_destroy(&k->lock);
	pthread_mutex_destroy(&k->generations.lock);
	pthread_cond_destroy(&k->due);
	pthread_cond_destroy(&k->ends);
	pthread_cond_destroy(&k->changed);
	finish_alive(k);
	free(k->nvme_path);
	free(k);
}

/* Closes the parts that have been made so far. */
static void close_parts(struct kvt *k)
{
	kvt_asked_stop(k);
	kvt_controller_stop(k->controller); /* the controller is informed that all chunks go */
	pthread_mutex_lock(&k->lock);
	k->closing = true;
	kvt_ops_stop(k);
	kvt_loads_stop(k);
	kvt_stores_stop(k);
	pthread_mutex_unlock(&k->lock);
	kvt_threads_stop(k);
	destroy(k);
}

void kvt_close(struct kvt *k)
{
	if (k == NULL)
		return;
	if (kvt_usable(k) == KVT_EFORK)
		/* closes this child's own copy; everything else belongs to the parent */
		close(k->ops.eventfd);
	else
		close_parts(k);
}

/* --- open ------------------------------------------------------------------------------------- */

/* Sets up the members that need no configuration. */
static void init_plain(struct kvt *k)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&k->changed, &attr);
	pthread_cond_init(&k->due, &attr);
	pthread_cond_init(&k->ends, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_init(&k->lock, NULL);
	pthread_mutex_init(&k->generations.lock, NULL);
	pthread_mutex_init(&k->step_lock, NULL);
	kvt_leases_init(&k->leases);
	kvt_latencies_init(&k->latencies);
	kvt_prefill_init(&k->prefill, k->config.prefill_tokens_per_second);
	k->ops.eventfd = -1;
	k->loads.limit_bytes = k->config.load_inflight;
	k->stores.limit_bytes = k->config.store_inflight;
	k->tier_came = kvt_asked_start;
	k->watch = (struct kvt_tier_watch){report_stored, report_removed, has_room, k};
}

/* Makes each configured tier of the list, at most one of each id. */
static enum kvt_status make_lowers(struct kvt *k, const struct kvt_tier_ops *const *tiers)
{
	const struct kvt_tier_ops *made[KVT_TIER_COUNT] = {NULL};

	for (; *tiers != NULL; tiers++) {
		const struct kvt_tier_ops *ops = *tiers;
		struct kvt_lower *lower = &k->lower[k->lower_count];
		enum kvt_status status = kvt_lower_init(lower, k, ops);

		if (status != KVT_OK)
			return status;
		if (lower->state == KVT_TIER_ABSENT)
			continue;
		if (made[ops->id] != NULL) {
			kvt_note(&k->surroundings, KVT_LOG_ERROR,
				"%s and %s are both configured: a cache has room for one of them",
				made[ops->id]->name, ops->name);
			kvt_lower_finish(lower);
			return KVT_EINVAL;
		}
		made[ops->id] = ops;
		/* L1 is not in the list, so that a slot of the array stays free */
		k->lower_count++;
	}
	return KVT_OK;
}

static enum kvt_status make_tiers(struct kvt *k, const struct kvt_tier_ops *const *tiers)
{
	char why[KVT_REASON_BYTES] = "";
	enum kvt_status status;

	status = kvt_l1_create(&k->config, &k->surroundings, &k->watch, why, &k->l1);
	if (status != KVT_OK) {
		kvt_note(&k->surroundings, KVT_LOG_ERROR, "l1: %s", why);
		return status;
	}
	k->stores.write_bytes = kvt_arena_capacity(kvt_l1_arena(k->l1)) / 4;
	if (k->stores.write_bytes > k->stores.limit_bytes / 2)
		k->stores.write_bytes = k->stores.limit_bytes / 2;
	return make_lowers(k, tiers);
}

/* On failure kvt_close undoes the parts that were made. */
static enum kvt_status open_parts(
	struct kvt *k, const struct kvt_config *given, const struct kvt_tier_ops *const *tiers)
{
	enum kvt_status status = make_alive(k);

	if (status == KVT_OK && k->config.nvme_path != NULL && k->config.nvme_path[0] != '\0') {
		k->nvme_path = strdup(k->config.nvme_path);
		status = k->nvme_path != NULL ? KVT_OK : KVT_ENOMEM;
	}
	if (status == KVT_OK)
		status = kvt_trace_create(k->config.trace_events, &k->trace);
	if (status == KVT_OK)
		status = kvt_ops_init(k);
	if (status == KVT_OK)
		status = kvt_event_log_create(&k->config, &k->surroundings, &k->events);
	if (status == KVT_OK)
		status = kvt_controlled_start(k);
	if (status == KVT_OK)
		status = make_tiers(k, tiers);
	if (status == KVT_OK)
		status = kvt_generations_init(k);
	if (status != KVT_OK)
		return status;
	k->own_clock = given->clock == NULL;
	k->tended_ns = kvt_clock(k);
	return kvt_threads_start(k);
}

enum kvt_status kvt_open_with(
	const struct kvt_config *config, const struct kvt_tier_ops *const *tiers, struct kvt **out)
{
	enum kvt_status status;
	struct kvt *k;

	if (config == NULL || out == NULL)
		return KVT_EINVAL;
	k = calloc(1, sizeof(*k));
	if (k == NULL)
		return KVT_ENOMEM;
	k->neighbours.fd = -1;
	status = kvt_config_settle(config, &k->config);
	kvt_surroundings_init(&k->surroundings, &k->config);
	if (status == KVT_OK)
		kvt_config_settle_sizes(&k->config,
			kvt_node_settle(&k->config, &k->surroundings) ? KVT_NODE_L1_PART : 1,
			&k->neighbours, &k->surroundings);
	init_plain(k);
	if (status == KVT_OK)
		status = open_parts(k, config, tiers);
	if (status != KVT_OK) {
		close_parts(k);
		return status;
	}
	kvt_settings_forget_texts(&k->config); /* borrowed during kvt_open only */
	atomic_store(&k->opened, true);
	(void)kvt_generations_await(k, k->config.l2_deadline_ns);
	kvt_asked_start(k);
	*out = k;
	return KVT_OK;
}
