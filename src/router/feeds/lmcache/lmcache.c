/*
 * lmcache.c - the controller as a module of the feed: its settings, its timers, and what other
 * threads call.
 */
#include "feeds/lmcache/lmcache.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "feeds/lmcache/controller.h"
#include "base/log.h"

#define TICK_NS       (100 * KVW_NS_PER_MS)
#define SLOW_TICK_NS  KVW_NS_PER_S
/* bytes of kvaware.index_bytes per allowed key; a key here takes an eighth of that */
#define BYTES_PER_KEY 128

/* --- settings --- */

/* Parses NONE_HASH as workers log it: decimal, signed or not, or 0x... */
static bool parse_number(const char *text, uint64_t *number)
{
	char *end;

	errno = 0;
	*number = text[0] == '-' ? (uint64_t)strtoll(text, &end, 0) : strtoull(text, &end, 0);
	return errno == 0 && end != text && *end == '\0';
}

static enum kvw_err make_recipe(
	const struct kvw_config *config, struct kvw_lmcache_recipe *recipe, FILE *errors)
{
	const char *fault;

	*recipe = (struct kvw_lmcache_recipe){
		.chunk_size = (uint32_t)config->kvaware_lmcache_chunk,
		.partial_chunk = config->kvaware_lmcache_partial,
	};
	if (strcmp(config->kvaware_lmcache_seed, "unset") != 0)
		recipe->seed = config->kvaware_lmcache_seed;
	if (!kvw_lmcache_algorithm_parse(
		    kvw_slice_of(config->kvaware_lmcache_hash), &recipe->algorithm))
		kvw_warn("lmcache",
			"kvaware.lmcache.hash: LMCache knows no `%s` and uses builtin "
			"in its place; so does kvway",
			config->kvaware_lmcache_hash);
	if (config->kvaware_lmcache_none_hash[0] != '\0') {
		recipe->root = KVW_LMCACHE_ROOT_NUMBER;
		if (!parse_number(config->kvaware_lmcache_none_hash, &recipe->none_hash)) {
			fprintf(errors,
				"kvaware.lmcache.none_hash: found `%s`, expected a number of "
				"64 bits\n",
				config->kvaware_lmcache_none_hash);
			return KVW_EINVAL;
		}
	}
	fault = kvw_lmcache_recipe_fault(recipe);
	if (fault == NULL)
		return KVW_OK;
	fprintf(errors, "kvaware.lmcache.hash: %s\n", fault);
	return KVW_EINVAL;
}

static enum kvw_err make_tables(struct kvw_lmcache *lmcache)
{
	lmcache->workers = calloc(KVW_MAX_WORKERS, sizeof(lmcache->workers[0]));
	lmcache->followed = calloc(KVW_MAX_WORKERS, sizeof(lmcache->followed[0]));
	lmcache->up_ns = calloc(KVW_MAX_WORKERS, sizeof(lmcache->up_ns[0]));
	lmcache->down = calloc(KVW_MAX_WORKERS, sizeof(lmcache->down[0]));
	lmcache->seen = calloc(KVW_MAX_WORKERS, sizeof(lmcache->seen[0]));
	if (lmcache->workers == NULL || lmcache->followed == NULL || lmcache->up_ns == NULL ||
		lmcache->down == NULL || lmcache->seen == NULL)
		return KVW_ENOMEM;
	for (size_t i = 0; i < KVW_MAX_WORKERS; i++)
		lmcache->workers[i] = (struct kvw_lmreg_worker){.instance = "", .ip = ""};
	return KVW_OK;
}

/* --- workers that come and go --- */

static void unfollow(struct kvw_lmcache *lmcache, uint32_t slot)
{
	struct kvw_lmcache_followed *followed = &lmcache->followed[slot];

	if (followed->worker == NULL)
		return;
	if (lmcache->reg != NULL)
		kvw_lmreg_worker_left(lmcache->reg, slot);
	lmcache->workers[slot] = (struct kvw_lmreg_worker){.instance = "", .ip = ""};
	lmcache->up_ns[slot] = 0;
	lmcache->down[slot] = false;
	kvw_worker_let_go(followed->worker);
	followed->worker = NULL;
}

