/*
 * cors.h - web pages of other origins: their preflights, and the fields by which a browser lets
 * them read an answer.
 */
#ifndef KVW_CORS_H
#define KVW_CORS_H

#include "proxy/exchange.h"

#define KVW_CORS_ROOM 768

/* Notes what the parsed head says: origin, preflight (OPTIONS with Origin and
 * Access-Control-Request-Method, without a body). */
void kvw_cors_note(struct kvw_exchange *x, const struct kvw_head *head);

/* Does kvway answer this preflight itself: any, where http.allowed_origins says which pages may
 * read, and those of its own paths? Any other is a worker's to answer. */
bool kvw_cors_own_preflight(const struct kvw_exchange *x);

/* Fields of kvway's answer to a preflight, besides the next one's, into buf, of KVW_CORS_ROOM
 * bytes, as a string; the head is the one parsed last. False: its origin may read nothing. */
bool kvw_cors_preflight(const struct kvw_exchange *x, const struct kvw_head *head, char *buf);

/* Writes the fields of an answer that kvway gives itself. */
void kvw_cors_write(const struct kvw_exchange *x, struct kvw_writer *w);

/* An answer of a worker: writes the fields that it lacks, and hears which pages may read what
 * workers say. */
void kvw_cors_answered(
	const struct kvw_exchange *x, const struct kvw_head *answer, struct kvw_writer *w);

#endif
