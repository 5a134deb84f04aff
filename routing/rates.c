/*
 * rates.c - learns each worker's prefill rate.
 *
 * A worker's samples are a ring; its rate is recomputed at the 8th sample, at each 4th from then
 * on, and once the ring is full at each 32nd (64 divisions and a selection). The shortest request
 * is that of the present and the previous epoch of 256 requests, so that a wrong sample (a worker's
 * cache may have blocks that kvway does not know of) is forgotten. The median is recomputed when a
 * worker's rate has moved by a percent. Memory of workers without samples is never touched.
 */
#include "routing/rates.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "routing/spin.h"

#define EPOCH       256   /* requests in one epoch, after which the shortest request is forgotten */
#define STEP        4     /* samples between two computations */
#define FULL_STEP   32    /* samples between two computations once the ring is full */
#define BUSY_STEP   16    /* the same for samples of requests that were prefilled among others */
#define BUSY_MEMORY 64    /* number of such requests over which the rate is averaged */
#define LEAST_WORK  256.0 /* tokens; a shorter request measures fixed costs, not the rate */
/* slopes are computed between requests whose work differs by at least this factor */
#define SLOPE       4.0
#define NOISE       0.125 /* a rate this close to the median, relatively, counts as equal to it */
#define MOVED       0.01
#define ALIGNMENT   64 /* bytes: a cache line */

#define MOST_FASTER 16.0 /* limit of how many times faster than the prior a rate may be */
#define MOST_SLOWER 64.0

/* One time to first token. */
struct point {
	float ns, tokens, pairs; /* t, L - h, (L^2 - h^2) / 2 */
};

/* Samples of one worker. A new sample writes the first cache line and one of the ring. */
struct window {
	_Alignas(ALIGNMENT) atomic_bool lock; /* guards all members that follow */
	/* shortest request of this epoch and of the one before; ns 0: none */
	struct point shortest[2];
	uint32_t count, next;                 /* samples in the ring; next place */
	uint32_t fresh;                       /* samples since the rate was last computed */
	struct point busy;                    /* fading sums over requests that met others */
	uint32_t busy_count;                  /* their number */
	uint32_t epoch;                       /* number of requests in this epoch */
	struct point ring[KVW_RATES_WINDOW];
};

struct kvw_rates_book {
	_Atomic double prior_x;
	_Atomic double pair_ns; /* a: time of attention per pair of tokens, of a typical worker */

	/* Taken seldom, and after a window's lock. Guards the members below except the windows, and
	 * writes to the atomics here and in kvw_rates. */
	atomic_bool lock;
	_Atomic double median;       /* median of the learned x; the prior if none was learned */
	_Atomic size_t learned;      /* workers with a learned x */
	float x[KVW_MAX_WORKERS];    /* learned ns per token; 0: not learned yet */
	float room[KVW_MAX_WORKERS]; /* used by median_of */
	struct window windows[KVW_MAX_WORKERS];
};

enum kvw_err kvw_rates_init(struct kvw_rates *rates, const struct kvw_prefill_model *prior)
{
	struct kvw_rates_book *book = NULL;

	/* Allocated with room to align: no single function returns zeroed, aligned and untouched
	 * memory. */
	rates->memory = calloc(1, sizeof(*book) + ALIGNMENT);
	if (rates->memory == NULL)
		return KVW_ENOMEM;
	book = (void *)(((uintptr_t)rates->memory + ALIGNMENT - 1) & ~(uintptr_t)(ALIGNMENT - 1));
	rates->book = book;
	kvw_rates_reconfigure(rates, prior);
	return KVW_OK;
}

void kvw_rates_finish(struct kvw_rates *rates)
{
	free(rates->memory);
	rates->memory = NULL;
	rates->book = NULL;
}

/* Returns the value that would be at place k (< count) if x were sorted; reorders x. Hoare's
 * selection, which continues only on the side of k. */
static float select_kth(float *x, size_t count, size_t k)
{
	size_t low = 0;
	size_t high = count - 1;

	while (low < high) {
		float pivot = x[low + (high - low) / 2];
		size_t i = low;
		size_t j = high;

		while (true) {
			while (x[i] < pivot)
				i++;
			while (x[j] > pivot)
				j--;
			if (i >= j)
				break;
			float kept = x[i];

			x[i++] = x[j];
			x[j--] = kept;
		}
		if (k <= j)
			high = j;
		else
			low = j + 1;
	}
	return x[k];
}

static double work_of(const struct point *p, double pairs)
{
	return p->tokens + pairs * p->pairs;
}

