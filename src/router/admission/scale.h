/*
 * scale.h - the signal by which the size of a fleet is chosen: the predicted time to first token of
 * each request, divided by the time that it is promised.
 *
 * A queue's length says little of how late answers will be: ten short prompts are a second of work,
 * ten long ones a minute. The ratio is in the unit of the promise. Above 1 answers will be late,
 * and workers are missing; well below 1 fewer workers would do. It counts each request once, when
 * the router first decides about it: sent, made to wait, or refused, since a refused request needs
 * a worker, too.
 *
 * A loop counts the ratios in a histogram and the times behind them in sums, so that the part that
 * more workers shorten (wait, queue) is known apart from the part that they do not (prefill). The
 * quantiles of the last minute come from samples of the histogram that one thread takes.
 *
 * The replay of bench/replay runs this code.
 *
 * Threads: one thread counts, any thread reads a kvw_scale; a window belongs to one thread, or to
 * its owner's lock.
 */
#ifndef KVW_SCALE_H
#define KVW_SCALE_H

#include "metrics/histogram.h"

/* Parts of a prediction, and the promise. */
enum kvw_scale_part {
	KVW_SCALE_WAIT,     /* at the router, until the worker can take the request */
	KVW_SCALE_QUEUE,    /* at the worker, until it begins the prompt */
	KVW_SCALE_PREFILL,  /* of the prompt; at a decoder: until it has the KV of a prefiller */
	KVW_SCALE_PROMISED,
	KVW_SCALE_PARTS
};

/* The prediction for one request, in ns, by kvw_scale_part. Requests without a promise are not
 * counted. */
struct kvw_scale_prediction {
	int64_t ns[KVW_SCALE_PARTS];
};

/* All predictions of one loop for one model and role. Zeroed is empty. */
struct kvw_scale {
	struct kvw_histogram ratios; /* in thousandths, with the bounds of kvw_scale_bounds */
	_Atomic uint64_t ns[KVW_SCALE_PARTS];
};

/* Sets the bounds of ratios, in thousandths. */
void kvw_scale_bounds(struct kvw_bounds *bounds);
/* Counts the prediction, unless nothing is promised. */
void kvw_scale_count(struct kvw_scale *scale, const struct kvw_bounds *bounds,
	const struct kvw_scale_prediction *prediction);

#define KVW_SCALE_SAMPLES   13
#define KVW_SCALE_STEP_NS   INT64_C(5000000000)
#define KVW_SCALE_LENGTH_NS INT64_C(60000000000)

/* Samples of the ratios of all loops, the newest at [newest]. Zeroed is empty; the ratios must have
 * been empty as well a step before the first sample. */
struct kvw_scale_window {
	int64_t at_ns[KVW_SCALE_SAMPLES];
	struct kvw_histogram_sum samples[KVW_SCALE_SAMPLES];
	size_t newest, count;
};

/* Takes a sample if the newest one is at least a step old. all: the sum over all loops. */
void kvw_scale_sample(
	struct kvw_scale_window *window, const struct kvw_histogram_sum *all, int64_t now_ns);
/* Returns the ratio that a share `quantile` of the last minute's predictions does not exceed,
 * interpolated within its bucket; 0: there were no predictions. Ratios above the highest bound
 * count as that bound. */
double kvw_scale_quantile(const struct kvw_scale_window *window,
	const struct kvw_histogram_sum *all, const struct kvw_bounds *bounds, double quantile,
	int64_t now_ns);

#endif
