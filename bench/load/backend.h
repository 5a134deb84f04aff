/*
 * backend.h - an HTTP server that costs as little as possible, for measurements of a proxy in front
 * of it.
 *
 * Takes requests whose bodies have a Content-Length (or none), discards the bodies in the kernel,
 * and answers each POST with the same small JSON completion over kept-alive connections; GET is
 * served for the paths that a router requests from a worker: /health, /v1/models, /metrics. It is
 * not kvsim: it has no timing, no cache and no model. Chunked request bodies are answered with 411.
 */
#ifndef KVB_BACKEND_H
#define KVB_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include "kvway/err.h"
#include "bench/load/reactor.h"

struct kvb_backend;
struct kvb_backend_conn;

/* Functions that answer requests for streams (the body contains "stream":true). Both are called
 * inside a turn of the reactor. */
struct kvb_stream_hook {
	void *arg;
	/* Called when a whole request was read. The hook answers with kvb_backend_send() at any
	 * later time. */
	void (*begin)(void *arg, struct kvb_backend_conn *conn);
	/* Called when the proxy has closed the connection before kvb_backend_release(). */
	void (*gone)(void *arg, struct kvb_backend_conn *conn);
};

/*
 * Listens on `count` ports of host: first_port and those after it, or free ones if it is 0. The
 * caller owns *out. KVW_EIO: errno has the reason.
 */
enum kvw_err kvb_backend_create(struct kvb_reactor *reactor, const char *host, uint16_t first_port,
	unsigned count, struct kvb_backend **out) KVW_MUST_CHECK;
/* Sets how many blocks of 16 tokens each port's KV cache has according to its metrics; 65536 if not
 * set. */
void kvb_backend_set_blocks(struct kvb_backend *backend, unsigned blocks);
/* Answers have the parameters with which a prefiller of vLLM's NixlConnector ends. */
void kvb_backend_transfer(struct kvb_backend *backend);
uint16_t kvb_backend_port(const struct kvb_backend *backend, unsigned i);
/* hook is borrowed until it is replaced; NULL: streams are answered like plain requests. */
void kvb_backend_set_hook(struct kvb_backend *backend, const struct kvb_stream_hook *hook);
/* Returns the number of requests that all ports have answered or passed to the hook so far. */
uint64_t kvb_backend_served(const struct kvb_backend *backend);
void kvb_backend_destroy(struct kvb_backend *backend);

/* Writes at once. KVW_ECLOSED: the socket did not take all bytes, and the connection is closed. */
enum kvw_err kvb_backend_send(
	struct kvb_backend_conn *conn, const void *data, size_t len) KVW_MUST_CHECK;
/* Called when the hook's answer is complete: the connection may carry another request. */
void kvb_backend_release(struct kvb_backend_conn *conn);

#endif
