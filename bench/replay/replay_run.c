/*
 * replay_run.c - the loop over arrivals and steps.
 *
 * Whatever comes next in simulated time happens next: the end of a worker's step, or a job that
 * is due. Everything of one moment happens before idle workers begin their next step, so requests
 * that arrive together can share one. Jobs with a time of their own are in order already; those
 * that follow another's end wait in a heap.
 */
#include "bench/replay/replay_run.h"

#include <assert.h>
#include <stdlib.h>

#include "bench/load/mem.h"
#include "bench/replay/replay_count.h"

#define MOST_RETRIES 5u

/* A job that became due by another's end. */
struct due {
	int64_t ns;
	uint32_t job;
};

/* A job's first or last token in a step, which is reported to the admission later. */
struct noted {
	uint32_t job;
	bool first, last;
};

struct run {
	struct kvb_fleet *fleet;
	const struct kvb_jobs *jobs;
	const struct kvb_policy *policy;
	void *state;
	const struct kvb_admission *admission;
	void *gate; /* the admission's state; NULL: none */
	double late;
	int64_t now_ns;
	size_t next;      /* number of the next job that is due by itself */
	struct due *heap; /* earliest first; equal ones by job */
	size_t heap_count;
	/* tokens of the step that has ended; with room for each sequence of a worker */
	struct noted *noted;
	size_t noted_count;
	uint64_t random; /* random state for the pauses of clients that come back */
	struct kvb_scaler *scaler; /* NULL: the number of workers is fixed */
	struct kvb_tally tally;
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

