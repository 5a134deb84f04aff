/*
 * reply.h - answers that kvway gives itself: errors, health, metrics.
 */
#ifndef KVW_REPLY_H
#define KVW_REPLY_H

#include "proxy/exchange.h"

/* An error of ours: JSON in the path's own shape; after it the connection is closed if the request
 * was not read to its end. */
void kvw_reply_error(struct kvw_exchange *x, int status, const char *message);

/* With a type of its own and extra field lines (may be NULL). */
void kvw_reply_error_as(struct kvw_exchange *x, int status, const char *type, const char *param,
	const char *extra, const char *message);

/* The same with a word as the error's code. */
void kvw_reply_error_code(struct kvw_exchange *x, int status, const char *type, const char *code,
	const char *extra, const char *message);

void kvw_reply(struct kvw_exchange *x, int status, const char *content_type, const char *extra,
	const char *body, size_t len);

/* Answer for a connection that has no exchange (bad head): sent, then closed. */
void kvw_reply_bad_head(struct kvw_client *client, const struct kvw_head_error *error);

#endif
