/*
 * tls.h - TLS on a kvw_io, by OpenSSL.
 *
 * A context has certificates, trusted CAs and settings, and serves every loop. Its files may be
 * replaced while it serves (kvw_tls_look): new connections use the new files, open ones keep the
 * old. Starting TLS on an open socket sets its `ops` and puts TLS between the socket's events and
 * its owner:
 *
 *   - on_event is not called before the handshake has ended; then with kvw_tls_ready() true,
 *     or
 *     with io->broken set and the cause in kvw_tls_why() (NULL: not even connected).
 *   - from then on readable and writable have their meaning of plain TCP, for decrypted bytes:
 *     readable stays false for records that carry none (session tickets, key updates), and neither
 *     is lost while TLS has to read before it can write or the other way round.
 *   - a read returns 0 only after the peer's close_notify. A connection that ends without it is an
 *     error (ECONNRESET): what was received may be a part.
 *
 * After EAGAIN the next writev must pass the same bytes again, at least as many: a record of them
 * is partly sent. Owners of a queue do so naturally.
 *
 * Threads: any number may use a context; one of them calls kvw_tls_look. A socket belongs to its
 * loop.
 */
#ifndef KVW_TLS_H
#define KVW_TLS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/io.h"

#define KVW_TLS_RECORD ((size_t)16 << 10) /* most bytes of payload in one record */

struct kvw_tls; /* a context */
struct ssl_ctx_st; /* OpenSSL's SSL_CTX */

/* Does what SSL_CTX_use_certificate_chain_file and SSL_CTX_use_PrivateKey_file do for PEM, but a
 * key with a passphrase is an error. Returns false on failure; then OpenSSL's error queue has the
 * cause. */
bool kvw_tls_use_chain(struct ssl_ctx_st *ctx, const char *path);
bool kvw_tls_use_key(struct ssl_ctx_st *ctx, const char *path);

/* Paths of PEM files, borrowed during the call. */
struct kvw_tls_server_options {
	/* file with the chain; the server's own certificate is the first */
	const char *certificate;
	const char *key;
	/* Further certificates, for clients that ask for one of their names (SNI): each a file with
	 * chain and key, or a folder with tls.crt and tls.key. The server shows the first one whose
	 * name matches, else `certificate`. */
	const char *const *more;
	size_t more_count;
	/* File of CAs: clients must show a certificate that one of them signed; "" or NULL: no
	 * certificate is requested. */
	const char *client_ca;
	bool client_asked;     /* a client without a certificate is accepted, too */
	bool only_1_3;         /* else 1.2 too */
	/* Decrypted bytes are overwritten once they were read, because heads may contain keys. */
	bool wipe;
	/* Ciphers for TLS 1.2, in OpenSSL's form; "" or NULL: KVW_TLS_CIPHERS. */
	const char *ciphers;
	const char *ciphersuites; /* ciphers for TLS 1.3; "" or NULL: OpenSSL's defaults */
};

/* All ciphers of TLS 1.2 that have forward secrecy and authenticated encryption. */
#define KVW_TLS_CIPHERS "ECDHE+AESGCM:ECDHE+CHACHA20"

struct kvw_tls_client_options {
	const char *ca_file; /* "" or NULL: the CAs that the system trusts */
	/* the client's own, for servers that ask for one; "" or NULL: none */
	const char *certificate, *key;
	bool insecure;       /* accept any certificate */
};

/* names of the files in a folder, those that Kubernetes uses */
#define KVW_TLS_FOLDER_CERTIFICATE "tls.crt"
#define KVW_TLS_FOLDER_KEY         "tls.key"

/* Creates a server's context. KVW_EINVAL: a file is missing or unusable; `why` gets a line with the
 * file and the reason. */
enum kvw_err kvw_tls_server_create(const struct kvw_tls_server_options *options, char *why,
	size_t why_size, struct kvw_tls **out) KVW_MUST_CHECK;
enum kvw_err kvw_tls_client_create(const struct kvw_tls_client_options *options, char *why,
	size_t why_size, struct kvw_tls **out) KVW_MUST_CHECK;

/* To be called after all sockets of the context were closed. NULL is allowed. */
void kvw_tls_destroy(struct kvw_tls *tls);

/* --- certificates that are renewed --- */

enum kvw_tls_file_kind {
	KVW_TLS_FILE_CERTIFICATES,
	KVW_TLS_FILE_KEY,
};

