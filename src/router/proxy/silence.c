/* silence.c - bytes for a client whose stream waits (http.keep_alive_comments). */
#include "proxy/silence.h"

#include <string.h>

#include "openai/error_body.h"
#include "proxy/cors.h"

#define COMMENT   ": keep-alive\n\n"
#define HEAD_ROOM 2048
/* longest event of an error in bytes; a longer one is replaced by the bare status */
#define EVENT     ((size_t)8 << 10)

static bool in_chunks(const struct kvw_exchange *x)
{
	return x->client_minor > 0;
}

static void send_piece(struct kvw_exchange *x, const char *data, size_t len)
{
	char line[24];
	struct kvw_writer w = KVW_WRITER(line, sizeof(line));
	struct iovec iov[3];

	kvw_chunk_line(&w, len);
	iov[0] = (struct iovec){line, w.len};
	iov[1] = (struct iovec){(char *)data, len};
	iov[2] = (struct iovec){(char *)KVW_CHUNK_END, sizeof(KVW_CHUNK_END) - 1};
	if (in_chunks(x))
		kvw_client_send(x->client, iov, 3);
	else
		kvw_client_send(x->client, iov + 1, 1);
}

/* Sends the head of a stream, before any worker has begun one. */
static void send_own_head(struct kvw_exchange *x)
{
	char head[HEAD_ROOM];
	struct kvw_writer w = KVW_WRITER(head, sizeof(head));
	struct iovec iov;

	if (x->loop->draining || !in_chunks(x))
		x->close_client = true;
	kvw_status_line(&w, 200);
	kvw_write_field(&w, KVW_SLICE("date"), kvw_date(&x->loop->date, kvw_clock_wall_ns()));
	kvw_write_literal(&w, "server: kvway\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
			      "cache-control: no-cache\r\n");
	if (x->request_id.len > 0 && x->request_id.len < 256)
		kvw_write_field(&w, KVW_SLICE("x-request-id"), x->request_id);
	kvw_cors_write(x, &w);
	if (in_chunks(x))
		kvw_write_literal(&w, "transfer-encoding: chunked\r\n");
	if (x->close_client)
		kvw_write_literal(&w, "connection: close\r\n");
	kvw_write_literal(&w, "\r\n");
	iov = (struct iovec){head, w.len};
	kvw_client_send(x->client, &iov, 1);
}

/* Opens the answer for the client. False: a worker's held head is not one of a stream whose length
 * is open. */
static bool open_answer(struct kvw_exchange *x)
{
	struct kvw_held *held = &x->attempt.held;
	bool chunked = x->pass == KVW_PASS_RAW && x->attempt.answer.framing == KVW_FRAME_CHUNKED;
	struct iovec iov;

	if (held->head == NULL) {
		send_own_head(x);
	} else {
		if (x->status != 200 || !x->event_stream || (x->pass == KVW_PASS_RAW && !chunked))
			return false;
		iov = (struct iovec){held->head->data, held->head_len};
		kvw_client_send(x->client, &iov, 1);
		held->head->begin = held->head_len;
	}
	x->silence.opened = true;
	return true;
}

void kvw_silence_comment(struct kvw_exchange *x)
{
	if (kvw_exchange_ended(x) || kvw_exchange_answering(x) || !x->streams ||
		!x->upload.body.done || !kvw_exchange_computes(x) || x->client->out.bytes > 0 ||
		!kvw_client_alive(x->client))
		return;
	if (x->silence.opened || open_answer(x))
		send_piece(x, COMMENT, sizeof(COMMENT) - 1);
}

void kvw_silence_await(struct kvw_exchange *x)
{
	if (x->config->keep_alive_comments_ms > 0 && x->streams && !kvw_exchange_answering(x) &&
		kvw_exchange_computes(x) && !kvw_timer_running(&x->silence.timer))
		kvw_loop_timer(x->loop, &x->silence.timer, KVW_TIMER_SILENCE,
			x->config->keep_alive_comments_ms);
}

enum kvw_pass kvw_silence_pass(const struct kvw_exchange *x, const struct kvw_head *head)
{
	if (head->status != 200 || !head->event_stream)
		return KVW_PASS_EVENT;
	if (!in_chunks(x))
		return KVW_PASS_PAYLOAD;
	return head->framing == KVW_FRAME_CHUNKED ? KVW_PASS_RAW : KVW_PASS_REFRAME;
}

void kvw_silence_error(struct kvw_exchange *x, int status, const char *body, size_t len)
{
	struct iovec last = {(char *)KVW_CHUNK_LAST, sizeof(KVW_CHUNK_LAST) - 1};
	char event[EVENT], own[512];
	size_t size = kvw_error_event(event, sizeof(event), x->path.api, body, len);

	if (size == 0) {
		len = kvw_error_body(own, sizeof(own), x->path.api, status, NULL, NULL,
			"the worker answered no stream");
		size = kvw_error_event(event, sizeof(event), x->path.api, own, len);
	}
	send_piece(x, event, size);
	if (in_chunks(x))
		kvw_client_send(x->client, &last, 1);
}

void kvw_silence_held(struct kvw_exchange *x)
{
	char body[EVENT];
	size_t len = 0;

	for (const struct kvw_block *b = x->attempt.held.body.first;
		b != NULL && len < sizeof(body); b = b->next) {
		size_t n = kvw_block_used(b) < sizeof(body) - len ? kvw_block_used(b)
								  : sizeof(body) - len;

		memcpy(body + len, b->data + b->begin, n);
		len += n;
	}
	kvw_exchange_response_state(x, KVW_RESPONSE_STREAMING);
	kvw_silence_error(x, x->status, body, len);
}
