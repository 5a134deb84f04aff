/*
 * reply.c - writes the answers of kvway itself: errors, health, metrics.
 */
#include "proxy/reply.h"

#include <stdio.h>
#include <string.h>

#include "admin/explanation.h"
#include "openai/error_body.h"
#include "proxy/cors.h"
#include "proxy/silence.h"

#define HEAD_ROOM 2048

static void write_common(struct kvw_writer *w, struct kvw_loop *loop, int status, size_t len,
	const char *content_type)
{
	kvw_status_line(w, status);
	kvw_write_field(w, KVW_SLICE("date"), kvw_date(&loop->date, kvw_clock_wall_ns()));
	kvw_write_literal(w, "server: kvway\r\ncontent-length: ");
	kvw_write_u64(w, len);
	kvw_write_literal(w, "\r\n");
	kvw_write_field(w, KVW_SLICE("content-type"), kvw_slice_of(content_type));
}

static void note_answered(struct kvw_exchange *x)
{
	if (x->end == KVW_END_COMPLETE)
		x->end = KVW_END_LOCAL;
	kvw_timer_clear(&x->loop->timers, &x->timer);
	kvw_timer_clear(&x->loop->timers, &x->client->timer);
	kvw_exchange_response_state(x, KVW_RESPONSE_DONE);
}

/* Notes the answer of a dry run. True: the request is a dry run, and nothing is sent. */
static bool note_dry(struct kvw_exchange *x, int status, const char *param, const char *code,
	const char *message)
{
	struct kvw_explanation *e = x->dry;

	if (e == NULL)
		return false;
	e->status = x->status = status;
	e->param = param;
	e->code = code;
	(void)snprintf(e->message, sizeof(e->message), "%s", message);
	kvw_explanation_note(e, "%s", message);
	note_answered(x);
	return true;
}

void kvw_reply(struct kvw_exchange *x, int status, const char *content_type, const char *extra,
	const char *body, size_t len)
{
	char head[HEAD_ROOM];
	struct kvw_writer w = KVW_WRITER(head, sizeof(head));
	struct iovec iov[2];

	kvw_attempt_end(x, false);
	if (!x->upload.body.done || x->loop->draining)
		x->close_client = true;
	x->status = status;
	if (x->silence.opened) {
		note_answered(x);
		kvw_silence_error(x, status, body, len);
		return;
	}
	write_common(&w, x->loop, status, len, content_type);
	if (x->request_id.len > 0 && x->request_id.len < 256)
		kvw_write_field(&w, KVW_SLICE("x-request-id"), x->request_id);
	kvw_cors_write(x, &w);
	kvw_write(&w, kvw_slice_of(extra));
	if (x->close_client)
		kvw_write_literal(&w, "connection: close\r\n");
	else if (x->client_minor == 0)
		kvw_write_literal(&w, "connection: keep-alive\r\n");
	kvw_write_literal(&w, "\r\n");
	iov[0] = (struct iovec){head, w.len};
	iov[1] = (struct iovec){(char *)body, kvw_exchange_is_head(x) ? 0 : len};
	note_answered(x);
	kvw_client_send(x->client, iov, iov[1].iov_len > 0 ? 2 : 1);
}

void kvw_reply_error_as(struct kvw_exchange *x, int status, const char *type, const char *param,
	const char *extra, const char *message)
{
	char body[2048];
	size_t len;

	if (note_dry(x, status, param, NULL, message))
		return;
	len = kvw_error_body(body, sizeof(body), x->path.api, status, type, param, message);
	if (status < 500)
		kvw_metrics_add(x->loop->metrics, KVW_COUNT_BAD_REQUESTS, 1);
	kvw_trace_text(x->trace, x->loop->now_ns, KVW_TRACE_ANSWER, 0, (uint64_t)status, message);
	kvw_reply(x, status, "application/json", extra, body, len);
}

void kvw_reply_error_code(struct kvw_exchange *x, int status, const char *type, const char *code,
	const char *extra, const char *message)
{
	char body[2048];
	size_t len;

	if (note_dry(x, status, NULL, code, message))
		return;
	len = kvw_error_body_code(
		body, sizeof(body), x->path.api, status, type, NULL, code, message);
	kvw_trace_text(x->trace, x->loop->now_ns, KVW_TRACE_ANSWER, 0, (uint64_t)status, message);
	kvw_reply(x, status, "application/json", extra, body, len);
}

void kvw_reply_error(struct kvw_exchange *x, int status, const char *message)
{
	kvw_reply_error_as(x, status, NULL, NULL, NULL, message);
}

void kvw_reply_bad_head(struct kvw_client *client, const struct kvw_head_error *error)
{
	struct kvw_loop *loop = client->loop;
	char body[1024], head[HEAD_ROOM];
	struct kvw_writer w = KVW_WRITER(head, sizeof(head));
	size_t len = kvw_error_body(body, sizeof(body), KVW_API_OTHER, error->status, NULL, NULL,
		error->message);
	struct kvw_request_record record = {
		.wall_ns = kvw_clock_wall_ns(),
		.start_ns = loop->now_ns,
		.end = error->status == 408 ? KVW_END_TIMEOUT : KVW_END_LOCAL,
		.timeout = error->status == 408 ? "timeouts.head" : NULL,
		.status = error->status,
		.client = kvw_slice_of(client->address),
		.client_certificate = kvw_slice_of(client->certificate),
		.worker_id = UINT32_MAX,
	};
	struct iovec iov[2];

	write_common(&w, loop, error->status, len, "application/json");
	if (error->status == 405)
		kvw_write_literal(&w, "allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n");
	kvw_write_literal(&w, "connection: close\r\n\r\n");
	iov[0] = (struct iovec){head, w.len};
	iov[1] = (struct iovec){body, len};
	kvw_metrics_add(loop->metrics, KVW_COUNT_BAD_REQUESTS, 1);
	kvw_metrics_record(loop->metrics, &record);
	kvw_access_log_write(loop->access_log, loop->index, &record);
	kvw_client_state(client, KVW_CLIENT_LAST);
	kvw_timer_clear(&loop->timers, &client->timer);
	kvw_client_drop_input(client);
	kvw_client_send(client, iov, 2);
	if (kvw_client_alive(client) && client->out.bytes == 0)
		kvw_client_finish(client, true);
}
