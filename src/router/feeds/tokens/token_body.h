/*
 * token_body.h - converts a request's body into one for /tokenize.
 *
 * vLLM turns /v1/messages and /v1/responses into a chat before it applies the chat template, and
 * passes some members of the request to the template that /tokenize does not read. For plain text
 * this function writes the same chat.
 */
#ifndef KVW_TOKEN_BODY_H
#define KVW_TOKEN_BODY_H

#include "kvway/err.h"
#include "kvway/route_request.h"

/* Writes the body to post. The caller frees *out. KVW_ENOTFOUND: /tokenize cannot express this
 * prompt. KVW_EPROTO: the request's body is not the JSON of its path. KVW_ENOMEM. */
enum kvw_err kvw_token_body_convert(enum kvw_api api, const char *body, size_t len, char **out,
	size_t *out_len) KVW_MUST_CHECK;

#endif