	if (!first && !last) {
		if (run->policy->ops->prefilled != NULL)
			run->policy->ops->prefilled(run->state, job, run->now_ns);
		kvb_fleet_hand_over(run->fleet, job, run->now_ns);
		return;
	}
	if (first && routed && run->policy->ops->first_token != NULL)
		run->policy->ops->first_token(run->state, job, run->now_ns);
	if (last && routed && run->policy->ops->done != NULL)
		run->policy->ops->done(run->state, job, run->now_ns);
	if (run->gate != NULL && routed && run->admission->ops->token != NULL) {
		assert(run->noted_count < run->fleet->options.max_seqs);
		run->noted[run->noted_count++] = (struct noted){job, first, last};
	}
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

static uint32_t pick(struct run *run, uint32_t job)
{
	uint32_t worker = run->jobs->items[job].direct;

	return worker == KVB_ROUTED ? run->policy->ops->pick(run->state, job, run->now_ns) : worker;
}

/*
 * How long a refused client waits before it comes back: what it is asked to, or else twice as long
 * each time, half a second first and eight at most, as the OpenAI client does. By at most half of
 * that off, so that not all come back together.
 */
static int64_t retry_wait_ns(struct run *run, uint32_t refusals, int64_t retry_after_ns)
{
	double wait_ns = (double)retry_after_ns;

	if (retry_after_ns <= 0)
		wait_ns = refusals < 5 ? 0.5e9 * (double)(1u << (refusals - 1)) : 8e9;
	return 1 + (int64_t)(wait_ns * (0.5 + kvb_random(&run->random)));
}

/*
 * A client that has come back too often gives up, and with it all that would have followed. Where
 * clients do not come back, what would have followed the answer follows the refusal.
 */
static void refuse(struct run *run, const struct kvb_admission_answer *answer)
{
	const struct kvb_job *job = &run->jobs->items[answer->job];
	struct kvb_course *course = &run->fleet->courses[answer->job];

	kvb_tally_refusal(&run->tally, job, course, run->now_ns);
	course->refusals++;
	if (run->jobs->retry && course->refusals <= MOST_RETRIES) {
		int64_t wait_ns = retry_wait_ns(run, course->refusals, answer->retry_after_ns);

		heap_push(run, (struct due){run->now_ns + wait_ns, answer->job});
		return;
	}
	course->refused = true;
	course->end_ns = run->now_ns;
	if (job->next != KVB_NO_JOB && !run->jobs->retry)
		heap_push(run,
			(struct due){run->now_ns + run->jobs->items[job->next].due_ns, job->next});
}

/* Sends the job to the worker, or first to another one that prefills for it. */
static void give(struct run *run, uint32_t job, uint32_t worker)
{
	uint32_t prefiller = KVB_ROUTED;

	if (run->policy->ops->prefiller != NULL && run->jobs->items[job].direct == KVB_ROUTED)
		prefiller = run->policy->ops->prefiller(run->state, job);
	if (prefiller == KVB_ROUTED)
		kvb_fleet_send(run->fleet, job, worker, run->now_ns);
	else
		kvb_fleet_send_parted(run->fleet, job, worker, prefiller, run->now_ns);
}

/* Returns false if the worker does not accept the request. */
static bool send(struct run *run, uint32_t job)
{
	const struct kvb_admission_ops *ops = run->admission->ops;
	uint32_t worker = pick(run, job);

	if (ops->takes != NULL && !ops->takes(run->gate, job, worker))
		return false;
	if (ops->sent != NULL)
		ops->sent(run->gate, job, run->now_ns);
	give(run, job, worker);
	return true;
}

/* Sends the requests that the admission lets go on. */
static void admit(struct run *run)
{
	struct kvb_admission_answer answer = {0};
	enum kvb_word word;

	if (run->gate == NULL)
		return;
	while ((word = run->admission->ops->next(run->gate, run->now_ns, &answer)) != KVB_NOTHING) {
		assert(run->fleet->courses[answer.job].waiting);
		run->fleet->courses[answer.job].waiting = false;
		if (word == KVB_REFUSE || !send(run, answer.job))
			refuse(run, &answer);
		answer = (struct kvb_admission_answer){0};
	}
}

static void arrive(struct run *run, uint32_t job)
{
	struct kvb_course *course = &run->fleet->courses[job];

	if (!course->came)
		course->due_ns = run->now_ns;
	course->came = true;
	course->asked_ns = run->now_ns;
	if (run->gate == NULL || run->jobs->items[job].direct != KVB_ROUTED) {
		give(run, job, pick(run, job));
		return;
	}
	course->waiting = true;
	run->admission->ops->arrive(run->gate, job, run->now_ns);
	/* Requests of one moment come one after the other. */
	admit(run);
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
	if (kvb_loads_next_ns(&run->fleet->loads) < next)
		next = kvb_loads_next_ns(&run->fleet->loads);
	if (run->gate != NULL) {
		int64_t wake = run->admission->ops->wake_ns(run->gate, run->now_ns);

		assert(wake > run->now_ns);
		next = wake < next ? wake : next;
	}
	/* An autoscaler alone does not go on. */
	if (run->scaler != NULL && kvb_scaler_next_ns(run->scaler) < next && next != INT64_MAX)
		next = kvb_scaler_next_ns(run->scaler);
	return next;
}

/* The admission hears of the streams that a step gave a further token before it hears of those that
 * the step began. */
static void step_over(struct run *run, uint32_t worker)
{
	const struct kvb_fleet_worker *w = &run->fleet->workers[worker];

	run->noted_count = 0;
	kvb_fleet_step_over(run->fleet, worker, on_token, run);
	if (run->gate != NULL && run->admission->ops->step != NULL && w->decoded > 0)
		run->admission->ops->step(
			run->gate, worker, w->until_ns - w->began_ns, w->decoded, run->now_ns);
	for (size_t i = 0; i < run->noted_count; i++) {
		const struct noted *token = &run->noted[i];

		run->admission->ops->token(run->gate, token->job, token->first, token->last, run->now_ns);
	}
}

static void play(struct run *run)
{
	uint32_t workers = run->fleet->options.workers;

	while ((run->now_ns = next_moment(run)) != INT64_MAX) {
		for (uint32_t w = 0; w < workers; w++)
			if (run->fleet->workers[w].busy &&
				run->fleet->workers[w].until_ns == run->now_ns)
				step_over(run, w);
		kvb_fleet_loaded(run->fleet, run->now_ns);
		if (run->scaler != NULL)
			kvb_scaler_turn(run->scaler, run->now_ns);
		while (next_due(run) == run->now_ns)
			arrive(run, (uint32_t)run->next++);
		while (run->heap_count > 0 && run->heap[0].ns == run->now_ns)
			arrive(run, heap_pop(run));
		admit(run);
		for (uint32_t w = 0; w < workers; w++)
			kvb_fleet_wake(run->fleet, w, run->now_ns);
	}
}

/* Returns when the last job of a time of its own comes. */
static int64_t last_due(const struct run *run)
{
	size_t last = run->jobs->count;

	while (last > 0 && run->jobs->items[last - 1].follows)
		last--;
	return last > 0 ? (int64_t)((double)run->jobs->items[last - 1].due_ns * run->late) : 0;
}

static void count_cost(const struct run *run, struct kvb_replay_result *result)
{
	result->workers_most = run->fleet->options.workers;
	result->worker_hours = (double)last_due(run) * result->workers_most / 3600e9;
	if (run->scaler != NULL)
		result->worker_hours =
			kvb_scaler_worker_ns(run->scaler, &result->workers_most) / 3600e9;
}

struct kvb_replay_result kvb_replay_run(const struct kvb_fleet_options *options,
	const struct kvb_jobs *jobs, double late, const struct kvb_policy *policy,
	const struct kvb_admission *admission, const struct kvw_config *config, uint64_t seed)
{
	struct kvb_fleet *fleet = kvb_fleet_create(options, jobs);
	struct kvb_policy_env env = {fleet, config, seed, policy->param};
	struct run run = {.fleet = fleet,
		.jobs = jobs,
		.policy = policy,
		.state = policy->ops->create(&env),
		.admission = admission,
		.late = late,
		.random = kvb_mix(~seed),
		.heap = kvb_alloc(jobs->count, sizeof(struct due)),
		.noted = kvb_alloc(options->max_seqs, sizeof(struct noted))};
	struct kvb_admission_env gate = {
		fleet, policy, run.state, config, admission != NULL ? admission->param : 0};
	struct kvb_replay_result result;

	if (admission != NULL && admission->ops != NULL)
		run.gate = admission->ops->create(&gate);
	if (options->scale.signal != NULL)
		run.scaler = kvb_scaler_create(fleet, run.gate, last_due(&run));
	play(&run);
	result = kvb_replay_count(fleet, policy, run.state, &run.tally);
	count_cost(&run, &result);
	kvb_scaler_destroy(run.scaler);
	if (run.gate != NULL)
		admission->ops->destroy(run.gate);
	policy->ops->destroy(run.state);
	free(run.noted);
	free(run.heap);
	kvb_fleet_destroy(fleet);
	return result;
}

void kvb_replay_result_finish(struct kvb_replay_result *result)
{
	free(result->share);
	*result = (struct kvb_replay_result){0};
}
