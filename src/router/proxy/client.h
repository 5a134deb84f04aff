/*
 * client.h - a client's connection: its state, and the bytes sent on it.
 *
 * receive.c handles received bytes. These functions do not move an exchange: when a connection
 * breaks in the middle of an exchange, the client becomes LOST, and kvw_exchange_advance finds that
 * state.
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
	KVW_CLIENT_HANDSHAKE, /* TLS has begun: no read or write is possible */
	KVW_CLIENT_OPEN,
	/* no further request: the client closes once all waiting bytes were sent */
	KVW_CLIENT_LAST,
	/* all was sent; the client's further bytes are discarded for a while */
	KVW_CLIENT_LINGERING,
	KVW_CLIENT_LOST,      /* broken or cut while its exchange lives; the exchange ends next */
	KVW_CLIENT_CLOSED,    /* freed when the loop has turned */
	KVW_CLIENT_STATES
};

#define KVW_CLIENT_ADDRESS 48 /* room for an address as text */

/* A client's connection. Owned by its loop. An idle client holds no buffer. */
struct kvw_client {
	struct kvw_io io; /* first: the socket's callback casts it to the client */
	struct kvw_loop *loop;
	TAILQ_ENTRY(kvw_client) entry;        /* loop->clients, or loop->dead if CLOSED */
	enum kvw_client_state state;
	/* limits the time of idle connections, heads, bodies and lingering */
	struct kvw_timer timer;
	struct kvw_timer write_timer; /* runs while the client takes no bytes of its answer */
	struct kvw_chain in; /* received bytes that are not yet part of an exchange */
	size_t find_from;                     /* where the search for the head's end continues */
	int64_t head_start_ns;                /* first byte of the head in `in`; 0: none */
	struct kvw_chain out;                 /* to send */
	struct kvw_exchange *exchange;        /* NULL between requests */

	bool https;
	bool large; /* the last request did not fit into a small block */
	bool reset; /* close by RST, so that a cut answer cannot look whole */
	bool trusted; /* the peer is a proxy that may name a request's client (front.h) */
	char address[KVW_CLIENT_ADDRESS];
	/* subject of the certificate that the client showed; owned; NULL: none */
	char *certificate;
};

/* Writes the state. A forbidden step leaves the state alone, is logged and counted. */
void kvw_client_state(struct kvw_client *client, enum kvw_client_state state);

/* Returns whether bytes may be sent to the client. */
static inline bool kvw_client_alive(const struct kvw_client *client)
{
	return client->state < KVW_CLIENT_LOST;
}

/* Returns whether the client waits for its next request, before its first byte. */
static inline bool kvw_client_idle(const struct kvw_client *client)
{
	return client->state <= KVW_CLIENT_OPEN && client->exchange == NULL &&
	       client->in.bytes == 0 && client->out.bytes == 0 && !client->io.readable;
}

/* Sends as much as the socket takes now and keeps the rest. A broken socket loses the client. */
void kvw_client_send(struct kvw_client *client, const struct iovec *iov, int count);

/* Sends waiting bytes, as far as the socket takes them. False: no byte could be sent. */
bool kvw_client_flush(struct kvw_client *client);

/* Called when the exchange has ended and freed its buffers: begins the next request, or closes. */
void kvw_client_exchange_ended(struct kvw_client *client);

/* Closes a client in state LAST without an exchange, whose answer was completely sent. unread: the
 * client may have sent more bytes, which are first discarded for a while. */
void kvw_client_finish(struct kvw_client *client, bool unread);

/* Forgets received bytes that are not part of an exchange, so that no copy of a client's key
 * stays. */
void kvw_client_drop_input(struct kvw_client *client);

/* Gives a useless connection up: closes it at once, or makes the client LOST while it has an
 * exchange. */
void kvw_client_lose(struct kvw_client *client, bool reset);

#endif
