/*
 * http_client.h - an HTTP/1.1 client for many requests at once on one libevent loop.
 *
 * Connections are kept alive and reused; there is no cap on them, since open-loop load must not
 * wait for an answer to send the next request. If a reused connection turns out to be closed before
 * any byte of an answer, the request is sent once more on a new one, without notice to the caller,
 * as every client library does. Answers are parsed by llhttp. One thread.
 */
#ifndef KVB_HTTP_CLIENT_H
#define KVB_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kvway/err.h"
#include "bench/load/mem.h"

struct event_base;
struct kvb_http;

/* How an exchange ended. */
enum kvb_http_end {
	KVB_HTTP_DONE,     /* whole answer */
	KVB_HTTP_CONNECT,  /* no connection could be made; errno has the reason */
	KVB_HTTP_CLOSED,   /* the connection was closed before an answer began */
	KVB_HTTP_CUT,      /* closed within the answer */
	KVB_HTTP_TIMEOUT,  /* no byte came for too long */
	KVB_HTTP_PROTOCOL, /* the answer is not HTTP */
};

/* Callbacks for a request. `end` is called exactly once, as the last one; it may start other
 * requests. */
struct kvb_http_handler {
	/*
	 * Optional. Called just before the request's first byte is sent. If that failed, because
	 * the connection was not established yet or the server had closed it, it is called again:
	 * the last call counts.
	 */
	void (*written)(void *arg);
	void (*head)(void *arg, int status); /* optional */
	void (*retry_after)(void *arg, int64_t seconds); /* optional; before `head` */
	void (*body)(void *arg, const char *data, size_t len);
	void (*end)(void *arg, enum kvb_http_end how, int error);
};

/*
 * Creates a client for one server. url: http://HOST[:PORT][/PREFIX]; a /v1 at its end is removed.
 * The name is resolved now. timeout_s: longest time without a byte. KVW_EINVAL, KVW_ENOTFOUND: the
 * message is in error.
 */
enum kvw_err kvb_http_create(struct event_base *base, const char *url, double timeout_s,
	struct kvb_http **out, FILE *error) KVW_MUST_CHECK;
/*
 * Sends `method path` with extra header lines (each ending in CRLF; may be "") and a body, whose
 * ownership it takes: *body is empty afterwards. The handler is static, arg is the caller's.
 */
void kvb_http_send(struct kvb_http *http, const char *method, const char *path, const char *headers,
	struct kvb_buf *body_take, const struct kvb_http_handler *handler, void *arg);
/*
 * Closes the connection of the request whose arg this is, as a client does that waits no longer; it
 * gets no `end`. False: there is none any more, or none yet.
 */
bool kvb_http_leave(struct kvb_http *http, const void *arg);
/* Reused connections that were replaced so far. */
uint64_t kvb_http_stale(const struct kvb_http *http);
/* Closes all connections; requests under way get no `end`. */
void kvb_http_destroy(struct kvb_http *http);

#endif
