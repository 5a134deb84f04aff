/*
 * http_client.c - an HTTP/1.1 client for many requests at once on one libevent loop.
 *
 * A connection has at most one request. It is on the list `all` while it lives, and on `idle` as
 * well between requests. It is never freed inside a callback of llhttp: callbacks note what
 * happened, and the reader that called llhttp_execute() acts on it afterwards.
 */
#include "bench/load/http_client.h"

#include <errno.h>
#include <event2/event.h>
#include <llhttp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_BYTES 65536

/* One connection and the request on it. */
struct conn {
	LIST_ENTRY(conn) all;
	LIST_ENTRY(conn) idle;
	struct kvb_http *http;
	int fd;
	struct event *readable, *writable;
	llhttp_t parser;
	struct kvb_buf out; /* head and body of the request; kept until the answer begins */
	size_t sent;
	const struct kvb_http_handler *handler; /* NULL between requests */
	void *arg;
	int send_error; /* errno of a failed send, which recv will not repeat */
	bool reused;    /* carried another request before */
	bool answering; /* a byte of the answer was read */
	bool complete;  /* the parser saw the answer's end */
	/* name and value of the header line that is read, cut to the room */
	char name[16], value[16];
	size_t name_len, value_len;    /* lengths as received, which may exceed the room */
};

struct kvb_http {
	struct event_base *base;
	struct sockaddr_storage address;
	socklen_t address_len;
	char host[300];   /* host and port, as the Host header has them */
	/* the URL's path, which every request's path follows; no slash at its end */
	char prefix[256];
	struct timeval timeout;
	llhttp_settings_t settings;
	LIST_HEAD(, conn) all, idle;
	uint64_t stale;
};

static int on_body(llhttp_t *parser, const char *data, size_t len)
{
	struct conn *conn = parser->data;

	conn->handler->body(conn->arg, data, len);
	return 0;
}

/* Adds a piece of a name or value; what does not fit is only counted. */
static void add_piece(char *room, size_t size, size_t *held, const char *data, size_t len)
{
	for (size_t i = 0; i < len; i++, (*held)++)
		if (*held < size)
			room[*held] = data[i];
}

static int on_name(llhttp_t *parser, const char *data, size_t len)
{
	struct conn *conn = parser->data;

	add_piece(conn->name, sizeof(conn->name), &conn->name_len, data, len);
	return 0;
}

static int on_value(llhttp_t *parser, const char *data, size_t len)
{
	struct conn *conn = parser->data;

	add_piece(conn->value, sizeof(conn->value), &conn->value_len, data, len);
	return 0;
}

/* Reports Retry-After to the handler; dates are ignored, whole seconds are understood. */
static void tell_retry_after(struct conn *conn)
{
	static const char name[] = "retry-after";
	int64_t seconds = 0;

	if (conn->handler->retry_after == NULL || conn->name_len != sizeof(name) - 1 ||
		strncasecmp(conn->name, name, conn->name_len) != 0 || conn->value_len == 0 ||
		conn->value_len > 9)
		return;
	for (size_t i = 0; i < conn->value_len; i++) {
		if (conn->value[i] < '0' || conn->value[i] > '9')
			return;
		seconds = seconds * 10 + (conn->value[i] - '0');
	}
	conn->handler->retry_after(conn->arg, seconds);
}

static int on_value_end(llhttp_t *parser)
{
	struct conn *conn = parser->data;

	tell_retry_after(conn);
	conn->name_len = conn->value_len = 0;
	return 0;
}

static int on_headers(llhttp_t *parser)
{
	struct conn *conn = parser->data;

	if (conn->handler->head != NULL && parser->status_code >= 200)
		conn->handler->head(conn->arg, parser->status_code);
	return 0;
}

static int on_complete(llhttp_t *parser)
{
	struct conn *conn = parser->data;

	if (parser->status_code < 200)
		return 0; /* an interim answer: the final one follows */
	conn->complete = true;
	return HPE_PAUSED;
}

