/*
 * tls.h - TLS on a kvw_io, by OpenSSL.
 *
 * A context holds certificate, trust and settings, and serves every loop. Its files may be replaced
 * while it serves (kvw_tls_look): what begins afterwards gets the new ones, open connections keep
 * theirs. Starting TLS on an open socket sets its `ops` and stands between the socket's events and
 * its owner:
 *
 *   - on_event is not called before the handshake has ended. Then it is, with kvw_tls_ready() true,
 *     or
 *     with io->broken set and the cause in kvw_tls_why() (NULL: not even connected).
 *   - from then on readable and writable mean what they mean for plain TCP, for the bytes inside:
 *     readable stays false for records that carry none (session tickets, key updates), and neither
 *     is lost while TLS has to read before it can write or the other way round.
 *   - a read returns 0 only after the peer's close_notify. A connection that ends without it is an
 *     error (ECONNRESET): what was received may be a part.
 *
 * After EAGAIN the next writev must offer the same bytes again, at least as many: a record made of
 * them is half on its way. Every owner of a queue does so by itself.
 *
 * Threads: a context may be used by any number; one of them looks at its files. A socket belongs to
 * its loop.
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
 * passphrase is an error.
 * False: OpenSSL's errors say why. */
bool kvw_tls_use_chain(struct ssl_ctx_st *ctx, const char *path);
bool kvw_tls_use_key(struct ssl_ctx_st *ctx, const char *path);

/* Paths of PEM files, borrowed during the call. */
struct kvw_tls_server_options {
	const char *certificate; /* chain, the server's own first */
	const char *key;
	/* Further certificates, for clients that ask for one of their names (SNI): each a file with
	 * chain and key, or a folder with tls.crt and tls.key. The first one whose name fits is
	 * shown, else the one above. */
	const char *const *more;
	size_t more_count;
	/* Clients must show a certificate signed by one of these; "" or NULL: none is asked for. */
	const char *client_ca;
	bool client_asked;     /* a client without a certificate is served, too */
	bool only_1_3;         /* else 1.2 too */
	/* What was decrypted is overwritten once it was read: heads with keys. */
	bool wipe;
	/* Of TLS 1.2, as OpenSSL writes them; "" or NULL: KVW_TLS_CIPHERS. */
	const char *ciphers;
	const char *ciphersuites; /* of TLS 1.3; "" or NULL: OpenSSL's own */
};

/* With forward secrecy and authenticated encryption. */
#define KVW_TLS_CIPHERS "ECDHE+AESGCM:ECDHE+CHACHA20"

struct kvw_tls_client_options {
	const char *ca_file; /* "" or NULL: those that the system trusts */
	const char *certificate, *key; /* shown to servers that ask for one; "" or NULL: none */
	bool insecure;       /* believe any certificate */
};

#define KVW_TLS_FOLDER_CERTIFICATE "tls.crt" /* in a folder, as Kubernetes names them */
#define KVW_TLS_FOLDER_KEY         "tls.key"

/* KVW_EINVAL: a file is missing or unfit; `why` gets a line that says which and how. */
enum kvw_err kvw_tls_server_create(const struct kvw_tls_server_options *options, char *why,
	size_t why_size, struct kvw_tls **out) KVW_MUST_CHECK;
enum kvw_err kvw_tls_client_create(const struct kvw_tls_client_options *options, char *why,
	size_t why_size, struct kvw_tls **out) KVW_MUST_CHECK;

/* After every socket with it was closed. NULL is allowed. */
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
	/* Seconds since 1970 when the first of its certificates ends; 0: it holds none. */
	_Atomic int64_t not_after_s;
};

enum kvw_tls_look {
	KVW_TLS_SAME,    /* nothing new, or it is still being written */
	KVW_TLS_RENEWED, /* in force for what begins from now on */
	/* It cannot be used: the old one serves on; why[] says what is wrong with it. */
	KVW_TLS_REFUSED,
};

/* Looks whether the files have been replaced: by their inode, size and times, links followed, so
 * that the swapped folder of a Kubernetes Secret counts. now_too: what has changed is read at once.
 * Otherwise only if it is as the last look saw it, so that of a certificate and its key both are
 * there. What was refused is tried again by every look, and reported again when the files change.
 * One thread at a time. */
enum kvw_tls_look kvw_tls_look(struct kvw_tls *tls, bool now_too, char *why, size_t why_size);

/* Makes new keys for session tickets if the newest are an hour old; tickets live for two, and those
 * that older keys have sealed are accepted as long. now_ns: monotonic. One thread at a time. */
void kvw_tls_rotate_tickets(struct kvw_tls *tls, int64_t now_ns);

#define KVW_TLS_TICKETS_MOST 240 /* bytes of the keys of a context */

/* Keys of session tickets on their way to the process that takes over.
 * Its owner keeps them off disks and wipes them. */
struct kvw_tls_passed {
	unsigned char keys[KVW_TLS_TICKETS_MOST]; /* [len] */
	size_t len;
	uint32_t age_s; /* of the newest */
};

/* False: a client's context, which has none.
 * The thread that rotates, or with it locked out (watch.h). */
bool kvw_tls_pass_tickets(
	struct kvw_tls *tls, int64_t now_ns, struct kvw_tls_passed *out) KVW_MUST_CHECK;
/* Before the context serves: these keys take the place of its own, and are replaced when they would
 * have been. False: they are none. */
bool kvw_tls_inherit_tickets(
	struct kvw_tls *tls, int64_t now_ns, const struct kvw_tls_passed *passed) KVW_MUST_CHECK;

/* The i-th of its files; NULL past the last. Any thread. */
const struct kvw_tls_file *kvw_tls_file(const struct kvw_tls *tls, size_t i);

/* Connections that were ended since the peer asked for renegotiation (TLS 1.2) or for key updates
 * (1.3) more than 32 times with a MiB of payload. Any thread. */
uint64_t kvw_tls_floods(const struct kvw_tls *tls);

/* Begins TLS on an open socket that has no ops yet; for a client it may still be connecting. host:
 * the DNS name or IP address that the certificate must name; borrowed during the call. On failure
 * the socket is as it was. */
enum kvw_err kvw_tls_server_start(struct kvw_io *io, struct kvw_tls *tls) KVW_MUST_CHECK;
enum kvw_err kvw_tls_client_start(
	struct kvw_io *io, struct kvw_tls *tls, const char *host) KVW_MUST_CHECK;

/* True once the handshake has succeeded; true for a socket without TLS. */
bool kvw_tls_ready(const struct kvw_io *io);

/* True if the handshake resumed an earlier session. */
bool kvw_tls_resumed(const struct kvw_io *io);

/* True if the peer has shown a certificate that was verified. */
bool kvw_tls_peer_verified(const struct kvw_io *io);

/* Subject of the certificate that the peer has shown and that was verified, as RFC 2253 writes it;
 * to be freed.
 * NULL: it has shown none, or out of memory. */
char *kvw_tls_peer_subject(const struct kvw_io *io);

/* What went wrong, such as "TLS: certificate verify failed (hostname mismatch: localhost
 * expected)"; NULL: nothing that TLS knows of, or no TLS. Lives until the socket is closed. */
const char *kvw_tls_why(const struct kvw_io *io);

/* Makes io->readable exact without taking a byte: true only if a read would return something other
 * than EAGAIN. Nothing happens to a socket without TLS. */
void kvw_tls_settle(struct kvw_io *io);

#endif
