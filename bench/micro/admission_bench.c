/*
 * admission_bench.c - requests that the admission of src/router/admission takes in a second and
 * core.
 *
 * A fleet of workers that work in turn, and a loop that does what the proxy's does: a request is
 * looked up among the programs, passes the gate if it is open, or is judged and waits; every 2 ms
 * of simulated time the gate says what is sent; first tokens and ends are reported. The time of all
 * this is simulated, the CPU time is real. Requests and what the workers do are prepared outside
 * the measured part. So is what the strategy says (explain, pick): it has a benchmark of its own.
 * Leases are taken and given back within the measured part, since the gate reads them.
 *
 * Requests come at a fixed rate while nothing waits; else as many as keep the number of those that
 * wait. The workers together do as many as that rate, or twice as many where nothing is to wait.
 * Every request has a promise, costs nearly the same everywhere, and is a turn of one of some
 * thousand programs.
 *
 * An idle turn is one in which no worker can take a prompt: what looking through the queue costs in
 * vain.
 *
 * One JSON line per figure on stdout, a table on stderr.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "admission/gate.h"
#include "bench/timing.h"

#define TURN_NS      INT64_C(2000000)  /* time between two turns of the gate, as in the proxy */
#define PROGRAMS_NS  INT64_C(10000000) /* time between two turns of the programs */
#define PROGRAMS     65536             /* programs that the gate remembers: its default */
#define TALKS        4096              /* programs that send requests */
#define CHUNKS       64                /* most chunks of a prompt */
#define COSTS        16                /* made answers of the strategy, used in turn */
#define TOKENS       4096              /* tokens of a prompt */
#define MAX_ROUNDS   99
#define IDLE_TURNS   200
#define FULL_NS      INT64_C(3600000000000)

/* The parts of an admission that are timed apart from each other. */
enum part {
	ARRIVE,  /* find, open, judge, wait; passed where the gate is open */
	TURN,    /* look, next, passed */
	ANSWER,  /* first token, ended */
	PARTS
};

/* One line of the table. */
struct shape {
	uint32_t workers;
	uint32_t waiting; /* at any time */
};

struct request {
	struct kvw_entrant entrant; /* first member, since the gate hands back a pointer to it */
	struct kvw_lease lease;
	struct kvw_chunk chunks[CHUNKS];
	uint32_t chunk_count;
	uint32_t costs; /* which of the strategy's answers it gets */
	struct request *next; /* next request of its worker, or of the free list */
};

/* A worker computes one prompt after the other. */
struct worker {
	struct request *first, **last;
	int64_t free_ns; /* when it has finished all requests before `first` */
};

struct bench {
	struct shape shape;
	double rate;      /* requests a second */
	int64_t work_ns;  /* work of a request */
	int64_t now_ns;
	int64_t looked_ns; /* time of the last look at the programs */
	double owed;      /* requests that are due and have not come yet */
	uint64_t dice;
	struct kvw_admission *admission;
	struct kvw_gate gate;
	struct kvw_outlooks outlooks;
	struct kvw_load *loads;
	struct kvw_load_board *board;
	struct kvw_candidate *items;
	struct kvw_candidates set;
	struct kvw_cost *costs; /* [COSTS][workers] */
	struct worker *workers;
	uint32_t turns[TALKS]; /* turn of each program */
	uint32_t talk, worker; /* program and worker of the next request */
	struct request *free;  /* requests that are made and not in use */
	/* requests that have come, and that have ended, in this turn */
	struct request *came, *done;
	uint32_t came_count;
	uint64_t sent, refused;
	int64_t cpu_ns;        /* time of the measured part */
	int64_t part_ns[PARTS];
};

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
	return x ^ x >> 31;
}

static uint64_t dice(struct bench *b)
{
	return mix(b->dice += UINT64_C(0x9E3779B97F4A7C15));
}

static void *must(void *memory)
{
	if (memory == NULL)
		abort();
	return memory;
}

/* --- the fleet --- */

/* Makes costs that differ by less than one step of the admission's prices, all low enough to be
 * admitted. */
