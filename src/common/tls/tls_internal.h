/*
 * tls_internal.h - structs that the files of src/common/tls share: a context (tls.c, tls_files.c),
 * a connection (tls_io.c, tls_bio.c).
 */
#ifndef KVW_TLS_INTERNAL_H
#define KVW_TLS_INTERNAL_H

#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "tls/tls.h"

/* A file and its observed states; all zero: stat failed. Owns its path. */
struct kvw_tls_watched {
	struct kvw_tls_file file; /* first */
	struct kvw_tls_stamp {
		uint64_t device, inode, size;
		int64_t changed_ns, written_ns; /* ctime and mtime */
	/* State when loaded, at the last look, at this look, when reported as unusable. */
	} in_force, last, now, refused;
};

/* A certificate's chain and its key: paths, of `files`; equal if one file has both. */
struct kvw_tls_pair {
	const char *certificate, *key;
};

/* The SSL_CTXs of one load. Immutable; the context and its connections hold references. */
struct kvw_tls_set {
	_Atomic uint32_t refs; /* the last reference frees it: acq_rel */
	SSL_CTX *ctx;          /* of the first pair; connections begin with it */
	size_t count;
	/* [count], for the further pairs, chosen by SNI. */
	SSL_CTX *others[];
};

#define KVW_TLS_TICKET_KEYS 3 /* the newest key seals, the others only open */

/* Keys of session tickets, of all loops. */
struct kvw_tls_tickets {
	pthread_mutex_t lock;
	struct kvw_tls_ticket_key {
		unsigned char name[16], cipher[32], mac[32];
	} *keys; /* owned; [count], newest first, room for KVW_TLS_TICKET_KEYS; NULL for a client */
	size_t count;
	int64_t rotated_ns; /* last rotation, monotonic; 0: none yet */
};

/* A context. */
struct kvw_tls {
	pthread_mutex_t lock;        /* guards `set` while a reference is taken */
	struct kvw_tls_set *set;     /* in force */
	BIO_METHOD *method;          /* of tls_bio.c */
	bool server;
	bool verify;                 /* client: the server's certificate is verified */
	bool only_1_3;
	bool client_asked;           /* server: a client without a certificate is served, too */
	bool wipe;                   /* server: OpenSSL overwrites what it has decrypted */
	bool refused;                /* the files' contents are unusable and were reported */
	struct kvw_tls_watched *files; /* [file_count], room for file_room */
	size_t file_count, file_room;
	struct kvw_tls_pair *pairs;  /* [pair_count], own certificates */
	size_t pair_count;
	const char *authorities;     /* path, of `files`; NULL: not given */
	char *ciphers, *ciphersuites; /* owned; NULL: the default */
	struct kvw_tls_tickets tickets; /* server */
	_Atomic uint64_t floods;     /* connections ended for a flood; relaxed */
	_Atomic int64_t next_log_ns; /* no log line before; relaxed, so the limit is not exact */
};

/* Reads the files into a new set, with one reference. KVW_EINVAL: a file is unusable, `why` has the
 * file and the reason. */
enum kvw_err kvw_tls_load(const struct kvw_tls *tls, char *why, size_t why_size,
	struct kvw_tls_set **out) KVW_MUST_CHECK;
void kvw_tls_set_unref(struct kvw_tls_set *set); /* NULL is allowed */

/* The earliest end of validity in a PEM file, seconds since 1970; 0: no certificate in it. */
int64_t kvw_tls_not_after_s(const char *path);

/* The set in force, with a reference for the caller. */
struct kvw_tls_set *kvw_tls_set_ref(struct kvw_tls *tls);

/* Adds a file to watch, unless path is NULL or empty; *out is the context's copy of the path.
 * `files` must have room. False: out of memory. */
bool kvw_tls_watch(
	struct kvw_tls *tls, const char *path, enum kvw_tls_file_kind kind, const char **out);
/* Records the files' state; to be called before they are loaded. */
void kvw_tls_note_files(struct kvw_tls *tls);
void kvw_tls_forget_files(struct kvw_tls *tls);

/* Tickets: creates the first key (false: no random numbers); makes an SSL_CTX use them; its
 * connections' app data is their kvw_tls_conn. */
bool kvw_tls_tickets_init(struct kvw_tls_tickets *tickets);
void kvw_tls_tickets_finish(struct kvw_tls_tickets *tickets);
void kvw_tls_tickets_use(SSL_CTX *ctx);

/* State of one socket, in io->state. */
struct kvw_tls_conn {
	SSL *ssl;           /* owned; its app data is this */
	struct kvw_tls_set *set; /* a reference */
	struct kvw_tls *tls;
	kvw_io_fn on_event; /* of the owner */
	char *why;          /* owned; NULL: no failure, or out of memory */
	int error;          /* errno of the failure; 0: none */
	bool raw_readable, raw_writable;
	bool read_wants_write, write_wants_read;
	bool eof;                       /* the socket has ended */
	bool begun;                     /* OpenSSL has touched the socket */
	bool ready;                     /* handshake done */
	bool read_failed, write_failed; /* no more calls of this kind */
	bool blocked;                   /* a record is partly sent */
	bool finished;                  /* close_notify was sent, or can never be */
	/* The peer floods with messages: reading has stopped. */
	bool flooded;
	/* Messages after the handshake within the last `payload` bytes. */
	uint32_t messages;
	size_t payload;                 /* bytes, below KVW_TLS_MESSAGES_PER */
};

/* tls_flood.c: renegotiations, key updates and tickets allowed per connection and this much
 * payload. */
#define KVW_TLS_MESSAGES     32
#define KVW_TLS_MESSAGES_PER ((size_t)1 << 20)

/* For SSL_CTX_set_msg_callback: OpenSSL calls it for each message, and for the parts of each
 * record. Sets c->flooded. The connections' app data is their kvw_tls_conn. */
void kvw_tls_on_message(
	int ours, int version, int type, const void *data, size_t len, SSL *ssl, void *arg);
void kvw_tls_count_payload(struct kvw_tls_conn *c, size_t n); /* read or written */

/* The BIO's data is the kvw_io. NULL: out of memory. */
BIO_METHOD *kvw_tls_bio_method(void);

#endif
