/*
 * backend.h - the cheapest HTTP server that a proxy can stand in front of.
 *
 * Takes requests whose bodies have a Content-Length (or none), throws the bodies away in the
 * kernel, and answers each POST with the same small JSON completion over kept-alive connections;
 * GET answers what a router asks of a worker: /health, /v1/models, /metrics. It is not kvsim: it
 * has no timing, no cache and no model. Chunked request bodies are answered with 411.
 */
#ifndef KVB_BACKEND_H
#define KVB_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include "kvway/err.h"
#include "bench/load/reactor.h"

struct kvb_backend;
struct kvb_backend_conn;

/* Takes over requests for streams (body contains "stream":true); both run inside a turn. */
struct kvb_stream_hook {
	void *arg;
	/* A whole request was read. The hook answers with kvb_backend_send() whenever it likes. */
	void (*begin)(void *arg, struct kvb_backend_conn *conn);
	/* The proxy closed the connection while the hook had it. */
	void (*gone)(void *arg, struct kvb_backend_conn *conn);
};

/*
 * Listens on `count` ports of host: first_port and those after it, or free ones if it is 0.
 * Caller owns *out. KVW_EIO: errno says why.
 */
enum kvw_err kvb_backend_create(struct kvb_reactor *reactor, const char *host, uint16_t first_port,
	unsigned count, struct kvb_backend **out) KVW_MUST_CHECK;
/* Blocks of 16 tokens of each port's KV cache, as its metrics say; 65536 unless set. */
void kvb_backend_set_blocks(struct kvb_backend *backend, unsigned blocks);
/* Answers have the parameters with which a prefiller of vLLM's NixlConnector ends. */
void kvb_backend_transfer(struct kvb_backend *backend);
uint16_t kvb_backend_port(const struct kvb_backend *backend, unsigned i);
/* hook is borrowed until replaced; NULL: streams are answered like plain requests. */
void kvb_backend_set_hook(struct kvb_backend *backend, const struct kvb_stream_hook *hook);
/* Requests answered or handed to the hook so far, by all ports. */
uint64_t kvb_backend_served(const struct kvb_backend *backend);
void kvb_backend_destroy(struct kvb_backend *backend);

/* Writes at once; KVW_ECLOSED: not all of it was taken, and the connection is closed. */
enum kvw_err kvb_backend_send(
	struct kvb_backend_conn *conn, const void *data, size_t len) KVW_MUST_CHECK;
/* The hook's answer is complete; the connection may carry another request. */
void kvb_backend_release(struct kvb_backend_conn *conn);

#endif
