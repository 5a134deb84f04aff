/*
 * admission_engine.c - a worker refuses what finds its own queue full, as SGLang does.
 *
 * The router sends every request at once; the worker that it chose refuses it if so many wait
 * there already.
 */
#include "bench/load/mem.h"
#include "bench/replay/replay_admission.h"

#include <stdlib.h>

struct gate {
	const struct kvb_fleet *fleet;
	uint32_t most;  /* the parameter in admissions.def */
	uint32_t *jobs; /* jobs that came at this moment, in their order */
	uint32_t first, count;
};

static void *create(const struct kvb_admission_env *env)
{
	struct gate *gate = kvb_alloc(1, sizeof(*gate));

	gate->fleet = env->fleet;
	gate->most = (uint32_t)env->param;
	gate->jobs = kvb_alloc(env->fleet->jobs->count, sizeof(gate->jobs[0]));
	return gate;
}

static void arrive(void *self, uint32_t job, int64_t now_ns)
{
	struct gate *gate = self;

	(void)now_ns;
	gate->jobs[gate->count++] = job;
}

static enum kvb_word next(void *self, int64_t now_ns, struct kvb_admission_answer *out)
{
	struct gate *gate = self;

	(void)now_ns;
	if (gate->first == gate->count) {
		gate->first = gate->count = 0;
		return KVB_NOTHING;
	}
	out->job = gate->jobs[gate->first++];
	return KVB_SEND;
}

static bool takes(void *self, uint32_t job, uint32_t worker)
{
	const struct gate *gate = self;
	struct kvb_engine_stats stats;

	(void)job;
	kvb_engine_stats(gate->fleet->workers[worker].engine, &stats);
	return stats.waiting < gate->most;
}

static int64_t wake_ns(void *self, int64_t now_ns)
{
	(void)self;
	(void)now_ns;
	return INT64_MAX;
}

static void destroy(void *self)
{
	free(((struct gate *)self)->jobs);
	free(self);
}

const struct kvb_admission_ops kvb_admission_engine_ops = {.create = create,
	.arrive = arrive,
	.next = next,
	.takes = takes,
	.wake_ns = wake_ns,
	.destroy = destroy};