/* Returns whether the worker still has its former address. */
static bool is_still_there(struct kvw_worker *worker, const char *ip)
{
	struct sockaddr_storage address;
	char text[NI_MAXHOST];

	for (size_t n = 0; kvw_worker_address(worker, n, &address); n++)
		if (getnameinfo((const struct sockaddr *)&address, kvw_address_len(&address), text,
			    sizeof(text), NULL, 0, NI_NUMERICHOST) == 0 &&
			strcmp(text, ip) == 0)
			return true;
	return false;
}

/* Looks for the instance of a worker that is new in its slot, or has another address now. */
static void look_up(struct kvw_lmcache *lmcache, uint32_t slot, bool is_new)
{
	struct kvw_lmcache_followed *followed = &lmcache->followed[slot];
	struct kvw_worker *worker = followed->worker;

	followed->address_version = atomic_load(&worker->address_version);
	if (!is_new && is_still_there(worker, followed->ip))
		return;
	if (!is_new && lmcache->reg != NULL)
		kvw_lmreg_worker_moved(lmcache->reg, slot);
	kvw_worker_ip(worker, followed->ip, sizeof(followed->ip));
	/* LMCache's instances report for their whole server, not for one of its data-parallel
	 * ranks. So only the worker that stands for the server gets an instance here, not its
	 * ranks. */
	lmcache->workers[slot] = (struct kvw_lmreg_worker){
		.instance = worker->rank == KVW_RANK_NONE ? worker->config.lmcache_instance : "",
		.ip = worker->rank == KVW_RANK_NONE ? followed->ip : ""};
	if (lmcache->reg != NULL)
		kvw_lmreg_worker_came(lmcache->reg);
}

static void follow_fleet(struct kvw_lmcache *lmcache)
{
	const struct kvw_fleet *fleet = lmcache->deps->fleet;

	lmcache->worker_count = fleet->count;
	for (uint32_t i = 0; i < lmcache->worker_count; i++) {
		struct kvw_lmcache_followed *followed = &lmcache->followed[i];
		struct kvw_worker *worker = fleet->workers[i];

		if (followed->worker != NULL && kvw_worker_life(worker) != KVW_WORKER_LIVE)
			unfollow(lmcache, i);
		if (followed->worker == NULL && kvw_worker_hold(worker)) {
			followed->worker = worker;
			look_up(lmcache, i, true);
		} else if (followed->worker != NULL &&
			   followed->address_version != atomic_load(&worker->address_version)) {
			look_up(lmcache, i, false);
		}
	}
}

/* --- time --- */

/* Forgets the contents of a worker that begins to refuse connections: it has lost its cache, or no
 * request can use it. */
static void watch_health(struct kvw_lmcache *lmcache, int64_t now_ns)
{
	for (uint32_t w = 0; w < lmcache->worker_count; w++) {
		bool down;

		if (lmcache->followed[w].worker == NULL)
			continue;
		down = !kvw_worker_is_up(lmcache->followed[w].worker);
		if (down && !lmcache->down[w] && lmcache->up_ns[w] != 0)
			kvw_lmreg_worker_down(lmcache->reg, w, lmcache->up_ns[w]);
		if (!down)
			lmcache->up_ns[w] = now_ns;
		lmcache->down[w] = down;
	}
}

static void publish_one(struct kvw_lmcache *lmcache, uint32_t worker)
{
	const struct kvw_lmreg_instance *instance = lmcache->reg->by_worker[worker];

	snprintf(lmcache->seen[worker], sizeof(lmcache->seen[worker]), "%s",
		instance != NULL ? instance->id : "");
}

/* Publishes the instance's name together with the coverage, without waiting for the next tick. */
static void set_coverage(
	void *ctx, uint32_t worker, enum kvw_coverage coverage, uint32_t sources, const char *wrong)
{
	struct kvw_lmcache *lmcache = ctx;

	pthread_mutex_lock(&lmcache->lock);
	publish_one(lmcache, worker);
	pthread_mutex_unlock(&lmcache->lock);
	kvw_feed_set_coverage(
		lmcache->feed, worker, KVW_REPORTER_LMCACHE, coverage, sources, wrong);
}

