/*
 * policy_kvway.c - the router's own strategies, called as the proxy calls them.
 *
 * The strategy that the configuration names, or, with a parameter, kvaware, which learns of the caches by events
 * that arrive so many milliseconds late. Through kvway/route.h: candidates with leases on their loads, the prompt
 * as a chain of chunks of 256 bytes, first_token, done with the engine's usage. A token is four bytes of text,
 * which is what kvway assumes until it has learned better. All settings are the configuration's
 * defaults; of a worker it knows what the proxy reads from /metrics as often: KV capacity, its use, and how many requests
 * run and wait; block size. For kvaware the prompt's blocks carry the engines' names, which stand for its tokens.
 *
 * Where workers have roles, routing/split.c looks for a pair as in src/router/proxy/pd.c: with the
 * costs of all workers, those that only prefill included. The fixed rules of others choose among
 * the same costs.
 */
#include "bench/load/mem.h"
#include "bench/replay/replay_events.h"
#include "bench/replay/replay_policy.h"

#include <stdlib.h>

#include "bench/replay/policy_kvway.h"
#include "fleet/room.h"
#include "routing/choice.h"
#include "routing/split.h"

#define TOKEN_BYTES  4u
#define CHUNK_TOKENS 64u /* 256 bytes */

/* The last reading of a worker's metrics about its KV memory, and the time of the next one. */
struct reading {
	struct kvw_room room;
	int64_t next_ns;
};

/* The part of a proxy's exchange that routing uses, for one request. */
struct exchange {
	struct kvw_decision decision;
	struct kvw_lease lease;
	/* for a prompt that another worker prefills: */
	bool parted;
	struct kvw_decision leg;
	struct kvw_lease leg_lease;
	double tokens;     /* predicted time of the transfer */
	int64_t handed_ns; /* when the request went to the decoder */
};

struct kvway {
	const struct kvb_fleet *fleet;
	struct kvw_strategy *strategy;
	struct kvw_load *loads;
	struct kvw_load_board *board; /* memory of the loads */
	struct kvw_candidate *items;
	struct exchange *exchanges; /* by job */
	struct kvw_chunk *chunks;   /* chunks of the prompt for which a worker is picked */
	uint64_t *keys;             /* keys of the prompt's blocks; kvaware alone */
	struct kvb_events *events;  /* NULL: none */
	struct reading *readings;   /* by worker */
	int64_t scrape_interval_ns; /* time between two readings of a worker's metrics */
	uint32_t forced;            /* the worker that the next pick takes; KVB_ROUTED: any */
	struct kvw_exact_chain chain;
	uint32_t count;
	uint64_t seen; /* fleet->changes that the items show */
	struct kvw_transfer transfer; /* learned */
	struct kvw_cost *costs;       /* scratch memory for a split */
};

static struct kvw_strategy_options options_of(const struct kvb_policy_env *env)
{
	const struct kvw_config *config = env->config;

	return (struct kvw_strategy_options){
		.omega = config->routing_omega,
		.lockstep = config->routing_lockstep,
		.context_ns_per_token = config->routing_context_ns,
		.prefill_tokens_per_second = config->routing_prefill_rate,
		.attention_ns_per_pair = config->routing_attention_ns,
		.tree_bytes = config->tree_bytes,
		.capacity_tokens = (uint64_t)config->capacity_tokens,
		.inflight_bound = config->routing_inflight_bound,
		.inflight_gap = (double)config->routing_inflight_gap,
		.seed = env->seed,
		.index_bytes = config->kvaware_index_bytes,
		.load_ns_per_token = {0, config->kvaware_host_ns, config->kvaware_disk_ns,
			config->kvaware_remote_ns},
		.eviction_weight = config->kvaware_eviction_weight,
	};
}

/* Reads a worker's metrics as they are now. */
static void read_metrics(struct kvway *k, uint32_t w)
{
	struct kvb_engine_stats stats;
	struct kvw_room_page page = {.capacity_tokens = k->fleet->options.kv_tokens,
		.context = kvw_load_context(&k->loads[w])};

	kvb_engine_stats(k->fleet->workers[w].engine, &stats);
	page.usage = (double)stats.blocks_used / stats.blocks_usable;
	page.running = stats.running;
	page.waiting = stats.waiting;
	kvw_load_set_room(&k->loads[w], kvw_room_read(&k->readings[w].room, &page));
}

