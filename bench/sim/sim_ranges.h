/*
 * sim_ranges.h - parts of a prompt whose KV is loaded, and only partly computed.
 *
 * A range is cached text that is not a prefix: a share of its tokens is computed again, and each
 * token costs some time to load and to move to its place. Tokens between ranges are computed.
 * Ranges of one sequence ascend and do not overlap. Pure functions.
 */
#ifndef KVB_SIM_RANGES_H
#define KVB_SIM_RANGES_H

#include <stdint.h>

struct kvb_step_load;

struct kvb_range {
	uint32_t from, to;   /* tokens [from, to) */
	double weight;       /* share of the work of a computed token, 0 to 1 */
	double ns_per_token; /* simulated time in addition to that work */
};

/*
 * How far a sequence comes from its token `from`, at most to `end`, with work of `budget` tokens,
 * at least 1: the number of tokens. *cost: the work, rounded up, at most the budget. At least one
 * token is taken if there is one.
 */
uint32_t kvb_ranges_take(const struct kvb_range *ranges, uint32_t count, uint32_t from,
	uint32_t end, uint32_t budget, uint32_t *cost);

/* Adds to a step the cost of tokens [from, to). Returns how many of them are in ranges. */
uint32_t kvb_ranges_load(const struct kvb_range *ranges, uint32_t count, uint32_t from, uint32_t to,
	struct kvb_step_load *load);

#endif
