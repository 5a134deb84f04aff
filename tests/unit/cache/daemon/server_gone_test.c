/*
 * server_gone_test.c - clients that go, dawdle or come in crowds, and the end of the server: nothing is
 * left under way or leased.
 */
#include "server_scene.h"
#include "tests/unit/suite.h"

/* --- clients that go -------------------------------------------------------------------------- */

START_TEST(a_half_sent_put_is_aborted)
{
	char *bytes = pattern(400000, 9);
	struct scene s;
	int fd;

	scene_init(&s, NULL);
	for (int reset = 0; reset < 2; reset++) {
		struct linger now = {.l_onoff = reset, .l_linger = 0};

		fd = dial(kvt_server_listen(s.server));
		put_head(fd, "/v1/kv/b/k", 400000);
		say_bytes(fd, bytes, 399999);
		UNTIL(fake_puts(s.objects) == 1);
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		close(fd);
		UNTIL(fake_puts(s.objects) == 0);
	}
	fd = dial(kvt_server_listen(s.server));
	ask(fd, "POST", "/v1/kv/b/k/leases");
	EXPECT(fd, "404", "not found");
	ask(fd, "GET", "/metrics");
	EXPECT(fd, "200", "\nkvtierd_puts_cut_total 2\n");
	close(fd);
	free(bytes);
	scene_finish(&s);
}
END_TEST

/* The client is gone when its lease comes: it goes back. */
START_TEST(a_lease_that_nobody_hears_of_goes_back)
{
	struct scene s;
	int fd;

	scene_init(&s, NULL);
	fd = dial(kvt_server_listen(s.server));
	put(fd, "/v1/kv/b/k", "hello", 5);
	EXPECT(fd, "200", "");
	close(fd);
	atomic_store(&s.objects->lease_delay_ns, (uint64_t)150 * KVW_NS_PER_MS);
	for (int reset = 0; reset < 2; reset++) {
		struct linger now = {.l_onoff = reset, .l_linger = 0};

		fd = dial(kvt_server_listen(s.server));
		ask(fd, "POST", "/v1/kv/b/k/leases");
		usleep(50000);
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		close(fd);
	}
	UNTIL(fake_granted(s.objects) == 2);
	UNTIL(fake_leases(s.objects) == 0);
	atomic_store(&s.objects->lease_delay_ns, 0);
	fd = dial(kvt_server_listen(s.server));
	ask(fd, "GET", "/metrics");
	EXPECT(fd, "200", "\nkvtierd_leases_unread_total 2\n");
	close(fd);
	scene_finish(&s);
}
END_TEST

/* A client that is there keeps its lease when its connection ends. */
START_TEST(a_lease_outlives_its_connection)
{
	struct scene s;
	int fd;

	scene_init(&s, NULL);
	fd = dial(kvt_server_listen(s.server));
	put(fd, "/v1/kv/b/k", "hello", 5);
	EXPECT(fd, "200", "");
	ask(fd, "POST", "/v1/kv/b/k/leases");
	EXPECT(fd, "200", "lease-1");
	close(fd);
	fd = dial(kvt_server_listen(s.server));
	ask(fd, "GET", "/health");
	EXPECT(fd, "200", "ok");
	ck_assert_uint_eq(fake_leases(s.objects), 1);
	ask(fd, "POST", "/v1/leases/lease-1/release");
	EXPECT(fd, "200", "");
	close(fd);
	scene_finish(&s);
}
END_TEST

/* --- limits ----------------------------------------------------------------------------------- */

START_TEST(slow_clients_are_given_up)
{
	struct scene s;
	int head, body, idle, drain, fd;

	scene_init(&s, "limits: {idle_time: 3s, head_time: 3s, body_time: 3s}");
	head = dial(kvt_server_listen(s.server));
	say(head, "GET /health HT");
	body = dial(kvt_server_listen(s.server));
	put_head(body, "/v1/kv/b/k", 1000);
	say(body, "some");
	idle = dial(kvt_server_listen(s.server));
	drain = dial(kvt_server_listen(s.server));
	put_head(drain, "/v1/kv//k", 1000); /* refused; its body is awaited all the same */
	EXPECT(drain, "400", "the bucket is empty");
	EXPECT(head, "408", "limits.head_time");
	expect_close(head);
	EXPECT(body, "408", "4 bytes of 1000");
	expect_close(body);
	expect_close(idle);
	expect_close(drain);
	ck_assert_uint_eq(fake_puts(s.objects), 0);
	fd = dial(kvt_server_listen(s.server));
	ask(fd, "GET", "/metrics");
	EXPECT(fd, "200", "\nkvtierd_timeouts_total{kind=\"body\"} 2\n");
	close(fd);
	scene_finish(&s);
}
END_TEST

