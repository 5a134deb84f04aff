/*
 * sim_store.c - questions, fetches and puts, from their beginning to their one end.
 *
 * A task's op number is the library's; what the library completes is found by the task's address,
 * which the library carries as `user`: a task lives until its completion has been polled, also if its
 * sequence has left.
 */
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/sim/sim_store_parts.h"

#define FIND_NS       INT64_C(1000000000)  /* longest wall time of a lookup */
#define GET_NS        INT64_C(30000000000) /* longest wall time of a fetch */
#define FORGET_TOKENS 65536                /* tokens after which a measured rate counts 1/e */
#define PRIOR_TOKENS  4096                 /* tokens for which the configured rate counts */
#define TAKEN         64u                  /* completions that are taken at once */

/* --- the library's clock ---------------------------------------------------------------------- */

static int64_t sim_now(void *self)
{
	const struct kvb_store *store = self;

	return kvb_sim_of_real(&store->config.clock, kvw_clock_ns());
}

static int64_t sim_wall(void *self)
{
	return ((const struct kvb_store *)self)->wall_ns + sim_now(self);
}

static void on_log(void *self, uint32_t level, const char *line)
{
	const struct kvb_store *store = self;

	if (level >= KVT_LOG_WARN)
		fprintf(stderr, "kvsim: worker %u: kvtier: %s\n", store->config.index, line);
}

/* --- tasks ------------------------------------------------------------------------------------ */

static struct kvb_task *begin_task(
	struct kvb_store *store, enum kvb_task_kind kind, struct kvb_seq *seq)
{
	struct kvb_task *task = calloc(1, sizeof(*task));

	if (task == NULL)
		return NULL;
	task->kind = kind;
	task->seq = seq;
	task->due_ns = INT64_MAX;
	if (seq != NULL)
		seq->task = task;
	TAILQ_INSERT_TAIL(&store->tasks, task, entry);
	store->stats.under_way++;
	return task;
}

static void free_task(struct kvb_store *store, struct kvb_task *task)
{
	if (task->seq != NULL)
		task->seq->task = NULL;
	kvt_release(store->cache, task->lease);
	TAILQ_REMOVE(&store->tasks, task, entry);
	store->stats.under_way--;
	kvb_store_free_puts(task->copy.puts, task->copy.put_count);
	free(task->keys);
	free(task);
}

/* Ends a task for which no real operation is under way any more. */
static void finish_task(struct kvb_store *store, struct kvb_task *task, int64_t end_ns)
{
	task->done = true;
	if (task->due_ns == INT64_MAX || (task->late && task->due_ns < end_ns))
		task->due_ns = end_ns;
	if (task->seq == NULL)
		free_task(store, task);
}

static void take_copies(struct kvb_store *store)
{
	struct kvb_copy *copy;

	while ((copy = kvb_copier_take(store->copier)) != NULL) {
		struct kvb_task *task =
			(struct kvb_task *)((char *)copy - offsetof(struct kvb_task, copy));

		task->copying = false;
		store->stats.puts += copy->stored;
		store->stats.puts_existing += copy->existing;
		store->stats.puts_refused += copy->refused;
		store->stats.wrong_bytes += copy->wrong_bytes;
		if (task->lease != NULL)
			store->stats.checked_chunks += task->lease->count;
		finish_task(store, task,
			task->kind == KVB_TASK_FETCH
				? kvb_sim_of_real(&store->config.clock, copy->copied_ns)
				: sim_now(store));
	}
}

static void complete(struct kvb_store *store, const struct kvt_completion *completion)
{
	struct kvb_task *task = (struct kvb_task *)(uintptr_t)completion->user;

	task->asked = false;
	if (completion->kind == KVT_OP_GET && completion->status == KVT_OK &&
		kvt_get_take(store->cache, task->op, &task->lease) == KVT_OK && task->seq != NULL) {
		task->copy.kind = KVB_COPY_CHECK;
		task->copy.lease = task->lease;
		task->copy.keys = task->keys;
		task->copying = true;
		kvb_copier_give(store->copier, &task->copy);
		return;
	}
	finish_task(store, task, sim_now(store));
}

static void take_completions(struct kvb_store *store)
{
	struct kvt_completion completions[TAKEN];
	size_t count;

	do {
		count = kvt_poll(store->cache, completions, TAKEN);
		for (size_t i = 0; i < count; i++)
			complete(store, &completions[i]);
	} while (count == TAKEN);
}

