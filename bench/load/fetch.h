/*
 * fetch.h - sends one GET and waits for the answer, for questions before a run begins.
 */
#ifndef KVB_FETCH_H
#define KVB_FETCH_H

#include "bench/load/http_client.h"
#include "bench/load/mem.h"

struct event_base;

/* An answer. The caller frees `text`. */
struct kvb_fetched {
	struct event_base *base;
	struct kvb_buf text;
	enum kvb_http_end how;
	int error;  /* errno if `how` is KVB_HTTP_CONNECT */
	int status; /* 0: no answer */
};

/* Runs the loop until the answer is there. Sends OPENAI_API_KEY if it is set. */
void kvb_fetch(
	struct event_base *base, struct kvb_http *http, const char *path, struct kvb_fetched *out);

#endif
