/* replay_fleet.c - the simulated workers, and what a router knows of them. */
#include "bench/replay/replay_fleet.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "bench/load/mem.h"
#include "bench/sim/sim_tier.h"

static void make_worker(struct kvb_fleet *fleet, uint32_t number)
{
	struct kvb_fleet_worker *worker = &fleet->workers[number];
	const struct kvb_fleet_options *o = &fleet->options;
	struct kvb_engine_config config = {.profile = &worker->profile,
		.block_size = o->block_size,
		.block_count = o->kv_tokens / o->block_size + 1,
		.max_batched_tokens = o->max_batched_tokens,
		.max_seqs = o->max_seqs};

	if (number == 0)
		worker->odd = o->odd;
	if (worker->odd.slower <= 0)
		worker->odd.slower = 1;
	worker->profile = *o->profile;
	worker->profile.prefill_tps /= worker->odd.slower;
	worker->profile.attention_ns *= worker->odd.slower;
	worker->profile.base_ms *= worker->odd.slower;
	worker->profile.decode_ms *= worker->odd.slower;
	worker->unanswered = KVB_NO_JOB;
	worker->reset_ns = INT64_MAX;
	if (o->resets.every_ns > 0)
		worker->reset_ns = o->resets.begin_ns + o->resets.every_ns * number;
	kvw_load_init(&worker->sent.load);
	worker->engine = kvb_engine_create(&config);
	if (worker->engine == NULL)
		abort();
}

struct kvb_fleet *kvb_fleet_create(
	const struct kvb_fleet_options *options, const struct kvb_jobs *jobs)
{
	struct kvb_fleet *fleet = kvb_alloc(1, sizeof(*fleet));
	uint32_t longest = 1;

	assert(KVB_ID_TOKENS % options->block_size == 0);
	fleet->options = *options;
	if (fleet->options.ranks == 0)
		fleet->options.ranks = 1;
	assert(options->workers % fleet->options.ranks == 0);
	fleet->jobs = jobs;
	/* kvw_load is aligned to a cache line. */
	fleet->workers = aligned_alloc(64, options->workers * sizeof(fleet->workers[0]));
	if (fleet->workers == NULL)
		abort();
	for (uint32_t w = 0; w < options->workers; w++) {
		fleet->workers[w] = (struct kvb_fleet_worker){0};
		make_worker(fleet, w);
	}
	kvb_pd_begin(fleet);
	kvb_mp_begin(fleet);
	fleet->courses = kvb_alloc(jobs->count, sizeof(fleet->courses[0]));
	for (size_t j = 0; j < jobs->count; j++)
		if (jobs->items[j].input > longest)
			longest = jobs->items[j].input;
	fleet->hashes = kvb_alloc(longest / options->block_size + 1, sizeof(fleet->hashes[0]));
	return fleet;
}

void kvb_fleet_destroy(struct kvb_fleet *fleet)
{
	if (fleet == NULL)
		return;
	kvb_pd_finish(fleet);
	kvb_mp_finish(fleet);
	for (uint32_t w = 0; w < fleet->options.workers; w++)
		kvb_engine_destroy(fleet->workers[w].engine);
	free(fleet->workers);
	free(fleet->courses);
	free(fleet->hashes);
	free(fleet->loads.items);
	free(fleet);
}

static bool holds(const struct kvb_fleet *fleet, const struct kvb_fleet_worker *worker,
	const struct kvb_job *job, uint32_t block)
{
	return kvb_engine_holds(
		worker->engine, kvb_job_block(job, fleet->options.block_size, block));
}

/* Returns how many leading blocks the engine's cache holds. A cache evicts the tail of a prompt
 * before its head, so binary search finds the end. */
