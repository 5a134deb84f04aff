/*
 * replay_run.c - the loop over arrivals and steps, and what is counted.
 *
 * Whatever comes next in simulated time happens next: the end of a worker's step, or a job that
 * is due. Everything of one moment happens before idle workers begin their next step, so requests
 * that arrive together can share one. Jobs with a time of their own are in order already; those
 * that follow another's end wait in a heap.
 */
#include "bench/replay/replay_run.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "bench/load/mem.h"
#include "bench/load/stats.h"

const struct kvb_replay_slo kvb_replay_slo = {2.0, 8192.0, 0.1};

/* A job that became due by another's end. */
struct due {
	int64_t ns;
	uint32_t job;
};

struct run {
	struct kvb_fleet *fleet;
	const struct kvb_jobs *jobs;
	const struct kvb_policy *policy;
	void *state;
	double late;
	int64_t now_ns;
	size_t next;      /* of the jobs with a time of their own */
	struct due *heap; /* earliest first; equal ones by job */
	size_t heap_count;
};

static bool earlier(const struct due *a, const struct due *b)
{
	return a->ns != b->ns ? a->ns < b->ns : a->job < b->job;
}

static void heap_push(struct run *run, struct due due)
{
	size_t i = run->heap_count++;

	for (; i > 0 && earlier(&due, &run->heap[(i - 1) / 2]); i = (i - 1) / 2)
		run->heap[i] = run->heap[(i - 1) / 2];
	run->heap[i] = due;
}

static uint32_t heap_pop(struct run *run)
{
	uint32_t job = run->heap[0].job;
	struct due last = run->heap[--run->heap_count];
	size_t i = 0;

	for (;;) {
		size_t child = 2 * i + 1;

		if (child + 1 < run->heap_count &&
			earlier(&run->heap[child + 1], &run->heap[child]))
			child++;
		if (child >= run->heap_count || !earlier(&run->heap[child], &last))
			break;
		run->heap[i] = run->heap[child];
		i = child;
	}
	run->heap[i] = last;
	return job;
}

static void on_token(void *user, uint32_t job, bool first, bool last)
{
	struct run *run = user;
	uint32_t next = run->jobs->items[job].next;
	bool routed = run->jobs->items[job].direct == KVB_ROUTED;

	if (first && routed && run->policy->ops->first_token != NULL)
		run->policy->ops->first_token(run->state, job, run->now_ns);
	if (last && routed && run->policy->ops->done != NULL)
		run->policy->ops->done(run->state, job, run->now_ns);
	if (last && next != KVB_NO_JOB)
		heap_push(run, (struct due){run->now_ns + run->jobs->items[next].due_ns, next});
}

/* Moves past jobs that follow others and returns when the next one is due by itself. */
static int64_t next_due(struct run *run)
{
	while (run->next < run->jobs->count && run->jobs->items[run->next].follows)
		run->next++;
	if (run->next == run->jobs->count)
		return INT64_MAX;
	return (int64_t)((double)run->jobs->items[run->next].due_ns * run->late);
}

static void send(struct run *run, uint32_t job)
{
	uint32_t worker = run->jobs->items[job].direct;

	if (worker == KVB_ROUTED)
		worker = run->policy->ops->pick(run->state, job, run->now_ns);
	kvb_fleet_send(run->fleet, job, worker, run->now_ns);
}

/* The next moment at which something happens; INT64_MAX: nothing will. */
static int64_t next_moment(struct run *run)
{
	int64_t next = next_due(run);

	if (run->heap_count > 0 && run->heap[0].ns < next)
		next = run->heap[0].ns;
	for (uint32_t w = 0; w < run->fleet->options.workers; w++)
		if (run->fleet->workers[w].busy && run->fleet->workers[w].until_ns < next)
			next = run->fleet->workers[w].until_ns;
	return next;
}

static void play(struct run *run)
{
	uint32_t workers = run->fleet->options.workers;

	while ((run->now_ns = next_moment(run)) != INT64_MAX) {
		for (uint32_t w = 0; w < workers; w++)
			if (run->fleet->workers[w].busy &&
				run->fleet->workers[w].until_ns == run->now_ns)
				kvb_fleet_step_over(run->fleet, w, on_token, run);
		while (next_due(run) == run->now_ns)
			send(run, (uint32_t)run->next++);
		while (run->heap_count > 0 && run->heap[0].ns == run->now_ns)
			send(run, heap_pop(run));
		for (uint32_t w = 0; w < workers; w++)
			kvb_fleet_wake(run->fleet, w, run->now_ns);
	}
}

