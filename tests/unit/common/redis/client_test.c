/*
 * client_test.c - the client against a server that does everything wrong, one thing at a time.
 */
#include <stdlib.h>

#include "fake_fixture.h"

/* --- what goes well --------------------------------------------------------------------------- */

START_TEST(t_value_into_lead_and_segments)
{
	char memory[64], lead[4];
	struct order o;
	int fd;

	memset(memory, '#', sizeof(memory));
	world_start(&w);
	ORDER(&o, &w, 1000 * MS, "GET", "a");
	o.c.lead = lead;
	o.c.lead_room = sizeof(lead);
	order_into(&o, memory + 8, 32, 4);
	order_submit(&o, &w);
	fd = fake_login(&f);
	HEAR(&f, fd, GET_A);
	SAY(&f, fd, "$2");
	SAY(&f, fd, "0\r\nhead0123");
	SAY(&f, fd, "456789abcde");
	ck_assert(!o.done);
	SAY(&f, fd, "f\r");
	ck_assert(!o.done);
	SAY(&f, fd, "\n");
	order_wait(&o, &w);
	ck_assert_int_eq(o.c.status, KVW_OK);
	ck_assert_int_eq(o.c.reply, KVW_REDIS_BULK);
	ck_assert_uint_eq(o.c.bulk_bytes, 20);
	ck_assert_uint_eq(o.c.lead_bytes, 4);
	ck_assert_mem_eq(lead, "head", 4);
	ck_assert_mem_eq(memory, "########0123456789abcdef########", 32);
	ck_assert_str_eq(stats().reason, "");
	fake_close(fd);
}
END_TEST

START_TEST(t_mode_is_reported)
{
	struct order o;
	int fd;

	world_start(&w);
	submit_ping(&o);
	fd = fake_login(&f);
	answer_ping(fd, &o);
	ck_assert_str_eq(stats().mode, "redis 0.0.1 standalone");
	ck_assert_uint_eq(stats().connections, 1);
	fake_close(fd);
}
END_TEST

START_TEST(t_login_says_user_password_and_database)
{
	struct order o;
	int fd;

	w.options.username = "me";
	w.options.password = "s3 cret";
	w.url.database = 7;
	world_start(&w);
	submit_ping(&o);
	fd = fake_accept(&f);
	HEAR(&f, fd,
		"*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$7\r\ns3 cret\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n7\r\n"
		"*2\r\n$4\r\nINFO\r\n$6\r\nserver\r\n");
	SAY(&f, fd, "+OK\r\n+OK\r\n");
	ck_assert(fake_hears_nothing(&f, fd));
	SAY(&f, fd, "-NOPERM this user has no permissions to run the 'info' command\r\n");
	answer_ping(fd, &o);
	fake_close(fd);
}
END_TEST

/* Small commands do not queue up behind a large value. */
START_TEST(t_spread_over_connections)
{
	static char value[1 << 20];
	struct order large, small;
	int a, b;

	w.options.connections = 2;
	world_start(&w);
	ORDER(&large, &w, 1000 * MS, "SET", "k");
	order_value(&large, value, sizeof(value));
	ORDER(&small, &w, 1000 * MS, "PING");
	order_submit(&large, &w);
	a = fake_login(&f);
	HEAR(&f, a, "*3\r\n$3\r\nSET\r\n");
	b = fake_login(&f);
	order_submit(&small, &w);
	answer_ping(b, &small);
	ck_assert(!large.done);
	world_finish(&w);
	fake_close(a);
	fake_close(b);
}
END_TEST

/* --- replies that are not what was hoped for -------------------------------------------------- */

START_TEST(t_error_in_place_of_a_value)
{
	char memory[8] = "#######";
	struct order o;
	int fd;

	world_start(&w);
	submit_get(&o, memory, sizeof(memory), 1);
	fd = fake_login(&f);
	HEAR(&f, fd, GET_A);
	SAY(&f, fd, "-NOPERM this user has no permissions to access one of the keys\r\n");
	order_wait(&o, &w);
	ck_assert_int_eq(o.c.status, KVW_OK);
	ck_assert_int_eq(o.c.reply, KVW_REDIS_ERROR);
	ck_assert_str_eq(o.c.text, "NOPERM this user has no permissions to access one of the keys");
	ck_assert_str_eq(memory, "#######");
	ck_assert(world_logged(&w, "NOPERM this user"));
	ck_assert_uint_eq(stats().errors, 1);
	fake_close(fd);
}
END_TEST

