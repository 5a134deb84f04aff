/*
 * workers_test.c - where workers publish: asked over HTTP, configured, or connecting to us.
 */
#include <arpa/inet.h>
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include "engine.h"
#include "support.h"
#include "feeds/vllm_feed.h"
#include "tests/unit/suite.h"

#define BLOCK 16u

static struct rig rig;
static uint32_t tokens[4 * BLOCK];

/* A worker that answers every request with one text. */
static struct {
	int fd;
	uint16_t port;
	pthread_t thread;
	_Atomic bool stop;
	_Atomic int asked;
	pthread_mutex_t lock;
	char answer[1024];
} worker;

static void serve_one(int fd)
{
	char request[2048];
	ssize_t got = recv(fd, request, sizeof(request) - 1, 0);

	if (got > 0) {
		request[got] = '\0';
		if (strncmp(request, "GET /kv_event_sources HTTP/1.1\r\n", 31) == 0)
			atomic_fetch_add(&worker.asked, 1);
		pthread_mutex_lock(&worker.lock);
		send(fd, worker.answer, strlen(worker.answer), MSG_NOSIGNAL);
		pthread_mutex_unlock(&worker.lock);
	}
	close(fd);
}

static void *serve(void *arg)
{
	(void)arg;
	while (!worker.stop) {
		int fd = accept(worker.fd, NULL, NULL);

		if (fd >= 0)
			serve_one(fd);
	}
	return NULL;
}

static void answer_with(int status, const char *body)
{
	pthread_mutex_lock(&worker.lock);
	snprintf(worker.answer, sizeof(worker.answer),
		"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
		"Connection: close\r\n\r\n%s",
		status, strlen(body), body);
	pthread_mutex_unlock(&worker.lock);
}

static void setup(void)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(addr);

	memset(&worker, 0, sizeof(worker));
	pthread_mutex_init(&worker.lock, NULL);
	worker.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(worker.fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	ck_assert_int_eq(listen(worker.fd, 16), 0);
	ck_assert_int_eq(getsockname(worker.fd, (struct sockaddr *)&addr, &len), 0);
	worker.port = ntohs(addr.sin_port);
	answer_with(200, "{}");
	ck_assert_int_eq(pthread_create(&worker.thread, NULL, serve, NULL), 0);
	for (uint32_t i = 0; i < 4 * BLOCK; i++)
		tokens[i] = i + 1000;
}

static void teardown(void)
{
	rig_finish(&rig);
	worker.stop = true;
	shutdown(worker.fd, SHUT_RDWR);
	pthread_join(worker.thread, NULL);
	close(worker.fd);
}

static void start(const char *events)
{
	rig_init(&rig, 1, worker.port, events);
	rig_start(&rig, &kvw_vllm_feed);
}

static bool says(struct rig *r, void *ctx)
{
	struct kvw_feed_status status;

	ck_assert_int_eq(kvw_feed_worker_status(r->feed, 0, KVW_REPORTER_ENGINE, &status), KVW_OK);
	return strstr(status.wrong, (const char *)ctx) != NULL;
}

static void await_wrong(const char *text)
{
	struct kvw_feed_status status;

	if (rig_wait(&rig, says, (void *)text))
		return;
	ck_assert_int_eq(kvw_feed_worker_status(rig.feed, 0, KVW_REPORTER_ENGINE, &status), KVW_OK);
	ck_abort_msg("it says \"%s\", not \"%s\"", status.wrong, text);
}

static const struct engine_stored stored = {
	.base = 1, .tokens = tokens, .blocks = 4, .block_size = BLOCK};

static void answer_sources(const struct engine *engine)
{
	char body[256];

	snprintf(body, sizeof(body),
		"{\"0\":{\"endpoint\":\"tcp://*:%u\",\"replay_endpoint\":\"tcp://*:%u\"}}",
		engine->port, engine->replay_port);
	answer_with(200, body);
}

START_TEST(a_worker_lists_where_it_publishes)
{
	struct engine engine;

	engine_start(&engine, 0, 0, true);
	answer_sources(&engine);
	engine_stored(&engine, &stored);
	start("    discover: true\n");
	rig_await_hit(&rig, 0, BLOCK, tokens, 4 * BLOCK, 4);
	rig_await_coverage(&rig, 0, KVW_COVERAGE_FULL);
	engine_stop(&engine);
}
END_TEST

