/*
 * answer.c - heads and bodies of answers, and what the socket did not take of them.
 *
 * Answers have no more than their reader needs: no Date, since nothing is cached by it. From Server
 * libkvtier's own client knows that a 404 to its DELETE means what it says.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/server_parts.h"

#define HEAD_BYTES  512
#define ERROR_BYTES 512
#define LINGER_NS   (UINT64_C(2) * KVW_NS_PER_S) /* lest a reset overtakes the last answer */
#define WATCH_NS    (UINT64_C(1) * KVW_NS_PER_S)

static void write_head(
	struct kvw_writer *w, const struct kvt_conn *conn, const struct kvt_answer *answer)
{
	kvw_status_line(w, answer->status);
	kvw_write_literal(w, "Server: kvtierd\r\n");
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

/* Keeps what was not taken; false: no memory for it. */
static bool keep_rest(struct kvt_conn *conn, const struct iovec *iov, int count, size_t sent)
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

/* The answer is out: what comes next? */
static void answered(struct kvt_conn *conn)
{
	bool gone = conn->io.peer_closed || conn->io.broken;

	if (!gone)
		conn->lease_id[0] = '\0'; /* it goes to a client that is there */
	if (conn->lease_id[0] != '\0') {
		/* The client had closed its side before. If it did not only stop sending, this answer
		 * makes it reset the connection, and then the lease goes back. */
		conn->state = KVT_CONN_LINGER;
		kvt_conn_timer(conn, KVT_TIMER_WATCH, WATCH_NS);
	} else if (conn->close_after) {
		conn->state = KVT_CONN_LINGER;
		kvt_conn_timer(conn, KVT_TIMER_LINGER, LINGER_NS);
		kvw_io_shutdown(&conn->io);
	} else if (conn->body_left > 0) {
		conn->state = KVT_CONN_DRAIN;
		kvt_conn_timer(conn, KVT_TIMER_BODY, conn->loop->server->config->body_ns);
	} else {
		conn->state = KVT_CONN_HEAD;
		kvt_conn_timer(conn, KVT_TIMER_IDLE, conn->loop->server->config->idle_ns);
	}
}

void kvt_conn_answer(struct kvt_conn *conn, const struct kvt_answer *answer)
{
	struct kvt_loop *loop = conn->loop;
	struct iovec iov[2];
	char head[HEAD_BYTES];
	struct kvw_writer w = KVW_WRITER(head, sizeof(head));
	int count = answer->body.len > 0 && !conn->head_method ? 2 : 1;
	ssize_t n = 0;

	conn->close_after = conn->close_after || loop->base.draining || conn->body_unread;
	write_head(&w, conn, answer);
	iov[0] = (struct iovec){head, w.len};
	iov[1] = (struct iovec){(void *)(uintptr_t)answer->body.data, answer->body.len};
	kvt_meter_answer(
		&loop->meters, conn->route, answer->status, kvw_clock_ns() - conn->begun_ns);
	if (conn->io.writable) {
		n = kvw_io_writev(&conn->io, iov, count);
		if (n < 0 && errno != EAGAIN) {
			kvt_conn_close(conn, false);
			return;
		}
		n = n < 0 ? 0 : n;
	}
	kvt_meter_add(&loop->meters, KVT_COUNT_BYTES_OUT, (uint64_t)n);
	if (!keep_rest(conn, iov, count, (size_t)n)) {
		kvt_conn_close(conn, true);
	} else if (conn->out_len > 0) {
		conn->state = KVT_CONN_SEND;
		kvt_conn_timer(conn, KVT_TIMER_WRITE, loop->server->config->write_ns);
	} else {
		answered(conn);
	}
}

void kvt_conn_flush(struct kvt_conn *conn)
{
	bool progress = false;

	while (conn->out_sent < conn->out_len && conn->io.writable) {
		struct iovec iov = {conn->out + conn->out_sent, conn->out_len - conn->out_sent};
		ssize_t n = kvw_io_writev(&conn->io, &iov, 1);

		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) {
			kvt_conn_close(conn, false);
			return;
		}
		conn->out_sent += (size_t)n;
		kvt_meter_add(&conn->loop->meters, KVT_COUNT_BYTES_OUT, (uint64_t)n);
		progress = true;
	}
	if (conn->out_sent == conn->out_len) {
		free(conn->out);
		conn->out = NULL;
		conn->out_len = conn->out_sent = 0;
		answered(conn);
	} else if (progress) {
		kvt_conn_timer(conn, KVT_TIMER_WRITE, conn->loop->server->config->write_ns);
	}
}

/* --- bodies ----------------------------------------------------------------------------------- */

void kvt_json_text(FILE *out, const char *text, size_t len)
{
	fputc('"', out);
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c == '"' || c == '\\')
			fprintf(out, "\\%c", c);
		else if (c < 0x20 || c == 0x7F)
			fprintf(out, "\\u%04x", c);
		else
			fputc(c, out);
	}
	fputc('"', out);
}

void kvt_conn_refuse(struct kvt_conn *conn, int status, const char *extra, const char *format, ...)
{
	char text[ERROR_BYTES], body[2 * ERROR_BYTES];
	size_t used;
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	used = (size_t)snprintf(body, sizeof(body), "{\"error\":\"");
	for (const char *c = text; *c != '\0' && used + 8 < sizeof(body); c++) {
		if (*c == '"' || *c == '\\')
			body[used++] = '\\';
		body[used++] = (unsigned char)*c < 0x20 ? ' ' : *c;
	}
	memcpy(body + used, "\"}", 2);
	kvt_conn_answer(conn, &(struct kvt_answer){.status = status,
				      .type = "application/json",
				      .body = {body, used + 2},
				      .extra = kvw_slice_of(extra)});
}
