/*
 * connection.c - heads, time limits, and the states of a connection.
 *
 * Each turn of a connection does a bounded amount of work, so that a connection with endless input
 * does not block the others.
 */
#include <stdlib.h>
#include <string.h>

#include "server/connection_parts.h"

#define TURN_REQUESTS 32
#define HEAD_FIELDS   64

/* --- limits of time --------------------------------------------------------------------------- */

/* Returns whether the body arrives fast enough. If so, the timer checks again after a second. */
static bool body_in_time(struct kvw_conn *conn)
{
	const struct kvw_clients_limits *limits = kvw_conn_limits(conn);
	double seconds = (double)(conn->clients->loop.now_ns - conn->body_from_ns) / KVW_NS_PER_S;

	if (limits->body_pauses || (double)conn->body_got < seconds * (double)limits->body_rate)
		return false;
	kvw_conn_timer(conn, KVW_CONN_TIMER_RATE, KVW_NS_PER_S);
	return true;
}

/* Reads bytes that wait in the kernel, because they count for the rate, too. Returns false if the
 * body needs no check any more. */
static bool look_for_more(struct kvw_conn *conn)
{
	if (conn->state != KVW_CONN_BODY)
		return true;
	conn->io.readable = true;
	kvw_conn_advance(conn);
	return conn->state == KVW_CONN_BODY && !kvw_timer_running(&conn->timer);
}

static void passed(struct kvw_conn *conn, enum kvw_conn_time which)
{
	if (conn->clients->options.ops->timed_out != NULL)
		conn->clients->options.ops->timed_out(conn, which);
}

static void body_timeout(struct kvw_conn *conn)
{
	passed(conn, KVW_CONN_TIME_BODY);
	if (conn->state == KVW_CONN_DRAIN) { /* it is answered */
		kvw_conn_close(conn, true);
		return;
	}
	kvw_conn_refuse(conn, KVW_CONN_LATE_BODY, 408, "the body comes too slowly");
	kvw_io_again(&conn->io);
}

static void refuse_head(
	struct kvw_conn *conn, enum kvw_conn_refusal what, int status, const char *message)
{
	conn->begun_ns = conn->clients->loop.now_ns;
	conn->head_method = conn->old_http = conn->body_unread = false;
	conn->body_left = 0;
	kvw_conn_refuse(conn, what, status, message);
}

static void timeout(struct kvw_timer *timer, int64_t now_ns)
{
	struct kvw_conn *conn =
		(struct kvw_conn *)((char *)timer - offsetof(struct kvw_conn, timer));

	conn->clients->loop.now_ns = now_ns;
	switch ((enum kvw_conn_timer)timer->kind) {
	case KVW_CONN_TIMER_HEAD:
		passed(conn, KVW_CONN_TIME_HEAD);
		refuse_head(conn, KVW_CONN_LATE_HEAD, 408, "the request's head comes too slowly");
		kvw_io_again(&conn->io);
		return;
	case KVW_CONN_TIMER_BODY:
	case KVW_CONN_TIMER_RATE:
		if (look_for_more(conn) && !body_in_time(conn))
			body_timeout(conn);
		return;
	case KVW_CONN_TIMER_WRITE:
		passed(conn, KVW_CONN_TIME_WRITE);
		kvw_conn_close(conn, true);
		return;
	case KVW_CONN_TIMER_WATCH: /* the client has read the answer, since no reset has come */
		conn->until_read = false;
		kvw_conn_close(conn, false);
		return;
	case KVW_CONN_TIMER_IDLE:
		passed(conn, KVW_CONN_TIME_IDLE);
		kvw_conn_close(conn, false);
		return;
	case KVW_CONN_TIMER_LINGER:
		kvw_conn_close(conn, false);
		return;
	}
}

/* --- heads ------------------------------------------------------------------------------------ */

/* Handles a whole head of len bytes: checks the body's framing, then passes the request to the
 * program. */
