/*
 * io_test.c - what the edges of real sockets are remembered as.
 */
#include <arpa/inet.h>
#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/io.h"
#include "tests/unit/suite.h"

/* One end of a TCP connection under test, and what its callback saw. */
struct end {
	struct kvw_io io; /* first */
	int events;
	struct end *closes; /* closed by the callback */
	bool asks_again;    /* each callback queues the next */
};

static void on_event(struct kvw_io *io)
{
	struct end *end = (struct end *)io;

	end->events++;
	if (end->closes != NULL)
		kvw_io_close(&end->closes->io, false);
	if (end->asks_again)
		kvw_io_again(io);
}

/* A TCP connection: ours is registered in the set, the other's descriptor is *peer. */
static void connect_ends(struct kvw_io_set *set, struct end *end, int *peer)
{
	struct sockaddr_in name = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(name);
	int listener = socket(AF_INET, SOCK_STREAM, 0), fd;

	memset(end, 0, sizeof(*end));
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&name, sizeof(name)), 0);
	ck_assert_int_eq(listen(listener, 1), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&name, &len), 0);
	*peer = socket(AF_INET, SOCK_STREAM, 0);
	ck_assert_int_eq(connect(*peer, (struct sockaddr *)&name, len), 0);
	fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
	ck_assert_int_ge(fd, 0);
	close(listener);
	ck_assert_int_eq(kvw_io_open(&end->io, set, fd, on_event), KVW_OK);
}

/* Waits for news and dispatches. */
static void turn(struct kvw_io_set *set)
{
	struct pollfd wait = {.fd = set->fd, .events = POLLIN};

	if (!kvw_io_set_busy(set))
		ck_assert_int_eq(poll(&wait, 1, 10000), 1);
	kvw_io_set_dispatch(set);
}

static ssize_t read_some(struct kvw_io *io, size_t wanted)
{
	char data[4096];
	struct iovec iov = {data, wanted};

	return kvw_io_readv(io, &iov, 1, wanted);
}

