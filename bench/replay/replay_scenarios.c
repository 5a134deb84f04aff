/*
 * replay_scenarios.c - workloads that need no trace, from scenarios.def. Times in seconds, lengths
 * in tokens.
 */
#include "bench/replay/replay_scenarios.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/load/mem.h"

#define MAX_IDS 512 /* most ids of a prompt: 262,144 tokens */
#define HOT_IDS 24

#define PROGRAM_PAUSE  6
#define PROGRAM_TOKENS 150000u /* tokens of a program's longest prompt */

struct maker {
	struct kvb_jobs *jobs;
	uint64_t random;
	uint64_t fresh; /* last id given out */
	double rate;    /* multiplier of all rates */
	uint64_t ids[MAX_IDS];
};

static struct maker make_maker(struct kvb_jobs *jobs, double scale, uint32_t workers, uint64_t seed)
{
	return (struct maker){.jobs = jobs,
		.random = kvb_mix(seed),
		.fresh = UINT64_C(1) << 40,
		.rate = scale * workers / 8};
}

/* Returns an exponentially distributed pause with this mean. */
static double pause_s(struct maker *m, double mean)
{
	return -mean * log(1 - kvb_random(&m->random));
}

/* Returns a log-normal length with this median; two thirds lie within a factor of `spread` from
 * it. */
static uint32_t length(struct maker *m, double median, double spread, uint32_t most)
{
	double u = sqrt(-2 * log(1 - kvb_random(&m->random)));
	double normal = u * cos(6.283185307179586 * kvb_random(&m->random));
	double value = median * exp(log(spread) * normal);

	return value < 1 ? 1 : value > most ? most : (uint32_t)value;
}

/* Gives blocks [from, to) new ids. */
static void fill(struct maker *m, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to && i < MAX_IDS; i++)
		m->ids[i] = ++m->fresh;
}

static uint32_t blocks_of(uint32_t tokens)
{
	return (tokens + KVB_ID_TOKENS - 1) / KVB_ID_TOKENS;
}

static uint32_t add(struct maker *m, double at_s, uint32_t input, uint32_t output)
{
	return kvb_jobs_add(m->jobs, (int64_t)(at_s * 1e9), input, output, m->ids);
}

/*
 * One conversation: each turn's prompt is the last one's, its answer, and something new. The text
 * of an answer begins amid a block, so the blocks behind the last prompt's full ones are new.
 */
static void converse(struct maker *m, double at_s, uint32_t shared, uint32_t first, uint32_t turns,
	double said, double answered, double think_s)
{
	uint32_t input = shared * KVB_ID_TOKENS + first;
	uint32_t last = KVB_NO_JOB;
	uint32_t known = shared;

	for (uint32_t t = 0; t < turns && blocks_of(input) < MAX_IDS; t++) {
		uint32_t output = length(m, answered, 2, 2000);
		uint32_t job;

		fill(m, known, blocks_of(input));
		job = add(m, at_s, input, output);
		if (last != KVB_NO_JOB)
			kvb_jobs_follow(m->jobs, last, job, (int64_t)(pause_s(m, think_s) * 1e9));
		last = job;
		known = input / KVB_ID_TOKENS;
		input += output + length(m, said, 2.5, 20000);
	}
}

/* Some 800 conversations at once, each with one of 20 system prompts of 1.5K tokens. */
static void chat(struct kvb_jobs *jobs, double scale, uint32_t workers, uint64_t seed)
{
	struct maker m = make_maker(jobs, scale, workers, seed);
	double at_s = 0;

	while ((at_s += pause_s(&m, 1 / (3.2 * m.rate))) < 300) {
		uint64_t prompt = (uint64_t)(kvb_random(&m.random) * 20);

		for (uint32_t i = 0; i < 3; i++)
			m.ids[i] = prompt * 8 + i + 1;
		converse(&m, at_s, 3, length(&m, 1500, 3, 30000), 1 + (uint32_t)pause_s(&m, 7), 500,
			200, 15);
	}
}

/* Makes conversations of which every third turn bypasses the router, to a random worker. */
static void foreign(struct kvb_jobs *jobs, double scale, uint32_t workers, uint64_t seed)
{
	uint64_t random = kvb_mix(seed + 1);

	chat(jobs, scale, workers, seed);
	for (uint32_t j = 0; j < jobs->count; j++)
		if (kvb_random(&random) < 1.0 / 3)
			kvb_jobs_direct(jobs, j, (uint32_t)(kvb_random(&random) * workers));
}

/* 40 requests/s with one beginning of 12K tokens, 6/s with none in common. */
static void hot_prefix(struct kvb_jobs *jobs, double scale, uint32_t workers, uint64_t seed)
{
	struct maker m = make_maker(jobs, scale, workers, seed);
	double at_s = 0;

	while ((at_s += pause_s(&m, 1 / (46 * m.rate))) < 90) {
		bool hot = jobs->count == 0 || kvb_random(&m.random) < 40.0 / 46;
		uint32_t shared = hot ? HOT_IDS : 0;
		uint32_t input = shared * KVB_ID_TOKENS + length(&m, hot ? 300 : 4000, 2, 16000);

		for (uint32_t i = 0; i < shared; i++)
			m.ids[i] = i + 1;
		fill(&m, shared, blocks_of(input));
		add(&m, at_s, input, length(&m, 60, 2, 1000));
	}
}