/* A value without room is thrown away; what follows it on the connection is good. */
START_TEST(t_value_too_long)
{
	static char value[100000];
	char memory[8] = "#######";
	struct order a, b;
	int fd;

	world_start(&w);
	ORDER(&a, &w, 1000 * MS, "GET", "a");
	order_into(&a, memory, sizeof(memory), 1);
	ORDER(&b, &w, 1000 * MS, "PING");
	order_submit(&a, &w);
	order_submit(&b, &w);
	fd = fake_login(&f);
	HEAR(&f, fd, GET_A PING);
	SAY(&f, fd, "$100000\r\n");
	fake_say(&f, fd, value, sizeof(value));
	SAY(&f, fd, "\r\n+PONG\r\n");
	order_wait(&a, &w);
	order_wait(&b, &w);
	ck_assert_int_eq(a.c.status, KVW_ELIMIT);
	ck_assert_uint_eq(a.c.bulk_bytes, 100000);
	ck_assert_str_eq(memory, "#######");
	ck_assert_str_eq(b.c.text, "PONG");
	fake_close(fd);
}
END_TEST

/* What is no reply ends its command and the connection; the other command is asked again. */
START_TEST(t_not_redis)
{
	char memory[8];
	struct order a, b;
	int fd;

	world_start(&w);
	ORDER(&a, &w, 1000 * MS, "GET", "a");
	order_into(&a, memory, sizeof(memory), 1);
	ORDER(&b, &w, 1000 * MS, "PING");
	order_submit(&a, &w);
	order_submit(&b, &w);
	fd = fake_login(&f);
	HEAR(&f, fd, GET_A PING);
	SAY(&f, fd, "$3\r\nabcdef\r\n+PONG\r\n");
	order_wait(&a, &w);
	ck_assert_int_eq(a.c.status, KVW_EPROTO);
	fake_hear_end(&f, fd);
	w.now_ns += 100 * MS; /* a connection that answered nothing is not followed at once */
	fd = fake_login(&f);
	answer_ping(fd, &b);
	fake_close(fd);
}
END_TEST

START_TEST(t_reply_without_a_command)
{
	struct order o;
	int fd;

	world_start(&w);
	submit_ping(&o);
	fd = fake_login(&f);
	HEAR(&f, fd, PING);
	SAY(&f, fd, "+PONG\r\n+PONG\r\n");
	order_wait(&o, &w);
	ck_assert_str_eq(o.c.text, "PONG");
	fake_hear_end(&f, fd);
	order_submit(&o, &w); /* the next one makes a new connection */
	o.done_count = 0;
	fd = fake_login(&f);
	answer_ping(fd, &o);
	ck_assert_uint_eq(stats().reconnects, 1);
	fake_close(fd);
}
END_TEST

/* An answer before the whole request has been sent: the rest would be taken for another request. */
START_TEST(t_early_reply)
{
	size_t len = 32 << 20;
	char *value = calloc(1, len);
	struct order o, other;
	int fd;

	world_start(&w);
	ORDER(&o, &w, 1000 * MS, "SET", "k");
	order_value(&o, value, len);
	ORDER(&other, &w, 1000 * MS, "PING");
	order_submit(&o, &w);
	order_submit(&other, &w);
	fd = fake_login(&f);
	HEAR(&f, fd, "*3\r\n$3\r\nSET\r\n");
	SAY(&f, fd, "-ERR Protocol error: invalid bulk length\r\n");
	order_wait(&o, &w);
	ck_assert_int_eq(o.c.status, KVW_OK);
	ck_assert_int_eq(o.c.reply, KVW_REDIS_ERROR);
	fake_hear_end(&f, fd);
	fd = fake_login(&f);
	answer_ping(fd, &other);
	fake_close(fd);
	free(value);
}
END_TEST

/* A failover behind one address: the former master keeps its connections, and refused each write
 * for ever. */
START_TEST(t_a_replica_is_connected_to_anew)
{
	struct order o;
	int fd, before;

	world_start(&w);
	submit_ping(&o);
	before = fake_login(&f);
	HEAR(&f, before, PING);
	SAY(&f, before, "-READONLY You can't write against a read only replica.\r\n");
	fake_hear_end(&f, before);
	fd = fake_login(&f);
	answer_ping(fd, &o);
	submit_ping(&o);
	HEAR(&f, fd, PING);
	SAY(&f, fd, "-READONLY You can't write against a read only replica.\r\n");
	order_wait(&o, &w); /* a replica for good: not at once again */
	ck_assert_int_eq(o.c.reply, KVW_REDIS_ERROR);
	w.now_ns += 1100 * MS;
	submit_ping(&o);
	HEAR(&f, fd, PING);
	SAY(&f, fd, "-READONLY You can't write against a read only replica.\r\n");
	fake_hear_end(&f, fd);
	fd = fake_login(&f);
	answer_ping(fd, &o);
	fake_close(fd);
}
END_TEST

