/*
 * sim_http_out.c - writing answers, and playing the faults that a test asked for.
 *
 * An answer goes into the connection's buffer and is written at once; only what the socket does
 * not take waits for writability. A write error never ends the connection on the spot, since the
 * worker may be in the middle of producing the answer: it is marked broken and ended by its own
 * read event in the same turn of the loop.
 *
 * A fault that cuts an answer short (`cut`) lets what was written so far go out, then waits a
 * moment, so that the peer has read it before the reset arrives, and ends the connection.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/sim/sim_http_conn.h"

#define CUT_MS   20
#define OUT_KEEP (64 * 1024) /* bytes of buffer kept for the next answer */

bool kvb_request_header(
	const struct kvb_request *request, const char *name, const char **value, size_t *len)
{
	const char *at = request->headers;
	const char *end = at == NULL ? NULL : at + request->headers_len;
	size_t name_len = strlen(name);

	while (at < end) {
		const char *line_end = memchr(at, '\n', (size_t)(end - at));

		if (line_end == NULL)
			break;
		if ((size_t)(line_end - at) >= name_len + 2 && at[name_len] == ':' &&
			strncasecmp(at, name, name_len) == 0) {
			*value = at + name_len + 2;
			*len = (size_t)(line_end - *value);
			return true;
		}
		at = line_end + 1;
	}
	return false;
}

void kvb_conn_set_exchange(struct kvb_conn *conn, void *exchange)
{
	conn->exchange = exchange;
}

const struct kvb_fail *kvb_conn_fail(const struct kvb_conn *conn)
{
	return &conn->fail;
}

const struct kvb_request *kvb_conn_request(const struct kvb_conn *conn)
{
	return &conn->request;
}

const char *kvb_http_reason(int status)
{
	static const struct {
		int status;
		const char *reason;
	} reasons[] = {{200, "OK"}, {400, "Bad Request"}, {403, "Forbidden"}, {404, "Not Found"},
		{405, "Method Not Allowed"}, {408, "Request Timeout"},
		{413, "Request Entity Too Large"}, {429, "Too Many Requests"},
		{500, "Internal Server Error"}, {501, "Not Implemented"}, {502, "Bad Gateway"},
		{503, "Service Unavailable"}, {504, "Gateway Timeout"}};

	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		if (reasons[i].status == status)
			return reasons[i].reason;
	return "Simulated";
}

const char *kvb_http_date(struct kvb_http *http)
{
	time_t now = time(NULL);
	struct tm tm;

	if (http->date_s != now || http->date[0] == '\0') {
		gmtime_r(&now, &tm);
		strftime(http->date, sizeof(http->date),
			"date: %a, %d %b %Y %H:%M:%S GMT\r\nserver: uvicorn\r\n", &tm);
		http->date_s = now;
	}
	return http->date;
}

void kvb_conn_set_timer(struct kvb_conn *conn, enum kvb_conn_timer what, int64_t ms)
{
	struct timeval tv = {ms / 1000, ms % 1000 * 1000};

	conn->timer_for = what;
	evtimer_add(&conn->ev_timer, &tv);
}

/* Everything buffered is out. */
static void drained(struct kvb_conn *conn)
{
	if (conn->out.capacity > OUT_KEEP)
		kvb_buf_finish(&conn->out);
	kvb_buf_clear(&conn->out);
	conn->out_pos = 0;
	if (conn->cut == KVB_CUT_CLOSE || conn->cut == KVB_CUT_RESET) {
		if (conn->timer_for != KVB_TIMER_CUT)
			kvb_conn_set_timer(conn, KVB_TIMER_CUT, CUT_MS);
	} else if (conn->state == KVB_CONN_CLOSING) {
		kvb_conn_end(conn, false);
	}
}

void kvb_conn_flush(struct kvb_conn *conn)
{
	int64_t split = conn->fail.value[KVB_FAIL_CHUNK];

	if (conn->state == KVB_CONN_DEAD || conn->broken || conn->timer_for == KVB_TIMER_SPLIT)
		return;
	while (conn->out_pos < conn->out.len) {
		size_t left = conn->out.len - conn->out_pos;
		size_t most = split > 0 && left > (size_t)split ? (size_t)split : left;
		ssize_t n = write(conn->fd, conn->out.data + conn->out_pos, most);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			event_add(&conn->ev_write, NULL);
			return;
		}
		if (n < 0) {
			conn->broken = true;
			event_active(&conn->ev_read, EV_READ, 0);
			return;
		}
		conn->out_pos += (size_t)n;
		if (split > 0 && conn->out_pos < conn->out.len) {
			int64_t ms = conn->fail.value[KVB_FAIL_CHUNK_MS];

			kvb_conn_set_timer(conn, KVB_TIMER_SPLIT, ms > 0 ? ms : 0);
			return;
		}
	}
	drained(conn);
}

