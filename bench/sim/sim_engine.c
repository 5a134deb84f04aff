/*
 * sim_engine.c - scheduler, timing formula and the sequences' block accounting.
 *
 * Invariants, between calls:
 * - a waiting sequence holds no block, unless its KV is being loaded or was loaded from a lower
 *   tier; a running one holds ceil(computed / block size) blocks;
 * - the running array keeps the order of admission, so its last entry is the youngest;
 * - blocks are published when the step that fills them is planned, as vLLM does: a twin admitted
 *   in the same step already hits them;
 * - a hit never covers the last token of a sequence, since something must be computed;
 * - no block at or behind a range (sim_ranges.h) is published: it is not what computing gives.
 *
 * A lower tier that answers later is asked when a sequence could be admitted. The sequence stays
 * where it is in the queue and others pass it, as vLLM's scheduler has it. Loaded sequences are
 * admitted before all others, since they hold blocks; one that finds no further blocks while
 * nothing runs gives its own back and starts over, so that two of them cannot wait for each other.
 *
 * A step costs O(running) plus the blocks it touches, and O(waiting) where sequences wait for a tier.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "bench/sim/sim_cache.h"
#include "bench/sim/sim_engine.h"
#include "bench/sim/sim_token.h"

enum { SEQ_IDLE, SEQ_WAITING, SEQ_RUNNING };
/* States of a waiting sequence with a lower tier. From FETCHING on it holds blocks. */
enum { BEHIND_UNKNOWN, BEHIND_ASKING, BEHIND_KNOWN, BEHIND_FETCHING, BEHIND_FETCHED };

struct kvb_engine {
	struct kvb_engine_config config;
	struct kvb_cache *cache;      /* owned */
	struct kvb_seq *first, *last; /* waiting sequences, in the order of admission */
	struct kvb_seq **running;     /* config.max_seqs; owned array of borrowed sequences */
	uint32_t running_count;
	struct kvb_seq **batch; /* the step's sequences; NULL where one was removed */
	uint32_t batch_count;
	uint32_t fetched;                     /* waiting sequences whose load has ended */
	struct kvb_engine_stats stats;        /* the counters; gauges are filled on request */
	const struct kvb_engine_watch *watch; /* borrowed; never NULL */
	void *watch_user;
};

static const struct kvb_engine_watch nobody = {0};

int64_t kvb_step_length_ns(const struct kvb_profile *profile, const struct kvb_step_load *load)
{
	double ns = profile->base_ms * 1e6 + profile->decode_ms * 1e6 * load->decodes +
		    profile->context_ns * (double)load->contexts +
		    profile->attention_ns * load->pairs;

	if (profile->prefill_tps > 0)
		ns += (double)load->prefill_tokens * 1e9 / profile->prefill_tps;
	return (int64_t)(ns + 0.5) + load->load_ns;
}

struct kvb_engine *kvb_engine_create(const struct kvb_engine_config *config)
{
	struct kvb_engine *engine = calloc(1, sizeof(*engine));

	assert(config->block_size > 0 && config->max_seqs > 0 && config->max_batched_tokens > 0);
	if (engine == NULL)
		return NULL;
	engine->config = *config;
	engine->watch = &nobody;
	engine->cache = kvb_cache_create(config->block_count);
	engine->running = calloc(config->max_seqs, sizeof(struct kvb_seq *));
	engine->batch = calloc(config->max_seqs, sizeof(struct kvb_seq *));
	if (engine->cache == NULL || engine->running == NULL || engine->batch == NULL) {
		kvb_engine_destroy(engine);
		return NULL;
	}
	return engine;
}

void kvb_engine_destroy(struct kvb_engine *engine)
{
	if (engine == NULL)
		return;
	assert(engine->first == NULL && engine->running_count == 0);
	kvb_cache_destroy(engine->cache);
	free(engine->running);
	free(engine->batch);
	free(engine);
}

static void on_evict(void *user, uint64_t hash)
{
	struct kvb_engine *engine = user;

	engine->watch->removed(engine->watch_user, hash);
}

