/*
 * chaos_test.c - a real redis-server behind a wire that is cut and stalls at random, under values of
 * random sizes with deadlines that some of them miss.
 *
 * Whatever happens: each command ends once; a value that is got is one that was put under that key,
 * whole; and once a command has ended, its memory is ours alone: not a byte of it changes.
 *
 * Longer, or with another seed:
 *     kvt_redis_chaos_test COMMANDS SEED
 */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/random.h"
#include "real.h"
#include "support.h"
#include "tests/unit/suite.h"

#define KEYS       16
#define WORKERS    24
#define VALUE_MAX  200000u
#define PAIRS      32
#define CHUNK      8192
#define CANARY     0x7c
#define SHORT_MS   40u
#define LONG_NS    (30000 * MS)
#define CUT_ONE_IN 400u

static uint64_t seed = 1;
static long commands = 3000;

/* --- the wire --------------------------------------------------------------------------------- */

struct pair {
	int client, server; /* -1: free */
};

struct wire {
	int listener;
	uint16_t port;
	char to[96];
	uint64_t random;
	_Atomic bool ends;
	_Atomic uint64_t cuts;
	struct pair pairs[PAIRS];
};

static void hang_up(struct pair *p)
{
	close(p->client);
	close(p->server);
	p->client = p->server = -1;
}

static void send_all(int fd, const char *data, size_t len)
{
	while (len > 0) {
		ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

		if (n <= 0)
			return; /* the other end's trouble shows when it is read from */
		data += n;
		len -= (size_t)n;
	}
}

/* Passes a piece on, or a part of it and then nothing more. */
static void pass(struct wire *w, struct pair *p, int from, int to)
{
	char data[CHUNK];
	ssize_t n = recv(from, data, sizeof(data), 0);

	if (n <= 0) {
		hang_up(p);
		return;
	}
	if (kvw_random_below(&w->random, CUT_ONE_IN) == 0) {
		send_all(to, data, kvw_random_below(&w->random, (uint32_t)n));
		hang_up(p);
		atomic_fetch_add(&w->cuts, 1);
		return;
	}
	if (kvw_random_below(&w->random, 300) == 0)
		(void)poll(NULL, 0, 5);
	send_all(to, data, (size_t)n);
}

static void take_in(struct wire *w)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int client = accept4(w->listener, NULL, NULL, SOCK_CLOEXEC);

	if (client < 0)
		return;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", w->to);
	for (int i = 0; i < PAIRS; i++) {
		struct pair *p = &w->pairs[i];

		if (p->client >= 0)
			continue;
		p->client = client;
		p->server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (connect(p->server, (struct sockaddr *)&address, sizeof(address)) != 0)
			hang_up(p);
		return;
	}
	close(client);
}

static void *wire_thread(void *self)
{
	struct wire *w = self;

	while (!atomic_load(&w->ends)) {
		struct pollfd fds[1 + 2 * PAIRS];

		fds[0] = (struct pollfd){.fd = w->listener, .events = POLLIN};
		for (int i = 0; i < PAIRS; i++) {
			fds[1 + 2 * i] =
				(struct pollfd){.fd = w->pairs[i].client, .events = POLLIN};
			fds[2 + 2 * i] =
				(struct pollfd){.fd = w->pairs[i].server, .events = POLLIN};
		}
		if (poll(fds, 1 + 2 * PAIRS, 10) <= 0)
			continue;
		if (fds[0].revents != 0)
			take_in(w);
		for (int i = 0; i < PAIRS; i++) {
			struct pair *p = &w->pairs[i];

			if (fds[1 + 2 * i].revents != 0 && p->client == fds[1 + 2 * i].fd)
				pass(w, p, p->client, p->server);
			if (fds[2 + 2 * i].revents != 0 && p->server == fds[2 + 2 * i].fd &&
				p->server >= 0)
				pass(w, p, p->server, p->client);
		}
	}
	for (int i = 0; i < PAIRS; i++)
		if (w->pairs[i].client >= 0)
			hang_up(&w->pairs[i]);
	return NULL;
}

