/*
 * opening.h - the beginning of an answer: its bytes before the first token, and the bytes held back
 * from the client until kvway can judge the answer.
 *
 * These functions use neither the exchange nor its worker. Threads: those of the attempt's loop.
 */
#ifndef KVW_OPENING_H
#define KVW_OPENING_H

#include "base/account.h"
#include "base/block.h"
#include "openai/preamble.h"
#include "openai/tokenless.h"

/* State of an answer's beginning. Zeroed, with line_ended set: no byte has arrived. */
struct kvw_opening {
	struct kvw_preamble preamble; /* parser of a stream's preamble, until there is a token */
	bool line_ended;              /* the last piece of the stream ended a line */
	uint8_t first_len;
	char first[48]; /* first bytes of a stream after its preamble; first_len of them */
	enum kvw_token_sign tokens; /* for an answer of status 200: whether it has shown a token */
	/* An answer whose body must be read to judge it. 503: the worker is full, or broken. 400:
	 * the prompt may be too long for this worker only. */
	bool doubtful;
	bool too_long;                /* the answer says that the prompt is too long */
	/* for a 400: the body must be read to see whether the server refuses the rank's number */
	bool rank_asked;
	bool rank_refused; /* the body says that the server refuses the rank's number */
	bool full;                    /* the answer says that the engine is full */
	bool error_event; /* the stream brought an error that is not the client's fault */
};

/* Returns the length of the part at the beginning of the next piece that no engine has computed, in
 * a stream in which only a token shows that the engine works; len > 0. After the first token such
 * parts are whole pieces, comments or pings, since servers send them so. */
size_t kvw_opening_skip(struct kvw_opening *o, const char *data, size_t len);

/* Checks the next piece of a stream, after its preamble. While the answer is held, keeps its
 * beginning until that can be judged; afterwards checks an event if the piece begins with one, like
 * vLLM's pieces. Returns whether the first error begins in this piece. */
bool kvw_opening_find_error(struct kvw_opening *o, bool held, const char *data, size_t len);

/* Looks for the answer's first token. Called until one was found. */
void kvw_opening_find_token(struct kvw_opening *o, bool stream, const char *data, size_t len);

/* Returns whether the stream has brought no token, and no bytes that may be one. */
bool kvw_opening_lacks_token(const struct kvw_opening *o);

/* Bytes held back from the client. Zeroed: none. */
struct kvw_held {
	/* the answer's head, as written for the client; NULL: not written yet, or sent */
	struct kvw_block *head;
	/* length of the head in its block; the first body bytes may follow it there */
	uint32_t head_len;
	struct kvw_chain body;  /* the body's bytes for which that block has no room */
	uint64_t memory;        /* bytes of `body` charged to limits.body_memory */
};

/* Keeps bytes after the head. False: no memory. */
bool kvw_held_keep(
	struct kvw_held *held, struct kvw_block_pool *pool, const char *data, size_t len);

/* Charges the bytes kept now. */
void kvw_held_charge(struct kvw_held *held, struct kvw_account *account);

/* Fills iov with up to max pieces of the held bytes, of which there must be some. Returns their
 * number. */
int kvw_held_iov(const struct kvw_held *held, struct iovec *iov, int max);

/* Drops the held bytes, which were sent, or never will be. */
void kvw_held_drop(
	struct kvw_held *held, struct kvw_block_pool *pool, struct kvw_account *account);

#endif
