/*
 * unread.h - refuses, avoids or at least counts bodies that kvway cannot read, of requests and of
 * answers.
 */
#ifndef KVW_UNREAD_H
#define KVW_UNREAD_H

#include "proxy/exchange.h"

/* Checks the head of a request whose body kvway would read, which the loop has just parsed. True:
 * refused with 415 because of a Content-Encoding. */
bool kvw_unread_refuses_encoded(struct kvw_exchange *x, bool read);

/* Handles a body that was read, and that its path does not allow. */
void kvw_unread_body(struct kvw_exchange *x);

/* Counts the unreadable body, and logs it once a minute. */
void kvw_unread_note(const struct kvw_exchange *x, enum kvw_counter counter, const char *what);

/* Asks the worker for a plain answer, by a field in the head for the worker. */
void kvw_unread_ask_plain(
	const struct kvw_exchange *x, struct kvw_head *head, struct kvw_writer *w);

/* Counts an answer that is encoded nevertheless. */
void kvw_unread_answer(const struct kvw_exchange *x, const struct kvw_head *head);

#endif
