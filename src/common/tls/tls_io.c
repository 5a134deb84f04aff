/*
 * tls_io.c - one TLS connection on a kvw_io.
 *
 *   owner --readv/writev--> ops here --SSL_read/SSL_write--> OpenSSL --tls_bio.c--> socket
 *   owner <---on_event----- filter here <-------------------------------edges--- kvw_io_set
 *
 * Two pairs of flags. raw_readable and raw_writable are the socket's state, like kvw_io's flags for
 * plain TCP; tls_bio.c alone clears them and then makes no system call until an edge has set them.
 * io->readable and io->writable are what the owner sees. The two differ because OpenSSL may hold
 * decrypted bytes while the socket is drained, may need the socket's other direction, and consumes
 * records without payload for the owner. The direction that a blocked call waits for is recorded
 * (read_wants_write, write_wants_read), to translate the edge.
 *
 * Invariants: io->readable is false only if OpenSSL needs more from the socket, and then
 * raw_readable is false, too, or read_wants_write is set; the same for writing. So no edge is lost,
 * and an event is queued only after a change: no loop spins.
 *
 * Small pieces are copied into one record: a head and a body leave
 * together, and a record costs 22 bytes and a fixed part of a microsecond.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <limits.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"
#include "tls/tls_internal.h"

#define LOG_PAUSE_NS (100 * KVW_NS_PER_MS) /* least time between two log lines of one context */

static const struct kvw_io_ops tls_ops;

static struct kvw_tls_conn *conn_of(const struct kvw_io *io)
{
	return io->ops == &tls_ops ? io->state : NULL;
}

/* --- failures --- */

static void log_failure(const struct kvw_io *io, const struct kvw_tls_conn *c)
{
	int64_t now_ns = kvw_clock_ns();
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);
	char host[NI_MAXHOST] = "unknown", port[NI_MAXSERV] = "0";

	if (!kvw_log_enabled(KVW_LOG_DEBUG) ||
		now_ns < atomic_load_explicit(&c->tls->next_log_ns, memory_order_relaxed))
		return;
	atomic_store_explicit(&c->tls->next_log_ns, now_ns + LOG_PAUSE_NS, memory_order_relaxed);
	if (getpeername(io->fd, (struct sockaddr *)&peer, &len) == 0)
		(void)getnameinfo((struct sockaddr *)&peer, len, host, sizeof(host), port,
			sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
	kvw_debug("tls", "connection failed side=%s peer=%s:%s ready=%d why=\"%s\"",
		SSL_is_server(c->ssl) ? "server" : "client", host, port, (int)c->ready,
		c->why == NULL ? "" : c->why);
}

/* Returns the name or address for which the certificate is not valid, to be freed by OPENSSL_free;
 * NULL: the failure has another cause. */
static char *missed_name(SSL *ssl, long verdict)
{
	X509_VERIFY_PARAM *param = SSL_get0_param(ssl);
	const char *host;

	if (verdict == X509_V_ERR_IP_ADDRESS_MISMATCH)
		return X509_VERIFY_PARAM_get1_ip_asc(param);
	host = verdict == X509_V_ERR_HOSTNAME_MISMATCH ? X509_VERIFY_PARAM_get0_host(param, 0)
						       : NULL;
	return host == NULL ? NULL : OPENSSL_strdup(host);
}

/* Stores the cause of a failure as text: OpenSSL's reason, the fault that it found in a
 * certificate, or errno. */
static void note_failure(struct kvw_io *io, struct kvw_tls_conn *c, bool fatal)
{
	unsigned long code = ERR_peek_error();
	long verdict = SSL_get_verify_result(c->ssl);
	const char *reason = code == 0 ? NULL : ERR_reason_error_string(code);

	/* The errno may come from an alert that could not be sent, which is not the cause. */
	if (c->eof)
		c->error = ECONNRESET;
	else if (code != 0 || c->error == 0)
		c->error = EPROTO;
	if (c->eof && (reason == NULL || (ERR_GET_LIB(code) == ERR_LIB_SSL &&
		    ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING)))
		reason = c->ready ? "closed without close_notify" : "closed during the handshake";
	if (c->flooded)
		reason = "too many renegotiations or key updates";
	if (reason == NULL)
		reason = strerror(c->error);
	if (c->why == NULL) {
		bool shown = c->tls->verify && !c->ready && verdict != X509_V_OK;
		char *name = shown ? missed_name(c->ssl, verdict) : NULL;

		if (asprintf(&c->why, "TLS: %s%s%s%s%s%s%s", reason, shown ? " (" : "",
			    shown ? X509_verify_cert_error_string(verdict) : "",
			    name != NULL ? ": " : "", name != NULL ? name : "",
			    name != NULL ? " expected" : "", shown ? ")" : "") < 0)
			c->why = NULL;
		OPENSSL_free(name);
		log_failure(io, c);
	}
	if (fatal)
		c->read_failed = c->write_failed = c->finished = true;
	ERR_clear_error();
}

