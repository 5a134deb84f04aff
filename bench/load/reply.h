/*
 * reply.h - reads only as much of an HTTP answer as is needed to find its end.
 *
 * It is for the closed-loop generator, which must cost less than the proxy, and reads status,
 * Content-Length and the number of body bytes. Chunked answers are refused; the backends here never
 * send them for plain requests. kvbench, which meets real servers, uses llhttp instead.
 */
#ifndef KVB_REPLY_H
#define KVB_REPLY_H

#include <stddef.h>

enum kvb_reply_state { KVB_REPLY_MORE, KVB_REPLY_DONE, KVB_REPLY_BAD };

struct kvb_reply {
	char head[4096];
	size_t head_len;
	size_t body_left;
	int in_body;
	int status; /* known once the head was read */
};

void kvb_reply_begin(struct kvb_reply *reply);
/* Takes received bytes. DONE exactly at the end of the answer; BAD if more bytes follow. */
enum kvb_reply_state kvb_reply_feed(struct kvb_reply *reply, const char *data, size_t len);

#endif
