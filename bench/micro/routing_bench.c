/*
 * routing_bench.c - decisions per second of prefixaware, and how long the slow ones take.
 *
 * pick_load.h describes the tree and the requests. A figure is the median over rounds. One thread, two
 * threads and the pointer chase take turns of SLICE_S in each round: on a shared machine two
 * neighbouring runs of some seconds differ by several percent, many short ones hardly do. Rates are per second of CPU time of the thread that worked, summed over threads;
 * times of single decisions are by the clock.
 *
 * What two threads gain is compared with what a pointer chase over as many bytes gains: sharing the
 * memory is not the tree's doing, locks and lines that wander between cores are.
 *
 * One JSON line per figure on stdout, a table on stderr.
 */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/micro/chase.h"
#include "bench/micro/pick_load.h"
#include "bench/timing.h"

#define MAX_ROUNDS  99
#define WARM_UP_S   8
#define CHASE_STEPS 4096 /* links between two looks at the time */
/* length of a turn; processor caches are full again after a small part of it */
#define SLICE_S     0.05

/* The figures of each round. Rates are per second, summed over threads. */
enum figure {
	DECISIONS,     /* decisions by all threads of the line */
	DECISIONS_ONE, /* one thread */
	GAIN,          /* the first figure divided by the second */
	CHASE_GAIN,    /* the same ratio of the pointer chase */
	GAIN_RATIO,
	INSERTS,
	P50_US,
	P99_US,
	FIGURES
};

/* The kinds of turns that are compared. */
enum kind { PICK_ONE, CHASE_ONE, PICK_ALL, CHASE_ALL, WORKS };

struct results {
	unsigned rounds;
	double values[FIGURES][MAX_ROUNDS];
};

/* One thread of the pointer chase. */
struct chaser {
	const struct kvb_chase *chase;
	_Atomic bool *stop;
	uint64_t at;
	uint64_t done;
	int64_t busy_ns;
};

/* The work of threads, and the CPU time that it took. */
struct work {
	unsigned count; /* of threads */
	unsigned core;  /* core of the first thread; each further one has the next core */
	double done;
	double busy_ns; /* CPU time of all threads */
};

/* --- running --- */

/* Pins a thread to the i-th usable core. */
static void pin(pthread_attr_t *attr, unsigned i)
{
	cpu_set_t allowed;
	cpu_set_t one;
	unsigned skip = 0;

	if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) == 0)
		return;
	skip = i % (unsigned)CPU_COUNT(&allowed);
	for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &allowed) || skip-- > 0)
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		(void)pthread_attr_setaffinity_np(attr, sizeof(one), &one);
		return;
	}
}