static void reset_peer(int peer)
{
	struct linger now = {.l_onoff = 1};

	ck_assert_int_eq(setsockopt(peer, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
	close(peer);
}

/* Waits until the kernel knows that the connection of fd is gone, without dispatching. */
static void wait_hangup(int fd)
{
	struct pollfd wait = {.fd = fd, .events = POLLRDHUP};

	ck_assert_int_eq(poll(&wait, 1, 10000), 1);
}

static void wait_readable(int fd)
{
	struct pollfd wait = {.fd = fd, .events = POLLIN};

	ck_assert_int_eq(poll(&wait, 1, 10000), 1);
}

START_TEST(readiness_is_reported_once_and_remembered)
{
	struct kvw_io_set set;
	struct end end;
	int peer;

	ck_assert_int_eq(kvw_io_set_init(&set), KVW_OK);
	connect_ends(&set, &end, &peer);
	turn(&set);
	ck_assert(end.io.writable && !end.io.readable);
	ck_assert_int_eq(write(peer, "hello", 5), 5);
	turn(&set);
	ck_assert(end.io.readable);
	kvw_io_set_dispatch(&set);
	ck_assert(end.io.readable); /* no edge, but not forgotten */
	ck_assert_int_eq(read_some(&end.io, 5), 5);
	ck_assert(end.io.readable); /* exactly what was wanted: there may be more */
	ck_assert_int_eq(read_some(&end.io, 5), -1);
	ck_assert_int_eq(errno, EAGAIN);
	ck_assert(!end.io.readable);
	ck_assert_int_eq(write(peer, "again", 5), 5);
	turn(&set);
	ck_assert(end.io.readable);
	ck_assert_int_eq(read_some(&end.io, 100), 5);
	ck_assert(!end.io.readable); /* a short read has drained it */
	close(peer);
	kvw_io_close(&end.io, false);
	kvw_io_set_finish(&set);
}
END_TEST

START_TEST(end_behind_bytes_is_not_lost)
{
	/* Bytes and FIN or RST in one edge: a short read must not be taken for "drained". */
	struct kvw_io_set set;
	struct end end;
	int peer;
	ssize_t n;

	ck_assert_int_eq(kvw_io_set_init(&set), KVW_OK);
	connect_ends(&set, &end, &peer);
	turn(&set);
	ck_assert_int_eq(write(peer, "last", 4), 4);
	if (_i == 0)
		close(peer);
	else
		reset_peer(peer);
	wait_hangup(end.io.fd);
	turn(&set);
	ck_assert(_i == 0 ? end.io.peer_closed : end.io.broken);
	n = read_some(&end.io, 100);
	if (_i == 0)
		ck_assert_int_eq(n, 4);
	ck_assert(end.io.readable);
	if (n > 0)
		n = read_some(&end.io, 100);
	ck_assert(n == 0 || (n < 0 && errno != EAGAIN));
	kvw_io_close(&end.io, false);
	kvw_io_set_finish(&set);
}
END_TEST

START_TEST(end_after_a_short_read_is_a_new_edge)
{
	struct kvw_io_set set;
	struct end end;
	int peer;

	ck_assert_int_eq(kvw_io_set_init(&set), KVW_OK);
	connect_ends(&set, &end, &peer);
	turn(&set);
	ck_assert_int_eq(write(peer, "some", 4), 4);
	turn(&set);
	/* The end arrives between the edge and the read. */
	if (_i == 0)
		close(peer);
	else
		reset_peer(peer);
	wait_hangup(end.io.fd);
	(void)!read_some(&end.io, 100);
	turn(&set);
	ck_assert(end.io.readable);
	ck_assert(_i == 0 ? end.io.peer_closed : end.io.broken);
	kvw_io_close(&end.io, false);
	kvw_io_set_finish(&set);
}
END_TEST

START_TEST(full_socket_becomes_writable_when_its_peer_reads)
{
	static char bytes[1 << 16];
	struct kvw_io_set set;
	struct end end;
	struct iovec iov = {bytes, sizeof(bytes)};
	size_t sent = 0;
	int peer;

	ck_assert_int_eq(kvw_io_set_init(&set), KVW_OK);
	connect_ends(&set, &end, &peer);
	turn(&set);
	while (end.io.writable) {
		ssize_t n = kvw_io_writev(&end.io, &iov, 1);

		ck_assert(n > 0 || (n < 0 && errno == EAGAIN));
		sent += n > 0 ? (size_t)n : 0;
	}
	while (sent > 0) {
		ssize_t n = read(peer, bytes, sizeof(bytes));

		ck_assert_int_gt(n, 0);
		sent -= (size_t)n;
	}
	turn(&set);
	ck_assert(end.io.writable);
	close(peer);
	kvw_io_close(&end.io, false);
	kvw_io_set_finish(&set);
}
END_TEST

START_TEST(callback_may_close_any_socket)
{
	enum { COUNT = 8 };
	struct kvw_io_set set;
	struct end ends[COUNT];
	int peers[COUNT], events = 0;

	ck_assert_int_eq(kvw_io_set_init(&set), KVW_OK);
	for (int i = 0; i < COUNT; i++)
		connect_ends(&set, &ends[i], &peers[i]);
	turn(&set);
	for (int i = 0; i < COUNT; i++) {
		ends[i].events = 0;
		ends[i].closes = &ends[COUNT - 1 - i]; /* the first to be called closes the other */
		ck_assert_int_eq(write(peers[i], "x", 1), 1);
		wait_readable(ends[i].io.fd);
	}
	turn(&set);
	for (int i = 0; i < COUNT; i++)
		events += ends[i].events;
	ck_assert_int_eq(events, COUNT / 2);
	for (int i = 0; i < COUNT; i++) {
		kvw_io_close(&ends[i].io, false);
		kvw_io_close(&ends[i].io, false); /* a second time does nothing */
		close(peers[i]);
	}
	kvw_io_set_finish(&set);
}
END_TEST

START_TEST(again_is_called_once_a_turn)
{
	struct kvw_io_set set;
	struct end a, b;
	int peer_a, peer_b;

	ck_assert_int_eq(kvw_io_set_init(&set), KVW_OK);
	connect_ends(&set, &a, &peer_a);
	connect_ends(&set, &b, &peer_b);
	turn(&set);
	kvw_io_set_dispatch(&set);
	a.events = b.events = 0;
	ck_assert(!kvw_io_set_busy(&set));
	kvw_io_again(&a.io);
	kvw_io_again(&a.io);
	kvw_io_again(&b.io);
	ck_assert(kvw_io_set_busy(&set));
	a.asks_again = true;
	kvw_io_set_dispatch(&set);
	ck_assert_int_eq(a.events, 1);
	ck_assert_int_eq(b.events, 1);
	ck_assert(kvw_io_set_busy(&set));
	kvw_io_set_dispatch(&set);
	ck_assert_int_eq(a.events, 2);
	ck_assert_int_eq(b.events, 1);
	a.asks_again = false;
	a.closes = &b;
	kvw_io_again(&b.io); /* behind a, which closes it */
	kvw_io_set_dispatch(&set);
	ck_assert_int_eq(a.events, 3);
	ck_assert_int_eq(b.events, 1);
	ck_assert(!kvw_io_set_busy(&set));
	kvw_io_again(&b.io); /* closed: nothing */
	ck_assert(!kvw_io_set_busy(&set));
	kvw_io_close(&a.io, false);
	close(peer_a);
	close(peer_b);
	kvw_io_set_finish(&set);
}
END_TEST

START_TEST(reset_is_what_the_peer_sees)
{
	struct kvw_io_set set;
	struct end end;
	char byte;
	int peer;

	ck_assert_int_eq(kvw_io_set_init(&set), KVW_OK);
	connect_ends(&set, &end, &peer);
	kvw_io_close(&end.io, _i == 1);
	ck_assert_int_eq(end.io.fd, -1);
	ck_assert_int_eq(read(peer, &byte, 1), _i == 1 ? -1 : 0);
	if (_i == 1)
		ck_assert_int_eq(errno, ECONNRESET);
	close(peer);
	kvw_io_set_finish(&set);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("io");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, readiness_is_reported_once_and_remembered);
	tcase_add_loop_test(tcase, end_behind_bytes_is_not_lost, 0, 2);
	tcase_add_loop_test(tcase, end_after_a_short_read_is_a_new_edge, 0, 2);
	tcase_add_test(tcase, full_socket_becomes_writable_when_its_peer_reads);
	tcase_add_test(tcase, callback_may_close_any_socket);
	tcase_add_test(tcase, again_is_called_once_a_turn);
	tcase_add_loop_test(tcase, reset_is_what_the_peer_sees, 0, 2);
	return run_tcase("io", tcase);
}