static void on_cache(evutil_socket_t fd, short what, void *arg)
{
	struct kvb_store *store = arg;

	(void)fd;
	(void)what;
	take_completions(store);
	store->config.woken(store->config.user);
}

static void on_copier(evutil_socket_t fd, short what, void *arg)
{
	struct kvb_store *store = arg;
	uint64_t count;

	(void)what;
	if (read(fd, &count, sizeof(count)) < 0)
		return; /* taken already */
	take_copies(store);
	store->config.woken(store->config.user);
}

/* --- asking ----------------------------------------------------------------------------------- */

static bool has_l2(const struct kvb_store *store)
{
	const char *url = store->tiers->config.l2_url;

	return url != NULL && url[0] != '\0';
}

static uint64_t wall_time(const struct kvb_store *store, int64_t ns)
{
	double speed = store->config.clock.speed;

	return (uint64_t)((double)ns * (speed > 1 ? speed : 1));
}

static struct kvt_key *copy_keys(const struct kvb_seq *seq, uint32_t first, uint32_t count)
{
	struct kvt_key *keys = malloc(((size_t)count + 1) * sizeof(*keys));

	for (uint32_t i = 0; keys != NULL && i < count; i++)
		keys[i] = *kvb_store_key(seq, first + i);
	return keys;
}

/* Returns how many of the first tokens are worth loading, without asking a shared tier. */
static uint32_t look_up(
	struct kvb_store *store, const struct kvb_seq *seq, int64_t now_ns, uint32_t hits)
{
	uint32_t count = seq->chunk_count, size = store->tiers->chunk_tokens, worth;
	struct kvt_key *keys = copy_keys(seq, 0, count);
	uint8_t *tiers = malloc((size_t)count + 1);
	struct kvt_lookup found = {0};

	if (keys == NULL || tiers == NULL ||
		kvt_lookup(store->cache, keys, count, KVT_ALL_TIERS, tiers, &found) != KVT_OK)
		found.hits = found.worth = 0;
	worth = (uint32_t)found.worth;
	if (store->tiers->modelled && store->tiers->recompute && tiers != NULL)
		worth = kvb_way_worth(&store->ways, tiers, (uint32_t)found.hits, size, hits,
			store->prefill_ns > 0 ? store->prefill_tokens / store->prefill_ns * 1e9 : 0,
			now_ns);
	store->stats.left_chunks += found.hits - worth;
	free(tiers);
	free(keys);
	return worth * size;
}

/* Begins a lookup that asks shared tiers, too. Returns false if it cannot begin now. */
static bool begin_ask(struct kvb_store *store, struct kvb_seq *seq, int64_t now_ns)
{
	struct kvb_task *task = begin_task(store, KVB_TASK_ASK, seq);

	if (task == NULL)
		return false;
	task->count = seq->chunk_count;
	task->keys = copy_keys(seq, 0, task->count);
	if (task->keys == NULL || kvt_find_begin(store->cache, task->keys, task->count,
					  KVT_ALL_TIERS, wall_time(store, FIND_NS),
					  (uint64_t)(uintptr_t)task, &task->op) != KVT_OK) {
		free_task(store, task);
		return false;
	}
	task->asked = true;
	if (store->tiers->modelled)
		task->due_ns = now_ns + store->tiers->links[KVB_LINK_L2]->latency_ns;
	return true;
}

static bool is_over(const struct kvb_task *task, int64_t now_ns)
{
	return task->done && task->due_ns <= now_ns;
}

bool kvb_store_ask(struct kvb_store *store, struct kvb_seq *seq, int64_t now_ns, uint32_t hits,
	uint32_t *tokens)
{
	struct kvb_task *task = seq->task;

	*tokens = 0;
	if (task == NULL) {
		if (!kvb_store_name(store, seq) || seq->chunk_count == 0)
			return true;
		store->stats.asks++;
		if (has_l2(store) && begin_ask(store, seq, now_ns))
			return false;
	} else if (is_over(task, now_ns)) {
		free_task(store, task);
	} else {
		return false;
	}
	*tokens = look_up(store, seq, now_ns, hits);
	return true;
}

/* --- fetching --------------------------------------------------------------------------------- */

/* Returns the simulated end of loading those of these chunks that are stored. */
static int64_t model_fetch(struct kvb_store *store, const struct kvb_task *task, int64_t now_ns)
{
	uint8_t *tiers = malloc((size_t)task->count + 1);
	struct kvt_lookup found = {0};
	int64_t end_ns = now_ns;

	if (tiers != NULL && kvt_lookup(store->cache, task->keys, task->count, KVT_ALL_TIERS, tiers,
				     &found) == KVT_OK)
		end_ns = kvb_way_fetch(&store->ways, tiers, (uint32_t)found.hits, now_ns);
	free(tiers);
	return end_ns;
}

