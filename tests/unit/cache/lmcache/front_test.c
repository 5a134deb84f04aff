/*
 * front_test.c - the room's front: several threads report at once, a controller that is away, or
 * that is no controller, and what the configuration may say.
 */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "lmcache/controller.h"
#include "tests/unit/suite.h"

#define REPORTERS 4
#define EACH    3000

static struct kvt_surroundings s;
static char last_line[600];

static void keep(void *self, uint32_t level, const char *line)
{
	(void)self;
	(void)level;
	snprintf(last_line, sizeof(last_line), "%s", line);
}

static uint64_t clear(void *self)
{
	(void)self;
	return 0;
}

static void pin(void *self, const struct kvt_key *keys, size_t n, bool on)
{
	(void)self;
	(void)keys;
	(void)n;
	(void)on;
}

static const struct kvt_controller_actions actions = {NULL, clear, pin};

static struct kvt_config config_of(const char *pull, const char *reply)
{
	return (struct kvt_config){.size = sizeof(struct kvt_config),
		.controller_pull = pull,
		.controller_reply = reply,
		.controller_heartbeat = "",
		.controller_instance = "i0",
		.controller_ip = "127.0.0.1",
		.controller_bind = "",
		.controller_ports = "",
		.nvme_path = "/somewhere",
		.controller_heartbeat_ns = 50000000,
		.controller_heartbeat_delay_ns = 1,
		.controller_answer_ns = 20000000,
		.controller_sync_batch = 100,
		.controller_queue = 64,
		.controller_max_chunks = 100000,
		.controller_pin_ns = 1000000000,
		.controller_chunk_size = 256,
		.controller_hash = "builtin",
		.controller_hash_seed = "0",
		.controller_none_hash = ""};
}

static void setup(void)
{
	struct kvt_config config = {.log = keep};

	kvt_surroundings_init(&s, &config);
	last_line[0] = '\0';
}

struct reporter {
	struct kvt_controller *c;
	uint32_t number;
	pthread_t thread;
};

static struct kvt_key key_of(uint32_t n)
{
	struct kvt_key key = {{0}};

	memcpy(key.bytes, &n, sizeof(n));
	return key;
}

/* Half of what is reported is taken back. */
static void *tell(void *arg)
{
	struct reporter *t = arg;
	struct kvt_blocks names = {.has_lmcache_hash = 1};

	for (uint32_t i = 0; i < EACH; i++) {
		struct kvt_key key = key_of(t->number * EACH + i);

		names.lmcache_hash = t->number * EACH + i;
		kvt_controller_stored(
			t->c, i % 3, &key, &names); /* also of a tier that is not reported */
		if (i % 2 == 0)
			kvt_controller_removed(t->c, i % 3, &key);
	}
	return NULL;
}

static void tell_all(struct kvt_controller *c)
{
	struct reporter reporters[REPORTERS];

	for (uint32_t i = 0; i < REPORTERS; i++) {
		reporters[i] = (struct reporter){.c = c, .number = i};
		ck_assert_int_eq(pthread_create(&reporters[i].thread, NULL, tell, &reporters[i]), 0);
	}
	for (uint32_t i = 0; i < REPORTERS; i++)
		pthread_join(reporters[i].thread, NULL);
}

/* Sockets that take connections and answer nothing, or garbage. */
START_TEST(many_report_and_the_controller_is_silent)
{
	struct kvt_controller_stats stats;
	struct kvt_controller *c = NULL;
	void *zmq = zmq_ctx_new(), *pull = zmq_socket(zmq, ZMQ_PULL);
	void *reply = zmq_socket(zmq, ZMQ_ROUTER);
	char address[2][100];
	struct kvt_config config;
	size_t len = 100;
	int linger = 0;

	zmq_setsockopt(pull, ZMQ_LINGER, &linger, sizeof(linger));
	zmq_setsockopt(reply, ZMQ_LINGER, &linger, sizeof(linger));
	ck_assert_int_eq(zmq_bind(pull, "tcp://127.0.0.1:*"), 0);
	ck_assert_int_eq(zmq_bind(reply, "tcp://127.0.0.1:*"), 0);
	zmq_getsockopt(pull, ZMQ_LAST_ENDPOINT, address[0], &len);
	len = 100;
	zmq_getsockopt(reply, ZMQ_LAST_ENDPOINT, address[1], &len);
	config = config_of(address[0], _i == 0 ? address[1] : "");
	ck_assert_int_eq(kvt_controller_create(&config, &s, &actions, &c), KVT_OK);
	tell_all(c);
	kvt_controller_stats(c, &stats);
	ck_assert_uint_eq(stats.chunks, REPORTERS * EACH / 3);
	for (unsigned i = 0; i < 10000 && stats.registered != (_i == 1); i++) {
		(void)usleep(1000); /* its thread may not have begun */
		kvt_controller_stats(c, &stats);
	}
	ck_assert_uint_eq(stats.registered, _i == 1);
	kvt_controller_stop(c);
	tell_all(c); /* no longer reported to it */
	kvt_controller_stats(c, &stats);
	ck_assert_uint_eq(stats.chunks, REPORTERS * EACH / 3);
	kvt_controller_destroy(c);
	zmq_close(pull);
	zmq_close(reply);
	zmq_ctx_term(zmq);
}
END_TEST

START_TEST(without_an_address_there_is_none)
{
	struct kvt_config config = config_of("", "");
	struct kvt_controller *c = NULL;
	struct kvt_key key = key_of(1);

	ck_assert_int_eq(kvt_controller_create(&config, &s, &actions, &c), KVT_MISS);
	kvt_controller_stored(c, 0, &key, NULL);
	kvt_controller_removed(c, 0, &key);
	kvt_controller_stop(c);
	kvt_controller_destroy(c);
	ck_assert_str_eq(last_line, "");
}
END_TEST

START_TEST(what_cannot_be_is_reported_and_left_out)
{
	struct kvt_config seedless = config_of("tcp://127.0.0.1:1", "");
	struct kvt_config taken = config_of("tcp://127.0.0.1:1", "");
	struct kvt_controller *c = NULL;

	seedless.controller_hash_seed = "unset";
	ck_assert_int_eq(kvt_controller_create(&seedless, &s, &actions, &c), KVT_MISS);
	ck_assert_ptr_nonnull(strstr(last_line, "nothing is reported to it"));
	last_line[0] = '\0';
	taken.controller_bind = "203.0.113.7"; /* not of this machine */
	ck_assert_int_eq(kvt_controller_create(&taken, &s, &actions, &c), KVT_MISS);
	ck_assert_ptr_nonnull(strstr(last_line, "203.0.113.7"));
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("front");

	tcase_set_timeout(tests, 100);
	tcase_add_checked_fixture(tests, setup, NULL);
	tcase_add_loop_test(tests, many_report_and_the_controller_is_silent, 0, 2);
	tcase_add_test(tests, without_an_address_there_is_none);
	tcase_add_test(tests, what_cannot_be_is_reported_and_left_out);
	return run_tcase("cache/lmcache front", tests);
}