void kvb_engine_watch(struct kvb_engine *engine, const struct kvb_engine_watch *watch, void *user)
{
	engine->watch = watch == NULL ? &nobody : watch;
	engine->watch_user = user;
	kvb_cache_on_evict(engine->cache, engine->watch->removed == NULL ? NULL : on_evict, engine);
}

void *kvb_engine_watched(const struct kvb_engine *engine, const struct kvb_engine_watch *watch)
{
	return engine->watch == watch ? engine->watch_user : NULL;
}

uint32_t kvb_engine_longest(const struct kvb_engine *engine)
{
	return kvb_cache_usable(engine->cache) * engine->config.block_size;
}

/* Allocates a sequence with room for the hashes and blocks of `longest` tokens, and without
 * tokens. */
static struct kvb_seq *seq_alloc(
	const struct kvb_engine *engine, uint32_t prompt_len, uint32_t max_new)
{
	uint32_t longest = prompt_len + max_new;
	uint32_t blocks = (longest + engine->config.block_size - 1) / engine->config.block_size;
	struct kvb_seq *seq = calloc(1, sizeof(*seq));

	assert(prompt_len > 0 && max_new > 0);
	if (seq == NULL)
		return NULL;
	seq->hashes = malloc(((size_t)blocks + 1) * sizeof(*seq->hashes));
	seq->blocks = malloc((size_t)blocks * sizeof(*seq->blocks));
	if (seq->hashes == NULL || seq->blocks == NULL) {
		kvb_seq_destroy(seq);
		return NULL;
	}
	seq->prompt_len = seq->total_len = prompt_len;
	seq->max_new = max_new;
	seq->batch_pos = UINT32_MAX;
	return seq;
}

struct kvb_seq *kvb_seq_create(const struct kvb_engine *engine, const uint32_t *tokens,
	uint32_t prompt_len, uint32_t max_new, uint64_t salt, uint32_t choice)
{
	struct kvb_seq *seq = seq_alloc(engine, prompt_len, max_new);

	if (seq == NULL)
		return NULL;
	seq->tokens = malloc(((size_t)prompt_len + max_new) * sizeof(*seq->tokens));
	if (seq->tokens == NULL) {
		kvb_seq_destroy(seq);
		return NULL;
	}
	memcpy(seq->tokens, tokens, (size_t)prompt_len * sizeof(*tokens));
	seq->text_state =
		XXH3_64bits_withSeed(tokens, (size_t)prompt_len * sizeof(*tokens), choice);
	seq->hashes[0] = XXH3_64bits_withSeed("kvsim block chain", 17, salt);
	return seq;
}

struct kvb_seq *kvb_seq_create_hashed(const struct kvb_engine *engine, const uint64_t *hashes,
	uint32_t prompt_len, uint32_t max_new, uint64_t unique)
{
	struct kvb_seq *seq = seq_alloc(engine, prompt_len, max_new);

	if (seq == NULL)
		return NULL;
	seq->hash_count = prompt_len / engine->config.block_size;
	seq->hashes[0] = 0;
	memcpy(seq->hashes + 1, hashes, (size_t)seq->hash_count * sizeof(*hashes));
	seq->text_state = unique;
	return seq;
}

void kvb_seq_destroy(struct kvb_seq *seq)
{
	if (seq == NULL)
		return;
	assert(seq->state == SEQ_IDLE);
	free(seq->tokens);
	free(seq->hashes);
	free(seq->blocks);
	free(seq->chunks);
	free(seq->ranges);
	free(seq->segments);
	free(seq);
}

/* Extends the chain over all full blocks of the known tokens. hashes[0] is the chain's seed. */
static void hash_blocks(const struct kvb_engine *engine, struct kvb_seq *seq)
{
	uint32_t size = engine->config.block_size;

	for (; (seq->hash_count + 1) * size <= seq->total_len; seq->hash_count++) {
		uint64_t before = seq->hashes[seq->hash_count];

		seq->hashes[seq->hash_count + 1] =
			seq->tokens == NULL
				? XXH3_64bits_withSeed(
					  &seq->text_state, sizeof(seq->text_state), before)
				: XXH3_64bits_withSeed(seq->tokens + (size_t)seq->hash_count * size,
					  size * sizeof(*seq->tokens), before);
	}
}

