/*
 * sim_worker.c - runs an engine's steps in real time.
 *
 * A step that was planned to last L simulated nanoseconds ends L / speed later. While there is
 * work, the next step begins where the last one was planned to end, not when its timer happened
 * to fire: late timers do not add up, and a machine that cannot keep up shows as `late_ms` in
 * /sim/stats instead of as a slower GPU.
 *
 * With tiers below the device a step may be held: what it needs is due by its beginning, but really not
 * done yet (sim_store.h). It is then planned later, for the same simulated moment.
 */
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/clock.h"
#include "bench/sim/sim_fixed.h"
#include "bench/sim/sim_openai.h"
#include "bench/sim/sim_routes.h"
#include "bench/sim/sim_store.h"
#include "bench/sim/sim_reporter.h"
#include "bench/sim/sim_worker.h"

#define STEPS_AT_ONCE 64   /* most steps without length that run before the loop turns */
#define PATIENCE_MS   2000 /* real time that a step is held for; longer than L2's deadline */

enum plan { PLAN_STEP, PLAN_NOTHING, PLAN_HELD };

int64_t kvb_worker_sim_ns(const struct kvb_worker *worker)
{
	return kvb_sim_of_real(&worker->clock, kvw_clock_ns());
}

uint64_t kvb_worker_random(struct kvb_worker *worker)
{
	uint64_t x = worker->id_state += UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

bool kvb_worker_serves(const struct kvb_worker *worker, const char *model, bool *lora)
{
	*lora = false;
	if (strcmp(model, worker->options->model) == 0)
		return true;
	for (uint32_t i = 0; i < worker->options->lora_count; i++)
		*lora |= strcmp(model, worker->options->loras[i]) == 0;
	return *lora;
}

const char *kvb_worker_separator(const struct kvb_worker *worker)
{
	return worker->options->fragments.on ? worker->options->fragments.separator : NULL;
}

void kvb_worker_keep_response(
	struct kvb_worker *worker, const char *id, const char *body, size_t len)
{
	struct kvb_kept_response *kept =
		&worker->responses[worker->responses_next++ % KVB_RESPONSES_KEPT];

	snprintf(kept->id, sizeof(kept->id), "resp_%s", id);
	kvb_buf_clear(&kept->body);
	kvb_buf_add(&kept->body, body, len);
}

const struct kvb_buf *kvb_worker_response(const struct kvb_worker *worker, const char *id)
{
	for (uint32_t i = 0; i < KVB_RESPONSES_KEPT; i++)
		if (id[0] != '\0' && strcmp(worker->responses[i].id, id) == 0)
			return &worker->responses[i].body;
	return NULL;
}

static void forget_responses(struct kvb_worker *worker)
{
	for (uint32_t i = 0; i < KVB_RESPONSES_KEPT; i++) {
		kvb_buf_finish(&worker->responses[i].body);
		worker->responses[i].id[0] = '\0';
	}
}

/* Sets the timer to a simulated moment; if that is past, to the loop's next turn. */
static void arm(struct kvb_worker *worker, int64_t sim_ns)
{
	int64_t real_ns = kvb_real_of_sim(&worker->clock, sim_ns);
	int64_t us = (real_ns - kvw_clock_ns() + 999) / 1000;
	struct timeval tv;

	us = us < 0 ? 0 : us;
	tv = (struct timeval){us / 1000000, us % 1000000};
	event_add(worker->ev_timer, &tv);
}

/* Moves exchanges that have arrived by then into the engine. */
static void submit_arrived(struct kvb_worker *worker, int64_t sim_ns)
{
	struct kvb_exchange *x;

	while ((x = TAILQ_FIRST(&worker->coming)) != NULL && x->arrival_ns <= sim_ns) {
		TAILQ_REMOVE(&worker->coming, x, coming);
		x->is_coming = false;
		kvb_exchange_submit(x);
	}
}

/* Plans a step that begins at this moment, unless there is nothing to do or the step must be
 * held. */
static enum plan plan_step(struct kvb_worker *worker, int64_t begin_ns)
{
	int64_t length_ns;

	worker->held = false;
	if (worker->sleeping || worker->paused)
		return PLAN_NOTHING;
	submit_arrived(worker, begin_ns);
	if (worker->store != NULL && !kvb_store_advance(worker->store, worker->engine, begin_ns)) {
		worker->held = true;
		worker->held_ns = begin_ns;
		return PLAN_HELD;
	}
	if (!kvb_engine_begin_step(worker->engine, begin_ns, &length_ns))
		return PLAN_NOTHING;
	worker->step_running = true;
	worker->step_begin_ns = begin_ns;
	worker->step_end_ns = begin_ns + length_ns;
	return PLAN_STEP;
}

/* Returns the next simulated moment at which an idle engine may have something to do; INT64_MAX:
 * none. */
static int64_t next_ns(const struct kvb_worker *worker)
{
	const struct kvb_exchange *first = TAILQ_FIRST(&worker->coming);
	int64_t arrival_ns = first == NULL ? INT64_MAX : first->arrival_ns;
	int64_t tier_ns = worker->store == NULL ? INT64_MAX : kvb_store_next_ns(worker->store);

	return arrival_ns < tier_ns ? arrival_ns : tier_ns;
}

/* Sets the timer, while no step runs, to the next moment with something to do. */
static void await_next(struct kvb_worker *worker)
{
	struct timeval patience = {PATIENCE_MS / 1000, PATIENCE_MS % 1000 * 1000};
	int64_t ns = next_ns(worker);

	if (worker->held)
		event_add(worker->ev_timer, &patience);
	else if (ns != INT64_MAX && !worker->sleeping && !worker->paused)
		arm(worker, ns);
}

/* Has an idle engine begin its next step at a simulated moment. */
static void begin_at(struct kvb_worker *worker, int64_t begin_ns)
{
	if (plan_step(worker, begin_ns) == PLAN_STEP)
		arm(worker, worker->step_end_ns);
	else
		await_next(worker);
}

/* Begins a step for requests that are due; if they were due earlier, the step begins in
 * simulated time when they were. */
void kvb_worker_kick(struct kvb_worker *worker)
{
	int64_t begin_ns = kvb_worker_sim_ns(worker), due_ns = next_ns(worker);

	if (worker->step_running)
		return;
	begin_ns = due_ns < begin_ns ? due_ns : begin_ns;
	begin_ns = begin_ns > worker->step_end_ns ? begin_ns : worker->step_end_ns;
	begin_at(worker, worker->held ? worker->held_ns : begin_ns);
}

/* Called when a tier has finished an operation: a held step may go on, an idle engine may have
 * work. */
static void on_store(void *user)
{
	struct kvb_worker *worker = user;

	if (worker->step_running)
		return;
	if (worker->held || next_ns(worker) <= kvb_worker_sim_ns(worker))
		kvb_worker_kick(worker);
	else
		await_next(worker);
}

void kvb_worker_expect(struct kvb_worker *worker, struct kvb_exchange *x)
{
	struct kvb_exchange *before = TAILQ_LAST(&worker->coming, kvb_exchange_list);

	while (before != NULL && before->arrival_ns > x->arrival_ns)
		before = TAILQ_PREV(before, kvb_exchange_list, coming);
	if (before != NULL)
		TAILQ_INSERT_AFTER(&worker->coming, before, x, coming);
	else
		TAILQ_INSERT_HEAD(&worker->coming, x, coming);
	x->is_coming = true;
	if (x->has_due) {
		worker->early++;
		worker->missed += x->arrival_ns < worker->step_begin_ns;
	}
	if (!worker->step_running)
		await_next(worker);
}

/* Begins a step of an idle engine at the moment for which the timer was set, even if the clock
 * is past it. A step that was held too long begins without the late operation. */
static void on_next(struct kvb_worker *worker)
{
	int64_t ns = next_ns(worker);

	if (worker->held) {
		kvb_store_give_up(worker->store, worker->held_ns);
		begin_at(worker, worker->held_ns);
	} else if (ns != INT64_MAX) {
		begin_at(worker, ns > worker->step_end_ns ? ns : worker->step_end_ns);
	}
}

/* Ends a step whose simulated time is over, and sends its tokens. */
static void end_step(struct kvb_worker *worker)
{
	struct kvb_engine_stats stats;
	uint64_t prefilled, decoded;

	kvb_engine_stats(worker->engine, &stats);
	prefilled = stats.prefilled_tokens - worker->prefilled;
	decoded = stats.decoded_tokens - worker->decoded;
	worker->prefilled = stats.prefilled_tokens;
	worker->decoded = stats.decoded_tokens;
	kvb_histogram_add(&worker->metrics.step_tokens, (double)(prefilled + decoded));
	if (worker->store != NULL)
		kvb_store_step_ends(worker->store, worker->step_end_ns, prefilled,
			worker->step_end_ns - worker->step_begin_ns);
	kvb_reporter_step_ends(worker->reporter);
	kvb_engine_end_step(worker->engine, kvb_openai_token, worker);
	worker->step_running = false;
}

/* Ends the step, and runs further steps without length at once. */
static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct kvb_worker *worker = arg;
	int64_t late_ns = kvw_clock_ns() - kvb_real_of_sim(&worker->clock, worker->step_end_ns);

	(void)fd;
	(void)what;
	if (!worker->step_running) {
		on_next(worker);
		return;
	}
	if (late_ns > worker->latest_ns)
		worker->latest_ns = late_ns;
	worker->late_sum_ns += (double)late_ns;
	worker->timers++;
	for (int i = 0; i < STEPS_AT_ONCE; i++) {
		int64_t end_ns = worker->step_end_ns;

		end_step(worker);
		if (plan_step(worker, end_ns) != PLAN_STEP) {
			await_next(worker);
			return;
		}
		if (worker->step_end_ns > end_ns)
			break;
	}
	arm(worker, worker->step_end_ns);
}