static ssize_t fail_with(int error)
{
	errno = error;
	return -1;
}

/* --- reading --- */

/* Called after a read: retries a write that had to wait for one. */
static void after_read(struct kvw_io *io, struct kvw_tls_conn *c)
{
	if (!c->write_wants_read)
		return;
	c->write_wants_read = false;
	io->writable = true;
	kvw_io_again(io);
}

/* Called when SSL_read or SSL_peek has returned n <= 0. Returns like read(2). */
static ssize_t read_verdict(struct kvw_io *io, struct kvw_tls_conn *c, int n)
{
	switch (SSL_get_error(c->ssl, n)) {
	case SSL_ERROR_ZERO_RETURN:
		io->peer_closed = true;
		return 0;
	case SSL_ERROR_WANT_WRITE:
		c->read_wants_write = true;
		io->readable = false;
		return fail_with(EAGAIN);
	case SSL_ERROR_WANT_READ:
		io->readable = false;
		after_read(io, c);
		return fail_with(EAGAIN);
	default:
		note_failure(io, c, true);
		io->broken = true;
		return fail_with(c->error);
	}
}

static ssize_t tls_readv(struct kvw_io *io, const struct iovec *iov, int count)
{
	struct kvw_tls_conn *c = io->state;
	size_t total = 0;

	if (c->read_failed)
		return fail_with(c->error);
	if (!c->ready)
		return fail_with(EAGAIN);
	c->read_wants_write = false;
	for (int i = 0; i < count; i++) {
		size_t at = 0;

		while (at < iov[i].iov_len) {
			size_t left = iov[i].iov_len - at;
			int n;

			ERR_clear_error();
			n = SSL_read(c->ssl, (char *)iov[i].iov_base + at,
				left > INT_MAX ? INT_MAX : (int)left);
			if (n <= 0) {
				ssize_t verdict = read_verdict(io, c, n);

				return total > 0 ? (ssize_t)total : verdict;
			}
			at += (size_t)n;
			total += (size_t)n;
			kvw_tls_count_payload(c, (size_t)n);
		}
	}
	after_read(io, c);
	return (ssize_t)total;
}

static void settle_flags(struct kvw_io *io, struct kvw_tls_conn *c)
{
	char byte;
	int n;

	if (!c->ready || c->read_failed || !io->readable)
		return;
	c->read_wants_write = false;
	ERR_clear_error();
	n = SSL_peek(c->ssl, &byte, 1);
	if (n <= 0)
		(void)read_verdict(io, c, n);
}

/* --- writing --- */

/* Bytes that are still to be written: a position in an iovec. */
struct offer {
	const struct iovec *iov;
	int count;
	size_t at; /* in iov[0] */
};

static void offer_skip(struct offer *o, size_t n)
{
	while (o->count > 0 && n >= o->iov->iov_len - o->at) {
		n -= o->iov->iov_len - o->at;
		o->iov++;
		o->count--;
		o->at = 0;
	}
	o->at += n;
}

/* Returns the payload of the next record: in place if it is contiguous, else copied into buffer. */
static const char *offer_record(const struct offer *o, char *buffer, size_t *len)
{
	const char *first = (const char *)o->iov->iov_base + o->at;
	size_t at = o->at, used = 0;

	if (o->iov->iov_len - at >= KVW_TLS_RECORD || o->count == 1) {
		*len = o->iov->iov_len - at;
		if (*len > KVW_TLS_RECORD)
			*len = KVW_TLS_RECORD;
		return first;
	}
	for (int i = 0; i < o->count && used < KVW_TLS_RECORD; i++, at = 0) {
		size_t n = o->iov[i].iov_len - at;

		if (n > KVW_TLS_RECORD - used)
			n = KVW_TLS_RECORD - used;
		memcpy(buffer + used, (const char *)o->iov[i].iov_base + at, n);
		used += n;
	}
	*len = used;
	return buffer;
}

/* Called when SSL_write has returned n <= 0. Reading may still be possible: a worker may have
 * answered and then closed. */
