/*
 * head_internal.h - functions that the files of the head parser share. Inside src/common/http only.
 *
 *   head_parse.c   bytes -> lines -> fields: the grammar, not the meaning
 *   head_rules.c   the meaning of all fields: framing, connection, host, expectations
 *   second_look.c  llhttp over the same bytes, and whether it agrees
 *
 * Each step returns false after filling *error; the first fault found is reported.
 */
#ifndef KVW_HEAD_INTERNAL_H
#define KVW_HEAD_INTERNAL_H

#include "http/head.h"

/* Fills *error and returns false, so that a check can end with `return kvw_refuse(...)`. */
static inline __attribute__((cold)) bool kvw_refuse(
	struct kvw_head_error *error, int status, const char *message)
{
	error->status = status;
	error->message = message;
	return false;
}

/* Interprets the fields of a request, checks them and fills the rest of *head. */
bool kvw_head_apply_request(struct kvw_head *head, struct kvw_head_error *error);

/* As kvw_head_apply_request, for a response; errors have status 502. */
bool kvw_head_apply_response(struct kvw_head *head, bool to_head, struct kvw_head_error *error);

/* Returns whether the text is a host[:port] that is allowed in Host or in a target. */
bool kvw_head_authority_valid(struct kvw_slice authority);

/* Returns whether llhttp knows the method, and the method is one of HTTP, not of RTSP. */
bool kvw_method_known(struct kvw_slice method);

/* Returns whether llhttp accepts the head and finds the same end, version and framing. */
bool kvw_second_look(struct kvw_head *head, bool response, struct kvw_head_error *error);

/* Makes an empty table of heads for kvw_second_look. NULL: memory is short. */
struct kvw_passed *kvw_passed_create(void);
/* overwrites and frees the table; NULL is allowed */
void kvw_passed_destroy(struct kvw_passed *passed);

#endif
