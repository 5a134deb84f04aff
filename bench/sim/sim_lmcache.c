/*
 * sim_lmcache.c - when chunks are computed, stored and loaded, and what the controller may command.
 *
 * With a coordinator in the controller's place, chunks have the hashes of LMCache's servers, a key
 * is the beginning of one, and changes go to the worker's server (sim_mp.h).
 *
 * A prompt's keys are computed once, when it is first looked up, and kept with its sequence. What is
 * said to the controller is libkvtier's (cache/lmcache), in the manner of a stock LMCache worker;
 * here its sockets are watched, and it is stepped when one of them may have something and every
 * TICK_MS.
 */
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "base/clock.h"
#include "bench/sim/sim_lmcache.h"

#define TICK_MS 50
#define SOCKETS 3 /* sockets that are read */

struct socket_watch {
	void *socket; /* NULL: free */
	struct event *ev;
};

struct kvb_lmcache {
	const struct kvb_lmcache_options *options;
	char instance[KVT_CONTROLLER_TEXT_MAX];
	struct kvb_tier *tier;
	struct kvt_controller_link *link; /* NULL: there is a coordinator, and `mp` */
	struct kvb_mp *mp;
	uint8_t (*names)[KVW_BLAKE3_BYTES]; /* owned; hashes of chunks by their places in the tier */
	/* The prompt whose chunks are being stored, and its chain up to chunk `next`. */
	const struct kvb_seq *storing;
	struct kvw_lmcache_chunks chain;
	uint32_t next;
	struct event_base *base;
	struct event *ev_step;
	struct socket_watch watches[SOCKETS];
	uint64_t root; /* hash with which every chain of keys begins */
};

static uint64_t key_of(const uint8_t hash[KVW_BLAKE3_BYTES])
{
	uint64_t key;

	memcpy(&key, hash, sizeof(key));
	return key;
}

/* The chunk with this key of the prompt that is being stored: its hash, and where it begins. Chunks
 * are stored in their order. */
static uint32_t find_stored(struct kvb_lmcache *l, uint64_t key, uint8_t hash[KVW_BLAKE3_BYTES])
{
	uint32_t size = l->options->recipe.chunk_size;

	do
		kvw_lmcache_chunks_next(
			&l->chain, l->storing->tokens + (size_t)l->next * size, size);
	while (l->storing->chunks[l->next++] != key);
	memcpy(hash, l->chain.hash, KVW_BLAKE3_BYTES);
	return (l->next - 1) * size;
}

static void on_change(void *user, bool admit, uint64_t key, uint32_t place)
{
	struct kvb_lmcache *l = user;
	uint32_t from;

	if (l->mp == NULL) {
		kvt_controller_link_change(l->link, 0, admit, key);
	} else if (admit) {
		from = find_stored(l, key, l->names[place]);
		kvb_mp_stored(l->mp, l->names[place],
			l->options->engine_driven ? NULL : l->storing->tokens + from, from);
	} else {
		kvb_mp_deleted(l->mp, l->names[place]);
	}
}

/* The same as below for LMCache's servers. */
static size_t server_keys(
	const struct kvb_lmcache *l, const uint32_t *tokens, uint64_t *keys, uint32_t chunks)
{
	struct kvw_lmcache_chunks chain;

	kvw_lmcache_chunks_start(&chain);
	for (uint32_t i = 0; i < chunks; i++) {
		kvw_lmcache_chunks_next(&chain,
			tokens + (size_t)i * l->options->recipe.chunk_size,
			l->options->recipe.chunk_size);
		keys[i] = key_of(chain.hash);
	}
	return chunks;
}

/* Returns the keys of the full chunks, which the caller owns. NULL: no memory. */
static uint64_t *keys_of(
	const struct kvb_lmcache *l, const uint32_t *tokens, uint32_t count, uint32_t *key_count)
{
	uint32_t chunks = count / l->options->recipe.chunk_size;
	uint64_t *keys = malloc(((size_t)chunks + 1) * sizeof(*keys)), state = l->root;
	size_t made = 0;

	if (keys != NULL && l->mp != NULL)
		made = server_keys(l, tokens, keys, chunks);
	else if (keys != NULL && kvw_lmcache_hash(&l->options->recipe, &state, tokens, count, keys,
				    chunks, &made) != KVW_OK)
		made = 0;
	*key_count = (uint32_t)made;
	return keys;
}

static bool prepare(struct kvb_lmcache *l, struct kvb_seq *seq)
{
	if (seq->chunks == NULL)
		seq->chunks = keys_of(l, seq->tokens, seq->prompt_len, &seq->chunk_count);
	return seq->chunks != NULL;
}

uint32_t kvb_lmcache_find(struct kvb_lmcache *l, struct kvb_seq *seq)
{
	if (!prepare(l, seq))
		return 0;
	return kvb_tier_find(l->tier, seq->chunks, seq->chunk_count) *
	       l->options->recipe.chunk_size;
}

