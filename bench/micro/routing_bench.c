/*
 * routing_bench.c - decisions per second of prefixaware, and how long the slow ones take.
 *
 * A decision is what the proxy does for one request: pick (walk, weigh, choose, insert), take the
 * lease, and for an earlier request first token, done and release. Prompts are random paths
 * through a tree of six branch points, built before the clock starts, plus a new suffix of
 * their own, so every decision inserts a node and, the tree being at its limit, evicts one.
 * Below the second branch point a node has at most 16 holders.
 *
 * Prompts are made in small batches outside the measured time; like a chain that the body scan
 * has just folded, they are in the cache when the pick begins, the tree is not.
 *
 * One JSON line per figure on stdout.
 */
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kvway/route.h"

#define LEVELS      7 /* segments of a path: six branch points */
#define BATCH       32
#define OUTSTANDING 64 /* leases held per thread */
#define NODE_BYTES  280
#define MAX_DEPTH   1024
#define UNITS       256 /* bytes per chunk */
#define SAMPLES     200000

/* One line of the table. */
struct shape {
	uint32_t depth; /* chunks of a prompt */
	uint32_t fresh; /* of these, at the end, nobody has seen */
	uint32_t fan;   /* children of each branch point */
	uint32_t roots; /* beginnings of prompts */
	uint32_t workers;
	uint32_t threads;
	const char *note;
};

struct bench {
	struct shape shape;
	struct kvw_strategy *strategy;
	struct kvw_load *loads;
	struct kvw_candidate items[KVW_MAX_WORKERS];
	struct kvw_candidates set;
	double seconds;
	_Atomic bool stop;
	pthread_barrier_t start;
};

struct worker_thread {
	struct bench *bench;
	uint64_t seed;
	uint64_t decisions;
	int64_t busy_ns;
	uint64_t hits; /* decisions with a hit, to see that the tree does something */
	uint32_t *samples_ns;
	size_t sample_count;
};

static int64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* CPU time of this thread: the machine may be shared. */
static int64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
	return x ^ x >> 31;
}

static uint64_t dice(uint64_t *state)
{
	return mix(*state += UINT64_C(0x9E3779B97F4A7C15));
}

/* Path number `path` (below leaf_count) as chunks, and a suffix of its own for `unique`. */
static void make_prompt(
	const struct shape *shape, uint64_t path, uint64_t unique, struct kvw_chunk *chunks)
{
	uint32_t known = shape->depth - shape->fresh;
	uint64_t hash = 1;
	uint64_t rest = path;
	uint32_t at = 0;

	for (uint32_t level = 0; level < LEVELS && known > 0; level++) {
		uint32_t fan = level == 0 ? shape->roots : shape->fan;
		uint32_t end = known * (level + 1) / LEVELS;

		for (uint32_t first = at; at < end; at++) {
			hash = mix(hash + (at == first ? 2 + rest % fan : 1));
			chunks[at] = (struct kvw_chunk){hash, (at + 1) * UNITS, 0};
		}
		rest /= fan;
	}
	hash = mix(hash + unique);
	for (; at < shape->depth; at++) {
		hash = mix(hash + 1);
		chunks[at] = (struct kvw_chunk){hash, (at + 1) * UNITS, 0};
	}
}

static uint64_t leaf_count(const struct shape *shape)
{
	uint64_t count = shape->roots;

	for (unsigned level = 1; level < LEVELS; level++)
		count *= shape->fan;
	return count;
}

/* Nodes of the finished tree: runs of up to 27 chunks per segment. */
static uint64_t node_count(const struct shape *shape)
{
	uint64_t nodes = 0;
	uint64_t width = shape->roots;
	uint32_t known = shape->depth - shape->fresh;

	for (uint32_t level = 0; level < LEVELS; level++) {
		uint32_t length = known * (level + 1) / LEVELS - known * level / LEVELS;

		nodes += width * ((length + 26) / 27);
		width *= shape->fan;
	}
	return nodes;
}

static struct kvw_route_request request_for(const struct kvw_chunk *chunks, const uint32_t *depth)
{
	return (struct kvw_route_request){
		.api = KVW_API_CHAT,
		.content_known = true,
		.teaches = true,
		.tokens_per_unit = 0.25f,
		.chunks = chunks,
		.chunk_count = *depth,
		.chain_ends = depth,
		.chain_count = 1,
	};
}

