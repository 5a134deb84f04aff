/*
 * events_source.c - one thread that publishes for all engines, batch by batch in turn.
 *
 * Batch n of all is due at n / (engines * rate) after the start of its phase and belongs to engine
 * n modulo engines. A thread that is behind publishes what is due at once and reports how late it
 * was; it never leaves a batch out, so the rate holds or the figure says why not.
 *
 * The thread makes itself nice, and with it ZeroMQ's own, which it starts: publishing on a core
 * that also asks questions must not delay the asking.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <zmq.h>

#include "base/clock.h"
#include "bench/load/events_servers.h"
#include "bench/load/events_source.h"
#include "bench/sim/sim_kv_events.h"
#include "bench/sim/sim_publisher.h"

#define NICE         10
#define REPLAY_STEPS 4000
#define PIECES       (KVB_CHAIN / KVB_PIECE)
#define IDLE_NS      INT64_C(1000000)
#define VOCABULARY   128000u
#define BLOCK_BYTES  4096u /* as reported to a coordinator */

struct kvb_source {
	struct kvb_source_config config;
	void *zmq;
	struct kvb_publisher **publishers; /* owned; one per engine; with a coordinator none */
	struct kvb_servers *servers;       /* owned; NULL: there is no coordinator */
	/* how many pieces each engine has stored; used by the thread alone */
	uint64_t *pieces;
	struct kvb_buf events, batch;
	pthread_t thread;
	bool started;
	pthread_mutex_t step; /* locked while a batch is published; guards `on` */
	bool on;
	atomic_bool over;
	atomic_uint_fast64_t batches, blocks, refused;
	atomic_uint_fast64_t chains; /* chains that every engine has stored completely */
	atomic_int_fast64_t late_ns;
};

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static uint64_t chain_seed(uint32_t group, uint64_t chain)
{
	return mix(chain * KVB_GROUPS + group + 1);
}

static void block_tokens(uint64_t seed, uint32_t block, uint32_t *tokens)
{
	for (uint32_t i = 0; i < KVB_BLOCK_TOKENS; i++)
		tokens[i] = (uint32_t)(mix(seed + block * KVB_BLOCK_TOKENS + i) % VOCABULARY);
}

static uint64_t block_hash(uint64_t seed, uint32_t block)
{
	return mix(~seed + block);
}

/* Makes one batch of one engine: stores the next piece of its chain, removes as many of its oldest
 * blocks. */
static void make_batch(struct kvb_source *s, uint32_t engine)
{
	static const struct kvb_kv_style style = {0};
	uint64_t piece = s->pieces[engine]++, chain = piece / PIECES, hashes[KVB_PIECE], parent;
	uint32_t group = engine % KVB_GROUPS, first = (uint32_t)(piece % PIECES) * KVB_PIECE;
	uint32_t tokens[KVB_PIECE * KVB_BLOCK_TOKENS], count = 0;
	uint64_t seed = chain_seed(group, chain);
	struct kvb_kv_stored stored = {.hashes = hashes,
		.count = KVB_PIECE,
		.block_size = KVB_BLOCK_TOKENS,
		.tokens = tokens,
		.parent = first == 0 ? NULL : &parent};

	kvb_buf_clear(&s->events);
	kvb_buf_clear(&s->batch);
	if (chain >= s->config.held) { /* tail first */
		uint64_t old = chain_seed(group, chain - s->config.held);

		for (uint32_t i = 0; i < KVB_PIECE; i++) {
			uint64_t hash = block_hash(old, KVB_CHAIN - 1 - first - i);

			kvb_kv_put_removed(&s->events, &style, &hash, 1);
			count++;
		}
	}
	for (uint32_t i = 0; i < KVB_PIECE; i++) {
		hashes[i] = block_hash(seed, first + i);
		block_tokens(seed, first + i, tokens + i * KVB_BLOCK_TOKENS);
	}
	parent = first == 0 ? 0 : block_hash(seed, first - 1);
	kvb_kv_put_stored(&s->events, &style, &stored);
	atomic_fetch_add_explicit(&s->blocks, count + KVB_PIECE, memory_order_relaxed);
	kvb_kv_put_batch(
		&s->batch, &style, (double)kvw_clock_wall_ns() / 1e9, &s->events, count + 1);
}

