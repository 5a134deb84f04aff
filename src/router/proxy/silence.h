/*
 * silence.h - bytes for a client whose stream waits (http.keep_alive_comments).
 *
 * Load balancers and tunnels cut a connection on which nothing passes for some 60 s, and a request
 * may wait longer in the queue or for its prefill. A client that asked for a stream then gets the
 * head of one, status 200, and a comment each time; comments of the worker's own API server reach
 * the client the same way. The answer is then `opened`.
 *
 * The client has still seen nothing of an answer: the request may go to any worker, and its
 * response state stays below STREAMING. The comments are whole chunks before the first byte of any
 * answer, so that a worker's chunks may follow unchanged. A later error is an event, in the form of
 * the path.
 */
#ifndef KVW_SILENCE_H
#define KVW_SILENCE_H

#include "http/head.h"
#include "proxy/exchange.h"

/* Called when the request is known and may wait from now on: starts x->silence.timer, if kvway
 * sends comments of its own. */
void kvw_silence_await(struct kvw_exchange *x);

/* Sends the client a comment, if its answer allows one now. */
void kvw_silence_comment(struct kvw_exchange *x);

/* Returns how the body of a worker's answer is passed on in an opened exchange. */
enum kvw_pass kvw_silence_pass(const struct kvw_exchange *x, const struct kvw_head *head);

/* Ends the client's stream with one event that has a worker's whole answer, when that answer is
 * complete, held, and not a stream (KVW_PASS_EVENT). */
void kvw_silence_held(struct kvw_exchange *x);

/* Sends an error's body as an event, and the end of the stream. The caller sets the states. */
void kvw_silence_error(struct kvw_exchange *x, int status, const char *body, size_t len);

#endif
