/*
 * client.h - a client's connection: bytes in, bytes out, one exchange at a time.
 */
#ifndef KVW_CLIENT_H
#define KVW_CLIENT_H

#include "base/io.h"
#include "proxy/loop.h"

/* Owned by its loop. Idle it holds no buffer. */
struct kvw_client {
	struct kvw_io io;                     /* first: the socket's callback gets the client by it */
	struct kvw_loop *loop;
	TAILQ_ENTRY(kvw_client) entry;        /* loop->clients or loop->dead */
	struct kvw_timer timer;               /* idle, head, body, linger */
	struct kvw_timer write_timer;         /* the client takes nothing */
	struct kvw_chain in;                  /* received, not yet part of an exchange */
	size_t find_from;                     /* where the search for the head's end goes on */
	int64_t head_start_ns;                /* first byte of the head in `in`; 0: none */
	struct kvw_chain out;                 /* to send */
	struct kvw_exchange *exchange;        /* NULL between requests */

	bool https;
	bool handshaking; /* TLS has begun, nothing can be read or written */
	bool large; /* the last request did not fit into a small block */
	bool close_after_flush;
	bool lingering;
	bool reset; /* close by RST */
	bool dead;
	char address[48];
};

/* Takes an accepted socket. On failure it is closed. */
void kvw_client_create_take(struct kvw_loop *loop, int fd, const struct sockaddr *peer);

/* Sends what the socket takes now and keeps the rest. A broken socket ends the client. */
void kvw_client_send(struct kvw_client *client, const struct iovec *iov, int count);

/* The exchange is over and freed its buffers: next request, or close. */
void kvw_client_exchange_ended(struct kvw_client *client);

/* A last answer without an exchange was sent whole: close, discarding what still arrives. */
void kvw_client_answered(struct kvw_client *client);

/* Ends the connection now. reset: by RST, so that a cut answer cannot look whole. */
void kvw_client_close(struct kvw_client *client, bool reset);

#endif
