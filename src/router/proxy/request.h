/*
 * request.h - the request side of an exchange as it arrives: head and body.
 */
#ifndef KVW_REQUEST_H
#define KVW_REQUEST_H

#include "proxy/exchange.h"

/* x->upload.in begins with a whole head of x->upload.head_len bytes. Leaves READ_HEAD for READ_BODY
 * (a whole request) or ROUTING, or answers: a refusal, or what kvway answers itself. */
void kvw_request_head(struct kvw_exchange *x);

/* Takes what kvw_upload_has_news says. A whole request that has ended, or become too large to be
 * read whole, goes to ROUTING. */
void kvw_request_body(struct kvw_exchange *x);

/* Returns whether the client's socket may be read for this exchange now. */
bool kvw_request_wants_bytes(const struct kvw_exchange *x);

/* The body came more slowly than limits.body_rate. */
void kvw_request_too_slow(struct kvw_exchange *x);

/* Parses the head into the loop's request_head, unless it is there already. False: it cannot be. */
bool kvw_request_own_head(struct kvw_exchange *x);

#endif