static void make_costs(struct bench *b)
{
	for (uint32_t i = 0; i < COSTS * b->shape.workers; i++) {
		double prefill = (double)b->work_ns * (0.99 + 0.01 * (double)(dice(b) % 100) / 100);

		b->costs[i] = (struct kvw_cost){
			.prefill_ns = prefill,
			.others_ns = prefill / 10,
			.total_ns = prefill * (1 + (double)(dice(b) % 100) / 1000),
			.inflight = 2,
			.verdict = KVW_VERDICT_COSTS_MORE,
		};
	}
}

static void make_fleet(struct bench *b)
{
	uint32_t count = b->shape.workers;

	b->loads = must(aligned_alloc(64, count * sizeof(*b->loads)));
	b->board = must(aligned_alloc(64, sizeof(*b->board)));
	b->items = must(calloc(count, sizeof(*b->items)));
	b->workers = must(calloc(count, sizeof(*b->workers)));
	b->costs = must(calloc((size_t)COSTS * count, sizeof(*b->costs)));
	for (uint32_t i = 0; i < count; i++) {
		kvw_load_init_on(&b->loads[i], b->board, i);
		b->items[i] = (struct kvw_candidate){.id = i,
			.key = mix(i + 1),
			.load = &b->loads[i],
			.block_size = 16,
			.capacity_tokens = 500000,
			.share = 1,
			.usable = true};
		b->workers[i].last = &b->workers[i].first;
	}
	b->set = (struct kvw_candidates){b->items, count, b->board, 1};
	make_costs(b);
}

static void bench_init(struct bench *b, const struct shape *shape, double rate)
{
	double busy = shape->waiting > 0 ? 1 : 0.5;

	*b = (struct bench){
		.shape = *shape,
		.rate = rate,
		.work_ns = (int64_t)(1e9 * busy * shape->workers / rate),
		.now_ns = INT64_C(1000000000),
		.dice = 99,
	};
	b->admission = must(kvw_admission_create(PROGRAMS));
	kvw_gate_init(&b->gate, b->admission, &b->outlooks);
	b->gate.terms = (struct kvw_gate_terms){INT64_C(30000000000), INT64_C(1000000000)};
	make_fleet(b);
}

static void free_list(struct request *r)
{
	while (r != NULL) {
		struct request *next = r->next;

		free(r);
		r = next;
	}
}

static void bench_finish(struct bench *b)
{
	while (kvw_gate_waiting(&b->gate) > 0) {
		struct request *r = (struct request *)b->gate.queue.items[0];

		kvw_gate_leave(&b->gate, &r->entrant);
		free(r);
	}
	for (uint32_t i = 0; i < b->shape.workers; i++)
		free_list(b->workers[i].first);
	free_list(b->free);
	kvw_gate_finish(&b->gate);
	kvw_admission_destroy(b->admission);
	free(b->loads);
	free(b->board);
	free(b->items);
	free(b->workers);
	free(b->costs);
}

/* --- preparation, which is not measured --- */

/* Makes the request of the next program for its next turn. A program whose prompt has become too
 * long starts again. */
static struct request *make_request(struct bench *b)
{
	struct request *r = b->free;
	uint32_t talk = b->talk++ % TALKS;
	uint32_t turn = b->turns[talk]++;
	uint64_t name = (uint64_t)talk << 32 | turn / 6;

	if (r != NULL)
		b->free = r->next;
	else
		r = must(malloc(sizeof(*r)));
	memset(&r->entrant, 0, sizeof(r->entrant));
	memset(&r->lease, 0, sizeof(r->lease));
	r->next = NULL;
	r->chunk_count = 8 * (turn % 6 + 3);
	r->costs = (uint32_t)(dice(b) % COSTS);
	r->entrant.tokens = TOKENS;
	r->entrant.promise = (struct kvw_promise){
		INT64_C(10000000000), INT64_C(122000000), INT64_C(100000000)};
	for (uint32_t i = 0; i < r->chunk_count; i++)
		r->chunks[i] = (struct kvw_chunk){mix(mix(name) + i), (i + 1) * 256, 0};
	return r;
}