static void wait_first(struct kvb_engine *engine, struct kvb_seq *seq)
{
	seq->state = SEQ_WAITING;
	seq->prev = NULL;
	seq->next = engine->first;
	if (engine->first != NULL)
		engine->first->prev = seq;
	else
		engine->last = seq;
	engine->first = seq;
	engine->stats.waiting++;
}

static void wait_last(struct kvb_engine *engine, struct kvb_seq *seq)
{
	seq->state = SEQ_WAITING;
	seq->prev = engine->last;
	seq->next = NULL;
	if (engine->last != NULL)
		engine->last->next = seq;
	else
		engine->first = seq;
	engine->last = seq;
	engine->stats.waiting++;
}

static void wait_unlink(struct kvb_engine *engine, struct kvb_seq *seq)
{
	if (seq->prev != NULL)
		seq->prev->next = seq->next;
	else
		engine->first = seq->next;
	if (seq->next != NULL)
		seq->next->prev = seq->prev;
	else
		engine->last = seq->prev;
	seq->prev = seq->next = NULL;
	engine->stats.waiting--;
}

/* Changes the state of a waiting sequence, and the counts of states. */
static void set_behind(struct kvb_engine *engine, struct kvb_seq *seq, uint8_t behind)
{
	bool was = seq->behind == BEHIND_ASKING || seq->behind == BEHIND_FETCHING;
	bool is = behind == BEHIND_ASKING || behind == BEHIND_FETCHING;

	engine->stats.deferred += (uint32_t)is - (uint32_t)was;
	engine->fetched +=
		(uint32_t)(behind == BEHIND_FETCHED) - (uint32_t)(seq->behind == BEHIND_FETCHED);
	seq->behind = behind;
}

static void give_back_blocks(struct kvb_engine *engine, struct kvb_seq *seq)
{
	kvb_cache_release(engine->cache, seq->blocks, seq->block_count);
	seq->block_count = 0;
	seq->published = 0;
	seq->computed = 0;
}

static void run_unlink(struct kvb_engine *engine, struct kvb_seq *seq)
{
	uint32_t i = engine->running_count;

	while (i-- > 0 && engine->running[i] != seq)
		;
	assert(i < engine->running_count);
	engine->running_count--;
	memmove(&engine->running[i], &engine->running[i + 1],
		(engine->running_count - i) * sizeof(struct kvb_seq *));
	give_back_blocks(engine, seq);
}

/* Drops the blocks that a waiting sequence has loaded, or was to load, from the lower tier. */
static void forget_behind(struct kvb_engine *engine, struct kvb_seq *seq)
{
	if (engine->watch->drop != NULL)
		engine->watch->drop(engine->watch_user, seq);
	if (seq->block_count > 0)
		give_back_blocks(engine, seq);
	set_behind(engine, seq, BEHIND_UNKNOWN);
}

void kvb_engine_submit(struct kvb_engine *engine, struct kvb_seq *seq, int64_t now_ns)
{
	assert(seq->state == SEQ_IDLE &&
		seq->prompt_len + seq->max_new <= kvb_engine_longest(engine));
	seq->submit_ns = now_ns;
	wait_last(engine, seq);
}

void kvb_engine_remove(struct kvb_engine *engine, struct kvb_seq *seq)
{
	if (seq->batch_pos != UINT32_MAX)
		engine->batch[seq->batch_pos] = NULL;
	seq->batch_pos = UINT32_MAX;
	if (seq->state == SEQ_WAITING) {
		wait_unlink(engine, seq);
		forget_behind(engine, seq);
	} else if (seq->state == SEQ_RUNNING)
		run_unlink(engine, seq);
	seq->state = SEQ_IDLE;
}

