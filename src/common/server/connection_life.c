/*
 * connection_life.c - input buffers, waits and the end of connections.
 *
 * A connection has an input buffer only while there is input in it.
 */
#include <stdlib.h>
#include <string.h>

#include "server/connection_parts.h"

/* --- input ------------------------------------------------------------------------------------ */

static bool hold_input(struct kvw_conn *conn)
{
	struct kvw_clients *clients = conn->clients;

	if (conn->in != NULL)
		return true;
	conn->in = clients->spare_in_count > 0 ? clients->spare_in[--clients->spare_in_count]
					       : malloc(KVW_CONN_HEAD_MOST);
	conn->in_begin = conn->in_end = conn->find_from = 0;
	return conn->in != NULL;
}

void kvw_conn_drop_input(struct kvw_conn *conn)
{
	struct kvw_clients *clients = conn->clients;

	if (conn->in == NULL)
		return;
	if (clients->options.wipe)
		explicit_bzero(conn->in, KVW_CONN_HEAD_MOST);
	if (clients->spare_in_count < sizeof(clients->spare_in) / sizeof(clients->spare_in[0]))
		clients->spare_in[clients->spare_in_count++] = conn->in;
	else
		free(conn->in);
	conn->in = NULL;
	conn->in_begin = conn->in_end = conn->find_from = 0;
}

bool kvw_conn_read(struct kvw_conn *conn)
{
	struct iovec iov;
	ssize_t n;

	if (!conn->io.readable)
		return false;
	if (!hold_input(conn)) {
		kvw_conn_close(conn, true);
		return false;
	}
	iov = (struct iovec){conn->in + conn->in_end, KVW_CONN_HEAD_MOST - conn->in_end};
	n = kvw_io_readv(&conn->io, &iov, 1, iov.iov_len);
	if (n > 0) {
		conn->in_end += (size_t)n;
		return true;
	}
	if (n == 0 || errno != EAGAIN)
		kvw_conn_close(conn, false);
	else if (conn->in_end == conn->in_begin)
		kvw_conn_drop_input(conn);
	return false;
}

/* --- one connection --------------------------------------------------------------------------- */

void kvw_conn_timer(struct kvw_conn *conn, enum kvw_conn_timer kind, uint64_t duration_ns)
{
	struct kvw_server_loop *loop = &conn->clients->loop;

	kvw_timer_set(
		&loop->timers, &conn->timer, (uint8_t)kind, loop->now_ns + (int64_t)duration_ns);
}

void kvw_conn_rest(struct kvw_conn *conn)
{
	conn->state = KVW_CONN_HEAD;
	kvw_conn_timer(conn, KVW_CONN_TIMER_IDLE, kvw_conn_limits(conn)->idle_ns);
}

void kvw_conn_head_within(struct kvw_conn *conn, uint64_t ns)
{
	kvw_conn_timer(conn, KVW_CONN_TIMER_HEAD, ns);
}

void kvw_conn_drop_whole(struct kvw_conn *conn)
{
	if (conn->whole == NULL)
		return;
	free(conn->whole->text.data);
	free(conn->whole);
	conn->whole = NULL;
}

struct kvw_slice kvw_conn_body(const struct kvw_conn *conn)
{
	if (conn->whole == NULL || conn->whole->text.len == 0)
		return KVW_SLICE("");
	return (struct kvw_slice){conn->whole->text.data, conn->whole->text.len};
}

void kvw_conn_await(struct kvw_conn *conn, struct kvw_wait *wait)
{
	struct kvw_server_loop *loop = &conn->clients->loop;

	conn->state = KVW_CONN_WAIT;
	conn->wait = wait;
	wait->conn = conn;
	wait->loop = loop;
	loop->waits++;
	kvw_timer_clear(&loop->timers, &conn->timer);
}

struct kvw_conn *kvw_conn_settle(struct kvw_wait *wait)
{
	wait->loop->waits--;
	if (wait->conn != NULL)
		wait->conn->wait = NULL;
	return wait->conn;
}

void kvw_conn_close(struct kvw_conn *conn, bool reset)
{
	struct kvw_clients *clients = conn->clients;
	struct kvw_wait *wait = conn->wait;

	if (conn->state == KVW_CONN_DEAD)
		return;
	if (clients->options.ops->closed != NULL)
		clients->options.ops->closed(conn);
	conn->wait = NULL;
	conn->state = KVW_CONN_DEAD;
	if (wait != NULL) {
		wait->conn = NULL;
		if (wait->gone != NULL)
			wait->gone(wait);
	}
	kvw_timer_clear(&clients->loop.timers, &conn->timer);
	kvw_io_close(&conn->io, reset);
	kvw_conn_drop_input(conn);
	kvw_conn_drop_whole(conn);
	free(conn->out);
	conn->out = NULL;
	TAILQ_REMOVE(&clients->conns, conn, entry);
	TAILQ_INSERT_TAIL(&clients->dead, conn, entry);
	kvw_server_loop_lost(&clients->loop);
}
