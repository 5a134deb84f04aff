/*
 * tokenless.h - detects answers of status 200 without any token.
 *
 * An engine that is put to sleep or paused aborts its requests (vLLM's mode=abort, the default),
 * and its API server ends their answers as if complete: 200, and
 *
 * 	/v1/completions       a stream of nothing but usage, if wished, and "data: [DONE]"
 * 	/v1/chat/completions  the same after the event that names the role
 * 	/v1/messages          message_start, then message_delta; without streaming "output_tokens":0
 * 	without streaming     "finish_reason":"abort", as in a stream that is aborted with its
 * 	                      first token
 *
 * The client would get an empty answer, though another worker could generate one. The event with
 * the role and message_start come together with the first token: keeping them until then delays
 * nothing.
 */
#ifndef KVW_TOKENLESS_H
#define KVW_TOKENLESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kvw_token_sign {
	KVW_TOKENS_UNKNOWN, /* nothing has arrived yet */
	KVW_TOKENS_OPENED,  /* only what servers send before the first token has arrived */
	KVW_TOKENS_SOME,    /* a token has arrived, or the piece is ambiguous */
	/* the answer has ended without a token, or with only the one that came with the abort,
	 * which no client has seen */
	KVW_TOKENS_NONE,
};

/* Returns what is known after the next piece of a stream. The piece comes without its preamble
 * (openai/preamble.h), except that message_start counts as opening. so_far: UNKNOWN or OPENED. A
 * piece that is not exactly one event counts as having a token. */
enum kvw_token_sign kvw_tokens_in_piece(enum kvw_token_sign so_far, const char *data, size_t len);

/* Returns whether the engine aborted an answer that is not a stream, judged from the answer or its
 * first piece. */
bool kvw_tokens_aborted(const char *data, size_t len);

#endif
