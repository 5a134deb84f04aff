/*
 * link_test.c - one connection by itself: what only a Cluster's redirections ask of it, and what
 * becomes of its commands when it ends.
 */
#include <check.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "redis/link.h"
#include "base/resolve.h"
#include "support.h"
#include "tests/unit/suite.h"

#define INFO   "*2\r\n$4\r\nINFO\r\n$6\r\nserver\r\n"
#define ASKING "*1\r\n$6\r\nASKING\r\n"
#define GET_A  "*2\r\n$3\r\nGET\r\n$1\r\na\r\n"
#define PING   "*1\r\n$4\r\nPING\r\n"

static struct world w;
static struct fake f;
static struct kvw_redis_link *l;
static struct kvw_redis_commands answered;
static int epoll, fd;

static void turn(void)
{
	struct epoll_event events[4];
	int n = epoll_wait(epoll, events, 4, 50);

	for (int i = 0; i < n; i++)
		kvw_redis_link_event(events[i].data.ptr, events[i].events);
	while (kvw_redis_link_turn(l, &answered))
		;
}

static void hear(const char *expected)
{
	char got[256] = "";
	size_t len = strlen(expected), at = 0;

	for (int i = 0; i < 400 && at < len; i++) {
		ssize_t n;

		turn();
		n = recv(fd, got + at, len - at, MSG_DONTWAIT);
		at += n > 0 ? (size_t)n : 0;
	}
	ck_assert_str_eq(got, expected);
}

static void say(const char *text)
{
	ck_assert_int_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
	turn();
}

static void setup(void)
{
	static const struct kvw_redis_link_login no_login;
	struct kvw_resolve_addresses here;
	struct kvw_redis_link_target target = {.host = "127.0.0.1", .login = &no_login};
	struct pollfd p;

	world_init(&w, "redis://127.0.0.1:1");
	fake_init(&f, &w);
	answered = (struct kvw_redis_commands){0};
	epoll = epoll_create1(EPOLL_CLOEXEC);
	l = kvw_redis_link_create(epoll, &w);
	ck_assert(epoll >= 0 && l != NULL);
	ck_assert(kvw_resolve_literal("127.0.0.1", f.port, &here));
	target.address = &here.items[0].to.any;
	target.address_len = here.items[0].len;
	kvw_redis_link_open(l, &target, INT64_MAX);
	ck_assert_int_eq(kvw_redis_link_state(l), KVW_REDIS_LINK_CONNECTING);
	p = (struct pollfd){.fd = f.listener, .events = POLLIN};
	ck_assert_int_eq(poll(&p, 1, 20000), 1);
	fd = accept(f.listener, NULL, NULL);
	ck_assert_int_ge(fd, 0);
	hear(INFO);
	say("$4\r\na:b\n\r\n");
	ck_assert_int_eq(kvw_redis_link_state(l), KVW_REDIS_LINK_READY);
	ck_assert_str_eq(kvw_redis_link_info(l), "a:b\n");
	ck_assert_ptr_eq(kvw_redis_link_owner(l), &w);
}

static void teardown(void)
{
	kvw_redis_link_destroy(l);
	close(fd);
	close(epoll);
	fake_finish(&f);
}

/* One command behind ASKING; its reply alone counts, whatever ASKING's is. */
START_TEST(t_asking)
{
	static const char *const first[] = {"+OK\r\n", "-ERR unknown command\r\n", "$3\r\nabc\r\n"};
	char memory[4];
	struct order o, next;

	ORDER(&o, &w, 0, "GET", "a");
	order_into(&o, memory, sizeof(memory), 1);
	o.c.progress.asking = true;
	ORDER(&next, &w, 0, "PING");
	kvw_redis_link_submit(l, &o.c);
	kvw_redis_link_submit(l, &next.c);
	hear(ASKING GET_A PING);
	say(first[_i]);
	ck_assert_uint_eq(answered.count, 0);
	say("$4\r\nmine\r\n");
	ck_assert_ptr_eq(kvw_redis_commands_take(&answered), &o.c);
	ck_assert_int_eq(o.c.reply, KVW_REDIS_BULK);
	ck_assert_mem_eq(memory, "mine", 4);
	ck_assert(!o.c.progress.asking);
	say("+PONG\r\n");
	ck_assert_ptr_eq(kvw_redis_commands_take(&answered), &next.c);
	ck_assert_uint_eq(kvw_redis_link_commands(l)->count, 0);
}
END_TEST

/* What was not answered comes back in order, with nothing of a reply that came in part. */
START_TEST(t_commands_come_back)
{
	struct kvw_redis_command *back;
	struct order o[3];

	for (int i = 0; i < 3; i++) {
		ORDER(&o[i], &w, 0, "GET", "a");
		o[i].c.elements = true;
		o[i].c.element_limit = 1000;
		o[i].c.progress.bytes = 10;
		kvw_redis_link_submit(l, &o[i].c);
	}
	hear(GET_A GET_A GET_A);
	ck_assert_uint_eq(kvw_redis_link_bytes(l), 30);
	say("+OK\r\n*2\r\n$3\r\nabc\r\n$3\r\nd");
	ck_assert_ptr_eq(kvw_redis_commands_take(&answered), &o[0].c);
	shutdown(fd, SHUT_WR);
	turn();
	ck_assert_int_eq(kvw_redis_link_state(l), KVW_REDIS_LINK_CLOSED);
	ck_assert_str_eq(kvw_redis_link_why(l), "closed by the server");
	for (int i = 1; i < 3; i++) {
		back = kvw_redis_link_take(l);
		ck_assert_ptr_eq(back, &o[i].c);
		ck_assert_ptr_null(back->found);
		ck_assert_int_eq(back->reply, KVW_REDIS_NONE);
	}
	ck_assert_ptr_null(kvw_redis_link_take(l));
	ck_assert_uint_eq(kvw_redis_link_bytes(l), 0);
}
END_TEST

/* A command that has not left yet can be had back without harm, one that has cannot. */
START_TEST(t_cancel)
{
	struct order o[3];

	for (int i = 0; i < 3; i++) {
		ORDER(&o[i], &w, 0, "PING");
		kvw_redis_link_submit(l, &o[i].c);
	}
	kvw_redis_link_cancel(l, &o[1].c);
	ck_assert_int_eq(kvw_redis_link_state(l), KVW_REDIS_LINK_READY);
	hear(PING PING);
	kvw_redis_link_cancel(l, &o[0].c);
	ck_assert_int_eq(kvw_redis_link_state(l), KVW_REDIS_LINK_CLOSED);
	ck_assert_str_eq(kvw_redis_link_why(l), "a reply did not come in time");
	ck_assert_ptr_eq(kvw_redis_link_take(l), &o[2].c);
	ck_assert_ptr_null(kvw_redis_link_take(l));
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("link");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, t_asking, 0, 3);
	tcase_add_test(tc, t_commands_come_back);
	tcase_add_test(tc, t_cancel);
	return run_tcase("redis-link", tc);
}