/* One file of a context. */
struct kvw_tls_file {
	const char *path;            /* borrowed from the context */
	enum kvw_tls_file_kind kind;
	/* The earliest end of its certificates' validity, in seconds since 1970; 0: it has no
	 * certificates. */
	_Atomic int64_t not_after_s;
};

enum kvw_tls_look {
	KVW_TLS_SAME,    /* nothing has changed, or a file is still being written */
	KVW_TLS_RENEWED, /* new connections use the new files */
	/* The new files are unusable: the old ones stay in use; why[] has the reason. */
	KVW_TLS_REFUSED,
};

/* Checks whether files were replaced: by inode, size and times, through links, so that a swapped
 * folder of a Kubernetes Secret counts. now_too: changed files are read at once. Otherwise they are
 * read only if they have not changed since the last call, because then both a certificate and its
 * key are written. Each call tries refused files again, but reports them again only when they have
 * changed. One thread at a time. */
enum kvw_tls_look kvw_tls_look(struct kvw_tls *tls, bool now_too, char *why, size_t why_size);

/* Makes new keys for session tickets if the newest are an hour old; tickets live for two hours, and
 * the keys that sealed them are kept as long. now_ns: monotonic. One thread at a time. */
void kvw_tls_rotate_tickets(struct kvw_tls *tls, int64_t now_ns);

#define KVW_TLS_TICKETS_MOST 240 /* most bytes of the ticket keys of a context */

/* Keys of session tickets, passed to the process that takes over. The owner must keep them off
 * disks and overwrite them after use. */
struct kvw_tls_passed {
	unsigned char keys[KVW_TLS_TICKETS_MOST]; /* [len] */
	size_t len;
	uint32_t age_s; /* age of the newest key */
};

/* Copies the keys. Returns false for a client's context, which has none. To be called on the thread
 * that rotates the keys, or while that thread is locked out (watch.h). */
bool kvw_tls_pass_tickets(
	struct kvw_tls *tls, int64_t now_ns, struct kvw_tls_passed *out) KVW_MUST_CHECK;
/* Makes these keys the context's own, before the context is used; they are rotated at the time at
 * which they would have been in the other process. Returns false if the keys are invalid. */
bool kvw_tls_inherit_tickets(
	struct kvw_tls *tls, int64_t now_ns, const struct kvw_tls_passed *passed) KVW_MUST_CHECK;

/* Returns file number i of a context; NULL: there are no more. Any thread. */
const struct kvw_tls_file *kvw_tls_file(const struct kvw_tls *tls, size_t i);

/* Returns how many connections were ended because the peer requested renegotiation (TLS 1.2) or key
 * updates (1.3) more than 32 times per MiB of payload. Any thread. */
uint64_t kvw_tls_floods(const struct kvw_tls *tls);

/* Begins TLS on an open socket that has no ops yet; a client's socket may still be connecting.
 * host: the DNS name or IP address for which the certificate must be valid; borrowed during the
 * call. On failure the socket is not changed. */
enum kvw_err kvw_tls_server_start(struct kvw_io *io, struct kvw_tls *tls) KVW_MUST_CHECK;
enum kvw_err kvw_tls_client_start(
	struct kvw_io *io, struct kvw_tls *tls, const char *host) KVW_MUST_CHECK;

/* Returns true once the handshake has succeeded, and for a socket without TLS. */
bool kvw_tls_ready(const struct kvw_io *io);

/* Returns whether the handshake resumed an earlier session. */
bool kvw_tls_resumed(const struct kvw_io *io);

/* Returns whether the peer sent a certificate that was verified. */
bool kvw_tls_peer_verified(const struct kvw_io *io);

/* Returns the subject of the peer's verified certificate in RFC 2253's form, which the caller
 * frees. NULL: there is no such certificate, or memory is short. */
char *kvw_tls_peer_subject(const struct kvw_io *io);

/* Returns the cause of a failure, such as "TLS: certificate verify failed (hostname mismatch:
 * localhost expected)". NULL: TLS has no cause, or is not used. Valid until the socket is
 * closed. */
const char *kvw_tls_why(const struct kvw_io *io);

/* Makes io->readable exact without taking a byte: it is true afterwards only if a read would not
 * return EAGAIN. Does nothing to a socket without TLS. */
void kvw_tls_settle(struct kvw_io *io);

#endif
