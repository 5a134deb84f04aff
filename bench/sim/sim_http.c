/*
 * sim_http.c - listening, reading and the life of connections.
 *
 * Plain libevent events: the read event stays registered for the connection's life, so a client
 * that leaves is noticed also while its answer is being made. Input that arrives meanwhile
 * (pipelining) is kept, up to a limit; beyond it only the peer's closing is watched. llhttp is
 * paused at the end of each request and goes on when its answer is complete.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "sim_http_conn.h"

#define SCRATCH_BYTES (256 * 1024)
#define PENDING_MOST  (1024 * 1024)
#define HEADERS_MOST  (1024 * 1024)
#define RESERVE_MOST  (64 * 1024 * 1024)

static void feed(struct kvb_conn *conn, const char *data, size_t len);
static void on_readable(evutil_socket_t fd, short what, void *arg);

static void idle_unlink(struct kvb_conn *conn)
{
	if (conn->is_idle)
		TAILQ_REMOVE(&conn->http->idle, conn, idle);
	conn->is_idle = false;
}

static void arm_idle(struct kvb_http *http)
{
	struct kvb_conn *first = TAILQ_FIRST(&http->idle);
	int64_t wait_us;
	struct timeval tv;

	if (first == NULL || http->config.keepalive_s <= 0)
		return;
	wait_us = (first->idle_ns - kvw_clock_ns()) / 1000 +
		  (int64_t)(http->config.keepalive_s * 1e6);
	wait_us = wait_us < 1000 ? 1000 : wait_us;
	tv = (struct timeval){wait_us / 1000000, wait_us % 1000000};
	event_add(http->ev_idle, &tv);
}

/* Closes what has been idle too long: the list is in the order of becoming idle. */
static void on_idle(evutil_socket_t fd, short what, void *arg)
{
	struct kvb_http *http = arg;
	int64_t since = kvw_clock_ns() - (int64_t)(http->config.keepalive_s * 1e9);
	struct kvb_conn *conn;

	(void)fd;
	(void)what;
	while ((conn = TAILQ_FIRST(&http->idle)) != NULL && conn->idle_ns <= since)
		kvb_conn_end(conn, false);
	arm_idle(http);
}

static void free_conn(struct kvb_conn *conn)
{
	kvb_buf_free(&conn->target);
	kvb_buf_free(&conn->headers);
	kvb_buf_free(&conn->body);
	kvb_buf_free(&conn->pending);
	kvb_buf_free(&conn->out);
	free(conn);
}

static void on_reap(evutil_socket_t fd, short what, void *arg)
{
	struct kvb_http *http = arg;
	struct kvb_conn *conn;

	(void)fd;
	(void)what;
	while ((conn = TAILQ_FIRST(&http->dead)) != NULL) {
		TAILQ_REMOVE(&http->dead, conn, all);
		free_conn(conn);
	}
}

void kvb_conn_end(struct kvb_conn *conn, bool reset)
{
	struct kvb_http *http = conn->http;
	void *exchange = conn->exchange;
	struct linger linger = {1, 0};

	if (conn->state == KVB_CONN_DEAD)
		return;
	conn->state = KVB_CONN_DEAD;
	conn->exchange = NULL;
	if (exchange != NULL)
		http->ops->gone(http->user, conn, exchange);
	if (reset)
		setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	event_del(&conn->ev_read);
	event_del(&conn->ev_write);
	event_del(&conn->ev_timer);
	idle_unlink(conn);
	close(conn->fd);
	TAILQ_REMOVE(&http->conns, conn, all);
	TAILQ_INSERT_TAIL(&http->dead, conn, all);
	http->open--;
	event_active(http->ev_reap, EV_TIMEOUT, 0);
}

/* The request that was just read goes up, unless a fault says otherwise. */
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
	if (conn->target.failed || conn->headers.failed || conn->body.failed) {
		kvb_conn_end(conn, true);
		return;
	}
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
	if (conn->body.cap > SCRATCH_BYTES)
		kvb_buf_free(&conn->body); /* a huge body's memory is not kept */
	conn->state = KVB_CONN_READING;
	conn->early = false;
	conn->content_events = 0;
	llhttp_resume(&conn->parser);
	if (conn->watching_close) {
		conn->watching_close = false;
		event_del(&conn->ev_read);
		event_assign(&conn->ev_read, conn->http->base, conn->fd, EV_READ | EV_PERSIST,
			on_readable, conn);
		event_add(&conn->ev_read, NULL);
	}
	if (!conn->feeding && conn->pending.len > 0) {
		struct kvb_buf input = conn->pending;

		conn->pending = (struct kvb_buf){0};
		feed(conn, input.data, input.len);
		kvb_buf_free(&input);
	}
	if (conn->state == KVB_CONN_READING && conn->pending.len == 0 && !conn->is_idle &&
		conn->target.len == 0 && conn->http->config.keepalive_s > 0) {
		conn->idle_ns = kvw_clock_ns();
		conn->is_idle = true;
		TAILQ_INSERT_TAIL(&conn->http->idle, conn, idle);
		if (!event_pending(conn->http->ev_idle, EV_TIMEOUT, NULL))
			arm_idle(conn->http);
	}
}