/* Takes blocks for the first `tokens` tokens of a running sequence; returns false if too few are
 * free. */
static bool grow_blocks(struct kvb_engine *engine, struct kvb_seq *seq, uint32_t tokens)
{
	uint32_t need = (tokens + engine->config.block_size - 1) / engine->config.block_size;

	if (need <= seq->block_count)
		return true;
	if (!kvb_cache_take(engine->cache, NULL, 0, need - seq->block_count,
		    seq->blocks + seq->block_count))
		return false;
	seq->block_count = need;
	return true;
}

/* Returns how many first tokens of the sequence have exact KV, as computing them gives. */
static uint32_t exact_len(const struct kvb_seq *seq)
{
	return seq->range_count == 0 ? UINT32_MAX : seq->ranges[0].from;
}

/* Returns how many tokens behind the sequence's first `have` a step with this budget takes.
 * *cost: their work. */
static uint32_t next_take(
	const struct kvb_seq *seq, uint32_t have, uint32_t budget, uint32_t *cost)
{
	return kvb_ranges_take(
		seq->ranges, seq->range_count, have, seq->total_len, budget, cost);
}

/* Puts the next `take` tokens of a sequence that has blocks for them into the step. */
static void batch_add(
	struct kvb_engine *engine, struct kvb_seq *seq, uint32_t take, struct kvb_step_load *load)
{
	uint32_t end = seq->computed + take, first = seq->published;
	uint64_t before = load->prefill_tokens;
	const struct kvb_engine_watch *watch = engine->watch;
	bool decode = take == 1 && seq->total_len > seq->prompt_len && end == seq->total_len;
	uint32_t exact;

	if (decode) {
		load->pairs += ((double)end * end - (double)seq->computed * seq->computed) / 2;
		load->decodes++;
		load->contexts += end;
		engine->stats.decoded_tokens++;
	} else {
		kvb_ranges_load(seq->ranges, seq->range_count, seq->computed, end, load);
		engine->stats.prefilled_tokens += load->prefill_tokens - before;
	}
	seq->computed = end;
	hash_blocks(engine, seq);
	exact = exact_len(seq) < end ? exact_len(seq) : end;
	while ((seq->published + 1) * engine->config.block_size <= exact) {
		kvb_cache_publish(engine->cache, seq->blocks[seq->published],
			seq->hashes[seq->published + 1]);
		seq->published++;
	}
	if (watch->stored != NULL && seq->published > first)
		watch->stored(engine->watch_user, seq, first, seq->published - first);
	if (watch->computed != NULL && exact == end)
		watch->computed(engine->watch_user, seq);
	if (watch->passed != NULL)
		watch->passed(engine->watch_user, seq);
	seq->batch_pos = engine->batch_count;
	engine->batch[engine->batch_count++] = seq;
}

static void preempt_youngest(struct kvb_engine *engine)
{
	struct kvb_seq *seq = engine->running[engine->running_count - 1];

	run_unlink(engine, seq);
	seq->preemptions++;
	engine->stats.preemptions++;
	wait_first(engine, seq);
}

/* Plans the running sequences; returns true if none had to be preempted. */
static bool plan_running(struct kvb_engine *engine, uint32_t *budget, struct kvb_step_load *load)
{
	bool whole = true;

	for (uint32_t i = 0; i<engine->running_count && * budget> 0; i++) {
		struct kvb_seq *seq = engine->running[i];
		uint32_t cost, take = next_take(seq, seq->computed, *budget, &cost);

		while (seq->state == SEQ_RUNNING &&
			!grow_blocks(engine, seq, seq->computed + take)) {
			preempt_youngest(engine);
			whole = false;
		}
		if (seq->state != SEQ_RUNNING)
			break;
		batch_add(engine, seq, take, load);
		*budget -= cost;
	}
	return whole;
}

/* Returns how many tokens need not be computed: `hits` on the device, or more with the lower
 * tier. The last token is always computed. */