/* Runs `count` threads for a while, or until they are done on their own (seconds 0). */
static void run_threads(void *(*body)(void *), char *args, size_t each, const struct work *work,
	_Atomic bool *stop, double seconds)
{
	pthread_t ids[KVB_PICK_THREADS];
	struct timespec pause = {
		(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};

	atomic_store(stop, false);
	for (unsigned i = 0; i < work->count; i++) {
		pthread_attr_t attr;

		pthread_attr_init(&attr);
		pin(&attr, work->core + i);
		if (pthread_create(&ids[i], &attr, body, args + i * each) != 0)
			abort();
		pthread_attr_destroy(&attr);
	}
	if (seconds > 0) {
		nanosleep(&pause, NULL);
		atomic_store(stop, true);
	}
	for (unsigned i = 0; i < work->count; i++)
		pthread_join(ids[i], NULL);
}

/* Computes the median and the slow end of a thread's samples, in microseconds. */
static void sum_up(struct kvb_pick_thread *thread, double *p50_us, double *p99_us)
{
	size_t count = thread->sample_count;

	*p50_us = *p99_us = 0;
	if (count == 0)
		return;
	qsort(thread->samples_ns, count, sizeof(uint32_t), kvb_by_u32);
	*p50_us = thread->samples_ns[count / 2] / 1e3;
	*p99_us = thread->samples_ns[count * 99 / 100] / 1e3;
}

/* Returns work per second of CPU time, summed over the threads. */
static double rate_of(const struct work *work)
{
	return work->busy_ns > 0 ? work->done * 1e9 / work->busy_ns * work->count : 0;
}

/* Adds decisions or inserts. Each run has prompts of its own: one that was met before is in the tree.
 * The threads' places are the caller's. */
static void run_picks(struct kvb_pick *pick, struct kvb_pick_thread *threads, enum kvb_task task,
	double seconds, struct work *work)
{
	_Atomic bool stop = false;
	unsigned count = work->count;

	for (unsigned i = 0; i < count; i++) {
		uint32_t *samples = threads[i].samples_ns;

		threads[i] = (struct kvb_pick_thread){
			.pick = pick,
			.task = task == KVB_TASK_TIMED && i > 0 ? KVB_TASK_DECIDE : task,
			.seed = kvb_dice(&pick->seed),
			.stop = &stop,
			.samples_ns = samples,
		};
	}
	run_threads(kvb_pick_run, (char *)threads, sizeof(threads[0]), work, &stop, seconds);
	for (unsigned i = 0; i < count; i++) {
		work->done += (double)threads[i].done;
		work->busy_ns += (double)threads[i].busy_ns;
	}
}

static void *run_chaser(void *arg)
{
	struct chaser *c = arg;
	int64_t begin = kvb_cpu_ns();

	while (!atomic_load_explicit(c->stop, memory_order_relaxed)) {
		c->at = kvb_chase_run(c->chase, c->at, CHASE_STEPS);
		c->done += CHASE_STEPS;
	}
	c->busy_ns = kvb_cpu_ns() - begin;
	return NULL;
}

/* Adds followed links. Each run begins at another line, since lines of the last turn may still
 * be in a cache. */
static void run_chase(
	const struct kvb_chase *chase, double seconds, uint64_t *dice, struct work *work)
{
	struct chaser chasers[KVB_PICK_THREADS];
	_Atomic bool stop = false;
	unsigned count = work->count;

	memset(chasers, 0, sizeof(chasers));
	for (unsigned i = 0; i < count; i++) {
		chasers[i].chase = chase;
		chasers[i].stop = &stop;
		chasers[i].at = kvb_dice(dice) % chase->lines;
	}
	run_threads(run_chaser, (char *)chasers, sizeof(chasers[0]), work, &stop, seconds);
	for (unsigned i = 0; i < count; i++) {
		work->done += (double)chasers[i].done;
		work->busy_ns += (double)chasers[i].busy_ns;
	}
}

/* Runs until about half of the tree was replaced, which is the mixture of old and new nodes at
 * which it stays. Returns the tokens that a decision hits. */
static double warm_up(struct kvb_pick *pick)
{
	uint64_t most = kvb_shape_nodes(&pick->shape) / 2 + 10000;
	int64_t end = kvb_clock_ns() + WARM_UP_S * INT64_C(1000000000);
	_Atomic bool stop = false;
	struct kvb_pick_thread thread = {
		.pick = pick, .seed = 7, .stop = &stop, .most = most / 16 + 1};

	for (unsigned i = 0; i < 16 && kvb_clock_ns() < end; i++) {
		thread.done = 0;
		thread.hit_tokens = 0;
		(void)kvb_pick_run(&thread);
	}
	return (double)thread.hit_tokens / (double)thread.done;
}

/* Runs one turn of each kind. Every second time the order is reversed, and single threads use
 * the other core, since cores differ. */
static void run_turn(struct kvb_pick *pick, const struct kvb_chase *chase, double seconds,
	unsigned turn, struct work work[WORKS])
{
	struct kvb_pick_thread threads[KVB_PICK_THREADS];

	memset(threads, 0, sizeof(threads));
	for (unsigned i = 0; i < WORKS; i++) {
		enum kind kind = turn % 2 == 0 ? i : WORKS - 1 - i;

		work[kind].core = turn / 2 % 2;
		if (kind == CHASE_ONE || kind == CHASE_ALL)
			run_chase(chase, seconds, &pick->seed, &work[kind]);
		else
			run_picks(pick, threads, KVB_TASK_DECIDE, seconds, &work[kind]);
	}
}

/* Computes the rates of one thread and of all, and their ratios. */
static void compare(struct kvb_pick *pick, const struct kvb_chase *chase, double seconds,
	struct results *results, unsigned r)
{
	unsigned count = pick->shape.threads;
	unsigned turns = (unsigned)ceil(seconds / SLICE_S);
	struct work work[WORKS] = {[PICK_ONE] = {.count = 1},
		[PICK_ALL] = {.count = count},
		[CHASE_ONE] = {.count = 1},
		[CHASE_ALL] = {.count = count}};

	for (unsigned i = 0; i < turns; i++)
		run_turn(pick, chase, seconds / turns, r * turns + i, work);
	results->values[DECISIONS][r] = rate_of(&work[PICK_ALL]);
	results->values[DECISIONS_ONE][r] = rate_of(&work[PICK_ONE]);
	results->values[GAIN][r] = rate_of(&work[PICK_ALL]) / rate_of(&work[PICK_ONE]);
	results->values[CHASE_GAIN][r] = rate_of(&work[CHASE_ALL]) / rate_of(&work[CHASE_ONE]);
	results->values[GAIN_RATIO][r] = results->values[GAIN][r] / results->values[CHASE_GAIN][r];
}

static void run_round(struct kvb_pick *pick, const struct kvb_chase *chase, double seconds,
	struct results *results, uint32_t *samples)
{
	struct kvb_pick_thread threads[KVB_PICK_THREADS];
	unsigned r = results->rounds++;
	unsigned count = pick->shape.threads;
	struct work decisions = {.count = count};
	struct work inserts = {.count = count};

	memset(threads, 0, sizeof(threads));
	if (count > 1) {
		compare(pick, chase, seconds, results, r);
	} else {
		run_picks(pick, threads, KVB_TASK_DECIDE, seconds, &decisions);
		results->values[DECISIONS][r] = rate_of(&decisions);
	}
	threads[0].samples_ns = samples;
	run_picks(pick, threads, KVB_TASK_TIMED, seconds, &decisions);
	sum_up(&threads[0], &results->values[P50_US][r], &results->values[P99_US][r]);
	run_picks(pick, threads, KVB_TASK_INSERT, seconds / 2, &inserts);
	results->values[INSERTS][r] = rate_of(&inserts);
}

/* --- reporting --- */

static double median(const struct results *results, enum figure figure)
{
	double values[MAX_ROUNDS];
	unsigned count = results->rounds;

	memcpy(values, results->values[figure], sizeof(values));
	qsort(values, count, sizeof(values[0]), kvb_by_value);
	return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* Prints a figure of one line of the table. `more`: further members, beginning with a comma, or
 * "". */
static void print(const struct kvb_pick *pick, const struct kvb_census *census, const char *metric,
	double value, const char *unit, const char *more)
{
	const struct kvb_shape *shape = &pick->shape;

	printf("{\"bench\":\"pick\",\"metric\":\"%s\",\"value\":%.5g,\"unit\":\"%s\"%s,"
	       "\"depth\":%u,\"new_chunks\":%u,\"nodes\":%llu,\"holders_mean\":%.3g,"
	       "\"workers\":%u,\"threads\":%u,\"note\":\"%s\"}\n",
		metric, value, unit, more, shape->depth, shape->fresh,
		(unsigned long long)census->nodes, census->holders_mean, shape->workers,
		shape->threads, shape->note);
	fflush(stdout);
}

static void tell(const struct kvb_pick *pick, const struct kvb_census *census, double hit_tokens,
	const struct results *results)
{
	const struct kvb_shape *shape = &pick->shape;
	double bytes = (double)census->bytes / ((double)census->chunks * KVB_PICK_TOKENS);
	char more[128] = "";

	print(pick, census, "decisions_per_second", median(results, DECISIONS), "1/s", "");
	print(pick, census, "decision_us_p50", median(results, P50_US), "us", "");
	print(pick, census, "decision_us_p99", median(results, P99_US), "us", "");
	print(pick, census, "inserts_per_second", median(results, INSERTS), "1/s", "");
	print(pick, census, "bytes_per_cached_prompt_token", bytes, "B", "");
	print(pick, census, "hit_chunks", hit_tokens / KVB_PICK_TOKENS, "1", "");
	fprintf(stderr, "%7u %6u %7u %5.1f %7.0fk %8.1f %10.0fk %7.2f %7.2f %9.0fk %7.2f  %s\n",
		shape->workers, shape->threads, shape->depth, census->holders_mean,
		(double)census->nodes / 1e3, hit_tokens / KVB_PICK_TOKENS,
		median(results, DECISIONS) / 1e3, median(results, P50_US), median(results, P99_US),
		median(results, INSERTS) / 1e3, bytes, shape->note);
	if (shape->threads < 2)
		return;
	(void)snprintf(more, sizeof(more),
		",\"peer\":\"pointer chase\",\"ratio\":%.3g,\"peer_value\":%.4g",
		median(results, GAIN_RATIO), median(results, CHASE_GAIN));
	print(pick, census, "threads_gain", median(results, GAIN), "x", more);
	fprintf(stderr,
		"        %u threads do %.2f times what one does (%.0fk); a pointer chase %.2f "
		"times; "
		"ratio %.2f\n",
		shape->threads, median(results, GAIN), median(results, DECISIONS_ONE) / 1e3,
		median(results, CHASE_GAIN), median(results, GAIN_RATIO));
}

static int run_shape(const struct kvb_shape *shape, double seconds, unsigned rounds)
{
	struct kvb_pick *pick = kvb_pick_create(shape);
	uint32_t *samples = calloc(KVB_PICK_SAMPLES, sizeof(*samples));
	struct results *results = calloc(1, sizeof(*results));
	struct kvb_chase chase = {0};
	struct kvb_census census;
	double hit_tokens = 0;
	int rc = 1;

	if (pick == NULL || samples == NULL || results == NULL)
		goto out;
	hit_tokens = warm_up(pick);
	kvb_pick_count(pick, &census);
	if (shape->threads > 1 && kvb_chase_init(&chase, census.mapped_bytes, 99) != 0)
		goto out;
	while (results->rounds < rounds)
		run_round(pick, &chase, seconds, results, samples);
	tell(pick, &census, hit_tokens, results);
	rc = 0;
out:
	kvb_chase_finish(&chase);
	free(results);
	free(samples);
	kvb_pick_destroy(pick);
	return rc;
}

/* depth, fresh, fan, roots, holders, copies, workers, threads */
static const struct kvb_shape shapes[] = {
	{8, 1, 2, 16, 16, 1, 8, 1, "2 KB prompts, in cache"},
	{8, 1, 6, 18, 16, 1, 8, 1, "2 KB prompts"},
	{8, 1, 6, 18, 16, 1, 64, 1, "2 KB prompts"},
	{64, 6, 6, 18, 16, 16, 64, 1, "out of cache"},
	{64, 6, 6, 18, 16, 16, 64, 2, "out of cache"},
	{64, 6, 6, 18, 16, 16, 8, 1, "out of cache"},
	{64, 6, 6, 18, 16, 16, 256, 1, "out of cache"},
	{64, 6, 6, 18, 16, 16, 1024, 1, "out of cache"},
	{64, 6, 2, 16, 16, 16, 64, 1, "in cache"},
	{1024, 14, 4, 32, 16, 1, 8, 1, "256 KB prompts"},
	{1024, 14, 4, 32, 16, 1, 64, 1, "256 KB prompts"},
	{1024, 1024, 4, 16, 16, 1, 64, 1, "256 KB prompts, all new"},
	{64, 6, 6, 18, 16, 1, 64, 1, "out of cache, a leaf on one worker"},
	{64, 6, 2, 16, 16, 16, 1024, 1, "in cache"},
	{64, 6, 2, 16, 16, 16, 64, 2, "in cache"},
	{64, 6, 2, 16, 16, 1, 64, 1, "in cache, a leaf on one worker"},
};

int main(int argc, char **argv)
{
	double seconds = 0.5;
	unsigned rounds = 5;
	uint32_t depth = 0;
	int only = -1;
	int option = 0;
	int rc = 0;

	while ((option = getopt(argc, argv, "s:r:d:i:")) != -1) {
		if (option == 's') {
			seconds = atof(optarg);
		} else if (option == 'r') {
			rounds = (unsigned)atoi(optarg);
		} else if (option == 'd') {
			depth = (uint32_t)atoi(optarg);
		} else if (option == 'i') {
			only = atoi(optarg);
		} else {
			fprintf(stderr, "usage: %s [-s SECONDS] [-r ROUNDS] [-d DEPTH] [-i LINE]\n",
				argv[0]);
			return 2;
		}
	}
	if (seconds <= 0 || rounds < 1 || rounds > MAX_ROUNDS)
		return 2;
	fprintf(stderr, "workers threads depth holders   nodes hits(chunks) decisions/s  p50 us  "
			"p99 us  inserts/s B/token\n");
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]) && rc == 0; i++)
		if ((depth == 0 || shapes[i].depth == depth) && (only < 0 || only == (int)i))
			rc = run_shape(&shapes[i], seconds, rounds);
	return rc;
}
