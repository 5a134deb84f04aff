/*
 * opening.h - how an answer begins: what it says before its first token, and what is held back from
 * the client until that can be judged.
 *
 * These functions know neither the exchange nor its worker. Part of an attempt, of its loop alone.
 */
#ifndef KVW_OPENING_H
#define KVW_OPENING_H

#include "base/account.h"
#include "base/block.h"
#include "openai/preamble.h"
#include "openai/tokenless.h"

/* Zeroed, with line_ended set: nothing has come. */
struct kvw_opening {
	struct kvw_preamble preamble; /* of a stream, until a token */
	bool line_ended;              /* the last piece of the stream ended a line */
	uint8_t first_len;
	char first[48]; /* the first bytes of a stream's behind its preamble; first_len of them */
	enum kvw_token_sign tokens;   /* of a 200, as far as it shows */
	/* An answer that its body explains: 503, is the worker full, or broken? 400, is the prompt
	 * too long for it alone? */
	bool doubtful;
	bool too_long;                /* it says so */
	bool rank_asked;   /* 400: is it the number of a data-parallel rank that is refused? */
	bool rank_refused; /* it says so */
	bool full;                    /* it says that its engine is full */
	bool error_event; /* its stream brought an error that is not the client's fault */
};

/* How many bytes at the front of the next piece of a stream in which only a token says that its
 * engine works, no engine has computed; len > 0. Behind the first token these are pieces that are
 * comments or pings as a whole, as servers send them. */
size_t kvw_opening_skip(struct kvw_opening *o, const char *data, size_t len);

/* Looks at the next piece of a stream, behind its preamble. While it is held its beginning is kept
 * until it can be judged; after that an event is looked at where a piece begins with one, as vLLM's
 * do. Returns whether an error begins in it that is the first. */
bool kvw_opening_find_error(struct kvw_opening *o, bool held, const char *data, size_t len);

/* Until one was found: has the answer a token? */
void kvw_opening_find_token(struct kvw_opening *o, bool stream, const char *data, size_t len);

/* Has the stream brought nothing that is a token, or may be one? */
bool kvw_opening_lacks_token(const struct kvw_opening *o);

/* What is held back from the client. Zeroed: nothing. */
struct kvw_held {
	/* the head for the client; NULL: none was written, or it was sent */
	struct kvw_block *head;
	uint32_t head_len; /* of the block's bytes, those of the head: a body may follow them */
	struct kvw_chain body;  /* for which that block has no room */
	uint64_t memory;        /* of `body` charged to limits.body_memory */
};

/* Keeps bytes behind the head. False: no memory. */
bool kvw_held_keep(
	struct kvw_held *held, struct kvw_block_pool *pool, const char *data, size_t len);

/* Charges what is kept now. */
void kvw_held_charge(struct kvw_held *held, struct kvw_account *account);

/* Up to max pieces of all that is held, not 0. Returns how many. */
int kvw_held_iov(const struct kvw_held *held, struct iovec *iov, int max);

/* It was sent, or never will be. */
void kvw_held_drop(
	struct kvw_held *held, struct kvw_block_pool *pool, struct kvw_account *account);

#endif
