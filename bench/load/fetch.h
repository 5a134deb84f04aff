/*
 * fetch.h - one GET, waited for: what a run asks before it begins.
 */
#ifndef KVB_FETCH_H
#define KVB_FETCH_H

#include "bench/load/http_client.h"
#include "bench/load/mem.h"

struct event_base;

/* The answer. The caller frees text. */
struct kvb_fetched {
	struct event_base *base;
	struct kvb_buf text;
	enum kvb_http_end how;
	int error;  /* errno where how is KVB_HTTP_CONNECT */
	int status; /* 0: no answer */
};

/* Serves the loop until the answer is there. OPENAI_API_KEY is sent where it is set. */
void kvb_fetch(
	struct event_base *base, struct kvb_http *http, const char *path, struct kvb_fetched *out);

#endif
