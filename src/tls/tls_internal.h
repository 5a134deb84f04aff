/*
 * tls_internal.h - what the two halves of src/tls share: contexts (tls.c), sockets (tls_io.c).
 */
#ifndef KVW_TLS_INTERNAL_H
#define KVW_TLS_INTERNAL_H

#include <openssl/ssl.h>
#include <stdatomic.h>

#include "tls.h"

/* A context. Immutable but for the clock of the log. */
struct kvw_tls {
	SSL_CTX *ctx;
	BIO_METHOD *method; /* of tls_io.c: reads and writes the socket of a kvw_io */
	bool verify;        /* client: the server's certificate is looked at */
	_Atomic int64_t next_log_ns; /* no line before; relaxed, a line more or less does no harm */
};

/* NULL: out of memory. */
BIO_METHOD *kvw_tls_bio_method(void);

#endif
