/*
 * connection.c - one client: heads in, and what goes on between them.
 *
 * Requests are answered one after another in the order in which they came; what a client pipelines
 * waits in its buffer or in the kernel. An input buffer is held only while it holds something. Each
 * turn of a connection is bounded, so that one that always has more to say does not keep the others
 * waiting.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/server_parts.h"

#define TURN_REQUESTS 32
#define DRAIN_AT_ONCE ((size_t)1 << 20)

/* --- input buffers ---------------------------------------------------------------------------- */

static bool hold_input(struct kvt_conn *conn)
{
	struct kvt_loop *loop = conn->loop;

	if (conn->in != NULL)
		return true;
	conn->in = loop->spare_in_count > 0 ? loop->spare_in[--loop->spare_in_count]
					    : malloc(KVT_HEAD_MOST);
	conn->in_begin = conn->in_end = conn->find_from = 0;
	return conn->in != NULL;
}

static void drop_input(struct kvt_conn *conn)
{
	struct kvt_loop *loop = conn->loop;

	if (conn->in == NULL)
		return;
	if (loop->spare_in_count < sizeof(loop->spare_in) / sizeof(loop->spare_in[0]))
		loop->spare_in[loop->spare_in_count++] = conn->in;
	else
		free(conn->in);
	conn->in = NULL;
	conn->in_begin = conn->in_end = conn->find_from = 0;
}

/* --- timers ----------------------------------------------------------------------------------- */

void kvt_conn_timer(struct kvt_conn *conn, enum kvt_timer_kind kind, uint64_t duration_ns)
{
	kvw_timer_set(&conn->loop->base.timers, &conn->timer, (uint8_t)kind,
		conn->loop->base.now_ns + (int64_t)duration_ns);
}

/* Does the body come fast enough? Then the timer looks again in a second. */
static bool body_in_time(struct kvt_conn *conn)
{
	double seconds = (double)(conn->loop->base.now_ns - conn->body_from_ns) / KVW_NS_PER_S;

	if ((double)conn->body_got < seconds * (double)conn->loop->server->config->body_rate)
		return false;
	kvt_conn_timer(conn, KVT_TIMER_RATE, KVW_NS_PER_S);
	return true;
}

/* What waits in the kernel for more to come counts, too. False: the body needs no judging any more. */
static bool look_for_more(struct kvt_conn *conn)
{
	if (conn->state != KVT_CONN_PUT)
		return true;
	conn->io.readable = true;
	kvt_conn_advance(conn);
	return conn->state == KVT_CONN_PUT && !kvw_timer_running(&conn->timer);
}

static void body_timeout(struct kvt_conn *conn)
{
	bool answered_already = conn->state == KVT_CONN_DRAIN;

	kvt_meter_add(&conn->loop->meters, KVT_COUNT_TIMEOUT_BODY, 1);
	kvt_conn_abort_put(conn);
	if (answered_already) {
		kvt_conn_close(conn, true);
		return;
	}
	conn->close_after = true;
	kvt_conn_refuse(conn, 408, NULL,
		"the body came more slowly than limits.body_rate: %llu bytes of %llu",
		(unsigned long long)conn->body_got,
		(unsigned long long)(conn->body_got + conn->body_left));
	kvw_io_again(&conn->io);
}

static void head_timeout(struct kvt_conn *conn)
{
	kvt_meter_add(&conn->loop->meters, KVT_COUNT_TIMEOUT_HEAD, 1);
	conn->route = KVT_ROUTE_other;
	conn->begun_ns = conn->loop->base.now_ns;
	conn->close_after = true;
	conn->head_method = conn->old_http = false;
	kvt_conn_refuse(conn, 408, NULL, "the request's head did not come within limits.head_time");
	kvw_io_again(&conn->io);
}