static uint32_t find_behind(struct kvb_engine *engine, struct kvb_seq *seq, uint32_t hits)
{
	uint32_t found = 0;

	if (engine->watch->find != NULL)
		found = engine->watch->find(engine->watch_user, seq);
	if (found < seq->pulled)
		found = seq->pulled;
	if (found >= seq->total_len)
		found = seq->total_len - 1;
	return found > hits ? found : hits;
}

/* Loads the content of a sequence's blocks for `tokens` tokens, of which `hits` tokens have it
 * already. */
static void load_behind(struct kvb_engine *engine, struct kvb_seq *seq, uint32_t hits,
	uint32_t tokens, struct kvb_step_load *load)
{
	seq->computed = tokens;
	if (tokens == hits)
		return;
	engine->stats.loaded_tokens += tokens - hits;
	if (tokens <= seq->pulled) { /* its time has passed */
		seq->pulled_len = tokens - hits;
		return;
	}
	load->load_ns += (int64_t)(tokens - hits) * engine->watch->load_ns;
	if (engine->watch->load != NULL)
		engine->watch->load(engine->watch_user, seq, tokens);
}

/* Finds the sequence's blocks in the device's cache and puts them into seq->blocks; returns
 * their number. */
static uint32_t device_hits(struct kvb_engine *engine, struct kvb_seq *seq)
{
	hash_blocks(engine, seq);
	return kvb_cache_lookup(engine->cache, seq->hashes + 1,
		(seq->total_len - 1) / engine->config.block_size, seq->blocks);
}

/* Sets the ranges of a sequence that has its first `have` tokens. */
static void find_ranges(struct kvb_engine *engine, struct kvb_seq *seq, uint32_t have)
{
	if (engine->watch->blend != NULL)
		engine->watch->blend(engine->watch_user, seq, have);
}

/* Looks the prompt up and takes blocks for its first chunk; returns false if too few are free. */
static bool admit_blocks(struct kvb_engine *engine, struct kvb_seq *seq, uint32_t budget,
	uint32_t *take, uint32_t *cost, struct kvb_step_load *load)
{
	uint32_t size = engine->config.block_size, hits, need, have;

	hits = device_hits(engine, seq);
	have = find_behind(engine, seq, hits * size);
	find_ranges(engine, seq, have);
	*take = next_take(seq, have, budget, cost);
	need = (have + *take + size - 1) / size;
	if (!kvb_cache_take(engine->cache, seq->blocks, hits, need - hits, seq->blocks + hits))
		return false;
	seq->block_count = need;
	seq->published = hits;
	load_behind(engine, seq, hits * size, have, load);
	return true;
}

/* Admits a sequence that has its blocks: it joins the step with `take` tokens. */
static void admit(struct kvb_engine *engine, struct kvb_seq *seq, int64_t now_ns, uint32_t take,
	struct kvb_step_load *load)
{
	wait_unlink(engine, seq);
	set_behind(engine, seq, BEHIND_UNKNOWN);
	seq->state = SEQ_RUNNING;
	engine->running[engine->running_count++] = seq;
	if (!seq->admitted) {
		seq->admitted = true;
		seq->admit_ns = now_ns;
		seq->blended_len = 0;
		for (uint32_t i = 0; i < seq->range_count; i++)
			seq->blended_len += seq->ranges[i].to - seq->ranges[i].from;
		seq->cached_len = seq->computed - seq->pulled_len + seq->blended_len;
		engine->stats.blended_tokens += seq->blended_len;
		engine->stats.external_tokens += seq->blended_len;
		engine->stats.prompt_tokens += seq->prompt_len;
		engine->stats.cached_tokens += seq->cached_len + seq->pulled_len;
		engine->stats.external_tokens += seq->pulled_len;
		for (size_t i = 0; i < KVB_SEQ_TIERS; i++) {
			seq->first_loaded[i] = seq->loaded[i];
			engine->stats.external_tokens += seq->loaded[i];
		}
	}
	batch_add(engine, seq, take, load);
}

