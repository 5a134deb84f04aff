/*
 * sim_lmcache.c - when chunks are computed, stored and loaded, and what the controller may command.
 *
 * A prompt's keys are computed once, when it is first looked up, and kept with its sequence.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim_lmcache.h"

struct kvb_lmcache {
	const struct kvb_lmcache_options *options;
	char instance[KVB_LMC_TEXT_MAX];
	struct kvb_tier *tier;
	struct kvb_lmc_link *link;
	uint64_t root; /* the state that a chain of keys begins with */
};

static void on_change(void *user, bool admit, uint64_t key)
{
	kvb_lmc_link_operation(((struct kvb_lmcache *)user)->link, admit, key);
}

/* Keys of the full chunks; the caller owns them. NULL: without memory. */
static uint64_t *keys_of(
	const struct kvb_lmcache *l, const uint32_t *tokens, uint32_t count, uint32_t *key_count)
{
	uint32_t chunks = count / l->options->recipe.chunk_size;
	uint64_t *keys = malloc(((size_t)chunks + 1) * sizeof(*keys)), state = l->root;
	size_t made = 0;

	if (keys != NULL && kvw_lmcache_hash(&l->options->recipe, &state, tokens, count, keys,
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
	struct kvb_lmc_link_stats link;
	uint32_t chunks;

	if (!prepare(l, seq))
		return;
	chunks = seq->computed / l->options->recipe.chunk_size;
	chunks = chunks < seq->chunk_count ? chunks : seq->chunk_count;
	if (chunks <= seq->chunks_stored)
		return;
	kvb_lmc_link_stats(l->link, &link);
	if (!link.frozen)
		kvb_tier_store(
			l->tier, seq->chunks + seq->chunks_stored, chunks - seq->chunks_stored);
	seq->chunks_stored = chunks;
}

void kvb_lmcache_flush(struct kvb_lmcache *l)
{
	kvb_lmc_link_flush(l->link);
}

static bool is_here(const struct kvb_lmc_message *command)
{
	return strcmp(command->location, KVB_LMC_LOCATION) == 0;
}

static void clear(struct kvb_lmcache *l, const struct kvb_lmc_message *m, struct kvb_buf *answer)
{
	uint32_t chunks = is_here(m) ? kvb_tier_clear(l->tier) : 0;

	kvb_lmc_put_number(answer, "ClearWorkerRetMsg", "num_tokens",
		(uint64_t)chunks * l->options->recipe.chunk_size);
}

static void pin(struct kvb_lmcache *l, const struct kvb_lmc_message *m, struct kvb_buf *answer)
{
	uint32_t count = 0, chunks = 0;
	uint64_t *keys = NULL;

	if (is_here(m) && m->tokens != NULL)
		keys = keys_of(l, m->tokens, m->token_count, &count);
	if (keys != NULL)
		chunks = kvb_tier_pin(l->tier, keys, count);
	free(keys);
	kvb_lmc_put_number(answer, "PinWorkerRetMsg", "num_tokens",
		(uint64_t)chunks * l->options->recipe.chunk_size);
}

static void on_command(void *user, const struct kvb_lmc_message *m, struct kvb_buf *answer)
{
	struct kvb_lmcache *l = user;
	char text[192];

	if (strcmp(m->type, "HealthWorkerMsg") == 0) {
		kvb_lmc_put_number(answer, "HealthWorkerRetMsg", "error_code", 0);
	} else if (strcmp(m->type, "ClearWorkerMsg") == 0) {
		clear(l, m, answer);
	} else if (strcmp(m->type, "PinWorkerMsg") == 0) {
		pin(l, m, answer);
	} else if (strcmp(m->type, "CheckFinishWorkerMsg") == 0) {
		snprintf(text, sizeof(text),
			"Unknown message: CheckFinishWorkerMsg(worker_event_id='%s')", m->event_id);
		kvb_lmc_put_error(answer, text);
	} else if (strcmp(m->type, "MoveWorkerMsg") == 0) {
		kvb_lmc_put_error(answer, "Worker error: ");
	} else if (strcmp(m->type, "CompressWorkerMsg") == 0 ||
		   strcmp(m->type, "DecompressWorkerMsg") == 0) {
		kvb_lmc_put_error(
			answer, "Worker error: Model sim not supported by CacheGenConfig");
	} else {
		snprintf(text, sizeof(text), "Worker error: Invalid value '%s' - at `$.type`",
			m->type);
		kvb_lmc_put_error(answer, text);
	}
}

struct kvb_lmcache *kvb_lmcache_create(
	struct event_base *base, void *zmq, const struct kvb_options *options, uint32_t index)
{
	const struct kvb_lmcache_options *o = &options->lmcache;
	struct kvb_lmcache *l = calloc(1, sizeof(*l));
	struct kvb_lmc_link_config link = {.base = base,
		.zmq = zmq,
		.options = o,
		.ip = options->host,
		.port = (uint16_t)(o->worker_port == 0 ? 0 : o->worker_port + index),
		.command = on_command,
		.user = l};
	uint32_t chunks = o->cpu_tokens / o->recipe.chunk_size;

	if (l == NULL)
		return NULL;
	l->options = o;
	if (options->workers > 1)
		snprintf(l->instance, sizeof(l->instance), "%s_%u", o->instance, index);
	else
		snprintf(l->instance, sizeof(l->instance), "%s", o->instance);
	l->tier = kvb_tier_create(chunks > 0 ? chunks : 1, on_change, l);
	if (l->tier == NULL || kvw_lmcache_begin(&o->recipe, &l->root) != KVW_OK)
		goto fail;
	link.instance = l->instance;
	link.tier = l->tier;
	l->link = kvb_lmc_link_create(&link);
	if (l->link == NULL)
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
	kvb_lmc_link_destroy(l->link);
	kvb_tier_destroy(l->tier);
	free(l);
}

void kvb_lmcache_restart(struct kvb_lmcache *l)
{
	kvb_tier_restart(l->tier);
	kvb_lmc_link_restart(l->link);
}

void kvb_lmcache_stats(const struct kvb_lmcache *l, struct kvb_lmcache_stats *out)
{
	kvb_lmc_link_stats(l->link, &out->link);
	out->instance = l->instance;
	out->chunks = kvb_tier_count(l->tier);
}
