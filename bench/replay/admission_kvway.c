/*
 * admission_kvway.c - the router's own admission (src/router/admission), called as the proxy calls it.
 *
 * One loop and one model. The promise is what the replay counts as a good answer. A router sees the
 * tokens of streams; here the steps of engines show the same.
 */
#include <math.h>
#include <stdlib.h>

#include "admission/gate.h"
#include "base/clock.h"
#include "bench/load/mem.h"
#include "bench/replay/policy_kvway.h"
#include "bench/replay/replay_admission.h"

#define LOOK_NS 10000000 /* how often programs are counted */

struct gate {
	const struct kvb_fleet *fleet;
	void *policy;
	struct kvw_admission *admission;
	struct kvw_gate gate;
	struct kvw_outlooks outlooks;
	struct kvw_entrant *entrants; /* by job */
	struct kvw_cost *costs;
	int64_t looked_ns;
	struct kvw_scale scale; /* as one loop counts it, and the control thread samples */
	struct kvw_scale_window window;
	struct kvw_bounds bounds;
	uint32_t at_once; /* job that need not wait, to be sent next; KVB_NO_JOB: none */
	/* sent to the worker that the gate has chosen, not to the strategy's choice */
	bool placed;
};

static void *create(const struct kvb_admission_env *env)
{
	struct gate *g = kvb_alloc(1, sizeof(*g));

	g->fleet = env->fleet;
	g->policy = env->policy_state;
	g->admission = kvw_admission_create(65536);
	if (g->admission == NULL)
		abort();
	kvw_gate_init(&g->gate, g->admission, &g->outlooks);
	g->gate.terms = (struct kvw_gate_terms){
		.max_wait_ns = env->config->admission_max_wait_ms * KVW_NS_PER_MS,
		.ahead_ns = env->config->admission_worker_queue_ms * KVW_NS_PER_MS,
	};
	g->entrants = kvb_alloc(env->fleet->jobs->count, sizeof(g->entrants[0]));
	g->costs = kvb_alloc(env->fleet->options.workers, sizeof(g->costs[0]));
	g->at_once = KVB_NO_JOB;
	kvw_scale_bounds(&g->bounds);
	return g;
}

struct kvw_admission *kvb_admission_kvway_shared(void *self)
{
	return ((struct gate *)self)->admission;
}

double kvb_admission_kvway_predicted(void *self, double quantile, int64_t now_ns)
{
	struct gate *g = self;
	struct kvw_histogram_sum all = {0};

	kvw_histogram_collect(&g->scale.ratios, &all);
	return kvw_scale_quantile(&g->window, &all, &g->bounds, quantile, now_ns);
}

size_t kvb_admission_kvway_waiting(void *self)
{
	return kvw_gate_waiting(&((struct gate *)self)->gate);
}

/* As src/router/proxy/predicted.c. */
static void count(struct gate *g, const struct kvw_entrant *e, struct kvw_scale_prediction prediction)
{
	prediction.ns[KVW_SCALE_PROMISED] = kvw_promise_first_ns(&e->promise, e->tokens);
	kvw_scale_count(&g->scale, &g->bounds, &prediction);
}

static uint32_t job_of(const struct gate *g, const struct kvw_entrant *e)
{
	return (uint32_t)(e - g->entrants);
}

static bool judge(void *user, struct kvw_entrant *e, int64_t now_ns)
{
	struct gate *g = user;
	struct kvw_candidates set = kvb_kvway_candidates(g->policy);
	struct kvw_decision wish;

	kvb_kvway_explain(g->policy, job_of(g, e), now_ns, g->costs, &wish);
	return kvw_gate_judge(&g->gate, e, &set, g->costs, &wish, now_ns);
}

/* Does what src/router/proxy/admit.c does: the request goes on at once, to the strategy's or the
 * gate's worker, or it waits. */