static void conn_free(struct conn *conn)
{
	LIST_REMOVE(conn, all);
	if (conn->handler == NULL)
		LIST_REMOVE(conn, idle);
	if (conn->readable != NULL)
		event_free(conn->readable);
	if (conn->writable != NULL)
		event_free(conn->writable);
	if (conn->fd >= 0)
		close(conn->fd);
	kvb_buf_finish(&conn->out);
	free(conn);
}

/* Ends a request: keeps or closes the connection, then calls `end`. */
static void conn_end(struct conn *conn, enum kvb_http_end how, int error, bool keep)
{
	const struct kvb_http_handler *handler = conn->handler;
	void *arg = conn->arg;

	if (keep) {
		conn->handler = NULL;
		conn->reused = true;
		kvb_buf_finish(&conn->out);
		event_del(conn->readable);
		event_add(conn->readable, NULL); /* without a timeout: fires when it is closed */
		LIST_INSERT_HEAD(&conn->http->idle, conn, idle);
	} else {
		conn_free(conn);
	}
	handler->end(arg, how, error);
}

static void start(struct kvb_http *http, struct kvb_buf *out_take,
	const struct kvb_http_handler *handler, void *arg, bool fresh);

/* Ends the request of a connection that was lost before the answer's end. */
static void conn_lost(struct conn *conn, int error)
{
	if (conn->reused && !conn->answering) {
		struct kvb_http *http = conn->http;
		struct kvb_buf out = conn->out;
		const struct kvb_http_handler *handler = conn->handler;
		void *arg = conn->arg;

		conn->out = (struct kvb_buf){0};
		conn_free(conn);
		http->stale++;
		start(http, &out, handler, arg, true);
		return;
	}
	if (error == 0)
		error = conn->send_error;
	if (conn->answering)
		llhttp_finish(&conn->parser);
	if (error == ECONNREFUSED || error == EHOSTUNREACH || error == ENETUNREACH)
		conn_end(conn, KVB_HTTP_CONNECT, error, false);
	else if (conn->complete)
		conn_end(conn, KVB_HTTP_DONE, 0, false); /* the close marks the answer's end */
	else
		conn_end(conn, conn->answering ? KVB_HTTP_CUT : KVB_HTTP_CLOSED, error, false);
}

static void conn_write(struct conn *conn)
{
	while (conn->sent < conn->out.len) {
		ssize_t sent;

		if (conn->sent == 0 && conn->handler->written != NULL)
			conn->handler->written(conn->arg);
		sent = send(conn->fd, conn->out.data + conn->sent, conn->out.len - conn->sent,
			MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0 && errno == EAGAIN) {
			event_add(conn->writable, NULL);
			return;
		}
		if (sent < 0) {
			conn->send_error = errno;
			return; /* the read side ends it, with what was answered before */
		}
		conn->sent += (size_t)sent;
	}
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	struct conn *conn = arg;
	socklen_t len = sizeof(int);
	int error = 0;

	(void)fd;
	(void)what;
	if (conn->sent == 0) {
		getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &error, &len);
		if (error != 0) {
			conn_end(conn, KVB_HTTP_CONNECT, error, false);
			return;
		}
	}
	conn_write(conn);
}