static void on_request(void *user, struct kvb_conn *conn, const struct kvb_request *request)
{
	struct kvb_worker *worker = user;

	if (worker->fixed != NULL && strcmp(request->method, "POST") == 0)
		kvb_fixed_request(worker->fixed, worker->http, conn);
	else
		kvb_routes_request(worker, conn, request);
}

static void on_gone(void *user, struct kvb_conn *conn, void *exchange)
{
	struct kvb_worker *worker = user;

	(void)conn;
	if (worker->fixed != NULL)
		kvb_fixed_gone(worker->fixed, exchange);
	else
		kvb_openai_gone(exchange);
}

static void on_faults(void *user, struct kvb_fail *out)
{
	struct kvb_worker *worker = user;

	if (worker->fail_left == 0)
		return;
	if (worker->fail_left > 0)
		worker->fail_left--;
	*out = worker->fail;
}

static const struct kvb_http_ops http_ops = {
	.request = on_request, .gone = on_gone, .faults = on_faults};

static struct kvb_engine *make_engine(const struct kvb_options *options)
{
	struct kvb_engine_config config = {.profile = options->profile,
		.block_size = options->block_size,
		.block_count = options->kv_tokens / options->block_size,
		.max_batched_tokens = options->max_batched_tokens,
		.max_seqs = options->max_seqs,
		.draft_tokens = options->draft_tokens,
		.draft_share = options->draft_share,
		.drift = options->drift};

