/*
 * stall.c - how long lookups and gets take while the shared tier's server stands still.
 *
 * Puts chunks into Redis through one cache, then opens another one with hardly any memory of its own
 * that caches answers for as short a time as it can, so that every lookup asks the server and every get
 * reads from it. One thread looks up chains, one gets chunks and compares every byte, each with a limit
 * of its own; meanwhile the program stops the server's process with SIGSTOP and continues it. It prints
 * the times of both before the stop, until the breaker opened, while it was open, and once lookups found
 * something again; also when the breaker opened after the stop, and when the first lookup found
 * something after the continuation. A wrong byte ends the program.
 */
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/l2/spent.h"
#include "bench/load/stats.h"

#define CHUNK      (UINT64_C(1) << 20)
#define CHUNKS     64u
#define CHAIN      16u
/* memory of the cache that reads, with room for fewer than CHUNKS chunks */
#define L1_BYTES   (UINT64_C(16) << 20)
#define DRAIN_NS   UINT64_C(60000000000)
#define PAUSE_NS   2000000 /* ns between two lookups or gets */
#define LOOK_NS    1000000 /* ns between two looks at the breaker */
#define MOST_CALLS 200000u

/* One call: when it began, how long it took, what it found. */
struct call {
	double began, seconds;
	size_t found;
};

/* A thread that makes calls, and the record of them. */
struct caller {
	struct bench *bench;
	void (*work)(struct bench *bench, uint64_t number, struct call *call);
	pthread_t thread;
	struct call *calls; /* MOST_CALLS; read after the thread has ended */
	size_t count;
};

struct bench {
	uint16_t port;
	pid_t server;
	uint64_t find_ns, get_ns, deadline_ns,
		breaker_ns;            /* the last two may be 0: the configuration's default */
	/* seconds of each phase; after: the most that recovery may take */
	double before, stalled, after;
	struct kvt *cache;
	char *expected; /* CHUNKS * CHUNK */
	char *got;      /* CHUNK; the getter's */
	struct kvt_key keys[CHUNKS];
	_Atomic bool stop;
	_Atomic bool back; /* a lookup found something; set to false at the continuation */
	double stopped_at, opened_at, continued_at, back_at; /* opened_at, back_at 0: never */
};

static double parse_ms(const char *text)
{
	return strtod(text, NULL) * 1e-3;
}

static void parse(struct bench *b, int argc, char **argv)
{
	int option;

	while ((option = getopt(argc, argv, "p:s:f:g:D:B:a:t:z:")) != -1) {
		switch (option) {
		case 'p':
			b->port = (uint16_t)strtoul(optarg, NULL, 10);
			break;
		case 's':
			b->server = (pid_t)strtol(optarg, NULL, 10);
			break;
		case 'f':
			b->find_ns = (uint64_t)(parse_ms(optarg) * 1e9);
			break;
		case 'g':
			b->get_ns = (uint64_t)(parse_ms(optarg) * 1e9);
			break;
		case 'D':
			b->deadline_ns = (uint64_t)(parse_ms(optarg) * 1e9);
			break;
		case 'B':
			b->breaker_ns = (uint64_t)(parse_ms(optarg) * 1e9);
			break;
		case 'a':
			b->before = parse_ms(optarg);
			break;
		case 't':
			b->stalled = parse_ms(optarg);
			break;
		case 'z':
			b->after = parse_ms(optarg);
			break;
		default:
			b->port = 0;
		}
	}
	if (b->port == 0 || b->server <= 0)
		kvb_fail("usage: stall -p PORT -s SERVER PID [-f LOOKUP'S LIMIT] [-g GET'S LIMIT] "
			 "[-D DEADLINE] [-B BREAKER'S FIRST PAUSE] [-a BEFORE] [-t STALLED] [-z "
			 "AFTER]; in ms");
}

static struct kvt *open_cache(const struct bench *b, uint64_t l1_bytes)
{
	struct kvt_config config;
	struct kvt *cache;
	char url[64];