/* --- the load --------------------------------------------------------------------------------- */

struct worker {
	struct order o;
	char key[16];
	bool get, busy;
	uint32_t number;       /* of the key */
	unsigned char *memory; /* VALUE_MAX */
};

static struct world w;
static uint64_t random_state;
static uint64_t good, missed, failed, nothing;

static int64_t machine_ns(void *self)
{
	struct timespec t;

	(void)self;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static unsigned char byte_of(uint32_t key, uint32_t version, size_t i)
{
	uint64_t x = (key * UINT64_C(1000003) + version * UINT64_C(7919) + i / 8) *
		     UINT64_C(0x9e3779b97f4a7c15);

	return (unsigned char)(x >> (i % 8 * 8));
}

/* A value says which key and version it is of, and how long it is; the rest follows from that. */
static size_t make_value(unsigned char *to, uint32_t key)
{
	uint32_t version = kvw_random_below(&random_state, 1000000);
	uint32_t len = 12 + kvw_random_below(&random_state, VALUE_MAX - 12);

	if (kvw_random_below(&random_state, 2) == 0)
		len = 12 + len % 500;
	memcpy(to, &key, 4);
	memcpy(to + 4, &version, 4);
	memcpy(to + 8, &len, 4);
	for (size_t i = 12; i < len; i++)
		to[i] = byte_of(key, version, i);
	return len;
}

static void check_value(const struct worker *k)
{
	uint32_t key, version, len;

	memcpy(&key, k->memory, 4);
	memcpy(&version, k->memory + 4, 4);
	memcpy(&len, k->memory + 8, 4);
	ck_assert_uint_eq(key, k->number);
	ck_assert_uint_eq(len, k->o.c.bulk_bytes);
	for (size_t i = 12; i < len; i++)
		if (k->memory[i] != byte_of(key, version, i))
			ck_abort_msg("wrong byte %zu of key %u", i, key);
}

static void begin(struct worker *k)
{
	int64_t deadline_ns = LONG_NS;

	if (kvw_random_below(&random_state, 8) == 0)
		deadline_ns = (1 + kvw_random_below(&random_state, SHORT_MS)) * MS;
	k->busy = true;
	k->number = kvw_random_below(&random_state, KEYS);
	k->get = kvw_random_below(&random_state, 3) != 0;
	snprintf(k->key, sizeof(k->key), "key-%u", k->number);
	w.now_ns = machine_ns(NULL);
	if (k->get) {
		ORDER(&k->o, &w, deadline_ns, "GET", k->key);
		order_into(&k->o, k->memory, VALUE_MAX, 1 + k->number % 7);
	} else {
		ORDER(&k->o, &w, deadline_ns, "SET", k->key);
		order_value(&k->o, k->memory, make_value(k->memory, k->number));
	}
	order_submit(&k->o, &w);
}

/* Judges what has come of it, and paints its memory. */
static void end(struct worker *k)
{
	const struct kvw_redis_command *c = &k->o.c;

	ck_assert_uint_eq(k->o.done_count, 1);
	if (c->status == KVW_OK && k->get && c->reply == KVW_REDIS_BULK)
		check_value(k);
	else if (c->status == KVW_OK)
		ck_assert_int_eq(c->reply, k->get ? KVW_REDIS_NIL : KVW_REDIS_STATUS);
	else
		ck_assert(c->status == KVW_ETIMEDOUT || c->status == KVW_EIO);
	good += c->status == KVW_OK;
	nothing += c->reply == KVW_REDIS_NIL;
	missed += c->status == KVW_ETIMEDOUT;
	failed += c->status == KVW_EIO;
	memset(k->memory, CANARY, VALUE_MAX);
	k->busy = false;
}

static void check_untouched(const struct worker *k)
{
	for (size_t i = 0; i < VALUE_MAX; i++)
		if (k->memory[i] != CANARY)
			ck_abort_msg("byte %zu was written after the command's end", i);
}

static void run_load(struct worker *workers)
{
	long begun = 0;
	size_t busy;

	do {
		int64_t next_ns = INT64_MAX;

		for (size_t i = 0; i < WORKERS && begun < commands; i++) {
			struct worker *k = &workers[i];

			/* some rest a while, so that late bytes have time to do harm */
			if (k->busy || kvw_random_below(&random_state, 4) != 0)
				continue;
			check_untouched(k);
			begin(k);
			begun++;
		}
		(void)kvw_redis_step(w.r, 1 * MS, &next_ns);
		busy = 0;
		for (size_t i = 0; i < WORKERS; i++) {
			if (workers[i].busy && workers[i].o.done)
				end(&workers[i]);
			busy += workers[i].busy;
		}
	} while (busy > 0 || begun < commands);
}

START_TEST(t_chaos)
{
	struct worker *workers = calloc(WORKERS, sizeof(*workers));
	struct wire wire = {.random = seed};
	struct kvw_redis_stats stats;
	struct real server;
	struct fake door;
	pthread_t thread;

	ck_assert_ptr_nonnull(workers);
	random_state = seed;
	real_init(&server);
	real_start(&server, false);
	world_init(&w, "redis://127.0.0.1:1");
	w.options.env.now_ns = machine_ns;
	fake_init(&door, &w);
	ck_assert_ptr_null(kvw_redis_url_parse(door.url, &w.url));
	w.options.connections = 4;
	w.options.inflight_bytes = 3 * VALUE_MAX;
	world_start(&w);
	wire.listener = door.listener;
	snprintf(wire.to, sizeof(wire.to), "%s", server.socket);
	for (int i = 0; i < PAIRS; i++)
		wire.pairs[i] = (struct pair){-1, -1};
	ck_assert_int_eq(pthread_create(&thread, NULL, wire_thread, &wire), 0);
	for (size_t i = 0; i < WORKERS; i++) {
		workers[i].memory = malloc(VALUE_MAX);
		ck_assert_ptr_nonnull(workers[i].memory);
		memset(workers[i].memory, CANARY, VALUE_MAX);
	}
	run_load(workers);
	kvw_redis_stats(w.r, &stats);
	ck_assert_uint_eq(good + missed + failed, (uint64_t)commands);
	ck_assert_uint_gt(good, nothing);
	ck_assert_uint_gt(atomic_load(&wire.cuts), 0);
	ck_assert_uint_gt(stats.reconnects, 0);
	ck_assert_uint_eq(stats.in_flight, 0);
	ck_assert_uint_eq(stats.in_flight_bytes, 0);
	ck_assert_uint_eq(stats.waiting, 0);
	printf("%llu good (%llu empty), %llu late, %llu failed; %llu cuts, %llu sent again\n",
		(unsigned long long)good, (unsigned long long)nothing, (unsigned long long)missed,
		(unsigned long long)failed, (unsigned long long)atomic_load(&wire.cuts),
		(unsigned long long)stats.retries);
	world_finish(&w);
	for (size_t i = 0; i < WORKERS; i++) {
		check_untouched(&workers[i]);
		free(workers[i].memory);
	}
	free(workers);
	atomic_store(&wire.ends, true);
	pthread_join(thread, NULL);
	fake_finish(&door);
	real_finish(&server);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tc = tcase_create("chaos");

	if (!real_exists())
		return 77; /* skipped */
	if (argc > 1)
		commands = strtol(argv[1], NULL, 10);
	if (argc > 2)
		seed = strtoull(argv[2], NULL, 10);
	tcase_set_timeout(tc, argc > 1 ? 36000 : 120);
	tcase_add_test(tc, t_chaos);
	return run_tcase("redis-chaos", tc);
}