void kvb_conn_timer_fired(struct kvb_conn *conn)
{
	enum kvb_conn_timer what = conn->timer_for;

	conn->timer_for = KVB_TIMER_NONE;
	if (what == KVB_TIMER_DELAY)
		kvb_conn_dispatch(conn);
	else if (what == KVB_TIMER_SPLIT)
		kvb_conn_flush(conn);
	else if (what == KVB_TIMER_CUT)
		kvb_conn_end(conn, conn->cut == KVB_CUT_RESET);
}

bool kvb_conn_play_faults(struct kvb_conn *conn)
{
	const struct kvb_fail *fail = &conn->fail;

	if (kvb_fail_on(fail, KVB_FAIL_HANG))
		return true;
	if (kvb_fail_on(fail, KVB_FAIL_RESET_BEFORE_HEAD)) {
		kvb_conn_end(conn, true);
		return true;
	}
	if (kvb_fail_on(fail, KVB_FAIL_CLOSE_BEFORE_HEAD) ||
		(kvb_fail_on(fail, KVB_FAIL_STALE_CLOSE) && conn->served > 0)) {
		kvb_conn_end(conn, false);
		return true;
	}
	if (kvb_fail_on(fail, KVB_FAIL_STATUS)) {
		kvb_conn_reply_error(conn, (int)fail->value[KVB_FAIL_STATUS], "Simulated failure");
		return true;
	}
	return false;
}

/* Stops the answer here, if the fault was asked for. */
static void cut_if(struct kvb_conn *conn, enum kvb_fail_kind kind, enum kvb_conn_cut cut)
{
	if (conn->cut == KVB_CUT_NONE && kvb_fail_on(&conn->fail, kind))
		conn->cut = cut;
}

static void cut_after_head(struct kvb_conn *conn)
{
	cut_if(conn, KVB_FAIL_RESET_AFTER_HEAD, KVB_CUT_RESET);
	cut_if(conn, KVB_FAIL_CLOSE_AFTER_HEAD, KVB_CUT_CLOSE);
	cut_if(conn, KVB_FAIL_HANG_AFTER_HEAD, KVB_CUT_HANG);
}

static void cut_after_tokens(struct kvb_conn *conn)
{
	static const struct {
		enum kvb_fail_kind kind;
		enum kvb_conn_cut cut;
	} cuts[] = {{KVB_FAIL_RESET_AFTER_TOKENS, KVB_CUT_RESET},
		{KVB_FAIL_CLOSE_AFTER_TOKENS, KVB_CUT_CLOSE},
		{KVB_FAIL_HANG_AFTER_TOKENS, KVB_CUT_HANG}};

	for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++)
		if (kvb_fail_on(&conn->fail, cuts[i].kind) &&
			conn->content_events >= (uint64_t)conn->fail.value[cuts[i].kind])
			cut_if(conn, cuts[i].kind, cuts[i].cut);
}