static void timeout(struct kvw_timer *timer, int64_t now_ns)
{
	struct kvt_conn *conn =
		(struct kvt_conn *)((char *)timer - offsetof(struct kvt_conn, timer));

	conn->loop->base.now_ns = now_ns;
	switch ((enum kvt_timer_kind)timer->kind) {
	case KVT_TIMER_HEAD:
		head_timeout(conn);
		return;
	case KVT_TIMER_BODY:
	case KVT_TIMER_RATE:
		if (look_for_more(conn) && !body_in_time(conn))
			body_timeout(conn);
		return;
	case KVT_TIMER_WRITE:
		kvt_meter_add(&conn->loop->meters, KVT_COUNT_TIMEOUT_WRITE, 1);
		kvt_conn_close(conn, true);
		return;
	case KVT_TIMER_WATCH: /* it was read: no reset came */
		conn->lease_id[0] = '\0';
		kvt_conn_close(conn, false);
		return;
	case KVT_TIMER_IDLE:
		kvt_meter_add(&conn->loop->meters, KVT_COUNT_TIMEOUT_IDLE, 1);
		kvt_conn_close(conn, false);
		return;
	case KVT_TIMER_LINGER:
		kvt_conn_close(conn, false);
		return;
	}
}

/* --- beginning and end ------------------------------------------------------------------------ */

static void on_event(struct kvw_io *io)
{
	struct kvt_conn *conn = (struct kvt_conn *)io;

	conn->loop->base.now_ns = kvw_clock_ns();
	if (io->broken && conn->state != KVT_CONN_HEAD && conn->state != KVT_CONN_PUT) {
		kvt_conn_close(conn, false);
		return;
	}
	kvt_conn_advance(conn);
}

void kvt_conn_create_take(struct kvt_loop *loop, int fd)
{
	struct kvt_conn *conn = calloc(1, sizeof(*conn));

	if (conn == NULL || kvw_io_open(&conn->io, &loop->base.sockets, fd, on_event) != KVW_OK) {
		free(conn);
		close(fd);
		kvw_server_loop_lost(&loop->base);
		kvt_meter_add(&loop->meters, KVT_COUNT_REFUSED_DESCRIPTORS, 1);
		return;
	}
	conn->io.writable = true;
	conn->loop = loop;
	conn->timer.fn = timeout;
	TAILQ_INSERT_TAIL(&loop->conns, conn, entry);
	kvt_conn_timer(conn, KVT_TIMER_IDLE, loop->server->config->idle_ns);
}

/* Releases the lease of an answer that no client got. */
static void return_lease(struct kvt_conn *conn)
{
	struct kvt_loop *loop = conn->loop;

	if (conn->lease_id[0] == '\0')
		return;
	(void)!kvt_object_release(loop->server->objects, kvw_slice_of(conn->lease_id));
	kvt_meter_add(&loop->meters, KVT_COUNT_LEASES_UNREAD, 1);
	conn->lease_id[0] = '\0';
}

void kvt_conn_close(struct kvt_conn *conn, bool reset)
{
	struct kvt_loop *loop = conn->loop;

	if (conn->state == KVT_CONN_DEAD)
		return;
	if (conn->put != NULL)
		kvt_meter_add(&loop->meters, KVT_COUNT_CUT_PUTS, 1);
	kvt_conn_abort_put(conn);
	return_lease(conn);
	if (conn->wait != NULL)
		conn->wait->conn = NULL;
	conn->wait = NULL;
	conn->state = KVT_CONN_DEAD;
	kvw_timer_clear(&loop->base.timers, &conn->timer);
	kvw_io_close(&conn->io, reset);
	drop_input(conn);
	free(conn->out);
	conn->out = NULL;
	TAILQ_REMOVE(&loop->conns, conn, entry);
	TAILQ_INSERT_TAIL(&loop->dead, conn, entry);
	kvw_server_loop_lost(&loop->base);
}

void kvt_conn_free_dead(struct kvt_loop *loop)
{
	struct kvt_conn *conn;

	while ((conn = TAILQ_FIRST(&loop->dead)) != NULL) {
		TAILQ_REMOVE(&loop->dead, conn, entry);
		free(conn);
	}
}

/* --- waiting for others ----------------------------------------------------------------------- */

