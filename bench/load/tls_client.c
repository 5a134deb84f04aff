/* tls_client.c - TLS of a benchmark's clients, by OpenSSL. */
#include "bench/load/tls_client.h"

#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void end(void)
{
	ERR_print_errors_fp(stderr);
	exit(1);
}

SSL_CTX *kvb_tls_ctx(void)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());

	if (ctx == NULL || SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) != 1 ||
		SSL_CTX_set_ciphersuites(ctx, "TLS_AES_128_GCM_SHA256") != 1 ||
		SSL_CTX_set1_groups_list(ctx, "X25519") != 1)
		end();
	SSL_CTX_set_verify(ctx, SSL_VERIFY_NONE, NULL);
	SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_CTX_set_read_ahead(ctx, 1);
	return ctx;
}

SSL *kvb_tls_open(SSL_CTX *ctx, int fd)
{
	SSL *ssl = SSL_new(ctx);

	if (ssl == NULL || SSL_set_fd(ssl, fd) != 1)
		end();
	SSL_set_connect_state(ssl);
	return ssl;
}

bool kvb_tls_waits(SSL *ssl, int got)
{
	int error = SSL_get_error(ssl, got);

	ERR_clear_error();
	return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
}

size_t kvb_tls_join(const struct iovec *pieces, size_t count, char *out, size_t room)
{
	size_t len = 0;

	for (size_t i = 0; i < count && pieces[i].iov_len <= room - len; i++) {
		memcpy(out + len, pieces[i].iov_base, pieces[i].iov_len);
		len += pieces[i].iov_len;
	}
	return len;
}