static void arrive(void *self, uint32_t job, int64_t now_ns)
{
	struct gate *g = self;
	struct kvw_entrant *e = &g->entrants[job];
	struct kvw_candidates set = kvb_kvway_candidates(g->policy);

	*e = (struct kvw_entrant){
		.wait.came_ns = now_ns,
		.promise = {(int64_t)(kvb_replay_slo.ttft_s * 1e9),
			(int64_t)(1e12 / kvb_replay_slo.tokens_per_s),
			(int64_t)(kvb_replay_slo.tpot_s * 1e9)},
		.tokens = kvb_kvway_tokens(g->policy, job),
		.wait.class = g->fleet->jobs->items[job].class,
		.shows = true,
	};
	e->turn = kvb_kvway_turn(g->policy, job, g->admission->programs);
	g->at_once = job;
	g->placed = false;
	if (kvw_gate_waiting(&g->gate) == 0 && kvw_gate_open(&g->gate, e, &set, now_ns))
		return;
	if (!judge(g, e, now_ns))
		abort();
	g->placed = true;
	if (kvw_gate_waiting(&g->gate) == 0 && e->wait_ns == 0)
		return;
	g->at_once = KVB_NO_JOB;
	count(g, e, kvw_gate_predict(&g->gate, e, 1, now_ns));
	if (kvw_gate_wait(&g->gate, e, now_ns) != KVW_OK)
		abort();
}

static void look(struct gate *g, int64_t now_ns)
{
	uint32_t workers = g->fleet->options.workers, live = 0;
	struct kvw_histogram_sum all = {0};

	for (uint32_t w = 0; w < workers; w++)
		live += g->fleet->workers[w].state == KVB_SERVES;
	kvw_admission_look(g->admission, workers, live, now_ns);
	if (now_ns - g->looked_ns < LOOK_NS)
		return;
	g->looked_ns = now_ns;
	kvw_programs_look(g->admission->programs, kvw_admission_full(g->admission), now_ns);
	kvw_histogram_collect(&g->scale.ratios, &all);
	kvw_scale_sample(&g->window, &all, now_ns);
}

static enum kvb_word next(void *self, int64_t now_ns, struct kvb_admission_answer *out)
{
	struct gate *g = self;
	struct kvw_entrant *e = NULL;
	enum kvw_next word = KVW_NOTHING;

	look(g, now_ns);
	if (g->at_once != KVB_NO_JOB) {
		out->job = g->at_once;
		if (g->placed)
			kvb_kvway_force(g->policy, g->entrants[out->job].wait.worker);
		g->at_once = KVB_NO_JOB;
		return KVB_SEND;
	}
	word = kvw_gate_next(&g->gate, now_ns, judge, g, &e);
	if (word == KVW_NOTHING)
		return KVB_NOTHING;
	out->job = job_of(g, e);
	if (word == KVW_REFUSE) {
		out->retry_after_ns = e->retry_after_ns;
		return KVB_REFUSE;
	}
	kvb_kvway_force(g->policy, e->wait.worker);
	return KVB_SEND;
}

static int64_t wake(void *self, int64_t now_ns)
{
	const struct kvw_gate *gate = &((struct gate *)self)->gate;

	/* An empty gate has timers only for reports to other loops, and here is one loop. */
	return kvw_gate_waiting(gate) > 0 ? kvw_gate_wake_ns(gate, now_ns) : INT64_MAX;
}

static void sent(void *self, uint32_t job, int64_t now_ns)
{
	struct gate *g = self;
	struct kvw_entrant *e = &g->entrants[job];
	bool waited = e->offered;

	kvw_gate_passed(&g->gate, e, kvb_kvway_decision(g->policy, job), now_ns);
	if (!waited)
		count(g, e, kvw_gate_predicted(e));
}

static void token(void *self, uint32_t job, bool first, bool last, int64_t now_ns)
{
	struct gate *g = self;

	if (first) {
		kvw_gate_first_token(&g->gate, &g->entrants[job], true, now_ns);
		kvw_gate_follows(&g->gate, &g->entrants[job]);
	}
	if (last)
		kvw_gate_ended(&g->gate, &g->entrants[job], now_ns);
}

/* Reports a step's tokens to the gate, as the proxy does for every stream. */
static void step(void *self, uint32_t worker, int64_t ns, uint32_t decoded, int64_t now_ns)
{
	struct gate *g = self;
	struct kvw_entrant any = {.wait.worker = worker,
		.promise.tpot_ns = (int64_t)(kvb_replay_slo.tpot_s * 1e9)};

	for (uint32_t i = 0; i < decoded; i++)
		kvw_gate_token(&g->gate, &any, ns, now_ns);
}

static void destroy(void *self)
{
	struct gate *g = self;


	kvw_gate_finish(&g->gate);
	kvw_admission_destroy(g->admission);
	free(g->entrants);
	free(g->costs);
	free(g);
}

const struct kvb_admission_ops kvb_admission_kvway_ops = {
	.create = create,
	.arrive = arrive,
	.next = next,
	.wake_ns = wake,
	.sent = sent,
	.token = token,
	.step = step,
	.destroy = destroy,
};