static void add_request_id(struct kvb_conn *conn)
{
	struct kvb_http *http = conn->http;
	const char *value;
	size_t len;
	uint64_t a, b;

	if (!http->config.request_id_headers)
		return;
	if (kvb_request_header(&conn->request, "x-request-id", &value, &len)) {
		kvb_buf_printf(&conn->out, "x-request-id: %.*s\r\n", (int)len, value);
		return;
	}
	a = http->id_state += UINT64_C(0x9e3779b97f4a7c15);
	a = (a ^ a >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	b = (a ^ a >> 27) * UINT64_C(0x94d049bb133111eb);
	kvb_buf_printf(&conn->out, "x-request-id: %016llx%016llx\r\n",
		(unsigned long long)(a ^ a >> 31), (unsigned long long)(b ^ b >> 29));
}

/* Status line and the fields up to server:, with the faults that touch them. */
static void add_head_start(struct kvb_conn *conn, int status)
{
	const struct kvb_fail *fail = &conn->fail;

	if (kvb_fail_on(fail, KVB_FAIL_INFORM))
		kvb_buf_printf(&conn->out, "HTTP/1.1 %d Informational\r\nx-sim: inform\r\n\r\n",
			(int)fail->value[KVB_FAIL_INFORM]);
	if (kvb_fail_on(fail, KVB_FAIL_MALFORMED_HEAD))
		kvb_buf_text(&conn->out, "HTTP/1.1 two hundred\r\n");
	else
		kvb_buf_printf(&conn->out, "HTTP/1.1 %d %s\r\n", status, kvb_http_reason(status));
	kvb_buf_text(&conn->out, kvb_http_date(conn->http));
	if (kvb_fail_on(fail, KVB_FAIL_BIG_HEAD)) {
		kvb_buf_text(&conn->out, "x-sim-big: ");
		for (int64_t i = 0; i < fail->value[KVB_FAIL_BIG_HEAD]; i++)
			kvb_buf_add(&conn->out, "b", 1);
		kvb_buf_text(&conn->out, "\r\n");
	}
}

/* The answer is complete. */
static void finish(struct kvb_conn *conn)
{
	const struct kvb_fail *fail = &conn->fail;

	conn->served++;
	if (!conn->keep_alive || kvb_fail_on(fail, KVB_FAIL_CLOSE_AFTER) ||
		kvb_fail_on(fail, KVB_FAIL_SHORT_BODY) || kvb_fail_on(fail, KVB_FAIL_NO_LENGTH))
		conn->state = KVB_CONN_CLOSING;
	kvb_conn_flush(conn);
	if (conn->state == KVB_CONN_BUSY)
		kvb_conn_ready(conn);
}

void kvb_http_reply(
	struct kvb_conn *conn, const struct kvb_reply *reply, const char *body, size_t len)
{
	const struct kvb_fail *fail = &conn->fail;
	size_t promised = len;

	if (conn->state == KVB_CONN_DEAD || conn->cut != KVB_CUT_NONE)
		return;
	if (kvb_fail_on(fail, KVB_FAIL_SHORT_BODY))
		promised += (size_t)fail->value[KVB_FAIL_SHORT_BODY];
	if (kvb_fail_on(fail, KVB_FAIL_NO_LENGTH))
		conn->keep_alive = false;
	add_head_start(conn, reply->status);
	if (reply->vary != NULL)
		kvb_buf_printf(&conn->out, "vary: %s\r\n", reply->vary);
	if (reply->before_length != NULL)
		kvb_buf_text(&conn->out, reply->before_length);
	if (!kvb_fail_on(fail, KVB_FAIL_NO_LENGTH))
		kvb_buf_printf(&conn->out, "content-length: %zu\r\n", promised);
	if (reply->content_type != NULL)
		kvb_buf_printf(&conn->out, "content-type: %s\r\n", reply->content_type);
	if (reply->vary == NULL)
		kvb_buf_text(&conn->out, "vary: Origin\r\n");
	add_request_id(conn);
	kvb_buf_text(&conn->out, conn->keep_alive ? "\r\n" : "connection: close\r\n\r\n");
	cut_after_head(conn);
	if (conn->cut != KVB_CUT_NONE) {
		kvb_conn_flush(conn);
		return;
	}
	if (conn->request.method == NULL || strcmp(conn->request.method, "HEAD") != 0)
		kvb_buf_add(&conn->out, body, len);
	finish(conn);
}

void kvb_conn_reply_error(struct kvb_conn *conn, int status, const char *message)
{
	struct kvb_reply reply = {.status = status, .content_type = "application/json"};
	char body[256];
	int len = snprintf(body, sizeof(body),
		"{\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"param\":null,\"code\":%d}}",
		message, status < 500 ? "BadRequestError" : "InternalServerError", status);

	kvb_http_reply(conn, &reply, body, (size_t)len);
}

void kvb_http_stream_begin(struct kvb_conn *conn, const char *content_type)
{
	if (conn->state == KVB_CONN_DEAD || conn->cut != KVB_CUT_NONE)
		return;
	conn->chunked =
		conn->request.http_minor > 0 && !kvb_fail_on(&conn->fail, KVB_FAIL_NO_LENGTH);
	if (!conn->chunked)
		conn->keep_alive = false;
	add_head_start(conn, 200);
	kvb_buf_printf(&conn->out, "content-type: %s\r\nvary: Origin\r\n", content_type);
	add_request_id(conn);
	if (!conn->keep_alive)
		kvb_buf_text(&conn->out, "connection: close\r\n");
	kvb_buf_text(&conn->out, conn->chunked ? "transfer-encoding: chunked\r\n\r\n" : "\r\n");
	cut_after_head(conn);
	kvb_conn_flush(conn);
}

void kvb_http_stream_chunk(struct kvb_conn *conn, const char *data, size_t len, bool content)
{
	if (conn->state == KVB_CONN_DEAD || conn->cut != KVB_CUT_NONE)
		return;
	if (content) {
		cut_after_tokens(conn);
		if (conn->cut != KVB_CUT_NONE) {
			kvb_conn_flush(conn);
			return;
		}
		conn->content_events++;
	}
	if (conn->chunked && kvb_fail_on(&conn->fail, KVB_FAIL_MALFORMED_CHUNK))
		kvb_buf_text(&conn->out, "xyz\r\n");
	else if (conn->chunked)
		kvb_buf_printf(&conn->out, "%zx\r\n", len);
	kvb_buf_add(&conn->out, data, len);
	if (conn->chunked)
		kvb_buf_add(&conn->out, "\r\n", 2);
	if (content)
		cut_after_tokens(conn);
	kvb_conn_flush(conn);
}

void kvb_http_stream_end(struct kvb_conn *conn)
{
	if (conn->state == KVB_CONN_DEAD || conn->cut != KVB_CUT_NONE)
		return;
	if (conn->chunked)
		kvb_buf_text(&conn->out, "0\r\n\r\n");
	finish(conn);
}

void kvb_http_raw(struct kvb_conn *conn, const char *data, size_t len)
{
	if (conn->state == KVB_CONN_DEAD || conn->cut != KVB_CUT_NONE)
		return;
	kvb_buf_add(&conn->out, data, len);
	finish(conn);
}