/* What has come but was not looked at yet counts: a loop is not woken for every packet of a PUT. */
START_TEST(a_body_that_comes_in_lumps_is_in_time)
{
	char *bytes = pattern(600000, 4);
	struct scene s;
	int fd;

	scene_init(&s, "limits: {body_time: 3s, body_rate: 10KiB}");
	fd = dial(kvt_server_listen(s.server));
	put_head(fd, "/v1/kv/b/k", 600000);
	say_bytes(fd, bytes, 1000);
	UNTIL(fake_puts(s.objects) == 1);
	usleep(20000);
	say_bytes(fd, bytes + 1000, 200000);
	usleep(3500000); /* longer than body_time */
	say_bytes(fd, bytes + 201000, 399000);
	EXPECT(fd, "200", "Content-Length: 0");
	close(fd);
	free(bytes);
	scene_finish(&s);
}
END_TEST

START_TEST(connections_and_puts_are_bounded)
{
	struct scene s;
	int first, second, third;

	scene_init(&s, "limits: {connections: 2, puts: 1}");
	first = dial(kvt_server_listen(s.server));
	put_head(first, "/v1/kv/b/k", 10);
	UNTIL(fake_puts(s.objects) == 1);
	second = dial(kvt_server_listen(s.server));
	put(second, "/v1/kv/b/k", "hello", 5);
	EXPECT(second, "503", "limits.puts");
	third = dial(kvt_server_listen(s.server));
	EXPECT(third, "503", "try again later\"}");
	expect_close(third);
	say(first, "0123456789");
	EXPECT(first, "200", "");
	put(second, "/v1/kv/b/k", "0123456789", 10);
	EXPECT(second, "409", "");
	close(first);
	close(second);
	scene_finish(&s);
}
END_TEST

/* A daemon that is full works: probes that took it for dead would have it killed. */
START_TEST(probes_are_answered_beyond_the_limit)
{
	static const char *const paths[] = {"/health", "/ready", "/metrics"};
	struct scene s;
	int held[2], silent[20], fd;

	scene_init(&s, "limits: {connections: 2}");
	for (size_t i = 0; i < 2; i++) {
		held[i] = dial(kvt_server_listen(s.server));
		ask(held[i], "GET", "/health");
		EXPECT(held[i], "200", "ok");
	}
	for (size_t i = 0; i < 40; i++) { /* more than are heard at once: each gives its place back */
		fd = dial(i % 2 == 0 ? kvt_server_listen(s.server) : kvt_server_admin(s.server));
		ask(fd, "GET", paths[i % 3]);
		EXPECT(fd, "200", "Connection: close");
		expect_close(fd);
	}
	fd = dial(kvt_server_listen(s.server));
	ask(fd, "POST", "/v1/kv/b/k/leases");
	EXPECT(fd, "503", "limits.connections");
	expect_close(fd);
	fd = dial(kvt_server_admin(s.server));
	ask(fd, "DELETE", "/v1/kv/b");
	EXPECT(fd, "503", "limits.connections");
	expect_close(fd);
	ask(held[0], "GET", "/metrics");
	EXPECT(held[0], "200", "\nkvtierd_refused_total{reason=\"connections\"} 2\n");
	for (size_t i = 0; i < 20; i++)
		silent[i] = dial(kvt_server_listen(s.server));
	for (size_t i = 0; i < 20; i++) {
		EXPECT(silent[i], "503", "try again later\"}");
		close(silent[i]);
	}
	fd = dial(kvt_server_listen(s.server));
	ask(fd, "GET", "/health");
	EXPECT(fd, "200", "ok");
	close(fd);
	put(held[1], "/v1/kv/b/k", "hello", 5);
	EXPECT(held[1], "200", "");
	close(held[0]);
	close(held[1]);
	scene_finish(&s);
}
END_TEST

