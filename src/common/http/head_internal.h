/*
 * head_internal.h - how the files that read a head divide the work. Inside src/common/http only.
 *
 *   head_parse.c   bytes -> lines -> fields: the grammar, and nothing about meaning
 *   head_rules.c   what the fields say together: framing, connection, host, expectations
 *   second_look.c  llhttp over the same bytes, and whether it says the same
 *
 * Each step returns false after filling *error; the first reason found is the one reported.
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

/* Checks what the fields of a request mean and fills the rest of *head. */
bool kvw_head_apply_request(struct kvw_head *head, struct kvw_head_error *error);

/* The same for a response; errors carry 502. */
bool kvw_head_apply_response(struct kvw_head *head, bool to_head, struct kvw_head_error *error);

/* host[:port] as it may stand in Host or in a target. */
bool kvw_head_authority_valid(struct kvw_slice authority);

/* The method is one that llhttp knows and that speaks HTTP (not RTSP). */
bool kvw_method_known(struct kvw_slice method);

/* llhttp reads the head and finds the same end, version and framing. */
bool kvw_second_look(struct kvw_head *head, bool response, struct kvw_head_error *error);

/* What kvw_second_look remembers, empty; from malloc. NULL: out of memory. */
struct kvw_passed *kvw_passed_create(void);
void kvw_passed_destroy(struct kvw_passed *passed); /* wipes it; NULL is allowed */

#endif
