/*
 * http_bench.c - what src/common/http costs per message, in nanoseconds.
 *
 * Each figure is the median of nine rounds on one thread, best read on an idle core. Bodies of
 * events are fed as a proxy gets them: several small chunks in one read.
 *
 *   http_bench            prints "name ns", one line each
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "http/body.h"
#include "bench/timing.h"
#include "http/head.h"
#include "http/write.h"

#define ROUNDS 9
#define CALLS  200000

static const char request[] = "POST /v1/chat/completions HTTP/1.1\r\n"
			      "Host: 127.0.0.1:8080\r\n"
			      "Accept-Encoding: gzip, deflate\r\n"
			      "Connection: keep-alive\r\n"
			      "Accept: application/json\r\n"
			      "Content-Type: application/json\r\n"
			      "User-Agent: OpenAI/Python 1.99.0\r\n"
			      "Authorization: Bearer sk-0123456789abcdef0123456789\r\n"
			      "Content-Length: 2048\r\n\r\n";

static const char response[] = "HTTP/1.1 200 OK\r\n"
			       "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
			       "server: uvicorn\r\n"
			       "content-type: text/event-stream; charset=utf-8\r\n"
			       "transfer-encoding: chunked\r\n\r\n";

/* The inputs of a benchmark. */
struct work {
	struct kvw_head head;
	char chunks[2048];
	size_t chunks_len;
	unsigned chunk_count;
	char out[4096];
	uint64_t sum; /* sum of results, so that the compiler keeps the calls */
};

static void die(const char *what)
{
	fprintf(stderr, "http_bench: %s\n", what);
	exit(1);
}

static void run_find_end(struct work *w)
{
	size_t from = 0;

	w->sum += kvw_head_find_end(request, sizeof(request) - 1, &from);
}

static void run_request(struct work *w)
{
	struct kvw_head_error error;

	if (kvw_head_parse_request(&w->head, request, sizeof(request) - 1, &error) != KVW_OK)
		die(error.message);
	w->sum += w->head.field_count;
}

static void run_response(struct work *w)
{
	struct kvw_head_error error;

	if (kvw_head_parse_response(&w->head, response, sizeof(response) - 1, false, &error) !=
		KVW_OK)
		die(error.message);
	w->sum += w->head.field_count;
}

static void run_write_request(struct work *w)
{
	struct kvw_writer out = KVW_WRITER(w->out, sizeof(w->out));
	struct kvw_request_head_options o = {
		.authority = KVW_SLICE("127.0.0.1:8001"),
		.request_id = KVW_SLICE("0123456789abcdef0123456789abcdef"),
		.client = KVW_SLICE("192.0.2.17"),
		.x_forwarded = true,
		.forwarded = true,
		.framing = KVW_FRAME_LENGTH,
		.content_length = 2048,
	};

	w->sum += kvw_head_write_request(&out, &w->head, &o);
}

static void run_write_response(struct work *w)
{
	struct kvw_writer out = KVW_WRITER(w->out, sizeof(w->out));
	struct kvw_response_head_options o = {
		.request_id = KVW_SLICE("0123456789abcdef0123456789abcdef"),
		.framing = KVW_FRAME_CHUNKED,
	};

	w->sum += kvw_head_write_response(&out, &w->head, &o);
}

static void add_payload(void *arg, const char *data, size_t len)
{
	(void)data;
	*(uint64_t *)arg += len;
}

static void run_chunks(struct work *w)
{
	struct kvw_body body;
	size_t used = 0;

	kvw_body_begin(&body, KVW_FRAME_CHUNKED, 0, 0);
	if (kvw_body_feed(&body, w->chunks, w->chunks_len, add_payload, &w->sum, &used) != KVW_OK)
		die(body.error);
	w->sum += used;
}

static void measure(const char *name, struct work *w, void (*run)(struct work *))
{
	double ns[ROUNDS];

	for (int round = 0; round < ROUNDS; round++) {
		double from = kvb_cpu_seconds();

		for (int i = 0; i < CALLS; i++)
			run(w);
		ns[round] = (kvb_cpu_seconds() - from) * 1e9 / CALLS;
	}
	printf("%-24s %7.1f\n", name, kvb_median(ns, ROUNDS));
}

static void make_chunks(struct work *w, unsigned count)
{
	struct kvw_writer out = KVW_WRITER(w->chunks, sizeof(w->chunks));
	char event[250];

	memset(event, 'x', sizeof(event));
	for (unsigned i = 0; i < count; i++) {
		kvw_chunk_line(&out, sizeof(event));
		kvw_write(&out, (struct kvw_slice){event, sizeof(event)});
		kvw_write_literal(&out, KVW_CHUNK_END);
	}
	w->chunks_len = out.len;
}

int main(void)
{
	static struct work w;

	if (kvw_head_init(&w.head, 128) != KVW_OK)
		die("out of memory");
	measure("find_end", &w, run_find_end);
	measure("parse_request", &w, run_request);
	measure("write_request", &w, run_write_request);
	measure("parse_response", &w, run_response);
	measure("write_response", &w, run_write_response);
	make_chunks(&w, 1);
	measure("body_1_chunk", &w, run_chunks);
	make_chunks(&w, 4);
	measure("body_4_chunks", &w, run_chunks);
	kvw_head_finish(&w.head);
	return w.sum == 0;
}
