/* replay_scale.c - an autoscaler, by one of several signals. */
#include "bench/replay/replay_scale.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/load/mem.h"
#include "bench/replay/policy_kvway.h"
#include "bench/replay/replay_fleet.h"

#define TOLERANCE 0.1
#define LOOKS     256u /* that are remembered; more than any window or period has */
#define GPU_LOOKS 4u   /* use of GPUs is the mean of so many periods */

/* Sums since the beginning, of all workers. */
struct use {
	double busy_ns, there_ns; /* in steps; serving or leaving */
};

struct kvb_scaler {
	struct kvb_fleet *fleet;
	void *gate;
	int64_t *ready_ns;  /* by worker: when it serves, or began to */
	int64_t next_ns;    /* next look at the signal */
	double seen;        /* the signal's value a period ago */
	uint32_t wanted;    /* workers that serve or come */
	struct {
		int64_t at_ns;
		uint32_t workers; /* result of the rule, before it was settled */
		uint32_t added, removed;
	} asked[LOOKS];     /* at each look */
	size_t looks;
	struct use uses[LOOKS]; /* at each look */
	int64_t until_ns; /* nothing is paid after this */
	int64_t paid_until_ns;
	double paid_ns, there_ns;
	uint32_t most;
};

static uint32_t count(const struct kvb_scaler *s, enum kvb_worker_state state)
{
	uint32_t n = 0;

	for (uint32_t w = 0; w < s->fleet->options.workers; w++)
		n += s->fleet->workers[w].state == state;
	return n;
}

/* --- signals --- */

static double predicted_p90(const struct kvb_scaler *s, int64_t now_ns)
{
	return kvb_admission_kvway_predicted(s->gate, 0.9, now_ns);
}

static double predicted_p50(const struct kvb_scaler *s, int64_t now_ns)
{
	return kvb_admission_kvway_predicted(s->gate, 0.5, now_ns);
}

static double waiting(const struct kvb_scaler *s, int64_t now_ns)
{
	(void)now_ns;
	return (double)kvb_admission_kvway_waiting(s->gate);
}

static double running(const struct kvb_scaler *s, int64_t now_ns)
{
	double sum = waiting(s, now_ns);

	for (uint32_t w = 0; w < s->fleet->options.workers; w++)
		sum += s->fleet->workers[w].sent.inflight;
	return sum;
}

static double gpu(const struct kvb_scaler *s, int64_t now_ns)
{
	size_t last = s->looks > 0 ? s->looks - 1 : 0;
	size_t first = last > GPU_LOOKS ? last - GPU_LOOKS : 0;
	const struct use *a = &s->uses[first % LOOKS], *b = &s->uses[last % LOOKS];

	(void)now_ns;
	return b->there_ns > a->there_ns ? (b->busy_ns - a->busy_ns) / (b->there_ns - a->there_ns)
					 : 0;
}

static double kv(const struct kvb_scaler *s, int64_t now_ns)
{
	double sum = 0;

	(void)now_ns;
	for (uint32_t w = 0; w < s->fleet->options.workers; w++) {
		struct kvb_engine_stats stats;

		if (s->fleet->workers[w].state != KVB_SERVES)
			continue;
		kvb_engine_stats(s->fleet->workers[w].engine, &stats);
		sum += (double)stats.blocks_used / stats.blocks_usable;
	}
	return sum / count(s, KVB_SERVES);
}

const struct kvb_scale_signal kvb_scale_signals[] = {
	{"predicted_p90", false, predicted_p90,
		"kvway_fleet_predicted_over_promised, quantile 0.9"},
	{"predicted_p50", false, predicted_p50, "the same, quantile 0.5"},
	{"waiting", true, waiting, "kvway_waiting_requests for each worker"},
	{"running", true, running, "requests that wait at kvway or run, for each worker"},
	{"gpu", false, gpu, "share of the workers' time in steps, over a minute"},
	{"kv", false, kv, "share of the workers' KV memory that running requests hold"},
	{NULL, false, NULL, NULL},
};

const struct kvb_scale_signal *kvb_scale_signal_find(const char *name)
{
	for (const struct kvb_scale_signal *s = kvb_scale_signals; s->name != NULL; s++)
		if (strcmp(s->name, name) == 0)
			return s;
	return NULL;
}

/* --- behaviors --- */

