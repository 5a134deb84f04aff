/*
 * tls_client.h - TLS of a benchmark's clients, by OpenSSL.
 *
 * One version, one cipher and one group, so that every server under test does the same work.
 * Certificates are not checked: the clients' cost is not what is measured.
 */
#ifndef KVB_TLS_CLIENT_H
#define KVB_TLS_CLIENT_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <sys/uio.h>

/* Makes a context for TLS 1.3, TLS_AES_128_GCM_SHA256, X25519. Ends the program if OpenSSL
 * cannot. */
SSL_CTX *kvb_tls_ctx(void);

/* Makes a client on a socket that is connecting; the descriptor stays the caller's. Ends the
 * program if memory is short. */
SSL *kvb_tls_open(SSL_CTX *ctx, int fd);

/* Called after a call that returned `got` <= 0. Returns true if that call is to be repeated when
 * the socket is ready. */
bool kvb_tls_waits(SSL *ssl, int got);

/* Copies pieces into one buffer, since TLS cannot send several. */
size_t kvb_tls_join(const struct iovec *pieces, size_t count, char *out, size_t room);

#endif