void kvt_conn_await(struct kvt_conn *conn, struct kvt_wait *wait)
{
	conn->state = KVT_CONN_WAIT;
	conn->wait = wait;
	conn->loop->base.waits++;
	kvw_timer_clear(&conn->loop->base.timers, &conn->timer);
}

struct kvt_conn *kvt_conn_settle(struct kvt_wait *wait)
{
	wait->loop->base.waits--;
	if (wait->conn != NULL)
		wait->conn->wait = NULL;
	return wait->conn;
}

/* --- heads ------------------------------------------------------------------------------------ */

static void refuse_head(struct kvt_conn *conn, const struct kvw_head_error *error)
{
	conn->route = KVT_ROUTE_other;
	conn->begun_ns = conn->loop->base.now_ns;
	conn->close_after = true;
	conn->head_method = conn->old_http = conn->body_unread = false;
	conn->body_left = 0;
	kvt_conn_refuse(conn, error->status,
		error->status == 405 ? "Allow: GET, PUT, POST, DELETE\r\n" : NULL, "%s",
		error->message);
}

/* A whole head of len bytes: its body's framing is settled here, the rest by its route. */
static void begin_request(struct kvt_conn *conn, size_t len)
{
	struct kvw_head *head = &conn->loop->head;
	struct kvw_head_error error;

	conn->begun_ns = kvw_clock_ns();
	if (kvw_head_parse_request(head, conn->in + conn->in_begin, len, &error) != KVW_OK) {
		refuse_head(conn, &error);
		return;
	}
	conn->in_begin += len;
	conn->find_from = 0;
	conn->route = KVT_ROUTE_other;
	conn->close_after = !head->keep_alive;
	conn->old_http = head->minor == 0;
	conn->head_method = head->head_method;
	conn->expects = head->expect_continue;
	conn->body_left = head->framing == KVW_FRAME_LENGTH ? head->content_length : 0;
	/* Unless a route wants it: a client that waits for "100 Continue" need not send it at all. */
	conn->body_unread = head->framing == KVW_FRAME_CHUNKED || conn->expects;
	conn->body_got = 0;
	conn->body_from_ns = conn->begun_ns;
	if (conn->body_left > 0)
		kvt_conn_timer(conn, KVT_TIMER_BODY, conn->loop->server->config->body_ns);
	else
		kvw_timer_clear(&conn->loop->base.timers, &conn->timer);
	kvt_serve(conn);
}

/* True: a request was begun or refused. */
static bool take_head(struct kvt_conn *conn)
{
	const char *data;
	size_t have, end, blank;
	struct kvw_head_error error;

	if (conn->in == NULL)
		return false;
	blank = kvw_head_skip_blank(conn->in + conn->in_begin, conn->in_end - conn->in_begin);
	if (blank > 0)
		conn->find_from = 0;
	conn->in_begin += blank;
	data = conn->in + conn->in_begin;
	have = conn->in_end - conn->in_begin;
	if (have == 0) {
		drop_input(conn);
		return false;
	}
	end = kvw_head_find_end(data, have, &conn->find_from);
	if (end > 0) {
		begin_request(conn, end);
		return true;
	}
	if (have == KVT_HEAD_MOST) {
		kvw_head_too_large(data, have, &error);
		refuse_head(conn, &error);
		return true;
	}
	if (conn->timer.kind != KVT_TIMER_HEAD || !kvw_timer_running(&conn->timer))
		kvt_conn_timer(conn, KVT_TIMER_HEAD, conn->loop->server->config->head_ns);
	if (conn->in_begin > 0) { /* room behind it */
		memmove(conn->in, data, have);
		conn->in_begin = 0;
		conn->in_end = have;
	}
	return false;
}