static void conn_parse(struct conn *conn, const char *data, size_t len)
{
	enum llhttp_errno state;
	bool keep;

	conn->answering = true;
	state = llhttp_execute(&conn->parser, data, len);
	if (conn->complete) {
		keep = state == HPE_PAUSED && conn->sent == conn->out.len &&
		       llhttp_get_error_pos(&conn->parser) == data + len &&
		       llhttp_should_keep_alive(&conn->parser);
		conn_end(conn, KVB_HTTP_DONE, 0, keep);
	} else if (state != HPE_OK) {
		conn_end(conn, KVB_HTTP_PROTOCOL, 0, false);
	}
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct conn *conn = arg;
	char data[READ_BYTES];
	ssize_t got;

	/* an idle connection: the server closed it, or sent bytes without a request */
	if (conn->handler == NULL) {
		conn_free(conn);
		return;
	}
	if (what & EV_TIMEOUT) {
		conn_end(conn, KVB_HTTP_TIMEOUT, ETIMEDOUT, false);
		return;
	}
	got = recv(fd, data, sizeof(data), 0);
	if (got > 0)
		conn_parse(conn, data, (size_t)got);
	else if (got == 0)
		conn_lost(conn, 0);
	else if (errno != EAGAIN && errno != EINTR)
		conn_lost(conn, errno);
}

/* Begins to connect to the server; NULL: errno has the reason. */
static struct conn *conn_open(struct kvb_http *http)
{
	struct conn *conn;
	int on = 1, cause;
	int fd = socket(http->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return NULL;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(fd, (struct sockaddr *)&http->address, http->address_len) < 0 &&
		errno != EINPROGRESS) {
		cause = errno;
		close(fd);
		errno = cause;
		return NULL;
	}
	conn = kvb_alloc(1, sizeof(*conn));
	conn->http = http;
	conn->fd = fd;
	conn->readable = event_new(http->base, fd, EV_READ | EV_PERSIST, on_readable, conn);
	conn->writable = event_new(http->base, fd, EV_WRITE, on_writable, conn);
	llhttp_init(&conn->parser, HTTP_RESPONSE, &http->settings);
	conn->parser.data = conn;
	LIST_INSERT_HEAD(&http->all, conn, all);
	return conn;
}

/* A connection that could not be begun; the loop reports it later, so that send calls no
 * handler. */
struct refusal {
	const struct kvb_http_handler *handler;
	void *arg;
	int error;
};

static void on_refusal(evutil_socket_t fd, short what, void *arg)
{
	struct refusal refusal = *(struct refusal *)arg;

	(void)fd;
	(void)what;
	free(arg);
	refusal.handler->end(refusal.arg, KVB_HTTP_CONNECT, refusal.error);
}

static void start(struct kvb_http *http, struct kvb_buf *out_take,
	const struct kvb_http_handler *handler, void *arg, bool fresh)
{
	struct conn *conn = fresh ? NULL : LIST_FIRST(&http->idle);

	if (conn != NULL)
		LIST_REMOVE(conn, idle);
	else
		conn = conn_open(http);
	if (conn == NULL) {
		struct refusal *refusal = kvb_alloc(1, sizeof(*refusal));
		struct timeval now = {0};

		*refusal = (struct refusal){handler, arg, errno};
		kvb_buf_finish(out_take);
		event_base_once(http->base, -1, EV_TIMEOUT, on_refusal, refusal, &now);
		return;
	}
	conn->handler = handler;
	conn->arg = arg;
	conn->out = *out_take;
	*out_take = (struct kvb_buf){0};
	conn->sent = 0;
	conn->answering = false;
	conn->complete = false;
	conn->name_len = conn->value_len = 0;
	llhttp_reset(&conn->parser);
	event_add(conn->readable, &http->timeout);
	conn_write(conn);
}

void kvb_http_send(struct kvb_http *http, const char *method, const char *path, const char *headers,
	struct kvb_buf *body_take, const struct kvb_http_handler *handler, void *arg)
{
	struct kvb_buf out = {0};

	kvb_buf_printf(&out,
		"%s %s%s HTTP/1.1\r\nHost: %s\r\nAccept: */*\r\nUser-Agent: kvbench/" KVW_VERSION
		"\r\n%s",
		method, http->prefix, path, http->host, headers);
	if (body_take->len > 0)
		kvb_buf_printf(&out, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
			body_take->len);
	kvb_buf_text(&out, "\r\n");
	kvb_buf_add(&out, body_take->data, body_take->len);
	kvb_buf_finish(body_take);
	start(http, &out, handler, arg, false);
}

