/*
 * reply.h - sends the answers of kvway itself: errors, health, metrics.
 */
#ifndef KVW_REPLY_H
#define KVW_REPLY_H

#include "proxy/exchange.h"

/* Sends an error of kvway: JSON in the path's own shape; then closes the connection if the request
 * was not read to its end. This function and the next count a status below 500 in
 * kvway_bad_requests_total. */
void kvw_reply_error(struct kvw_exchange *x, int status, const char *message);

/* Sends an error with its own type (NULL: the usual one of the status) and extra field lines, each
 * with its CRLF (may be NULL). */
void kvw_reply_error_as(struct kvw_exchange *x, int status, const char *type, const char *param,
	const char *extra, const char *message);

/* Sends an error with a code for programs in the member `code`, which has the status otherwise;
 * the caller counts it. */
void kvw_reply_error_code(struct kvw_exchange *x, int status, const char *type, const char *code,
	const char *extra, const char *message);

void kvw_reply(struct kvw_exchange *x, int status, const char *content_type, const char *extra,
	const char *body, size_t len);

/* Answers a connection that has no exchange (bad head), and closes it. */
void kvw_reply_bad_head(struct kvw_client *client, const struct kvw_head_error *error);

#endif
