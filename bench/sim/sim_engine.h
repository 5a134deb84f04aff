/*
 * sim_engine.h - continuous batching of one simulated engine, in simulated time.
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

/* Fixed for the engine's life. */
struct kvb_engine_config {
	const struct kvb_profile *profile; /* borrowed, outlives the engine */
	uint32_t block_size;               /* tokens */
	uint32_t block_count;              /* with the null block; at least 2 */
	uint32_t max_batched_tokens;       /* per step */
	uint32_t max_seqs;                 /* running at once */
	uint32_t draft_tokens;             /* of speculative decoding, for each that is decoded; 0: none */
	double draft_share;                /* of these, accepted */
	double drift;                      /* share of prompts that are answered otherwise than elsewhere */
};

/* What has happened since the engine was made, and what it holds now. */
struct kvb_engine_stats {
	uint64_t steps;
	uint64_t prompt_tokens;   /* of admitted sequences */
	uint64_t cached_tokens;   /* of those, found in the cache or loaded from behind it */
	uint64_t loaded_tokens;   /* of those, loaded; with what preemption made load again */
	uint64_t external_tokens; /* of those, loaded; as they were admitted first */
	uint64_t blended_tokens;  /* of those, taken from ranges; as they were admitted first */
	uint64_t
		prefilled_tokens; /* computed, not decoded; with what preemption made compute again */
	uint64_t decoded_tokens;   /* computed one at a time */
	uint64_t generated_tokens; /* handed out */
	uint64_t preemptions;
	uint64_t finished;
	int64_t busy_ns; /* simulated time inside steps */
	uint32_t running, waiting;
	uint32_t deferred; /* of the waiting ones: asking what can be loaded, or loading */
	uint32_t blocks_used, blocks_usable, blocks_published;
	uint64_t evictions;
};

struct kvb_engine;

#define KVB_SEQ_TIERS 3

/* One sequence. Created and destroyed by its owner, borrowed by the engine while it is queued. */
struct kvb_seq {
	void *user;       /* the owner's */
	uint32_t *tokens; /* prompt, then what was generated; owned by the sequence; NULL: hashed */
	uint32_t prompt_len;  /* tokens */
	uint32_t total_len;   /* prompt and generated */
	uint32_t max_new;     /* generates so many, at least 1 */
	uint32_t cached_len;  /* prompt tokens found in the cache, loaded or in ranges; valid once admitted */
	uint32_t blended_len; /* of these, in ranges */
	uint32_t pulled; /* the owner's: first tokens whose KV came from another engine; 0: none */
	uint32_t pulled_len; /* of those, that the cache did not have; not in cached_len */
	uint32_t preemptions; /* of this sequence */
	bool admitted;        /* has run at least once */
	int64_t submit_ns;    /* simulated; set by submit */
	int64_t admit_ns;     /* simulated; start of the first step it took part in */

	/* The engine's own. */
	struct kvb_seq *prev, *next; /* waiting list */
	uint64_t *hashes;            /* chain hash of each full block */
	uint32_t *blocks;
	uint32_t hash_count, block_count, published;
	uint32_t computed;   /* tokens whose KV is there, or will be at the end of this step */
	uint32_t batch_pos;  /* place in the step's batch; UINT32_MAX: not in it */
	uint64_t text_state; /* decides the answer's text; of a hashed one its blocks' hashes */
	uint8_t state;

	/* Of the tier behind the device, which alone reads and writes them; all zero at first. */
	uint64_t *chunks; /* names of the sequence's chunks; freed with the sequence */
	uint32_t chunk_count, chunks_stored;
	void *task; /* what it is doing for the sequence; NULL: nothing */
	uint32_t loaded
		[KVB_SEQ_TIERS]; /* tokens that came from each of its tiers, at the last load */
	uint32_t
		first_loaded[KVB_SEQ_TIERS]; /* the engine's: the same when it was first admitted */
	/* Of the store of fragments. */
	struct kvb_range *ranges; /* of the prompt, from where it was admitted; owned, NULL: none */
	uint32_t range_count;
	void *segments; /* what it knows of the prompt; freed with the sequence */

	uint8_t behind;         /* the engine's: how far asking and loading have come */
	uint32_t behind_tokens; /* the engine's: the tier's answer */
};

/*
 * What an engine reports of its caches while it plans a step, in the order in which it happens.
 * Any of these may be NULL. They may read the sequence, but not call the engine.
 */
struct kvb_engine_watch {
	/* Blocks [first, first + count) of the sequence are in the device's cache, perhaps once
	 * more; their hashes are kvb_seq_block(seq, i). */
	void (*stored)(void *user, const struct kvb_seq *seq, uint32_t first, uint32_t count);
	/* One block with this hash was given out again. */
	void (*removed)(void *user, uint64_t hash);
	/* The device's cache is empty. */
	void (*cleared)(void *user);

