/*
 * admission_llmd.c - llm-d's flow control: requests queue while the pool is saturated.
 *
 * The pool's saturation is the mean over the workers of the larger of two ratios: waiting requests
 * to 5, and the share of the KV cache in use to 0.8. Below 1 the next request goes on: the oldest of
 * the highest class that has any. One that has waited longer than its time to live is refused when
 * the queues are next looked through, once a second. llm-d reads the figures every 50 ms; here it
 * sees them as they are.
 */
#include "bench/load/mem.h"
#include "bench/replay/replay_admission.h"

#include <math.h>
#include <stdlib.h>

#define WAITING   5.0 /* queueDepthThreshold */
#define KV_USED   0.8 /* kvCacheUtilThreshold */
#define SECOND_NS INT64_C(1000000000)

/* Requests of one class, oldest first; a ring with room for all jobs. */
struct band {
	uint32_t *jobs;
	uint32_t first, count;
};

struct gate {
	const struct kvb_fleet *fleet;
	struct band bands[KVB_CLASSES];
	uint32_t room;
	int64_t live_ns; /* the parameter in admissions.def, in seconds */
};

static void *create(const struct kvb_admission_env *env)
{
	struct gate *gate = kvb_alloc(1, sizeof(*gate));

	gate->fleet = env->fleet;
	gate->room = (uint32_t)env->fleet->jobs->count;
	gate->live_ns = (int64_t)(env->param * 1e9);
	for (uint32_t c = 0; c < KVB_CLASSES; c++)
		gate->bands[c].jobs = kvb_alloc(gate->room, sizeof(gate->bands[c].jobs[0]));
	return gate;
}

static void arrive(void *self, uint32_t job, int64_t now_ns)
{
	struct gate *gate = self;
	struct band *band = &gate->bands[gate->fleet->jobs->items[job].class];

	(void)now_ns;
	band->jobs[(band->first + band->count++) % gate->room] = job;
}

static uint32_t take_oldest(const struct gate *gate, struct band *band)
{
	uint32_t job = band->jobs[band->first];

	band->first = (band->first + 1) % gate->room;
	band->count--;
	return job;
}

/* Returns when the oldest request of a band is refused. */
static int64_t dead_ns(const struct gate *gate, const struct band *band)
{
	int64_t came_ns = gate->fleet->courses[band->jobs[band->first]].asked_ns;

	return (came_ns + gate->live_ns + SECOND_NS - 1) / SECOND_NS * SECOND_NS;
}

static double saturation(const struct gate *gate)
{
	uint32_t workers = gate->fleet->options.workers;
	double sum = 0;

	for (uint32_t w = 0; w < workers; w++) {
		struct kvb_engine_stats stats;

		kvb_engine_stats(gate->fleet->workers[w].engine, &stats);
		sum += fmax(stats.waiting / WAITING,
			(double)stats.blocks_used / stats.blocks_usable / KV_USED);
	}
	return sum / workers;
}

static enum kvb_word next(void *self, int64_t now_ns, struct kvb_admission_answer *out)
{
	struct gate *gate = self;
	struct band *highest = NULL;

	for (uint32_t c = 0; c < KVB_CLASSES; c++) {
		struct band *band = &gate->bands[c];

		if (band->count > 0 && dead_ns(gate, band) <= now_ns) {
			out->job = take_oldest(gate, band);
			return KVB_REFUSE;
		}
		if (band->count > 0 && highest == NULL)
			highest = band;
	}
	if (highest == NULL || saturation(gate) >= 1)
		return KVB_NOTHING;
	out->job = take_oldest(gate, highest);
	return KVB_SEND;
}

static int64_t wake_ns(void *self, int64_t now_ns)
{
	struct gate *gate = self;
	int64_t wake = INT64_MAX;

	(void)now_ns;
	for (uint32_t c = 0; c < KVB_CLASSES; c++)
		if (gate->bands[c].count > 0 && dead_ns(gate, &gate->bands[c]) < wake)
			wake = dead_ns(gate, &gate->bands[c]);
	return wake;
}

static void destroy(void *self)
{
	struct gate *gate = self;

	for (uint32_t c = 0; c < KVB_CLASSES; c++)
		free(gate->bands[c].jobs);
	free(gate);
}

const struct kvb_admission_ops kvb_admission_llmd_ops = {
	.create = create, .arrive = arrive, .next = next, .wake_ns = wake_ns, .destroy = destroy};