static void publish_status(struct kvw_lmcache *lmcache)
{
	kvw_lmreg_count(lmcache->reg);
	pthread_mutex_lock(&lmcache->lock);
	for (uint32_t w = 0; w < lmcache->worker_count; w++)
		publish_one(lmcache, w);
	lmcache->stats = lmcache->reg->stats;
	pthread_mutex_unlock(&lmcache->lock);
}

static void tick_lmcache(struct kvw_feed *feed, void *arg)
{
	struct kvw_lmcache *lmcache = arg;
	int64_t now_ns = kvw_feed_now(feed);

	if (kvw_feed_stopped(feed))
		return;
	follow_fleet(lmcache);
	watch_health(lmcache, now_ns);
	kvw_lmdiag_tick(lmcache->diag, now_ns);
	if (now_ns - lmcache->ticked_ns >= SLOW_TICK_NS) {
		lmcache->ticked_ns = now_ns;
		kvw_lmreg_tick(lmcache->reg, now_ns);
	}
	publish_status(lmcache);
}

/* --- the module --- */

static void stop(void *state)
{
	struct kvw_lmcache *lmcache = state;

	kvw_lmcache_close(lmcache);
	kvw_lmdiag_destroy(lmcache->diag);
	kvw_lmreg_destroy(lmcache->reg);
	kvw_lmc_reader_finish(&lmcache->reader);
	lmcache->reg = NULL;
	for (uint32_t i = 0; lmcache->followed != NULL && i < lmcache->worker_count; i++)
		unfollow(lmcache, i);
	free(lmcache->followed);
	pthread_mutex_destroy(&lmcache->lock);
	free(lmcache->out);
	free(lmcache->seen);
	free(lmcache->down);
	free(lmcache->up_ns);
	free(lmcache->workers);
	free(lmcache);
}

static const char *url_of(void *ctx, uint32_t worker)
{
	const struct kvw_lmcache *lmcache = ctx;

	return lmcache->followed[worker].worker == NULL ? ""
							: lmcache->followed[worker].worker->url;
}

/* Makes the registry and the parts that use it. */
static enum kvw_err make_registry(struct kvw_lmcache *lmcache)
{
	const struct kvw_config *config = lmcache->deps->config;
	struct kvw_lmreg_options options = {
		.index = kvw_exact_index(lmcache->deps->exact),
		.coverage = set_coverage,
		.ctx = lmcache,
		.spaces = lmcache->deps->spaces,
		.worker_url = url_of,
		.workers = lmcache->workers,
		.worker_count = KVW_MAX_WORKERS,
		.timeout_ns = config->kvaware_lmcache_timeout_ms * KVW_NS_PER_MS,
		.key_limit = config->kvaware_index_bytes / BYTES_PER_KEY,
		.seed = (uint64_t)kvw_clock_wall_ns() * UINT64_C(0x9e3779b97f4a7c15),
	};
	struct kvw_lmdiag_options diag = {
		.spaces = lmcache->deps->spaces,
		.configured = &lmcache->recipe,
		.detect = config->kvaware_lmcache_detect,
	};
	enum kvw_err err;

	err = kvw_kvspaces_lmcache(lmcache->deps->spaces, &lmcache->recipe, &options.space);
	if (err == KVW_OK)
		err = kvw_lmreg_create(&options, &lmcache->reg);
	if (err != KVW_OK)
		return err;
	diag.reg = lmcache->reg;
	return kvw_lmdiag_create(&diag, &lmcache->diag);
}

static enum kvw_err start_lmcache(struct kvw_feed *feed, FILE *errors, void **state)
{
	const struct kvw_config *config = kvw_feed_deps(feed)->config;
	struct kvw_lmcache *lmcache;
	enum kvw_err err;

	if (config->kvaware_lmcache_pull[0] == '\0' && config->kvaware_lmcache_reply[0] == '\0' &&
		config->kvaware_lmcache_heartbeat[0] == '\0')
		return KVW_OK;
	lmcache = calloc(1, sizeof(*lmcache));
	if (lmcache == NULL)
		return KVW_ENOMEM;
	lmcache->feed = feed;
	lmcache->deps = kvw_feed_deps(feed);
	pthread_mutex_init(&lmcache->lock, NULL);
	kvw_lmc_reader_init(&lmcache->reader);
	lmcache->out = malloc(KVW_LMREG_REPLY_MAX);
	err = lmcache->out == NULL ? KVW_ENOMEM : KVW_OK;
	if (err == KVW_OK)
		err = make_recipe(config, &lmcache->recipe, errors);
	if (err == KVW_OK)
		err = make_tables(lmcache);
	if (err == KVW_OK) {
		follow_fleet(lmcache);
		err = make_registry(lmcache);
	}
	if (err == KVW_OK)
		err = kvw_lmcache_open(lmcache, errors);
	if (err == KVW_OK)
		err = kvw_feed_every(feed, TICK_NS, tick_lmcache, lmcache);
	if (err != KVW_OK) {
		stop(lmcache);
		return err;
	}
	publish_status(lmcache);
	*state = lmcache;
	return KVW_OK;
}

