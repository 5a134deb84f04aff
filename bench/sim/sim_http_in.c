/*
 * sim_http_in.c - from bytes to requests.
 *
 * llhttp is paused at the end of each request and goes on when its answer is complete; what the
 * client has sent meanwhile (pipelining) waits in the connection.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "bench/sim/sim_http_conn.h"

#define HEADERS_MOST (1024 * 1024)
#define RESERVE_MOST (64 * 1024 * 1024)
#define BODY_KEEP    (256 * 1024) /* bytes of body memory kept for the next request */

/* Passes the request that was just read to the worker, unless a fault prevents it. */
void kvb_conn_dispatch(struct kvb_conn *conn)
{
	if (!kvb_conn_play_faults(conn))
		conn->http->ops->request(conn->http->user, conn, &conn->request);
}

static void fill_request(struct kvb_conn *conn)
{
	struct kvb_request *request = &conn->request;
	char *question;

	kvb_buf_add(&conn->target, "", 1);
	request->method = llhttp_method_name(conn->parser.method);
	request->path = conn->target.data;
	request->query = "";
	question = strchr(conn->target.data, '?');
	if (question != NULL) {
		*question = '\0';
		request->query = question + 1;
	}
	request->headers = conn->headers.data;
	request->headers_len = conn->headers.len;
	request->body = conn->body.data;
	request->body_len = conn->body.len;
	request->http_minor = conn->parser.http_minor;
}

void kvb_conn_ready(struct kvb_conn *conn)
{
	kvb_buf_clear(&conn->target);
	kvb_buf_clear(&conn->headers);
	kvb_buf_clear(&conn->body);
	if (conn->body.capacity > BODY_KEEP)
		kvb_buf_finish(&conn->body); /* a huge body's memory is not kept */
	conn->state = KVB_CONN_READING;
	conn->early = false;
	conn->content_events = 0;
	llhttp_resume(&conn->parser);
	kvb_conn_watch(conn, false);
	if (!conn->feeding && conn->pending.len > 0) {
		struct kvb_buf input = conn->pending;

		conn->pending = (struct kvb_buf){0};
		kvb_conn_feed(conn, input.data, input.len);
		kvb_buf_finish(&input);
	}
	if (conn->state == KVB_CONN_READING && conn->pending.len == 0 && conn->target.len == 0)
		kvb_conn_idle(conn);
}

static int on_begin(llhttp_t *parser)
{
	struct kvb_conn *conn = parser->data;

	kvb_conn_busy(conn);
	conn->too_large = false;
	return 0;
}

static int on_url(llhttp_t *parser, const char *data, size_t len)
{
	struct kvb_conn *conn = parser->data;

	kvb_buf_add(&conn->target, data, len);
	return conn->target.len > HEADERS_MOST ? -1 : 0;
}

static int on_header_bytes(llhttp_t *parser, const char *data, size_t len)
{
	struct kvb_conn *conn = parser->data;

	kvb_buf_add(&conn->headers, data, len);
	return conn->headers.len > HEADERS_MOST ? -1 : 0;
}

static int on_field_end(llhttp_t *parser)
{
	kvb_buf_add(&((struct kvb_conn *)parser->data)->headers, ": ", 2);
	return 0;
}

static int on_value_end(llhttp_t *parser)
{
	kvb_buf_add(&((struct kvb_conn *)parser->data)->headers, "\n", 1);
	return 0;
}

/* Faults of the request itself win over those that were set for the worker. */
static void find_faults(struct kvb_conn *conn)
{
	struct kvb_request head = {.headers = conn->headers.data, .headers_len = conn->headers.len};
	const char *value;
	size_t len;

	kvb_fail_init(&conn->fail);
	if (kvb_request_header(&head, "x-sim-fail", &value, &len)) {
		if (!kvb_fail_parse(value, len, &conn->fail))
			conn->fail.value[KVB_FAIL_STATUS] =
				599; /* a test with a typo must not pass */
		return;
	}
	if (conn->parser.method == HTTP_POST)
		conn->http->ops->faults(conn->http->user, &conn->fail);
}

