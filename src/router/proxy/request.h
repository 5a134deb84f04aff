/*
 * request.h - the request side of an exchange as it arrives: head and body.
 */
#ifndef KVW_REQUEST_H
#define KVW_REQUEST_H

#include "proxy/exchange.h"

/* client->in begins with a whole head of head_len bytes. */
void kvw_request_begin(struct kvw_exchange *x, size_t head_len);

/* More of the body lies at the end of x->in: n bytes not yet fed. */
void kvw_request_body(struct kvw_exchange *x, size_t n);

/* Returns whether the client's socket may be read for this exchange now. */
bool kvw_request_wants_bytes(const struct kvw_exchange *x);

/* The client sent FIN or its socket broke while the request was incomplete. */
void kvw_request_cut(struct kvw_exchange *x);

/* Parses the head into the loop's request_head, unless it is there already. False: it cannot be. */
bool kvw_request_own_head(struct kvw_exchange *x);

#endif