static void tenants(struct kvb_jobs *jobs, double scale, uint32_t workers, uint64_t seed)
{
	struct maker m = make_maker(jobs, scale, workers, seed);
	double at_s = 0;

	while ((at_s += pause_s(&m, 1 / (40 * m.rate))) < 200) {
		uint64_t tenant = (uint64_t)(kvb_random(&m.random) * 200);
		uint32_t input = 12 * KVB_ID_TOKENS + length(&m, 800, 2, 8000);

		for (uint32_t i = 0; i < 12; i++)
			m.ids[i] = tenant * 16 + i + 1;
		fill(&m, 12, blocks_of(input));
		add(&m, at_s, input, length(&m, 150, 2, 1000));
	}
}

static void agentic(struct kvb_jobs *jobs, double scale, uint32_t workers, uint64_t seed)
{
	struct maker m = make_maker(jobs, scale, workers, seed);
	uint32_t agents = (uint32_t)(60 * m.rate + 0.5);

	for (uint32_t i = 0; i < 8; i++)
		m.ids[i] = i + 1;
	for (uint32_t a = 0; a < agents; a++)
		converse(&m, 60 * kvb_random(&m.random), 8, length(&m, 12000, 1.5, 40000), 45, 1500,
			150, 3);
}

/*
 * One program: a system prompt that others share, the files that it is about, and turns that each
 * add an answer and what a tool gave back, until the context is full. Tools take seconds, some
 * minutes.
 */
static void program(struct maker *m, double at_s)
{
	uint64_t kind = (uint64_t)(kvb_random(&m->random) * 5);
	uint32_t input = 8 * KVB_ID_TOKENS + length(m, 24000, 1.7, 80000);
	uint32_t turns = 6 + (uint32_t)pause_s(m, 24);
	uint32_t last = KVB_NO_JOB;
	uint32_t known = 8;

	for (uint32_t i = 0; i < known; i++)
		m->ids[i] = kind * 16 + i + 1;
	for (uint32_t t = 0; t < turns && input <= PROGRAM_TOKENS; t++) {
		uint32_t output = length(m, 180, 2, 2000);
		uint32_t tool_ms = 1000 + length(m, 4000, 4.5, 599000);
		uint32_t job;

		fill(m, known, blocks_of(input));
		job = add(m, at_s, input, output);
		if (last != KVB_NO_JOB)
			kvb_jobs_follow(m->jobs, last, job, tool_ms * INT64_C(1000000));
		last = job;
		known = input / KVB_ID_TOKENS;
		input += output + length(m, 2400, 2.3, 30000);
	}
}

/* Some 70 programs at once; one begins every six seconds, however long others take. */
static void programs(struct kvb_jobs *jobs, double scale, uint32_t workers, uint64_t seed)
{
	struct maker m = make_maker(jobs, scale, workers, seed);
	double at_s = 0;

	while ((at_s += pause_s(&m, PROGRAM_PAUSE / m.rate)) < 1200)
		program(&m, at_s);
	jobs->until_ns = INT64_C(1500000000000);
}

/* Requests that share nothing. Rates are those of eight workers; lengths are as length() has
 * them. */
struct unshared {
	double per_s, until_s;
	double input, input_spread;
	double output, output_spread;
	uint32_t most_input, most_output;
	bool classes; /* one request in seven is of class 0, the others are of class 1 */
};

static void make_unshared(const struct unshared *u, struct kvb_jobs *jobs, double scale,
	uint32_t workers, uint64_t seed)
{
	struct maker m = make_maker(jobs, scale, workers, seed);
	double at_s = 0;

	while ((at_s += pause_s(&m, 1 / (u->per_s * m.rate))) < u->until_s) {
		uint32_t input = length(&m, u->input, u->input_spread, u->most_input);
		uint32_t job;

		fill(&m, 0, blocks_of(input));
		job = add(&m, at_s, input, length(&m, u->output, u->output_spread, u->most_output));
		if (u->classes)
			jobs->items[job].class = kvb_random(&m.random) * 7 >= 1;
	}
}

/* Requests of class 1 alone are more than the fleet can answer. */
static void two_classes(struct kvb_jobs *jobs, double scale, uint32_t workers, uint64_t seed)
{
	make_unshared(&(struct unshared){28, 200, 5000, 2.2, 200, 2, 60000, 2000, true}, jobs,
		scale, workers, seed);
}

static void uniform(struct kvb_jobs *jobs, double scale, uint32_t workers, uint64_t seed)
{
	make_unshared(&(struct unshared){10, 400, 5000, 2.2, 200, 2, 60000, 2000, false}, jobs,
		scale, workers, seed);
}

/* The number of requests that an engine runs at once bounds it here, not the work of prompts. */
static void lengthy(struct kvb_jobs *jobs, double scale, uint32_t workers, uint64_t seed)
{
	make_unshared(&(struct unshared){1.2, 900, 24000, 1.6, 250, 1.6, 120000, 2000, false}, jobs,
		scale, workers, seed);
}

static void brief(struct kvb_jobs *jobs, double scale, uint32_t workers, uint64_t seed)
{
	make_unshared(&(struct unshared){40, 300, 256, 1.4, 128, 1.4, 2000, 1000, false}, jobs,
		scale, workers, seed);
}

const struct kvb_scenario kvb_scenarios[] = {
#define SECONDS(s) (INT64_C(1000000000) * (s))
#define KVB_SCENARIO(name, make, slower, begin, end, reset, every, what)                           \
	{#name, make, {slower, SECONDS(begin), SECONDS(end)}, {SECONDS(reset), SECONDS(every)},    \
		what},
#include "bench/replay/scenarios.def"
#undef KVB_SCENARIO
	{0},
};

const struct kvb_scenario *kvb_scenario_find(const char *name)
{
	for (const struct kvb_scenario *s = kvb_scenarios; s->name != NULL; s++)
		if (strcmp(s->name, name) == 0)
			return s;
	return NULL;
}