bool kvb_store_fetch(struct kvb_store *store, struct kvb_seq *seq, int64_t now_ns, uint32_t hits,
	uint32_t tokens)
{
	uint32_t size = store->tiers->chunk_tokens, end = (tokens + size - 1) / size;
	struct kvb_task *task = begin_task(store, KVB_TASK_FETCH, seq);

	store->stats.fetches++;
	memset(seq->loaded, 0, sizeof(seq->loaded));
	if (task == NULL)
		return false;
	task->hits = hits;
	task->tokens = tokens;
	task->first = hits / size;
	task->count = (end < seq->chunk_count ? end : seq->chunk_count) - task->first;
	task->keys = copy_keys(seq, task->first, task->count);
	if (task->keys != NULL && store->tiers->modelled)
		task->due_ns = model_fetch(store, task, now_ns);
	if (task->keys == NULL ||
		kvt_get_begin(store->cache, task->keys, task->count, wall_time(store, GET_NS),
			(uint64_t)(uintptr_t)task, &task->op) != KVT_OK)
		finish_task(store, task, now_ns);
	else
		task->asked = true;
	return true;
}

/* Hands a fetch that is over to the engine. */
static void loaded(struct kvb_store *store, struct kvb_engine *engine, struct kvb_task *task)
{
	struct kvb_seq *seq = task->seq;
	uint32_t size = store->tiers->chunk_tokens,
		 good = task->lease == NULL ? 0 : task->copy.good;
	uint32_t end = (task->first + good) * size;

	end = end < task->tokens ? end : task->tokens;
	for (uint32_t i = 0; i < good; i++) {
		uint32_t from = (task->first + i) * size, to = from + size;
		uint8_t tier = task->lease->views[i].tier;

		from = from > task->hits ? from : task->hits;
		to = to < end ? to : end;
		if (to > from && tier < KVT_TIER_COUNT) {
			seq->loaded[tier] += to - from;
			store->stats.loaded_tokens[tier] += to - from;
		}
	}
	store->stats.fetches_short += end < task->tokens;
	if (seq->chunks_stored < end / size)
		seq->chunks_stored = end / size;
	free_task(store, task);
	kvb_engine_loaded(engine, seq, end);
}

void kvb_store_drop(struct kvb_store *store, struct kvb_seq *seq)
{
	struct kvb_task *task = seq->task;

	if (task == NULL)
		return;
	seq->task = NULL;
	task->seq = NULL;
	if (task->done)
		free_task(store, task);
	else if (task->asked && kvt_cancel(store->cache, task->op) != KVT_OK)
		return; /* it is complete already, and its completion ends the task */
}

/* --- time ------------------------------------------------------------------------------------- */

bool kvb_store_advance(struct kvb_store *store, struct kvb_engine *engine, int64_t now_ns)
{
	struct kvb_task *task, *next;

	take_completions(store);
	take_copies(store);
	TAILQ_FOREACH(task, &store->tasks, entry)
	{
		if (!task->done && !task->late && task->due_ns <= now_ns) {
			store->stats.waits++;
			return false;
		}
	}
	for (task = TAILQ_FIRST(&store->tasks); task != NULL; task = next) {
		next = TAILQ_NEXT(task, entry);
		if (!is_over(task, now_ns))
			continue;
		task->seen = true;
		if (task->kind == KVB_TASK_FETCH)
			loaded(store, engine, task);
	}
	return true;
}

void kvb_store_give_up(struct kvb_store *store, int64_t now_ns)
{
	struct kvb_task *task;

	TAILQ_FOREACH(task, &store->tasks, entry)
	{
		if (task->done || task->late || task->due_ns > now_ns)
			continue;
		task->late = true;
		store->stats.given_up++;
	}
}

int64_t kvb_store_next_ns(const struct kvb_store *store)
{
	const struct kvb_task *task;
	int64_t next_ns = INT64_MAX;

	TAILQ_FOREACH(task, &store->tasks, entry)
	{
		bool hangs = task->late && !task->done;

		if (task->kind != KVB_TASK_PUT && !task->seen && !hangs && task->due_ns < next_ns)
			next_ns = task->due_ns;
	}
	return next_ns;
}