void kvb_lmcache_load(struct kvb_lmcache *l, struct kvb_seq *seq, uint32_t tokens)
{
	uint32_t size = l->options->recipe.chunk_size;
	uint32_t chunks = (tokens + size - 1) / size;

	kvb_tier_touch(l->tier, seq->chunks, chunks < seq->chunk_count ? chunks : seq->chunk_count);
}

void kvb_lmcache_computed(struct kvb_lmcache *l, struct kvb_seq *seq)
{
	struct kvt_controller_link_stats link = {0};
	uint32_t chunks;

	if (!prepare(l, seq))
		return;
	chunks = seq->computed / l->options->recipe.chunk_size;
	chunks = chunks < seq->chunk_count ? chunks : seq->chunk_count;
	if (chunks <= seq->chunks_stored)
		return;
	if (l->link != NULL)
		kvt_controller_link_stats(l->link, &link);
	l->storing = seq;
	l->next = 0;
	kvw_lmcache_chunks_start(&l->chain);
	if (!link.frozen)
		kvb_tier_store(
			l->tier, seq->chunks + seq->chunks_stored, chunks - seq->chunks_stored);
	seq->chunks_stored = chunks;
}

/* --- the link's sockets in the loop ------------------------------------------------------------- */

static void poke(struct kvb_lmcache *l)
{
	if (l->ev_step != NULL)
		event_active(l->ev_step, EV_TIMEOUT, 0);
}

/* ZeroMQ's descriptor says only that something may have changed; the step reads until nothing is left. */
static void on_socket(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	poke(arg);
}

static void on_step(evutil_socket_t fd, short what, void *arg)
{
	struct kvb_lmcache *l = arg;
	int64_t next_ns = INT64_MAX;

	(void)fd;
	(void)what;
	while (kvt_controller_link_step(l->link, kvw_clock_ns(), &next_ns) > 0)
		continue;
}

static void socket_opened(void *self, void *socket)
{
	struct kvb_lmcache *l = self;
	size_t len = sizeof(int), i = 0;
	int fd;

	while (i < SOCKETS && l->watches[i].socket != NULL)
		i++;
	if (i == SOCKETS || zmq_getsockopt(socket, ZMQ_FD, &fd, &len) != 0)
		return; /* the timer's step reads this socket */
	l->watches[i].socket = socket;
	l->watches[i].ev = event_new(l->base, fd, EV_READ | EV_PERSIST, on_socket, l);
	if (l->watches[i].ev != NULL)
		event_add(l->watches[i].ev, NULL);
	poke(l);
}

static void socket_closing(void *self, void *socket)
{
	struct kvb_lmcache *l = self;

	for (size_t i = 0; i < SOCKETS; i++) {
		if (l->watches[i].socket != socket)
			continue;
		if (l->watches[i].ev != NULL)
			event_free(l->watches[i].ev);
		l->watches[i] = (struct socket_watch){0};
	}
}

static bool all_keys(void *self, uint32_t location, uint64_t **keys, uint32_t *count)
{
	struct kvb_lmcache *l = self;

	(void)location;
	*count = kvb_tier_count(l->tier);
	*keys = malloc(((size_t)*count + 1) * sizeof(**keys));
	if (*keys != NULL)
		kvb_tier_copy(l->tier, *keys);
	return *keys != NULL;
}

void kvb_lmcache_flush(struct kvb_lmcache *l)
{
	if (l->link == NULL)
		return; /* the server reports at an interval */
	kvt_controller_link_flush(l->link);
	poke(l);
}

/* --- commands ----------------------------------------------------------------------------------- */

static bool is_here(const struct kvt_controller_message *command)
{
	return strcmp(command->location, KVT_CONTROLLER_CPU) == 0;
}

static void clear(struct kvb_lmcache *l, const struct kvt_controller_message *m,
	struct kvt_controller_buf *answer)
{
	uint32_t chunks = is_here(m) ? kvb_tier_clear(l->tier) : 0;

	kvt_controller_put_number(answer, "ClearWorkerRetMsg", "num_tokens",
		(uint64_t)chunks * l->options->recipe.chunk_size);
}

static void pin(struct kvb_lmcache *l, const struct kvt_controller_message *m,
	struct kvt_controller_buf *answer)
{
	uint32_t count = 0, chunks = 0;
	uint64_t *keys = NULL;

	if (is_here(m) && m->tokens != NULL)
		keys = keys_of(l, m->tokens, m->token_count, &count);
	if (keys != NULL)
		chunks = kvb_tier_pin(l->tier, keys, count);
	free(keys);
	kvt_controller_put_number(answer, "PinWorkerRetMsg", "num_tokens",
		(uint64_t)chunks * l->options->recipe.chunk_size);
}

