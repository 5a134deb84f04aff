/* scale.c - counts predicted times to first token over promised ones. */
#include "admission/scale.h"

#define UNIT 1000 /* a ratio of 1 */

/* Bounds lie close around 1, where an autoscaler's target is. */
static const uint64_t ratios[] = {50, 100, 150, 200, 250, 300, 400, 500, 600, 700, 800, 900, 1000,
	1100, 1250, 1500, 2000, 3000, 5000, 10000, 20000, 50000};

#define RATIOS (sizeof(ratios) / sizeof(ratios[0]))

void kvw_scale_bounds(struct kvw_bounds *bounds)
{
	kvw_bounds_init(bounds, ratios, RATIOS, 1);
}

void kvw_scale_count(struct kvw_scale *scale, const struct kvw_bounds *bounds,
	const struct kvw_scale_prediction *prediction)
{
	double needed = 0, promised = (double)prediction->ns[KVW_SCALE_PROMISED];

	if (promised <= 0)
		return;
	for (size_t part = 0; part < KVW_SCALE_PARTS; part++) {
		uint64_t ns = prediction->ns[part] > 0 ? (uint64_t)prediction->ns[part] : 0;

		kvw_bump(&scale->ns[part], ns);
		needed += part == KVW_SCALE_PROMISED ? 0 : (double)ns;
	}
	kvw_histogram_observe(&scale->ratios, bounds, (int64_t)(UNIT * needed / promised));
}

void kvw_scale_sample(
	struct kvw_scale_window *window, const struct kvw_histogram_sum *all, int64_t now_ns)
{
	if (window->count > 0 && now_ns - window->at_ns[window->newest] < KVW_SCALE_STEP_NS)
		return;
	window->newest = (window->newest + 1) % KVW_SCALE_SAMPLES;
	window->at_ns[window->newest] = now_ns;
	window->samples[window->newest] = *all;
	window->count += window->count < KVW_SCALE_SAMPLES;
}

/* Returns the newest sample that is as old as the window is long, else the oldest one. NULL: the
 * window has samples of all predictions, so that they count from none. */
static const struct kvw_histogram_sum *base_of(
	const struct kvw_scale_window *window, int64_t now_ns)
{
	size_t i = 0;

	for (size_t back = 0; back < window->count; back++) {
		i = (window->newest + KVW_SCALE_SAMPLES - back) % KVW_SCALE_SAMPLES;
		if (now_ns - window->at_ns[i] >= KVW_SCALE_LENGTH_NS)
			return &window->samples[i];
	}
	return window->count < KVW_SCALE_SAMPLES ? NULL : &window->samples[i];
}

double kvw_scale_quantile(const struct kvw_scale_window *window,
	const struct kvw_histogram_sum *all, const struct kvw_bounds *bounds, double quantile,
	int64_t now_ns)
{
	static const struct kvw_histogram_sum none;
	const struct kvw_histogram_sum *base = base_of(window, now_ns);
	double wanted, below = 0;

	if (base == NULL)
		base = &none;
	wanted = quantile * (double)(all->count - base->count);
	if (all->count == base->count)
		return 0;
	for (size_t i = 0; i < bounds->count; i++) {
		double count = (double)(all->buckets[i] - base->buckets[i]);
		double low = i == 0 ? 0 : (double)bounds->ns[i - 1];

		if (count > 0 && below + count >= wanted)
			return (low + ((double)bounds->ns[i] - low) * (wanted - below) / count) /
			       UNIT;
		below += count;
	}
	return (double)bounds->ns[bounds->count - 1] / UNIT;
}
