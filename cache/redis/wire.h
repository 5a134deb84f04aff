/*
 * wire.h - bytes to and from one server: a socket that never blocks, with TLS on it or without.
 *
 * Works on edges: kvt_wire_event notes what epoll said, and `readable` and `writable` hold until the
 * kernel says otherwise, so that a socket is registered once and asked only when it has something.
 *
 * Failures leave their cause in `why`, in words for people: a certificate's fault by OpenSSL's name
 * for it, else errno's. No call raises SIGPIPE.
 *
 * Threads: one.
 */
#ifndef KVT_WIRE_H
#define KVT_WIRE_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define KVT_WIRE_WHY 160

/* All zeroes but fd = -1: closed. */
struct kvt_wire {
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
	char why[KVT_WIRE_WHY];
};

enum kvt_wire_go { KVT_WIRE_WAIT, KVT_WIRE_GO, KVT_WIRE_FAILED };

/* Begins to connect and registers the socket with `epoll` for all edges, `tag` in data.ptr. */
bool kvt_wire_open(
	struct kvt_wire *w, const struct sockaddr *address, socklen_t len, int epoll, void *tag);
enum kvt_wire_go kvt_wire_connected(struct kvt_wire *w);

/* TLS on a connected socket: the server must prove to be `host`, a name or an IP address. */
bool kvt_wire_secure(struct kvt_wire *w, SSL_CTX *context, const char *host);
enum kvt_wire_go kvt_wire_handshake(struct kvt_wire *w);

void kvt_wire_event(struct kvt_wire *w, uint32_t events);

/* Bytes moved; 0: none at present; -1: the connection has failed or ended. After a 0 of send the
 * next one must begin with the same bytes, and at least as many, while `blocked`. */
ssize_t kvt_wire_send(struct kvt_wire *w, const struct iovec *pieces, size_t count);
ssize_t kvt_wire_receive(struct kvt_wire *w, const struct iovec *pieces, size_t count);

void kvt_wire_close(struct kvt_wire *w); /* keeps why, sent and received */

/* Trust and certificates for all connections of a client. Empty paths are NULL or "". NULL: a file
 * is missing or unfit; `why` (KVT_WIRE_WHY) says which. Free with SSL_CTX_free. */
struct kvt_wire_tls_options {
	const char *ca;                /* "": those that the system trusts */
	const char *certificate, *key; /* "": none is shown; key "": in the certificate's file */
};
SSL_CTX *kvt_wire_tls_create(const struct kvt_wire_tls_options *options, char *why);

#endif
