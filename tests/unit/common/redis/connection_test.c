/*
 * connection_test.c - connections that end in the middle of something, and those that never come to
 * be.
 */
#include "fake_fixture.h"

/* --- connections that end --------------------------------------------------------------------- */

/* Half a value is none: the command is asked again, and only the second value counts. */
START_TEST(t_cut_in_a_value)
{
	char memory[16] = "###############";
	struct order o;
	int fd;

	world_start(&w);
	submit_get(&o, memory, 10, 2);
	fd = fake_login(&f);
	HEAR(&f, fd, GET_A);
	SAY(&f, fd, "$10\r\nXXXXXXX");
	fake_close(fd);
	while (stats().connections > 0)
		;
	ck_assert(!o.done);
	w.now_ns += 100 * MS;
	fd = fake_login(&f);
	HEAR(&f, fd, GET_A);
	SAY(&f, fd, "$4\r\ngood\r\n");
	order_wait(&o, &w);
	ck_assert_int_eq(o.c.status, KVW_OK);
	ck_assert_uint_eq(o.c.bulk_bytes, 4);
	ck_assert_mem_eq(memory, "good", 4);
	ck_assert_mem_eq(memory + 10, "#####", 5);
	ck_assert_uint_eq(stats().retries, 1);
	fake_close(fd);
}
END_TEST

/* A command that every connection dies of is given up, and does not take the others with it. */
START_TEST(t_deadly_command)
{
	struct order o;
	int tries = 0;

	world_start(&w);
	ORDER(&o, &w, 100000 * MS, "GET", "a");
	order_submit(&o, &w);
	while (!o.done) {
		int fd;

		w.now_ns += 3000 * MS;
		fd = fake_login(&f);
		HEAR(&f, fd, GET_A);
		tries++;
		fake_close(fd);
		for (int i = 0; i < 50 && !o.done; i++)
			(void)fake_hears_nothing(&f, f.listener);
	}
	ck_assert_int_eq(tries, 5);
	ck_assert_int_eq(o.c.status, KVW_EIO);
	ck_assert_str_eq(o.c.text, "closed by the server");
	ck_assert_uint_eq(o.done_count, 1);
}
END_TEST

/* The bytes of a late reply must not land in memory that another caller owns by then. */
START_TEST(t_late_reply)
{
	char memory[16] = "###############";
	struct order late, other;
	int fd, old;

	world_start(&w);
	ORDER(&late, &w, 100 * MS, "GET", "a");
	order_into(&late, memory, 10, 2);
	ORDER(&other, &w, 1000 * MS, "GET", "b");
	order_submit(&late, &w);
	order_submit(&other, &w);
	old = fake_login(&f);
	HEAR(&f, old, GET_A GET_B);
	ck_assert_int_eq(w.next_ns, late.c.deadline_ns);
	w.now_ns += 100 * MS;
	order_wait(&late, &w);
	ck_assert_int_eq(late.c.status, KVW_ETIMEDOUT);
	SAY(&f, old, "$4\r\nlate\r\n$4\r\nlate\r\n");
	fake_hear_end(&f, old);
	w.now_ns += 100 * MS;
	fd = fake_login(&f);
	HEAR(&f, fd, GET_B);
	SAY(&f, fd, "$-1\r\n");
	order_wait(&other, &w);
	ck_assert_int_eq(other.c.reply, KVW_REDIS_NIL);
	ck_assert_str_eq(memory, "###############");
	ck_assert_uint_eq(stats().timeouts, 1);
	fake_close(fd);
}
END_TEST

