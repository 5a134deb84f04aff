/*
 * kvaware_bench.c - what a decision of kvaware takes, alone and while a feed writes.
 *
 * 64 workers report all they hold: a few system prompts of 1,024 tokens, which every worker has, and
 * 20,000 conversations of 3,072 more tokens, each on one worker (3.8M blocks of 16 tokens). A request
 * continues one of these with 384 tokens that no worker has seen. It is put to prefixaware, to
 * kvaware, and to kvaware while another thread applies 128,000 block events a second,
 * 2,000 of each worker in batches of 20: conversations that are stored, and the oldest ones dropped.
 * What is timed is pick alone, by the clock; making prompts, leases and done are not.
 *
 * The three take turns in every round; a figure is the median over the rounds. JSON lines on standard
 * output, a table on standard error. Arguments: -s SECONDS per run, -r ROUNDS, -n CONVERSATIONS.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "routing/kvindex.h"
#include "bench/timing.h"
#include "kvway/route.h"

#define WORKERS     64
#define BLOCK       16  /* tokens */
#define CHUNK       64  /* tokens */
#define SHARED      64  /* blocks of a system prompt */
#define HELD        256 /* blocks of a prompt that are held */
#define LENGTH      280 /* blocks of a prompt */
#define PER_CHUNK   (CHUNK / BLOCK)
#define CHUNKS      (LENGTH / PER_CHUNK)
#define PREFIXES    4
#define IN_FLIGHT   64
#define SAMPLES     200000
#define MAX_ROUNDS  99
#define TICK_NS     INT64_C(1000000) /* the feed applies what is due so often */
#define EVENTS_TICK 128              /* blocks: 128,000 a second */
#define BATCH       20               /* blocks of an event */

enum figure { PREFIXAWARE, ALONE, WITH_EVENTS, FIGURES };

struct bench {
	struct kvw_strategy *strategies[2]; /* prefixaware, kvaware */
	struct kvw_exact *exact;
	struct kvw_load *loads;
	struct kvw_load_board *board; /* memory of the loads */
	struct kvw_candidate items[WORKERS];
	struct kvw_candidates set;
	uint64_t conversations;
	_Atomic uint64_t first; /* number of the oldest conversation that workers hold */
	uint64_t random;
	uint64_t asked; /* number of requests made; each prompt has an end of its own */
	_Atomic bool over;
	uint64_t applied;    /* block events that the feed has applied */
	uint64_t hit_tokens; /* tokens that the workers picked by kvaware held */
	uint64_t picked;
};

/* One prompt, as chunks for prefixaware and as blocks for kvaware. */
struct prompt {
	uint64_t keys[LENGTH];
	struct kvw_chunk chunks[CHUNKS];
	uint32_t chunk_count;
	struct kvw_exact_chain chain;
	struct kvw_route_request request;
};

struct figures {
	double p50_us[FIGURES][MAX_ROUNDS], p99_us[FIGURES][MAX_ROUNDS];
	double rate[FIGURES][MAX_ROUNDS]; /* decisions per second of pick's own time */
	double events[MAX_ROUNDS];        /* block events per second */
};

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
	return x ^ x >> 31;
}

static uint64_t block_key(uint64_t conversation, uint32_t block)
{
	return block < SHARED ? mix((conversation % PREFIXES + 1) << 12 | block)
			      : mix((conversation + 8) << 12 | block);
}

static uint32_t worker_of(uint64_t conversation)
{
	return (uint32_t)(mix(conversation) % WORKERS);
}

/* --- the feed --- */

static void tell(struct bench *bench, uint32_t worker, uint64_t conversation, uint32_t first,
	uint32_t end, bool stored)
{
	uint64_t keys[BATCH];
	struct kvw_kvindex_from from = {worker, KVW_EXACT_ENGINE_SOURCE};

	while (first < end) {
		struct kvw_kvindex_blocks blocks = {0, KVW_TIER_DEVICE, 0, keys, keys};

		for (; blocks.count < BATCH && first < end; first++)
			keys[blocks.count++] = block_key(conversation, first);
		if (stored)
			kvw_kvindex_stored(kvw_exact_index(bench->exact), from, &blocks);
		else
			kvw_kvindex_removed(kvw_exact_index(bench->exact), from, &blocks);
	}
}

