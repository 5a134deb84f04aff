/*
 * connection_test.c - clients of a small server: heads, bodies, answers, limits of time and number, the
 * end. A server with threads of its own, and clients of plain sockets.
 */
#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/connection.h"
#include "server/listen.h"
#include "tests/unit/suite.h"

#define LOOPS     2
#define BIG_BYTES ((size_t)8 << 20)
#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\n\r\n"

/* A loop with its clients. */
struct test_loop {
	struct kvw_clients base; /* first */
	_Atomic uint32_t served; /* requests */
};

static struct kvw_server server;
static struct test_loop loops[LOOPS];
static size_t loop_count;
static struct sockaddr_in address;
static char *big;

static _Atomic uint32_t timed_out[4], refused, closed_conns, lost_answers, gone_waits, streamed;
static _Atomic(struct kvw_wait *) waiting; /* of /wait: the test answers */

/* --- the program ------------------------------------------------------------------------------ */

static void answer(struct kvw_conn *conn, int status, const char *text, size_t len)
{
	kvw_conn_answer(conn, &(struct kvw_http_answer){
				      .status = status, .type = "text/plain", .body = {text, len}});
}

static void deliver(struct kvw_mail *mail, struct kvw_server_loop *loop)
{
	struct kvw_conn *conn = kvw_conn_settle((struct kvw_wait *)mail);

	(void)loop;
	if (conn != NULL) {
		answer(conn, 200, "late", 4);
		kvw_conn_advance(conn);
	}
	free(mail);
}

static void gone(struct kvw_wait *wait)
{
	(void)wait;
	gone_waits++;
}

static void wait_for_test(struct kvw_conn *conn)
{
	struct kvw_wait *wait = calloc(1, sizeof(*wait));

	wait->mail.deliver = deliver;
	wait->gone = gone;
	kvw_conn_await(conn, wait);
	atomic_store(&waiting, wait);
}

/* Takes a body of known length as it comes. */
static void receive(struct kvw_conn *conn)
{
	char scratch[4096];
	size_t have = conn->in_end - conn->in_begin;

	have = have < conn->body_left ? have : (size_t)conn->body_left;
	conn->in_begin += have;
	kvw_conn_took(conn, have);
	streamed += (uint32_t)have;
	while (conn->body_left > 0 && conn->io.readable) {
		struct iovec iov = {scratch, sizeof(scratch)};
		ssize_t n = kvw_io_readv(&conn->io, &iov, 1,
			conn->body_left < sizeof(scratch) ? conn->body_left : sizeof(scratch));

		if (n == 0 || (n < 0 && errno != EAGAIN))
			kvw_conn_close(conn, false);
		if (n <= 0)
			return;
		kvw_conn_took(conn, (uint64_t)n);
		streamed += (uint32_t)n;
	}
	if (conn->body_left == 0)
		answer(conn, 200, "streamed", 8);
}

static void request(struct kvw_conn *conn)
{
	struct kvw_slice target = conn->clients->head.target, body = kvw_conn_body(conn);

	((struct test_loop *)conn->clients)->served++;
	if (kvw_slice_equal(target, KVW_SLICE("/big")))
		answer(conn, 200, big, BIG_BYTES);
	else if (kvw_slice_equal(target, KVW_SLICE("/wait")))
		wait_for_test(conn);
	else if (kvw_slice_equal(target, KVW_SLICE("/echo")))
		answer(conn, 200, body.data, body.len);
	else if (kvw_slice_equal(target, KVW_SLICE("/stream")))
		(void)!kvw_conn_receive(conn, receive);
	else if (kvw_slice_equal(target, KVW_SLICE("/slow"))) {
		usleep(400000);
		answer(conn, 200, target.data, target.len);
	} else if (kvw_slice_equal(target, KVW_SLICE("/proof"))) {
		conn->until_read = true;
		answer(conn, 200, big, BIG_BYTES);
	} else
		answer(conn, 200, target.data, target.len);
}

static void refuse(
	struct kvw_conn *conn, enum kvw_conn_refusal what, int status, const char *message)
{
	char text[200];
	int n = snprintf(text, sizeof(text), "refused %d: %s", (int)what, message);

	answer(conn, status, text, (size_t)n);
}