	(void)snprintf(url, sizeof(url), "redis://127.0.0.1:%u", b->port);
	kvt_config_init(&config, sizeof(config));
	config.l1_capacity = l1_bytes;
	config.l1_backing = "anon";
	config.l2_url = url;
	config.l2_seen_ns = 1000000;
	config.l2_missing_ns = 0;
	config.fetch_when_slower = 1;
	/* room for all stores, so that none is dropped */
	config.store_inflight = 2 * CHUNKS * CHUNK;
	if (b->deadline_ns != 0)
		config.l2_deadline_ns = b->deadline_ns;
	if (b->breaker_ns != 0)
		config.breaker_open_ns = b->breaker_ns;
	if (kvt_open(&config, &cache) != KVT_OK)
		kvb_fail("stall: no cache");
	return cache;
}

static void fill(struct bench *b)
{
	struct kvt *cache = open_cache(b, 2 * CHUNKS * CHUNK);
	enum kvt_status status;

	for (uint32_t i = 0; i < CHUNKS; i++) {
		struct kvt_item item = {.size = sizeof(item), .bytes = CHUNK};

		b->keys[i] = item.key = kvb_key(i);
		kvb_pattern(b->expected + i * CHUNK, CHUNK, i);
		status = kvt_put(cache, &item, b->expected + i * CHUNK);
		if (status != KVT_OK)
			kvb_fail("stall: a put: %s", kvt_status_text(status));
	}
	status = kvt_drain(cache, DRAIN_NS);
	if (status != KVT_OK)
		kvb_fail("stall: chunks did not get to Redis: %s", kvt_status_text(status));
	kvt_close(cache);
}

static void find(struct bench *b, uint64_t number, struct call *call)
{
	struct kvt_lookup found = {0};
	uint32_t first = (uint32_t)(number * CHAIN % CHUNKS);

	/* KVT_IN leaves out chunks in the cache's own memory. */
	if (kvt_find(b->cache, b->keys + first, CHAIN, KVT_IN(KVT_TIER_L2), b->find_ns, NULL,
		    &found) != KVT_OK)
		kvb_fail("stall: a lookup was refused");
	call->found = found.hits;
	if (found.hits > 0)
		atomic_store(&b->back, true);
}

static void get(struct bench *b, uint64_t number, struct call *call)
{
	uint32_t chunk = (uint32_t)(number % CHUNKS);
	struct kvt_lease *lease;
	enum kvt_status status = kvt_get(b->cache, &b->keys[chunk], 1, b->get_ns, &lease);

	call->seconds = kvb_seconds() - call->began; /* the comparison is not part of the call */
	if (status == KVT_OK) {
		call->found = lease->count;
		if (kvt_copy(lease, 0, b->got, CHUNK) != CHUNK ||
			memcmp(b->got, b->expected + chunk * CHUNK, CHUNK) != 0)
			kvb_fail("stall: chunk %u is not what was put", chunk);
		kvt_release(b->cache, lease);
	} else if (status != KVT_MISS && status != KVT_BUSY) {
		kvb_fail("stall: a get: %s", kvt_status_text(status));
	}
}

static void nap(long ns)
{
	struct timespec t = {.tv_nsec = ns};

	(void)nanosleep(&t, NULL);
}

static void *call_on(void *self)
{
	struct caller *c = self;

	for (uint64_t i = 0; !atomic_load(&c->bench->stop) && c->count < MOST_CALLS; i++) {
		struct call *call = &c->calls[c->count++];

		call->began = kvb_seconds();
		c->work(c->bench, i, call);
		if (call->seconds == 0)
			call->seconds = kvb_seconds() - call->began;
		nap(PAUSE_NS);
	}
	return NULL;
}

static uint32_t breaker_state(struct bench *b)
{
	struct kvt_stats stats = {.size = sizeof(stats)};

	if (kvt_stats(b->cache, &stats) != KVT_OK)
		kvb_fail("stall: no stats");
	return stats.tiers[KVT_TIER_L2].state;
}