	return kvb_engine_create(&config);
}

static void start_over(struct kvb_worker *worker)
{
	worker->clock = (struct kvb_sim_clock){kvw_clock_ns(), worker->options->speed};
	worker->start_s = (double)kvw_clock_wall_ns() / 1e9;
	worker->step_begin_ns = worker->step_end_ns = 0;
	worker->held = false;
	worker->prefilled = 0;
	worker->early = worker->missed = 0;
	worker->leavers = worker->left_before = 0;
	worker->left_before_ns = 0;
	worker->times_count = 0;
	worker->latest_ns = 0;
	worker->late_sum_ns = 0;
	worker->timers = 0;
	worker->health_status = 200;
	worker->sleeping = worker->paused = false;
	worker->fail_left = 0;
	kvb_fail_init(&worker->fail);
	kvb_nixl_restart(worker);
	kvb_metrics_init(&worker->metrics, worker->options->max_model_len);
}

static bool open_store(struct kvb_worker *worker)
{
	const struct kvb_options *o = worker->options;
	struct kvb_store_config config = {.options = o,
		.index = worker->index * o->ranks + worker->rank,
		.clock = worker->clock,
		.base = worker->base,
		.events = o->events.on || o->lmcache.on,
		.woken = on_store,
		.user = worker};

	if (!o->tier.on)
		return true;
	worker->store = kvb_store_create(&config);
	kvb_reporter_set_store(worker->reporter, worker->store);
	return worker->store != NULL;
}

