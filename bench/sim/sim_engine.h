/*
 * sim_engine.h - simulates the continuous batching of one engine, in simulated time.
 *
 * The engine works in steps, as vLLM's scheduler does. A step first serves the sequences that
 * already run (one token each, or the next chunk of a prompt), then admits waiting ones in the
 * order they came, until the step's token budget, the number of sequences or the KV cache is used
 * up. Prompts are prefilled in chunks. When blocks run out, the youngest running sequence is
 * preempted: it gives its blocks back and starts over at the head of the queue.
 *
 * The engine has no clock. The caller calls begin_step, waits for the length that it returned and
 * calls end_step, which hands out the tokens. Not thread-safe.
 */
#ifndef KVB_SIM_ENGINE_H
#define KVB_SIM_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/sim/sim_profile.h"
#include "bench/sim/sim_ranges.h"

/* Settings that do not change during the engine's life. */
struct kvb_engine_config {
	const struct kvb_profile *profile; /* borrowed, outlives the engine */
	uint32_t block_size;               /* tokens */
	uint32_t block_count;              /* includes the null block; at least 2 */
	uint32_t max_batched_tokens;       /* per step */
	uint32_t max_seqs;                 /* running at once */
	/* drafted tokens of speculative decoding for each decoded token; 0: none */
	uint32_t draft_tokens;
	double draft_share;                /* share of these that is accepted */
	double drift; /* share of prompts whose answers differ from other engines' */
};

/* Counts since the engine was created, and its present contents. */
struct kvb_engine_stats {
	uint64_t steps;
	uint64_t prompt_tokens;   /* prompt tokens of admitted sequences */
	/* tokens of those that were in the cache, or loaded from the tier behind it */
	uint64_t cached_tokens;
	uint64_t loaded_tokens; /* tokens of those that were loaded; also again after preemption */
	/* tokens of those that were loaded, counted at the first admission */
	uint64_t external_tokens;
	/* tokens of those that were taken from ranges, counted at the first admission */
	uint64_t blended_tokens;
	uint64_t
		/* computed as prompts, not decoded; also again after preemption */
		prefilled_tokens;
	uint64_t decoded_tokens;   /* computed one at a time */
	uint64_t generated_tokens; /* handed out */
	uint64_t preemptions;
	uint64_t finished;
	int64_t busy_ns; /* simulated time inside steps */
	uint32_t running, waiting;
	/* number of waiting sequences that ask what can be loaded, or are loading */
	uint32_t deferred;
	uint32_t blocks_used, blocks_usable, blocks_published;
	uint64_t evictions;
};

struct kvb_engine;

#define KVB_SEQ_TIERS 3

/* A sequence. Its owner creates and destroys it; the engine borrows it while it is queued. */
struct kvb_seq {
	void *user;       /* the owner's */
	/* the prompt, then the generated tokens; owned; NULL: the prompt is hashed */
	uint32_t *tokens;
	uint32_t prompt_len;  /* tokens */
	uint32_t total_len;   /* prompt and generated */
	uint32_t max_new;     /* number of tokens to generate, at least 1 */
	/* prompt tokens in the cache, loaded or in ranges; valid once admitted */
	uint32_t cached_len;
	uint32_t blended_len; /* tokens of these that lie in ranges */
	/* set by the owner: number of first tokens whose KV came from another engine; 0: none */
	uint32_t pulled;
	/* those of them that the cache did not have; not counted in cached_len */
	uint32_t pulled_len;
	uint32_t preemptions; /* preemptions of this sequence */
	bool admitted;        /* it has run at least once */
	int64_t submit_ns;    /* simulated; set by submit */
	int64_t admit_ns;     /* simulated start of the first step in which it took part */