static void give_back(struct bench *b, struct request *r)
{
	r->next = b->free;
	b->free = r;
}

/* Ends the requests that workers have finished by now, and makes those that are due. */
static void prepare(struct bench *b)
{
	uint32_t count = 0;

	b->came = b->done = NULL;
	for (uint32_t i = 0; i < b->shape.workers; i++) {
		struct worker *w = &b->workers[i];

		while (w->first != NULL) {
			struct request *r = w->first;
			int64_t begin = w->free_ns > r->lease.taken_ns ? w->free_ns : r->lease.taken_ns;

			if (begin + r->lease.prefill_ns > b->now_ns)
				break;
			w->free_ns = begin + r->lease.prefill_ns;
			w->first = r->next;
			if (w->first == NULL)
				w->last = &w->first;
			r->next = b->done;
			b->done = r;
		}
	}
	if (b->shape.waiting > 0) {
		size_t waiting = kvw_gate_waiting(&b->gate);

		count = waiting < b->shape.waiting ? b->shape.waiting - (uint32_t)waiting : 0;
	} else {
		b->owed += b->rate * (double)TURN_NS / 1e9;
		count = (uint32_t)b->owed;
		b->owed -= count;
	}
	b->came_count = count;
	while (count-- > 0) {
		struct request *r = make_request(b);

		r->next = b->came;
		b->came = r;
	}
}

/* --- the measured part --- */

static void answer(struct bench *b)
{
	for (struct request *r = b->done; r != NULL; r = r->next) {
		kvw_lease_first_token(&r->lease, b->now_ns);
		kvw_gate_first_token(&b->gate, &r->entrant, true, b->now_ns);
		kvw_gate_ended(&b->gate, &r->entrant, b->now_ns);
		kvw_lease_release(&r->lease, b->now_ns);
	}
}

/* Sends a request to this worker. */
static void send(struct bench *b, struct request *r, uint32_t worker)
{
	const struct kvw_cost *cost = &b->costs[(size_t)r->costs * b->shape.workers + worker];
	struct kvw_decision decision = {.pos = worker,
		.worker_id = worker,
		.prompt_tokens = TOKENS,
		.hit_tokens = {TOKENS / 2},
		.prefill_ns = (int64_t)cost->prefill_ns,
		.queue_ns = kvw_load_queue_ns(&b->loads[worker], b->now_ns)};
	struct worker *w = &b->workers[worker];

	kvw_lease_take(&r->lease, &b->loads[worker], decision.prefill_ns, b->now_ns);
	kvw_gate_passed(&b->gate, &r->entrant, &decision, b->now_ns);
	r->next = NULL;
	*w->last = r;
	w->last = &r->next;
	b->sent++;
}

static bool judge(void *user, struct kvw_entrant *entrant, int64_t now_ns)
{
	struct bench *b = user;
	struct request *r = (struct request *)entrant;
	const struct kvw_decision wish = {.pos = r->costs % b->shape.workers};

	return kvw_gate_judge(&b->gate, entrant, &b->set,
		&b->costs[(size_t)r->costs * b->shape.workers], &wish, now_ns);
}

static void arrive(struct bench *b)
{
	struct request *next = NULL;

	for (struct request *r = b->came; r != NULL; r = next) {
		struct kvw_route_request route = {.api = KVW_API_CHAT,
			.content_known = true,
			.teaches = true,
			.chunks = r->chunks,
			.chunk_count = r->chunk_count,
			.chain_ends = &r->chunk_count,
			.chain_count = 1};

		next = r->next;
		r->entrant.wait.came_ns = b->now_ns;
		r->entrant.wait.value = 1;
		r->entrant.turn = kvw_programs_find(b->admission->programs, &route, 0);
		if (kvw_gate_waiting(&b->gate) == 0 && kvw_gate_open(&b->gate, &r->entrant, &b->set, b->now_ns))
			send(b, r, b->worker++ % b->shape.workers);
		else if (!judge(b, &r->entrant, b->now_ns) ||
			 kvw_gate_wait(&b->gate, &r->entrant, b->now_ns) != KVW_OK)
			abort();
	}
}

