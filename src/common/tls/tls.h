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

/* As SSL_CTX_use_certificate_chain_file and SSL_CTX_use_PrivateKey_file for PEM, but a key with a
 * passphrase is an error. False: OpenSSL's error queue has the cause. */
bool kvw_tls_use_chain(struct ssl_ctx_st *ctx, const char *path);
bool kvw_tls_use_key(struct ssl_ctx_st *ctx, const char *path);

/* Paths of PEM files, borrowed during the call. */
struct kvw_tls_server_options {
	const char *certificate; /* chain, the server's own first */
	const char *key;
	/* Further certificates, for clients that ask for one of their names (SNI): each a file with
	 * chain and key, or a folder with tls.crt and tls.key. The server shows the first one whose
	 * name matches, else `certificate`. */
	const char *const *more;
	size_t more_count;
	/* Clients must show a certificate signed by one of these; "" or NULL: none is requested. */
	const char *client_ca;
	bool client_asked;     /* a client without a certificate is served, too */
	bool only_1_3;         /* else 1.2 too */
	/* Decrypted bytes are overwritten once they were read: heads have keys. */
	bool wipe;
	/* Ciphers of TLS 1.2, in OpenSSL's form; "" or NULL: KVW_TLS_CIPHERS. */
	const char *ciphers;
	const char *ciphersuites; /* of TLS 1.3; "" or NULL: OpenSSL's own */
};

/* With forward secrecy and authenticated encryption. */
#define KVW_TLS_CIPHERS "ECDHE+AESGCM:ECDHE+CHACHA20"

struct kvw_tls_client_options {
	const char *ca_file; /* "" or NULL: the system's trusted CAs */
	const char *certificate, *key; /* shown to servers that ask for one; "" or NULL: none */
	bool insecure;       /* accept any certificate */
};

#define KVW_TLS_FOLDER_CERTIFICATE "tls.crt" /* in a folder, as Kubernetes names them */
#define KVW_TLS_FOLDER_KEY         "tls.key"

/* KVW_EINVAL: a file is missing or unusable; `why` gets a line with the file and the reason. */
enum kvw_err kvw_tls_server_create(const struct kvw_tls_server_options *options, char *why,
	size_t why_size, struct kvw_tls **out) KVW_MUST_CHECK;
enum kvw_err kvw_tls_client_create(const struct kvw_tls_client_options *options, char *why,
	size_t why_size, struct kvw_tls **out) KVW_MUST_CHECK;

/* To be called after all its sockets were closed. NULL is allowed. */
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
	/* Earliest end of its certificates, seconds since 1970; 0: it has none. */
	_Atomic int64_t not_after_s;
};

enum kvw_tls_look {
	KVW_TLS_SAME,    /* no change, or a file is still being written */
	KVW_TLS_RENEWED, /* new connections use the new files */
	/* The new files are unusable: the old ones stay in use; why[] has the reason. */
	KVW_TLS_REFUSED,
};

/* Checks whether files were replaced: by inode, size and times, through links, so that a swapped
 * folder of a Kubernetes Secret counts. now_too: changed files are read at once. Otherwise only if
 * they are unchanged since the last look, so that a certificate and its key are both written. Each
 * look tries refused files again; they are reported again when they change. One thread at a
 * time. */
enum kvw_tls_look kvw_tls_look(struct kvw_tls *tls, bool now_too, char *why, size_t why_size);

/* Makes new keys for session tickets if the newest are an hour old; tickets live for two hours, and
 * the keys that sealed them are kept as long. now_ns: monotonic. One thread at a time. */
void kvw_tls_rotate_tickets(struct kvw_tls *tls, int64_t now_ns);

#define KVW_TLS_TICKETS_MOST 240 /* bytes of the keys of a context */

/* Keys of session tickets for the process that takes over. The owner must keep them off disks and
 * wipe them. */
struct kvw_tls_passed {
	unsigned char keys[KVW_TLS_TICKETS_MOST]; /* [len] */
	size_t len;
	uint32_t age_s; /* of the newest */
};

/* Copies the keys. False: a client's context, which has none. On the thread that rotates, or with
 * it locked out (watch.h). */
bool kvw_tls_pass_tickets(
	struct kvw_tls *tls, int64_t now_ns, struct kvw_tls_passed *out) KVW_MUST_CHECK;
/* Before the context serves: makes these keys the context's own; their rotation stays due at its
 * former time. False: the keys are invalid. */
bool kvw_tls_inherit_tickets(
	struct kvw_tls *tls, int64_t now_ns, const struct kvw_tls_passed *passed) KVW_MUST_CHECK;

/* The i-th of its files; NULL past the last. Any thread. */
const struct kvw_tls_file *kvw_tls_file(const struct kvw_tls *tls, size_t i);

/* Connections ended because the peer requested renegotiation (TLS 1.2) or key updates (1.3) more
 * than 32 times per MiB of payload. Any thread. */
uint64_t kvw_tls_floods(const struct kvw_tls *tls);

/* Begins TLS on an open socket that has no ops yet; a client's socket may still be connecting.
 * host: the DNS name or IP address that the certificate must have; borrowed during the call. On
 * failure the socket is unchanged. */
enum kvw_err kvw_tls_server_start(struct kvw_io *io, struct kvw_tls *tls) KVW_MUST_CHECK;
enum kvw_err kvw_tls_client_start(
	struct kvw_io *io, struct kvw_tls *tls, const char *host) KVW_MUST_CHECK;

/* True once the handshake has succeeded; true for a socket without TLS. */
bool kvw_tls_ready(const struct kvw_io *io);

/* True if the handshake resumed an earlier session. */
bool kvw_tls_resumed(const struct kvw_io *io);

/* True if the peer sent a certificate that was verified. */
bool kvw_tls_peer_verified(const struct kvw_io *io);

/* Subject of the peer's verified certificate, in RFC 2253's form; the caller frees it. NULL: no
 * certificate, or out of memory. */
char *kvw_tls_peer_subject(const struct kvw_io *io);

/* The cause of a failure, such as "TLS: certificate verify failed (hostname mismatch: localhost
 * expected)"; NULL: TLS knows of none, or no TLS. Valid until the socket is closed. */
const char *kvw_tls_why(const struct kvw_io *io);

/* Makes io->readable exact without taking a byte: true only if a read would return something other
 * than EAGAIN. Nothing happens to a socket without TLS. */
void kvw_tls_settle(struct kvw_io *io);

#endif