/*
 * Reads the workers' metrics as often as the router does, each worker's at a moment of its own: the first time at
 * once, then after a part of the interval. Called whenever a request comes, has its first token or ends: read at
 * arrivals alone, which a recorded trace has in bursts, metrics would always show workers that are through with the
 * burst before.
 */
static void scrape(struct kvway *k, int64_t now_ns)
{
	uint32_t workers = k->fleet->options.workers;

	for (uint32_t w = 0; w < workers; w++) {
		struct reading *reading = &k->readings[w];
		bool first = reading->next_ns == 0;

		if (now_ns < reading->next_ns)
			continue;
		read_metrics(k, w);
		reading->next_ns = 1 + now_ns + k->scrape_interval_ns;
		if (first)
			reading->next_ns -= k->scrape_interval_ns * w / workers / 2;
	}
}

/* Returns whether the worker may have whole requests. */
static bool serves(const struct kvway *k, uint32_t worker)
{
	const struct kvb_pd_options *pd = &k->fleet->options.pd;

	return k->fleet->workers[worker].state == KVB_SERVES &&
	       (pd->whole || kvb_pd_decodes(pd, worker));
}

/* Lets the items show which workers have come and gone. */
static void see_fleet(struct kvway *k)
{
	if (k->seen == k->fleet->changes)
		return;
	k->seen = k->fleet->changes;
	for (uint32_t w = 0; w < k->fleet->options.workers; w++) {
		k->items[w].usable = serves(k, w);
		k->items[w].generation = k->fleet->workers[w].generation;
	}
}

static void make_candidates(struct kvway *k)
{
	uint32_t workers = k->fleet->options.workers;

	k->loads = aligned_alloc(64, workers * sizeof(k->loads[0]));
	k->items = kvb_alloc(workers, sizeof(k->items[0]));
	k->costs = kvb_alloc(workers, sizeof(k->costs[0]));
	kvw_transfer_init(&k->transfer);
	k->readings = kvb_alloc(workers, sizeof(k->readings[0]));
	k->board = aligned_alloc(64, sizeof(*k->board));
	if (k->loads == NULL || k->board == NULL)
		abort();
	for (uint32_t w = 0; w < workers; w++) {
		const struct kvb_pd_options *pd = &k->fleet->options.pd;
		bool decodes = kvb_pd_decodes(pd, w), prefills = kvb_pd_prefills(pd, w);

		kvw_load_init_on(&k->loads[w], k->board, w);
		k->items[w] = (struct kvw_candidate){.id = w,
			.role = prefills ? (decodes ? KVW_ROLE_BOTH : KVW_ROLE_PREFILL)
					 : KVW_ROLE_DECODE,
			.prefills = prefills && kvb_pd_on(pd),
			.server = w - w % k->fleet->options.ranks,
			.key = kvb_mix(w),
			.load = &k->loads[w],
			.capacity_tokens = k->fleet->options.kv_tokens,
			.block_size = k->fleet->options.block_size,
			.share = 1,
			.usable = serves(k, w)};
	}
}

static void *create(const struct kvb_policy_env *env)
{
	struct kvw_strategy_options options = options_of(env);
	const struct kvb_jobs *jobs = env->fleet->jobs;
	struct kvway *k = kvb_alloc(1, sizeof(*k));
	uint32_t longest = 0;

	k->fleet = env->fleet;
	k->forced = KVB_ROUTED;
	k->scrape_interval_ns = env->config->health_metrics_interval_ms * 1000000;
	if (kvw_strategy_find(env->param > 0 ? "kvaware" : env->config->routing_strategy)
			->create(&options, &k->strategy) != KVW_OK)
		abort();
	if (k->strategy->ops->exact != NULL)
		k->events = kvb_events_create(env->fleet, k->strategy->ops->exact(k->strategy),
			(int64_t)(env->param * 1e6));
	make_candidates(k);
	k->exchanges = kvb_alloc(jobs->count, sizeof(k->exchanges[0]));
	for (size_t j = 0; j < jobs->count; j++)
		if (jobs->items[j].input > longest)
			longest = jobs->items[j].input;
	k->chunks = kvb_alloc(longest / CHUNK_TOKENS + 1, sizeof(k->chunks[0]));
	k->keys = kvb_alloc(longest / env->fleet->options.block_size + 1, sizeof(k->keys[0]));
	return k;
}