/* Replaces the oldest conversation by a new one. Returns the number of block events. */
static uint64_t turn_over(struct bench *bench)
{
	uint64_t oldest = atomic_load_explicit(&bench->first, memory_order_relaxed);
	uint64_t newest = oldest + bench->conversations;

	atomic_store_explicit(&bench->first, oldest + 1, memory_order_relaxed);
	tell(bench, worker_of(oldest), oldest, SHARED, HELD, false);
	tell(bench, worker_of(newest), newest, SHARED, HELD, true);
	return 2 * (HELD - SHARED);
}

static void *feed(void *arg)
{
	struct bench *bench = arg;
	int64_t begin = kvb_read_ns(CLOCK_MONOTONIC);
	uint64_t due = 0;
	uint32_t purged[1];

	bench->applied = 0;
	for (int64_t tick = 1; !atomic_load_explicit(&bench->over, memory_order_relaxed); tick++) {
		int64_t until = begin + tick * TICK_NS;
		struct timespec at = {until / 1000000000, until % 1000000000};

		(void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
		for (due += EVENTS_TICK; bench->applied + 2 * (HELD - SHARED) <= due;)
			bench->applied += turn_over(bench);
		(void)kvw_exact_tick(bench->exact, until, purged, 1);
	}
	return NULL;
}

/* --- requests --- */

static void make_prompt(struct bench *bench, struct prompt *p)
{
	uint64_t first = atomic_load_explicit(&bench->first, memory_order_relaxed);
	uint64_t conversation = 0;

	bench->random += UINT64_C(0x9E3779B97F4A7C15);
	/* Not the very oldest, which the feed may be dropping. */
	conversation = first + 50 + mix(bench->random) % (bench->conversations - 50);
	for (uint32_t b = 0; b < LENGTH; b++)
		p->keys[b] = b < HELD ? block_key(conversation, b) : mix(~bench->asked << 12 | b);
	bench->asked++;
	p->chunk_count = CHUNKS;
	for (uint32_t c = 0; c < CHUNKS; c++)
		p->chunks[c] = (struct kvw_chunk){
			.hash = mix(p->keys[(c + 1) * PER_CHUNK - 1] + 1), .end = (c + 1) * CHUNK};
	p->chain =
		(struct kvw_exact_chain){.block_tokens = BLOCK, .count = LENGTH, .keys = p->keys};
	p->request = (struct kvw_route_request){.api = KVW_API_CHAT,
		.stream = true,
		.content_known = true,
		.teaches = true,
		.tokens_per_unit = 1,
		.chunks = p->chunks,
		.chunk_count = CHUNKS,
		.chain_ends = &p->chunk_count,
		.chain_count = 1,
		.seed = 1,
		.exact_tokens = LENGTH * BLOCK,
		.exact_count = 1,
		.exact = &p->chain};
}

/* Makes decisions for a while and samples their times; returns the number of samples. */
static size_t decide(
	struct bench *bench, struct kvw_strategy *strategy, double seconds, uint32_t *samples_ns)
{
	static struct prompt prompt;
	static struct kvw_lease leases[IN_FLIGHT];
	static struct kvw_decision decisions[IN_FLIGHT];
	const struct kvw_outcome outcome = {.status = 200, .completed = true};
	int64_t end_ns = kvb_read_ns(CLOCK_MONOTONIC) + (int64_t)(seconds * 1e9);
	size_t count = 0;

	for (; count < SAMPLES && kvb_read_ns(CLOCK_MONOTONIC) < end_ns; count++) {
		struct kvw_decision *d = &decisions[count % IN_FLIGHT];
		struct kvw_lease *lease = &leases[count % IN_FLIGHT];
		int64_t begin = 0;

		make_prompt(bench, &prompt);
		begin = kvb_read_ns(CLOCK_MONOTONIC);
		if (strategy->ops->pick(strategy, &prompt.request, &bench->set, begin, d) != KVW_OK)
			abort();
		samples_ns[count] = (uint32_t)(kvb_read_ns(CLOCK_MONOTONIC) - begin);
		bench->hit_tokens += d->exact ? d->hit_tokens[KVW_TIER_DEVICE] : 0;
		bench->picked += d->exact;
		kvw_lease_release(lease, begin);
		kvw_lease_take(lease, bench->items[d->pos].load, d->prefill_ns / 1000, begin);
		strategy->ops->done(strategy, d, &outcome, begin);
	}
	for (unsigned i = 0; i < IN_FLIGHT; i++)
		kvw_lease_release(&leases[i], end_ns);
	return count;
}

static void measure(struct bench *bench, enum figure what, unsigned round, double seconds,
	uint32_t *samples_ns, struct figures *figures)
{
	struct kvw_strategy *strategy = bench->strategies[what != PREFIXAWARE];
	int64_t begin = kvb_read_ns(CLOCK_MONOTONIC);
	double sum = 0;
	size_t count = 0;
	pthread_t thread;

	atomic_store(&bench->over, false);
	if (what == WITH_EVENTS && pthread_create(&thread, NULL, feed, bench) != 0)
		abort();
	count = decide(bench, strategy, seconds, samples_ns);
	if (what == WITH_EVENTS) {
		atomic_store(&bench->over, true);
		pthread_join(thread, NULL);
		figures->events[round] =
			(double)bench->applied * 1e9 / (double)(kvb_read_ns(CLOCK_MONOTONIC) - begin);
	}
	for (size_t i = 0; i < count; i++)
		sum += samples_ns[i];
	qsort(samples_ns, count, sizeof(*samples_ns), kvb_by_u32);
	figures->p50_us[what][round] = samples_ns[count / 2] / 1e3;
	figures->p99_us[what][round] = samples_ns[count * 99 / 100] / 1e3;
	figures->rate[what][round] = (double)count * 1e9 / sum;
}

/* --- reporting --- */

static double median(const double *values, unsigned count)
{
	double sorted[MAX_ROUNDS];

	memcpy(sorted, values, count * sizeof(*values));
	return kvb_median(sorted, count);
}

/* Returns the median over the rounds of the ratios within a round. */
static double ratio(const double *ours, const double *others, unsigned count)
{
	double ratios[MAX_ROUNDS];

	for (unsigned i = 0; i < count; i++)
		ratios[i] = ours[i] / others[i];
	return median(ratios, count);
}

static void print(const char *metric, double value, const char *unit, const char *peer,
	double peer_value, double by)
{
	printf("{\"bench\":\"pick_kvaware\",\"metric\":\"%s\",\"value\":%.5g,\"unit\":\"%s\"",
		metric, value, unit);
	if (peer != NULL)
		printf(",\"peer\":\"%s\",\"peer_value\":%.5g,\"ratio\":%.3g", peer, peer_value, by);
	printf(",\"workers\":%d,\"blocks\":%d,\"held_blocks\":%d}\n", WORKERS, LENGTH, HELD);
	fflush(stdout);
}

static void tell_all(const struct bench *bench, const struct figures *f, unsigned rounds)
{
	static const char *const names[FIGURES] = {
		"prefixaware", "kvaware", "kvaware with 128k events/s"};
	double hit = (double)bench->hit_tokens / (double)(bench->picked > 0 ? bench->picked : 1);

	for (int i = 0; i < FIGURES; i++)
		fprintf(stderr, "%9.0fk %8.2f %8.2f  %s\n", median(f->rate[i], rounds) / 1e3,
			median(f->p50_us[i], rounds), median(f->p99_us[i], rounds), names[i]);
	fprintf(stderr, "with events p99 is %.2f times that without; a hit is %.0f tokens\n",
		ratio(f->p99_us[WITH_EVENTS], f->p99_us[ALONE], rounds), hit);
	print("decisions_per_second", median(f->rate[ALONE], rounds), "1/s", "prefixaware",
		median(f->rate[PREFIXAWARE], rounds),
		ratio(f->rate[ALONE], f->rate[PREFIXAWARE], rounds));
	print("decision_us_p50", median(f->p50_us[ALONE], rounds), "us", "prefixaware",
		median(f->p50_us[PREFIXAWARE], rounds),
		ratio(f->p50_us[ALONE], f->p50_us[PREFIXAWARE], rounds));
	print("decision_us_p99", median(f->p99_us[ALONE], rounds), "us", "prefixaware",
		median(f->p99_us[PREFIXAWARE], rounds),
		ratio(f->p99_us[ALONE], f->p99_us[PREFIXAWARE], rounds));
	print("decision_us_p50_beside_events", median(f->p50_us[WITH_EVENTS], rounds), "us",
		"without events", median(f->p50_us[ALONE], rounds),
		ratio(f->p50_us[WITH_EVENTS], f->p50_us[ALONE], rounds));
	print("decision_us_p99_beside_events", median(f->p99_us[WITH_EVENTS], rounds), "us",
		"without events", median(f->p99_us[ALONE], rounds),
		ratio(f->p99_us[WITH_EVENTS], f->p99_us[ALONE], rounds));
	print("events_per_second", median(f->events, rounds), "1/s", NULL, 0, 0);
	print("hit_tokens", hit, "1", NULL, 0, 0);
}

/* --- life --- */

static void bench_make(struct bench *bench, uint64_t conversations)
{
	static const char *const names[] = {"prefixaware", "kvaware"};
	struct kvw_strategy_options options = {.omega = 0.07,
		.context_ns_per_token = 3000,
		.prefill_tokens_per_second = 8000,
		.attention_ns_per_pair = 1.75,
		.tree_bytes = UINT64_C(256) << 20,
		.capacity_tokens = 1000000,
		.inflight_bound = 2,
		.inflight_gap = 8,
		.seed = 17,
		.index_bytes = UINT64_C(512) << 20};

	bench->conversations = conversations;
	for (unsigned i = 0; i < 2; i++)
		if (kvw_strategy_find(names[i])->create(&options, &bench->strategies[i]) != KVW_OK)
			abort();
	bench->exact = bench->strategies[1]->ops->exact(bench->strategies[1]);
	bench->loads = aligned_alloc(64, WORKERS * sizeof(*bench->loads));
	bench->board = aligned_alloc(64, sizeof(*bench->board));
	if (bench->loads == NULL || bench->board == NULL)
		abort();
	for (uint32_t w = 0; w < WORKERS; w++) {
		kvw_load_init_on(&bench->loads[w], bench->board, (uint32_t)w);
		bench->items[w] = (struct kvw_candidate){.id = w,
			.key = mix(w + 1),
			.load = &bench->loads[w],
			.capacity_tokens = 1000000,
			.block_size = BLOCK,
			.share = 1,
			.usable = true};
		kvw_exact_set_coverage(bench->exact, w, KVW_REPORTER_ENGINE, KVW_COVERAGE_FULL);
		for (uint64_t prefix = 0; prefix < PREFIXES; prefix++)
			tell(bench, w, prefix, 0, SHARED, true);
	}
	bench->set = (struct kvw_candidates){bench->items, WORKERS, bench->board, 1};
	for (uint64_t c = 0; c < conversations; c++)
		tell(bench, worker_of(c), c, SHARED, HELD, true);
}

static void bench_finish(struct bench *bench)
{
	for (unsigned i = 0; i < 2; i++)
		bench->strategies[i]->ops->destroy(bench->strategies[i]);
	free(bench->loads);
	free(bench->board);
}

int main(int argc, char **argv)
{
	static struct bench bench;
	static struct figures figures;
	static uint32_t samples_ns[SAMPLES];
	uint64_t conversations = 20000;
	double seconds = 1;
	unsigned rounds = 5;
	int option = 0;

	while ((option = getopt(argc, argv, "s:r:n:")) != -1) {
		if (option == 's') {
			seconds = atof(optarg);
		} else if (option == 'r') {
			rounds = (unsigned)atoi(optarg);
		} else if (option == 'n') {
			conversations = strtoull(optarg, NULL, 10);
		} else {
			fprintf(stderr, "usage: %s [-s SECONDS] [-r ROUNDS] [-n CONVERSATIONS]\n",
				argv[0]);
			return 2;
		}
	}
	if (seconds <= 0 || rounds < 1 || rounds > MAX_ROUNDS || conversations < 100)
		return 2;
	bench_make(&bench, conversations);
	/* fills the trees before the first round */
	(void)decide(&bench, bench.strategies[0], seconds, samples_ns);
	(void)decide(&bench, bench.strategies[1], seconds, samples_ns);
	for (unsigned r = 0; r < rounds; r++)
		for (unsigned i = 0; i < FIGURES; i++)
			measure(&bench, (enum figure)i, r, seconds, samples_ns, &figures);
	fprintf(stderr, "decisions/s   p50 us   p99 us\n");
	tell_all(&bench, &figures, rounds);
	bench_finish(&bench);
	return 0;
}
