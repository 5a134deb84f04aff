/*
 * backend.c - the cheapest HTTP server that a proxy can stand in front of.
 *
 * A body is dropped with recv(MSG_TRUNC), which on TCP frees what was queued without copying it;
 * only the head and what came with it in one read is ever looked at. Level-triggered events and no
 * epoll_ctl after accept: per request one read, one write and a share of one epoll_wait. Answers
 * are smaller than any socket buffer, so a short write means a peer that has stopped reading, and
 * is treated as gone.
 */
#include "bench/load/backend.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/load/mem.h"

#define HEAD_ROOM 16384

struct port {
	/* first member; its destroy does nothing, since the port is part of the backend */
	struct kvb_source source;
	struct kvb_backend *backend;
	uint16_t number;
};

struct kvb_backend {
	struct kvb_reactor *reactor;
	struct port *ports; /* owned */
	unsigned port_count;
	struct kvb_backend_conn *conns; /* all open connections */
	const struct kvb_stream_hook *hook;
	uint64_t served;
	unsigned blocks; /* blocks of the KV cache that the metrics report */
	char *answer; /* head and body of the answer to a POST, owned */
	size_t answer_len;
};

struct kvb_backend_conn {
	struct kvb_source source; /* first member */
	struct kvb_backend *backend;
	struct kvb_backend_conn *next, **link;
	size_t body_left; /* bytes of the body still to be dropped */
	size_t head_len;  /* bytes of an unfinished head kept in head */
	bool hooked;      /* the stream hook answers its request */
	bool wants_stream;
	bool is_get;
	bool is_render; /* asks for token ids, which vLLM refuses by default */
	char *head; /* HEAD_ROOM bytes, owned */
};

static void conn_destroy(struct kvb_source *source)
{
	struct kvb_backend_conn *conn = (struct kvb_backend_conn *)source;

	*conn->link = conn->next;
	if (conn->next != NULL)
		conn->next->link = conn->link;
	free(conn->head);
	free(conn);
}

static void conn_close(struct kvb_backend_conn *conn)
{
	struct kvb_backend *backend = conn->backend;

	if (conn->hooked && backend->hook != NULL)
		backend->hook->gone(backend->hook->arg, conn);
	conn->hooked = false;
	kvb_reactor_retire(backend->reactor, &conn->source);
}

enum kvw_err kvb_backend_send(struct kvb_backend_conn *conn, const void *data, size_t len)
{
	if (conn->source.retired)
		return KVW_ECLOSED;
	if (send(conn->source.fd, data, len, MSG_NOSIGNAL) == (ssize_t)len)
		return KVW_OK;
	conn_close(conn);
	return KVW_ECLOSED;
}

void kvb_backend_release(struct kvb_backend_conn *conn)
{
	conn->hooked = false;
}

/* Answers to what a router asks of a worker between requests. */
static enum kvw_err answer_get(struct kvb_backend_conn *conn)
{
	static const char models[] =
		"{\"object\":\"list\",\"data\":[{\"id\":\"bench\",\"object\":\"model\","
		"\"created\":1,\"owned_by\":\"vllm\",\"root\":\"bench\",\"parent\":null,"
		"\"max_model_len\":262144}]}";
	static const char metrics[] =
		"# TYPE vllm:cache_config_info gauge\n"
		"vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"%u\"} "
		"1.0\n"
		"# TYPE vllm:num_requests_running gauge\n"
		"vllm:num_requests_running{engine=\"0\",model_name=\"bench\"} 0.0\n"
		"# TYPE process_start_time_seconds gauge\n"
		"process_start_time_seconds 1.7e+09\n";
	const char *body = "", *type = "application/json";
	char text[2048], page[sizeof(metrics) + 16];
	int len;

	if (strncmp(conn->head, "GET /v1/models", 14) == 0)
		body = models;
	else if (strncmp(conn->head, "GET /metrics", 12) == 0) {
		(void)snprintf(page, sizeof(page), metrics, conn->backend->blocks);
		body = page;
		type = "text/plain; version=0.0.4; charset=utf-8";
	}
	len = snprintf(text, sizeof(text),
		"HTTP/1.1 200 OK\r\nserver: kvb\r\ncontent-length: %zu\r\n"
		"content-type: %s\r\n\r\n%s",
		strlen(body), type, body);
	return kvb_backend_send(conn, text, (size_t)len);
}