/* Makes a prompt's chunks as the body scan does: full chunks and a short one at the end. */
static uint32_t make_chunks(const struct kvb_job *job, struct kvw_chunk *chunks)
{
	uint32_t full = job->input / CHUNK_TOKENS;
	uint32_t count = full;

	for (uint32_t c = 0; c < full; c++)
		chunks[c] = (struct kvw_chunk){.hash = kvb_job_block(job, CHUNK_TOKENS, c),
			.end = (c + 1) * CHUNK_TOKENS * TOKEN_BYTES};
	if (job->input % CHUNK_TOKENS > 0)
		chunks[count++] = (struct kvw_chunk){
			.hash = kvb_mix(kvb_job_block(job, CHUNK_TOKENS, full) + job->input),
			.end = job->input * TOKEN_BYTES};
	return count;
}

/* Makes the keys of the prompt's blocks, as the engine names them. */
static struct kvw_exact_chain make_chain(const struct kvway *k, const struct kvb_job *job)
{
	uint32_t size = k->fleet->options.block_size;

	for (uint32_t b = 0; b < job->input / size; b++)
		k->keys[b] = kvb_job_block(job, size, b);
	return (struct kvw_exact_chain){.reporter = KVW_REPORTER_ENGINE,
		.space = KVB_EVENTS_SPACE,
		.block_tokens = size,
		.count = job->input / size,
		.keys = k->keys};
}

static struct kvw_route_request make_request(struct kvway *k, uint32_t job, int64_t now_ns)
{
	const struct kvb_job *j = &k->fleet->jobs->items[job];
	struct kvw_route_request request = {.api = KVW_API_CHAT,
		.stream = true,
		.include_usage = true,
		.teaches = true,
		.tokens_per_unit = 1.0f / TOKEN_BYTES,
		.seed = 1};

	/* The proxy reads the prompt only for strategies that ask for its content. */
	if (k->strategy->ops->prepare >= KVW_PREPARE_CONTENT) {
		k->count = make_chunks(j, k->chunks);
		request.content_known = true;
		request.chunks = k->chunks;
		request.chunk_count = k->count;
		request.chain_ends = &k->count;
		request.chain_count = 1;
	}
	if (k->events != NULL) {
		if (now_ns > 0)
			kvb_events_deliver(k->events, now_ns);
		k->chain = make_chain(k, j);
		request.exact = &k->chain;
		request.exact_count = 1;
		request.exact_tokens = j->input;
	}
	return request;
}

void kvb_kvway_explain(void *self, uint32_t job, int64_t now_ns, struct kvw_cost *costs,
	struct kvw_decision *out)
{
	struct kvway *k = self;
	struct kvw_candidates set = kvb_kvway_candidates(k);
	struct kvw_route_request request = make_request(k, job, now_ns);

	if (k->strategy->ops->explain(k->strategy, &request, &set, now_ns, costs, out) != KVW_OK)
		abort();
}

void kvb_kvway_force(void *self, uint32_t worker)
{
	((struct kvway *)self)->forced = worker;
}

struct kvw_candidates kvb_kvway_candidates(void *self)
{
	struct kvway *k = self;

	see_fleet(k);
	return (struct kvw_candidates){k->items, k->fleet->options.workers, k->board, 0};
}

const struct kvw_decision *kvb_kvway_decision(void *self, uint32_t job)
{
	return &((struct kvway *)self)->exchanges[job].decision;
}

struct kvw_load *kvb_kvway_load(void *self, uint32_t worker, uint64_t *key)
{
	const struct kvway *k = self;

