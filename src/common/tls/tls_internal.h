/*
 * tls_internal.h - what the files of src/common/tls share: a context (tls.c), a connection (tls_io.c, tls_bio.c).
 */
#ifndef KVW_TLS_INTERNAL_H
#define KVW_TLS_INTERNAL_H

#include <openssl/ssl.h>
#include <stdatomic.h>

#include "tls/tls.h"

/* A context. Immutable but for the clock of the log. */
struct kvw_tls {
	SSL_CTX *ctx;
	BIO_METHOD *method; /* of tls_bio.c */
	bool verify;        /* client: the server's certificate is looked at */
	_Atomic int64_t next_log_ns; /* no line before; relaxed, a line more or less does no harm */
};

/* State of one socket, in io->state. */
struct kvw_tls_conn {
	SSL *ssl;           /* owned */
	struct kvw_tls *tls;
	kvw_io_fn on_event; /* of the owner */
	char *why;          /* owned; NULL: no failure, or no memory for its text */
	int error;          /* errno of the failure; 0: none */
	bool raw_readable, raw_writable;
	bool read_wants_write, write_wants_read;
	bool eof;                       /* the socket has ended */
	bool begun;                     /* OpenSSL has touched the socket */
	bool ready;                     /* handshake done */
	bool read_failed, write_failed; /* no more calls of this kind */
	bool blocked;                   /* a record is half on its way */
	bool finished;                  /* close_notify was sent, or can never be */
};

/* The BIO's data is the kvw_io. NULL: out of memory. */
BIO_METHOD *kvw_tls_bio_method(void);

#endif
