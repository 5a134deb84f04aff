/*
 * worker_head.h - a request's head as a worker gets it.
 *
 * Threads: those of the exchange's loop.
 */
#ifndef KVW_WORKER_HEAD_H
#define KVW_WORKER_HEAD_H

#include "http/head.h"
#include "proxy/exchange.h"

/* The body that follows the head. */
struct kvw_worker_body {
	enum kvw_framing framing;
	uint64_t content_length; /* KVW_FRAME_LENGTH */
	bool prefills; /* a prefill leg, which is sent once; else the exchange's attempt */
};

/* Writes the head for that worker into a block of the loop's, which the caller then owns. NULL: the
 * head is too large, or there is no memory. */
struct kvw_block *kvw_worker_head(struct kvw_exchange *x, struct kvw_worker *worker,
	const struct kvw_worker_body *body);

/* In the head of the attempt's answer: hides the X-Request-Id of a worker that got another one than
 * the client's (transfer.h, `renames`), so that the client gets its own. */
void kvw_worker_head_answered(const struct kvw_exchange *x, struct kvw_head *head);

#endif