/* Reads into the buffer. False: nothing came now, or the connection is closed. */
static bool read_more(struct kvt_conn *conn)
{
	struct iovec iov;
	ssize_t n;

	if (!conn->io.readable)
		return false;
	if (!hold_input(conn)) {
		kvt_conn_close(conn, true);
		return false;
	}
	iov = (struct iovec){conn->in + conn->in_end, KVT_HEAD_MOST - conn->in_end};
	n = kvw_io_readv(&conn->io, &iov, 1, iov.iov_len);
	if (n > 0) {
		conn->in_end += (size_t)n;
		return true;
	}
	if (n == 0 || errno != EAGAIN)
		kvt_conn_close(conn, false);
	else if (conn->in_end == conn->in_begin)
		drop_input(conn);
	return false;
}

/* --- bodies that are not read ----------------------------------------------------------------- */

/* Bytes of the body in the buffer are passed over; returns how many. */
static size_t skip_buffered(struct kvt_conn *conn)
{
	size_t have = conn->in_end - conn->in_begin;

	if (have > conn->body_left)
		have = (size_t)conn->body_left;
	conn->in_begin += have;
	conn->body_left -= have;
	conn->body_got += have;
	return have;
}

/* False: nothing came now, or the connection is closed. */
static bool drain(struct kvt_conn *conn)
{
	char scratch[64 << 10];
	size_t done = skip_buffered(conn);

	while (conn->body_left > 0 && conn->io.readable && done < DRAIN_AT_ONCE) {
		size_t room = conn->body_left < sizeof(scratch) ? (size_t)conn->body_left
								: sizeof(scratch);
		struct iovec iov = {scratch, room};
		ssize_t n = kvw_io_readv(&conn->io, &iov, 1, room);

		if (n == 0 || (n < 0 && errno != EAGAIN)) {
			kvt_conn_close(conn, false);
			return false;
		}
		if (n < 0)
			return false;
		conn->body_left -= (uint64_t)n;
		conn->body_got += (uint64_t)n;
		done += (size_t)n;
	}
	if (conn->body_left == 0) {
		conn->state = KVT_CONN_HEAD;
		kvt_conn_timer(conn, KVT_TIMER_IDLE, conn->loop->server->config->idle_ns);
		return true;
	}
	if (conn->io.readable)
		kvw_io_again(&conn->io);
	return false;
}

/* Closing with bytes unread would reset the connection, and the answer with it. */
static void linger(struct kvt_conn *conn)
{
	char scratch[64 << 10];
	size_t done = 0;
	ssize_t n = 1;

	drop_input(conn);
	while (n > 0 && conn->io.readable && done < DRAIN_AT_ONCE) {
		struct iovec iov = {scratch, sizeof(scratch)};

		n = kvw_io_readv(&conn->io, &iov, 1, sizeof(scratch));
		done += n > 0 ? (size_t)n : 0;
	}
	if (n < 0 && errno != EAGAIN)
		kvt_conn_close(conn, false);
	else if (n == 0 && conn->lease_id[0] == '\0')
		kvt_conn_close(conn, false);
	else if (n > 0 && conn->io.readable)
		kvw_io_again(&conn->io);
	else if (n == 0)
		conn->io.readable = false; /* only a reset is waited for */
}

/* --- the turn --------------------------------------------------------------------------------- */

void kvt_conn_advance(struct kvt_conn *conn)
{
	for (unsigned requests = 0; conn->state != KVT_CONN_DEAD;) {
		switch (conn->state) {
		case KVT_CONN_HEAD:
			if (requests == TURN_REQUESTS) {
				kvw_io_again(&conn->io);
				return;
			}
			if (take_head(conn))
				requests++;
			else if (!read_more(conn))
				return;
			break;
		case KVT_CONN_PUT:
			kvt_conn_receive_put(conn);
			if (conn->state == KVT_CONN_PUT)
				return;
			break;
		case KVT_CONN_SEND:
			kvt_conn_flush(conn);
			if (conn->state == KVT_CONN_SEND)
				return;
			break;
		case KVT_CONN_DRAIN:
			if (!drain(conn))
				return;
			break;
		case KVT_CONN_LINGER:
			linger(conn);
			return;
		case KVT_CONN_WAIT:
		case KVT_CONN_DEAD:
			return;
		}
	}
}
