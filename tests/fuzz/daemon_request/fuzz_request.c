/*
 * fuzz_request.c - any bytes as what a client sends to kvtierd.
 *
 * A connection of the real server, on a loop without a thread, over objects in memory. PUTs that
 * replace, erases and changes of generations go through the real thread of jobs. The bytes are
 * sent twice: as a whole, and cut into pieces whose sizes the first bytes choose. What is answered is
 * the same both times, each answer is whole, and when the client has gone nothing is under way and no
 * more is leased than its answers granted.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/cache/daemon/fake_objects.h"
#include "daemon/server_parts.h"

#define CUTS        8 /* first bytes of an input */
#define ANSWER_MOST ((size_t)8 << 20) /* an input of 4 KiB can ask for 170 pages of metrics */
#define INTERIM     "HTTP/1.1 100 Continue\r\n\r\n"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A server whose one loop is turned by hand. */
struct scene {
	struct kvt_daemon_config config;
	struct kvt_server server;
	struct kvt_loop loop;
	int client;
	bool closed;      /* by the server */
	bool head_method; /* HEAD was perhaps asked for */
	char *answers; /* [ANSWER_MOST] */
	size_t len;
};

static char answers_whole[ANSWER_MOST], answers_cut[ANSWER_MOST];

static void require(bool holds)
{
	if (!holds)
		abort();
}

static void scene_init(struct scene *s, char *answers)
{
	int pair[2];

	memset(s, 0, sizeof(*s));
	kvt_daemon_config_init(&s->config);
	s->config.lease_wait_max_ns = 0; /* whether a miss took too long depends on the machine */
	s->config.client_erase = true;
	s->server.config = &s->config;
	s->server.objects = fake_create();
	s->server.segment = fake_segment(s->server.objects);
	require(kvt_jobs_create(s->server.objects, &s->server.jobs) == KVT_OK);
	s->server.loops = &s->loop;
	s->server.loop_count = s->server.all_loops = 1;
	s->answers = answers;
	require(kvt_loop_init(&s->loop, &s->server, -1) == KVT_OK);
	require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
	s->client = pair[0];
	atomic_fetch_add(&s->loop.base.loop.conn_count, 1);
	atomic_fetch_add(&s->server.base.connections, 1);
	kvw_clients_take(&s->loop.base, pair[1]);
}

/* Turns until nothing happens any more, and no job is under way. */
static void turn(struct scene *s)
{
	struct kvw_server_loop *loop = &s->loop.base.loop;
	bool moved = true;

	while (moved) {
		bool waits = loop->waits > 0;
		ssize_t n;

		require(kvw_server_loop_turn(loop, waits));
		moved = waits || loop->waits > 0 || kvw_io_set_busy(&loop->sockets);
		while (s->len < ANSWER_MOST &&
			(n = recv(s->client, s->answers + s->len, ANSWER_MOST - s->len, 0)) > 0) {
			s->len += (size_t)n;
			moved = true;
		}
	}
}

static void say(struct scene *s, const uint8_t *data, size_t size)
{
	while (size > 0 && !s->closed) {
		ssize_t n = send(s->client, data, size, MSG_NOSIGNAL);

		if (n < 0 && errno == EAGAIN) {
			turn(s);
			continue;
		}
		s->closed = n < 0;
		if (n > 0) {
			data += n;
			size -= (size_t)n;
		}
	}
	turn(s);
}

/* Takes "100 Continue" out: it depends on what came together with a head. */
static void drop_interim(struct scene *s)
{
	size_t mark = sizeof(INTERIM) - 1;
	char *at;

	while ((at = memmem(s->answers, s->len, INTERIM, mark)) != NULL) {
		memmove(at, at + mark, s->len - (size_t)(at - s->answers) - mark);
		s->len -= mark;
	}
}

/* Whole answers, one after another; those to HEAD have a length and no body. Returns how many grant a
 * lease. */
static size_t check_answers(const struct scene *s)
{
	const char *at = s->answers, *end = s->answers + s->len;
	size_t leases = 0;

	while (at < end) {
		const char *blank = memmem(at, (size_t)(end - at), "\r\n\r\n", 4);
		const char *length = memmem(at, (size_t)(end - at), "Content-Length: ", 16);
		size_t body;

		require(blank != NULL && length != NULL && length < blank);
		require(memcmp(at, "HTTP/1.1 ", 9) == 0);
		body = strtoul(length + 16, NULL, 10);
		at = blank + 4;
		if (s->head_method && (at == end || *at == 'H'))
			continue;
		require(body <= (size_t)(end - at));
		require(body == 0 || *at == '{' || *at == '#');
		leases += body > 6 && memcmp(at, "{\"id\":", 6) == 0;
		at += body;
	}
	return leases;
}

static void scene_end(struct scene *s)
{
	size_t told;

	(void)shutdown(s->client, SHUT_WR);
	turn(s);
	close(s->client);
	turn(s);
	drop_interim(s);
	told = check_answers(s);
	kvw_clients_finish(&s->loop.base);
	require(atomic_load(&s->loop.base.loop.conn_count) == 0 && s->loop.base.loop.waits == 0);
	require(atomic_load(&s->server.base.connections) == 0 && atomic_load(&s->server.puts) == 0);
	require(fake_puts(s->server.objects) == 0);
	require(fake_leases(s->server.objects) <= told);
}

static void scene_free(struct scene *s)
{
	kvt_jobs_destroy(s->server.jobs);
	fake_destroy(s->server.objects);
	kvt_daemon_config_finish(&s->config);
}

/* Metrics contain times, which differ. */
static bool has_times(const struct scene *s)
{
	return memmem(s->answers, s->len, "kvtierd_", 8) != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct scene whole, cut;
	size_t at = CUTS;

	if (size < CUTS)
		return 0;
	scene_init(&whole, answers_whole);
	whole.head_method = memmem(data, size, "HEAD ", 5) != NULL;
	say(&whole, data + CUTS, size - CUTS);
	scene_end(&whole);
	scene_init(&cut, answers_cut);
	cut.head_method = whole.head_method;
	for (size_t i = 0; i < CUTS && at < size; i++) {
		size_t piece = data[i] < size - at ? data[i] : size - at;

		say(&cut, data + at, piece);
		at += piece;
	}
	say(&cut, data + at, size - at);
	scene_end(&cut);
	if (!has_times(&whole))
		require(whole.len == cut.len && memcmp(whole.answers, cut.answers, whole.len) == 0);
	scene_free(&whole);
	scene_free(&cut);
	return 0;
}
