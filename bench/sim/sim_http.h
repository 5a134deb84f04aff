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

#include "bench/load/mem.h"
#include "bench/sim/sim_fail.h"

struct event_base;
struct kvb_http;
struct kvb_conn;

/* A request that was read completely. Borrowed: valid until its answer is complete. */
struct kvb_request {
	const char *method;
	const char *path;    /* ends with a NUL; without the query */
	const char *query;   /* ends with a NUL; "" if there is none */
	const char *headers; /* lines "name: value\n" in the order received, with names as sent */
	size_t headers_len;
	const char *body; /* NULL if the body was discarded */
	size_t body_len;
	uint8_t http_minor; /* of HTTP/1.x */
};

/* Finds the value of the first field of that name (lower case), without its line end. Returns false
 * if there is none. */
bool kvb_request_header(
	const struct kvb_request *request, const char *name, const char **value, size_t *len);

/* Functions of the worker that the server calls. */
struct kvb_http_ops {
	/* A request has arrived; the worker answers it now or later. */
	void (*request)(void *user, struct kvb_conn *conn, const struct kvb_request *request);
	/* The connection has ended while it had an exchange, set by kvb_conn_set_exchange, which
	 * the worker has to end. The connection must not be used again. */
	void (*gone)(void *user, struct kvb_conn *conn, void *exchange);
	/* Sets the faults of a POST that does not name any. */
	void (*faults)(void *user, struct kvb_fail *out);
};

struct kvb_http_config {
	const char *host;
	uint16_t port;           /* 0: a free one */
	/* time without a request after which the connection is closed; 0: never */
	double keepalive_s;
	bool request_id_headers; /* answers carry x-request-id */
	bool discard_bodies;     /* bytes of request bodies are counted and discarded */
	size_t max_body;         /* a longer body is answered with 413, and the connection closed */
};

/* Returns NULL on failure, for example if the address cannot be used, with a message on standard
 * error. */
struct kvb_http *kvb_http_create(struct event_base *base, const struct kvb_http_config *config,
	const struct kvb_http_ops *ops, void *user);
void kvb_http_destroy(struct kvb_http *http); /* closes all connections, calling gone */
/* Resets every connection whose request is not answered yet, as the end of a process would. */
void kvb_http_cut_busy(struct kvb_http *http);
uint16_t kvb_http_port(const struct kvb_http *http);
uint64_t kvb_http_accepted(const struct kvb_http *http); /* connections, ever */
uint32_t kvb_http_open(const struct kvb_http *http);     /* connections, now */

/* Sets the argument of `gone`; to be set to NULL before the call that completes the answer. */
void kvb_conn_set_exchange(struct kvb_conn *conn, void *exchange);
const struct kvb_fail *kvb_conn_fail(const struct kvb_conn *conn);
/* Returns the request that is being answered. */
const struct kvb_request *kvb_conn_request(const struct kvb_conn *conn);

/* Further fields of an answer, each member a block of lines "name: value\r\n", or NULL. */
struct kvb_reply {
	int status;
	const char *before_length; /* fields before content-length */
	const char *content_type;  /* NULL: none */
	const char *vary; /* before all other fields; NULL: "vary: Origin" after content-type */
};

/* Sends a whole answer; the connection is then ready for the next request. */
void kvb_http_reply(
	struct kvb_conn *conn, const struct kvb_reply *reply, const char *body, size_t len);

/* These send an answer in pieces: begin, any number of chunks, end. */
void kvb_http_stream_begin(struct kvb_conn *conn, const char *content_type);
/* Sends bytes as one chunk; `content`: they count for faults "after tokens". */
void kvb_http_stream_chunk(struct kvb_conn *conn, const char *data, size_t len, bool content);
void kvb_http_stream_end(struct kvb_conn *conn);

/* Sends the bytes of a complete answer with its head, made by the caller: the cheapest way to
 * answer. */
void kvb_http_raw(struct kvb_conn *conn, const char *data, size_t len);

/* Returns "date: ...\r\nserver: uvicorn\r\n" for this second. */
const char *kvb_http_date(struct kvb_http *http);
const char *kvb_http_reason(int status);

#endif