/* Computes slopes from the shortest request. Returns their number. */
static size_t slopes(const struct window *window, double pairs, float *out)
{
	const struct point *low = &window->shortest[0];
	size_t count = 0;

	if (low->ns <= 0 || (window->shortest[1].ns > 0 && window->shortest[1].ns < low->ns))
		low = &window->shortest[1];
	for (uint32_t i = 0; i < window->count && low->ns > 0; i++) {
		const struct point *p = &window->ring[i];
		double base = work_of(low, pairs);
		double work = work_of(p, pairs);

		if (work >= SLOPE * base && p->ns > low->ns)
			out[count++] = (float)((p->ns - low->ns) / (work - base));
	}
	return count;
}

/* Returns ns per token by requests that met no others: the 10th percentile of times, which is the
 * 90th of rates. A rate above the fleet's median (0: there is none) needs half of the samples,
 * since a worker that is rated too fast gets more work than it can do. */
static double ring_x(const struct window *window, double pairs, double median)
{
	float x[KVW_RATES_WINDOW];
	size_t count = slopes(window, pairs, x);
	float low = 0;
	float middle = 0;

	if (count < KVW_RATES_LEAST)
		for (count = 0; count < window->count; count++)
			x[count] = (float)(window->ring[count].ns /
					   work_of(&window->ring[count], pairs));
	low = select_kth(x, count, count / 10);
	if (low >= median)
		return low;
	middle = select_kth(x, count, count / 2);
	return middle < median ? middle : median;
}

/* Returns ns per token of one worker, from the best samples that there are. The window is
 * locked. */
static double window_x(const struct kvw_rates_book *book, const struct window *window)
{
	double median = atomic_load_explicit(&book->median, memory_order_relaxed);
	size_t learned = atomic_load_explicit(&book->learned, memory_order_relaxed);
	double prior_x = atomic_load_explicit(&book->prior_x, memory_order_relaxed);
	double pairs = atomic_load_explicit(&book->pair_ns, memory_order_relaxed) / median;
	double x = window->count >= KVW_RATES_LEAST
			   ? ring_x(window, pairs, learned > 2 ? median : 0)
			   : window->busy.ns / work_of(&window->busy, pairs);

	if (x < prior_x / MOST_FASTER)
		return prior_x / MOST_FASTER;
	if (x > prior_x * MOST_SLOWER)
		return prior_x * MOST_SLOWER;
	return x;
}

/* Returns the lower median of the workers' learned x. The lock is held. */
static double median_of(struct kvw_rates_book *book)
{
	size_t count = 0;

	for (size_t i = 0; i < KVW_MAX_WORKERS; i++)
		if (book->x[i] > 0)
			book->room[count++] = book->x[i];
	atomic_store_explicit(&book->learned, count, memory_order_relaxed);
	if (count == 0)
		return atomic_load_explicit(&book->prior_x, memory_order_relaxed);
	return select_kth(book->room, count, (count - 1) / 2);
}

/* Publishes the rates for picks. The lock is held. */
static void publish_rates(struct kvw_rates *rates)
{
	struct kvw_rates_book *book = rates->book;
	double median = median_of(book);

	atomic_store_explicit(&book->median, median, memory_order_relaxed);
	atomic_store_explicit(&rates->pairs,
		(float)(atomic_load_explicit(&book->pair_ns, memory_order_relaxed) /
			(median * KVW_RATES_OVERHEAD)),
		memory_order_relaxed);
	for (size_t i = 0; i < KVW_MAX_WORKERS; i++) {
		double x = book->x[i];

		if (x <= 0 || fabs(x / median - 1) <= NOISE)
			x = median;
		atomic_store_explicit(&rates->ns_per_token[i], (float)(x * KVW_RATES_OVERHEAD),
			memory_order_relaxed);
	}
}

/* Publishes the prior while no rate is learned. The lock is held. */
static void publish_prior(struct kvw_rates *rates, double x, double pair_ns)
{
	atomic_store_explicit(&rates->book->median, x, memory_order_relaxed);
	atomic_store_explicit(&rates->pairs, (float)(pair_ns / x), memory_order_relaxed);
	for (size_t i = 0; i < KVW_MAX_WORKERS; i++)
		atomic_store_explicit(&rates->ns_per_token[i], (float)x, memory_order_relaxed);
}