static void on_command(
	void *user, const struct kvt_controller_message *m, struct kvt_controller_buf *answer)
{
	struct kvb_lmcache *l = user;
	char text[192];

	if (strcmp(m->type, "HealthWorkerMsg") == 0) {
		kvt_controller_put_number(answer, "HealthWorkerRetMsg", "error_code", 0);
	} else if (strcmp(m->type, "ClearWorkerMsg") == 0) {
		clear(l, m, answer);
	} else if (strcmp(m->type, "PinWorkerMsg") == 0) {
		pin(l, m, answer);
	} else if (strcmp(m->type, "CheckFinishWorkerMsg") == 0) {
		snprintf(text, sizeof(text),
			"Unknown message: CheckFinishWorkerMsg(worker_event_id='%s')", m->event_id);
		kvt_controller_put_error(answer, text);
	} else if (strcmp(m->type, "MoveWorkerMsg") == 0) {
		kvt_controller_put_error(answer, "Worker error: ");
	} else if (strcmp(m->type, "CompressWorkerMsg") == 0 ||
		   strcmp(m->type, "DecompressWorkerMsg") == 0) {
		kvt_controller_put_error(
			answer, "Worker error: Model sim not supported by CacheGenConfig");
	} else {
		snprintf(text, sizeof(text), "Worker error: Invalid value '%s' - at `$.type`",
			m->type);
		kvt_controller_put_error(answer, text);
	}
}

/* --- life --------------------------------------------------------------------------------------- */

static bool open_link(
	struct kvb_lmcache *l, void *zmq, const struct kvb_options *options, uint32_t index)
{
	const struct kvb_lmcache_options *o = &options->lmcache;
	int64_t beat_ns = (int64_t)(o->heartbeat_s * 1e9);
	struct kvt_controller_link_config config = {.zmq = zmq,
		.pull = o->pull,
		.reply = o->version == KVB_LMCACHE_03 ? "" : o->reply,
		.instance = l->instance,
		.ip = options->host,
		.port = (uint16_t)(o->worker_port == 0 ? 0 : o->worker_port + index),
		.signed_keys = o->recipe.algorithm == KVW_LMCACHE_BUILTIN,
		.stock = true,
		.locations = 1,
		.heartbeat_ns = beat_ns,
		.heartbeat_delay_ns = beat_ns,
		.answer_ns = (int64_t)(o->timeout_s * 1e9),
		.sync_batch = o->sync_batch,
		.user = {l, on_command, all_keys, socket_opened, socket_closing}};
	char why[KVT_CONTROLLER_TEXT_MAX];

	l->link = kvt_controller_link_create(&config, kvw_clock_ns(), why);
	if (l->link == NULL)
		fprintf(stderr, "kvsim: LMCache: %s\n", why);
	return l->link != NULL;
}

struct kvb_lmcache *kvb_lmcache_create(
	struct event_base *base, void *zmq, const struct kvb_options *options, uint32_t index)
{
	const struct kvb_lmcache_options *o = &options->lmcache;
	struct kvb_lmcache *l = calloc(1, sizeof(*l));
	uint32_t chunks = o->cpu_tokens / o->recipe.chunk_size;
	struct timeval tick = {0, TICK_MS * 1000};

	if (l == NULL)
		return NULL;
	l->options = o;
	l->base = base;
	if (options->workers > 1)
		snprintf(l->instance, sizeof(l->instance), "%s_%u", o->instance, index);
	else
		snprintf(l->instance, sizeof(l->instance), "%s", o->instance);
	chunks = chunks > 0 ? chunks : 1;
	l->tier = kvb_tier_create(chunks, on_change, l);
	if (o->coordinator[0] != '\0') {
		l->mp = kvb_mp_create(base, options, l->instance);
		l->names = calloc((size_t)chunks + 1, sizeof(*l->names));
		if (l->tier == NULL || l->mp == NULL || l->names == NULL)
			goto fail;
		return l;
	}
	l->ev_step = event_new(base, -1, EV_PERSIST, on_step, l);
	if (l->tier == NULL || l->ev_step == NULL ||
		kvw_lmcache_begin(&o->recipe, &l->root) != KVW_OK ||
		!open_link(l, zmq, options, index) || event_add(l->ev_step, &tick) != 0)
		goto fail;
	return l;
fail:
	kvb_lmcache_destroy(l);
	return NULL;
}

void kvb_lmcache_destroy(struct kvb_lmcache *l)
{
	if (l == NULL)
		return;
	if (l->ev_step != NULL)
		event_free(l->ev_step);
	l->ev_step = NULL;
	kvt_controller_link_destroy(l->link);
	kvb_mp_destroy(l->mp);
	free(l->names);
	kvb_tier_destroy(l->tier);
	free(l);
}

void kvb_lmcache_restart(struct kvb_lmcache *l)
{
	kvb_tier_restart(l->tier);
	if (l->mp != NULL) {
		kvb_mp_restart(l->mp);
		return;
	}
	kvt_controller_link_restart(l->link, kvw_clock_ns());
	poke(l);
}

void kvb_lmcache_stats(const struct kvb_lmcache *l, struct kvb_lmcache_stats *out)
{
	*out = (struct kvb_lmcache_stats){.coordinated = l->mp != NULL};
	if (l->mp != NULL)
		kvb_mp_stats(l->mp, &out->mp);
	else
		kvt_controller_link_stats(l->link, &out->link);
	out->instance = l->instance;
	out->chunks = kvb_tier_count(l->tier);
}
