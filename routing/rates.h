/*
 * rates.h - how fast each worker computes prompts, learned from times to first token.
 *
 * The best sample is a streamed request that met no other prefill on its worker: no request waited
 * for a first token when it came, and none came before it had its own. Its time is
 *
 *     t = c + x W,    W = (L - h) + k (L^2 - h^2) / 2
 *
 * c: what every request takes (a step of the engine, the network); x: ns per token; W: the work in
 * tokens, its quadratic term turned into tokens by k = attention_ns_per_pair / x of a typical
 * worker of the fleet. So a worker of half the speed is taken to need twice as long for attention
 * too. c is seen in the shortest request; x follows from the slopes between that one and requests
 * of at least four times its work, or from t / W where all are about equally long. Whatever else
 * delays a request makes the worker look slower, never faster, so the worker's rate is a high
 * percentile (90) of the rates in a window of 64 samples, at least 8.
 *
 * A worker that is never without a queue gives no such sample, least of all one that is slower
 * than it is believed to be and is sent too much for that reason. So of requests that met others
 * the time since the first token before theirs is taken, which is what the worker needed for them
 * if it works in turn. It does so only on the average (prompts are computed in batches, and their
 * first tokens come together), so their times and their work are summed over some 64 of them. That
 * counts as long as there are no eight better samples.
 *
 * Costs charge half as much again per token: the engine also decodes, and a prompt waits for the
 * step that runs. (Not for attention, which is in no step twice.) All workers are charged alike, so
 * this hardly shifts a choice; but a worker that is believed to be done too early is sent the next
 * prompt too early, while one that is believed to be done too late is corrected by its first
 * tokens. In the replay of a conversation trace at twice its rate goodput is the same for charges
 * of 1.5 to 6 times the true time, and falls with less than that.
 *
 * What costs are computed with is a worker's own rate only where it differs from the median of the
 * fleet by more than an eighth: below that it is noise, and noise would send every prompt to the
 * same one of several idle workers. And that a worker is faster than the median must be said by
 * half of its samples, once three workers have some: one that is believed too fast is given more
 * than it can do, while one that is believed too slow is soon seen idle. A worker without samples
 * has the fleet's median, a fleet without samples the configured prior. No rate leaves
 * [prior / 64, prior * 16]; beyond that only overhead is measured.
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

/* What a token is charged, in times of what its prefill alone takes. */
#define KVW_RATES_OVERHEAD 1.5

struct kvw_rates_book;

struct kvw_rates {
	_Alignas(64) _Atomic float ns_per_token[KVW_MAX_WORKERS]; /* by worker id, for costs */
	_Atomic float pairs;                                      /* k: tokens per pair of tokens */
	struct kvw_rates_book *book;                              /* the samples, in `memory` */
	void *memory;
};

/* A time to first token. */
struct kvw_rate_sample {
	uint32_t worker;
	double prompt_tokens; /* L */
	double cached_tokens; /* h <= L */
	int64_t ns;           /* t, or of a request that met others the time since the one before */
	bool alone;           /* it met no other prefill */
};

/* KVW_ENOMEM, leaving *rates to be thrown away. */
enum kvw_err kvw_rates_init(
	struct kvw_rates *rates, const struct kvw_prefill_model *prior) KVW_MUST_CHECK;
void kvw_rates_finish(struct kvw_rates *rates); /* also if init failed, or zeroed */

static inline float kvw_rates_x(const struct kvw_rates *rates, uint32_t worker)
{
	return atomic_load_explicit(&rates->ns_per_token[worker], memory_order_relaxed);
}

/* W in tokens, by k; in ns by kvw_rates_x. */
static inline double kvw_rates_work(double pairs, double length, double hit)
{
	return (length - hit) + (length * length - hit * hit) * (pairs / 2);
}

/* Another prior; what was learned stays. */
void kvw_rates_reconfigure(struct kvw_rates *rates, const struct kvw_prefill_model *prior);

void kvw_rates_learn(struct kvw_rates *rates, const struct kvw_rate_sample *sample);

/* The worker may be another machine now: its samples are forgotten, its rate is kept until there
 * are new ones. */
void kvw_rates_restart(struct kvw_rates *rates, uint32_t worker);

/* Fills what it knows of *out. */
void kvw_rates_learned(struct kvw_rates *rates, uint32_t worker, struct kvw_worker_learned *out);

#endif