/* Returns whether the sequence waits for the lower tier, so that others may overtake it. */
static bool waits_behind(struct kvb_engine *engine, struct kvb_seq *seq, int64_t now_ns)
{
	const struct kvb_engine_watch *watch = engine->watch;
	uint32_t hits;

	if (watch->ask == NULL || seq->behind == BEHIND_KNOWN)
		return false;
	if (seq->behind == BEHIND_FETCHING)
		return true;
	hits = device_hits(engine, seq) * engine->config.block_size;
	if (!watch->ask(engine->watch_user, seq, now_ns, hits, &seq->behind_tokens)) {
		set_behind(engine, seq, BEHIND_ASKING);
		return true;
	}
	set_behind(engine, seq, BEHIND_KNOWN);
	return false;
}

/* Begins to load if the lower tier has more tokens than the device. Returns false if too few
 * blocks are free. */
static bool fetch_behind(struct kvb_engine *engine, struct kvb_seq *seq, int64_t now_ns)
{
	uint32_t size = engine->config.block_size, tokens = seq->behind_tokens, hits, need;

	if (seq->behind != BEHIND_KNOWN)
		return true;
	if (tokens >= seq->total_len)
		tokens = seq->total_len - 1;
	hits = device_hits(engine, seq);
	if (tokens <= hits * size)
		return true;
	need = (tokens + size - 1) / size;
	if (!kvb_cache_take(engine->cache, seq->blocks, hits, need - hits, seq->blocks + hits))
		return false;
	seq->block_count = need;
	seq->published = hits;
	seq->computed = hits * size;
	set_behind(engine, seq, BEHIND_FETCHING);
	if (!engine->watch->fetch(engine->watch_user, seq, now_ns, hits * size, tokens)) {
		give_back_blocks(engine, seq);
		seq->behind_tokens = 0;
		set_behind(engine, seq, BEHIND_KNOWN);
	}
	return true;
}

void kvb_engine_loaded(struct kvb_engine *engine, struct kvb_seq *seq, uint32_t tokens)
{
	uint32_t first = seq->published;
	uint32_t most = seq->block_count * engine->config.block_size;

	assert(seq->state == SEQ_WAITING && seq->behind == BEHIND_FETCHING);
	most = most < seq->total_len ? most : seq->total_len - 1;
	tokens = tokens < most ? tokens : most;
	if (tokens > seq->computed) {
		engine->stats.loaded_tokens += tokens - seq->computed;
		seq->computed = tokens;
	}
	set_behind(engine, seq, BEHIND_FETCHED);
	while ((seq->published + 1) * engine->config.block_size <= seq->computed) {
		kvb_cache_publish(engine->cache, seq->blocks[seq->published],
			seq->hashes[seq->published + 1]);
		seq->published++;
	}
	if (engine->watch->stored != NULL && seq->published > first)
		engine->watch->stored(engine->watch_user, seq, first, seq->published - first);
}

/* Plans the sequences whose load has ended, which hold blocks. */
static void plan_fetched(
	struct kvb_engine *engine, int64_t now_ns, uint32_t *budget, struct kvb_step_load *load)
{
	struct kvb_seq *next;

	for (struct kvb_seq *seq = engine->first;
		seq != NULL && engine->fetched > 0 && *budget > 0 &&
		engine->running_count < engine->config.max_seqs;
		seq = next) {
		uint32_t take, cost;

		next = seq->next;
		if (seq->behind != BEHIND_FETCHED)
			continue;
		find_ranges(engine, seq, seq->computed);
		take = next_take(seq, seq->computed, *budget, &cost);
		if (grow_blocks(engine, seq, seq->computed + take)) {
			admit(engine, seq, now_ns, take, load);
			*budget -= cost;
		} else if (engine->running_count == 0) {
			forget_behind(engine, seq);
			seq->preemptions++;
			engine->stats.preemptions++;
		}
	}
}

static void plan_waiting(
	struct kvb_engine *engine, int64_t now_ns, uint32_t *budget, struct kvb_step_load *load)
{
	struct kvb_seq *next;