static void look(struct bench *b)
{
	if (b->now_ns - b->looked_ns >= PROGRAMS_NS) {
		b->looked_ns = b->now_ns;
		kvw_programs_look(
			b->admission->programs, kvw_admission_full(b->admission), b->now_ns);
	}
	kvw_admission_look(b->admission, b->shape.workers, b->shape.workers, b->now_ns);
}

static void turn(struct bench *b)
{
	struct kvw_entrant *e = NULL;
	enum kvw_next next = KVW_NOTHING;

	look(b);
	while (kvw_gate_waiting(&b->gate) > 0 &&
		(next = kvw_gate_next(&b->gate, b->now_ns, judge, b, &e)) != KVW_NOTHING) {
		if (next == KVW_SEND) {
			send(b, (struct request *)e, e->wait.worker);
		} else {
			b->refused++;
			give_back(b, (struct request *)e);
		}
	}
}

static void step(struct bench *b)
{
	static void (*const parts[PARTS])(struct bench *) = {
		[ARRIVE] = arrive, [TURN] = turn, [ANSWER] = answer};
	static const enum part order[PARTS] = {ANSWER, ARRIVE, TURN};
	struct request *next = NULL;
	int64_t cpu_ns = 0;
	int64_t at_ns = 0;

	b->now_ns += TURN_NS;
	prepare(b);
	at_ns = kvb_read_ns(CLOCK_MONOTONIC);
	cpu_ns = kvb_read_ns(CLOCK_THREAD_CPUTIME_ID);
	for (size_t i = 0; i < PARTS; i++) {
		int64_t was_ns = at_ns;

		parts[order[i]](b);
		at_ns = kvb_read_ns(CLOCK_MONOTONIC);
		b->part_ns[order[i]] += at_ns - was_ns;
	}
	b->cpu_ns += kvb_read_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
	for (struct request *r = b->done; r != NULL; r = next) {
		next = r->next;
		give_back(b, r);
	}
}

/* --- figures --- */

enum figure { ADMISSIONS, ARRIVE_NS, TURN_PART_NS, ANSWER_NS, IDLE_US, REFUSED, WAITING, FIGURES };

static const struct {
	const char *metric, *unit;
} figures[FIGURES] = {
	[ADMISSIONS] = {"admissions_per_second", "1/s"},
	[ARRIVE_NS] = {"admission_arrive_ns", "ns"},
	[TURN_PART_NS] = {"admission_turn_ns", "ns"},
	[ANSWER_NS] = {"admission_answer_ns", "ns"},
	[IDLE_US] = {"admission_idle_turn_us", "us"},
	[REFUSED] = {"admission_refused_share", "share"},
	[WAITING] = {"admission_waiting", "1"},
};

static void forget(struct bench *b)
{
	b->sent = b->refused = 0;
	b->cpu_ns = 0;
	memset(b->part_ns, 0, sizeof(b->part_ns));
}

/* Returns what a turn costs while no worker can take a prompt. The bench is of no use
 * afterwards. */
static double idle_turn_us(struct bench *b)
{
	struct kvw_lease *leases = must(calloc(b->shape.workers, sizeof(*leases)));
	int64_t spent_ns = 0;

	for (uint32_t i = 0; i < b->shape.workers; i++) {
		kvw_lease_take(&leases[i], &b->loads[i], FULL_NS, b->now_ns);
		kvw_pace_sent(&b->admission->paces[i], 0, b->now_ns);
	}
	for (unsigned i = 0; i < IDLE_TURNS; i++) {
		int64_t cpu_ns = 0;

		b->now_ns += TURN_NS;
		cpu_ns = kvb_read_ns(CLOCK_THREAD_CPUTIME_ID);
		turn(b);
		spent_ns += kvb_read_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
	}
	free(leases);
	return (double)spent_ns / 1e3 / IDLE_TURNS;
}