static void passed(struct kvw_conn *conn, enum kvw_conn_time which)
{
	(void)conn;
	timed_out[which]++;
}

static void closed(struct kvw_conn *conn)
{
	lost_answers += conn->until_read;
	closed_conns++; /* last: tests wait for it */
}

static void turn_away_take(struct kvw_clients *clients, int fd, enum kvw_refusal why)
{
	(void)clients;
	ck_assert_int_eq(why, KVW_REFUSED_LIMIT);
	refused++;
	close(fd);
}

static const struct kvw_clients_ops ops = {.request = request,
	.refuse = refuse,
	.turn_away_take = turn_away_take,
	.timed_out = passed,
	.closed = closed};

/* --- the scene -------------------------------------------------------------------------------- */

static struct kvw_clients_options usual(void)
{
	const uint64_t long_ns = 20 * KVW_NS_PER_S;

	return (struct kvw_clients_options){
		.ops = &ops,
		.limits = {.idle_ns = long_ns,
			.head_ns = long_ns,
			.write_ns = long_ns,
			.body_ns = long_ns,
			.body_pauses = true},
		.conn_bytes = sizeof(struct kvw_conn),
		.fields = "Server: test\r\n",
	};
}

static void start(const struct kvw_clients_options *options, uint32_t most, size_t count)
{
	char bound[KVW_LISTEN_TEXT], why[160];
	int fd;

	server = (struct kvw_server){.most = most, .drain_ns = 20 * KVW_NS_PER_S};
	loop_count = count;
	big = malloc(BIG_BYTES);
	for (size_t i = 0; i < BIG_BYTES; i++)
		big[i] = (char)('a' + i * 7 % 26 + i / 4096 % 3);
	ck_assert_int_eq(
		kvw_listen("127.0.0.1:0", KVW_LISTEN_ALONE, &fd, bound, why, sizeof(why)), KVW_OK);
	address = (struct sockaddr_in){.sin_family = AF_INET,
		.sin_port = htons((uint16_t)atoi(strrchr(bound, ':') + 1)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	for (size_t i = 0; i < count; i++) {
		ck_assert_int_eq(
			kvw_clients_init(&loops[i].base, &server, options, i == 0 ? fd : -1), KVW_OK);
		if (i > 0)
			kvw_server_loop_join_ring(&loops[0].base.loop, &loops[i].base.loop);
	}
	for (size_t i = 0; i < count; i++)
		ck_assert_int_eq(kvw_server_loop_start(&loops[i].base.loop, "test"), KVW_OK);
}

static void order_drain(void)
{
	atomic_store(&server.draining, true);
	for (size_t i = 0; i < loop_count; i++)
		kvw_server_loop_wake(&loops[i].base.loop);
}

static void stop(void)
{
	order_drain();
	for (size_t i = 0; i < loop_count; i++)
		kvw_server_loop_join(&loops[i].base.loop);
	for (size_t i = 0; i < loop_count; i++) {
		kvw_clients_finish(&loops[i].base);
		ck_assert_uint_eq(loops[i].base.loop.waits, 0);
		ck_assert_uint_eq(atomic_load(&loops[i].base.loop.conn_count), 0);
	}
	ck_assert_uint_eq(atomic_load(&server.connections), 0);
	free(big);
}

static void until(const _Atomic uint32_t *count, uint32_t least)
{
	for (int i = 0; i < 5000 && atomic_load(count) < least; i++)
		usleep(2000);
	ck_assert_uint_ge(atomic_load(count), least);
}

static int dial(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

static void say(int fd, const char *text)
{
	ck_assert_int_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* The next answer has this status and this body. */
static void expect_bytes(int fd, int status, const char *body, size_t len)
{
	char head[1024], begins[32];
	size_t used = 0, got = 0;
	char *text = malloc(len + 1);
	const char *length;

	while (used < sizeof(head) - 1 && (used < 4 || memcmp(head + used - 4, "\r\n\r\n", 4) != 0)) {
		ck_assert_msg(recv(fd, head + used, 1, 0) == 1, "closed after %.*s", (int)used, head);
		used++;
	}
	head[used] = '\0';
	snprintf(begins, sizeof(begins), "HTTP/1.1 %d ", status);
	ck_assert_msg(strncmp(head, begins, strlen(begins)) == 0, "expected %d in %s", status, head);
	if (status == 100) {
		free(text);
		return;
	}
	ck_assert_ptr_nonnull(strstr(head, "Server: test\r\n"));
	length = strstr(head, "Content-Length: ");
	ck_assert_ptr_nonnull(length);
	ck_assert_uint_eq(strtoul(length + 16, NULL, 10), len);
	while (got < len) {
		ssize_t n = recv(fd, text + got, len - got, 0);

		ck_assert_int_gt(n, 0);
		got += (size_t)n;
	}
	ck_assert_int_eq(memcmp(text, body, len), 0);
	free(text);
}

static void expect(int fd, int status, const char *body)
{
	expect_bytes(fd, status, body, strlen(body));
}

/* It is closed in order, not by a reset. */
static void expect_end(int fd)
{
	char byte;

	ck_assert_int_eq(recv(fd, &byte, 1, 0), 0);
	close(fd);
}

/* --- heads ------------------------------------------------------------------------------------ */

START_TEST(a_head_in_pieces_and_a_second_request)
{
	const struct kvw_clients_options options = usual();
	const char *head = "\r\nGET /a HTTP/1.1\r\nHost: x\r\n\r\n";
	int fd;

	start(&options, 10, 1);
	fd = dial();
	for (const char *c = head; *c != '\0'; c++) {
		const char byte[2] = {*c, '\0'};

		say(fd, byte);
		usleep(500);
	}
	expect(fd, 200, "/a");
	say(fd, GET("/b"));
	expect(fd, 200, "/b");
	say(fd, "HEAD /longer HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
	for (char c = 0, last[4] = ""; memcmp(last, "\r\n\r\n", 4) != 0;) {
		ck_assert_int_eq(recv(fd, &c, 1, 0), 1);
		memmove(last, last + 1, 3);
		last[3] = c;
	}
	expect_end(fd);
	stop();
}
END_TEST

START_TEST(a_slow_head_is_refused)
{
	struct kvw_clients_options options = usual();
	int fd;

	options.limits.head_ns = 200 * KVW_NS_PER_MS;
	start(&options, 10, 1);
	fd = dial();
	say(fd, "GET /a HTTP/1.1\r\nHos");
	expect(fd, 408, "refused 2: the request's head comes too slowly");
	expect_end(fd);
	ck_assert_uint_eq(timed_out[KVW_CONN_TIME_HEAD], 1);
	stop();
}
END_TEST

START_TEST(an_idle_client_is_let_go)
{
	struct kvw_clients_options options = usual();
	int fd;

	options.limits.idle_ns = 2 * KVW_NS_PER_S;
	start(&options, 10, 1);
	fd = dial();
	say(fd, GET("/a"));
	expect(fd, 200, "/a");
	expect_end(fd);
	ck_assert_uint_eq(timed_out[KVW_CONN_TIME_IDLE], 1);
	stop();
}
END_TEST

START_TEST(heads_too_large_and_wrong)
{
	const struct kvw_clients_options options = usual();
	char *large = malloc(2 * KVW_CONN_HEAD_MOST);
	int fd;

	start(&options, 10, 1);
	memset(large, 'a', 2 * KVW_CONN_HEAD_MOST);
	memcpy(large, "GET /", 5);
	large[KVW_CONN_HEAD_MOST + 100] = '\0';
	fd = dial();
	say(fd, large);
	expect(fd, 414, "refused 0: request target is too long");
	expect_end(fd);
	memcpy(large, "GET / HTTP/1.1\r\nA: ", 19);
	fd = dial();
	say(fd, large); /* more than is read: the answer arrives all the same */
	expect(fd, 431, "refused 0: message head is too large");
	expect_end(fd);
	fd = dial();
	say(fd, "GET / HTTP/1.1\r\n\r\n");
	expect(fd, 400, "refused 0: HTTP/1.1 request without Host");
	expect_end(fd);
	free(large);
	stop();
}
END_TEST

START_TEST(pipelined_requests_are_answered_in_order)
{
	const struct kvw_clients_options options = usual();
	char text[200 * 64] = "", path[16];
	size_t len = 0;
	int fd;

	start(&options, 10, 1);
	fd = dial();
	say(fd, GET("/wait"));
	for (int i = 0; i < 200; i++) /* more than one turn takes */
		len += (size_t)snprintf(
			text + len, sizeof(text) - len, "GET /%d HTTP/1.1\r\nHost: x\r\n\r\n", i);
	say(fd, text);
	while (atomic_load(&waiting) == NULL)
		usleep(1000);
	usleep(50000);
	ck_assert_uint_eq(loops[0].served, 1); /* the others wait for their turn */
	kvw_server_loop_post(&loops[0].base.loop, &atomic_load(&waiting)->mail);
	expect(fd, 200, "late");
	for (int i = 0; i < 200; i++) {
		snprintf(path, sizeof(path), "/%d", i);
		expect(fd, 200, path);
	}
	close(fd);
	stop();
}
END_TEST

START_TEST(a_half_closed_client_is_answered)
{
	const struct kvw_clients_options options = usual();
	int fd;

	start(&options, 10, 1);
	fd = dial();
	say(fd, GET("/a") GET("/wait"));
	ck_assert_int_eq(shutdown(fd, SHUT_WR), 0);
	expect(fd, 200, "/a");
	while (atomic_load(&waiting) == NULL)
		usleep(1000);
	usleep(50000);
	kvw_server_loop_post(&loops[0].base.loop, &atomic_load(&waiting)->mail);
	expect(fd, 200, "late");
	expect_end(fd);
	stop();
}
END_TEST

/* --- answers ---------------------------------------------------------------------------------- */

START_TEST(a_large_answer_goes_out_in_parts)
{
	const struct kvw_clients_options options = usual();
	int fd, small = 128 << 10;

	start(&options, 10, 1);
	fd = dial();
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	say(fd, GET("/big") GET("/after"));
	usleep(50000);
	expect_bytes(fd, 200, big, BIG_BYTES);
	expect(fd, 200, "/after");
	close(fd);
	stop();
}
END_TEST

START_TEST(a_client_that_reads_nothing_is_cut)
{
	struct kvw_clients_options options = usual();
	int fd;

	options.limits.write_ns = 200 * KVW_NS_PER_MS;
	start(&options, 10, 1);
	fd = dial();
	say(fd, GET("/proof"));
	until(&closed_conns, 1);
	ck_assert_uint_eq(timed_out[KVW_CONN_TIME_WRITE], 1);
	ck_assert_uint_eq(lost_answers, 1);
	close(fd);
	stop();
}
END_TEST

START_TEST(a_client_leaves_while_its_answer_is_made)
{
	const struct kvw_clients_options options = usual();
	const struct linger now = {.l_onoff = 1};
	int fd;

	start(&options, 10, 1);
	fd = dial();
	say(fd, GET("/wait"));
	while (atomic_load(&waiting) == NULL)
		usleep(1000);
	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
	until(&gone_waits, 1);
	ck_assert_uint_eq(loops[0].base.loop.waits, 1); /* the loop stays for it */
	kvw_server_loop_post(&loops[0].base.loop, &atomic_load(&waiting)->mail);
	stop();
}
END_TEST

/* --- bodies ----------------------------------------------------------------------------------- */

START_TEST(bodies_are_collected)
{
	struct kvw_clients_options options = usual();
	int fd, other;

	options.limits.body_most = 10;
	start(&options, 10, 1);
	fd = dial();
	other = dial();
	say(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n01234");
	usleep(20000);
	say(other, GET("/between")); /* its head is parsed meanwhile */
	expect(other, 200, "/between");
	say(fd, "56789" GET("/next"));
	expect(fd, 200, "0123456789");
	expect(fd, 200, "/next");
	say(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r");
	usleep(20000);
	say(fd, "\n2\r\nde\r\n0\r\n\r\n" GET("/next"));
	expect(fd, 200, "abcde");
	expect(fd, 200, "/next");
	say(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
	expect(fd, 200, "");
	say(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
	expect(fd, 100, "");
	say(fd, "ok");
	expect(fd, 200, "ok");
	close(fd);
	close(other);
	stop();
}
END_TEST

START_TEST(a_body_after_a_head_that_filled_the_buffer_is_collected)
{
	struct kvw_clients_options options = usual();
	const char *begins = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nX: ";
	char *text = malloc(KVW_CONN_HEAD_MOST + 6);
	int fd;

	memset(text, 'a', KVW_CONN_HEAD_MOST);
	memcpy(text, begins, strlen(begins));
	memcpy(text + KVW_CONN_HEAD_MOST - 4, "\r\n\r\n" "01234", 10);
	options.limits.body_most = 10;
	start(&options, 10, 1);
	fd = dial();
	say(fd, text);
	expect(fd, 200, "01234");
	close(fd);
	free(text);
	stop();
}
END_TEST

START_TEST(collected_bodies_that_are_refused)
{
	struct kvw_clients_options options = usual();
	int fd;

	options.limits.body_most = 10;
	options.limits.body_ns = 200 * KVW_NS_PER_MS;
	start(&options, 10, 1);
	fd = dial();
	say(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\n0123456789a");
	expect(fd, 413, "refused 1: the body is too large");
	expect_end(fd);
	fd = dial();
	say(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n6\r\n");
	expect(fd, 413, "refused 1: the body is too large");
	expect_end(fd);
	fd = dial();
	say(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n");
	for (int i = 0; i < 5; i++) { /* longer than body_ns, without such a pause */
		say(fd, "0");
		usleep(100000);
	}
	expect(fd, 408, "refused 3: the body comes too slowly");
	expect_end(fd);
	ck_assert_uint_eq(timed_out[KVW_CONN_TIME_BODY], 1);
	ck_assert_uint_eq(loops[0].served, 0);
	stop();
}
END_TEST

START_TEST(bodies_are_received_or_thrown_away)
{
	const struct kvw_clients_options options = usual();
	char *body = malloc(300001);
	int fd;

	start(&options, 10, 1);
	memset(body, 'b', 300000);
	body[300000] = '\0';
	fd = dial();
	say(fd, "PUT /stream HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n");
	say(fd, body);
	expect(fd, 200, "streamed");
	ck_assert_uint_eq(streamed, 300000);
	say(fd, "PUT /other HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n");
	expect(fd, 200, "/other");
	say(fd, body);
	say(fd, GET("/next"));
	expect(fd, 200, "/next");
	/* The end of a chunked body is found by reading it alone: the connection ends. */
	say(fd, "PUT /other HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
	expect(fd, 200, "/other");
	expect_end(fd);
	free(body);
	stop();
}
END_TEST

START_TEST(a_body_below_its_rate_is_refused)
{
	struct kvw_clients_options options = usual();
	int fd;

	options.limits.body_ns = 200 * KVW_NS_PER_MS;
	options.limits.body_pauses = false;
	options.limits.body_rate = 1 << 20;
	start(&options, 10, 1);
	fd = dial();
	say(fd, "PUT /stream HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\nsome");
	expect(fd, 408, "refused 3: the body comes too slowly");
	expect_end(fd);
	stop();
}
END_TEST

/* --- many ------------------------------------------------------------------------------------- */

START_TEST(connections_beyond_the_limit_are_refused)
{
	const struct kvw_clients_options options = usual();
	int fds[3];

	start(&options, 2, 1);
	for (int i = 0; i < 2; i++) {
		fds[i] = dial();
		say(fds[i], GET("/a"));
		expect(fds[i], 200, "/a");
	}
	fds[2] = dial();
	until(&refused, 1);
	close(fds[2]);
	close(fds[0]);
	until(&closed_conns, 1);
	fds[2] = dial();
	say(fds[2], GET("/a"));
	expect(fds[2], 200, "/a");
	close(fds[1]);
	close(fds[2]);
	stop();
}
END_TEST

START_TEST(loops_of_a_ring_share_clients)
{
	const struct kvw_clients_options options = usual();
	int fds[8];

	start(&options, 10, LOOPS);
	for (int i = 0; i < 8; i++) {
		fds[i] = dial();
		say(fds[i], GET("/a"));
		expect(fds[i], 200, "/a");
	}
	ck_assert_uint_eq(loops[0].served, 4);
	ck_assert_uint_eq(loops[1].served, 4);
	for (int i = 0; i < 8; i++)
		close(fds[i]);
	stop();
}
END_TEST

START_TEST(draining_answers_what_is_under_way)
{
	const struct kvw_clients_options options = usual();
	int busy, idle, late;

	start(&options, 10, 1);
	busy = dial();
	idle = dial();
	say(idle, GET("/a"));
	expect(idle, 200, "/a");
	say(busy, GET("/wait"));
	while (atomic_load(&waiting) == NULL)
		usleep(1000);
	order_drain();
	expect_end(idle);
	late = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_ne(connect(late, (struct sockaddr *)&address, sizeof(address)), 0);
	close(late);
	kvw_server_loop_post(&loops[0].base.loop, &atomic_load(&waiting)->mail);
	expect(busy, 200, "late");
	expect_end(busy);
	stop();
}
END_TEST

START_TEST(draining_answers_what_came_while_the_loop_was_busy)
{
	const struct kvw_clients_options options = usual();
	int busy, kept, fresh;

	start(&options, 10, LOOPS);
	busy = dial();
	say(busy, GET("/a"));
	expect(busy, 200, "/a"); /* at the loop that accepts */
	kept = dial();
	say(kept, GET("/a"));
	expect(kept, 200, "/a");
	close(kept);
	say(busy, GET("/slow"));
	usleep(100000);
	fresh = dial();
	say(fresh, GET("/b"));
	order_drain(); /* the other loop ends at once */
	expect(busy, 200, "/slow");
	expect_end(busy);
	expect(fresh, 200, "/b");
	expect_end(fresh);
	stop();
}
END_TEST

START_TEST(draining_does_not_wait_for_the_next_request_after_a_large_answer)
{
	const struct kvw_clients_options options = usual();
	int64_t from;
	int fd;

	start(&options, 10, 1);
	fd = dial();
	say(fd, GET("/big"));
	usleep(100000); /* its head is out, and says keep-alive */
	from = kvw_clock_ns();
	order_drain();
	usleep(100000);
	expect_bytes(fd, 200, big, BIG_BYTES);
	expect_end(fd);
	stop();
	ck_assert_int_lt(kvw_clock_ns() - from, 10 * KVW_NS_PER_S);
}
END_TEST

START_TEST(draining_cuts_when_its_time_is_over)
{
	const struct kvw_clients_options options = usual();
	int fd;

	start(&options, 10, 1);
	server.drain_ns = 200 * KVW_NS_PER_MS;
	fd = dial();
	say(fd, "GET /a HTTP/1.1\r\n");
	usleep(50000);
	order_drain();
	expect_end(fd);
	stop();
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("connection");

	tcase_add_test(tc, a_head_in_pieces_and_a_second_request);
	tcase_add_test(tc, a_slow_head_is_refused);
	tcase_add_test(tc, an_idle_client_is_let_go);
	tcase_add_test(tc, heads_too_large_and_wrong);
	tcase_add_test(tc, pipelined_requests_are_answered_in_order);
	tcase_add_test(tc, a_half_closed_client_is_answered);
	tcase_add_test(tc, a_large_answer_goes_out_in_parts);
	tcase_add_test(tc, a_client_that_reads_nothing_is_cut);
	tcase_add_test(tc, a_client_leaves_while_its_answer_is_made);
	tcase_add_test(tc, bodies_are_collected);
	tcase_add_test(tc, a_body_after_a_head_that_filled_the_buffer_is_collected);
	tcase_add_test(tc, collected_bodies_that_are_refused);
	tcase_add_test(tc, bodies_are_received_or_thrown_away);
	tcase_add_test(tc, a_body_below_its_rate_is_refused);
	tcase_add_test(tc, connections_beyond_the_limit_are_refused);
	tcase_add_test(tc, loops_of_a_ring_share_clients);
	tcase_add_test(tc, draining_answers_what_is_under_way);
	tcase_add_test(tc, draining_answers_what_came_while_the_loop_was_busy);
	tcase_add_test(tc, draining_does_not_wait_for_the_next_request_after_a_large_answer);
	tcase_add_test(tc, draining_cuts_when_its_time_is_over);
	tcase_set_timeout(tc, 60);
	return run_tcase("server connection", tc);
}
