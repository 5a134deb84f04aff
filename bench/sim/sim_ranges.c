/*
 * sim_ranges.c - how far a step comes through ranges, and what it costs.
 *
 * A token of a range counts as `weight` of one, in the token budget, in prefill and in attention: the
 * tokens that are computed again attend to all before them, and lie anywhere within the range.
 */
#include "bench/sim/sim_ranges.h"

#include "bench/sim/sim_engine.h"

/* Finds the tokens from `at` on that lie in one range, or in none (NULL); returns their end, at
 * most `end`. */
static const struct kvb_range *stretch(const struct kvb_range *ranges, uint32_t count, uint32_t at,
	uint32_t end, uint32_t *to)
{
	*to = end;
	for (uint32_t i = 0; i < count; i++) {
		if (ranges[i].to <= at)
			continue;
		if (ranges[i].from > at) {
			*to = ranges[i].from < end ? ranges[i].from : end;
			return NULL;
		}
		*to = ranges[i].to < end ? ranges[i].to : end;
		return &ranges[i];
	}
	return NULL;
}

uint32_t kvb_ranges_take(const struct kvb_range *ranges, uint32_t count, uint32_t from,
	uint32_t end, uint32_t budget, uint32_t *cost)
{
	double left = budget;
	uint32_t at = from, to;

	while (at < end) {
		const struct kvb_range *range = stretch(ranges, count, at, end, &to);
		double weight = range == NULL ? 1 : range->weight;

		if (weight * (to - at) > left) {
			at += (uint32_t)(left / weight);
			left = 0;
			break;
		}
		left -= weight * (to - at);
		at = to;
	}
	*cost = budget - (uint32_t)left;
	return at - from;
}

uint32_t kvb_ranges_load(const struct kvb_range *ranges, uint32_t count, uint32_t from, uint32_t to,
	struct kvb_step_load *load)
{
	double computed = 0, ns = 0;
	uint32_t end, taken = 0;

	for (uint32_t at = from; at < to; at = end) {
		const struct kvb_range *range = stretch(ranges, count, at, to, &end);
		double weight = range == NULL ? 1 : range->weight;

		computed += weight * (end - at);
		load->pairs += weight * ((double)end * end - (double)at * at) / 2;
		if (range == NULL)
			continue;
		ns += range->ns_per_token * (end - at);
		taken += end - at;
	}
	load->prefill_tokens += (uint64_t)(computed + 0.5);
	load->load_ns += (int64_t)(ns + 0.5);
	return taken;
}
