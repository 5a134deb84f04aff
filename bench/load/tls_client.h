/*
 * tls_client.h - TLS of a benchmark's clients, by OpenSSL.
 *
 * One version, one cipher and one group, so that every server under test does the same work. Certificates are not
 * checked: the clients' cost is not what is measured.
 */
#ifndef KVB_TLS_CLIENT_H
#define KVB_TLS_CLIENT_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <sys/uio.h>

/* TLS 1.3, TLS_AES_128_GCM_SHA256, X25519. Ends the program where OpenSSL cannot. */
SSL_CTX *kvb_tls_ctx(void);

/* A client on a socket that is connecting; the descriptor stays the caller's. Ends the program without memory. */
SSL *kvb_tls_open(SSL_CTX *ctx, int fd);

/* After a call that returned `got` <= 0: true: it is to be repeated when the socket is ready. */
bool kvb_tls_waits(SSL *ssl, int got);

/* Bytes that are sent in one piece, since TLS has no gather. */
size_t kvb_tls_join(const struct iovec *pieces, size_t count, char *out, size_t room);

#endif
