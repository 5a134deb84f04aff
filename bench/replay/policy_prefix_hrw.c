/*
 * policy_prefix_hrw.c - rendezvous hash of a prompt's beginning, with bounded loads.
 *
 * Workers are ranked by a hash of the first four blocks of the prompt; the first in rank that has
 * fewer than ceil(c * mean) requests in flight, this one counted, gets it. There always is one.
 */
#include "bench/load/mem.h"
#include "bench/replay/replay_policy.h"

#include <math.h>
#include <stdlib.h>

#define PREFIX_IDS 4

struct prefix_hrw {
	const struct kvb_fleet *fleet;
	double bound;
};

static void *create(const struct kvb_policy_env *env)
{
	struct prefix_hrw *ph = kvb_alloc(1, sizeof(*ph));

	ph->fleet = env->fleet;
	ph->bound = env->param;
	return ph;
}

static uint32_t pick(void *self, uint32_t job, int64_t now_ns)
{
	struct prefix_hrw *ph = self;
	const struct kvb_fleet *fleet = ph->fleet;
	const struct kvb_job *j = &fleet->jobs->items[job];
	uint64_t key = j->ids[(j->id_count < PREFIX_IDS ? j->id_count : PREFIX_IDS) - 1];
	uint32_t workers = fleet->options.workers;
	uint64_t best_score = 0;
	uint32_t best = 0;
	double total = 1;
	double most;

	(void)now_ns;
	for (uint32_t w = 0; w < workers; w++)
		total += fleet->workers[w].sent.inflight;
	most = ceil(ph->bound * total / workers);
	for (uint32_t w = 0; w < workers; w++) {
		uint64_t score = kvb_mix(key ^ kvb_mix(w));

		if (fleet->workers[w].sent.inflight < most && score >= best_score) {
			best = w;
			best_score = score;
		}
	}
	return best;
}

const struct kvb_policy_ops kvb_prefix_hrw_ops = {.create = create, .pick = pick, .destroy = free};