/* The same piece as two batches of a server's post: one that deletes, one that stores. */
static void report_piece(struct kvb_source *s, uint32_t engine)
{
	uint64_t piece = s->pieces[engine]++, chain = piece / PIECES;
	uint32_t group = engine % KVB_GROUPS, first = (uint32_t)(piece % PIECES) * KVB_PIECE;
	uint64_t seed = chain_seed(group, chain);
	uint32_t tokens[KVB_BLOCK_TOKENS];

	if (chain >= s->config.held) { /* tail first */
		uint64_t old = chain_seed(group, chain - s->config.held);

		kvb_servers_begin(s->servers, engine, "delete");
		for (uint32_t i = 0; i < KVB_PIECE; i++)
			kvb_servers_entry(s->servers, block_hash(old, KVB_CHAIN - 1 - first - i), 0,
				NULL, 0, 0);
		kvb_servers_end(s->servers);
		atomic_fetch_add_explicit(&s->blocks, KVB_PIECE, memory_order_relaxed);
		atomic_fetch_add_explicit(&s->batches, 1, memory_order_relaxed);
	}
	kvb_servers_begin(s->servers, engine, "store");
	for (uint32_t i = 0; i < KVB_PIECE; i++) {
		block_tokens(seed, first + i, tokens);
		kvb_servers_entry(s->servers, block_hash(seed, first + i), BLOCK_BYTES, tokens,
			KVB_BLOCK_TOKENS, (uint64_t)(first + i) * KVB_BLOCK_TOKENS);
	}
	kvb_servers_end(s->servers);
	atomic_fetch_add_explicit(&s->blocks, KVB_PIECE, memory_order_relaxed);
	atomic_fetch_add_explicit(&s->batches, 1, memory_order_relaxed);
}

static void post_reports(struct kvb_source *s, uint32_t engine)
{
	for (uint32_t i = 0; i < s->config.pieces; i++)
		report_piece(s, engine);
	if (!kvb_servers_post(s->servers, engine))
		atomic_fetch_add_explicit(&s->refused, 1, memory_order_relaxed);
}

