/*
 * tls_internal.h - what the files of src/common/tls share: a context (tls.c, tls_files.c), a connection
 * (tls_io.c, tls_bio.c).
 */
#ifndef KVW_TLS_INTERNAL_H
#define KVW_TLS_INTERNAL_H

#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "tls/tls.h"

#define KVW_TLS_FILES 3 /* certificate, key, authorities */

/* A file with what was seen of it; all zero: it could not be looked at. Owns its path. */
struct kvw_tls_watched {
	struct kvw_tls_file file; /* first */
	struct kvw_tls_stamp {
		uint64_t device, inode, size;
		int64_t changed_ns, written_ns; /* ctime and mtime */
	} in_force, last, refused; /* as loaded, as the last look saw it, as reported to be unfit */
};

/* A context. */
struct kvw_tls {
	pthread_mutex_t lock;        /* of ctx, which is held to take a reference */
	SSL_CTX *ctx;                /* in force; connections hold references */
	BIO_METHOD *method;          /* of tls_bio.c */
	bool server;
	bool verify;                 /* client: the server's certificate is looked at */
	bool only_1_3;
	bool refused;                /* what the files hold is unfit and was reported */
	struct kvw_tls_watched files[KVW_TLS_FILES];
	size_t file_count;
	const char *certificate, *key, *authorities; /* paths, of `files`; NULL: not given */
	_Atomic int64_t next_log_ns; /* no line before; relaxed, a line more or less does no harm */
};

/* Reads the files into a new SSL_CTX. KVW_EINVAL: one is unfit, `why` says which and how. */
enum kvw_err kvw_tls_load(const struct kvw_tls *tls, char *why, size_t why_size, SSL_CTX **out) KVW_MUST_CHECK;

/* The first end of validity in a PEM file, seconds since 1970; 0: it holds no certificate. */
int64_t kvw_tls_not_after_s(const char *path);

/* A connection for the certificate in force; NULL: out of memory. */
SSL *kvw_tls_connection(struct kvw_tls *tls);

/* Adds a file to be watched, or nothing for a path that is NULL or empty; *out is the context's copy of the
 * path. False: out of memory. */
bool kvw_tls_watch(struct kvw_tls *tls, const char *path, const char **out);
/* Notes what the files look like: before they are loaded. */
void kvw_tls_note_files(struct kvw_tls *tls);
void kvw_tls_forget_files(struct kvw_tls *tls);

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