	*key = k->items[worker].key;
	return k->items[worker].load;
}

struct kvw_turn kvb_kvway_turn(void *self, uint32_t job, struct kvw_programs *programs)
{
	struct kvw_route_request request = make_request(self, job, 0);

	return kvw_programs_find(programs, &request, 0);
}

uint32_t kvb_kvway_tokens(void *self, uint32_t job)
{
	struct kvw_route_request request = make_request(self, job, 0);

	return kvw_request_tokens(&request);
}

/* Has the strategy pick that worker; KVB_ROUTED: any worker that may have whole requests. */
static void pick_worker(struct kvway *k, const struct kvw_route_request *request, uint32_t worker,
	int64_t now_ns, struct kvw_decision *out)
{
	struct kvw_candidates set = {k->items, k->fleet->options.workers, k->board, 0};
	enum kvw_err err;

	for (uint32_t w = 0; w < set.count && worker != KVB_ROUTED; w++)
		k->items[w].usable = w == worker;
	err = k->strategy->ops->pick(k->strategy, request, &set, now_ns, out);
	for (uint32_t w = 0; w < set.count; w++)
		k->items[w].usable = serves(k, w);
	if (err != KVW_OK)
		abort();
}

/* Computes the costs of all workers, prefillers included, and plans the pair by them. */
static bool find_pair(struct kvway *k, const struct kvw_route_request *request, int64_t now_ns,
	struct kvw_split *found)
{
	const struct kvb_pd_rule *rule = k->fleet->options.pd.rule;
	struct kvw_candidates set = {k->items, k->fleet->options.workers, k->board, 0};
	struct kvw_decision decision;
	enum kvw_err err;

	for (uint32_t w = 0; w < set.count; w++)
		k->items[w].usable = true;
	err = k->strategy->ops->explain(k->strategy, request, &set, now_ns, k->costs, &decision);
	for (uint32_t w = 0; w < set.count; w++)
		k->items[w].usable = serves(k, w);
	if (err != KVW_OK)
		abort();
	kvw_split_choose(&set, k->costs, decision.prompt_tokens, &k->transfer, rule->threshold,
		KVW_SPLIT_ANY, found);
	if (k->fleet->options.pd.whole)
		k->forced = (uint32_t)found->here;
	return found->split || (found->has_pair && rule->ratio > 0 &&
				       found->tokens >= rule->ratio * decision.prompt_tokens);
}

/* Does what src/router/proxy/steps do: plans the pair, then reports both workers to the
 * strategy. */
static bool pick_pair(struct kvway *k, const struct kvw_route_request *request,
	struct exchange *exchange, int64_t now_ns)
{
	struct kvw_split found;

	if (!kvb_pd_on(&k->fleet->options.pd) || !find_pair(k, request, now_ns, &found))
		return false;
	pick_worker(k, request, (uint32_t)found.decoder, now_ns, &exchange->decision);
	exchange->decision.prefill_ns = (int64_t)found.transfer_ns;
	exchange->tokens = found.tokens;
	pick_worker(k, request, (uint32_t)found.prefiller, now_ns, &exchange->leg);
	kvw_lease_take(&exchange->leg_lease, k->items[found.prefiller].load,
		exchange->leg.prefill_ns, now_ns);
	kvw_lease_hold(&exchange->leg_lease, exchange->leg.prompt_tokens);
	return true;
}

static uint32_t pick(void *self, uint32_t job, int64_t now_ns)
{
	struct kvway *k = self;
	struct exchange *exchange = &k->exchanges[job];
	struct kvw_route_request request = make_request(k, job, now_ns);

	see_fleet(k);
	scrape(k, now_ns);
	exchange->parted = k->forced == KVB_ROUTED && pick_pair(k, &request, exchange, now_ns);
	if (!exchange->parted)
		pick_worker(k, &request, k->forced, now_ns, &exchange->decision);
	k->forced = KVB_ROUTED;
	kvw_lease_take(&exchange->lease, k->items[exchange->decision.pos].load,
		exchange->decision.prefill_ns, now_ns);
	kvw_lease_hold(&exchange->lease, exchange->decision.prompt_tokens);
	return (uint32_t)exchange->decision.pos;
}

