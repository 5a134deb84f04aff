/*
 * rates.h - each worker's prefill rate, learned from times to first token.
 *
 * The best sample is a streamed request that met no other prefill on its worker: no request waited
 * for a first token when it arrived, and none arrived before its own first token. Its time is
 *
 *     t = c + x W,    W = (L - h) + k (L^2 - h^2) / 2
 *
 * c: the fixed time of every request (a step of the engine, the network); x: ns per token; W: the
 * work in tokens, its quadratic term turned into tokens by k = attention_ns_per_pair / x of a
 * typical worker of the fleet. So a worker of half the speed is assumed to need twice as long for
 * attention, too. The shortest request shows c; x follows from the slopes between it and requests
 * of at least four times its work, or from t / W if all are about equally long. Any other delay
 * makes the worker look slower, never faster, so the worker's rate is a high percentile (90) of the
 * rates in a window of 64 samples, at least 8.
 *
 * A worker that always has a queue gives no such sample, in particular a worker that is slower than
 * its rate and so gets too much work. So for a request that met others the time between the
 * worker's preceding first token and the request's own counts, which is its prefill time if the
 * worker computes one prompt after the other. That holds only on average (prompts are computed in
 * batches, and their first tokens come together), so times and work are summed over some 64 of
 * them. These sums count until there are eight better samples.
 *
 * Costs charge one and a half times that time per token: the engine also decodes, and a prompt
 * waits for the running step. (Not the time of attention, which no step repeats.) All workers are
 * charged alike, so this hardly changes a choice; but an estimate that ends too early sends the
 * worker the next prompt too early, while first tokens correct one that ends too late. In the
 * replay of a conversation trace at twice its rate goodput is the same for charges of 1.5 to 6
 * times the true time, and falls with less than that.
 *
 * Costs use a worker's own rate only if it differs from the fleet's median by more than an eighth:
 * smaller differences are noise, which would send every prompt to the same one of several idle
 * workers. And once three workers have samples, a rate above the median needs half of a worker's
 * samples: a worker rated too fast gets more than it can do, while one rated too slow is soon idle.
 * A worker without samples has the fleet's median, a fleet without samples the configured prior.
 * Rates are limited to [prior / 64, prior * 16]; samples beyond that measure only overhead.
 *
 * Threads: any. Picks read one atomic float per worker, from one array; samples take a lock of
 * their worker's.
 */
#ifndef KVW_RATES_H
#define KVW_RATES_H

#include <stdatomic.h>

#include "routing/choice.h"

#define KVW_RATES_WINDOW 64
#define KVW_RATES_LEAST  8

/* Charge per token, as a multiple of the token's prefill time alone. */
#define KVW_RATES_OVERHEAD 1.5

struct kvw_rates_book;

struct kvw_rates {
	/* rates by worker id, for costs */
	_Alignas(64) _Atomic float ns_per_token[KVW_MAX_WORKERS];
	_Atomic float pairs; /* k: tokens of work per pair of tokens */
	struct kvw_rates_book *book;                              /* the samples, in `memory` */
	void *memory;
};

/* A time to first token. */
struct kvw_rate_sample {
	uint32_t worker;
	double prompt_tokens; /* L */
	double cached_tokens; /* h <= L */
	/* t; for requests that met others, the time since the first token before theirs */
	int64_t ns;
	bool alone;           /* no other prefill ran on the worker */
};

/* Initializes *rates; after KVW_ENOMEM it is unusable. */
enum kvw_err kvw_rates_init(
	struct kvw_rates *rates, const struct kvw_prefill_model *prior) KVW_MUST_CHECK;
/* allowed also if init failed, or *rates is zeroed */
void kvw_rates_finish(struct kvw_rates *rates);

static inline float kvw_rates_x(const struct kvw_rates *rates, uint32_t worker)
{
	return atomic_load_explicit(&rates->ns_per_token[worker], memory_order_relaxed);
}

/* Returns W in tokens, computed with k; kvw_rates_x converts it into ns. */
static inline double kvw_rates_work(double pairs, double length, double hit)
{
	return (length - hit) + (length * length - hit * hit) * (pairs / 2);
}

/* Sets another prior; learned rates stay. */
void kvw_rates_reconfigure(struct kvw_rates *rates, const struct kvw_prefill_model *prior);

void kvw_rates_learn(struct kvw_rates *rates, const struct kvw_rate_sample *sample);

/* Called for a worker that may be another machine now: forgets its samples, but keeps its rate
 * until there are new samples. */
void kvw_rates_restart(struct kvw_rates *rates, uint32_t worker);

/* Fills the rates' members of *out. */
void kvw_rates_learned(struct kvw_rates *rates, uint32_t worker, struct kvw_worker_learned *out);

#endif
