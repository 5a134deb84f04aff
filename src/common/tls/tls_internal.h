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

/* A file, and the states in which it was found; all zero: stat failed. Owns its path. */
struct kvw_tls_watched {
	struct kvw_tls_file file; /* first */
	struct kvw_tls_stamp {
		uint64_t device, inode, size;
		int64_t changed_ns, written_ns; /* ctime and mtime */
	/* State of the file when it was loaded, at the last call of kvw_tls_look, at this call, and
	 * when it was reported as unusable. */
	} in_force, last, now, refused;
};

/* A certificate's chain and its key, as paths in `files`; they are equal if one file has both. */
struct kvw_tls_pair {
	const char *certificate, *key;
};

/* The SSL_CTXs that one load made. Not changed afterwards; the context and its connections have
 * references to it. */
struct kvw_tls_set {
	/* number of references; the last one frees the set, so it is changed with acq_rel */
	_Atomic uint32_t refs;
	SSL_CTX *ctx;          /* the SSL_CTX for the first pair, with which connections begin */
	size_t count;
	/* The SSL_CTXs for the further pairs, of which SNI chooses one; count of them. */
	SSL_CTX *others[];
};

#define KVW_TLS_TICKET_KEYS 3 /* the newest key seals tickets, the others only open them */

/* Keys of session tickets, the same for all loops. */
struct kvw_tls_tickets {
	pthread_mutex_t lock;
	struct kvw_tls_ticket_key {
		unsigned char name[16], cipher[32], mac[32];
	} *keys;
		/* owned; `count` keys, the newest first, with room for KVW_TLS_TICKET_KEYS; NULL
		 * for a client */
	size_t count;
	int64_t rotated_ns; /* monotonic time of the last rotation; 0: there was none */
};

/* A context. */
struct kvw_tls {
	pthread_mutex_t lock;        /* guards `set` while a reference to it is taken */
	struct kvw_tls_set *set;     /* in force */
	BIO_METHOD *method;          /* method of tls_bio.c's BIO */
	bool server;
	bool verify;                 /* for a client: the server's certificate is verified */
	bool only_1_3;
	bool client_asked; /* for a server: a client without a certificate is accepted, too */
	bool wipe; /* for a server: OpenSSL overwrites the bytes that it has decrypted */
	bool refused;                /* the files cannot be used, and this was reported */
	struct kvw_tls_watched *files; /* file_count files, with room for file_room */
	size_t file_count, file_room;
	struct kvw_tls_pair *pairs;  /* [pair_count], own certificates */
	size_t pair_count;
	const char *authorities;     /* path of the CAs' file, in `files`; NULL: not given */
	char *ciphers, *ciphersuites; /* owned; NULL: the default */
	struct kvw_tls_tickets tickets; /* server */
	_Atomic uint64_t floods; /* number of connections that were ended for a flood; relaxed */
	/* time before which nothing is logged; relaxed, so the limit is not exact */
	_Atomic int64_t next_log_ns;
};

/* Reads the files into a new set, with one reference. KVW_EINVAL: a file is unusable; `why` has the
 * file and the reason. */
enum kvw_err kvw_tls_load(const struct kvw_tls *tls, char *why, size_t why_size,
	struct kvw_tls_set **out) KVW_MUST_CHECK;
void kvw_tls_set_unref(struct kvw_tls_set *set); /* NULL is allowed */

/* Returns the earliest end of validity of the certificates in a PEM file, in seconds since 1970; 0:
 * it has none. */
int64_t kvw_tls_not_after_s(const char *path);

/* Returns the present set, with a reference for the caller. */
struct kvw_tls_set *kvw_tls_set_ref(struct kvw_tls *tls);

/* Adds a file to those that are watched, unless path is NULL or empty. *out is the context's copy
 * of the path. `files` must have room. Returns false if memory is short. */
bool kvw_tls_watch(
	struct kvw_tls *tls, const char *path, enum kvw_tls_file_kind kind, const char **out);
/* Notes the state of the files; to be called before they are loaded. */
void kvw_tls_note_files(struct kvw_tls *tls);
void kvw_tls_forget_files(struct kvw_tls *tls);

/* Tickets: creates the first key (false: no random numbers); makes an SSL_CTX use them; its
 * connections' app data is their kvw_tls_conn. */
bool kvw_tls_tickets_init(struct kvw_tls_tickets *tickets);
void kvw_tls_tickets_finish(struct kvw_tls_tickets *tickets);
void kvw_tls_tickets_use(SSL_CTX *ctx);

/* State of one socket's TLS, in io->state. */
struct kvw_tls_conn {
	SSL *ssl;           /* owned; this struct is its app data */
	struct kvw_tls_set *set; /* a reference */
	struct kvw_tls *tls;
	kvw_io_fn on_event; /* callback of the owner */
	char *why;          /* owned; NULL: there was no failure, or memory was short */
	int error;          /* errno of the failure; 0: there was none */
	bool raw_readable, raw_writable;
	bool read_wants_write, write_wants_read;
	bool eof;                       /* the socket has ended */
	bool begun;                     /* OpenSSL has read from the socket, or written to it */
	bool ready;                     /* handshake done */
	bool read_failed, write_failed; /* reads, or writes, have failed and are not tried again */
	bool blocked;                   /* a record is partly sent */
	bool finished;                  /* close_notify was sent, or cannot be sent any more */
	/* The peer sends too many messages without payload, so reading has stopped. */
	bool flooded;
	/* Number of such messages within the last `payload` bytes. */
	uint32_t messages;
	size_t payload;                 /* in bytes, below KVW_TLS_MESSAGES_PER */
};

/* The limit of tls_flood.c: for each KVW_TLS_MESSAGES_PER bytes of payload, a connection may have
 * KVW_TLS_MESSAGES renegotiations, key updates and tickets. */
#define KVW_TLS_MESSAGES     32
#define KVW_TLS_MESSAGES_PER ((size_t)1 << 20)

/* A callback for SSL_CTX_set_msg_callback, which OpenSSL calls for each message and for parts of
 * each record. Sets c->flooded. The app data of a connection must be its kvw_tls_conn. */
void kvw_tls_on_message(
	int ours, int version, int type, const void *data, size_t len, SSL *ssl, void *arg);
void kvw_tls_count_payload(struct kvw_tls_conn *c, size_t n); /* read or written */

/* The data of a BIO is its kvw_io. NULL: memory is short. */
BIO_METHOD *kvw_tls_bio_method(void);

#endif