static uint32_t prefiller(void *self, uint32_t job)
{
	const struct exchange *exchange = &((struct kvway *)self)->exchanges[job];

	return exchange->parted ? (uint32_t)exchange->leg.pos : KVB_ROUTED;
}

static void prefilled(void *self, uint32_t job, int64_t now_ns)
{
	struct kvway *k = self;
	const struct kvb_course *course = &k->fleet->courses[job];
	struct exchange *exchange = &k->exchanges[job];
	struct kvw_lease *lease = &exchange->leg_lease;
	struct kvw_outcome outcome = {.status = 200,
		.first_token = true,
		.completed = true,
		.streamed = true,
		.prompt_known = true,
		.cached_known = true,
		.prompt_tokens = k->fleet->jobs->items[job].input,
		.cached_tokens = course->cached,
		.first_token_ns = now_ns - course->sent_ns,
		.ahead_ns = lease->ahead_ns,
		.behind_ns = lease->behind_ns};

	scrape(k, now_ns);
	kvw_lease_first_token(lease, now_ns);
	outcome.served_ns = lease->served_ns;
	kvw_lease_release(lease, now_ns);
	if (k->strategy->ops->done != NULL)
		k->strategy->ops->done(k->strategy, &exchange->leg, &outcome, now_ns);
	exchange->handed_ns = now_ns;
}

static void first_token(void *self, uint32_t job, int64_t now_ns)
{
	struct kvway *k = self;
	struct exchange *exchange = &k->exchanges[job];
	int64_t took_ns = now_ns - exchange->handed_ns - exchange->decision.queue_ns;

	scrape(k, now_ns);
	kvw_lease_first_token(&exchange->lease, now_ns);
	if (exchange->parted)
		kvw_transfer_learn(
			&k->transfer, exchange->tokens, took_ns > 0 ? (double)took_ns : 0);
	if (k->strategy->ops->first_token != NULL)
		k->strategy->ops->first_token(
			k->strategy, &exchange->decision, &exchange->lease, now_ns);
}

static void done(void *self, uint32_t job, int64_t now_ns)
{
	struct kvway *k = self;
	const struct kvb_course *course = &k->fleet->courses[job];
	struct exchange *exchange = &k->exchanges[job];
	struct kvw_outcome outcome = {.status = 200,
		.first_token = true,
		.completed = true,
		.streamed = !exchange->parted,
		.prompt_known = true,
		.cached_known = !exchange->parted,
		.prompt_tokens = k->fleet->jobs->items[job].input,
		.cached_tokens = course->cached,
		.first_token_ns = course->first_ns - course->sent_ns,
		.ahead_ns = exchange->lease.ahead_ns,
		.behind_ns = exchange->lease.behind_ns,
		.served_ns = exchange->lease.served_ns};

	kvw_lease_release(&exchange->lease, now_ns);
	scrape(k, now_ns);
	if (k->strategy->ops->done != NULL)
		k->strategy->ops->done(k->strategy, &exchange->decision, &outcome, now_ns);
}

static double foretold(void *self, uint32_t job)
{
	const struct exchange *exchange = &((const struct kvway *)self)->exchanges[job];
	const struct kvw_decision *decision = exchange->parted ? &exchange->leg : &exchange->decision;
	double tokens = 0;

	for (unsigned t = 0; t < KVW_TIER_COUNT; t++)
		tokens += decision->hit_tokens[t];
	return tokens;
}

static void destroy(void *self)
{
	struct kvway *k = self;

	kvb_events_destroy(k->events);
	k->strategy->ops->destroy(k->strategy);
	free(k->loads);
	free(k->board);
	free(k->items);
	free(k->costs);
	free(k->readings);
	free(k->exchanges);
	free(k->chunks);
	free(k->keys);
	free(k);
}

const struct kvb_policy_ops kvb_kvway_ops = {.create = create,
	.pick = pick,
	.prefiller = prefiller,
	.prefilled = prefilled,
	.first_token = first_token,
	.done = done,
	.foretold = foretold,
	.destroy = destroy};
