/*
 * sim_http.h - the HTTP/1.1 server under a simulated worker.
 *
 * Behaves as uvicorn does in front of vLLM: keep-alive with an idle close, 100-continue, chunked
 * request bodies, pipelining, and a client that closes its side ends its request at once. Header
 * fields of answers come in uvicorn's order.
 *
 * Everything of one server happens on its loop's thread. A connection is never freed inside a
 * callback about it: it is parked and reaped when the loop turns.
 */
#ifndef KVB_SIM_HTTP_H
#define KVB_SIM_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/sim/sim_buf.h"
#include "bench/sim/sim_fail.h"

struct event_base;
struct kvb_http;
struct kvb_conn;

/* A request that was read whole. Borrowed: valid until its answer is complete. */
struct kvb_request {
	const char *method;
	const char *path;    /* NUL-terminated, without the query */
	const char *query;   /* NUL-terminated, "" if there is none */
	const char *headers; /* "name: value\n" in the order received; names as sent */
	size_t headers_len;
	const char *body; /* NULL if it was thrown away */
	size_t body_len;
	uint8_t http_minor; /* of HTTP/1.x */
};

/* Value of the first field of that name (lower case), without its end; false if there is none. */
bool kvb_request_header(
	const struct kvb_request *request, const char *name, const char **value, size_t *len);

/* What the server asks of the worker above it. */
struct kvb_http_ops {
	/* A request has arrived; it is answered now or later. */
	void (*request)(void *user, struct kvb_conn *conn, const struct kvb_request *request);
	/* The connection has ended while an exchange was set with kvb_conn_set_exchange; the worker
	 * ends it. The connection must not be used again. */
	void (*gone)(void *user, struct kvb_conn *conn, void *exchange);
	/* Faults of a POST that names none of its own. */
	void (*faults)(void *user, struct kvb_fail *out);
};

struct kvb_http_config {
	const char *host;
	uint16_t port;           /* 0: a free one */
	double keepalive_s;      /* idle time after an answer; 0: for ever */
	bool request_id_headers; /* answers carry x-request-id */
	bool discard_bodies;     /* request bodies are counted and thrown away */
	size_t max_body;         /* bytes; longer ones are answered 413 and closed */
};

/* NULL with a message on standard error if the address cannot be used. */
struct kvb_http *kvb_http_create(struct event_base *base, const struct kvb_http_config *config,
	const struct kvb_http_ops *ops, void *user);
void kvb_http_destroy(struct kvb_http *http); /* closes all connections, calling gone */
/* Resets every connection whose request is not answered, as a process that dies would. */
void kvb_http_cut_busy(struct kvb_http *http);
uint16_t kvb_http_port(const struct kvb_http *http);
uint64_t kvb_http_accepted(const struct kvb_http *http); /* connections, ever */
uint32_t kvb_http_open(const struct kvb_http *http);     /* connections, now */

/* The argument of `gone`; set NULL before the call that completes the answer. */
void kvb_conn_set_exchange(struct kvb_conn *conn, void *exchange);
const struct kvb_fail *kvb_conn_fail(const struct kvb_conn *conn);
/* The request that is being answered. */
const struct kvb_request *kvb_conn_request(const struct kvb_conn *conn);

/* Further fields of an answer: a block of "name: value\r\n" each, or NULL. */
struct kvb_reply {
	int status;
	const char *before_length; /* fields that come before content-length */
	const char *content_type;  /* NULL: none */
	const char *vary;          /* before all others; NULL: "vary: Origin" after content-type */
};

/* A whole answer; the connection is ready for the next request. */
void kvb_http_reply(
	struct kvb_conn *conn, const struct kvb_reply *reply, const char *body, size_t len);

/* An answer in pieces: begin, any number of chunks, end. */
void kvb_http_stream_begin(struct kvb_conn *conn, const char *content_type);
/* Bytes that are one chunk on the wire; `content` if they count for faults "after tokens". */
void kvb_http_stream_chunk(struct kvb_conn *conn, const char *data, size_t len, bool content);
void kvb_http_stream_end(struct kvb_conn *conn);

/* Bytes of a complete answer, head included, made by the caller: the cheapest way to answer. */
void kvb_http_raw(struct kvb_conn *conn, const char *data, size_t len);

/* "date: ...\r\nserver: uvicorn\r\n" of this second. */
const char *kvb_http_date(struct kvb_http *http);
const char *kvb_http_reason(int status);

#endif
