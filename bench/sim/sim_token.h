/*
 * sim_token.h - the simulated tokenizer: about four bytes of text a token.
 *
 * A token is a run of up to four ASCII characters, or one other character. The cut starts again
 * with every string, so equal beginnings give equal tokens, and text that was generated token by
 * token is cut at the same places when it comes back as part of a conversation. Ids are
 * reversible:
 *     0 .. 2^28-1            ASCII, seven bits a character, first character highest, no NUL
 *     2^28 + code point      one character that is not ASCII, or NUL
 *     KVB_TOKEN_SPECIAL + n  control tokens of the chat template; no text of their own
 * A list of tokens may have a separator: a text that is one such token wherever it appears, and behind
 * which the cut starts again, as a text has that a real tokenizer knows as one of its special tokens.
 */
#ifndef KVB_SIM_TOKEN_H
#define KVB_SIM_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/load/mem.h"

#define KVB_TOKEN_WIDE    (UINT32_C(1) << 28)
#define KVB_TOKEN_SPECIAL (UINT32_C(1) << 29)
#define KVB_TOKEN_VOCAB   (KVB_TOKEN_SPECIAL + 16)

enum kvb_special {
	KVB_TOKEN_START = KVB_TOKEN_SPECIAL, /* a message begins; its role follows */
	KVB_TOKEN_HEADER_END,                /* the role has ended, the content follows */
	KVB_TOKEN_END,                       /* the message ends */
	KVB_TOKEN_IMAGE,                     /* comes before the digest of an image or sound */
	KVB_TOKEN_SEPARATOR,                 /* the list's separator */
};

/* A growing list of token ids; all zeroes is an empty one. */
struct kvb_tokens {
	uint32_t *ids; /* owned */
	size_t count, cap;
	const char *separator; /* borrowed; NULL or "": none */
};

void kvb_tokens_free(struct kvb_tokens *tokens);
void kvb_tokens_add(struct kvb_tokens *tokens, uint32_t id);
/* Divides the text, which must be UTF-8, into tokens; a stray byte counts as one character. */
void kvb_tokens_text(struct kvb_tokens *tokens, const char *text, size_t len);

/* Appends the token's text; nothing for control tokens, and ids that have no text. */
void kvb_token_write(struct kvb_buf *buf, uint32_t id);

/* Returns the next token of an answer: four bytes of plain words, which depend on the state
 * only. */
uint32_t kvb_token_generate(uint64_t *state, uint32_t position);

#endif