/* Enters every path for one of the 16 workers of its subtree. */
static bool populate(struct bench *bench)
{
	const struct shape *shape = &bench->shape;
	struct kvw_chunk *chunks = calloc(MAX_DEPTH, sizeof(*chunks));
	uint64_t leaves = leaf_count(shape);
	struct shape bare = *shape;

	if (chunks == NULL)
		return false;
	bare.depth -= bare.fresh;
	bare.fresh = 0;
	for (uint64_t i = 0; i < leaves && bare.depth > 0; i++) {
		uint64_t path = i * UINT64_C(1000003) % leaves;
		uint64_t subtree = path % (shape->roots * (uint64_t)shape->fan);
		uint32_t id = (uint32_t)((subtree * 7 + mix(path) % 16) % shape->workers);
		struct kvw_candidates one = {&bench->items[id], 1};
		struct kvw_route_request request = request_for(chunks, &bare.depth);
		struct kvw_decision decision;

		make_prompt(&bare, path, 0, chunks);
		if (bench->strategy->ops->pick(
			    bench->strategy, &request, &one, (int64_t)i, &decision) != KVW_OK)
			break;
	}
	free(chunks);
	return true;
}

/* One request after another; each ends the one OUTSTANDING before it. */
static void decide(struct worker_thread *thread, const struct kvw_route_request *request,
	struct kvw_lease *lease, int64_t now_ns)
{
	struct bench *bench = thread->bench;
	struct kvw_decision decision;

	kvw_lease_first_token(lease, now_ns);
	kvw_lease_release(lease, now_ns);
	if (bench->strategy->ops->pick(bench->strategy, request, &bench->set, now_ns, &decision) !=
		KVW_OK)
		abort();
	kvw_lease_take(lease, bench->items[decision.pos].load, decision.prefill_ns, now_ns);
	thread->hits += decision.hit_tokens[KVW_TIER_DEVICE] > 0;
}

static void *run_thread(void *arg)
{
	struct worker_thread *thread = arg;
	struct bench *bench = thread->bench;
	const struct shape *shape = &bench->shape;
	uint64_t leaves = leaf_count(shape);
	struct kvw_chunk *chunks = calloc((size_t)BATCH * MAX_DEPTH, sizeof(*chunks));
	struct kvw_lease leases[OUTSTANDING];

	memset(leases, 0, sizeof(leases));
	pthread_barrier_wait(&bench->start);
	while (chunks != NULL && !atomic_load_explicit(&bench->stop, memory_order_relaxed)) {
		int64_t begin = 0;
		int64_t now = 0;

		for (unsigned i = 0; i < BATCH; i++)
			make_prompt(shape, dice(&thread->seed) % leaves, dice(&thread->seed),
				chunks + (size_t)i * MAX_DEPTH);
		now = clock_ns();
		begin = cpu_ns();
		for (unsigned i = 0; i < BATCH; i++) {
			struct kvw_route_request request =
				request_for(chunks + (size_t)i * MAX_DEPTH, &shape->depth);
			int64_t one = thread->samples_ns != NULL ? clock_ns() : now;

			decide(thread, &request, &leases[thread->decisions++ % OUTSTANDING], one);
			if (thread->samples_ns != NULL && thread->sample_count < SAMPLES)
				thread->samples_ns[thread->sample_count++] =
					(uint32_t)(clock_ns() - one);
		}
		thread->busy_ns += cpu_ns() - begin;
	}
	for (unsigned i = 0; i < OUTSTANDING; i++)
		kvw_lease_release(&leases[i], 0);
	free(chunks);
	return NULL;
}

