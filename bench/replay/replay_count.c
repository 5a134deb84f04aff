/*
 * replay_count.c - the figures of a replay that is over. Times count from when a request first
 * came.
 */
#include "bench/replay/replay_count.h"

#include <assert.h>
#include <math.h>

#include "bench/load/mem.h"
#include "bench/load/stats.h"

/* a refusal within this time is soon, whatever the deadline */
#define AT_ONCE_NS INT64_C(100000000)

const struct kvb_replay_slo kvb_replay_slo = {2.0, 8192.0, 0.1};

/* Sums from which the result is made. */
struct sums {
	struct kvb_samples ttft, tpot, e2e;
	double prompt, cached; /* tokens */
	size_t good, foretold, answered;
};

void kvb_tally_refusal(struct kvb_tally *tally, const struct kvb_job *job,
	const struct kvb_course *course, int64_t now_ns)
{
	int64_t waited_ns = now_ns - course->asked_ns;
	double beyond_s = (double)waited_ns / 1e9 - kvb_slo_first_s(job->input);

	tally->refusals++;
	tally->slow += waited_ns > AT_ONCE_NS && beyond_s > 0;
	tally->late_s = fmax(tally->late_s, beyond_s);
}

/* Counts the figures of scenarios: requests sent to the stalled worker, workers that hold the first
 * prompt. */
static void count_odd(const struct kvb_fleet *fleet, struct kvb_replay_result *result)
{
	const struct kvb_oddity *odd = &fleet->options.odd;
	const struct kvb_job *first = &fleet->jobs->items[0];
	size_t came = 0;
	size_t there = 0;

	for (size_t j = 0; j < fleet->jobs->count; j++) {
		const struct kvb_course *c = &fleet->courses[j];

		if (fleet->jobs->items[j].direct != KVB_ROUTED || !c->sent)
			continue;
		if (c->due_ns < odd->stall_begin_ns || c->due_ns >= odd->stall_end_ns)
			continue;
		came++;
		there += c->worker == 0;
	}
	result->odd_share = came > 0 ? (double)there / (double)came : 0;
	for (uint32_t w = 0; w < fleet->options.workers; w++)
		result->holders += kvb_fleet_hit(fleet, w, first) > first->input / 2;
}

static void count_workers(const struct kvb_fleet *fleet, struct kvb_replay_result *result)
{
	uint32_t workers = fleet->options.workers;
	double most = 0;
	double sum = 0;

	result->share = kvb_alloc(workers, sizeof(result->share[0]));
	for (size_t j = 0; j < fleet->jobs->count; j++)
		if (fleet->jobs->items[j].direct == KVB_ROUTED && fleet->courses[j].sent)
			result->share[fleet->courses[j].worker] += 1.0 / (double)result->requests;
	for (uint32_t w = 0; w < workers; w++) {
		struct kvb_engine_stats stats;

		kvb_engine_stats(fleet->workers[w].engine, &stats);
		result->preemptions += stats.preemptions;
		sum += (double)stats.busy_ns;
		most = fmax(most, (double)stats.busy_ns);
	}
	count_odd(fleet, result);
	result->busy_share = result->last_s > 0 ? sum / workers / 1e9 / result->last_s : 0;
	result->imbalance = sum > 0 ? most * workers / sum : 1;
}

/* Times of a request in seconds: to the first token, from there to the last one, per further
 * token. */
struct times {
	double first_s, rest_s, each_s;
};

static struct times times_of(const struct kvb_job *job, const struct kvb_course *c)
{
	struct times t = {.first_s = (double)(c->first_ns - c->due_ns) / 1e9,
		.rest_s = (double)(c->end_ns - c->first_ns) / 1e9};

	t.each_s = job->output > 1 ? t.rest_s / (job->output - 1) : 0;
	return t;
}

static bool is_good(const struct kvb_job *job, const struct kvb_course *c)
{
	struct times t = times_of(job, c);

	return c->ended && t.first_s < kvb_slo_first_s(job->input) &&
	       t.each_s < kvb_replay_slo.tpot_s;
}

static void count_answer(const struct kvb_job *job, const struct kvb_course *c, struct sums *sums)
{
	struct times t = times_of(job, c);

	kvb_samples_add(&sums->ttft, t.first_s);
	kvb_samples_add(&sums->e2e, t.first_s + t.rest_s);
	if (job->output > 1)
		kvb_samples_add(&sums->tpot, t.each_s);
	sums->answered++;
	sums->good += is_good(job, c);
	sums->prompt += job->input;
	sums->cached += c->cached;
}

/* Counts one program, from its first job on. */
static void count_program(const struct kvb_fleet *fleet, uint32_t job,
	struct kvb_replay_result *result, size_t *turns, size_t *good)
{
	int64_t until_ns = fleet->jobs->until_ns > 0 ? fleet->jobs->until_ns : INT64_MAX;
	uint32_t last = job;

	result->programs++;
	for (; job != KVB_NO_JOB; job = fleet->jobs->items[job].next) {
		const struct kvb_job *j = &fleet->jobs->items[job];

		last = job;
		if (j->direct != KVB_ROUTED)
			continue;
		*turns += 1;
		*good += is_good(j, &fleet->courses[job]);
		result->programs_given_up += fleet->courses[job].refused && fleet->jobs->retry;
	}
	result->programs_per_hour +=
		fleet->courses[last].ended && fleet->courses[last].end_ns <= until_ns;
}

