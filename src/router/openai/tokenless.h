/*
 * tokenless.h - finds answers of 200 that have no token.
 *
 * An engine that is put to sleep or paused aborts what it has (vLLM's mode=abort, the default), and
 * its API server ends those answers as if all were well: 200, and
 *
 * 	/v1/completions       a stream of nothing but usage, if wished, and "data: [DONE]"
 * 	/v1/chat/completions  the same after the event that names the role
 * 	/v1/messages          message_start, then message_delta; without streaming "output_tokens":0
 * 	without streaming     "finish_reason":"abort", as in a stream that is aborted with its
 * 	                      first token
 *
 * For the client that is an empty answer, though another worker could have given it one. The event
 * with the role and message_start come together with what follows the first token: to keep them
 * until then delays nothing.
 */
#ifndef KVW_TOKENLESS_H
#define KVW_TOKENLESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kvw_token_sign {
	KVW_TOKENS_UNKNOWN, /* nothing has come yet */
	KVW_TOKENS_OPENED,  /* only what precedes the first token */
	KVW_TOKENS_SOME,    /* or this piece does not show it */
	KVW_TOKENS_NONE,    /* or one that came with the abort, which no client has seen */
};

/* After the next piece of a stream, without its preamble (openai/preamble.h), of which
 * message_start opens it too; so_far: UNKNOWN or OPENED. A piece that is not one whole event is
 * taken to have a token. */
enum kvw_token_sign kvw_tokens_in_piece(enum kvw_token_sign so_far, const char *data, size_t len);

/* Was the plain answer, or the first piece of it, cut short by its engine? */
bool kvw_tokens_aborted(const char *data, size_t len);

#endif