static void print(const struct bench *bench, const char *metric, double value, const char *unit)
{
	const struct shape *shape = &bench->shape;

	printf("{\"bench\":\"routing\",\"metric\":\"%s\",\"value\":%.6g,\"unit\":\"%s\","
	       "\"strategy\":\"prefixaware\",\"depth\":%u,\"new_chunks\":%u,\"nodes\":%llu,"
	       "\"workers\":%u,\"threads\":%u,\"note\":\"%s\"}\n",
		metric, value, unit, shape->depth, shape->fresh,
		(unsigned long long)node_count(shape), shape->workers, shape->threads, shape->note);
	fflush(stdout);
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a;
	uint32_t y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* Runs all threads for a while. Returns decisions per second of busy time, summed. */
static double run_threads(struct bench *bench, struct worker_thread *threads, uint64_t seed)
{
	pthread_t ids[64];
	double rate = 0;

	atomic_store(&bench->stop, false);
	pthread_barrier_init(&bench->start, NULL, bench->shape.threads + 1);
	for (uint32_t i = 0; i < bench->shape.threads; i++) {
		threads[i].bench = bench;
		threads[i].seed = seed + i * 1000;
		if (pthread_create(&ids[i], NULL, run_thread, &threads[i]) != 0)
			abort();
	}
	pthread_barrier_wait(&bench->start);
	{
		struct timespec pause = {(time_t)bench->seconds,
			(long)((bench->seconds - (double)(time_t)bench->seconds) * 1e9)};

		nanosleep(&pause, NULL);
	}
	atomic_store(&bench->stop, true);
	for (uint32_t i = 0; i < bench->shape.threads; i++) {
		pthread_join(ids[i], NULL);
		rate += (double)threads[i].decisions * 1e9 / (double)threads[i].busy_ns;
	}
	pthread_barrier_destroy(&bench->start);
	return rate;
}

static void measure(struct bench *bench)
{
	struct worker_thread threads[64];
	struct kvw_strategy_stats stats;
	double rate = 0;

	memset(threads, 0, sizeof(threads));
	(void)run_threads(bench, threads, 11); /* warm up, reach the limit */
	memset(threads, 0, sizeof(threads));
	rate = run_threads(bench, threads, 22);
	print(bench, "decisions_per_second", rate, "1/s");
	print(bench, "hit_share", (double)threads[0].hits / (double)threads[0].decisions, "1");
	memset(threads, 0, sizeof(threads));
	threads[0].samples_ns = calloc(SAMPLES, sizeof(uint32_t));
	if (threads[0].samples_ns != NULL) {
		(void)run_threads(bench, threads, 33);
		qsort(threads[0].samples_ns, threads[0].sample_count, sizeof(uint32_t), by_value);
		print(bench, "decision_us_p50",
			threads[0].samples_ns[threads[0].sample_count / 2] / 1e3, "us");
		print(bench, "decision_us_p99",
			threads[0].samples_ns[threads[0].sample_count * 99 / 100] / 1e3, "us");
		free(threads[0].samples_ns);
	}
	bench->strategy->ops->stats(bench->strategy, &stats);
	print(bench, "bytes_per_chunk",
		stats.chunks > 0 ? (double)stats.bytes / (double)stats.chunks : 0, "B");
}

/* Idle workers with loads of their own. */
static bool make_workers(struct bench *bench)
{
	uint32_t workers = bench->shape.workers;

	bench->loads = aligned_alloc(64, workers * sizeof(*bench->loads));
	if (bench->loads == NULL)
		return false;
	for (uint32_t i = 0; i < workers; i++) {
		kvw_load_init(&bench->loads[i]);
		bench->items[i] = (struct kvw_candidate){
			.id = i,
			.key = mix(i + 1),
			.load = &bench->loads[i],
			.block_size = 16,
			.share = 1,
			.usable = true,
		};
	}
	bench->set = (struct kvw_candidates){bench->items, workers};
	return true;
}

static int run_shape(const struct shape *shape, double seconds)
{
	struct bench *bench = calloc(1, sizeof(*bench));
	struct kvw_strategy_options options = {
		.omega = 0.25,
		.prefill_tokens_per_second = 8000,
		.attention_ns_per_pair = 1.75,
		.tree_bytes = node_count(shape) * NODE_BYTES + (1 << 20),
		.capacity_tokens = UINT64_C(1) << 40,
		.seed = 12345,
	};
	const struct kvw_strategy_ops *ops = kvw_strategy_find("prefixaware");
	int rc = 1;

	if (bench == NULL)
		return rc;
	bench->shape = *shape;
	bench->seconds = seconds;
	if (make_workers(bench) && ops->create(&options, &bench->strategy) == KVW_OK &&
		populate(bench)) {
		measure(bench);
		rc = 0;
	}
	ops->destroy(bench->strategy);
	free(bench->loads);
	free(bench);
	return rc;
}

static const struct shape shapes[] = {
	{8, 1, 2, 16, 8, 1, "2 KB prompts, in cache"},
	{8, 1, 6, 18, 8, 1, "2 KB prompts"},
	{8, 1, 6, 18, 64, 1, "2 KB prompts"},
	{64, 6, 6, 18, 64, 1, "out of cache"},
	{64, 6, 6, 18, 64, 2, "out of cache"},
	{64, 6, 6, 18, 8, 1, "out of cache"},
	{64, 6, 6, 18, 256, 1, "out of cache"},
	{64, 6, 6, 18, 1024, 1, "out of cache"},
	{64, 6, 2, 16, 64, 1, "in cache"},
	{1024, 14, 4, 32, 8, 1, "256 KB prompts"},
	{1024, 14, 4, 32, 64, 1, "256 KB prompts"},
	{1024, 1024, 4, 16, 64, 1, "256 KB prompts, all new"},
};

int main(int argc, char **argv)
{
	double seconds = 1;
	uint32_t depth = 0;
	int only = -1;
	int option = 0;
	int rc = 0;

	while ((option = getopt(argc, argv, "s:d:i:")) != -1) {
		if (option == 's') {
			seconds = atof(optarg);
		} else if (option == 'd') {
			depth = (uint32_t)atoi(optarg);
		} else if (option == 'i') {
			only = atoi(optarg);
		} else {
			fprintf(stderr, "usage: %s [-s SECONDS] [-d DEPTH] [-i LINE]\n", argv[0]);
			return 2;
		}
	}
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]) && rc == 0; i++)
		if ((depth == 0 || shapes[i].depth == depth) && (only < 0 || only == (int)i))
			rc = run_shape(&shapes[i], seconds);
	return rc;
}