/* What waits for a connection ends with its deadline, and the connection lives on. */
START_TEST(t_deadline_in_line)
{
	struct order late, other;
	int fd;

	world_start(&w);
	ORDER(&late, &w, 100 * MS, "GET", "a");
	ORDER(&other, &w, 1000 * MS, "PING");
	order_submit(&late, &w);
	order_submit(&other, &w);
	fd = fake_accept(&f);
	HEAR(&f, fd, INFO);
	w.now_ns += 100 * MS;
	order_wait(&late, &w);
	ck_assert_int_eq(late.c.status, KVW_ETIMEDOUT);
	SAY(&f, fd, "$0\r\n\r\n");
	answer_ping(fd, &other);
	fake_close(fd);
}
END_TEST

/* --- connections that never are --------------------------------------------------------------- */

START_TEST(t_refused_and_back_again)
{
	struct order o;
	int fd;

	fake_finish(&f);
	world_start(&w);
	submit_ping(&o);
	order_wait(&o, &w);
	ck_assert_int_eq(o.c.status, KVW_EIO);
	ck_assert_str_eq(o.c.text, "cannot connect: Connection refused");
	ck_assert_str_eq(stats().reason, "cannot connect: Connection refused");
	ck_assert(world_logged(&w, "cannot connect: Connection refused"));
	submit_ping(&o); /* at once again: not even asked */
	world_step(&w);
	ck_assert(o.done);
	ck_assert_int_eq(o.c.status, KVW_EIO);
	fake_reopen(&f);
	w.now_ns += 3000 * MS;
	submit_ping(&o);
	fd = fake_login(&f);
	answer_ping(fd, &o);
	ck_assert(world_logged(&w, "works again"));
	ck_assert_str_eq(stats().reason, "");
	fake_close(fd);
}
END_TEST

/* Time between attempts grows, and is never more than some seconds. */
START_TEST(t_attempts_become_rarer)
{
	int64_t last_ns, waited[10];
	struct order o;

	world_start(&w);
	last_ns = w.now_ns;
	for (int i = 0; i < 10; i++) {
		bool asked = false;

		while (!asked) {
			ORDER(&o, &w, 100000 * MS, "PING");
			order_submit(&o, &w);
			for (int k = 0; k < 3 && !o.done; k++)
				world_step(&w);
			if (!o.done) {
				fake_close(fake_accept(&f));
				asked = true;
				order_wait(&o, &w);
			}
			ck_assert_int_eq(o.c.status, KVW_EIO);
			w.now_ns += 5 * MS;
		}
		waited[i] = w.now_ns - last_ns;
		last_ns = w.now_ns;
	}
	ck_assert_int_ge(waited[2], 60 * MS);
	ck_assert_int_ge(waited[9], 1400 * MS);
	ck_assert_int_le(waited[9], 2600 * MS);
}
END_TEST

