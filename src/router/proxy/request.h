/*
 * request.h - reads a request: its head, and its body as it arrives.
 */
#ifndef KVW_REQUEST_H
#define KVW_REQUEST_H

#include "proxy/exchange.h"

/* Handles a head that has arrived: the first x->upload.head_len bytes of x->upload.in. Leaves
 * READ_HEAD for READ_BODY (a whole request) or ROUTING, or answers: with a refusal, or for one of
 * kvway's own paths. */
void kvw_request_head(struct kvw_exchange *x);

/* Takes body bytes, when kvw_upload_has_news says that there are some. A whole request that has
 * ended, or become too large to be read whole, goes to ROUTING. */
void kvw_request_body(struct kvw_exchange *x);

/* Returns whether the client's socket may be read for this exchange now. */
bool kvw_request_wants_bytes(const struct kvw_exchange *x);

/* Handles a body slower than limits.body_rate. */
void kvw_request_too_slow(struct kvw_exchange *x);

/* Parses the head into the loop's request_head, unless it is there already. False: the head cannot
 * be parsed. */
bool kvw_request_own_head(struct kvw_exchange *x);

/* Returns the value of the head's first field of that name (in any case); len 0: there is none, or
 * its value is empty. For steps: after a wait, or while a body arrived, the loop's request_head is
 * that of another request, so that a step must not search it. A slice of the raw head. */
struct kvw_slice kvw_request_field(struct kvw_exchange *x, struct kvw_slice name);

#endif
