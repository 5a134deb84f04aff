/*
 * client.h - a client's connection: its state, and what is sent on it.
 *
 * What it receives is receive.c's part. Nothing here moves an exchange: where a connection breaks
 * in the middle of one, the client is LOST, which the exchange finds when it is advanced.
 */
#ifndef KVW_CLIENT_H
#define KVW_CLIENT_H

#include "base/io.h"
#include "proxy/loop.h"

/* PROXY -> HANDSHAKE -> OPEN -> LAST -> LINGERING -> CLOSED, with LOST from OPEN and LAST, CLOSED
 * from anywhere. */
enum kvw_client_state {
	/* a header of the PROXY protocol is due (front.h); nothing else was read */
	KVW_CLIENT_PROXY,
	KVW_CLIENT_HANDSHAKE, /* TLS has begun, nothing can be read or written */
	KVW_CLIENT_OPEN,
	KVW_CLIENT_LAST,      /* no further request: closes when all that waits was sent */
	KVW_CLIENT_LINGERING, /* all was sent; what it still sends is discarded for a while */
	KVW_CLIENT_LOST,      /* broken or cut while its exchange lives, which ends next */
	KVW_CLIENT_CLOSED,    /* freed when the loop has turned */
	KVW_CLIENT_STATES
};

#define KVW_CLIENT_ADDRESS 48 /* room for an address as text */

/* Owned by its loop. Idle it holds no buffer. */
struct kvw_client {
	struct kvw_io io; /* first: the socket's callback gets the client by it */
	struct kvw_loop *loop;
	TAILQ_ENTRY(kvw_client) entry;        /* loop->clients, or loop->dead if CLOSED */
	enum kvw_client_state state;
	struct kvw_timer timer;               /* idle, head, body, linger */
	struct kvw_timer write_timer;         /* the client takes nothing */
	struct kvw_chain in;                  /* received, not yet part of an exchange */
	size_t find_from;                     /* where the search for the head's end goes on */
	int64_t head_start_ns;                /* first byte of the head in `in`; 0: none */
	struct kvw_chain out;                 /* to send */
	struct kvw_exchange *exchange;        /* NULL between requests */

	bool https;
	bool large; /* the last request did not fit into a small block */
	bool reset; /* close by RST, so that a cut answer cannot look whole */
	bool trusted; /* it is a proxy that may say for which client a request is (front.h) */
	char address[KVW_CLIENT_ADDRESS];
	char *certificate; /* subject of the one that it has shown; owned; NULL: none */
};

/* Writes the state. A step that is not allowed leaves it alone, is logged and counted. */
void kvw_client_state(struct kvw_client *client, enum kvw_client_state state);

/* May be sent to. */
static inline bool kvw_client_alive(const struct kvw_client *client)
{
	return client->state < KVW_CLIENT_LOST;
}

/* Waits for its next request, of which nothing has come. */
static inline bool kvw_client_idle(const struct kvw_client *client)
{
	return client->state <= KVW_CLIENT_OPEN && client->exchange == NULL &&
	       client->in.bytes == 0 && client->out.bytes == 0 && !client->io.readable;
}

/* Sends what the socket takes now and keeps the rest. A broken socket loses the client. */
void kvw_client_send(struct kvw_client *client, const struct iovec *iov, int count);

/* Sends what waits, as far as the socket takes it. False: nothing could be sent. */
bool kvw_client_flush(struct kvw_client *client);

/* The exchange is over and freed its buffers: next request, or close. */
void kvw_client_exchange_ended(struct kvw_client *client);

/* Closes a client in state LAST without an exchange, whose answer was sent whole. unread: it may
 * have sent more, which is discarded for a while first. */
void kvw_client_finish(struct kvw_client *client, bool unread);

/* Forgets what was received and is not part of an exchange: where clients have keys no copy of one
 * is left. */
void kvw_client_drop_input(struct kvw_client *client);

/* The connection is of no more use: closed at once, or LOST while there is an exchange. */
void kvw_client_lose(struct kvw_client *client, bool reset);

#endif
