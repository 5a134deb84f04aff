/*
 * connection_body.c - reads bodies: to collect them, for the program to receive, or to discard
 * them.
 */
#include <stdlib.h>
#include <string.h>

#include "server/connection_parts.h"

/* --- received --------------------------------------------------------------------------------- */

void kvw_conn_took(struct kvw_conn *conn, uint64_t bytes)
{
	conn->body_left -= bytes < conn->body_left ? bytes : conn->body_left;
	conn->body_got += bytes;
	if (kvw_conn_limits(conn)->body_pauses && bytes > 0)
		kvw_conn_timer(conn, KVW_CONN_TIMER_BODY, kvw_conn_limits(conn)->body_ns);
}

bool kvw_conn_receive(struct kvw_conn *conn, void (*receive)(struct kvw_conn *conn))
{
	static char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
	struct iovec iov = {text, sizeof(text) - 1};

	conn->state = KVW_CONN_BODY;
	conn->receive = receive;
	conn->body_unread = false;
	if (!conn->expects || conn->in_end > conn->in_begin)
		return true; /* the client sends the body without a "100 Continue" */
	if (kvw_io_writev(&conn->io, &iov, 1) == (ssize_t)iov.iov_len)
		return true;
	kvw_conn_close(conn, true);
	return false;
}

/* --- collected -------------------------------------------------------------------------------- */

static void keep_bytes(void *arg, const char *data, size_t len)
{
	kvw_page_put(&((struct kvw_whole_body *)arg)->text, data, len);
}

static void refuse_body(struct kvw_conn *conn, enum kvw_err err)
{
	conn->body_unread = true;
	if (err == KVW_ELIMIT)
		kvw_conn_refuse(conn, KVW_CONN_BAD_BODY, 413, "the body is too large");
	else if (err == KVW_EPROTO)
		kvw_conn_refuse(conn, KVW_CONN_BAD_BODY, 400, conn->whole->reader.error);
	else
		kvw_conn_refuse(conn, KVW_CONN_BAD_BODY, 503, "out of memory");
}

static void hand_over_body(struct kvw_conn *conn)
{
	struct kvw_clients *clients = conn->clients;
	struct kvw_whole_body *whole = conn->whole;
	struct kvw_head_error error;

	conn->body_left = 0;
	kvw_timer_clear(&clients->loop.timers, &conn->timer);
	if (kvw_head_parse_request(&clients->head, whole->head, whole->head_len, &error) == KVW_OK)
		clients->options.ops->request(conn);
	else /* no error so far */
		kvw_conn_refuse(conn, KVW_CONN_BAD_HEAD, error.status, error.message);
}

/* Takes bytes of the body from the buffer. Returns true if some were taken and the body is not
 * complete. */
static bool collect_buffered(struct kvw_conn *conn)
{
	struct kvw_whole_body *whole = conn->whole;
	size_t have = conn->in_end - conn->in_begin, used = 0;
	enum kvw_err err;

	if (have == 0) {
		conn->in_begin = conn->in_end = 0; /* the head may have filled the buffer */
		return true;
	}
	err = kvw_body_feed(
		&whole->reader, conn->in + conn->in_begin, have, keep_bytes, whole, &used);
	if (err != KVW_OK || whole->text.failed) {
		refuse_body(conn, err != KVW_OK ? err : KVW_ENOMEM);
		return false;
	}
	conn->in_begin += used;
	kvw_conn_took(conn, used);
	if (whole->reader.done) {
		hand_over_body(conn);
		return false;
	}
	conn->in_begin = conn->in_end = 0;
	return true;
}

static void collect_body(struct kvw_conn *conn)
{
	uint64_t until = conn->body_got + KVW_CONN_AT_ONCE;

	while (collect_buffered(conn))
		if (conn->body_got >= until || !kvw_conn_read(conn))
			break;
	if (conn->state == KVW_CONN_BODY && conn->io.readable)
		kvw_io_again(&conn->io);
}

void kvw_conn_collect(struct kvw_conn *conn, const char *data, size_t len)
{
	const struct kvw_head *head = &conn->clients->head;
	uint64_t most = kvw_conn_limits(conn)->body_most;

	if (head->framing == KVW_FRAME_LENGTH && head->content_length > most) {
		refuse_body(conn, KVW_ELIMIT);
		return;
	}
	conn->whole = malloc(sizeof(*conn->whole) + len);
	if (conn->whole == NULL) {
		refuse_body(conn, KVW_ENOMEM);
		return;
	}
	conn->whole->text = (struct kvw_page){0};
	conn->whole->head_len = len;
	memcpy(conn->whole->head, data, len);
	kvw_body_begin(&conn->whole->reader, head->framing, head->content_length, most);
	if (conn->whole->reader.done)
		hand_over_body(conn);
	else
		(void)!kvw_conn_receive(conn, collect_body);
}

/* --- thrown away ------------------------------------------------------------------------------ */

/* Drops those bytes of the body that are in the buffer; returns their number. */
static size_t skip_buffered(struct kvw_conn *conn)
{
	size_t have = conn->in_end - conn->in_begin;

	if (have > conn->body_left)
		have = (size_t)conn->body_left;
	conn->in_begin += have;
	kvw_conn_took(conn, have);
	return have;
}

bool kvw_conn_drain(struct kvw_conn *conn)
{
	char scratch[64 << 10];
	size_t done = skip_buffered(conn);

	while (conn->body_left > 0 && conn->io.readable && done < KVW_CONN_AT_ONCE) {
		size_t room = conn->body_left < sizeof(scratch) ? (size_t)conn->body_left
								: sizeof(scratch);
		struct iovec iov = {scratch, room};
		ssize_t n = kvw_io_readv(&conn->io, &iov, 1, room);

		if (n == 0 || (n < 0 && errno != EAGAIN)) {
			kvw_conn_close(conn, false);
			return false;
		}
		if (n < 0)
			return false;
		kvw_conn_took(conn, (uint64_t)n);
		done += (size_t)n;
	}
	if (conn->body_left == 0) {
		kvw_conn_rest(conn);
		return true;
	}
	if (conn->io.readable)
		kvw_io_again(&conn->io);
	return false;
}

/* Closing while unread bytes are in the kernel would reset the connection, and the answer could be
 * lost with it. */
void kvw_conn_linger(struct kvw_conn *conn)
{
	char scratch[64 << 10];
	size_t done = 0;
	ssize_t n = 1;

	kvw_conn_drop_input(conn);
	while (n > 0 && conn->io.readable && done < KVW_CONN_AT_ONCE) {
		struct iovec iov = {scratch, sizeof(scratch)};

		n = kvw_io_readv(&conn->io, &iov, 1, sizeof(scratch));
		done += n > 0 ? (size_t)n : 0;
	}
	if (n < 0 && errno != EAGAIN)
		kvw_conn_close(conn, false);
	else if (n == 0 && !conn->until_read)
		kvw_conn_close(conn, false);
	else if (n > 0 && conn->io.readable)
		kvw_io_again(&conn->io);
	else if (n == 0)
		conn->io.readable = false; /* only a reset matters now */
}