/* Answers /v1/.../render as vLLM does without --enable-scale-out. */
static enum kvw_err refuse_render(struct kvb_backend_conn *conn)
{
	static const char body[] = "{\"error\":{\"message\":\"Scale-out endpoints are disabled.\","
				   "\"type\":\"PermissionDeniedError\",\"code\":403}}";
	char text[512];
	int len = snprintf(text, sizeof(text),
		"HTTP/1.1 403 Forbidden\r\nserver: kvb\r\ncontent-length: %zu\r\n"
		"content-type: application/json\r\n\r\n%s",
		sizeof(body) - 1, body);

	return kvb_backend_send(conn, text, (size_t)len);
}

/* Answers a request that has been read to its end. */
static void request_done(struct kvb_backend_conn *conn)
{
	struct kvb_backend *backend = conn->backend;
	enum kvw_err err = KVW_OK;

	if (conn->is_get) {
		err = answer_get(conn);
	} else if (conn->is_render) {
		err = refuse_render(conn);
	} else if (conn->wants_stream && backend->hook != NULL) {
		backend->served++;
		conn->hooked = true;
		backend->hook->begin(backend->hook->arg, conn);
	} else {
		backend->served++;
		err = kvb_backend_send(conn, backend->answer, backend->answer_len);
	}
	if (err == KVW_OK)
		conn->head_len = 0; /* the next head begins */
}

/* Value of Content-Length; 0 if absent, -1 if the head is not one this server takes. */
static long body_length(const char *head, size_t len)
{
	const char *at = head, *end = head + len;

	while ((at = memchr(at, '\n', (size_t)(end - at))) != NULL) {
		at++;
		if (end - at > 15 && strncasecmp(at, "content-length:", 15) == 0)
			return strtol(at + 15, NULL, 10);
		if (end - at > 18 && strncasecmp(at, "transfer-encoding:", 18) == 0)
			return -1;
	}
	return 0;
}

/* Parses the head read so far; returns false if it is not complete yet, or the connection is
 * closed. */
static bool head_read(struct kvb_backend_conn *conn)
{
	static const char refused[] = "HTTP/1.1 411 Length Required\r\ncontent-length: 0\r\n\r\n";
	const char *end = memmem(conn->head, conn->head_len, "\r\n\r\n", 4);
	const char *line_end;
	size_t head, with_head;
	long body;

	if (end == NULL) {
		if (conn->head_len == HEAD_ROOM)
			conn_close(conn);
		return false;
	}
	head = (size_t)(end + 4 - conn->head);
	body = body_length(conn->head, head);
	with_head = conn->head_len - head;
	if (body < 0 || with_head > (size_t)body) {
		if (kvb_backend_send(conn, refused, sizeof(refused) - 1) == KVW_OK)
			conn_close(conn);
		return false;
	}
	conn->is_get = strncmp(conn->head, "GET ", 4) == 0;
	line_end = memchr(conn->head, '\r', head);
	conn->is_render =
		memmem(conn->head, (size_t)(line_end - conn->head), "/render ", 8) != NULL;
	conn->wants_stream = conn->backend->hook != NULL &&
			     memmem(end, with_head + 4, "\"stream\":true", 13) != NULL;
	conn->body_left = (size_t)body - with_head;
	return true;
}

static void conn_ready(struct kvb_source *source, uint32_t events)
{
	struct kvb_backend_conn *conn = (struct kvb_backend_conn *)source;
	ssize_t got;

	(void)events;
	if (conn->body_left > 0)
		got = recv(source->fd, NULL, conn->body_left, MSG_TRUNC);
	else
		got = recv(source->fd, conn->head + conn->head_len, HEAD_ROOM - conn->head_len, 0);
	if (got <= 0) {
		if (got == 0 || (errno != EAGAIN && errno != EINTR))
			conn_close(conn);
		return;
	}
	if (conn->hooked) {
		conn_close(conn); /* a second request inside a stream: no benchmark sends that */
		return;
	}
	if (conn->body_left > 0) {
		conn->body_left -= (size_t)got;
	} else {
		conn->head_len += (size_t)got;
		if (!head_read(conn))
			return;
	}
	if (conn->body_left == 0)
		request_done(conn);
}

