/*
 * opening.h - the beginning of an answer: its bytes before the first token, and the bytes held back
 * from the client until kvway can judge the answer.
 *
 * These functions know neither the exchange nor its worker. Threads: those of the attempt's loop.
 */
#ifndef KVW_OPENING_H
#define KVW_OPENING_H

#include "base/account.h"
#include "base/block.h"
#include "openai/preamble.h"
#include "openai/tokenless.h"

/* State of an answer's beginning. Zeroed, with line_ended set: no byte has arrived. */
struct kvw_opening {
	struct kvw_preamble preamble; /* the preamble of a stream, until a token */
	bool line_ended;              /* the last piece of the stream ended a line */
	uint8_t first_len;
	char first[48]; /* first bytes of a stream after its preamble; first_len of them */
	enum kvw_token_sign tokens;   /* of an answer of status 200, as far as known */
	/* An answer whose body explains its status. 503: the worker is full, or broken. 400: the
	 * prompt is too long for this worker only. */
	bool doubtful;
	bool too_long;                /* the answer says that the prompt is too long */
	bool rank_asked;   /* 400: the body shows whether the server refuses the rank's number */
	bool rank_refused; /* the body says that the server refuses the rank's number */
	bool full;                    /* the answer says that the engine is full */
	bool error_event; /* the stream brought an error that is not the client's fault */
};

/* Length of the front part of the next piece that no engine has computed, in a stream in which only
 * a token shows that its engine works; len > 0. After the first token such parts are whole pieces
 * of comments or pings, as servers send them. */
size_t kvw_opening_skip(struct kvw_opening *o, const char *data, size_t len);

/* Checks the next piece of a stream, after its preamble. While the answer is held, keeps its
 * beginning until that can be judged; afterwards checks an event if the piece begins with one, like
 * vLLM's pieces. Returns whether the first error begins in this piece. */
bool kvw_opening_find_error(struct kvw_opening *o, bool held, const char *data, size_t len);

/* Looks for the answer's first token. To be called until one was found. */
void kvw_opening_find_token(struct kvw_opening *o, bool stream, const char *data, size_t len);

/* Returns whether the stream has brought no token, and no bytes that may be one. */
bool kvw_opening_lacks_token(const struct kvw_opening *o);

/* Bytes held back from the client. Zeroed: none. */
struct kvw_held {
	/* the head for the client; NULL: not written, or sent */
	struct kvw_block *head;
	uint32_t head_len; /* length of the head in its block: a body may follow there */
	struct kvw_chain body;  /* the body's bytes for which that block has no room */
	uint64_t memory;        /* bytes of `body` charged to limits.body_memory */
};

/* Keeps bytes after the head. False: no memory. */
bool kvw_held_keep(
	struct kvw_held *held, struct kvw_block_pool *pool, const char *data, size_t len);

/* Charges the bytes kept now. */
void kvw_held_charge(struct kvw_held *held, struct kvw_account *account);

/* Fills iov with up to max pieces of all that is held, which is not empty. Returns their number. */
int kvw_held_iov(const struct kvw_held *held, struct iovec *iov, int max);

/* Drops the held bytes, which were sent, or never will be. */
void kvw_held_drop(
	struct kvw_held *held, struct kvw_block_pool *pool, struct kvw_account *account);

#endif
