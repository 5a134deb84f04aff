/*
 * token_answer.h - the answer of vLLM's /tokenize.
 *
 * 	{"count":4,"max_model_len":8192,"tokens":[1,2,3,4],"token_strs":null}
 */
#ifndef KVW_TOKEN_ANSWER_H
#define KVW_TOKEN_ANSWER_H

#include "kvway/err.h"
#include "feeds/tokens/token_list.h"

/* Reads the answer: an object with a list of ids that fit 32 bits; its count, if present, must be
 * that of the list. The caller owns *out. KVW_EPROTO: not such an object. KVW_ENOMEM. */
enum kvw_err kvw_token_answer_read(
	const char *text, size_t len, struct kvw_token_list **out) KVW_MUST_CHECK;

#endif
