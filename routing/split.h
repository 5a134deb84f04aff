/*
 * split.h - decides by predicted times whether another worker prefills the prompt, and which.
 *
 * A request can be served by one worker ("here"), or be prefilled by one and decoded by another,
 * which gets the KV cache over the network. Both are priced in nanoseconds with the costs that a
 * strategy computes for each worker (struct kvw_cost):
 *
 *	here    total of the worker: its queue, the prefill of what it lacks, what that prefill and
 *	        this request cost the requests that it has; a second more on a prefiller that
 *	        may have whole requests
 *	split   the prefiller's queue and prefill, and what that costs those that decode there; the
 *	        transfer of what the decoder lacks; what is left by then of the decoder's queue or
 *	        wait for KV memory; and what one more request costs there
 *
 * So a short prompt, one that the decoder has cached, and one that would find the prefillers' queue
 * long stay here, without a threshold. A user's threshold replaces the comparison.
 *
 * The time of a transfer is learned as a fixed part and one per token (struct kvw_transfer).
 *
 * Threads: kvw_split_choose is a pure function; a kvw_transfer has a lock of its own.
 */
#ifndef KVW_SPLIT_H
#define KVW_SPLIT_H

#include <stdatomic.h>

#include "kvway/route.h"
#include "routing/spin.h"

#define KVW_SPLIT_BY_SECONDS INT64_C(-1) /* no threshold */
#define KVW_SPLIT_ANY        SIZE_MAX    /* any decoder */

/* Learned duration of transfers between two pools. The owner calls kvw_transfer_init. */
struct kvw_transfer {
	_Atomic double fixed_ns, ns_per_token; /* the two numbers, as learned so far */
	_Atomic uint64_t samples;
	atomic_bool lock;                      /* guards the sums */
	/* sums over samples (tokens, ns), in which older samples count less */
	double weight, x, y, xx, xy;
};

void kvw_transfer_init(struct kvw_transfer *transfer);
/* Learns that a transfer of `tokens` tokens took `ns`. */
void kvw_transfer_learn(struct kvw_transfer *transfer, double tokens, double ns);
double kvw_transfer_ns(const struct kvw_transfer *transfer, double tokens);

/* The best pair and the best single worker. Times in ns. */
struct kvw_split {
	bool split;
	/* Indices of the set. here: the best worker for the whole request. decoder, prefiller: the
	 * best pair; if there is none, split is false and both may be unset. */
	size_t here, decoder, prefiller;
	bool has_here, has_pair;
	/* the two prices that were compared; 0 if the strategy computes none */
	double here_ns, split_ns;
	double transfer_ns;       /* time of the pair's transfer, contained in split_ns */
	double tokens;            /* number of tokens that the decoder lacks */
};

/*
 * Puts the price of each worker's best plan into total_ns of its costs: to serve the request whole,
 * or to decode it in the best pair. costs: as of kvw_split_choose; those that are 0 stay so.
 */
void kvw_split_price(const struct kvw_candidates *set, struct kvw_cost *costs,
	uint32_t prompt_tokens, const struct kvw_transfer *transfer);

/*
 * Chooses. costs: [set->count], from a strategy's explain() in which all workers counted as usable
 * that serve whole requests (`usable` of the set, of any role) or prefill (`prefills`). only: the
 * decoder, an index, or KVW_SPLIT_ANY. threshold: splits if the decoder lacks at least that many
 * tokens; KVW_SPLIT_BY_SECONDS: compares the prices.
 */
void kvw_split_choose(const struct kvw_candidates *set, const struct kvw_cost *costs,
	uint32_t prompt_tokens, const struct kvw_transfer *transfer, int64_t threshold, size_t only,
	struct kvw_split *out);

#endif