	plan_fetched(engine, now_ns, budget, load);
	for (struct kvb_seq *seq = engine->first;
		seq != NULL && *budget > 0 && engine->running_count < engine->config.max_seqs;
		seq = next) {
		uint32_t take, cost;

		next = seq->next;
		if (seq->behind == BEHIND_FETCHED || waits_behind(engine, seq, now_ns))
			continue;
		if (!fetch_behind(engine, seq, now_ns))
			break;
		if (seq->behind == BEHIND_FETCHING)
			continue;
		if (!admit_blocks(engine, seq, *budget, &take, &cost, load))
			break;
		admit(engine, seq, now_ns, take, load);
		*budget -= cost;
	}
}

bool kvb_engine_begin_step(struct kvb_engine *engine, int64_t now_ns, int64_t *length_ns)
{
	uint32_t budget = engine->config.max_batched_tokens;
	struct kvb_step_load load = {0};

	assert(engine->batch_count == 0);
	/* The last running sequence may have been preempted for loaded ones: these go first now. */
	if (plan_running(engine, &budget, &load) || engine->batch_count == 0)
		plan_waiting(engine, now_ns, &budget, &load);
	if (engine->batch_count == 0)
		return false;
	*length_ns = kvb_step_length_ns(engine->config.profile, &load);
	/* the mean effect of speculation; tokens are still handed out one by one */
	if (load.prefill_tokens == 0 && load.load_ns == 0)
		*length_ns = (int64_t)((double)*length_ns /
			(1 + engine->config.draft_tokens * engine->config.draft_share));
	engine->stats.steps++;
	engine->stats.busy_ns += *length_ns;
	return true;
}

/* Returns the answer's next token. An answer that drifts differs from other engines' from one of
 * its first 32 tokens on. */
static uint32_t generate(const struct kvb_engine *engine, struct kvb_seq *seq)
{
	uint32_t position = seq->total_len - seq->prompt_len;
	uint64_t state = seq->text_state, drawn = XXH3_64bits(&state, sizeof(state));

	if ((double)(drawn >> 11) * 0x1p-53 < engine->config.drift && position >= (drawn & 31))
		state = ~state;
	return kvb_token_generate(&state, position);
}

void kvb_engine_end_step(struct kvb_engine *engine, kvb_token_fn *fn, void *user)
{
	for (uint32_t i = 0; i < engine->batch_count; i++) {
		struct kvb_seq *seq = engine->batch[i];
		uint32_t token;
		bool last;

		if (seq == NULL)
			continue;
		seq->batch_pos = UINT32_MAX;
		if (seq->computed < seq->total_len)
			continue; /* its prompt is not computed to the end yet */
		token = 0;
		if (seq->tokens != NULL)
			token = seq->tokens[seq->total_len] = generate(engine, seq);
		seq->total_len++;
		engine->stats.generated_tokens++;
		last = seq->total_len - seq->prompt_len == seq->max_new;
		if (last) {
			run_unlink(engine, seq);
			seq->state = SEQ_IDLE;
			engine->stats.finished++;
		}
		fn(user, seq, token, last);
	}
	engine->batch_count = 0;
}

bool kvb_engine_holds(const struct kvb_engine *engine, uint64_t hash)
{
	uint32_t block;

	return kvb_cache_lookup(engine->cache, &hash, 1, &block) == 1;
}

bool kvb_engine_reset_cache(struct kvb_engine *engine)
{
	if (!kvb_cache_reset(engine->cache))
		return false;
	if (engine->watch->cleared != NULL)
		engine->watch->cleared(engine->watch_user);
	return true;
}

void kvb_engine_stats(const struct kvb_engine *engine, struct kvb_engine_stats *out)
{
	*out = engine->stats;
	out->running = engine->running_count;
	out->blocks_usable = kvb_cache_usable(engine->cache);
	out->blocks_used = out->blocks_usable - kvb_cache_free(engine->cache);
	out->blocks_published = kvb_cache_published(engine->cache);
	out->evictions = kvb_cache_evictions(engine->cache);
}
