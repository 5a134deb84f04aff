/*
 * unread.h - bodies that kvway cannot read, of requests and of answers: refused, avoided or at
 * least counted.
 */
#ifndef KVW_UNREAD_H
#define KVW_UNREAD_H

#include "proxy/exchange.h"

/* At the head of a request whose body kvway would read, which the loop has just parsed. True: it
 * has a Content-Encoding, and was refused with 415. */
bool kvw_unread_refuses_encoded(struct kvw_exchange *x, bool read);

/* Its body was read, and is not what its path promises. */
void kvw_unread_body(struct kvw_exchange *x);

/* Counts it, and logs it once a minute. */
void kvw_unread_note(const struct kvw_exchange *x, enum kvw_counter counter, const char *what);

/* The head for a worker, whose answer is to be read: it may not be encoded. Writes a field. */
void kvw_unread_ask_plain(
	const struct kvw_exchange *x, struct kvw_head *head, struct kvw_writer *w);

/* An answer's head: counts one that is encoded all the same. */
void kvw_unread_answer(const struct kvw_exchange *x, const struct kvw_head *head);

#endif