static void close_store(struct kvb_worker *worker)
{
	kvb_reporter_set_store(worker->reporter, NULL);
	kvb_store_destroy(worker->store);
	worker->store = NULL;
}

/* Restarts one rank of the server and cuts its requests. */
static bool restart_rank(struct kvb_worker *worker)
{
	struct kvb_engine *engine = make_engine(worker->options);

	if (engine == NULL)
		return false;
	event_del(worker->ev_timer);
	worker->step_running = false;
	kvb_engine_destroy(worker->engine);
	worker->engine = engine;
	close_store(worker);
	kvb_reporter_restart(worker->reporter);
	forget_responses(worker);
	start_over(worker);
	if (!open_store(worker))
		return false;
	kvb_reporter_watch(worker->reporter, engine);
	return true;
}

bool kvb_worker_restart(struct kvb_worker *worker)
{
	bool good = true;

	kvb_http_cut_busy(worker->first->http);
	for (uint32_t i = 0; i < worker->options->ranks; i++)
		good = restart_rank(worker->first->ranks[i]) && good;
	return good;
}

static void use_number(struct kvb_worker *worker)
{
	uint32_t ranks = worker->options->ranks;

	worker->global_rank =
		worker->rank + (worker->options->hybrid ? worker->index * ranks : 0);
}

/* Returns the rank that a request names; a number that is no rank is ignored, as vLLM does. */
struct kvb_worker *kvb_worker_rank(
	struct kvb_worker *first, const struct kvb_request *request, uint64_t *wrong)
{
	uint32_t count = first->options->ranks, best = first->next_rank++ % count;
	uint64_t number = 0, base = first->options->rank_is_global ? first->global_rank : 0;
	const char *value;
	size_t len, digits = 0;

	if (kvb_request_header(request, "x-data-parallel-rank", &value, &len))
		for (; digits < len && digits < 9 && value[digits] >= '0' && value[digits] <= '9';
			digits++)
			number = 10 * number + (uint64_t)(value[digits] - '0');
	if (digits > 0 && digits == len) {
		*wrong = number;
		return number < base || number >= base + count ? NULL : first->ranks[number - base];
	}
	for (uint32_t i = 0; i < count; i++)
		if (first->ranks[i]->load < first->ranks[best]->load)
			best = i;
	return first->ranks[best];
}

static void make_fingerprint(struct kvb_worker *worker)
{
	const struct kvb_options *o = worker->options;
	uint32_t parts[] = {
		o->kv_tokens, o->block_size, o->max_batched_tokens, o->max_seqs, o->max_model_len};
	XXH64_hash_t hash = XXH3_64bits(o->model, strlen(o->model));

	hash = XXH3_64bits_withSeed(parts, sizeof(parts), hash);
	hash = XXH3_64bits_withSeed(o->profile->name, strlen(o->profile->name), hash);
	snprintf(worker->fingerprint, sizeof(worker->fingerprint), "vllm-0.32.0-%08x",
		(uint32_t)hash);
}

