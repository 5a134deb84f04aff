/*
 * wire.h - bytes to and from one server: a socket that never blocks, with TLS on it or without.
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

/* All zeroes but fd = -1: closed. */
struct kvw_redis_wire {
	int fd;
	SSL *ssl;                /* NULL: plain */
	BIO_METHOD *bio_method;  /* of ssl */
	bool readable, writable; /* of the socket, as far as known */
	bool ending;  /* the peer hung up, or an error is pending: read on until it shows */
	bool secured; /* the handshake has ended */
	bool failed;
	bool read_wants_write, write_wants_read; /* TLS waits for the socket's other direction */
	bool blocked; /* TLS: a record is partly sent; its bytes must be passed again */
	uint64_t sent, received; /* bytes of payload over all connections */
	char why[KVW_REDIS_WIRE_WHY];
};

enum kvw_redis_wire_go { KVW_REDIS_WIRE_WAIT, KVW_REDIS_WIRE_GO, KVW_REDIS_WIRE_FAILED };

/* Begins to connect and registers the socket with `epoll` for all edges, `tag` in data.ptr. */
bool kvw_redis_wire_open(struct kvw_redis_wire *w, const struct sockaddr *address, socklen_t len,
	int epoll, void *tag);
enum kvw_redis_wire_go kvw_redis_wire_connected(struct kvw_redis_wire *w);

/* Starts TLS on a connected socket: the server's certificate must be for `host`, a name or an IP
 * address. */
bool kvw_redis_wire_secure(struct kvw_redis_wire *w, SSL_CTX *context, const char *host);
enum kvw_redis_wire_go kvw_redis_wire_handshake(struct kvw_redis_wire *w);

void kvw_redis_wire_event(struct kvw_redis_wire *w, uint32_t events);

/* Bytes moved; 0: none at present; -1: the connection has failed or ended. After send returned 0,
 * while `blocked`, the next send must begin with the same bytes, and at least as many. */
ssize_t kvw_redis_wire_send(struct kvw_redis_wire *w, const struct iovec *pieces, size_t count);
ssize_t kvw_redis_wire_receive(struct kvw_redis_wire *w, const struct iovec *pieces, size_t count);

void kvw_redis_wire_close(struct kvw_redis_wire *w); /* keeps why, sent and received */

/* Trusted and own certificates for all connections of a client. Empty paths are NULL or "". NULL: a
 * file is missing or unusable; `why` (KVW_REDIS_WIRE_WHY) names it. Free with SSL_CTX_free. */
struct kvw_redis_wire_tls_options {
	const char *ca;                /* "": the system's trusted CAs */
	const char *certificate, *key; /* "": none; key "": in the certificate's file */
};
SSL_CTX *kvw_redis_wire_tls_create(const struct kvw_redis_wire_tls_options *options, char *why);

#endif