static void sleep_until(int64_t due_ns)
{
	struct timespec t = {due_ns / KVW_NS_PER_S, due_ns % KVW_NS_PER_S};

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

/* Returns false if no events are wanted any more. */
static bool publish_one(struct kvb_source *s, uint32_t engine)
{
	bool on;

	pthread_mutex_lock(&s->step);
	on = s->on;
	if (on && s->servers != NULL) {
		post_reports(s, engine);
	} else if (on) {
		make_batch(s, engine);
		kvb_publisher_send(s->publishers[engine], s->batch.data, s->batch.len);
		atomic_fetch_add_explicit(&s->batches, 1, memory_order_relaxed);
	}
	pthread_mutex_unlock(&s->step);
	return on;
}

static bool is_on(struct kvb_source *s)
{
	bool on;

	pthread_mutex_lock(&s->step);
	on = s->on;
	pthread_mutex_unlock(&s->step);
	return on;
}

/* Publishes the batches that are due; returns when the next one is due. */
static int64_t publish_due(struct kvb_source *s, uint64_t *next, int64_t begun_ns)
{
	double gap_ns = 1e9 / (s->config.batches * s->config.engines);
	int64_t now_ns = kvw_clock_ns(), due_ns;

	while ((due_ns = begun_ns + (int64_t)((double)*next * gap_ns)) <= now_ns) {
		uint32_t engine = (uint32_t)(*next % s->config.engines);

		if (now_ns - due_ns > atomic_load_explicit(&s->late_ns, memory_order_relaxed))
			atomic_store_explicit(&s->late_ns, now_ns - due_ns, memory_order_relaxed);
		if (!publish_one(s, engine))
			break;
		(*next)++;
		if (*next % 64 == 0)
			now_ns = kvw_clock_ns();
		if (engine == s->config.engines - 1)
			atomic_store_explicit(
				&s->chains, s->pieces[engine] / PIECES, memory_order_release);
	}
	return due_ns;
}

static void *run(void *arg)
{
	struct kvb_source *s = arg;
	int64_t begun_ns = 0, due_ns;
	uint64_t next = 0;
	bool was_on = false;

	setpriority(PRIO_PROCESS, 0, NICE); /* Linux applies nice() to this thread alone */
	while (!atomic_load(&s->over)) {
		bool on = is_on(s);

		for (uint32_t i = 0; s->servers == NULL && i < s->config.engines; i++)
			while (kvb_publisher_serve(s->publishers[i]))
				;
		due_ns = kvw_clock_ns() + IDLE_NS;
		if (on && !was_on) { /* a phase begins with a whole round of all engines */
			begun_ns = kvw_clock_ns();
			next = 0;
		}
		was_on = on;
		if (on) {
			int64_t next_ns = publish_due(s, &next, begun_ns);

			due_ns = next_ns > due_ns ? next_ns : due_ns;
		}
		sleep_until(due_ns);
	}
	return NULL;
}

/* On a thread of its own, for the threads that ZeroMQ starts with the first socket are as nice as
 * the one that opens it, and no thread can become less nice again. NULL: failed. */
static void *open_publishers(void *arg)
{
	struct kvb_source *s = arg;
	const uint64_t capacity = (uint64_t)s->config.held * KVB_CHAIN * BLOCK_BYTES;
	char events[64], replay[64];
	struct kvb_publisher_config config = {.endpoint = events,
		.replay_endpoint = replay,
		.topic = "kv@bench",
		.host = "127.0.0.1",
		.buffer_steps = REPLAY_STEPS,
		.hwm = 100000};

	setpriority(PRIO_PROCESS, 0, NICE);
	if (s->config.coordinator != NULL) {
		s->servers = kvb_servers_create(
			s->config.coordinator, s->config.engines, capacity);
		return s->servers != NULL ? s : NULL;
	}
	snprintf(events, sizeof(events), "tcp://*:%u", s->config.port);
	snprintf(replay, sizeof(replay), "tcp://*:%u", s->config.port + s->config.engines);
	for (config.index = 0; config.index < s->config.engines; config.index++) {
		s->publishers[config.index] = kvb_publisher_create(s->zmq, &config);
		if (s->publishers[config.index] == NULL)
			return NULL;
	}
	return s;
}

struct kvb_source *kvb_source_create(const struct kvb_source_config *config)
{
	struct kvb_source *s = calloc(1, sizeof(*s));
	void *opened = NULL;

	if (s == NULL)
		return NULL;
	s->config = *config;
	pthread_mutex_init(&s->step, NULL);
	s->publishers = calloc(config->engines, sizeof(struct kvb_publisher *));
	s->pieces = calloc(config->engines, sizeof(*s->pieces));
	s->zmq = zmq_ctx_new();
	if (s->publishers == NULL || s->pieces == NULL || s->zmq == NULL)
		goto fail;
	zmq_ctx_set(s->zmq, ZMQ_MAX_SOCKETS, (int)(4 * config->engines + 16));
	if (pthread_create(&s->thread, NULL, open_publishers, s) != 0 ||
		pthread_join(s->thread, &opened) != 0 || opened == NULL)
		goto fail;
	s->started = pthread_create(&s->thread, NULL, run, s) == 0;
	if (s->started)
		return s;
fail:
	kvb_source_destroy(s);
	return NULL;
}

void kvb_source_destroy(struct kvb_source *s)
{
	if (s == NULL)
		return;
	atomic_store(&s->over, true);
	if (s->started)
		pthread_join(s->thread, NULL);
	for (uint32_t i = 0; s->publishers != NULL && i < s->config.engines; i++)
		kvb_publisher_destroy(s->publishers[i]);
	kvb_servers_destroy(s->servers);
	if (s->zmq != NULL)
		zmq_ctx_term(s->zmq);
	kvb_buf_finish(&s->events);
	kvb_buf_finish(&s->batch);
	pthread_mutex_destroy(&s->step);
	free(s->publishers);
	free(s->pieces);
	free(s);
}

void kvb_source_run(struct kvb_source *s, bool on)
{
	pthread_mutex_lock(&s->step);
	s->on = on;
	if (!on && s->servers != NULL && !kvb_servers_wait(s->servers))
		atomic_fetch_add_explicit(&s->refused, 1, memory_order_relaxed);
	pthread_mutex_unlock(&s->step);
}

void kvb_source_stats(struct kvb_source *s, struct kvb_source_stats *out)
{
	out->batches = atomic_load(&s->batches);
	out->blocks = atomic_load(&s->blocks);
	out->refused = atomic_load(&s->refused);
	out->late_ns = atomic_exchange(&s->late_ns, 0);
}

bool kvb_source_prompt(
	struct kvb_source *s, uint64_t random, uint32_t tokens[KVB_CHAIN * KVB_BLOCK_TOKENS])
{
	uint64_t whole = atomic_load_explicit(&s->chains, memory_order_acquire), back, seed;

	if (whole == 0)
		return false;
	/* of the younger half, so that it is still held when it is asked for */
	back = 1 + (random >> 8) % (s->config.held / 2 < whole ? s->config.held / 2 : whole);
	seed = chain_seed((uint32_t)random % KVB_GROUPS, whole - back);
	for (uint32_t i = 0; i < KVB_CHAIN; i++)
		block_tokens(seed, i, tokens + i * KVB_BLOCK_TOKENS);
	return true;
}