static void signal_server(const struct bench *b, int number)
{
	if (kill(b->server, number) != 0)
		kvb_fail("stall: pid %d: %s", (int)b->server, strerror(errno));
}

static void wait_until(double when)
{
	while (kvb_seconds() < when)
		nap(LOOK_NS);
}

static void watch(struct bench *b)
{
	wait_until(kvb_seconds() + b->before);
	b->stopped_at = kvb_seconds();
	signal_server(b, SIGSTOP);
	while (kvb_seconds() < b->stopped_at + b->stalled) {
		if (b->opened_at == 0 && breaker_state(b) == KVT_TIER_PAUSED)
			b->opened_at = kvb_seconds();
		nap(LOOK_NS);
	}
	atomic_store(&b->back, false);
	b->continued_at = kvb_seconds();
	signal_server(b, SIGCONT);
	while (b->back_at == 0 && kvb_seconds() < b->continued_at + b->after) {
		if (atomic_load(&b->back))
			b->back_at = kvb_seconds();
		nap(LOOK_NS);
	}
	wait_until(kvb_seconds() + b->before);
}

/* Prints the calls that began within these times. */
static void print_phase(const char *name, const struct caller *c, double from, double to)
{
	struct kvb_samples times = {0};
	struct kvb_summary told;
	size_t found = 0;

	for (size_t i = 0; i < c->count; i++)
		if (c->calls[i].began >= from && c->calls[i].began < to) {
			kvb_samples_add(&times, c->calls[i].seconds);
			found += c->calls[i].found > 0;
		}
	told = kvb_samples_summary(&times, 1e3);
	(void)printf("\"%s\": {\"calls\": %zu, \"found\": %zu, \"p50_ms\": %.4f, \"p99_ms\": %.4f, "
		     "\"max_ms\": %.4f}",
		name, told.count, found, told.p50, told.p99, told.max);
	kvb_samples_finish(&times);
}

static void tell(const struct bench *b, const char *name, const struct caller *c)
{
	double end = kvb_seconds();
	double opened = b->opened_at == 0 ? b->continued_at : b->opened_at;

	(void)printf("\"%s\": {", name);
	print_phase("before", c, 0, b->stopped_at);
	(void)printf(", ");
	print_phase("stalled", c, b->stopped_at, opened);
	(void)printf(", ");
	print_phase("open", c, opened, b->continued_at);
	(void)printf(", ");
	print_phase("after", c, b->back_at == 0 ? end : b->back_at, end);
	(void)printf("}, ");
}

static void start(struct caller *c)
{
	c->calls = calloc(MOST_CALLS, sizeof(*c->calls));
	if (c->calls == NULL || pthread_create(&c->thread, NULL, call_on, c) != 0)
		kvb_fail("stall: no thread");
}

int main(int argc, char **argv)
{
	struct bench b = {
		.find_ns = 20000000, .get_ns = 200000000, .before = 2, .stalled = 6, .after = 60};
	struct caller finder = {.bench = &b, .work = find}, getter = {.bench = &b, .work = get};

	parse(&b, argc, argv);
	b.expected = kvb_memory(CHUNKS * CHUNK);
	b.got = kvb_memory(CHUNK);
	fill(&b);
	b.cache = open_cache(&b, L1_BYTES);
	start(&finder);
	start(&getter);
	watch(&b);
	atomic_store(&b.stop, true);
	(void)pthread_join(finder.thread, NULL);
	(void)pthread_join(getter.thread, NULL);
	kvt_close(b.cache);
	(void)printf("{");
	tell(&b, "find", &finder);
	tell(&b, "get", &getter);
	(void)printf("\"opened_ms\": %.3f, \"back_ms\": %.3f}\n",
		b.opened_at == 0 ? -1.0 : (b.opened_at - b.stopped_at) * 1e3,
		b.back_at == 0 ? -1.0 : (b.back_at - b.continued_at) * 1e3);
	free(finder.calls);
	free(getter.calls);
	return 0;
}
