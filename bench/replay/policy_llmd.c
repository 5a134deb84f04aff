/*
 * policy_llmd.c - llm-d's default: stay where the prefix is, unless that is far behind.
 *
 * Workers that hold at least 0.80 of the prompt's blocks (of the first 131,072 tokens) are sticky.
 * If there are any, only they are considered, unless the least loaded of them is more than the
 * penalty later than the least loaded other, by the tokens in flight and a fixed rate. Among those
 * that are left the fewest tokens win: uncached tokens without a first token, and this request's
 * own. Ties at random.
 */
#include "bench/load/mem.h"
#include "bench/replay/replay_policy.h"

#include <math.h>
#include <stdlib.h>

#define AFFINITY     0.80
#define TOKENS_PER_S 15928.0
#define MATCH_TOKENS 131072u /* most blocks of a prompt that are compared */
#define MATCH_BLOCK  64u     /* tokens */

struct llmd {
	const struct kvb_fleet *fleet;
	uint64_t random;
	double penalty_ms;
};

static void *create(const struct kvb_policy_env *env)
{
	struct llmd *llmd = kvb_alloc(1, sizeof(*llmd));

	llmd->fleet = env->fleet;
	llmd->random = env->seed;
	llmd->penalty_ms = env->param;
	return llmd;
}

static double match_ratio(uint32_t hit, uint32_t input)
{
	uint32_t compared = input < MATCH_TOKENS ? input : MATCH_TOKENS;
	uint32_t blocks = compared / MATCH_BLOCK;
	uint32_t matched = (hit < compared ? hit : compared) / MATCH_BLOCK;

	return blocks > 0 ? (double)matched / blocks : 0;
}

static uint32_t pick(void *self, uint32_t job, int64_t now_ns)
{
	struct llmd *llmd = self;
	const struct kvb_job *j = &llmd->fleet->jobs->items[job];
	uint32_t workers = llmd->fleet->options.workers;
	/* lowest cost of the other workers, and of the sticky ones */
	double best_ms[2] = {INFINITY, INFINITY};
	double costs[KVB_MAX_WORKERS];
	bool sticky[KVB_MAX_WORKERS];

	(void)now_ns;
	for (uint32_t w = 0; w < workers; w++) {
		double waiting = (double)llmd->fleet->workers[w].sent.prefill_tokens;
		uint32_t hit = kvb_fleet_hit(llmd->fleet, w, j);
		double ms = waiting / TOKENS_PER_S * 1000;

		sticky[w] = match_ratio(hit, j->input) >= AFFINITY;
		best_ms[sticky[w]] = fmin(best_ms[sticky[w]], ms);
		costs[w] = waiting + (j->input - hit);
	}
	if (best_ms[true] < INFINITY && best_ms[true] - best_ms[false] <= llmd->penalty_ms)
		for (uint32_t w = 0; w < workers; w++)
			if (!sticky[w])
				costs[w] = INFINITY;
	return kvb_lowest(costs, workers, &llmd->random);
}

const struct kvb_policy_ops kvb_llmd_ops = {.create = create, .pick = pick, .destroy = free};