static uint32_t held_blocks(const struct kvb_fleet *fleet, const struct kvb_fleet_worker *worker,
	const struct kvb_job *job)
{
	uint32_t low = 0;
	uint32_t high = job->input / fleet->options.block_size;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (holds(fleet, worker, job, middle))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

uint32_t kvb_fleet_hit(const struct kvb_fleet *fleet, uint32_t worker, const struct kvb_job *job)
{
	const struct kvb_fleet_worker *w = &fleet->workers[worker];
	uint32_t size = fleet->options.block_size;
	uint32_t held = held_blocks(fleet, w, job) * size;

	for (uint32_t j = w->unanswered; j != KVB_NO_JOB; j = fleet->courses[j].after) {
		uint32_t shared = kvb_job_shared(job, &fleet->jobs->items[j]);

		held = shared > held ? shared : held;
	}
	return kvb_job_reused(job, held, size);
}

double kvb_fleet_prefill_ns(
	const struct kvb_fleet *fleet, uint32_t worker, const struct kvb_job *job, uint32_t hit)
{
	const struct kvb_profile *p = &fleet->workers[worker].profile;
	double tokens = (double)job->input - hit;
	double pairs = ((double)job->input * job->input - (double)hit * hit) / 2;

	return (p->prefill_tps > 0 ? tokens * 1e9 / p->prefill_tps : 0) + pairs * p->attention_ns;
}

/* Puts a job that was just sent on its worker's list of unanswered ones. */
static void list_add(struct kvb_fleet *fleet, struct kvb_fleet_worker *worker, uint32_t job)
{
	struct kvb_course *course = &fleet->courses[job];

	course->before = KVB_NO_JOB;
	course->after = worker->unanswered;
	if (course->after != KVB_NO_JOB)
		fleet->courses[course->after].before = job;
	worker->unanswered = job;
}

static void list_remove(struct kvb_fleet *fleet, struct kvb_fleet_worker *worker, uint32_t job)
{
	struct kvb_course *course = &fleet->courses[job];

	if (course->before != KVB_NO_JOB)
		fleet->courses[course->before].after = course->after;
	else
		worker->unanswered = course->after;
	if (course->after != KVB_NO_JOB)
		fleet->courses[course->after].before = course->before;
}

/* Gives an engine the job, which answers with so many tokens. */
static void submit(struct kvb_fleet *fleet, uint32_t job, uint32_t worker, uint32_t output,
	int64_t now_ns)
{
	const struct kvb_job *j = &fleet->jobs->items[job];
	struct kvb_course *course = &fleet->courses[job];
	struct kvb_engine *engine = fleet->workers[worker].engine;
	uint32_t blocks = j->input / fleet->options.block_size;

	for (uint32_t b = 0; b < blocks; b++)
		fleet->hashes[b] = kvb_job_block(j, fleet->options.block_size, b);
	course->seq = kvb_seq_create_hashed(
		engine, fleet->hashes, j->input, output, kvb_mix(~(uint64_t)job));
	if (course->seq == NULL)
		abort();
	course->seq->user = course;
	kvb_engine_submit(engine, course->seq, now_ns);
}

/* Notes in the ledger that the job goes to the worker. */
static void book(struct kvb_fleet *fleet, uint32_t job, uint32_t worker, uint32_t prefiller,
	int64_t now_ns)
{
	const struct kvb_job *j = &fleet->jobs->items[job];
	struct kvb_course *course = &fleet->courses[job];
	struct kvb_fleet_worker *w = &fleet->workers[worker];
	double prefill_ns = 0;

	assert(!course->sent && worker < fleet->options.workers);
	course->sent = true;
	course->sent_ns = now_ns;
	course->worker = worker;
	course->prefiller = prefiller;
	course->predicted = kvb_fleet_hit(fleet, worker, j);
	if (j->direct != KVB_ROUTED)
		return;
	if (prefiller == KVB_ROUTED)
		prefill_ns = kvb_fleet_prefill_ns(fleet, worker, j, course->predicted);
	w->sent.inflight++;
	w->sent.unanswered++;
	w->sent.prefill_tokens += j->input - course->predicted;
	kvw_lease_take(&course->lease, &w->sent.load, (int64_t)prefill_ns, now_ns);
	kvw_lease_hold(&course->lease, j->input);
	list_add(fleet, w, job);
}

void kvb_fleet_send(struct kvb_fleet *fleet, uint32_t job, uint32_t worker, int64_t now_ns)
{
	book(fleet, job, worker, KVB_ROUTED, now_ns);
	kvb_mp_send(fleet, job, worker, now_ns);
	submit(fleet, job, worker, fleet->jobs->items[job].output, now_ns);
}

void kvb_fleet_send_parted(struct kvb_fleet *fleet, uint32_t job, uint32_t worker,
	uint32_t prefiller, int64_t now_ns)
{
	assert(worker != prefiller && fleet->jobs->items[job].direct == KVB_ROUTED);
	book(fleet, job, worker, prefiller, now_ns);
	fleet->pd.counts.split++;
	submit(fleet, job, prefiller, 1, now_ns);
}

void kvb_fleet_hand_over(struct kvb_fleet *fleet, uint32_t job, int64_t now_ns)
{
	struct kvb_course *course = &fleet->courses[job];

	course->to_pull = true;
	submit(fleet, job, course->worker, fleet->jobs->items[job].output, now_ns);
}

/* Empties an engine's cache: its requests leave the engine and come back in their old order. */
static void reset(struct kvb_fleet *fleet, uint32_t worker, int64_t now_ns)
{
	struct kvb_fleet_worker *w = &fleet->workers[worker];
	bool empty = false;

	for (size_t j = 0; j < fleet->jobs->count; j++)
		if (fleet->courses[j].seq != NULL && fleet->courses[j].worker == worker)
			kvb_engine_remove(w->engine, fleet->courses[j].seq);
	empty = kvb_engine_reset_cache(w->engine);
	assert(empty);
	(void)empty;
	for (size_t j = 0; j < fleet->jobs->count; j++)
		if (fleet->courses[j].seq != NULL && fleet->courses[j].worker == worker)
			kvb_engine_submit(w->engine, fleet->courses[j].seq, now_ns);
	w->reset_ns += fleet->options.resets.every_ns * fleet->options.workers;
}

static void begin_step(struct kvb_fleet *fleet, uint32_t worker, int64_t now_ns)
{
	struct kvb_fleet_worker *w = &fleet->workers[worker];
	int64_t length_ns = 0;

	while (now_ns >= w->reset_ns)
		reset(fleet, worker, now_ns);
	if (now_ns >= w->odd.stall_begin_ns && now_ns < w->odd.stall_end_ns) {
		w->busy = w->stalled = true;
		w->until_ns = w->odd.stall_end_ns;
	} else if (kvb_engine_begin_step(w->engine, now_ns, &length_ns)) {
		w->busy = true;
		w->began_ns = now_ns;
		w->until_ns = now_ns + length_ns;
	}
}

void kvb_fleet_wake(struct kvb_fleet *fleet, uint32_t worker, int64_t now_ns)
{
	uint32_t ranks = fleet->options.ranks, first = worker - worker % ranks;
	int64_t until_ns = 0;

	fleet->now_ns = now_ns;
	for (uint32_t w = first; w < first + ranks; w++)
		if (fleet->workers[w].busy)
			return;
	for (uint32_t w = first; w < first + ranks; w++) {
		begin_step(fleet, w, now_ns);
		if (fleet->workers[w].busy && fleet->workers[w].until_ns > until_ns)
			until_ns = fleet->workers[w].until_ns;
	}
	for (uint32_t w = first; w < first + ranks; w++)
		if (fleet->workers[w].busy)
			fleet->workers[w].until_ns = until_ns;
}

void kvb_fleet_loaded(struct kvb_fleet *fleet, int64_t now_ns)
{
	struct kvb_load load;

	while (kvb_loads_end(&fleet->loads, now_ns, &load))
		if (load.job == KVB_NO_JOB)
			kvb_tier_store(fleet->mp.l1[load.worker], &load.key, 1);
		else
			kvb_engine_loaded(fleet->workers[load.worker].engine,
				fleet->courses[load.job].seq, load.tokens);
}

/* The arguments with which a step's tokens are reported. */
struct handing {
	struct kvb_fleet *fleet;
	kvb_fleet_token_fn *fn;
	void *user;
	int64_t now_ns;
};

/* Returns the class that counts a time between two tokens. */
static uint32_t gap_of(int64_t ns)
{
	double place = ns > 1 ? 64 * log2((double)ns) : 0;

	return place < KVB_GAPS ? (uint32_t)place : KVB_GAPS - 1;
}

static void on_token(void *user, struct kvb_seq *seq, uint32_t token, bool last)
{
	struct handing *handing = user;
	struct kvb_fleet *fleet = handing->fleet;
	struct kvb_course *course = seq->user;
	uint32_t job = (uint32_t)(course - fleet->courses);
	struct kvb_fleet_worker *worker = &fleet->workers[course->worker];
	bool first = seq->total_len - seq->prompt_len == 1;
	bool routed = fleet->jobs->items[job].direct == KVB_ROUTED;

	(void)token;
	if (course->prefiller != KVB_ROUTED && course->prefilled_ns == 0) {
		course->prefilled_ns = handing->now_ns;
		course->cached = seq->cached_len;
		kvb_seq_destroy(seq);
		handing->fn(handing->user, job, false, false);
		return;
	}
	if (first)
		course->first_ns = handing->now_ns;
	else
		fleet->gaps[gap_of(handing->now_ns - course->token_ns)]++;
	course->token_ns = handing->now_ns;
	if (first && course->prefiller == KVB_ROUTED)
		course->cached = seq->cached_len;
	if (first && routed) {
		worker->sent.unanswered--;
		worker->sent.prefill_tokens -= fleet->jobs->items[job].input - course->predicted;
		kvw_lease_first_token(&course->lease, handing->now_ns);
		list_remove(fleet, worker, job);
	}
	worker->decoded += !first;
	if (last) {
		course->end_ns = handing->now_ns;
		course->ended = true;
		course->seq = NULL;
		worker->sent.inflight -= routed;
		kvw_lease_release(&course->lease, handing->now_ns);
		kvb_seq_destroy(seq);
	}
	if (first || last)
		handing->fn(handing->user, job, first, last);
}

void kvb_fleet_step_over(
	struct kvb_fleet *fleet, uint32_t worker, kvb_fleet_token_fn *fn, void *user)
{
	struct kvb_fleet_worker *w = &fleet->workers[worker];
	struct handing handing = {fleet, fn, user, w->until_ns};

	assert(w->busy);
	w->decoded = 0;
	fleet->now_ns = w->until_ns;
	if (!w->stalled)
		kvb_engine_end_step(w->engine, on_token, &handing);
	w->busy = w->stalled = false;
}