bool kvb_http_leave(struct kvb_http *http, const void *arg)
{
	struct conn *conn = NULL;

	LIST_FOREACH(conn, &http->all, all) {
		if (conn->handler == NULL || conn->arg != arg)
			continue;
		conn_free(conn);
		return true;
	}
	return false;
}

/* Splits url into http->host, http->prefix and, for the resolver, name and port. */
static enum kvw_err split_url(
	struct kvb_http *http, const char *url, char *name, size_t room, char *port, FILE *error)
{
	const char *host = url + 7, *slash, *colon;
	size_t host_len, prefix_len;

	if (strncasecmp(url, "http://", 7) != 0)
		goto wrong;
	slash = strchr(host, '/');
	host_len = slash ? (size_t)(slash - host) : strlen(host);
	prefix_len = slash ? strlen(slash) : 0;
	while (prefix_len > 0 && slash[prefix_len - 1] == '/')
		prefix_len--;
	if (prefix_len >= 3 && memcmp(slash + prefix_len - 3, "/v1", 3) == 0)
		prefix_len -= 3;
	if (host_len == 0 || host_len >= room || prefix_len >= sizeof(http->prefix))
		goto wrong;
	snprintf(http->host, sizeof(http->host), "%.*s", (int)host_len, host);
	snprintf(http->prefix, sizeof(http->prefix), "%.*s", (int)prefix_len, slash ? slash : "");
	colon = strrchr(http->host, ':');
	if (colon != NULL && strchr(colon, ']') != NULL)
		colon = NULL; /* inside an IPv6 address */
	snprintf(port, 8, "%.7s", colon ? colon + 1 : "80");
	host_len = colon ? (size_t)(colon - http->host) : host_len;
	if (http->host[0] == '[' && host_len > 2)
		snprintf(name, room, "%.*s", (int)host_len - 2, http->host + 1);
	else
		snprintf(name, room, "%.*s", (int)host_len, http->host);
	return KVW_OK;
wrong:
	fprintf(error, "'%s' is not a URL like http://127.0.0.1:8080\n", url);
	return KVW_EINVAL;
}

enum kvw_err kvb_http_create(struct event_base *base, const char *url, double timeout_s,
	struct kvb_http **out, FILE *error)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
	struct kvb_http *http = kvb_alloc(1, sizeof(*http));
	char name[256], port[8];
	int why;

	http->base = base;
	if (split_url(http, url, name, sizeof(name), port, error) != KVW_OK) {
		free(http);
		return KVW_EINVAL;
	}
	why = getaddrinfo(name, port, &hints, &found);
	if (why != 0) {
		fprintf(error, "%s: %s\n", url, gai_strerror(why));
		free(http);
		return KVW_ENOTFOUND;
	}
	memcpy(&http->address, found->ai_addr, found->ai_addrlen);
	http->address_len = found->ai_addrlen;
	freeaddrinfo(found);
	http->timeout = (struct timeval){.tv_sec = (time_t)timeout_s,
		.tv_usec = (suseconds_t)((timeout_s - (double)(time_t)timeout_s) * 1e6)};
	llhttp_settings_init(&http->settings);
	http->settings.on_header_field = on_name;
	http->settings.on_header_value = on_value;
	http->settings.on_header_value_complete = on_value_end;
	http->settings.on_headers_complete = on_headers;
	http->settings.on_body = on_body;
	http->settings.on_message_complete = on_complete;
	LIST_INIT(&http->all);
	LIST_INIT(&http->idle);
	*out = http;
	return KVW_OK;
}

uint64_t kvb_http_stale(const struct kvb_http *http)
{
	return http->stale;
}

void kvb_http_destroy(struct kvb_http *http)
{
	if (http == NULL)
		return;
	while (!LIST_EMPTY(&http->all))
		conn_free(LIST_FIRST(&http->all));
	free(http);
}