static bool start(struct kvb_worker *worker, void *zmq, uint16_t port)
{
	const struct kvb_options *o = worker->options;
	struct kvb_http_config http = {.host = o->host,
		.port = port,
		.keepalive_s = o->keepalive_s,
		.request_id_headers = o->request_id_headers,
		.max_body = o->max_body};

	worker->engine = make_engine(o);
	worker->times = calloc(KVB_TIMES_KEPT, sizeof(*worker->times));
	worker->ev_timer = evtimer_new(worker->base, on_timer, worker);
	if (o->fixed_response != 0 || o->stream_chunks != 0) {
		worker->fixed = kvb_fixed_create(worker->base, o);
		http.discard_bodies = true;
		if (worker->fixed == NULL)
			return false;
	}
	if (worker->engine == NULL || worker->ev_timer == NULL || worker->times == NULL)
		return false;
	if (worker->first == worker)
		worker->http = kvb_http_create(worker->base, &http, &http_ops, worker);
	if (worker->first->http == NULL ||
		!kvb_reporter_create(worker->base, zmq, o, worker->index * o->ranks + worker->rank,
			worker->global_rank, kvb_http_port(worker->first->http), &worker->reporter))
		return false;
	if (!open_store(worker))
		return false;
	kvb_reporter_watch(worker->reporter, worker->engine);
	return true;
}

/* Creates a rank of a server. first: its first rank; NULL: this is the first one. */
static struct kvb_worker *create_rank(struct event_base *base, void *zmq,
	const struct kvb_options *options, uint32_t index, struct kvb_worker *first, uint32_t rank,
	uint16_t port)
{
	struct kvb_worker *worker = calloc(1, sizeof(*worker));

	if (worker == NULL) {
		fprintf(stderr, "kvsim: out of memory\n");
		return NULL;
	}
	worker->options = options;
	worker->index = index;
	worker->first = first == NULL ? worker : first;
	worker->rank = rank;
	use_number(worker);
	worker->base = base;
	worker->id_state = (options->seed != 0 ? options->seed : (uint64_t)kvw_clock_wall_ns()) +
			   index * options->ranks + rank;
	TAILQ_INIT(&worker->exchanges);
	TAILQ_INIT(&worker->coming);
	start_over(worker);
	make_fingerprint(worker);
	if (!start(worker, zmq, port)) {
		fprintf(stderr, "kvsim: worker %u cannot start\n", index);
		kvb_worker_destroy(worker);
		return NULL;
	}
	return worker;
}

struct kvb_worker *kvb_worker_create(struct event_base *base, void *zmq,
	const struct kvb_options *options, uint32_t index, uint16_t port)
{
	struct kvb_worker *first = create_rank(base, zmq, options, index, NULL, 0, port);

	if (first == NULL)
		return NULL;
	first->ranks = calloc(options->ranks, sizeof(*first->ranks));
	for (uint32_t rank = 0; first->ranks != NULL && rank < options->ranks; rank++) {
		first->ranks[rank] =
			rank == 0 ? first
				  : create_rank(base, zmq, options, index, first, rank, 0);
		if (first->ranks[rank] != NULL)
			continue;
		kvb_worker_destroy(first);
		return NULL;
	}
	return first;
}

void kvb_worker_destroy(struct kvb_worker *worker)
{
	if (worker == NULL)
		return;
	if (worker->first == worker)
		kvb_http_destroy(worker->http); /* ends all exchanges, of all ranks */
	for (uint32_t rank = 1; worker->ranks != NULL && rank < worker->options->ranks; rank++)
		kvb_worker_destroy(worker->ranks[rank]);
	free(worker->ranks);
	kvb_fixed_destroy(worker->fixed);
	kvb_engine_destroy(worker->engine);
	close_store(worker);
	kvb_reporter_destroy(worker->reporter);
	forget_responses(worker);
	if (worker->ev_timer != NULL)
		event_free(worker->ev_timer);
	kvb_nixl_finish(worker);
	free(worker->times);
	free(worker);
}