	/* Members that the engine alone uses. */
	struct kvb_seq *prev, *next; /* waiting list */
	uint64_t *hashes;            /* chain hash of each full block */
	uint32_t *blocks;
	uint32_t hash_count, block_count, published;
	/* number of tokens whose KV exists, or will exist at the end of this step */
	uint32_t computed;
	uint32_t batch_pos;  /* index in the step's batch; UINT32_MAX: not in it */
	/* determines the answer's text; for a hashed prompt, the hashes of its blocks */
	uint64_t text_state;
	uint8_t state;

	/* Members of the tier behind the device, which alone uses them; all zero at first. */
	uint64_t *chunks; /* names of the sequence's chunks; freed with the sequence */
	uint32_t chunk_count, chunks_stored;
	void *task; /* the tier's work for the sequence; NULL: none */
	uint32_t loaded
		[KVB_SEQ_TIERS]; /* tokens that came from each tier at the last load */
	uint32_t
		/* set by the engine: the same numbers at the first admission */
		first_loaded[KVB_SEQ_TIERS];
	/* Members of the store of fragments. */
	/* ranges of the prompt, set when it is admitted; owned; NULL: none */
	struct kvb_range *ranges;
	uint32_t range_count;
	void *segments; /* the store's data about the prompt; freed with the sequence */

	uint8_t behind;         /* used by the engine: how far asking and loading have come */
	uint32_t behind_tokens; /* used by the engine: the tier's answer */
};

/*
 * Callbacks by which an engine reports changes of its caches while it plans a step, in the order of
 * the changes. Any may be NULL. They may read the sequence, but must not call the engine.
 */
struct kvb_engine_watch {
	/* Blocks [first, first + count) of the sequence are in the device's cache now, or were
	 * already; their hashes are kvb_seq_block(seq, i). */
	void (*stored)(void *user, const struct kvb_seq *seq, uint32_t first, uint32_t count);
	/* A block with this hash was given out again. */
	void (*removed)(void *user, uint64_t hash);
	/* The device's cache is now empty. */
	void (*cleared)(void *user);

	/* A tier behind the device: returns how many of the sequence's first tokens it can load. */
	uint32_t (*find)(void *user, struct kvb_seq *seq);
	/* The sequence is about to load up to its first `tokens` tokens from the tier. */
	void (*load)(void *user, struct kvb_seq *seq, uint32_t tokens);
	/* The KV of seq->computed tokens will exist when the step ends. Not called once some of it
	 * comes from ranges, because that KV is not exact. */
	void (*computed)(void *user, struct kvb_seq *seq);

	/* The sequence could be admitted, and has its first `from` tokens: sets its ranges, all
	 * after these tokens and before its last token. */
	void (*blend)(void *user, struct kvb_seq *seq, uint32_t from);
	/* The same as `computed`, but always called. */
	void (*passed)(void *user, struct kvb_seq *seq);
	int64_t load_ns; /* simulated time to load one token */

	/*
	 * These replace find and load for a tier that answers later. A sequence that asks or loads
	 * waits without delaying others; while it loads it holds its blocks.
	 *
	 * ask: called whenever the sequence could be admitted, until it returns true: its first
	 * *tokens are worth loading, where the device has `hits`. fetch: loads up to its first
	 * `tokens`, of which the device has `hits`; kvb_engine_loaded() ends it; false: it cannot,
	 * and nothing is loaded. drop: the sequence leaves the engine or starts over; called also
	 * where nothing is under way.
	 */
	bool (*ask)(
		void *user, struct kvb_seq *seq, int64_t now_ns, uint32_t hits, uint32_t *tokens);
	bool (*fetch)(
		void *user, struct kvb_seq *seq, int64_t now_ns, uint32_t hits, uint32_t tokens);
	void (*drop)(void *user, struct kvb_seq *seq);
};

/* Returns the hash of a full block of the sequence, which also depends on the blocks before. */
static inline uint64_t kvb_seq_block(const struct kvb_seq *seq, uint32_t i)
{
	return seq->hashes[i + 1];
}

/* Called for each token; `last`: the sequence has left the engine with it. May remove and destroy
 * any sequence, also this one, and submit others. */