START_TEST(a_worker_that_is_not_up_yet_is_asked_again)
{
	struct engine engine;

	engine_start(&engine, 0, 0, true);
	engine_stored(&engine, &stored);
	answer_with(503, "");
	start("    discover: true\n");
	await_wrong("503");
	ck_assert_int_eq(rig_coverage(&rig, 0), KVW_COVERAGE_NONE);
	answer_sources(&engine);
	rig_await_hit(&rig, 0, BLOCK, tokens, 4 * BLOCK, 4);
	engine_stop(&engine);
}
END_TEST

START_TEST(a_worker_without_events_is_none)
{
	start("    discover: true\n");
	await_wrong("--kv-events-config");
	ck_assert_int_eq(rig_coverage(&rig, 0), KVW_COVERAGE_NONE);
}
END_TEST

START_TEST(an_answer_that_is_none_is_reported)
{
	answer_with(200, "<html>");
	start("    discover: true\n");
	await_wrong("cannot be understood");
}
END_TEST

START_TEST(an_old_worker_goes_by_the_template)
{
	struct engine engine;
	char events[256];

	engine_start(&engine, 0, 0, true);
	engine_stored(&engine, &stored);
	answer_with(404, "");
	snprintf(events, sizeof(events),
		"    discover: true\n    endpoint: tcp://{host}:%u\n    replay: tcp://{host}:%u\n",
		engine.port, engine.replay_port);
	start(events);
	rig_await_hit(&rig, 0, BLOCK, tokens, 4 * BLOCK, 4);
	ck_assert_int_ge(worker.asked, 1);
	engine_stop(&engine);
}
END_TEST

START_TEST(an_old_worker_without_a_template_is_none)
{
	answer_with(404, "");
	start("    discover: true\n");
	await_wrong("kvaware.events.endpoint");
	ck_assert_int_eq(rig_coverage(&rig, 0), KVW_COVERAGE_NONE);
}
END_TEST

START_TEST(a_purged_worker_is_asked_again)
{
	struct engine first, second;

	engine_start(&first, 0, 0, true);
	answer_sources(&first);
	start("    discover: true\n");
	rig_await_coverage(&rig, 0, KVW_COVERAGE_FULL);
	engine_start(&second, 0, 0, true); /* the worker starts again, elsewhere */
	engine_stored(&second, &stored);
	answer_sources(&second);
	engine_stop(&first);
	kvw_exact_purge(rig.exact, 0);
	rig_await_hit(&rig, 0, BLOCK, tokens, 4 * BLOCK, 4);
	rig_await_coverage(&rig, 0, KVW_COVERAGE_FULL);
	engine_stop(&second);
}
END_TEST

START_TEST(a_publisher_that_connects_needs_bind)
{
	answer_with(200, "{\"0\":{\"endpoint\":\"tcp://10.9.9.9:5557\"}}");
	start("    discover: true\n");
	await_wrong("kvaware.events.bind");
	ck_assert_int_eq(rig_coverage(&rig, 0), KVW_COVERAGE_NONE);
}
END_TEST

/* A PUB that connects, as an engine does whose endpoint has no wildcard. */
static void *connect_to(void *context, uint16_t port)
{
	void *pub = zmq_socket(context, ZMQ_XPUB);
	char endpoint[64], topic[64];

	zmq_setsockopt(pub, ZMQ_LINGER, &(int){0}, sizeof(int));
	zmq_setsockopt(pub, ZMQ_RCVTIMEO, &(int){20000}, sizeof(int));
	snprintf(endpoint, sizeof(endpoint), "tcp://127.0.0.1:%u", port);
	ck_assert_int_eq(zmq_connect(pub, endpoint), 0);
	ck_assert_int_gt(zmq_recv(pub, topic, sizeof(topic), 0), 0); /* the subscription */
	return pub;
}

static void publish_as(void *pub, const char *topic, uint8_t number)
{
	uint8_t data[1024], frame[8] = {0, 0, 0, 0, 0, 0, 0, number};
	size_t len = engine_put_stored(data, sizeof(data), &stored);

	zmq_send(pub, topic, strlen(topic), ZMQ_SNDMORE);
	zmq_send(pub, frame, sizeof(frame), ZMQ_SNDMORE);
	zmq_send(pub, data, len, 0);
}

