/*
 * sse.h - reads server-sent events from bytes that arrive in any pieces.
 *
 * Lines end with LF or CRLF; the `data:` lines of an event are joined by LF; comments and other
 * fields are skipped. An event is reported when the blank line after it has come.
 */
#ifndef KVB_SSE_H
#define KVB_SSE_H

#include <stddef.h>

#include "bench/load/mem.h"

struct kvb_sse {
	struct kvb_buf line; /* a line of which the end has not come yet */
	struct kvb_buf data; /* data of the event that is being read */
	int has_data;
};

/* Calls event(arg, data, len) for each event that these bytes complete. data is borrowed. */
void kvb_sse_feed(struct kvb_sse *sse, const char *bytes, size_t len,
	void (*event)(void *arg, const char *data, size_t len), void *arg);
void kvb_sse_finish(struct kvb_sse *sse);

#endif
