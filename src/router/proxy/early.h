/*
 * early.h - what comes of a stream before its first token (openai/preamble.h), and is held with its head.
 */
#ifndef KVW_EARLY_H
#define KVW_EARLY_H

#include "proxy/exchange.h"

/* Is this a stream in which only a token says that its engine works? */
bool kvw_early_possible(const struct kvw_exchange *x);

/* How many bytes at the front of such a stream's next piece, which is not empty, no engine has computed. Behind the first
 * token these are pieces that are comments or pings as a whole, as servers send them. */
size_t kvw_early_bytes(struct kvw_exchange *x, const char *data, size_t len);

/* Keeps bytes behind the held head: in its block, while that has room. False: no memory. */
bool kvw_early_keep(struct kvw_exchange *x, const char *data, size_t len);
/* Charges what is kept behind the head now to limits.body_memory. */
void kvw_early_charge(struct kvw_exchange *x);

#endif