void kvw_rates_reconfigure(struct kvw_rates *rates, const struct kvw_prefill_model *prior)
{
	struct kvw_rates_book *book = rates->book;
	double x = atomic_load_explicit(&prior->ns_per_token, memory_order_relaxed);
	double pair_ns = atomic_load_explicit(&prior->ns_per_pair, memory_order_relaxed);

	x = x > 0 ? x : 1;
	kvw_spin_lock(&book->lock);
	atomic_store_explicit(&book->prior_x, x, memory_order_relaxed);
	atomic_store_explicit(&book->pair_ns, pair_ns, memory_order_relaxed);
	if (atomic_load_explicit(&book->learned, memory_order_relaxed) > 0)
		publish_rates(rates);
	else
		publish_prior(rates, x, pair_ns);
	kvw_spin_unlock(&book->lock);
}

/* Updates the shortest request. The window is locked. */
static void note_shortest(struct window *window, const struct point *p)
{
	if (window->epoch++ == EPOCH) {
		window->shortest[1] = window->shortest[0];
		window->shortest[0].ns = 0;
		window->epoch = 1;
	}
	if (window->shortest[0].ns <= 0 || p->ns < window->shortest[0].ns)
		window->shortest[0] = *p;
}

/* Adds a sample. Returns true if the rate should be computed again. The window is locked. */
static bool add_point(struct window *window, const struct point *p)
{
	window->ring[window->next] = *p;
	window->next = (window->next + 1) % KVW_RATES_WINDOW;
	window->count += window->count < KVW_RATES_WINDOW;
	window->fresh++;
	if (window->count < KVW_RATES_LEAST ||
		window->fresh < (window->count < KVW_RATES_WINDOW ? STEP : FULL_STEP))
		return false;
	window->fresh = 0;
	return true;
}

/* Does the same for a request that met others. The window is locked. */
static bool add_busy(struct window *window, const struct point *p)
{
	window->busy.ns += p->ns - window->busy.ns / BUSY_MEMORY;
	window->busy.tokens += p->tokens - window->busy.tokens / BUSY_MEMORY;
	window->busy.pairs += p->pairs - window->busy.pairs / BUSY_MEMORY;
	return ++window->busy_count % BUSY_STEP == 0 && window->count < KVW_RATES_LEAST &&
	       window->busy.ns > 0;
}

static bool add_to_window(struct window *window, const struct point *p, bool alone)
{
	if (alone)
		note_shortest(window, p);
	if (p->tokens < LEAST_WORK)
		return false;
	return alone ? add_point(window, p) : add_busy(window, p);
}

void kvw_rates_learn(struct kvw_rates *rates, const struct kvw_rate_sample *sample)
{
	struct kvw_rates_book *book = rates->book;
	struct window *window = &book->windows[sample->worker];
	double length = sample->prompt_tokens;
	double hit = sample->cached_tokens;
	struct point p = {
		.ns = (float)sample->ns,
		.tokens = (float)(length - hit),
		.pairs = (float)((length * length - hit * hit) / 2),
	};

	if (!(p.tokens > 0) || sample->ns < 0 || (sample->alone && sample->ns == 0))
		return;
	kvw_spin_lock(&window->lock);
	if (add_to_window(window, &p, sample->alone)) {
		double x = window_x(book, window);

		kvw_spin_lock(&book->lock);
		if (fabs(x - book->x[sample->worker]) > MOVED * x) {
			book->x[sample->worker] = (float)x;
			publish_rates(rates);
		}
		kvw_spin_unlock(&book->lock);
	}
	kvw_spin_unlock(&window->lock);
}

void kvw_rates_restart(struct kvw_rates *rates, uint32_t worker)
{
	struct window *window = &rates->book->windows[worker];

	kvw_spin_lock(&window->lock);
	if (window->epoch > 0 || window->busy_count > 0)
		memset(window->shortest, 0,
			sizeof(*window) - offsetof(struct window, shortest));
	kvw_spin_unlock(&window->lock);
}

void kvw_rates_learned(struct kvw_rates *rates, uint32_t worker, struct kvw_worker_learned *out)
{
	struct kvw_rates_book *book = rates->book;
	struct window *window = &book->windows[worker];

	out->prefill_tokens_per_second = 1e9 / kvw_rates_x(rates, worker);
	kvw_spin_lock(&book->lock);
	out->observed_tokens_per_second = book->x[worker] > 0 ? 1e9 / book->x[worker] : 0;
	kvw_spin_unlock(&book->lock);
	kvw_spin_lock(&window->lock);
	out->rate_samples = window->count;
	kvw_spin_unlock(&window->lock);
}