static int on_headers_end(llhttp_t *parser)
{
	struct kvb_conn *conn = parser->data;
	struct kvb_request head = {.headers = conn->headers.data, .headers_len = conn->headers.len};
	const char *value;
	size_t len;

	parser->upgrade = 0; /* no protocol to change to: an ordinary request, as in uvicorn */
	conn->keep_alive = llhttp_should_keep_alive(parser) != 0;
	conn->request.http_minor = parser->http_minor;
	find_faults(conn);
	if (kvb_fail_on(&conn->fail, KVB_FAIL_EARLY_RESPONSE)) {
		conn->early = true;
		kvb_conn_reply_error(conn, (int)conn->fail.value[KVB_FAIL_EARLY_RESPONSE],
			"Answered before the body was read");
		return conn->state == KVB_CONN_READING ? 0 : -1;
	}
	if (kvb_request_header(&head, "expect", &value, &len) && parser->http_minor > 0 &&
		len == 12 && strncasecmp(value, "100-continue", 12) == 0) {
		kvb_buf_text(&conn->out, "HTTP/1.1 100 Continue\r\n\r\n");
		kvb_conn_flush(conn);
	}
	if (!conn->http->config.discard_bodies && (parser->flags & F_CONTENT_LENGTH) != 0 &&
		parser->content_length > 0)
		kvb_buf_reserve(&conn->body, parser->content_length < RESERVE_MOST
						     ? parser->content_length
						     : RESERVE_MOST);
	return 0;
}

static int on_body(llhttp_t *parser, const char *data, size_t len)
{
	struct kvb_conn *conn = parser->data;

	if (conn->early || conn->http->config.discard_bodies)
		return 0;
	if (conn->body.len + len > conn->http->config.max_body)
		conn->too_large = true;
	else
		kvb_buf_add(&conn->body, data, len);
	return 0;
}

static int on_message_end(llhttp_t *parser)
{
	(void)parser;
	return HPE_PAUSED; /* the rest waits for the answer */
}

static void start_request(struct kvb_conn *conn)
{
	if (conn->early) {
		kvb_conn_ready(conn);
		return;
	}
	conn->state = KVB_CONN_BUSY;
	fill_request(conn);
	if (conn->state != KVB_CONN_BUSY)
		return;
	if (conn->too_large) {
		conn->keep_alive = false;
		kvb_conn_reply_error(conn, 413, "Request body too large");
	} else if (kvb_fail_on(&conn->fail, KVB_FAIL_DELAY_MS)) {
		kvb_conn_set_timer(conn, KVB_TIMER_DELAY, conn->fail.value[KVB_FAIL_DELAY_MS]);
	} else {
		kvb_conn_dispatch(conn);
	}
}

/* Answers input that is not HTTP, as uvicorn does. */
static void refuse(struct kvb_conn *conn)
{
	static const char text[] = "Invalid HTTP request received.";

	kvb_buf_printf(&conn->out,
		"HTTP/1.1 400 Bad Request\r\n%scontent-type: text/plain; charset=utf-8\r\n"
		"content-length: %zu\r\nconnection: close\r\n\r\n%s",
		kvb_http_date(conn->http), sizeof(text) - 1, text);
	conn->state = KVB_CONN_CLOSING;
	kvb_conn_flush(conn);
}

void kvb_conn_feed(struct kvb_conn *conn, const char *data, size_t len)
{
	conn->feeding = true;
	while (len > 0 && conn->state == KVB_CONN_READING) {
		llhttp_errno_t error = llhttp_execute(&conn->parser, data, len);
		const char *stop = llhttp_get_error_pos(&conn->parser);

		if (error == HPE_OK) {
			len = 0;
		} else if (error == HPE_PAUSED) {
			len -= (size_t)(stop - data);
			data = stop;
			start_request(conn);
		} else if (conn->state == KVB_CONN_READING) {
			refuse(conn);
		}
	}
	conn->feeding = false;
	if (len > 0 && conn->state == KVB_CONN_BUSY)
		kvb_buf_add(&conn->pending, data, len);
}

void kvb_http_set_callbacks(struct kvb_http *http)
{
	llhttp_settings_init(&http->settings);
	http->settings.on_message_begin = on_begin;
	http->settings.on_url = on_url;
	http->settings.on_header_field = on_header_bytes;
	http->settings.on_header_value = on_header_bytes;
	http->settings.on_header_field_complete = on_field_end;
	http->settings.on_header_value_complete = on_value_end;
	http->settings.on_headers_complete = on_headers_end;
	http->settings.on_body = on_body;
	http->settings.on_message_complete = on_message_end;
}