static void run_round(const struct shape *shape, double rate, double seconds, double *values)
{
	static struct bench b;
	uint64_t steps = 0;
	double waiting = 0;
	double count = 0;

	bench_init(&b, shape, rate);
	/* Runs until the admission's windows are full: half a minute of its time, or a part of
	 * the round. */
	for (int64_t end = kvb_read_ns(CLOCK_MONOTONIC) + (int64_t)(seconds * 5e8);
		b.now_ns < INT64_C(60000000000) && kvb_read_ns(CLOCK_MONOTONIC) < end;)
		step(&b);
	forget(&b);
	while (b.cpu_ns < (int64_t)(seconds * 1e9)) {
		step(&b);
		waiting += (double)kvw_gate_waiting(&b.gate);
		steps++;
	}
	count = (double)(b.sent + b.refused);
	values[ADMISSIONS] = count * 1e9 / (double)b.cpu_ns;
	values[ARRIVE_NS] = (double)b.part_ns[ARRIVE] / count;
	values[TURN_PART_NS] = (double)b.part_ns[TURN] / count;
	values[ANSWER_NS] = (double)b.part_ns[ANSWER] / count;
	values[REFUSED] = (double)b.refused / count;
	values[WAITING] = waiting / (double)steps;
	values[IDLE_US] = idle_turn_us(&b);
	bench_finish(&b);
}

static void run_shape(const struct shape *shape, double rate, double seconds, unsigned rounds)
{
	static double values[MAX_ROUNDS][FIGURES];
	double column[MAX_ROUNDS];
	double medians[FIGURES];

	for (unsigned r = 0; r < rounds; r++)
		run_round(shape, rate, seconds, values[r]);
	for (unsigned f = 0; f < FIGURES; f++) {
		for (unsigned r = 0; r < rounds; r++)
			column[r] = values[r][f];
		qsort(column, rounds, sizeof(column[0]), kvb_by_value);
		medians[f] = (column[(rounds - 1) / 2] + column[rounds / 2]) / 2;
		printf("{\"bench\":\"pick\",\"metric\":\"%s\",\"value\":%.5g,\"unit\":\"%s\","
		       "\"workers\":%u,\"waiting\":%u,\"rate\":%.6g}\n",
			figures[f].metric, medians[f], figures[f].unit, shape->workers,
			shape->waiting, rate);
	}
	fflush(stdout);
	fprintf(stderr, "%7u %8u %12.0fk %10.0f %8.0f %8.0f %12.1f %9.1f\n", shape->workers,
		shape->waiting, medians[ADMISSIONS] / 1e3, medians[ARRIVE_NS],
		medians[TURN_PART_NS], medians[ANSWER_NS], medians[IDLE_US],
		medians[REFUSED] * 100);
}

int main(int argc, char **argv)
{
	static const struct shape shapes[] = {{8, 0}, {8, 100}, {8, 2000}, {64, 0}, {64, 100}, {64, 2000}};
	double seconds = 0.5;
	double rate = 20000;
	unsigned rounds = 5;
	int only = -1;
	int option = 0;

	while ((option = getopt(argc, argv, "s:r:q:i:")) != -1) {
		if (option == 's') {
			seconds = atof(optarg);
		} else if (option == 'r') {
			rounds = (unsigned)atoi(optarg);
		} else if (option == 'q') {
			rate = atof(optarg);
		} else if (option == 'i') {
			only = atoi(optarg);
		} else {
			fprintf(stderr, "usage: %s [-s SECONDS] [-r ROUNDS] [-q RATE] [-i LINE]\n",
				argv[0]);
			return 2;
		}
	}
	if (seconds <= 0 || rounds < 1 || rounds > MAX_ROUNDS || rate < 100)
		return 2;
	fprintf(stderr, "workers  waiting  admissions/s  arrive ns  turn ns   ans ns  idle turn us  refused %%\n");
	for (int i = 0; i < (int)(sizeof(shapes) / sizeof(shapes[0])); i++)
		if (only < 0 || only == i)
			run_shape(&shapes[i], rate, seconds, rounds);
	return 0;
}