static void begin_request(struct kvw_conn *conn, size_t len)
{
	struct kvw_clients *clients = conn->clients;
	struct kvw_head *head = &clients->head;
	const char *data = conn->in + conn->in_begin;
	struct kvw_head_error error;

	if (kvw_head_parse_request(head, data, len, &error) != KVW_OK) {
		refuse_head(conn, KVW_CONN_BAD_HEAD, error.status, error.message);
		return;
	}
	conn->in_begin += len;
	conn->find_from = 0;
	conn->begun_ns = kvw_clock_ns();
	conn->close_after = !head->keep_alive;
	conn->old_http = head->minor == 0;
	conn->head_method = head->head_method;
	conn->expects = head->expect_continue;
	conn->body_left = head->framing == KVW_FRAME_LENGTH ? head->content_length : 0;
	/* Set to false when the body is received. A client that waits for "100 Continue" may never
	 * send it. */
	conn->body_unread = head->framing == KVW_FRAME_CHUNKED || conn->expects;
	conn->until_read = false;
	conn->body_got = 0;
	conn->body_from_ns = conn->begun_ns;
	if (conn->body_left > 0 || head->framing == KVW_FRAME_CHUNKED)
		kvw_conn_timer(conn, KVW_CONN_TIMER_BODY, kvw_conn_limits(conn)->body_ns);
	else
		kvw_timer_clear(&clients->loop.timers, &conn->timer);
	if (clients->options.ops->admit != NULL && !clients->options.ops->admit(conn))
		return;
	if (kvw_conn_limits(conn)->body_most > 0 && head->framing != KVW_FRAME_NONE)
		kvw_conn_collect(conn, data, len);
	else
		clients->options.ops->request(conn);
}

/* Looks for a head in the buffer. Returns true if a request was begun or refused. */
static bool take_head(struct kvw_conn *conn)
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
		kvw_conn_drop_input(conn);
		return false;
	}
	end = kvw_head_find_end(data, have, &conn->find_from);
	if (end > 0) {
		begin_request(conn, end);
		return true;
	}
	if (have == KVW_CONN_HEAD_MOST) {
		kvw_head_too_large(data, have, &error);
		refuse_head(conn, KVW_CONN_BAD_HEAD, error.status, error.message);
		return true;
	}
	if (conn->timer.kind != KVW_CONN_TIMER_HEAD || !kvw_timer_running(&conn->timer))
		kvw_conn_timer(conn, KVW_CONN_TIMER_HEAD, kvw_conn_limits(conn)->head_ns);
	if (conn->in_begin > 0) { /* room behind it */
		memmove(conn->in, data, have);
		conn->in_begin = 0;
		conn->in_end = have;
	}
	return false;
}

/* --- the turn --------------------------------------------------------------------------------- */

/* Returns whether no byte of a request has come. */
static bool is_idle(const struct kvw_conn *conn)
{
	return conn->state == KVW_CONN_HEAD && conn->in_end == conn->in_begin && !conn->io.readable;
}

void kvw_conn_advance(struct kvw_conn *conn)
{
	for (unsigned requests = 0; conn->state != KVW_CONN_DEAD;) {
		switch (conn->state) {
		case KVW_CONN_HEAD:
			kvw_conn_drop_whole(conn);
			if (requests == TURN_REQUESTS) {
				kvw_io_again(&conn->io);
				return;
			}
			if (take_head(conn)) {
				requests++;
			} else if (!kvw_conn_read(conn)) {
				if (is_idle(conn) && conn->clients->loop.lets_go)
					kvw_conn_part(conn);
				return;
			}
			break;
		case KVW_CONN_BODY:
			conn->receive(conn);
			if (conn->state == KVW_CONN_BODY)
				return;
			break;
		case KVW_CONN_SEND:
			kvw_conn_flush(conn);
			if (conn->state == KVW_CONN_SEND)
				return;
			break;
		case KVW_CONN_DRAIN:
			if (!kvw_conn_drain(conn))
				return;
			break;
		case KVW_CONN_LINGER:
			kvw_conn_linger(conn);
			return;
		case KVW_CONN_WAIT:
		case KVW_CONN_DEAD:
			return;
		}
	}
}

