/*
 * cors.h - web pages of other origins: their preflights, and the fields by which a browser lets
 * them read an answer.
 */
#ifndef KVW_CORS_H
#define KVW_CORS_H

#include "proxy/exchange.h"

#define KVW_CORS_ROOM 768

/* Notes origin and preflight (OPTIONS with Origin and Access-Control-Request-Method, without a
 * body) of the parsed head. */
void kvw_cors_note(struct kvw_exchange *x, const struct kvw_head *head);

/* Returns whether kvway answers this preflight itself: any preflight where http.allowed_origins
 * names origins, and preflights of kvway's own paths. A worker answers any other. */
bool kvw_cors_own_preflight(const struct kvw_exchange *x);

/* Writes fields of kvway's answer to a preflight, besides those of kvw_cors_write, into buf, of
 * KVW_CORS_ROOM bytes, as a string; the head is the one parsed last. False: the origin may read
 * nothing. */
bool kvw_cors_preflight(const struct kvw_exchange *x, const struct kvw_head *head, char *buf);

/* Writes the fields of an answer of kvway itself. */
void kvw_cors_write(const struct kvw_exchange *x, struct kvw_writer *w);

/* Handles a worker's answer: writes the fields that the answer lacks, and learns which pages may
 * read workers' answers. */
void kvw_cors_answered(
	const struct kvw_exchange *x, const struct kvw_head *answer, struct kvw_writer *w);

#endif
