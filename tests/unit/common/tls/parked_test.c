/*
 * parked_test.c - connections that are closed before the kernel has sent all of their bytes: they stay open until it has, and
 * an end of the process sees them.
 */
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/unit/suite.h"
#include "tls/tls_internal.h"
#include "tls/watch.h"

#define BUFFER 4096
#define OLD_NS (31 * KVW_NS_PER_S)

static struct kvw_tls_watch watch;
static struct kvw_io_set set;
static struct kvw_tls *tls;

static void ignore(struct kvw_io *io)
{
	(void)io;
}

static void set_up(void)
{
	const struct kvw_tls_client_options options = {.insecure = true};
	char why[256];

	kvw_tls_watch_init(&watch);
	ck_assert_int_eq(kvw_io_set_init(&set), KVW_OK);
	ck_assert_int_eq(kvw_tls_client_create(&options, why, sizeof(why), &tls), KVW_OK);
	kvw_tls_watch_add(&watch, tls, "upstream");
}

static void tear_down(void)
{
	kvw_tls_watch_remove(&watch, tls);
	kvw_tls_destroy(tls);
	kvw_tls_watch_finish(&watch);
	kvw_io_set_finish(&set);
}

/* A connection of TCP with small buffers. Returns the peer's end. */
static int open_pair(struct kvw_io *io)
{
	struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(name);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), size = BUFFER, fd, peer;

	ck_assert_int_eq(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)), 0);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&name, len), 0);
	ck_assert_int_eq(listen(listener, 1), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&name, &len), 0);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&name, len), 0);
	peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	ck_assert_int_ge(peer, 0);
	close(listener);
	ck_assert_int_eq(kvw_io_open(io, &set, fd, ignore), KVW_OK);
	return peer;
}

/* Sends what the buffers take, and closes. Returns how much that was. */
static size_t fill_and_close(struct kvw_io *io)
{
	static const char bytes[BUFFER];
	size_t sent = 0;
	ssize_t n;

	while ((n = send(io->fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
		sent += (size_t)n;
	ck_assert_int_eq(errno, EAGAIN);
	kvw_tls_kernel_park(io, tls);
	kvw_io_close(io, false);
	return sent;
}

static size_t read_to_end(int peer)
{
	char bytes[BUFFER];
	size_t got = 0;
	ssize_t n;

	while ((n = recv(peer, bytes, sizeof(bytes), 0)) > 0)
		got += (size_t)n;
	ck_assert_int_eq(n, 0);
	return got;
}

START_TEST(test_it_stays_until_all_is_sent)
{
	struct kvw_io io;
	int peer = open_pair(&io);
	size_t sent = fill_and_close(&io);

	for (int i = 0; i < 3; i++) {
		kvw_tls_watch_look(&watch, false, kvw_clock_ns());
		ck_assert_uint_eq(kvw_tls_watch_kernel_parked(&watch), 1);
	}
	while (sent > 0) {
		char bytes[BUFFER];
		ssize_t n = recv(peer, bytes, sizeof(bytes), 0);

		ck_assert_int_gt(n, 0);
		sent -= (size_t)n;
	}
	while (kvw_tls_watch_kernel_parked(&watch) > 0)
		kvw_tls_watch_look(&watch, false, kvw_clock_ns());
	ck_assert_uint_eq(read_to_end(peer), 0);
	close(peer);
}
END_TEST

START_TEST(test_one_that_is_never_read_is_given_up)
{
	struct kvw_io io;
	int peer = open_pair(&io);

	(void)fill_and_close(&io);
	kvw_tls_watch_look(&watch, false, kvw_clock_ns() + OLD_NS);
	ck_assert_uint_eq(kvw_tls_watch_kernel_parked(&watch), 0);
	close(peer);
}
END_TEST

START_TEST(test_the_oldest_makes_room)
{
	int peers[KVW_TLS_PARKED + 1];

	for (size_t i = 0; i <= KVW_TLS_PARKED; i++) {
		struct kvw_io io;

		peers[i] = open_pair(&io);
		(void)fill_and_close(&io);
	}
	ck_assert_uint_eq(kvw_tls_watch_kernel_parked(&watch), KVW_TLS_PARKED);
	ck_assert_uint_gt(read_to_end(peers[0]), 0); /* TCP has the rest of it */
	for (size_t i = 0; i <= KVW_TLS_PARKED; i++)
		close(peers[i]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tls_parked");
	TCase *tcase = tcase_create("parked");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, test_it_stays_until_all_is_sent);
	tcase_add_test(tcase, test_one_that_is_never_read_is_given_up);
	tcase_add_test(tcase, test_the_oldest_makes_room);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