START_TEST(t_login_refused)
{
	struct order o;
	size_t lines = 0;

	w.options.password = "hunter2";
	world_start(&w);
	for (int i = 0; i < 5; i++) {
		int fd;

		w.now_ns += 3000 * MS;
		submit_ping(&o);
		fd = fake_accept(&f);
		HEAR(&f, fd, "*2\r\n$4\r\nAUTH\r\n$7\r\nhunter2\r\n");
		SAY(&f, fd, "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
		order_wait(&o, &w);
		ck_assert_int_eq(o.c.status, KVW_EIO);
		ck_assert_ptr_nonnull(strstr(o.c.text, "login refused: WRONGPASS invalid"));
		fake_hear_end(&f, fd);
	}
	for (const char *c = w.log; (c = strstr(c, "WRONGPASS")) != NULL; c++)
		lines++;
	ck_assert_uint_eq(lines, 1);
	ck_assert(!world_logged(&w, "hunter2"));
	ck_assert_ptr_nonnull(strstr(stats().reason, "WRONGPASS"));
}
END_TEST

START_TEST(t_password_wanted)
{
	struct order o;
	int fd;

	world_start(&w);
	submit_ping(&o);
	fd = fake_accept(&f);
	HEAR(&f, fd, INFO);
	SAY(&f, fd, "-NOAUTH Authentication required.\r\n");
	order_wait(&o, &w);
	ck_assert_str_eq(o.c.text, "login refused: NOAUTH Authentication required.");
	fake_close(fd);
}
END_TEST

START_TEST(t_server_that_is_full)
{
	struct order o;
	int fd;

	world_start(&w);
	submit_ping(&o);
	fd = fake_accept(&f);
	SAY(&f, fd, "-ERR max number of clients reached\r\n");
	order_wait(&o, &w);
	ck_assert_int_eq(o.c.status, KVW_EIO);
	ck_assert_str_eq(o.c.text, "login refused: ERR max number of clients reached");
	fake_close(fd);
}
END_TEST

START_TEST(t_server_that_never_answers)
{
	struct order o;
	int fd;

	world_start(&w);
	ORDER(&o, &w, 10000 * MS, "PING");
	order_submit(&o, &w);
	fd = fake_accept(&f);
	HEAR(&f, fd, INFO);
	ck_assert(!o.done);
	ck_assert_int_le(w.next_ns, w.now_ns + 1000 * MS);
	w.now_ns = w.next_ns;
	order_wait(&o, &w);
	ck_assert_int_eq(o.c.status, KVW_EIO);
	ck_assert_str_eq(o.c.text, "login: no answer within 1000 ms");
	fake_hear_end(&f, fd);
}
END_TEST

START_TEST(t_name_without_an_address)
{
	struct order o;

	snprintf(w.url.nodes[0].host, sizeof(w.url.nodes[0].host), "no-such-host.invalid");
	world_start(&w);
	ORDER(&o, &w, 100000 * MS, "PING");
	order_submit(&o, &w);
	for (int i = 0; i < 20; i++)
		world_step(&w);
	w.now_ns += 1000 * MS; /* with a resolver that answers or one that does not */
	order_wait(&o, &w);
	ck_assert_int_eq(o.c.status, KVW_EIO);
	ck_assert_ptr_nonnull(strstr(o.c.text, "cannot find its address: "));
}
END_TEST

START_TEST(t_name_with_an_address)
{
	struct order o;
	int fd;

	snprintf(w.url.nodes[0].host, sizeof(w.url.nodes[0].host), "localhost");
	world_start(&w);
	submit_ping(&o);
	fd = fake_login(&f);
	answer_ping(fd, &o);
	fake_close(fd);
}
END_TEST

START_TEST(t_connections_wanted_again)
{
	struct order o;
	int fds[3];

	w.options.connections = 3;
	world_start(&w);
	submit_ping(&o);
	fds[0] = fake_login(&f);
	ck_assert_int_ge(fds[0], 0);
	for (int i = 1; i < 3; i++)
		fds[i] = fake_login(&f);
	answer_ping(fds[0], &o);
	ck_assert(fake_has_none(&f));
	ck_assert_uint_eq(stats().connections, 3);
	for (int i = 0; i < 3; i++)
		fake_close(fds[i]);
	while (stats().connections > 0)
		;
	w.now_ns += 3000 * MS;
	submit_ping(&o);
	for (int i = 0; i < 3; i++)
		fds[i] = fake_login(&f);
	world_finish(&w);
	for (int i = 0; i < 3; i++)
		fake_close(fds[i]);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("connection");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, t_cut_in_a_value);
	tcase_add_test(tc, t_deadly_command);
	tcase_add_test(tc, t_late_reply);
	tcase_add_test(tc, t_deadline_in_line);
	tcase_add_test(tc, t_refused_and_back_again);
	tcase_add_test(tc, t_attempts_become_rarer);
	tcase_add_test(tc, t_login_refused);
	tcase_add_test(tc, t_password_wanted);
	tcase_add_test(tc, t_server_that_is_full);
	tcase_add_test(tc, t_server_that_never_answers);
	tcase_add_test(tc, t_name_without_an_address);
	tcase_add_test(tc, t_name_with_an_address);
	tcase_add_test(tc, t_connections_wanted_again);
	return run_tcase("redis-connection", tc);
}