static void count_programs(const struct kvb_fleet *fleet, struct kvb_replay_result *result)
{
	double until_s =
		fleet->jobs->until_ns > 0 ? (double)fleet->jobs->until_ns / 1e9 : result->last_s;
	size_t turns = 0;
	size_t good = 0;

	if (!kvb_jobs_closed_loop(fleet->jobs)) {
		result->turn_goodput = result->programs = NAN;
		result->programs_per_hour = result->programs_given_up = NAN;
		return;
	}
	for (uint32_t j = 0; j < fleet->jobs->count; j++)
		if (!fleet->jobs->items[j].follows)
			count_program(fleet, j, result, &turns, &good);
	result->turn_goodput = (double)good / (double)turns;
	result->programs_per_hour *= until_s > 0 ? 3600 / until_s : 0;
}

static void count_class(
	const struct kvb_fleet *fleet, uint32_t class, struct kvb_class_result *result)
{
	struct kvb_samples ttft = {0};

	for (size_t j = 0; j < fleet->jobs->count; j++) {
		const struct kvb_course *c = &fleet->courses[j];
		const struct kvb_job *job = &fleet->jobs->items[j];
		int64_t settled_ns = c->refused ? c->end_ns : c->sent_ns;

		if (job->direct != KVB_ROUTED || job->class != class || !c->came)
			continue;
		result->requests++;
		result->goodput += is_good(job, c);
		result->refused_share += c->refused;
		result->wait_max_s =
			fmax(result->wait_max_s, (double)(settled_ns - c->due_ns) / 1e9);
		if (c->ended)
			kvb_samples_add(&ttft, (double)(c->first_ns - c->due_ns) / 1e9);
	}
	result->goodput /= (double)result->requests;
	result->refused_share /= (double)result->requests;
	result->ttft_p99 = kvb_samples_percentile(&ttft, 99);
	kvb_samples_finish(&ttft);
}

static void count_classes(const struct kvb_fleet *fleet, struct kvb_replay_result *result)
{
	result->class_count = 1;
	for (size_t j = 0; j < fleet->jobs->count; j++) {
		assert(fleet->jobs->items[j].class < KVB_CLASSES);
		if (fleet->jobs->items[j].class >= result->class_count)
			result->class_count = fleet->jobs->items[j].class + 1u;
	}
	for (uint32_t c = 0; c < result->class_count; c++)
		count_class(fleet, c, &result->classes[c]);
}

static void count_times(struct sums *sums, struct kvb_replay_result *result)
{
	result->cached_share = sums->cached / sums->prompt;
	result->ttft_mean = kvb_samples_mean(&sums->ttft);
	result->ttft_p50 = kvb_samples_percentile(&sums->ttft, 50);
	result->ttft_p90 = kvb_samples_percentile(&sums->ttft, 90);
	result->ttft_p99 = kvb_samples_percentile(&sums->ttft, 99);
	result->tpot_mean = kvb_samples_mean(&sums->tpot);
	result->tpot_p99 = kvb_samples_percentile(&sums->tpot, 99);
	result->e2e_mean = kvb_samples_mean(&sums->e2e);
	result->e2e_p99 = kvb_samples_percentile(&sums->e2e, 99);
	kvb_samples_finish(&sums->ttft);
	kvb_samples_finish(&sums->tpot);
	kvb_samples_finish(&sums->e2e);
}

/* Returns the time between tokens, in seconds, that this share of all pairs does not exceed. */
static double gap_percentile(const struct kvb_fleet *fleet, double share)
{
	uint64_t all = 0, seen = 0;
	uint32_t g = 0;

	for (uint32_t i = 0; i < KVB_GAPS; i++)
		all += fleet->gaps[i];
	for (; g + 1 < KVB_GAPS; g++)
		if ((double)(seen += fleet->gaps[g]) >= share * (double)all)
			break;
	return all > 0 ? exp2((g + 0.5) / 64) / 1e9 : 0;
}

static void count_refusals(const struct kvb_tally *tally, struct kvb_replay_result *result)
{
	double requests = (double)result->requests;

	result->refused_share /= requests;
	result->refusals = (double)tally->refusals / requests;
	result->refused_late_s = tally->late_s;
	if (tally->refusals > 0)
		result->refused_slow_share = (double)tally->slow / (double)tally->refusals;
}

struct kvb_replay_result kvb_replay_count(const struct kvb_fleet *fleet,
	const struct kvb_policy *policy, void *policy_state, const struct kvb_tally *tally)
{
	struct kvb_replay_result result = {.foretold = NAN};
	struct sums sums = {0};

	for (size_t j = 0; j < fleet->jobs->count; j++) {
		const struct kvb_course *c = &fleet->courses[j];
		const struct kvb_job *job = &fleet->jobs->items[j];

		/* Each job was answered or refused for good, or its program had given up before. */
		assert(!c->waiting && (c->came ? c->ended != c->refused : fleet->jobs->retry));
		if (job->direct != KVB_ROUTED || !c->came)
			continue;
		result.requests++;
		if (c->refused) {
			result.refused_share++;
			continue;
		}
		count_answer(job, c, &sums);
		if (policy->ops->foretold != NULL) {
			double told = policy->ops->foretold(policy_state, (uint32_t)j);

			/* Counts whether the policy predicted what the engine reused. */
			sums.foretold += fabs(told - c->cached) <= fleet->options.block_size;
		}
		result.last_s = fmax(result.last_s, (double)c->end_ns / 1e9);
	}
	count_times(&sums, &result);
	result.gap_p99 = gap_percentile(fleet, 0.99);
	result.pd = fleet->pd.counts;
	result.mp = fleet->mp.counts;
	count_refusals(tally, &result);
	result.goodput = (double)sums.good / (double)result.requests;
	if (policy->ops->foretold != NULL)
		result.foretold = (double)sums.foretold / (double)sums.answered;
	count_programs(fleet, &result);
	count_classes(fleet, &result);
	count_workers(fleet, &result);
	return result;
}