static bool refused_one(struct rig *r, void *ctx)
{
	(void)ctx;
	return rig_count(r, KVW_FEED_REFUSED) == 1;
}

START_TEST(an_engine_that_connects_is_known_by_its_topic)
{
	uint16_t port = free_port();
	char events[128], topic[64];
	void *context = zmq_ctx_new(), *pub;

	snprintf(events, sizeof(events), "    discover: false\n    bind: tcp://127.0.0.1:%u\n",
		port);
	start(events);
	await_wrong("kvaware.events.bind");
	pub = connect_to(context, port);
	publish_as(pub, "kv@10.1.1.1:1@m", 0);
	ck_assert(rig_wait(&rig, refused_one, NULL));
	ck_assert_int_eq(rig_coverage(&rig, 0), KVW_COVERAGE_NONE);
	snprintf(topic, sizeof(topic), "kv@127.0.0.1:%u@m", worker.port);
	publish_as(pub, topic, 0);
	rig_await_hit(&rig, 0, BLOCK, tokens, 4 * BLOCK, 4);
	rig_await_coverage(&rig, 0, KVW_COVERAGE_FULL);
	publish_as(pub, topic, 7); /* with no replay socket to ask */
	rig_await_coverage(&rig, 0, KVW_COVERAGE_BLIND);
	zmq_close(pub);
	zmq_ctx_term(context);
}
END_TEST

START_TEST(a_port_that_is_taken_is_reported)
{
	char events[128], text[512] = "";
	FILE *errors = fmemopen(text, sizeof(text), "w");
	struct kvw_feed_deps deps;

	snprintf(events, sizeof(events), "    discover: false\n    bind: tcp://127.0.0.1:%u\n",
		worker.port);
	rig_init(&rig, 1, worker.port, events);
	deps = (struct kvw_feed_deps){.config = rig.config,
		.fleet = rig.fleet,
		.exact = rig.exact,
		.spaces = rig.spaces,
		.modules = {&kvw_vllm_feed}};
	ck_assert_int_eq(kvw_feed_start(&deps, errors, &rig.feed), KVW_EINVAL);
	fclose(errors);
	ck_assert_ptr_nonnull(strstr(text, "kvaware.events.bind"));
	ck_assert_ptr_nonnull(strstr(text, "in use"));
}
END_TEST

START_TEST(every_rank_must_see_all)
{
	struct engine ranks[2];
	char body[512];

	for (int i = 0; i < 2; i++)
		engine_start(&ranks[i], 0, 0, i == 0);
	engine_stored(&ranks[0], &stored);
	snprintf(body, sizeof(body),
		"{\"0\":{\"endpoint\":\"tcp://*:%u\",\"replay_endpoint\":\"tcp://*:%u\"},"
		"\"1\":{\"endpoint\":\"tcp://*:%u\",\"replay_endpoint\":null}}",
		ranks[0].port, ranks[0].replay_port, ranks[1].port);
	answer_with(200, body);
	start("    discover: true\n");
	rig_await_hit(&rig, 0, BLOCK, tokens, 4 * BLOCK, 4);
	await_wrong("rank 1: ");
	ck_assert_int_eq(rig_coverage(&rig, 0), KVW_COVERAGE_BLIND);
	engine_await_subscriber(&ranks[1]);
	engine_stored(&ranks[1], &stored);
	rig_await_coverage(&rig, 0, KVW_COVERAGE_FULL);
	for (int i = 0; i < 2; i++)
		engine_stop(&ranks[i]);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("workers");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_worker_lists_where_it_publishes);
	tcase_add_test(tc, a_worker_that_is_not_up_yet_is_asked_again);
	tcase_add_test(tc, a_worker_without_events_is_none);
	tcase_add_test(tc, an_answer_that_is_none_is_reported);
	tcase_add_test(tc, an_old_worker_goes_by_the_template);
	tcase_add_test(tc, an_old_worker_without_a_template_is_none);
	tcase_add_test(tc, a_purged_worker_is_asked_again);
	tcase_add_test(tc, a_publisher_that_connects_needs_bind);
	tcase_add_test(tc, an_engine_that_connects_is_known_by_its_topic);
	tcase_add_test(tc, a_port_that_is_taken_is_reported);
	tcase_add_test(tc, every_rank_must_see_all);
	return run_tcase("workers", tc);
}