#define S INT64_C(1000000000)

const struct kvb_scale_behavior kvb_scale_behaviors[] = {
	{"kubernetes", {0, 15 * S, 4, 1}, {300 * S, 15 * S, 0, 1}},
	{"calm", {30 * S, 180 * S, 1, 0.5}, {300 * S, 120 * S, 1, 0}},
	{NULL, {0}, {0}},
};

const struct kvb_scale_behavior *kvb_scale_behavior_find(const char *name)
{
	for (const struct kvb_scale_behavior *b = kvb_scale_behaviors; b->name != NULL; b++)
		if (strcmp(b->name, name) == 0)
			return b;
	return NULL;
}

/* --- workers --- */

static void change(struct kvb_scaler *s, uint32_t worker, enum kvb_worker_state state)
{
	s->fleet->workers[worker].state = state;
	s->fleet->changes++;
}

/* Adds up to now what workers cost. */
static void pay(struct kvb_scaler *s, int64_t now_ns)
{
	uint32_t serving = count(s, KVB_SERVES) + count(s, KVB_LEAVING);
	uint32_t there = serving + count(s, KVB_COMING);
	double ns;

	now_ns = now_ns < s->until_ns ? now_ns : s->until_ns;
	ns = (double)(now_ns - s->paid_until_ns);
	s->paid_ns += ns * there;
	s->there_ns += ns * serving;
	s->most = there > s->most ? there : s->most;
	s->paid_until_ns = now_ns;
}

/* Lets workers serve whose time has come, and those go that have nothing left to do. */
static void come_and_go(struct kvb_scaler *s, int64_t now_ns)
{
	for (uint32_t w = 0; w < s->fleet->options.workers; w++) {
		struct kvb_fleet_worker *worker = &s->fleet->workers[w];

		if (worker->state == KVB_COMING && now_ns >= s->ready_ns[w])
			change(s, w, KVB_SERVES);
		if (worker->state == KVB_LEAVING && worker->sent.inflight == 0 &&
			!worker->busy && kvb_engine_reset_cache(worker->engine)) {
			worker->generation++;
			change(s, w, KVB_ABSENT);
		}
	}
}

/* Asks for a worker, unless those that leave still take all the room that there is. */
static bool add_one(struct kvb_scaler *s, int64_t now_ns)
{
	for (uint32_t w = 0; w < s->fleet->options.workers; w++)
		if (s->fleet->workers[w].state == KVB_ABSENT) {
			change(s, w, KVB_COMING);
			s->ready_ns[w] = now_ns + s->fleet->options.scale.start_ns;
			return true;
		}
	return false;
}

/* Takes a worker that comes, else the one that has served for the shortest time, as a ReplicaSet
 * does. */
static void remove_one(struct kvb_scaler *s)
{
	uint32_t workers = s->fleet->options.workers, best = workers;

	for (uint32_t w = 0; w < workers; w++) {
		enum kvb_worker_state state = s->fleet->workers[w].state;

		if (state != KVB_COMING && state != KVB_SERVES)
			continue;
		if (best == workers || s->ready_ns[w] >= s->ready_ns[best])
			best = w;
	}
	change(s, best, s->fleet->workers[best].state == KVB_COMING ? KVB_ABSENT : KVB_LEAVING);
}

/* --- the rule --- */

static uint32_t rule(const struct kvb_scaler *s, double value)
{
	const struct kvb_scale_options *o = &s->fleet->options.scale;
	double usage = value / (o->signal->each ? o->target * s->wanted : o->target);
	double workers = ceil(usage * (o->signal->each ? s->wanted : count(s, KVB_SERVES)));

	if (fabs(usage - 1) <= TOLERANCE)
		return s->wanted;
	workers = fmin(workers, s->fleet->options.workers);
	return (uint32_t)fmax(workers, o->least);
}

/* Returns the lowest or highest number that the rule has asked for within a window. */
static uint32_t asked_for(const struct kvb_scaler *s, bool highest, int64_t since_ns)
{
	uint32_t found = s->asked[(s->looks - 1) % LOOKS].workers;

	for (size_t i = 0; i < s->looks && i < LOOKS; i++)
		if (s->asked[i].at_ns > since_ns && (s->asked[i].workers > found) == highest)
			found = s->asked[i].workers;
	return found;
}