/* Reports the rate of prefill to the library, and keeps the same average for decisions here. */
static void report_prefill(struct kvb_store *store, uint64_t tokens, int64_t length_ns)
{
	double keep = 1 / (1 + (double)tokens / FORGET_TOKENS);

	kvt_report_prefill(store->cache, tokens, (uint64_t)length_ns);
	store->prefill_tokens = store->prefill_tokens * keep + (double)tokens;
	store->prefill_ns = store->prefill_ns * keep + (double)length_ns;
}

void kvb_store_step_ends(
	struct kvb_store *store, int64_t end_ns, uint64_t prefill_tokens, int64_t length_ns)
{
	struct kvb_task *task;

	if (prefill_tokens > 0 && length_ns > 0)
		report_prefill(store, prefill_tokens, length_ns);
	if (store->put_count == 0)
		return;
	task = begin_task(store, KVB_TASK_PUT, NULL);
	if (task == NULL)
		return; /* these puts go with a later step */
	task->copy.kind = KVB_COPY_PUT;
	task->copy.puts = store->puts;
	task->copy.put_count = store->put_count;
	store->puts = NULL;
	store->put_count = store->put_room = 0;
	if (store->tiers->modelled)
		task->due_ns = end_ns;
	task->copying = true;
	kvb_copier_give(store->copier, &task->copy);
}

/* --- life ------------------------------------------------------------------------------------- */

static bool open_cache(struct kvb_store *store)
{
	struct kvt_config *config = &store->settings;
	enum kvt_status status;

	kvb_tier_config(store->config.options, store->config.index, &store->texts, config);
	config->clock = &store->clock;
	config->log = on_log;
	config->log_self = store;
	store->has_controller = kvt_lmcache_root(config, &store->lmcache_root) == KVT_OK;
	status = kvt_open(config, &store->cache);
	if (status != KVT_OK)
		fprintf(stderr, "kvsim: worker %u: kvtier: %s\n", store->config.index,
			kvt_status_text(status));
	return status == KVT_OK;
}

static bool watch_fd(struct kvb_store *store, int fd, event_callback_fn fn, struct event **out)
{
	*out = event_new(store->config.base, fd, EV_READ | EV_PERSIST, fn, store);
	return *out != NULL && event_add(*out, NULL) == 0;
}

struct kvb_store *kvb_store_create(const struct kvb_store_config *config)
{
	struct kvb_store *store = calloc(1, sizeof(*store));

	if (store == NULL)
		return NULL;
	store->config = *config;
	store->tiers = &config->options->tier;
	store->clock = (struct kvt_clock){sim_now, sim_wall, store};
	store->wall_ns = kvw_clock_wall_ns();
	store->ways.chunk_bytes = store->tiers->chunk_bytes;
	memcpy(store->ways.links, store->tiers->links, sizeof(store->ways.links));
	if (store->tiers->config.prefill_tokens_per_second > 0) {
		store->prefill_tokens = PRIOR_TOKENS;
		store->prefill_ns =
			PRIOR_TOKENS * 1e9 / store->tiers->config.prefill_tokens_per_second;
	}
	TAILQ_INIT(&store->tasks);
	if (!open_cache(store))
		goto fail;
	store->copier = kvb_copier_create(store->cache, store->tiers->chunk_tokens,
		store->tiers->payload_bytes, !store->tiers->modelled);
	if (store->copier == NULL ||
		!watch_fd(store, kvt_eventfd(store->cache), on_cache, &store->ev_cache) ||
		!watch_fd(store, kvb_copier_fd(store->copier), on_copier, &store->ev_copier))
		goto fail;
	return store;
fail:
	kvb_store_destroy(store);
	return NULL;
}

void kvb_store_destroy(struct kvb_store *store)
{
	struct kvb_copy_list left = STAILQ_HEAD_INITIALIZER(left);
	struct kvb_task *task;

	if (store == NULL)
		return;
	if (store->ev_cache != NULL)
		event_free(store->ev_cache);
	if (store->ev_copier != NULL)
		event_free(store->ev_copier);
	kvb_copier_destroy(store->copier, &left);
	while ((task = TAILQ_FIRST(&store->tasks)) != NULL)
		free_task(store, task);
	kvt_close(store->cache);
	kvb_store_free_puts(store->puts, store->put_count);
	free(store);
}

void kvb_store_stats(const struct kvb_store *store, struct kvb_store_stats *out)
{
	*out = store->stats;
}

struct kvt *kvb_store_cache(struct kvb_store *store)
{
	return store->cache;
}
