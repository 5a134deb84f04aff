/*
 * sim_fixed.c - the prepared answer, and the queue of streams.
 */
#include <event2/event.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/clock.h"
#include "bench/sim/sim_fixed.h"
#include "bench/sim/sim_http.h"
#include "bench/sim/sim_options.h"

/* One stream that is being sent. */
struct stream {
	TAILQ_ENTRY(stream) due;
	struct kvb_conn *conn;
	int64_t next_ns; /* monotonic */
	uint32_t sent;   /* events */
};

TAILQ_HEAD(stream_list, stream);

struct kvb_fixed {
	const struct kvb_options *options;
	struct event *ev_tick;
	struct stream_list due; /* by next_ns */
	struct kvb_buf body;    /* body of --fixed-response */
	struct kvb_buf answer;  /* head and body, of the second below */
	char date_text[80];     /* date in the answer's head */
	char *event;            /* owned; --fixed-stream's event, stream_bytes long */
};

static void on_tick(evutil_socket_t fd, short what, void *arg);

/* {"id":"cmpl-fixed",...,"pad":"xxx"} of exactly that size (at least 2), or spaces in braces if
 * that is too small. */
static void fill_body(struct kvb_buf *body, size_t size)
{
	static const char start[] =
		"{\"id\":\"cmpl-fixed\",\"object\":\"text_completion\",\"text\":\"";
	static const char end[] = "\"}";
	size_t frame = sizeof(start) + sizeof(end) - 2;

	kvb_buf_reserve(body, size);
	body->len = size;
	if (size < frame) {
		memset(body->data, ' ', size);
		body->data[0] = '{';
		body->data[size - 1] = '}';
		return;
	}
	memset(body->data, 'x', size);
	memcpy(body->data, start, sizeof(start) - 1);
	memcpy(body->data + size - (sizeof(end) - 1), end, sizeof(end) - 1);
}

struct kvb_fixed *kvb_fixed_create(struct event_base *base, const struct kvb_options *options)
{
	struct kvb_fixed *fixed = calloc(1, sizeof(*fixed));

	if (fixed == NULL)
		return NULL;
	fixed->options = options;
	TAILQ_INIT(&fixed->due);
	fixed->ev_tick = evtimer_new(base, on_tick, fixed);
	fixed->event = malloc((size_t)options->stream_bytes + 64);
	if (options->fixed_response != 0)
		fill_body(&fixed->body, options->fixed_response);
	if (fixed->ev_tick == NULL || fixed->event == NULL) {
		kvb_fixed_destroy(fixed);
		return NULL;
	}
	return fixed;
}

void kvb_fixed_destroy(struct kvb_fixed *fixed)
{
	struct stream *stream;

	if (fixed == NULL)
		return;
	while ((stream = TAILQ_FIRST(&fixed->due)) != NULL)
		kvb_fixed_gone(fixed, stream);
	if (fixed->ev_tick != NULL)
		event_free(fixed->ev_tick);
	kvb_buf_finish(&fixed->body);
	kvb_buf_finish(&fixed->answer);
	free(fixed->event);
	free(fixed);
}

static void answer_at_once(struct kvb_fixed *fixed, struct kvb_http *http, struct kvb_conn *conn)
{
	const char *date = kvb_http_date(http);

	if (fixed->answer.len == 0 || strcmp(date, fixed->date_text) != 0) {
		snprintf(fixed->date_text, sizeof(fixed->date_text), "%s", date);
		kvb_buf_clear(&fixed->answer);
		kvb_buf_printf(&fixed->answer,
			"HTTP/1.1 200 OK\r\n%scontent-length: %zu\r\ncontent-type: "
			"application/json\r\n"
			"vary: Origin\r\n\r\n",
			date, fixed->body.len);
		kvb_buf_add(&fixed->answer, fixed->body.data, fixed->body.len);
	}
	kvb_http_raw(conn, fixed->answer.data, fixed->answer.len);
}

static void send_event(struct kvb_fixed *fixed, struct stream *stream)
{
	size_t size = fixed->options->stream_bytes;
	int n = snprintf(fixed->event, size, "data: {\"sim_ns\":%lld,\"seq\":%u,\"pad\":\"",
		(long long)kvw_clock_ns(), stream->sent);

	memset(fixed->event + n, 'x', size - (size_t)n - 4);
	memcpy(fixed->event + size - 4, "\"}\n\n", 4);
	stream->sent++;
	kvb_http_stream_chunk(stream->conn, fixed->event, size, true);
}

static void arm(struct kvb_fixed *fixed, int64_t now_ns)
{
	struct stream *first = TAILQ_FIRST(&fixed->due);
	int64_t us;
	struct timeval tv;

	if (first == NULL)
		return;
	us = first->next_ns > now_ns ? (first->next_ns - now_ns + 999) / 1000 : 0;
	tv = (struct timeval){us / 1000000, us % 1000000};
	event_add(fixed->ev_tick, &tv);
}

static void end_stream(struct kvb_fixed *fixed, struct stream *stream)
{
	static const char done[] = "data: [DONE]\n\n";
	struct kvb_conn *conn = stream->conn;

	kvb_fixed_gone(fixed, stream);
	kvb_conn_set_exchange(conn, NULL);
	kvb_http_stream_chunk(conn, done, sizeof(done) - 1, false);
	kvb_http_stream_end(conn);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct kvb_fixed *fixed = arg;
	int64_t interval_ns = (int64_t)(fixed->options->stream_interval_ms * 1e6);
	int64_t now_ns = kvw_clock_ns();
	struct stream *stream, *last = TAILQ_LAST(&fixed->due, stream_list);

	(void)fd;
	(void)what;
	while ((stream = TAILQ_FIRST(&fixed->due)) != NULL && stream->next_ns <= now_ns) {
		bool round_done = stream == last;

		send_event(fixed, stream);
		TAILQ_REMOVE(&fixed->due, stream, due);
		stream->next_ns += interval_ns;
		TAILQ_INSERT_TAIL(&fixed->due, stream, due);
		if (stream->sent == fixed->options->stream_chunks)
			end_stream(fixed, stream);
		if (round_done)
			/* sending is behind schedule: the loop turns before the next round */
			break;
	}
	arm(fixed, kvw_clock_ns());
}

void kvb_fixed_request(struct kvb_fixed *fixed, struct kvb_http *http, struct kvb_conn *conn)
{
	struct stream *stream;

	if (fixed->options->stream_chunks == 0) {
		answer_at_once(fixed, http, conn);
		return;
	}
	stream = calloc(1, sizeof(*stream));
	if (stream == NULL) {
		kvb_http_reply(conn, &(struct kvb_reply){.status = 503}, "", 0);
		return;
	}
	stream->conn = conn;
	stream->next_ns = kvw_clock_ns() + (int64_t)(fixed->options->stream_interval_ms * 1e6);
	kvb_conn_set_exchange(conn, stream);
	TAILQ_INSERT_TAIL(&fixed->due, stream, due);
	kvb_http_stream_begin(conn, "text/event-stream; charset=utf-8");
	if (TAILQ_FIRST(&fixed->due) == stream)
		arm(fixed, kvw_clock_ns());
}

void kvb_fixed_gone(struct kvb_fixed *fixed, void *stream)
{
	struct stream *s = stream;

	TAILQ_REMOVE(&fixed->due, s, due);
	free(s);
}