static void on_event(struct kvw_io *io)
{
	struct kvw_conn *conn = (struct kvw_conn *)io; /* its first member */

	conn->clients->loop.now_ns = kvw_clock_ns();
	if (io->broken && conn->state != KVW_CONN_HEAD && conn->state != KVW_CONN_BODY)
		kvw_conn_close(conn, false);
	else
		kvw_conn_advance(conn);
}

static bool open_conn(struct kvw_clients *clients, int fd)
{
	struct kvw_conn *conn = calloc(1, clients->options.conn_bytes);

	if (conn == NULL ||
		kvw_io_open(&conn->io, &clients->loop.sockets, fd, on_event) != KVW_OK) {
		free(conn);
		close(fd);
		kvw_server_loop_lost(&clients->loop);
		return false;
	}
	conn->io.writable = true;
	conn->clients = clients;
	conn->timer.fn = timeout;
	TAILQ_INSERT_TAIL(&clients->conns, conn, entry);
	kvw_conn_rest(conn);
	if (clients->options.ops->opened == NULL || clients->options.ops->opened(conn))
		return true;
	kvw_conn_close(conn, true);
	return false;
}

void kvw_clients_take(struct kvw_clients *clients, int fd)
{
	bool served = open_conn(clients, fd);

	if (clients->options.ops->accepted != NULL)
		clients->options.ops->accepted(clients, served);
}

/* --- the loop --------------------------------------------------------------------------------- */

static struct kvw_clients *clients_of(struct kvw_server_loop *loop)
{
	return (struct kvw_clients *)loop; /* its first member */
}

static void serve_take(struct kvw_server_loop *loop, int fd)
{
	kvw_clients_take(clients_of(loop), fd);
}

static void refuse_take(struct kvw_server_loop *loop, int fd, enum kvw_refusal why)
{
	clients_of(loop)->options.ops->turn_away_take(clients_of(loop), fd, why);
}

static void drain_connections(struct kvw_server_loop *loop)
{
	struct kvw_conn *conn, *next;

	for (conn = TAILQ_FIRST(&clients_of(loop)->conns); conn != NULL; conn = next) {
		next = TAILQ_NEXT(conn, entry);
		if (is_idle(conn))
			kvw_conn_close(conn, false);
	}
}

static void cut(struct kvw_server_loop *loop)
{
	kvw_clients_cut(clients_of(loop));
}

static void turned(struct kvw_server_loop *loop)
{
	struct kvw_clients *clients = clients_of(loop);
	struct kvw_conn *conn;

	while ((conn = TAILQ_FIRST(&clients->dead)) != NULL) {
		TAILQ_REMOVE(&clients->dead, conn, entry);
		free(conn);
	}
}

enum kvw_err kvw_clients_init(struct kvw_clients *clients, struct kvw_server *server,
	const struct kvw_clients_options *options, int listen_fd)
{
	static const struct kvw_server_loop_ops ops = {
		.serve_take = serve_take,
		.refuse_take = refuse_take,
		.drain = drain_connections,
		.cut = cut,
		.turned = turned,
	};
	enum kvw_err err;

	*clients = (struct kvw_clients){.options = *options};
	TAILQ_INIT(&clients->conns);
	TAILQ_INIT(&clients->dead);
	err = kvw_server_loop_init(&clients->loop, server, &ops, listen_fd);
	return err == KVW_OK ? kvw_head_init(&clients->head, HEAD_FIELDS) : err;
}

void kvw_clients_cut(struct kvw_clients *clients)
{
	struct kvw_conn *conn;

	while ((conn = TAILQ_FIRST(&clients->conns)) != NULL)
		kvw_conn_close(conn, false);
}

void kvw_clients_finish(struct kvw_clients *clients)
{
	kvw_server_loop_finish(&clients->loop);
	while (clients->spare_in_count > 0)
		free(clients->spare_in[--clients->spare_in_count]);
	kvw_head_finish(&clients->head);
}