/* What scenarios are about: the stalled worker, and how far the first prompt has spread. */
static void count_odd(const struct run *run, struct kvb_replay_result *result)
{
	const struct kvb_oddity *odd = &run->fleet->options.odd;
	const struct kvb_job *first = &run->jobs->items[0];
	size_t came = 0;
	size_t there = 0;

	for (size_t j = 0; j < run->jobs->count; j++) {
		const struct kvb_course *c = &run->fleet->courses[j];

		if (run->jobs->items[j].direct != KVB_ROUTED)
			continue;
		if (c->due_ns < odd->stall_begin_ns || c->due_ns >= odd->stall_end_ns)
			continue;
		came++;
		there += c->worker == 0;
	}
	result->odd_share = came > 0 ? (double)there / (double)came : 0;
	for (uint32_t w = 0; w < run->fleet->options.workers; w++)
		result->holders += kvb_fleet_hit(run->fleet, w, first) > first->input / 2;
}

static void count_workers(const struct run *run, struct kvb_replay_result *result)
{
	uint32_t workers = run->fleet->options.workers;
	double most = 0;
	double sum = 0;

	result->share = kvb_alloc(workers, sizeof(result->share[0]));
	for (size_t j = 0; j < run->jobs->count; j++)
		if (run->jobs->items[j].direct == KVB_ROUTED)
			result->share[run->fleet->courses[j].worker] +=
				1.0 / (double)result->requests;
	for (uint32_t w = 0; w < workers; w++) {
		struct kvb_engine_stats stats;

		kvb_engine_stats(run->fleet->workers[w].engine, &stats);
		result->preemptions += stats.preemptions;
		sum += (double)stats.busy_ns;
		most = fmax(most, (double)stats.busy_ns);
	}
	count_odd(run, result);
	result->imbalance = sum > 0 ? most * workers / sum : 1;
}

/* Did the policy know what the engine would reuse? */
static bool was_foretold(const struct run *run, uint32_t job)
{
	double told = run->policy->ops->foretold(run->state, job);

	return fabs(told - run->fleet->courses[job].cached) <= run->fleet->options.block_size;
}

static struct kvb_replay_result count(const struct run *run)
{
	struct kvb_replay_result result = {.foretold = NAN};
	struct kvb_samples ttft = {0};
	struct kvb_samples tpot = {0};
	struct kvb_samples e2e = {0};
	double prompt = 0;
	double cached = 0;
	size_t good = 0;
	size_t foretold = 0;

	for (size_t j = 0; j < run->jobs->count; j++) {
		const struct kvb_course *c = &run->fleet->courses[j];
		const struct kvb_job *job = &run->jobs->items[j];
		double first_s = (double)(c->first_ns - c->due_ns) / 1e9;
		double rest_s = (double)(c->end_ns - c->first_ns) / 1e9;
		double each_s = job->output > 1 ? rest_s / (job->output - 1) : 0;

		assert(c->ended);
		if (job->direct != KVB_ROUTED)
			continue;
		result.requests++;
		if (run->policy->ops->foretold != NULL)
			foretold += was_foretold(run, (uint32_t)j);
		kvb_samples_add(&ttft, first_s);
		kvb_samples_add(&e2e, first_s + rest_s);
		if (job->output > 1)
			kvb_samples_add(&tpot, each_s);
		good += first_s <
				kvb_replay_slo.ttft_s + job->input / kvb_replay_slo.tokens_per_s &&
			each_s < kvb_replay_slo.tpot_s;
		prompt += job->input;
		cached += c->cached;
		result.last_s = fmax(result.last_s, (double)c->end_ns / 1e9);
	}
	result.cached_share = cached / prompt;
	result.ttft_mean = kvb_samples_mean(&ttft);
	result.ttft_p50 = kvb_samples_percentile(&ttft, 50);
	result.ttft_p90 = kvb_samples_percentile(&ttft, 90);
	result.ttft_p99 = kvb_samples_percentile(&ttft, 99);
	result.tpot_mean = kvb_samples_mean(&tpot);
	result.e2e_mean = kvb_samples_mean(&e2e);
	result.e2e_p99 = kvb_samples_percentile(&e2e, 99);
	result.goodput = (double)good / (double)result.requests;
	if (run->policy->ops->foretold != NULL)
		result.foretold = (double)foretold / (double)result.requests;
	count_workers(run, &result);
	kvb_samples_finish(&ttft);
	kvb_samples_finish(&tpot);
	kvb_samples_finish(&e2e);
	return result;
}

struct kvb_replay_result kvb_replay_run(const struct kvb_fleet_options *options,
	const struct kvb_jobs *jobs, double late, const struct kvb_policy *policy,
	const struct kvw_config *config, uint64_t seed)
{
	struct kvb_fleet *fleet = kvb_fleet_create(options, jobs);
	struct kvb_policy_env env = {fleet, config, seed, policy->param};
	struct run run = {.fleet = fleet,
		.jobs = jobs,
		.policy = policy,
		.state = policy->ops->create(&env),
		.late = late,
		.heap = kvb_alloc(jobs->count, sizeof(struct due))};
	struct kvb_replay_result result;

	play(&run);
	result = count(&run);
	policy->ops->destroy(run.state);
	free(run.heap);
	kvb_fleet_destroy(fleet);
	return result;
}

void kvb_replay_result_finish(struct kvb_replay_result *result)
{
	free(result->share);
	*result = (struct kvb_replay_result){0};
}