static void purged(void *state, const uint32_t *workers, size_t count)
{
	struct kvw_lmcache *lmcache = state;

	for (size_t i = 0; i < count; i++)
		kvw_lmreg_worker_purged(lmcache->reg, workers[i]);
}

static void listen_now(void *state)
{
	kvw_lmcache_listen(state);
}

/* From here on LMCache connects to the new process, which continues with the state that was
 * reported to this one. */
static void hand_over_lmcache(void *state)
{
	kvw_lmcache_hand_over(state);
}

static enum kvw_err keep_registry(void *state, const struct kvw_keep_out *out)
{
	const struct kvw_lmcache *lmcache = state;

	return kvw_lmreg_keep(lmcache->reg, out);
}

static void recall(void *state, enum kvw_keep_kind kind, const uint8_t *record, size_t len)
{
	struct kvw_lmcache *lmcache = state;

	kvw_lmreg_recall(lmcache->reg, kind, record, len, kvw_feed_now(lmcache->feed));
}

/* Called when all handed-over records are read. A worker that is down now may have ended while no
 * process watched it: the next tick forgets its contents. */
static void recalled(void *state, bool all_came)
{
	struct kvw_lmcache *lmcache = state;
	int64_t now_ns = kvw_feed_now(lmcache->feed);

	kvw_lmreg_recall_end(lmcache->reg, all_came, now_ns);
	for (uint32_t w = 0; w < lmcache->worker_count; w++) {
		if (lmcache->followed[w].worker == NULL)
			continue;
		lmcache->up_ns[w] = now_ns;
		lmcache->down[w] = false;
	}
	publish_status(lmcache);
}

const struct kvw_feed_module kvw_lmcache_module = {
	.name = "lmcache",
	.start = start_lmcache,
	.purged = purged,
	.listen = listen_now,
	.hand_over = hand_over_lmcache,
	.keep = keep_registry,
	.recall = recall,
	.recalled = recalled,
	.stop = stop,
};

struct kvw_lmcache *kvw_lmcache_of(const struct kvw_feed *feed)
{
	return kvw_feed_module_state(feed, &kvw_lmcache_module);
}

/* --- any thread --- */

void kvw_lmcache_routed(struct kvw_lmcache *lmcache, uint32_t worker, const uint32_t *tokens,
	size_t count, int64_t now_ns)
{
	kvw_lmdiag_routed(lmcache->diag, worker, tokens, count, now_ns);
}

size_t kvw_lmcache_instance_of(
	struct kvw_lmcache *lmcache, uint32_t worker, char *text, size_t size)
{
	int length = 0;

	if (size > 0)
		text[0] = '\0';
	if (worker >= KVW_MAX_WORKERS)
		return 0;
	pthread_mutex_lock(&lmcache->lock);
	length = snprintf(text, size, "%s", lmcache->seen[worker]);
	pthread_mutex_unlock(&lmcache->lock);
	return (size_t)length;
}

void kvw_lmcache_stats(struct kvw_lmcache *lmcache, struct kvw_lmcache_stats *out)
{
	pthread_mutex_lock(&lmcache->lock);
	*out = lmcache->stats;
	pthread_mutex_unlock(&lmcache->lock);
}

void kvw_lmcache_reconfigure(const struct kvw_feed *feed, const struct kvw_config *config)
{
	struct kvw_lmcache *lmcache = kvw_lmcache_of(feed);

	if (lmcache != NULL)
		atomic_store(&lmcache->reg->options.timeout_ns,
			config->kvaware_lmcache_timeout_ms * KVW_NS_PER_MS);
}
