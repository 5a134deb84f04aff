/*
 * acceptor_test.c - clients are served, or refused at once where there is no room for them.
 */
#include <arpa/inet.h>
#include <check.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "server/acceptor.h"
#include "server/listen.h"
#include "tests/unit/suite.h"

#define CLIENTS 200

/* A loop that counts. */
static struct loop {
	struct kvw_io_set sockets;
	struct kvw_acceptor acceptor;
	int turns, room, served, limited, shed, starved;
	int fds[CLIENTS];
	bool peer_known;
} loop;
static struct sockaddr_in address;

static void begin(struct kvw_acceptor *acceptor)
{
	ck_assert_ptr_eq(acceptor, &loop.acceptor);
	loop.turns++;
}

static bool admit(struct kvw_acceptor *acceptor)
{
	(void)acceptor;
	return loop.room-- > 0;
}

static void serve_take(struct kvw_acceptor *acceptor, int fd, const struct sockaddr *peer)
{
	(void)acceptor;
	ck_assert_int_ne(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
	ck_assert_int_ne(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
	loop.peer_known = peer->sa_family == AF_INET && ((const struct sockaddr_in *)(const void *)peer)->sin_port != 0;
	loop.fds[loop.served++] = fd;
}

static void refuse_take(struct kvw_acceptor *acceptor, int fd, enum kvw_refusal why)
{
	(void)acceptor;
	if (why == KVW_REFUSED_LIMIT)
		loop.limited++;
	else
		loop.shed++;
	(void)!write(fd, "no", 2);
	close(fd);
}

static void starved(struct kvw_acceptor *acceptor)
{
	(void)acceptor;
	loop.starved++;
}

static const struct kvw_acceptor_ops ops = {.begin = begin,
	.admit = admit,
	.serve_take = serve_take,
	.refuse_take = refuse_take,
	.starved = starved};

static void setup(void)
{
	char bound[KVW_LISTEN_TEXT], why[160];
	int fd;

	memset(&loop, 0, sizeof(loop));
	loop.room = CLIENTS;
	ck_assert_int_eq(kvw_listen("127.0.0.1:0", KVW_LISTEN_ALONE, &fd, bound, why, sizeof(why)), KVW_OK);
	address = (struct sockaddr_in){.sin_family = AF_INET,
		.sin_port = htons((uint16_t)atoi(strrchr(bound, ':') + 1)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	ck_assert_int_eq(kvw_io_set_init(&loop.sockets), KVW_OK);
	kvw_acceptor_init(&loop.acceptor, &ops, fd);
	ck_assert_int_eq(kvw_acceptor_watch(&loop.acceptor, &loop.sockets), KVW_OK);
}

static void teardown(void)
{
	while (loop.served > 0)
		close(loop.fds[--loop.served]);
	kvw_acceptor_finish(&loop.acceptor);
	kvw_acceptor_finish(&loop.acceptor); /* the second time does nothing */
	kvw_io_set_finish(&loop.sockets);
}

static int dial(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

static void check_refused(int fd)
{
	char answer[8];

	ck_assert_int_eq(read(fd, answer, sizeof(answer)), 2);
	ck_assert(memcmp(answer, "no", 2) == 0);
	close(fd);
}

START_TEST(a_client_is_served_with_its_address)
{
	int fd = dial();

	kvw_io_set_dispatch(&loop.sockets);
	ck_assert_int_eq(loop.served, 1);
	ck_assert(loop.peer_known);
	ck_assert_int_eq(loop.turns, 1);
	kvw_io_set_dispatch(&loop.sockets); /* no news */
	ck_assert_int_eq(loop.turns, 1);
	close(fd);
}
END_TEST

/* Other sockets have their turn after 64. */
START_TEST(a_crowd_takes_several_turns)
{
	int fds[150];

	for (int i = 0; i < 150; i++)
		fds[i] = dial();
	kvw_io_set_dispatch(&loop.sockets);
	ck_assert_int_eq(loop.served, 64);
	kvw_io_set_dispatch(&loop.sockets);
	ck_assert_int_eq(loop.served, 128);
	kvw_io_set_dispatch(&loop.sockets);
	ck_assert_int_eq(loop.served, 150);
	for (int i = 0; i < 150; i++)
		close(fds[i]);
}
END_TEST

START_TEST(past_the_limit_each_client_is_refused)
{
	int fds[5];

	loop.room = 2;
	for (int i = 0; i < 5; i++)
		fds[i] = dial();
	kvw_io_set_dispatch(&loop.sockets);
	ck_assert_int_eq(loop.served, 2);
	ck_assert_int_eq(loop.limited, 3);
	ck_assert_int_eq(loop.shed, 0);
	for (int i = 2; i < 5; i++)
		check_refused(fds[i]);
	close(fds[0]);
	close(fds[1]);
}
END_TEST

/* Allows no descriptor past those that are open. Returns the limit before. */
static struct rlimit use_up_descriptors(void)
{
	struct rlimit old, none;
	int next = fcntl(0, F_DUPFD_CLOEXEC, 0); /* the lowest that is free */

	ck_assert_int_ge(next, 0);
	close(next);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
	none = old;
	none.rlim_cur = (rlim_t)next;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	return old;
}

START_TEST(without_descriptors_one_client_a_turn_is_refused)
{
	int fds[3];
	struct rlimit old;

	for (int i = 0; i < 3; i++)
		fds[i] = dial();
	old = use_up_descriptors();
	kvw_io_set_dispatch(&loop.sockets);
	ck_assert_int_eq(loop.shed, 1);
	ck_assert_int_eq(loop.acceptor.own.held, KVW_RESERVE_FDS); /* the reserve is full again */
	kvw_io_set_dispatch(&loop.sockets);
	ck_assert_int_eq(loop.shed, 2);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
	kvw_io_set_dispatch(&loop.sockets);
	ck_assert_int_eq(loop.served, 1);
	ck_assert_int_eq(loop.limited, 0);
	check_refused(fds[0]);
	check_refused(fds[1]);
	close(fds[2]);
}
END_TEST

/* One of the reserve was lost: what is freed fills it before a client is served. */
START_TEST(the_reserve_comes_first)
{
	int fds[2] = {dial(), dial()};
	struct rlimit old = use_up_descriptors();
	int taken;

	close(loop.acceptor.own.fds[--loop.acceptor.own.held]);
	taken = fcntl(0, F_DUPFD_CLOEXEC, 0);
	ck_assert_int_ge(taken, 0);
	kvw_io_set_dispatch(&loop.sockets);
	ck_assert_int_eq(loop.shed, 1);
	ck_assert_int_eq(loop.starved, 0);
	ck_assert_int_eq(loop.acceptor.own.held, KVW_RESERVE_FDS - 1);
	close(taken);
	kvw_io_set_dispatch(&loop.sockets);
	ck_assert_int_eq(loop.shed, 2);
	ck_assert_int_eq(loop.acceptor.own.held, KVW_RESERVE_FDS);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
	check_refused(fds[0]);
	check_refused(fds[1]);
}
END_TEST

/* The reserve was lost to another thread: clients wait, and are served when there is room. */
START_TEST(without_the_reserve_clients_wait)
{
	int fd = dial();
	struct rlimit old = use_up_descriptors();
	int taken[KVW_RESERVE_FDS];

	kvw_reserve_finish(&loop.acceptor.own);
	for (int i = 0; i < KVW_RESERVE_FDS; i++)
		taken[i] = fcntl(0, F_DUPFD_CLOEXEC, 0);
	ck_assert_int_ge(taken[KVW_RESERVE_FDS - 1], 0);
	kvw_io_set_dispatch(&loop.sockets);
	ck_assert_int_eq(loop.shed + loop.served, 0);
	ck_assert_int_eq(loop.starved, 1);
	kvw_acceptor_tick(&loop.acceptor); /* there is still none */
	kvw_io_set_dispatch(&loop.sockets);
	ck_assert_int_eq(loop.turns, 1); /* the waiting client does not wake the loop for ever */
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
	for (int i = 0; i < KVW_RESERVE_FDS; i++)
		close(taken[i]);
	kvw_acceptor_tick(&loop.acceptor);
	ck_assert_int_eq(loop.acceptor.own.held, KVW_RESERVE_FDS);
	kvw_io_set_dispatch(&loop.sockets);
	ck_assert_int_eq(loop.served, 1);
	kvw_acceptor_tick(&loop.acceptor); /* nothing to do */
	close(fd);
}
END_TEST

START_TEST(a_stopped_acceptor_takes_no_client)
{
	int fd = dial(), late = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	kvw_acceptor_run(&loop.acceptor); /* what had arrived */
	ck_assert_int_eq(loop.served, 1);
	kvw_acceptor_stop(&loop.acceptor);
	kvw_acceptor_stop(&loop.acceptor); /* the second time does nothing */
	ck_assert_int_eq(loop.acceptor.fd, -1);
	ck_assert_int_ne(connect(late, (struct sockaddr *)&address, sizeof(address)), 0);
	kvw_io_set_dispatch(&loop.sockets);
	ck_assert_int_eq(loop.served, 1);
	close(late);
	close(fd);
}
END_TEST

START_TEST(a_loop_that_does_not_accept_has_no_descriptors)
{
	struct kvw_acceptor acceptor;

	kvw_acceptor_init(&acceptor, &ops, -1);
	ck_assert_int_eq(acceptor.own.held, 0);
	ck_assert_int_eq(kvw_acceptor_watch(&acceptor, &loop.sockets), KVW_OK);
	kvw_acceptor_stop(&acceptor);
	kvw_acceptor_finish(&acceptor);
}
END_TEST

/* As after an initialization that failed half way: the socket is closed all the same. */
START_TEST(an_unwatched_acceptor_closes_its_socket)
{
	struct kvw_acceptor acceptor;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	kvw_acceptor_init(&acceptor, &ops, fd);
	kvw_acceptor_finish(&acceptor);
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("acceptor");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_client_is_served_with_its_address);
	tcase_add_test(tcase, a_crowd_takes_several_turns);
	tcase_add_test(tcase, past_the_limit_each_client_is_refused);
	tcase_add_test(tcase, without_descriptors_one_client_a_turn_is_refused);
	tcase_add_test(tcase, the_reserve_comes_first);
	tcase_add_test(tcase, without_the_reserve_clients_wait);
	tcase_add_test(tcase, a_stopped_acceptor_takes_no_client);
	tcase_add_test(tcase, a_loop_that_does_not_accept_has_no_descriptors);
	tcase_add_test(tcase, an_unwatched_acceptor_closes_its_socket);
	return run_tcase("acceptor", tcase);
}
