/*
 * wire.h - sends and receives bytes over a socket that never blocks, with or without TLS.
 *
 * Edge-triggered: kvw_redis_wire_event records epoll's events, and `readable` and `writable` hold
 * until the kernel returns EAGAIN, so that a socket is registered once and used only when it is
 * ready.
 *
 * Failures leave their cause in `why`, as text for people: OpenSSL's name of a certificate's fault,
 * else errno's. No call raises SIGPIPE.
 *
 * Threads: one.
 */
#ifndef KVW_REDIS_WIRE_H
#define KVW_REDIS_WIRE_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define KVW_REDIS_WIRE_WHY 160

/* A connection. All zeroes but fd = -1: closed. */
struct kvw_redis_wire {
	int fd;
	SSL *ssl;                /* NULL: plain */
	BIO_METHOD *bio_method;  /* the method of ssl's BIO */
	bool readable, writable; /* whether the socket is readable and writable, as far as known */
	/* the peer hung up, or an error is pending: reading goes on until a read shows it */
	bool ending;
	bool secured; /* the handshake has ended */
	bool failed;
	/* TLS waits for the socket's other direction: a read for writable, a write for readable */
	bool read_wants_write, write_wants_read;
	/* TLS has sent a part of a record; the next send must begin with the same bytes */
	bool blocked;
	uint64_t sent, received; /* bytes of payload over all connections of this wire */
	char why[KVW_REDIS_WIRE_WHY];
};

enum kvw_redis_wire_go { KVW_REDIS_WIRE_WAIT, KVW_REDIS_WIRE_GO, KVW_REDIS_WIRE_FAILED };

/* Begins to connect, and registers the socket with `epoll` for all edges, with `tag` in
 * data.ptr. */
bool kvw_redis_wire_open(struct kvw_redis_wire *w, const struct sockaddr *address, socklen_t len,
	int epoll, void *tag);
enum kvw_redis_wire_go kvw_redis_wire_connected(struct kvw_redis_wire *w);

/* Begins TLS on a connected socket. The server's certificate must be for `host`, a name or an IP
 * address. */
bool kvw_redis_wire_secure(struct kvw_redis_wire *w, SSL_CTX *context, const char *host);
enum kvw_redis_wire_go kvw_redis_wire_handshake(struct kvw_redis_wire *w);

void kvw_redis_wire_event(struct kvw_redis_wire *w, uint32_t events);

/* Return the number of bytes moved; 0: none at present; -1: the connection has failed or ended.
 * After a send has returned 0 with `blocked` set, the next one must begin with the same bytes, and
 * have at least as many. */
ssize_t kvw_redis_wire_send(struct kvw_redis_wire *w, const struct iovec *pieces, size_t count);
ssize_t kvw_redis_wire_receive(struct kvw_redis_wire *w, const struct iovec *pieces, size_t count);

/* keeps `why`, and the counts of sent and received bytes */
void kvw_redis_wire_close(struct kvw_redis_wire *w);

/* The certificates that all connections of a client use: trusted ones and its own. An empty path is
 * NULL or "". The function returns NULL if a file is missing or unusable; `why`
 * (KVW_REDIS_WIRE_WHY) names it. Free the result with SSL_CTX_free. */
struct kvw_redis_wire_tls_options {
	const char *ca;                /* "": the system's trusted CAs */
	/* "": none; if key is "", the key is in the certificate's file */
	const char *certificate, *key;
};
SSL_CTX *kvw_redis_wire_tls_create(const struct kvw_redis_wire_tls_options *options, char *why);

#endif
