/*
 * admission_envoy.c - Envoy's adaptive concurrency: a limit that follows the gradient of latency.
 *
 * What is beyond the limit is refused at once. Now and then the limit falls to its least until so
 * many requests have been answered; their median is the latency without load. Otherwise, at each
 * interval, the limit becomes limit x gradient + sqrt(limit x gradient), the gradient being that
 * latency with a buffer over the interval's median, within 0.5 and 2. A latency is a whole answer's.
 * When the limit has been at its least five times in a row, the latency without load is measured
 * again. Timers are looked at when something happens, in their order, which gives the same.
 */
#include "bench/load/mem.h"
#include "bench/load/stats.h"
#include "bench/replay/replay_admission.h"

#include <math.h>
#include <stdlib.h>

#define SECOND_NS INT64_C(1000000000)
#define BUFFER    1.25 /* min_rtt_calc_params.buffer, 25 % more */
#define JITTER    0.15
#define MOST      1000u
#define SAMPLES   50u

/* The parameter in admissions.def is a row. Intervals have no defaults; the first row has those of
 * the filter's manual. */
static const struct settings {
	uint32_t least; /* min_concurrency, of each worker if each is set */
	bool each;
	int64_t interval_ns; /* concurrency_update_interval */
	int64_t measure_ns;  /* min_rtt_calc_params.interval */
} rows[] = {
	{3, false, SECOND_NS / 10, 60 * SECOND_NS},
	{4, true, 10 * SECOND_NS, 300 * SECOND_NS},
};

struct gate {
	const struct kvb_fleet *fleet;
	struct settings settings;
	struct kvb_samples samples;
	uint64_t random;
	double min_rtt_s;
	int64_t epoch_ns;      /* requests sent before are not measured */
	int64_t sample_due_ns; /* INT64_MAX: no sample is taken */
	int64_t measure_due_ns;
	uint32_t limit, least;
	uint32_t deferred; /* the limit that comes back after a measurement; 0: none is under way */
	uint32_t at_least; /* in a row */
	uint32_t outstanding;
	uint32_t *jobs; /* jobs that came at this moment, in their order */
	uint32_t first, count;
};

static void set_limit(struct gate *gate, uint32_t limit, int64_t now_ns)
{
	if (gate->deferred == 0 && gate->limit == gate->least && limit == gate->least)
		gate->at_least++;
	else
		gate->at_least = 0;
	gate->limit = limit;
	if (gate->at_least >= 5)
		gate->measure_due_ns = now_ns;
}

static void begin_measuring(struct gate *gate, int64_t now_ns)
{
	gate->measure_due_ns = INT64_MAX;
	if (gate->deferred > 0)
		return;
	gate->deferred = gate->limit;
	set_limit(gate, gate->least, now_ns);
	kvb_samples_finish(&gate->samples);
	gate->epoch_ns = now_ns;
}

static double take_median(struct gate *gate)
{
	double median = kvb_samples_percentile(&gate->samples, 50);

	kvb_samples_finish(&gate->samples);
	return median;
}

static void end_measuring(struct gate *gate, int64_t now_ns)
{
	double jitter = JITTER * kvb_random(&gate->random);
	uint32_t limit = gate->deferred;

	gate->min_rtt_s = take_median(gate);
	set_limit(gate, limit, now_ns);
	gate->deferred = 0;
	gate->measure_due_ns = now_ns + (int64_t)((double)gate->settings.measure_ns * (1 + jitter));
	gate->sample_due_ns = now_ns + gate->settings.interval_ns;
}

static void sample(struct gate *gate)
{
	int64_t due_ns = gate->sample_due_ns;
	double gradient;
	double limit;

	gate->sample_due_ns = INT64_MAX;
	if (gate->deferred > 0)
		return;
	gate->sample_due_ns = due_ns + gate->settings.interval_ns;
	if (gate->samples.count == 0)
		return;
	gradient = gate->min_rtt_s * BUFFER / take_median(gate);
	limit = gate->limit * fmax(0.5, fmin(2, gradient));
	limit = floor(limit + sqrt(limit));
	set_limit(gate, (uint32_t)fmax(gate->least, fmin(MOST, limit)), due_ns);
}

/* Runs all timers that are due by now. Intervals without samples change nothing. */
static void catch_up(struct gate *gate, int64_t now_ns)
{
	for (;;) {
		bool measure = gate->measure_due_ns <= gate->sample_due_ns;
		int64_t due_ns = measure ? gate->measure_due_ns : gate->sample_due_ns;

		if (due_ns > now_ns)
			return;
		if (measure)
			begin_measuring(gate, due_ns);
		else
			sample(gate);
	}
}

static void *create(const struct kvb_admission_env *env)
{
	struct gate *gate = kvb_alloc(1, sizeof(*gate));

	gate->fleet = env->fleet;
	gate->settings = rows[(size_t)env->param];
	gate->least =
		gate->settings.least * (gate->settings.each ? env->fleet->options.workers : 1);
	gate->limit = gate->least;
	gate->random = 1;
	gate->sample_due_ns = INT64_MAX;
	gate->jobs = kvb_alloc(env->fleet->jobs->count, sizeof(gate->jobs[0]));
	begin_measuring(gate, 0);
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

	catch_up(gate, now_ns);
	if (gate->first == gate->count) {
		gate->first = gate->count = 0;
		return KVB_NOTHING;
	}
	out->job = gate->jobs[gate->first++];
	if (gate->outstanding >= gate->limit)
		return KVB_REFUSE;
	gate->outstanding++;
	return KVB_SEND;
}

static int64_t wake_ns(void *self, int64_t now_ns)
{
	(void)self;
	(void)now_ns;
	return INT64_MAX;
}

static void token(void *self, uint32_t job, bool first, bool last, int64_t now_ns)
{
	struct gate *gate = self;
	int64_t sent_ns = gate->fleet->courses[job].sent_ns;

	(void)first;
	if (!last)
		return;
	catch_up(gate, now_ns);
	gate->outstanding--;
	if (sent_ns < gate->epoch_ns)
		return;
	kvb_samples_add(&gate->samples, (double)(now_ns - sent_ns) / 1e9);
	if (gate->deferred > 0 && gate->samples.count >= SAMPLES)
		end_measuring(gate, now_ns);
}

static void destroy(void *self)
{
	struct gate *gate = self;

	kvb_samples_finish(&gate->samples);
	free(gate->jobs);
	free(gate);
}

const struct kvb_admission_ops kvb_admission_envoy_ops = {.create = create,
	.arrive = arrive,
	.next = next,
	.wake_ns = wake_ns,
	.token = token,
	.destroy = destroy};