	/* A tier behind the device: how many of the sequence's first tokens it can load. */
	uint32_t (*find)(void *user, struct kvb_seq *seq);
	/* The sequence is about to load up to its first `tokens` from there. */
	void (*load)(void *user, struct kvb_seq *seq, uint32_t tokens);
	/* The KV of seq->computed tokens will be there when the step ends. Not called once some of it comes
	 * from ranges: it is not what computing gives. */
	void (*computed)(void *user, struct kvb_seq *seq);

	/* The sequence could be admitted, and has its first `from` tokens: sets its ranges, all beyond these
	 * and before its last token. */
	void (*blend)(void *user, struct kvb_seq *seq, uint32_t from);
	/* As computed, and called in any case. */
	void (*passed)(void *user, struct kvb_seq *seq);
	int64_t load_ns; /* simulated time to load one token */

	/*
	 * The same for a tier that answers later, in place of find and load. A sequence that asks
	 * or loads waits without holding up others; while it loads it holds its blocks.
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

/* Hash of a full block of the sequence; it also names what came before. */
static inline uint64_t kvb_seq_block(const struct kvb_seq *seq, uint32_t i)
{
	return seq->hashes[i + 1];
}

/* A token came out; `last` if the sequence has left the engine with it. May remove and destroy
 * any sequence, this one too, and submit others. */
typedef void kvb_token_fn(void *user, struct kvb_seq *seq, uint32_t token, bool last);

/* NULL without memory. */
struct kvb_engine *kvb_engine_create(const struct kvb_engine_config *config);
void kvb_engine_destroy(struct kvb_engine *engine); /* no sequence may be queued */

/*
 * NULL without memory. Copies the tokens. prompt_len >= 1, max_new >= 1, both together within the
 * engine's usable tokens (kvb_engine_longest). `salt` separates caches, `choice` tells apart
 * several answers to one prompt.
 */
struct kvb_seq *kvb_seq_create(const struct kvb_engine *engine, const uint32_t *tokens,
	uint32_t prompt_len, uint32_t max_new, uint64_t salt, uint32_t choice);
/*
 * The same for a prompt known only by its blocks: hashes holds one chain hash for each of its
 * prompt_len / block size full blocks, and is copied. Such a sequence costs memory by its blocks,
 * not by its tokens. It generates token 0; `unique` is its own and keeps the blocks of its answer
 * apart from those of all others.
 */
struct kvb_seq *kvb_seq_create_hashed(const struct kvb_engine *engine, const uint64_t *hashes,
	uint32_t prompt_len, uint32_t max_new, uint64_t unique);
void kvb_seq_destroy(struct kvb_seq *seq); /* must not be queued; NULL is allowed */

/* The callbacks from now on; `watch` is borrowed and outlives the engine, NULL: none. */
void kvb_engine_watch(struct kvb_engine *engine, const struct kvb_engine_watch *watch, void *user);
/* The user of this watch, if it is the one that was set last; else NULL. */
void *kvb_engine_watched(const struct kvb_engine *engine, const struct kvb_engine_watch *watch);

/* Longest prompt and answer together that can ever run, in tokens. */
uint32_t kvb_engine_longest(const struct kvb_engine *engine);

void kvb_engine_submit(struct kvb_engine *engine, struct kvb_seq *seq, int64_t now_ns);

/* Takes the sequence out wherever it is, also amid a step; its blocks are free at once. Does
 * nothing if it is not queued. */
void kvb_engine_remove(struct kvb_engine *engine, struct kvb_seq *seq);

/* A fetch has ended: the KV of the first `tokens` tokens is there, or less than was asked for. To be
 * called between steps or amid one, but not from a watch. */
void kvb_engine_loaded(struct kvb_engine *engine, struct kvb_seq *seq, uint32_t tokens);

/* Plans a step that begins at now_ns. False: nothing to do. *length_ns is its simulated length. */
bool kvb_engine_begin_step(struct kvb_engine *engine, int64_t now_ns, int64_t *length_ns);

/* Ends the step and calls `fn` for each token that it made, in the order of the batch. */
void kvb_engine_end_step(struct kvb_engine *engine, kvb_token_fn *fn, void *user);

/* A block of this chain hash is in the cache. */
bool kvb_engine_holds(const struct kvb_engine *engine, uint64_t hash);

/* Drops the cached content; false while sequences hold blocks. */
bool kvb_engine_reset_cache(struct kvb_engine *engine);

void kvb_engine_stats(const struct kvb_engine *engine, struct kvb_engine_stats *out);

/* What a step costs that computes these chunks; the one formula of the simulation. */
struct kvb_step_load {
	uint64_t prefill_tokens;
	uint32_t decodes;
	uint64_t contexts; /* sum over decodes of the tokens before and with theirs */
	double pairs;      /* sum over all chunks [a, b) of (b^2 - a^2) / 2 */
	int64_t load_ns;   /* to load what a tier behind the device had */
};
int64_t kvb_step_length_ns(const struct kvb_profile *profile, const struct kvb_step_load *load);

#endif
