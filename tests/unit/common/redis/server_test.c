/*
 * server_test.c - the client against real redis-servers: values of all sizes, logins, TLS, servers
 * that die, stall and come back.
 *
 * The clock is the machine's here, with deadlines so long that a slow machine does not meet them,
 * except where a stall is the subject.
 */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "real.h"
#include "support.h"
#include "tests/unit/suite.h"

#define LONG_NS (60000 * MS)

static struct world w;
static struct real server;

static int64_t machine_ns(void *self)
{
	struct timespec t;

	(void)self;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void setup(void)
{
	real_init(&server);
}

static void teardown(void)
{
	world_finish(&w);
	real_finish(&server);
}

/* A client of this URL, by the machine's clock; started by the test. */
static void client_of(const char *url)
{
	world_finish(&w);
	world_init(&w, url);
	w.options.env.now_ns = machine_ns;
	w.now_ns = machine_ns(NULL);
	w.options.connect_ns = LONG_NS;
}

static void client_here(void)
{
	char url[128];

	snprintf(url, sizeof(url), "redis://127.0.0.1:%u", server.port);
	client_of(url);
}

/* Runs one command to its end. */
static void ask(struct order *o)
{
	w.now_ns = machine_ns(NULL);
	o->c.deadline_ns = w.now_ns + LONG_NS;
	order_submit(o, &w);
	while (!o->done) {
		int64_t next_ns = INT64_MAX;

		(void)kvw_redis_step(w.r, 100 * MS, &next_ns);
	}
}

static void expect_text(enum kvw_redis_reply reply, const char *text, struct order *o)
{
	ask(o);
	if (o->c.status != KVW_OK)
		ck_abort_msg("%d: %s", o->c.status, o->c.text);
	ck_assert_int_eq(o->c.reply, reply);
	ck_assert_str_eq(o->c.text, text);
}

static void expect_pong(void)
{
	struct order o;

	ORDER(&o, &w, LONG_NS, "PING");
	expect_text(KVW_REDIS_STATUS, "PONG", &o);
}

/* The next command fails, and says why. */
static void expect_refusal(const char *why)
{
	struct order o;

	world_start(&w);
	ORDER(&o, &w, LONG_NS, "PING");
	ask(&o);
	ck_assert_int_eq(o.c.status, KVW_EIO);
	if (strstr(o.c.text, why) == NULL)
		ck_abort_msg("'%s' does not say '%s'", o.c.text, why);
	ck_assert(world_logged(&w, why));
}

/* --- values ----------------------------------------------------------------------------------- */

#define VALUES 24

/* Byte i of value n. */
static char byte_of(size_t n, size_t i)
{
	return (char)((n * 131 + i * 7 + (i >> 8) * 3 + (i >> 16)) & 0xff);
}

static size_t size_of(size_t n)
{
	static const size_t sizes[] = {0, 1, 127, 4096, 16383, 16384, 16385, 65536, 100000, 1 << 20,
		(4 << 20) + 3, 8 << 20};

	return sizes[n % (sizeof(sizes) / sizeof(sizes[0]))];
}

struct value {
	struct order o;
	char key[16];
	char lead[20];
	char *sent, *got;
	size_t bytes;
};

static void make_values(struct value *values)
{
	for (size_t n = 0; n < VALUES; n++) {
		struct value *v = &values[n];

		v->bytes = size_of(n);
		v->sent = malloc(v->bytes + 1);
		v->got = malloc(v->bytes + 1);
		ck_assert(v->sent != NULL && v->got != NULL);
		for (size_t i = 0; i < v->bytes; i++)
			v->sent[i] = byte_of(n, i);
		snprintf(v->key, sizeof(v->key), "value-%zu", n);
	}
}

static void free_values(struct value *values)
{
	for (size_t n = 0; n < VALUES; n++) {
		free(values[n].sent);
		free(values[n].got);
	}
}

static void wait_all(struct value *values)
{
	for (size_t n = 0; n < VALUES; n++)
		while (!values[n].o.done) {
			int64_t next_ns = INT64_MAX;

			(void)kvw_redis_step(w.r, 100 * MS, &next_ns);
		}
}

static void set_all(struct value *values)
{
	for (size_t n = 0; n < VALUES; n++) {
		struct value *v = &values[n];

		ORDER(&v->o, &w, LONG_NS, "SET", v->key);
		order_value(&v->o, v->sent, v->bytes);
		order_submit(&v->o, &w);
	}
	wait_all(values);
	for (size_t n = 0; n < VALUES; n++) {
		ck_assert_int_eq(values[n].o.c.status, KVW_OK);
		ck_assert_int_eq(values[n].o.c.reply, KVW_REDIS_STATUS);
	}
}

/* The first 20 bytes into lead, the rest into several segments. */
static void get_all(struct value *values)
{
	for (size_t n = 0; n < VALUES; n++) {
		struct value *v = &values[n];
		size_t rest = v->bytes < sizeof(v->lead) ? 0 : v->bytes - sizeof(v->lead);

		memset(v->got, 0, v->bytes + 1);
		ORDER(&v->o, &w, LONG_NS, "GET", v->key);
		v->o.c.lead = v->lead;
		v->o.c.lead_room = sizeof(v->lead);
		order_into(&v->o, v->got, rest, 1 + n % 7);
		order_submit(&v->o, &w);
	}
	wait_all(values);
	for (size_t n = 0; n < VALUES; n++) {
		struct value *v = &values[n];
		size_t lead = v->bytes < sizeof(v->lead) ? v->bytes : sizeof(v->lead);

		ck_assert_int_eq(v->o.c.status, KVW_OK);
		ck_assert_int_eq(v->o.c.reply, KVW_REDIS_BULK);
		ck_assert_uint_eq(v->o.c.bulk_bytes, v->bytes);
		ck_assert_uint_eq(v->o.c.lead_bytes, lead);
		ck_assert(memcmp(v->lead, v->sent, lead) == 0);
		ck_assert(memcmp(v->got, v->sent + lead, v->bytes - lead) == 0);
	}
}

static void exchange_values(void)
{
	struct value values[VALUES] = {0};

	make_values(values);
	world_start(&w);
	set_all(values);
	get_all(values);
	get_all(values);
	free_values(values);
}

START_TEST(t_values_by_tcp)
{
	real_start(&server, false);
	client_here();
	w.options.connections = 4;
	exchange_values();
}
END_TEST

/* Less in flight than there is: the line does the rest. */
START_TEST(t_values_through_a_small_door)
{
	real_start(&server, false);
	client_here();
	w.options.connections = 2;
	w.options.inflight_bytes = 1 << 20;
	exchange_values();
}
END_TEST

START_TEST(t_values_by_unix_socket)
{
	char url[128];

	real_start(&server, false);
	snprintf(url, sizeof(url), "unix://%s", server.socket);
	client_of(url);
	exchange_values();
}
END_TEST

START_TEST(t_values_by_tls)
{
	char url[128], ca[128];

	real_certificates(&server);
	snprintf(server.arguments, sizeof(server.arguments), "--tls-auth-clients no");
	real_start(&server, true);
	snprintf(url, sizeof(url), "rediss://localhost:%u", server.tls_port);
	snprintf(ca, sizeof(ca), "%s/ca.pem", server.folder);
	client_of(url);
	w.options.tls_ca = ca;
	w.options.connections = 3;
	exchange_values();
}
END_TEST

/* --- logins ----------------------------------------------------------------------------------- */

START_TEST(t_password)
{
	snprintf(server.arguments, sizeof(server.arguments), "--requirepass hunter2");
	real_start(&server, false);
	client_here();
	w.options.password = "hunter2";
	world_start(&w);
	expect_pong();
	client_here();
	w.options.password = "hunter3";
	expect_refusal("login refused: WRONGPASS");
	ck_assert(!world_logged(&w, "hunter3"));
	client_here();
	expect_refusal("login refused: NOAUTH");
}
END_TEST

START_TEST(t_password_for_a_server_without_one)
{
	real_start(&server, false);
	client_here();
	w.options.password = "hunter2";
	expect_refusal("login refused: ERR AUTH");
	ck_assert(!world_logged(&w, "hunter2"));
}
END_TEST

START_TEST(t_acl_user)
{
	struct order o;
	struct kvw_redis_stats stats;

	snprintf(server.arguments, sizeof(server.arguments),
		"--user alice on >secret ~a:* +get +set +ping");
	real_start(&server, false);
	client_here();
	w.options.username = "alice";
	w.options.password = "secret";
	world_start(&w);
	ORDER(&o, &w, LONG_NS, "SET", "a:1");
	order_value(&o, "x", 1);
	expect_text(KVW_REDIS_STATUS, "OK", &o);
	ORDER(&o, &w, LONG_NS, "GET", "b:1");
	ask(&o);
	ck_assert_int_eq(o.c.reply, KVW_REDIS_ERROR);
	ck_assert_int_eq(strncmp(o.c.text, "NOPERM", 6), 0);
	ck_assert(world_logged(&w, "NOPERM"));
	kvw_redis_stats(w.r, &stats);
	ck_assert_str_eq(stats.mode, "redis standalone"); /* INFO is not for alice */
	client_here();
	w.options.username = "alice";
	w.options.password = "Secret";
	expect_refusal("login refused: WRONGPASS");
}
END_TEST

START_TEST(t_database)
{
	char url[128];
	struct order o;

	real_start(&server, false);
	client_here();
	world_start(&w);
	ORDER(&o, &w, LONG_NS, "SET", "k");
	order_value(&o, "zero", 4);
	expect_text(KVW_REDIS_STATUS, "OK", &o);
	snprintf(url, sizeof(url), "redis://127.0.0.1:%u/5", server.port);
	client_of(url);
	world_start(&w);
	ORDER(&o, &w, LONG_NS, "GET", "k");
	ask(&o);
	ck_assert_int_eq(o.c.reply, KVW_REDIS_NIL);
	snprintf(url, sizeof(url), "redis://127.0.0.1:%u/99", server.port);
	client_of(url);
	expect_refusal("login refused: ERR DB index is out of range");
}
END_TEST

/* --- TLS -------------------------------------------------------------------------------------- */

static char ca_path[128], certificate_path[128], key_path[128];

static void tls_client(const char *host, const char *ca)
{
	char url[128];

	snprintf(url, sizeof(url), "rediss://%s:%u", host, server.tls_port);
	client_of(url);
	snprintf(ca_path, sizeof(ca_path), "%s/%s.pem", server.folder, ca);
	w.options.tls_ca = ca_path;
}

START_TEST(t_certificates)
{
	real_certificates(&server);
	snprintf(server.arguments, sizeof(server.arguments), "--tls-auth-clients no");
	real_start(&server, true);
	tls_client("localhost", "ca");
	world_start(&w);
	expect_pong();
	tls_client("127.0.0.2", "ca");
	world_start(&w);
	expect_pong();
	tls_client("127.0.0.1", "ca");
	expect_refusal("TLS: certificate verify failed (IP address mismatch)");
	tls_client("localhost", "other");
	expect_refusal(
		"TLS: certificate verify failed (self-signed certificate in certificate chain)");
	tls_client("localhost", "ca");
	w.options.tls_ca = NULL; /* the system's authorities */
	expect_refusal("TLS: certificate verify failed");
	tls_client("localhost", "ca");
	w.url.nodes[0].port = server.port; /* no TLS there: it waits for the end of a line */
	w.options.connect_ns = 200 * MS;
	expect_refusal("TLS handshake: no answer within 200 ms");
}
END_TEST

START_TEST(t_host_name_mismatch)
{
	real_certificates(&server);
	snprintf(server.arguments, sizeof(server.arguments),
		"--tls-auth-clients no --tls-cert-file elsewhere.pem --tls-key-file elsewhere.key");
	real_start(&server, true);
	tls_client("localhost", "ca");
	expect_refusal("TLS: certificate verify failed (hostname mismatch)");
}
END_TEST

START_TEST(t_client_certificate)
{
	real_certificates(&server);
	real_start(&server, true);
	tls_client("localhost", "ca");
	expect_refusal("certificate required");
	tls_client("localhost", "ca");
	snprintf(certificate_path, sizeof(certificate_path), "%s/client.pem", server.folder);
	snprintf(key_path, sizeof(key_path), "%s/client.key", server.folder);
	w.options.tls_certificate = certificate_path;
	w.options.tls_key = key_path;
	world_start(&w);
	expect_pong();
}
END_TEST

/* --- servers that die, stall and come back ---------------------------------------------------- */

START_TEST(t_killed_and_started_again)
{
	bool works = false;

	real_start(&server, false);
	client_here();
	w.options.connections = 3;
	world_start(&w);
	expect_pong();
	for (int i = 0; i < 3; i++) {
		struct order o;

		real_stop(&server);
		ORDER(&o, &w, LONG_NS, "PING");
		ask(&o);
		ck_assert_int_eq(o.c.status, KVW_EIO);
		ck_assert_str_ne(o.c.text, "");
		real_start(&server, false);
		for (works = false; !works;) {
			ORDER(&o, &w, LONG_NS, "PING");
			ask(&o);
			works = o.c.status == KVW_OK;
		}
	}
}
END_TEST

/* A server that stands still: deadlines hold, nothing is written late, and all is well afterwards. */
START_TEST(t_stalled)
{
	char memory[32];
	struct order o;

	real_start(&server, false);
	client_here();
	w.options.connections = 2;
	w.options.connect_ns = 300 * MS;
	world_start(&w);
	do { /* a busy machine may take longer than that to connect */
		ORDER(&o, &w, LONG_NS, "SET", "k");
		order_value(&o, "0123456789", 10);
		ask(&o);
	} while (o.c.status != KVW_OK);
	ck_assert_int_eq(kill(server.pid, SIGSTOP), 0);
	memset(memory, '#', sizeof(memory));
	for (int i = 0; i < 3; i++) {
		w.now_ns = machine_ns(NULL);
		ORDER(&o, &w, 100 * MS, "GET", "k");
		order_into(&o, memory, sizeof(memory), 2);
		order_submit(&o, &w);
		order_wait(&o, &w);
		ck_assert(o.c.status == KVW_ETIMEDOUT || o.c.status == KVW_EIO);
	}
	ck_assert_int_eq(kill(server.pid, SIGCONT), 0);
	for (size_t i = 0; i < sizeof(memory); i++)
		ck_assert_int_eq(memory[i], '#');
	do {
		ORDER(&o, &w, LONG_NS, "GET", "k");
		order_into(&o, memory, sizeof(memory), 2);
		ask(&o);
	} while (o.c.status != KVW_OK);
	ck_assert_mem_eq(memory, "0123456789######", 16);
}
END_TEST

/* --- threads ---------------------------------------------------------------------------------- */

static _Atomic bool stepping;

static void *step_thread(void *self)
{
	struct order *o = self;
	int64_t next_ns = INT64_MAX;

	while (atomic_load(&stepping)) {
		(void)kvw_redis_step(w.r, LONG_NS, &next_ns);
		if (o->done)
			order_submit(o, &w);
	}
	return NULL;
}

/* A wait of a minute ends when a thread wakes it; figures can be read meanwhile. */
START_TEST(t_woken_by_another_thread)
{
	struct kvw_redis_stats stats = {0};
	struct order o;
	pthread_t thread;

	real_start(&server, false);
	client_here();
	world_start(&w);
	ORDER(&o, &w, LONG_NS, "PING");
	o.c.deadline_ns = INT64_MAX;
	order_submit(&o, &w);
	atomic_store(&stepping, true);
	ck_assert_int_eq(pthread_create(&thread, NULL, step_thread, &o), 0);
	while (stats.replies < 1000)
		kvw_redis_stats(w.r, &stats);
	atomic_store(&stepping, false);
	kvw_redis_wake(w.r);
	pthread_join(thread, NULL);
	ck_assert_int_eq(strncmp(stats.mode, "redis ", 6), 0);
	ck_assert_ptr_nonnull(strstr(stats.mode, " standalone"));
	ck_assert_uint_gt(stats.received_bytes, 7000);
	kvw_redis_wake(w.r);
	world_finish(&w);
}
END_TEST

static TCase *new_case(Suite *suite, const char *name)
{
	TCase *tc = tcase_create(name);

	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, setup, teardown);
	suite_add_tcase(suite, tc);
	return tc;
}

static Suite *server_suite(void)
{
	Suite *suite = suite_create("redis-server");
	TCase *tc = new_case(suite, "values");

	tcase_add_test(tc, t_values_by_tcp);
	tcase_add_test(tc, t_values_through_a_small_door);
	tcase_add_test(tc, t_values_by_unix_socket);
	tcase_add_test(tc, t_values_by_tls);
	tc = new_case(suite, "logins");
	tcase_add_test(tc, t_password);
	tcase_add_test(tc, t_password_for_a_server_without_one);
	tcase_add_test(tc, t_acl_user);
	tcase_add_test(tc, t_database);
	tc = new_case(suite, "tls");
	tcase_add_test(tc, t_certificates);
	tcase_add_test(tc, t_host_name_mismatch);
	tcase_add_test(tc, t_client_certificate);
	tc = new_case(suite, "trouble");
	tcase_add_test(tc, t_killed_and_started_again);
	tcase_add_test(tc, t_stalled);
	tcase_add_test(tc, t_woken_by_another_thread);
	return suite;
}

int main(void)
{
	if (!real_exists())
		return 77; /* skipped */
	return run_suite(server_suite());
}
