/*
 * token_body.h - a request's prompt, asked of /tokenize in words that it understands.
 *
 * vLLM turns /v1/messages and /v1/responses into a chat of its own before it applies the template,
 * and gives the template of a chat some members of the request that /tokenize does not read. Where
 * only plain text is involved the same chat can be written down here.
 */
#ifndef KVW_TOKEN_BODY_H
#define KVW_TOKEN_BODY_H

#include "kvway/err.h"
#include "kvway/route_request.h"

/* Writes the body to post. The caller frees *out. KVW_ENOTFOUND: this prompt cannot be said in a
 * body of /tokenize. KVW_EPROTO: the request's body is not the JSON of its path. KVW_ENOMEM. */
enum kvw_err kvw_token_body_convert(enum kvw_api api, const char *body, size_t len, char **out,
	size_t *out_len) KVW_MUST_CHECK;

#endif