static void port_ready(struct kvb_source *source, uint32_t events)
{
	struct port *port = (struct port *)source;
	struct kvb_backend *backend = port->backend;
	int fd;

	(void)events;
	while ((fd = accept4(source->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
		struct kvb_backend_conn *conn = kvb_alloc(1, sizeof(*conn));

		conn->source =
			(struct kvb_source){.fd = fd, .ready = conn_ready, .destroy = conn_destroy};
		conn->backend = backend;
		conn->head = kvb_alloc(HEAD_ROOM, 1);
		conn->next = backend->conns;
		conn->link = &backend->conns;
		if (conn->next != NULL)
			conn->next->link = &conn->next;
		backend->conns = conn;
		if (kvb_reactor_add(backend->reactor, &conn->source, EPOLLIN) != KVW_OK)
			conn_close(conn);
	}
}

static void port_destroy(struct kvb_source *source)
{
	(void)source; /* freed with the backend */
}

static void make_answer(struct kvb_backend *backend, bool transfers)
{
	static const char params[] =
		",\"kv_transfer_params\":{\"do_remote_prefill\":true,\"do_remote_decode\":false,"
		"\"remote_block_ids\":[[15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30]],"
		"\"remote_engine_id\":\"c735ed0d-9bc3-4d1e-8bfc-715f0a140197\","
		"\"remote_request_id\":\"chatcmpl-0000000000000000-a93430c9\","
		"\"remote_host\":\"127.0.0.1\",\"remote_port\":5601,\"tp_size\":1,\"dcp_size\":1,"
		"\"pp_size\":1,\"remote_num_tokens\":500,\"remote_blocks_expiry_time\":null,"
		"\"transfer_mode\":\"pull\",\"remote_prefill_cached_tokens\":0}";
	static const char body[] =
		"{\"id\":\"chatcmpl-0000000000000000\",\"object\":\"chat.completion\","
		"\"created\":1795242761,\"model\":\"bench\",\"choices\":[{\"index\":0,"
		"\"message\":{\"role\":\"assistant\",\"content\":\"yes\",\"refusal\":null},"
		"\"logprobs\":null,\"finish_reason\":\"length\",\"stop_reason\":null}],"
		"\"service_tier\":null,\"usage\":{\"prompt_tokens\":500,\"total_tokens\":501,"
		"\"completion_tokens\":1,\"prompt_tokens_details\":{\"cached_tokens\":384}}";
	const char *more = transfers ? params : "";
	struct kvb_buf text = {0};

	kvb_buf_printf(&text,
		"HTTP/1.1 200 OK\r\ndate: Sat, 21 Nov 2026 06:32:41 GMT\r\nserver: kvb\r\n"
		"content-length: %zu\r\ncontent-type: application/json\r\n\r\n%s%s}",
		sizeof(body) + strlen(more), body, more);
	free(backend->answer);
	backend->answer = text.data;
	backend->answer_len = text.len;
}

enum kvw_err kvb_backend_create(struct kvb_reactor *reactor, const char *host, uint16_t first_port,
	unsigned count, struct kvb_backend **out)
{
	struct kvb_backend *backend = kvb_alloc(1, sizeof(*backend));

	backend->blocks = 65536;
	backend->reactor = reactor;
	backend->ports = kvb_alloc(count, sizeof(*backend->ports));
	make_answer(backend, false);
	for (unsigned i = 0; i < count; i++) {
		struct port *port = &backend->ports[i];

		port->backend = backend;
		port->number = first_port ? (uint16_t)(first_port + i) : 0;
		port->source = (struct kvb_source){.ready = port_ready, .destroy = port_destroy};
		port->source.fd = kvb_listen(host, &port->number);
		if (port->source.fd < 0)
			goto fail;
		backend->port_count++;
		if (kvb_reactor_add(reactor, &port->source, EPOLLIN) != KVW_OK)
			goto fail;
	}
	*out = backend;
	return KVW_OK;
fail:
	kvb_backend_destroy(backend);
	return KVW_EIO;
}

void kvb_backend_set_blocks(struct kvb_backend *backend, unsigned blocks)
{
	backend->blocks = blocks;
}

void kvb_backend_transfer(struct kvb_backend *backend)
{
	make_answer(backend, true);
}

uint16_t kvb_backend_port(const struct kvb_backend *backend, unsigned i)
{
	return backend->ports[i].number;
}

void kvb_backend_set_hook(struct kvb_backend *backend, const struct kvb_stream_hook *hook)
{
	backend->hook = hook;
}

uint64_t kvb_backend_served(const struct kvb_backend *backend)
{
	return backend->served;
}

void kvb_backend_destroy(struct kvb_backend *backend)
{
	int cause = errno;

	if (backend == NULL)
		return;
	for (struct kvb_backend_conn *conn = backend->conns; conn != NULL; conn = conn->next)
		kvb_reactor_retire(backend->reactor, &conn->source);
	for (unsigned i = 0; i < backend->port_count; i++)
		kvb_reactor_retire(backend->reactor, &backend->ports[i].source);
	kvb_reactor_bury(backend->reactor);
	free(backend->ports);
	free(backend->answer);
	free(backend);
	errno = cause;
}
