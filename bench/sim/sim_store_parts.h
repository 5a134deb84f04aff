/*
 * sim_store_parts.h - structs and functions that the files of the store share. No other file
 * includes this.
 */
#ifndef KVB_SIM_STORE_PARTS_H
#define KVB_SIM_STORE_PARTS_H

#include <sys/queue.h>

#include "bench/sim/sim_copier.h"
#include "bench/sim/sim_options.h"
#include "bench/sim/sim_store.h"
#include "bench/sim/sim_way.h"

enum kvb_task_kind { KVB_TASK_ASK, KVB_TASK_FETCH, KVB_TASK_PUT };

/*
 * An operation under way: a question, a fetch, or the puts of a step. kvb_task_free ends it when it
 * is done, and the engine has the result or the sequence has left.
 */
struct kvb_task {
	TAILQ_ENTRY(kvb_task) entry;
	enum kvb_task_kind kind;
	struct kvb_seq *seq; /* NULL: the sequence has left, or there is none */
	int64_t due_ns;      /* simulated end; INT64_MAX: the real end */
	bool done;
	bool seen;  /* simulated time has reached the end */
	bool late;  /* the worker no longer waits for it */
	bool asked; /* an operation of the library is under way */
	uint64_t op;

	/* fetch */
	struct kvt_key *keys; /* owned; `count` keys, from chunk `first` on */
	uint32_t first, count;
	uint32_t hits, tokens; /* as the engine asked */
	struct kvt_lease *lease;

	struct kvb_copy copy; /* for a fetch or puts; belongs to the copier while `copying` */
	bool copying;
};
TAILQ_HEAD(kvb_task_list, kvb_task);

struct kvb_store {
	struct kvb_store_config config;
	const struct kvb_tier_options *tiers;
	struct kvt_clock clock;
	int64_t wall_ns; /* when simulated time was 0 */
	struct kvb_tier_texts texts;
	struct kvt_config settings; /* the cache's; borrows texts */
	/* LMCache's hash before the first chunk of a prompt, for its controller */
	uint64_t lmcache_root;
	bool has_controller;
	struct kvt *cache;
	struct kvb_copier *copier;
	struct event *ev_cache, *ev_copier;
	struct kvb_task_list tasks;        /* tasks in the order in which they began */
	struct kvb_ways ways;              /* used if transfers are modelled */
	/* tokens and time of recent steps, which decide whether chunks are worth fetching */
	double prefill_tokens, prefill_ns;
	struct kvb_put *puts;              /* puts of the present step */
	uint32_t put_count, put_room;
	struct kvb_store_stats stats;
};

/* Computes the names of a sequence's chunks, as far as its tokens go. Returns false if memory is
 * short. */
bool kvb_store_name(struct kvb_store *store, struct kvb_seq *seq);
/* Key of a named chunk. */
const struct kvt_key *kvb_store_key(const struct kvb_seq *seq, uint32_t index);
void kvb_store_free_puts(struct kvb_put *puts, uint32_t count); /* and the array */

#endif