/* Returns how many workers may still be added or removed now. */
static uint32_t may_change(const struct kvb_scaler *s, bool add, int64_t now_ns)
{
	const struct kvb_scale_way *way = add ? &s->fleet->options.scale.behavior->up
					      : &s->fleet->options.scale.behavior->down;
	uint32_t changed = 0, most;

	for (size_t i = 0; i < s->looks && i < LOOKS; i++)
		if (s->asked[i].at_ns > now_ns - way->period_ns)
			changed += add ? s->asked[i].added : s->asked[i].removed;
	most = (uint32_t)ceil(way->share * (add ? s->wanted - changed : s->wanted + changed));
	most = most > way->workers ? most : way->workers;
	return most > changed ? most - changed : 0;
}

/* Returns the number of workers to have from now on. */
static uint32_t settled(const struct kvb_scaler *s, int64_t now_ns)
{
	const struct kvb_scale_behavior *behavior = s->fleet->options.scale.behavior;
	uint32_t low = asked_for(s, false, now_ns - behavior->up.window_ns);
	uint32_t high = asked_for(s, true, now_ns - behavior->down.window_ns);
	uint32_t most;

	if (low > s->wanted) {
		most = s->wanted + may_change(s, true, now_ns);
		return low < most ? low : most;
	}
	if (high < s->wanted) {
		most = may_change(s, false, now_ns);
		return s->wanted - high < most ? high : s->wanted - most;
	}
	return s->wanted;
}

/* Notes how much the workers have done so far. */
static void note_use(struct kvb_scaler *s)
{
	struct use *use = &s->uses[s->looks % LOOKS];

	*use = (struct use){.there_ns = s->there_ns};
	for (uint32_t w = 0; w < s->fleet->options.workers; w++) {
		struct kvb_engine_stats stats;

		kvb_engine_stats(s->fleet->workers[w].engine, &stats);
		use->busy_ns += (double)stats.busy_ns;
	}
}

static void look(struct kvb_scaler *s, int64_t now_ns)
{
	const struct kvb_scale_options *o = &s->fleet->options.scale;
	size_t place = s->looks % LOOKS;
	uint32_t before = s->wanted, workers;

	note_use(s);
	s->asked[place].at_ns = now_ns;
	s->asked[place].workers = rule(s, s->seen);
	s->asked[place].added = s->asked[place].removed = 0;
	s->looks++;
	workers = settled(s, now_ns);
	while (s->wanted < workers && add_one(s, now_ns))
		s->wanted++;
	for (; s->wanted > workers; s->wanted--)
		remove_one(s);
	s->asked[place].added = s->wanted > before ? s->wanted - before : 0;
	s->asked[place].removed = s->wanted < before ? before - s->wanted : 0;
	s->seen = o->signal->value(s, now_ns);
	s->next_ns = now_ns + o->period_ns;
}

struct kvb_scaler *kvb_scaler_create(struct kvb_fleet *fleet, void *gate, int64_t until_ns)
{
	struct kvb_scaler *s = kvb_alloc(1, sizeof(*s));

	s->fleet = fleet;
	s->gate = gate;
	s->until_ns = until_ns;
	s->wanted = fleet->options.scale.least;
	s->ready_ns = kvb_alloc(fleet->options.workers, sizeof(s->ready_ns[0]));
	s->next_ns = fleet->options.scale.period_ns;
	for (uint32_t w = s->wanted; w < fleet->options.workers; w++)
		change(s, w, KVB_ABSENT);
	return s;
}

void kvb_scaler_destroy(struct kvb_scaler *s)
{
	if (s == NULL)
		return;
	free(s->ready_ns);
	free(s);
}

int64_t kvb_scaler_next_ns(const struct kvb_scaler *s)
{
	int64_t next = s->next_ns;

	for (uint32_t w = 0; w < s->fleet->options.workers; w++)
		if (s->fleet->workers[w].state == KVB_COMING && s->ready_ns[w] < next)
			next = s->ready_ns[w];
	return next;
}

void kvb_scaler_turn(struct kvb_scaler *s, int64_t now_ns)
{
	pay(s, now_ns);
	come_and_go(s, now_ns);
	if (now_ns >= s->next_ns)
		look(s, now_ns);
}

double kvb_scaler_worker_ns(const struct kvb_scaler *s, uint32_t *most)
{
	*most = s->most;
	return s->paid_ns;
}
