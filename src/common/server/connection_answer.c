/*
 * connection_answer.c - writes answers, and keeps the bytes that the socket did not take.
 */
#include <stdlib.h>
#include <string.h>

#include "server/connection_parts.h"

#define HEAD_BYTES 768
/* time before the connection closes, so that no reset overtakes the last answer */
#define LINGER_NS  (UINT64_C(2) * KVW_NS_PER_S)
#define WATCH_NS   (UINT64_C(1) * KVW_NS_PER_S)

static void write_head(
	struct kvw_writer *w, struct kvw_conn *conn, const struct kvw_http_answer *answer)
{
	struct kvw_clients *clients = conn->clients;

	kvw_status_line(w, answer->status);
	kvw_write(w, kvw_slice_of(clients->options.fields));
	if (clients->options.date)
		kvw_write_field(
			w, KVW_SLICE("Date"), kvw_date(&clients->date, kvw_clock_wall_ns()));
	if (answer->type != NULL)
		kvw_write_field(w, KVW_SLICE("Content-Type"), kvw_slice_of(answer->type));
	kvw_write_literal(w, "Content-Length: ");
	kvw_write_u64(w, answer->body.len);
	kvw_write_literal(w, "\r\n");
	kvw_write(w, answer->extra);
	if (conn->close_after)
		kvw_write_literal(w, "Connection: close\r\n");
	else if (conn->old_http)
		kvw_write_literal(w, "Connection: keep-alive\r\n");
	kvw_write_literal(w, "\r\n");
}

/* Keeps the bytes that are not sent yet. Returns false if memory is short. */
static bool keep_rest(struct kvw_conn *conn, const struct iovec *iov, int count, size_t sent)
{
	size_t total = 0, used = 0;

	for (int i = 0; i < count; i++)
		total += iov[i].iov_len;
	conn->out_len = total - sent;
	conn->out_sent = 0;
	if (conn->out_len == 0)
		return true;
	conn->out = malloc(conn->out_len);
	for (int i = 0; i < count && conn->out != NULL; i++) {
		size_t skip = sent < iov[i].iov_len ? sent : iov[i].iov_len;

		memcpy(conn->out + used, (const char *)iov[i].iov_base + skip,
			iov[i].iov_len - skip);
		used += iov[i].iov_len - skip;
		sent -= skip;
	}
	return conn->out != NULL;
}

void kvw_conn_part(struct kvw_conn *conn)
{
	conn->state = KVW_CONN_LINGER;
	kvw_conn_timer(conn, KVW_CONN_TIMER_LINGER, LINGER_NS);
	kvw_io_shutdown(&conn->io);
}

/* Chooses the next state when an answer is sent. */
static void answered(struct kvw_conn *conn)
{
	if (!conn->io.peer_closed && !conn->io.broken)
		conn->until_read = false; /* the client has not closed its sending side */
	if (conn->until_read) {
		/* The client has closed its sending side. If the whole client is gone, this answer
		 * causes a reset. */
		conn->state = KVW_CONN_LINGER;
		kvw_conn_timer(conn, KVW_CONN_TIMER_WATCH, WATCH_NS);
	} else if (conn->close_after) {
		kvw_conn_part(conn);
	} else if (conn->body_left > 0) {
		conn->state = KVW_CONN_DRAIN;
		kvw_conn_timer(conn, KVW_CONN_TIMER_BODY, kvw_conn_limits(conn)->body_ns);
	} else {
		kvw_conn_rest(conn);
	}
}

static void count_sent(struct kvw_conn *conn, size_t bytes)
{
	if (conn->clients->options.ops->sent != NULL)
		conn->clients->options.ops->sent(conn, bytes);
}

void kvw_conn_answer(struct kvw_conn *conn, const struct kvw_http_answer *answer)
{
	const struct kvw_clients_ops *ops = conn->clients->options.ops;
	struct iovec iov[2];
	char head[HEAD_BYTES];
	struct kvw_writer w = KVW_WRITER(head, sizeof(head));
	int count = answer->body.len > 0 && !conn->head_method ? 2 : 1;
	ssize_t n = 0;

	conn->close_after =
		conn->close_after || conn->clients->loop.draining || conn->body_unread;
	write_head(&w, conn, answer);
	iov[0] = (struct iovec){head, w.len};
	iov[1] = (struct iovec){(void *)(uintptr_t)answer->body.data, answer->body.len};
	if (ops->answered != NULL)
		ops->answered(conn, answer->status);
	if (conn->io.writable) {
		n = kvw_io_writev(&conn->io, iov, count);
		if (n < 0 && errno != EAGAIN) {
			kvw_conn_close(conn, false);
			return;
		}
		n = n < 0 ? 0 : n;
	}
	count_sent(conn, (size_t)n);
	if (!keep_rest(conn, iov, count, (size_t)n)) {
		kvw_conn_close(conn, true);
	} else if (conn->out_len > 0) {
		conn->state = KVW_CONN_SEND;
		kvw_conn_timer(conn, KVW_CONN_TIMER_WRITE, kvw_conn_limits(conn)->write_ns);
	} else {
		answered(conn);
	}
}

void kvw_conn_flush(struct kvw_conn *conn)
{
	bool progress = false;

	while (conn->out_sent < conn->out_len && conn->io.writable) {
		struct iovec iov = {conn->out + conn->out_sent, conn->out_len - conn->out_sent};
		ssize_t n = kvw_io_writev(&conn->io, &iov, 1);

		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) {
			kvw_conn_close(conn, false);
			return;
		}
		conn->out_sent += (size_t)n;
		count_sent(conn, (size_t)n);
		progress = true;
	}
	if (conn->out_sent == conn->out_len) {
		free(conn->out);
		conn->out = NULL;
		conn->out_len = conn->out_sent = 0;
		answered(conn);
	} else if (progress) {
		kvw_conn_timer(conn, KVW_CONN_TIMER_WRITE, kvw_conn_limits(conn)->write_ns);
	}
}

void kvw_conn_refuse(
	struct kvw_conn *conn, enum kvw_conn_refusal what, int status, const char *message)
{
	conn->close_after = true;
	conn->clients->options.ops->refuse(conn, what, status, message);
}
