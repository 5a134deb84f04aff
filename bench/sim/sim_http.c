/*
 * sim_http.c - listening, and the life of connections.
 *
 * Plain libevent events: the read event stays registered for the connection's life, so a client
 * that leaves is noticed also while its answer is being made. A client that sends more than some
 * megabyte ahead of its answers is not read any further; then only its closing is watched.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/sim/sim_http_conn.h"

#define SCRATCH_BYTES (256 * 1024)
#define PENDING_MOST  (1024 * 1024)

static void on_readable(evutil_socket_t fd, short what, void *arg);

void kvb_conn_busy(struct kvb_conn *conn)
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

void kvb_conn_idle(struct kvb_conn *conn)
{
	struct kvb_http *http = conn->http;

	if (conn->is_idle || http->config.keepalive_s <= 0)
		return;
	conn->idle_ns = kvw_clock_ns();
	conn->is_idle = true;
	TAILQ_INSERT_TAIL(&http->idle, conn, idle);
	if (!event_pending(http->ev_idle, EV_TIMEOUT, NULL))
		arm_idle(http);
}

void kvb_conn_watch(struct kvb_conn *conn, bool closing_only)
{
	short what = closing_only ? EV_CLOSED : EV_READ;

	if (conn->watching_close == closing_only)
		return;
	conn->watching_close = closing_only;
	event_del(&conn->ev_read);
	event_assign(
		&conn->ev_read, conn->http->base, conn->fd, what | EV_PERSIST, on_readable, conn);
	event_add(&conn->ev_read, NULL);
}

/* Closes connections that have been idle too long; the list is in the order in which they became
 * idle. */
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
	kvb_buf_finish(&conn->target);
	kvb_buf_finish(&conn->headers);
	kvb_buf_finish(&conn->body);
	kvb_buf_finish(&conn->pending);
	kvb_buf_finish(&conn->out);
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
	kvb_conn_busy(conn);
	close(conn->fd);
	TAILQ_REMOVE(&http->conns, conn, all);
	TAILQ_INSERT_TAIL(&http->dead, conn, all);
	http->open--;
	event_active(http->ev_reap, EV_TIMEOUT, 0);
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
		kvb_conn_feed(conn, conn->http->scratch, (size_t)n);
	else if (conn->state == KVB_CONN_BUSY)
		kvb_buf_add(&conn->pending, conn->http->scratch, (size_t)n);
	if (conn->state == KVB_CONN_BUSY && conn->pending.len > PENDING_MOST)
		kvb_conn_watch(conn, true);
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
			usleep(10000); /* no free descriptor: pause until some are closed */
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
	kvb_http_set_callbacks(http);
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
