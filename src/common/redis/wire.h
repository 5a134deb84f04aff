/*
 * wire.h - bytes to and from one server: a socket that never blocks, with TLS on it or without.
 *
 * Works on edges: kvw_redis_wire_event notes what epoll said, and `readable` and `writable` hold
 * until the kernel says otherwise, so that a socket is registered once and asked only when it has
 * something.
 *
 * Failures leave their cause in `why`, in words for people: a certificate's fault by OpenSSL's name
 * for it, else errno's. No call raises SIGPIPE.
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
	bool ending;  /* the peer has hung up, or there is an error: read until it shows */
	bool secured; /* the handshake has ended */
	bool failed;
	bool read_wants_write, write_wants_read; /* TLS waits for the other direction */
	bool blocked; /* TLS: a record is half on its way, its bytes must be offered again */
	uint64_t sent, received; /* bytes of payload, also over several openings */
	char why[KVW_REDIS_WIRE_WHY];
};

enum kvw_redis_wire_go { KVW_REDIS_WIRE_WAIT, KVW_REDIS_WIRE_GO, KVW_REDIS_WIRE_FAILED };

/* Begins to connect and registers the socket with `epoll` for all edges, `tag` in data.ptr. */
bool kvw_redis_wire_open(struct kvw_redis_wire *w, const struct sockaddr *address, socklen_t len,
	int epoll, void *tag);
enum kvw_redis_wire_go kvw_redis_wire_connected(struct kvw_redis_wire *w);

/* TLS on a connected socket: the server must prove to be `host`, a name or an IP address. */
bool kvw_redis_wire_secure(struct kvw_redis_wire *w, SSL_CTX *context, const char *host);
enum kvw_redis_wire_go kvw_redis_wire_handshake(struct kvw_redis_wire *w);

void kvw_redis_wire_event(struct kvw_redis_wire *w, uint32_t events);

/* Bytes moved; 0: none at present; -1: the connection has failed or ended. After a 0 of send the
 * next one must begin with the same bytes, and at least as many, while `blocked`. */
ssize_t kvw_redis_wire_send(struct kvw_redis_wire *w, const struct iovec *pieces, size_t count);
ssize_t kvw_redis_wire_receive(struct kvw_redis_wire *w, const struct iovec *pieces, size_t count);

void kvw_redis_wire_close(struct kvw_redis_wire *w); /* keeps why, sent and received */

/* Trust and certificates for all connections of a client. Empty paths are NULL or "". NULL: a file
 * is missing or unfit; `why` (KVW_REDIS_WIRE_WHY) says which. Free with SSL_CTX_free. */
struct kvw_redis_wire_tls_options {
	const char *ca;                /* "": those that the system trusts */
	const char *certificate, *key; /* "": none is shown; key "": in the certificate's file */
};
SSL_CTX *kvw_redis_wire_tls_create(const struct kvw_redis_wire_tls_options *options, char *why);

#endif