#define READONLY "-READONLY You can't write against a read only replica.\r\n"

START_TEST(t_all_that_a_replica_refused_is_sent_again)
{
	struct order first, second;
	int fd;

	world_start(&w);
	submit_ping(&first);
	submit_ping(&second);
	fd = fake_login(&f);
	HEAR(&f, fd, PING PING);
	SAY(&f, fd, READONLY READONLY);
	fake_hear_end(&f, fd);
	fd = fake_login(&f);
	HEAR(&f, fd, PING PING);
	SAY(&f, fd, "+PONG\r\n+PONG\r\n");
	order_wait(&first, &w);
	order_wait(&second, &w);
	ck_assert_int_eq(first.c.reply, KVW_REDIS_STATUS);
	ck_assert_int_eq(second.c.reply, KVW_REDIS_STATUS);
	fake_close(fd);
}
END_TEST

/* Connections that were idle are closed, too, which is no failure that one waits after. */
START_TEST(t_idle_links_do_not_delay_a_failover)
{
	struct order o;
	int fd, idle[2];

	w.options.connections = 3;
	world_start(&w);
	submit_ping(&o);
	fd = fake_login(&f);
	HEAR(&f, fd, PING);
	idle[0] = fake_login(&f);
	idle[1] = fake_login(&f);
	SAY(&f, fd, READONLY);
	fake_hear_end(&f, fd);
	fake_hear_end(&f, idle[0]);
	fake_hear_end(&f, idle[1]);
	fd = fake_login(&f);
	answer_ping(fd, &o);
	fake_close(fd);
}
END_TEST

/* The next failover is followed as fast as the first one. */
START_TEST(t_failovers_one_after_another)
{
	struct order o;
	int fd;

	world_start(&w);
	submit_ping(&o);
	fd = fake_login(&f);
	answer_ping(fd, &o);
	for (int i = 0; i < 4; i++) {
		w.now_ns += 1100 * MS;
		submit_ping(&o);
		HEAR(&f, fd, PING);
		SAY(&f, fd, READONLY);
		fake_hear_end(&f, fd);
		fd = fake_login(&f);
		answer_ping(fd, &o);
	}
	fake_close(fd);
}
END_TEST

START_TEST(t_loading_is_asked_again)
{
	struct order o;
	int fd;

	world_start(&w);
	submit_ping(&o);
	fd = fake_login(&f);
	HEAR(&f, fd, PING);
	SAY(&f, fd, "-LOADING Redis is loading the dataset in memory\r\n");
	ck_assert(fake_hears_nothing(&f, fd));
	ck_assert(!o.done);
	ck_assert_int_lt(w.next_ns, w.now_ns + 500 * MS);
	w.now_ns = w.next_ns;
	answer_ping(fd, &o);
	fake_close(fd);
}
END_TEST

START_TEST(t_elements)
{
	struct order o;
	int fd;

	world_start(&w);
	ORDER(&o, &w, 1000 * MS, "SCAN", "0");
	o.c.elements = true;
	o.c.element_limit = 1000;
	order_submit(&o, &w);
	fd = fake_login(&f);
	HEAR(&f, fd, "*2\r\n$4\r\nSCAN\r\n$1\r\n0\r\n");
	SAY(&f, fd, "*2\r\n$2\r\n17\r\n*1\r\n$3\r\nk");
	SAY(&f, fd, "ey\r\n");
	order_wait(&o, &w);
	ck_assert_int_eq(o.c.reply, KVW_REDIS_ARRAY);
	ck_assert_uint_eq(o.c.element_count, 2);
	ck_assert_str_eq(o.c.found[0].data, "17");
	ck_assert_str_eq(o.c.found[1].data, "key");
	ck_assert_uint_eq(o.c.found[1].depth, 2);
	kvw_redis_elements_free(o.c.found, o.c.element_count);
	fake_close(fd);
}
END_TEST

/* --- bounds ----------------------------------------------------------------------------------- */