START_TEST(a_head_has_a_limit)
{
	char long_head[20000] = "GET /health HTTP/1.1\r\nHost: h\r\nX: ";
	struct scene s;
	size_t len = strlen(long_head);
	int fd;

	scene_init(&s, NULL);
	fd = dial(kvt_server_listen(s.server));
	memset(long_head + len, 'a', sizeof(long_head) - len);
	(void)!send(fd, long_head, sizeof(long_head), MSG_NOSIGNAL);
	EXPECT(fd, "431", "error");
	expect_close(fd);
	scene_finish(&s);
}
END_TEST

/* --- the end ---------------------------------------------------------------------------------- */

START_TEST(a_drain_lets_requests_end)
{
	struct scene s;
	int idle, put_fd, lease, late;

	scene_init(&s, "{loops: 1}");
	idle = dial(kvt_server_listen(s.server));
	put_fd = dial(kvt_server_listen(s.server));
	lease = dial(kvt_server_listen(s.server));
	put(lease, "/v1/kv/b/k", "hello", 5);
	EXPECT(lease, "200", "");
	put_head(put_fd, "/v1/kv/b/k", 10);
	UNTIL(fake_puts(s.objects) == 1);
	atomic_store(&s.objects->lease_delay_ns, (uint64_t)600 * KVW_NS_PER_MS);
	ask(lease, "POST", "/v1/kv/b/k/leases");
	usleep(20000);
	kvt_server_drain(s.server);
	expect_close(idle);
	EXPECT(lease, "200", "Connection: close");
	expect_close(lease);
	say(put_fd, "0123456789");
	EXPECT(put_fd, "200", "Connection: close");
	expect_close(put_fd);
	late = socket(AF_INET, SOCK_STREAM, 0);
	close(late);
	scene_finish(&s);
}
END_TEST

/* A connection that does not end is ended after limits.drain_time; a lease under way is waited
 * for. */
START_TEST(a_drain_ends)
{
	struct scene s;
	int fd, lease;

	scene_init(&s, "limits: {drain_time: 100ms}");
	fd = dial(kvt_server_listen(s.server));
	put_head(fd, "/v1/kv/b/k", 10);
	UNTIL(fake_puts(s.objects) == 1);
	lease = dial(kvt_server_listen(s.server));
	atomic_store(&s.objects->lease_delay_ns, (uint64_t)400 * KVW_NS_PER_MS);
	ask(lease, "POST", "/v1/kv/b/k/leases");
	usleep(50000);
	scene_finish(&s);
	expect_close(fd);
	expect_close(lease);
}
END_TEST

START_TEST(an_address_in_use_is_said)
{
	struct kvt_server *second = NULL;
	char why[KVT_REASON_BYTES];
	struct scene s;

	scene_init(&s, NULL);
	s.config.listen = kvt_server_listen(s.server);
	ck_assert_int_eq(kvt_server_start(&(struct kvt_server_options){&s.config, s.objects,
						  fake_segment(s.objects)},
				 why, &second),
		KVT_EIO);
	ck_assert(strstr(why, "cannot listen on 127.0.0.1:") != NULL);
	ck_assert(strstr(why, "in use") != NULL);
	scene_finish(&s);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("server");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, a_half_sent_put_is_aborted);
	tcase_add_test(tcase, a_lease_that_nobody_hears_of_goes_back);
	tcase_add_test(tcase, a_lease_outlives_its_connection);
	tcase_add_test(tcase, slow_clients_are_given_up);
	tcase_add_test(tcase, a_body_that_comes_in_lumps_is_in_time);
	tcase_add_test(tcase, connections_and_puts_are_bounded);
	tcase_add_test(tcase, probes_are_answered_beyond_the_limit);
	tcase_add_test(tcase, a_head_has_a_limit);
	tcase_add_test(tcase, a_drain_lets_requests_end);
	tcase_add_test(tcase, a_drain_ends);
	tcase_add_test(tcase, an_address_in_use_is_said);
	return run_tcase("daemon-server-gone", tcase);
}