static ssize_t write_verdict(struct kvw_io *io, struct kvw_tls_conn *c, int n)
{
	int error = SSL_get_error(c->ssl, n);

	if (error == SSL_ERROR_WANT_WRITE || error == SSL_ERROR_WANT_READ) {
		c->blocked = true;
		c->write_wants_read = error == SSL_ERROR_WANT_READ;
		io->writable = false;
		return fail_with(EAGAIN);
	}
	note_failure(io, c, error == SSL_ERROR_SSL);
	c->write_failed = c->finished = true;
	return fail_with(c->error);
}

static ssize_t tls_writev(struct kvw_io *io, const struct iovec *iov, int count)
{
	struct kvw_tls_conn *c = io->state;
	struct offer offer = {.iov = iov, .count = count};
	char buffer[KVW_TLS_RECORD];
	size_t total = 0;

	if (c->write_failed)
		return fail_with(c->error);
	if (!c->ready)
		return fail_with(EAGAIN);
	c->write_wants_read = false;
	for (offer_skip(&offer, 0); offer.count > 0;) {
		size_t len;
		const char *data = offer_record(&offer, buffer, &len);
		int n;

		ERR_clear_error();
		n = SSL_write(c->ssl, data, (int)len);
		if (n <= 0) {
			ssize_t verdict = write_verdict(io, c, n);

			return total > 0 ? (ssize_t)total : verdict;
		}
		c->blocked = false;
		total += (size_t)n;
		kvw_tls_count_payload(c, (size_t)n);
		offer_skip(&offer, (size_t)n);
	}
	if (c->read_wants_write) {
		c->read_wants_write = false;
		io->readable = true;
		kvw_io_again(io);
	}
	return (ssize_t)total;
}

/* --- closing --- */

/* Sends close_notify, which shows the peer that no byte is missing. It is sent once, and only if
 * the socket takes it now. */
static void send_close_notify(struct kvw_io *io, struct kvw_tls_conn *c)
{
	if (!c->ready || c->finished || c->blocked || io->broken)
		return;
	c->finished = true;
	ERR_clear_error();
	(void)SSL_shutdown(c->ssl);
	ERR_clear_error();
}

static void tls_shutdown(struct kvw_io *io)
{
	send_close_notify(io, io->state);
}

static void free_conn(struct kvw_tls_conn *c)
{
	SSL_free(c->ssl); /* and the bio */
	kvw_tls_set_unref(c->set); /* after the SSL object, whose callbacks use the set */
	free(c->why);
	free(c);
}

static void tls_close(struct kvw_io *io)
{
	struct kvw_tls_conn *c = io->state;

	send_close_notify(io, c);
	free_conn(c);
	io->ops = NULL;
	io->state = NULL;
}

static const struct kvw_io_ops tls_ops = {
	.readv = tls_readv,
	.writev = tls_writev,
	.shutdown = tls_shutdown,
	.close = tls_close,
};

/* --- events --- */

static void handshake(struct kvw_io *io, struct kvw_tls_conn *c)
{
	int n;

	if (!c->begun && io->broken) {
		/* The socket was not even connected: kvw_tls_why() stays NULL, since the socket's
		 * own error is more precise. */
		c->error = ECONNRESET;
		c->read_failed = c->write_failed = c->finished = true;
		return;
	}
	c->begun = c->begun || c->raw_writable;
	ERR_clear_error();
	n = SSL_do_handshake(c->ssl);
	if (n == 1) {
		c->ready = true;
		io->readable = true;
		io->writable = c->raw_writable;
		return;
	}
	switch (SSL_get_error(c->ssl, n)) {
	case SSL_ERROR_WANT_READ:
	case SSL_ERROR_WANT_WRITE:
		io->readable = io->writable = false;
		return;
	default:
		note_failure(io, c, true);
		io->broken = io->readable = io->writable = true;
	}
}

/* The socket's on_event; it calls the owner's. */
static void filter_event(struct kvw_io *io)
{
	struct kvw_tls_conn *c = io->state;

	/* The owner's flags may be stale. That costs at most one EAGAIN, while a lost edge would
	 * stop the connection. */
	c->raw_readable = c->raw_readable || io->readable;
	c->raw_writable = c->raw_writable || io->writable;
	if (!c->ready && !c->read_failed) {
		handshake(io, c);
		if (!c->ready && !c->read_failed)
			return;
	}
	if (c->read_wants_write && c->raw_writable)
		io->readable = true;
	if (c->write_wants_read && c->raw_readable)
		io->writable = true;
	settle_flags(io, c);
	c->on_event(io);
}