START_TEST(t_bytes_in_flight)
{
	char value[1000] = {0};
	struct order o[4];
	int fd;

	w.options.inflight_bytes = 2500;
	world_start(&w);
	for (int i = 0; i < 4; i++) {
		ORDER(&o[i], &w, 1000 * MS, "SET", "k");
		order_value(&o[i], value, i == 3 ? 10 : sizeof(value));
		order_submit(&o[i], &w);
	}
	fd = fake_login(&f);
	while (stats().in_flight == 0)
		;
	ck_assert_uint_eq(stats().in_flight, 2); /* the small one does not overtake the third */
	ck_assert_uint_eq(stats().waiting, 2);
	ck_assert_uint_le(stats().in_flight_bytes, 2500);
	SAY(&f, fd, "+OK\r\n");
	order_wait(&o[0], &w);
	ck_assert_uint_eq(stats().in_flight, 3);
	ck_assert_uint_eq(stats().waiting, 0);
	world_finish(&w);
	fake_close(fd);
}
END_TEST

START_TEST(t_larger_than_all_room)
{
	static char value[10000];
	struct order o;
	int fd;

	w.options.inflight_bytes = 2500;
	world_start(&w);
	ORDER(&o, &w, 1000 * MS, "SET", "k");
	order_value(&o, value, sizeof(value));
	order_submit(&o, &w);
	fd = fake_login(&f);
	HEAR(&f, fd, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$10000\r\n");
	SAY(&f, fd, "-OOM command not allowed when used memory > 'maxmemory'.\r\n");
	order_wait(&o, &w);
	ck_assert_uint_eq(stats().in_flight_bytes, 0);
	fake_close(fd);
}
END_TEST

START_TEST(t_too_many_pieces)
{
	struct iovec parts[KVW_REDIS_MAX_PARTS + 1] = {{0}};
	struct order o;

	world_start(&w);
	ORDER(&o, &w, 1000 * MS, "PING");
	o.c.parts = parts;
	o.c.part_count = KVW_REDIS_MAX_PARTS + 1;
	order_submit(&o, &w);
	order_wait(&o, &w);
	ck_assert_int_eq(o.c.status, KVW_EINVAL);
}
END_TEST

/* --- ends ------------------------------------------------------------------------------------- */

START_TEST(t_destroyed_at_any_time)
{
	struct order o[3];
	int fd = -1;

	world_start(&w);
	for (int i = 0; i < 3; i++) {
		ORDER(&o[i], &w, 1000 * MS, "GET", "a");
		order_submit(&o[i], &w);
	}
	if (_i >= 1)
		fd = fake_accept(&f);
	if (_i >= 2) {
		HEAR(&f, fd, INFO);
		SAY(&f, fd, "$0\r\n\r\n");
		HEAR(&f, fd, GET_A);
	}
	if (_i >= 3)
		SAY(&f, fd, "*2\r\n$3\r\nabc\r\n$100\r\nx");
	world_finish(&w);
	for (int i = 0; i < 3; i++) {
		ck_assert_uint_eq(o[i].done_count, 1);
		ck_assert_int_eq(o[i].c.status, KVW_ECLOSED);
	}
	if (fd >= 0)
		fake_close(fd);
}
END_TEST

START_TEST(t_unusable_files)
{
	char why[KVW_REDIS_REASON];
	struct kvw_redis *r;

	w.url.tls = true;
	w.options.tls_ca = "/nowhere/ca.pem";
	ck_assert_int_eq(kvw_redis_create(&w.options, why, &r), KVW_EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "/nowhere/ca.pem"));
	w.options.tls_ca = NULL;
	w.options.tls_key = "/nowhere/key.pem";
	ck_assert_int_eq(kvw_redis_create(&w.options, why, &r), KVW_EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "without a certificate"));
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("client");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, t_value_into_lead_and_segments);
	tcase_add_test(tc, t_mode_is_reported);
	tcase_add_test(tc, t_login_says_user_password_and_database);
	tcase_add_test(tc, t_spread_over_connections);
	tcase_add_test(tc, t_error_in_place_of_a_value);
	tcase_add_test(tc, t_value_too_long);
	tcase_add_test(tc, t_not_redis);
	tcase_add_test(tc, t_reply_without_a_command);
	tcase_add_test(tc, t_early_reply);
	tcase_add_test(tc, t_a_replica_is_connected_to_anew);
	tcase_add_test(tc, t_all_that_a_replica_refused_is_sent_again);
	tcase_add_test(tc, t_idle_links_do_not_delay_a_failover);
	tcase_add_test(tc, t_failovers_one_after_another);
	tcase_add_test(tc, t_loading_is_asked_again);
	tcase_add_test(tc, t_elements);
	tcase_add_test(tc, t_bytes_in_flight);
	tcase_add_test(tc, t_larger_than_all_room);
	tcase_add_test(tc, t_too_many_pieces);
	tcase_add_loop_test(tc, t_destroyed_at_any_time, 0, 4);
	tcase_add_test(tc, t_unusable_files);
	return run_tcase("redis-client", tc);
}