static int on_begin(llhttp_t *parser)
{
	struct kvb_conn *conn = parser->data;

	idle_unlink(conn);
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

/* What uvicorn says to something that is not HTTP. */
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

/* Reads requests until the input ends or one of them has to wait; the rest is kept. */
static void feed(struct kvb_conn *conn, const char *data, size_t len)
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

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct kvb_conn *conn = arg;
	ssize_t n;

	if (conn->broken || (what & EV_CLOSED) != 0) {
		kvb_conn_end(conn, false);
		return;
	}
	n = read(fd, conn->http->scratch, SCRATCH_BYTES);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		kvb_conn_end(conn, false);
		return;
	}
	if (conn->state == KVB_CONN_READING)
		feed(conn, conn->http->scratch, (size_t)n);
	else if (conn->state == KVB_CONN_BUSY)
		kvb_buf_add(&conn->pending, conn->http->scratch, (size_t)n);
	if (conn->state == KVB_CONN_BUSY && conn->pending.len > PENDING_MOST &&
		!conn->watching_close) {
		conn->watching_close = true;
		event_del(&conn->ev_read);
		event_assign(&conn->ev_read, conn->http->base, fd, EV_CLOSED | EV_PERSIST,
			on_readable, conn);
		event_add(&conn->ev_read, NULL);
	}
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	kvb_conn_flush(arg);
}

static void on_conn_timer(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	kvb_conn_timer_fired(arg);
}

static void add_conn(struct kvb_http *http, int fd)
{
	struct kvb_conn *conn = calloc(1, sizeof(*conn));
	int one = 1;

	if (conn == NULL) {
		close(fd);
		return;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	conn->http = http;
	conn->fd = fd;
	kvb_fail_init(&conn->fail);
	llhttp_init(&conn->parser, HTTP_REQUEST, &http->settings);
	conn->parser.data = conn;
	event_assign(&conn->ev_read, http->base, fd, EV_READ | EV_PERSIST, on_readable, conn);
	event_assign(&conn->ev_write, http->base, fd, EV_WRITE, on_writable, conn);
	evtimer_assign(&conn->ev_timer, http->base, on_conn_timer, conn);
	event_add(&conn->ev_read, NULL);
	TAILQ_INSERT_TAIL(&http->conns, conn, all);
	http->accepted++;
	http->open++;
}

static void on_accept(evutil_socket_t fd, short what, void *arg)
{
	struct kvb_http *http = arg;

	(void)what;
	for (int i = 0; i < 64; i++) {
		int peer = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (peer >= 0) {
			add_conn(http, peer);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE)
			usleep(10000); /* no descriptor: let some be closed, do not spin */
		if (errno != ECONNABORTED && errno != EINTR)
			break;
	}
}

static int listen_on(const struct kvb_http_config *config, uint16_t *port)
{
	struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(config->port)};
	socklen_t len = sizeof(addr);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int one = 1;

	if (fd < 0)
		goto fail;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	errno = EINVAL;
	if (inet_pton(AF_INET, config->host, &addr.sin_addr) != 1 ||
		bind(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0 || listen(fd, 4096) != 0 ||
		getsockname(fd, (struct sockaddr *)&addr, &len) != 0)
		goto fail;
	*port = ntohs(addr.sin_port);
	return fd;
fail:
	fprintf(stderr, "kvsim: cannot listen on %s port %u: %s\n", config->host, config->port,
		strerror(errno));
	if (fd >= 0)
		close(fd);
	return -1;
}

static void set_callbacks(struct kvb_http *http)
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

struct kvb_http *kvb_http_create(struct event_base *base, const struct kvb_http_config *config,
	const struct kvb_http_ops *ops, void *user)
{
	struct kvb_http *http = calloc(1, sizeof(*http));

	if (http == NULL)
		return NULL;
	http->fd = -1;
	http->base = base;
	http->config = *config;
	http->ops = ops;
	http->user = user;
	TAILQ_INIT(&http->conns);
	TAILQ_INIT(&http->idle);
	TAILQ_INIT(&http->dead);
	http->id_state = (uint64_t)kvw_clock_wall_ns() ^ (uint64_t)(uintptr_t)http;
	set_callbacks(http);
	http->scratch = malloc(SCRATCH_BYTES);
	http->ev_idle = evtimer_new(base, on_idle, http);
	http->ev_reap = evtimer_new(base, on_reap, http);
	if (http->scratch == NULL || http->ev_idle == NULL || http->ev_reap == NULL)
		goto fail;
	http->fd = listen_on(config, &http->port);
	if (http->fd < 0)
		goto fail;
	http->ev_accept = event_new(base, http->fd, EV_READ | EV_PERSIST, on_accept, http);
	if (http->ev_accept == NULL || event_add(http->ev_accept, NULL) != 0)
		goto fail;
	return http;
fail:
	kvb_http_destroy(http);
	return NULL;
}

static void free_event(struct event *event)
{
	if (event != NULL)
		event_free(event);
}

void kvb_http_destroy(struct kvb_http *http)
{
	struct kvb_conn *conn;

	if (http == NULL)
		return;
	while ((conn = TAILQ_FIRST(&http->conns)) != NULL)
		kvb_conn_end(conn, false);
	if (http->ev_reap != NULL)
		on_reap(-1, 0, http);
	free_event(http->ev_accept);
	free_event(http->ev_idle);
	free_event(http->ev_reap);
	if (http->fd >= 0)
		close(http->fd);
	free(http->scratch);
	free(http);
}

void kvb_http_cut_busy(struct kvb_http *http)
{
	struct kvb_conn *conn = TAILQ_FIRST(&http->conns);

	while (conn != NULL) {
		struct kvb_conn *next = TAILQ_NEXT(conn, all);

		if (conn->exchange != NULL)
			kvb_conn_end(conn, true);
		conn = next;
	}
}

uint16_t kvb_http_port(const struct kvb_http *http)
{
	return http->port;
}

uint64_t kvb_http_accepted(const struct kvb_http *http)
{
	return http->accepted;
}

uint32_t kvb_http_open(const struct kvb_http *http)
{
	return http->open;
}
