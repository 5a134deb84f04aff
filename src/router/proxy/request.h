/*
 * request.h - the request side of an exchange: arriving head and body.
 */
#ifndef KVW_REQUEST_H
#define KVW_REQUEST_H

#include "proxy/exchange.h"

/* Handles the whole head of x->upload.head_len bytes with which x->upload.in begins. Leaves
 * READ_HEAD for READ_BODY (a whole request) or ROUTING, or answers: a refusal, or one of kvway's
 * own paths. */
void kvw_request_head(struct kvw_exchange *x);

/* Takes the bytes that kvw_upload_has_news reports. A whole request that has ended, or become too
 * large to be read whole, goes to ROUTING. */
void kvw_request_body(struct kvw_exchange *x);

/* Returns whether the client's socket may be read for this exchange now. */
bool kvw_request_wants_bytes(const struct kvw_exchange *x);

/* Handles a body slower than limits.body_rate. */
void kvw_request_too_slow(struct kvw_exchange *x);

/* Parses the head into the loop's request_head, unless it is there already. False: the head cannot
 * be parsed. */
bool kvw_request_own_head(struct kvw_exchange *x);

#endif