typedef void kvb_token_fn(void *user, struct kvb_seq *seq, uint32_t token, bool last);

/* NULL without memory. */
struct kvb_engine *kvb_engine_create(const struct kvb_engine_config *config);
void kvb_engine_destroy(struct kvb_engine *engine); /* no sequence may be queued */

/*
 * Returns NULL if memory is short. Copies the tokens. prompt_len >= 1, max_new >= 1, both together
 * within the engine's usable tokens (kvb_engine_longest). `salt` separates caches, `choice`
 * distinguishes several answers to one prompt.
 */
struct kvb_seq *kvb_seq_create(const struct kvb_engine *engine, const uint32_t *tokens,
	uint32_t prompt_len, uint32_t max_new, uint64_t salt, uint32_t choice);
/*
 * Makes a sequence whose prompt is given only by its blocks: hashes holds one chain hash for each
 * of its prompt_len / block size full blocks, and is copied. Such a sequence costs memory by its
 * blocks, not by its tokens. It generates token 0; `unique` is its own and keeps the blocks of its
 * answer apart from those of all others.
 */
struct kvb_seq *kvb_seq_create_hashed(const struct kvb_engine *engine, const uint64_t *hashes,
	uint32_t prompt_len, uint32_t max_new, uint64_t unique);
void kvb_seq_destroy(struct kvb_seq *seq); /* the sequence must not be queued; NULL is allowed */

/* Sets the callbacks; `watch` is borrowed and outlives the engine; NULL: none. */
void kvb_engine_watch(struct kvb_engine *engine, const struct kvb_engine_watch *watch, void *user);
/* Returns the user of this watch, if it was the last one set; else NULL. */
void *kvb_engine_watched(const struct kvb_engine *engine, const struct kvb_engine_watch *watch);

/* Returns the length of the longest prompt and answer together that can run, in tokens. */
uint32_t kvb_engine_longest(const struct kvb_engine *engine);

void kvb_engine_submit(struct kvb_engine *engine, struct kvb_seq *seq, int64_t now_ns);

/* Removes the sequence wherever it is, also during a step; its blocks are free at once. Does
 * nothing if it is not queued. */
void kvb_engine_remove(struct kvb_engine *engine, struct kvb_seq *seq);

/* Reports that a fetch has ended: the KV of the first `tokens` tokens exists, perhaps less than
 * requested. To be called between steps or during one, but not from a callback of the watch. */
void kvb_engine_loaded(struct kvb_engine *engine, struct kvb_seq *seq, uint32_t tokens);

/* Plans a step that begins at now_ns. Returns false if there is nothing to do. *length_ns is its
 * simulated length. */
bool kvb_engine_begin_step(struct kvb_engine *engine, int64_t now_ns, int64_t *length_ns);

/* Ends the step and calls `fn` for each token that it computed, in the order of the batch. */
void kvb_engine_end_step(struct kvb_engine *engine, kvb_token_fn *fn, void *user);

/* Returns whether a block with this chain hash is in the cache. */
bool kvb_engine_holds(const struct kvb_engine *engine, uint64_t hash);

/* Drops the cached content. Returns false while sequences hold blocks. */
bool kvb_engine_reset_cache(struct kvb_engine *engine);

void kvb_engine_stats(const struct kvb_engine *engine, struct kvb_engine_stats *out);

/* The work of a step, from which its length is computed; the only formula of the simulation. */
struct kvb_step_load {
	uint64_t prefill_tokens;
	uint32_t decodes;
	/* sum, over all decoded tokens, of the tokens up to and including theirs */
	uint64_t contexts;
	double pairs;      /* sum over all chunks [a, b) of (b^2 - a^2) / 2 */
	int64_t load_ns;   /* time to load from the tier behind the device */
};
int64_t kvb_step_length_ns(const struct kvb_profile *profile, const struct kvb_step_load *load);

#endif
