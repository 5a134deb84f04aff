/*
 * peer_test.c - the options by which a socket notices that its peer has gone. That a peer which has vanished is
 * found is an integration test's: it needs a cable to pull.
 */
#include <check.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/peer.h"
#include "tests/unit/suite.h"

static int option(int fd, int level, int name)
{
	int value = -1;
	socklen_t len = sizeof(value);

	ck_assert_int_eq(getsockopt(fd, level, name, &value, &len), 0);
	return value;
}

struct wish {
	int64_t gone_ms;
	int idle, interval, count;
};

static const struct wish wishes[] = {
	{30000, 15, 5, 3},
	{3000, 1, 1, 2},
	{2000, 1, 1, 1},
	{500, 1, 1, 1},
	{3600000, 1800, 600, 3},
};

START_TEST(keepalive_ends_in_time)
{
	const struct wish *wish = &wishes[_i];
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	kvw_peer_watch(fd, wish->gone_ms, _i % 2 == 0);
	ck_assert_int_eq(option(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
	ck_assert_int_eq(option(fd, IPPROTO_TCP, TCP_KEEPIDLE), wish->idle);
	ck_assert_int_eq(option(fd, IPPROTO_TCP, TCP_KEEPINTVL), wish->interval);
	ck_assert_int_eq(option(fd, IPPROTO_TCP, TCP_KEEPCNT), wish->count);
	ck_assert_int_eq(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), _i % 2 == 0 ? wish->gone_ms : 0);
	close(fd);
}
END_TEST

START_TEST(none_leaves_the_systems_settings)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	kvw_peer_watch(fd, 0, true);
	ck_assert_int_eq(option(fd, SOL_SOCKET, SO_KEEPALIVE), 0);
	ck_assert_int_eq(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
	close(fd);
}
END_TEST

START_TEST(peer_that_is_there_has_not_vanished)
{
	struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(name);
	int listener = socket(AF_INET, SOCK_STREAM, 0), ours, theirs;

	ck_assert_int_eq(bind(listener, (struct sockaddr *)&name, sizeof(name)), 0);
	ck_assert_int_eq(listen(listener, 1), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&name, &len), 0);
	kvw_peer_watch(listener, 30000, false);
	theirs = socket(AF_INET, SOCK_STREAM, 0);
	ck_assert_int_eq(connect(theirs, (struct sockaddr *)&name, len), 0);
	ours = accept(listener, NULL, NULL);
	ck_assert_int_ge(ours, 0);
	ck_assert_int_eq(option(ours, IPPROTO_TCP, TCP_KEEPIDLE), 15);
	ck_assert_int_eq(write(ours, "x", 1), 1);
	usleep(5000);
	ck_assert(!kvw_peer_vanished(ours, 1)); /* silent for longer, but nothing is unanswered */
	ck_assert(!kvw_peer_vanished(ours, 0));
	ck_assert(!kvw_peer_vanished(-1, 1));
	close(ours);
	close(theirs);
	close(listener);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("peer");

	tcase_add_loop_test(tcase, keepalive_ends_in_time, 0, sizeof(wishes) / sizeof(wishes[0]));
	tcase_add_test(tcase, none_leaves_the_systems_settings);
	tcase_add_test(tcase, peer_that_is_there_has_not_vanished);
	return run_tcase("peer", tcase);
}