static enum kvw_err start_tls(struct kvw_io *io, struct kvw_tls *tls, struct kvw_tls_conn **out)
{
	struct kvw_tls_conn *c = calloc(1, sizeof(*c));
	BIO *bio;

	assert(io->fd >= 0 && io->ops == NULL);
	if (c == NULL)
		return KVW_ENOMEM;
	c->set = kvw_tls_set_ref(tls);
	c->ssl = SSL_new(c->set->ctx);
	bio = BIO_new(tls->method);
	if (c->ssl == NULL || bio == NULL || SSL_set_app_data(c->ssl, c) != 1) {
		BIO_free(bio);
		free_conn(c);
		ERR_clear_error();
		return KVW_ENOMEM;
	}
	BIO_set_data(bio, io);
	BIO_set_init(bio, 1);
	SSL_set_bio(c->ssl, bio, bio); /* takes it */
	c->tls = tls;
	c->raw_readable = io->readable;
	c->raw_writable = io->writable;
	*out = c;
	return KVW_OK;
}

static void attach(struct kvw_io *io, struct kvw_tls_conn *c)
{
	c->on_event = io->on_event;
	io->on_event = filter_event;
	io->state = c;
	io->ops = &tls_ops;
}

enum kvw_err kvw_tls_server_start(struct kvw_io *io, struct kvw_tls *tls)
{
	struct kvw_tls_conn *c;
	enum kvw_err err = start_tls(io, tls, &c);

	if (err != KVW_OK)
		return err;
	SSL_set_accept_state(c->ssl);
	attach(io, c);
	return KVW_OK;
}

/* Sets the name for which the certificate must be valid; a DNS name is also sent as SNI. */
static bool expect_host(SSL *ssl, const char *host)
{
	unsigned char binary[sizeof(struct in6_addr)];

	if (inet_pton(AF_INET, host, binary) == 1 || inet_pton(AF_INET6, host, binary) == 1)
		return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
	SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	return SSL_set_tlsext_host_name(ssl, host) == 1 && SSL_set1_host(ssl, host) == 1;
}

enum kvw_err kvw_tls_client_start(struct kvw_io *io, struct kvw_tls *tls, const char *host)
{
	struct kvw_tls_conn *c;
	enum kvw_err err = start_tls(io, tls, &c);

	if (err != KVW_OK)
		return err;
	if (!expect_host(c->ssl, host)) {
		free_conn(c);
		ERR_clear_error();
		return KVW_EINVAL;
	}
	SSL_set_connect_state(c->ssl);
	attach(io, c);
	return KVW_OK;
}

bool kvw_tls_ready(const struct kvw_io *io)
{
	const struct kvw_tls_conn *c = conn_of(io);

	return c == NULL || c->ready;
}

bool kvw_tls_resumed(const struct kvw_io *io)
{
	const struct kvw_tls_conn *c = conn_of(io);

	return c != NULL && c->ready && SSL_session_reused(c->ssl) == 1;
}

/* Returns the peer's certificate; NULL: it sent none, or the certificate was not verified. */
static X509 *peer_certificate(const struct kvw_tls_conn *c)
{
	X509 *shown = c == NULL || !c->ready ? NULL : SSL_get0_peer_certificate(c->ssl);

	return shown != NULL && SSL_get_verify_result(c->ssl) == X509_V_OK ? shown : NULL;
}

bool kvw_tls_peer_verified(const struct kvw_io *io)
{
	return peer_certificate(conn_of(io)) != NULL;
}

char *kvw_tls_peer_subject(const struct kvw_io *io)
{
	X509 *shown = peer_certificate(conn_of(io));
	BIO *memory;
	char *text, *subject = NULL;
	long len;

	if (shown == NULL)
		return NULL;
	memory = BIO_new(BIO_s_mem());
	if (memory != NULL &&
		X509_NAME_print_ex(memory, X509_get_subject_name(shown), 0, XN_FLAG_RFC2253) >= 0) {
		len = BIO_get_mem_data(memory, &text);
		subject = strndup(len > 0 ? text : "", len > 0 ? (size_t)len : 0);
	}
	BIO_free(memory);
	ERR_clear_error();
	return subject;
}

const char *kvw_tls_why(const struct kvw_io *io)
{
	const struct kvw_tls_conn *c = conn_of(io);

	return c == NULL ? NULL : c->why;
}

void kvw_tls_settle(struct kvw_io *io)
{
	struct kvw_tls_conn *c = conn_of(io);

	if (c != NULL)
		settle_flags(io, c);
}
