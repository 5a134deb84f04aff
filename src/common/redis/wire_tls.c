/*
 * wire_tls.c - TLS on a connection, by OpenSSL.
 *
 * OpenSSL reads and writes through a BIO that this file defines: its own socket BIO writes in a way
 * that raises SIGPIPE, and calls the kernel also when the socket is known to be empty.
 *
 * Received records are decrypted in OpenSSL's buffer and copied once, into the value's memory; the
 * buffer is large, so that one system call receives many records. Sent records are cut from the
 * caller's memory; several pieces are first copied together only if a record would be short.
 *
 * A connection that ends without TLS's close is an ordinary failure: only complete replies count,
 * so a cut connection never looks like a short value.
 */
#include "redis/wire_tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>

#include "tls/tls.h"

#define RECORD_BYTES  16384
#define RECEIVE_BYTES 131072

/* --- the socket, for OpenSSL ------------------------------------------------------------------ */

static int bio_read(BIO *bio, char *data, int len)
{
	struct kvw_redis_wire *w = BIO_get_data(bio);
	ssize_t n;

	BIO_clear_retry_flags(bio);
	if (!w->readable) {
		BIO_set_retry_read(bio);
		return -1;
	}
	do
		n = recv(w->fd, data, (size_t)len, 0);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN) {
		w->readable = false;
		BIO_set_retry_read(bio);
	} else if (n > 0 && n < len && !w->ending) {
		w->readable = false;
	}
	return (int)n;
}

static int bio_write(BIO *bio, const char *data, int len)
{
	struct kvw_redis_wire *w = BIO_get_data(bio);
	ssize_t n;

	BIO_clear_retry_flags(bio);
	if (!w->writable) {
		BIO_set_retry_write(bio);
		return -1;
	}
	do
		n = send(w->fd, data, (size_t)len, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN) {
		w->writable = false;
		BIO_set_retry_write(bio);
	}
	return (int)n;
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
	(void)bio, (void)number, (void)pointer;
	return command == BIO_CTRL_FLUSH;
}

/* --- contexts --------------------------------------------------------------------------------- */

static bool is_given(const char *text)
{
	return text != NULL && text[0] != '\0';
}

/* Writes "what PATH: reason". The reason is the oldest error in OpenSSL's queue, which is the cause
 * of the others. */
static bool complain(char *why, const char *what, const char *path)
{
	unsigned long code = ERR_peek_error();
	const char *reason = code == 0                ? NULL
			     : ERR_SYSTEM_ERROR(code) ? strerror(ERR_GET_REASON(code))
						      : ERR_reason_error_string(code);

	snprintf(why, KVW_REDIS_WIRE_WHY, "%s %s: %s", what, path,
		reason != NULL ? reason : "cannot be used");
	ERR_clear_error();
	return false;
}

static bool load_files(
	SSL_CTX *context, const struct kvw_redis_wire_tls_options *options, char *why)
{
	const char *key = is_given(options->key) ? options->key : options->certificate;

	if (is_given(options->ca)) {
		if (SSL_CTX_load_verify_file(context, options->ca) != 1)
			return complain(why, "authorities", options->ca);
	} else if (SSL_CTX_set_default_verify_paths(context) != 1) {
		return complain(why, "authorities", "of the system");
	}
	if (!is_given(options->certificate)) {
		if (!is_given(options->key))
			return true;
		snprintf(why, KVW_REDIS_WIRE_WHY, "key %s: without a certificate", options->key);
		return false;
	}
	if (!kvw_tls_use_chain(context, options->certificate))
		return complain(why, "certificate", options->certificate);
	if (!kvw_tls_use_key(context, key) || SSL_CTX_check_private_key(context) != 1)
		return complain(why, "key", key);
	return true;
}

SSL_CTX *kvw_redis_wire_tls_create(const struct kvw_redis_wire_tls_options *options, char *why)
{
	SSL_CTX *context;

	ERR_clear_error();
	context = SSL_CTX_new(TLS_client_method());
	if (context == NULL || SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1) {
		(void)complain(why, "TLS", "settings");
		goto fail;
	}
	SSL_CTX_set_mode(
		context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION);
	SSL_CTX_set_read_ahead(context, 1);
	SSL_CTX_set_default_read_buffer_len(context, RECEIVE_BYTES);
	SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
	if (!load_files(context, options, why))
		goto fail;
	return context;
fail:
	SSL_CTX_free(context);
	return NULL;
}

/* --- failures --------------------------------------------------------------------------------- */

/* Stores the cause of a failure as text: OpenSSL's reason, the fault that it found in a
 * certificate, or errno. */
static ssize_t note_failure(struct kvw_redis_wire *w, int ssl_error, int error)
{
	unsigned long code = ERR_peek_error();
	const char *reason = code == 0 ? NULL : ERR_reason_error_string(code);
	long verdict = SSL_get_verify_result(w->ssl);
	bool shown = !w->secured && verdict != X509_V_OK;
	bool ended = code == 0 ? error == 0
			       : ERR_GET_LIB(code) == ERR_LIB_SSL &&
					 ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING;

	if (ssl_error == SSL_ERROR_ZERO_RETURN || ended)
		reason = w->secured ? "closed by the server"
				    : "closed by the server during the handshake";
	if (reason == NULL)
		reason = strerror(error);
	if (w->why[0] == '\0')
		snprintf(w->why, sizeof(w->why), "TLS: %s%s%s%s", reason, shown ? " (" : "",
			shown ? X509_verify_cert_error_string(verdict) : "", shown ? ")" : "");
	ERR_clear_error();
	w->failed = true;
	return -1;
}

/* --- connections ------------------------------------------------------------------------------ */

static bool is_address(const char *host)
{
	unsigned char bytes[sizeof(struct in6_addr)];

	return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

static bool expect_host(SSL *ssl, const char *host)
{
	if (is_address(host))
		return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
	SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

/* Each connection has its own BIO methods, so that none is shared or left allocated. */
static BIO *bio_for(struct kvw_redis_wire *w)
{
	BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "kvw_redis_wire");
	BIO *bio = NULL;

	if (method == NULL)
		return NULL;
	if (BIO_meth_set_read(method, bio_read) == 1 &&
		BIO_meth_set_write(method, bio_write) == 1 &&
		BIO_meth_set_ctrl(method, bio_control) == 1)
		bio = BIO_new(method);
	if (bio == NULL) {
		BIO_meth_free(method);
		return NULL;
	}
	w->bio_method = method;
	BIO_set_data(bio, w);
	BIO_set_init(bio, 1);
	return bio;
}

bool kvw_redis_wire_secure(struct kvw_redis_wire *w, SSL_CTX *context, const char *host)
{
	BIO *bio = NULL;

	ERR_clear_error();
	w->ssl = SSL_new(context);
	if (w->ssl == NULL || !expect_host(w->ssl, host))
		goto fail;
	bio = bio_for(w);
	if (bio == NULL)
		goto fail;
	SSL_set_bio(w->ssl, bio, bio); /* takes bio */
	SSL_set_connect_state(w->ssl);
	return true;
fail:
	snprintf(w->why, sizeof(w->why), "TLS: out of memory");
	w->failed = true;
	ERR_clear_error();
	return false;
}

enum kvw_redis_wire_go kvw_redis_wire_handshake(struct kvw_redis_wire *w)
{
	int n, ssl_error;

	if (!w->readable && !w->writable)
		return KVW_REDIS_WIRE_WAIT;
	ERR_clear_error();
	errno = 0;
	n = SSL_do_handshake(w->ssl);
	if (n == 1) {
		w->secured = true;
		return KVW_REDIS_WIRE_GO;
	}
	ssl_error = SSL_get_error(w->ssl, n);
	if (ssl_error == SSL_ERROR_WANT_READ || ssl_error == SSL_ERROR_WANT_WRITE)
		return KVW_REDIS_WIRE_WAIT;
	(void)note_failure(w, ssl_error, errno);
	return KVW_REDIS_WIRE_FAILED;
}

void kvw_redis_wire_tls_close(struct kvw_redis_wire *w)
{
	ERR_clear_error();
	if (w->secured && !w->failed && !w->blocked)
		(void)SSL_shutdown(w->ssl); /* sends close_notify, if the socket takes it */
	ERR_clear_error();
	SSL_free(w->ssl);
	BIO_meth_free(w->bio_method);
	w->ssl = NULL;
	w->bio_method = NULL;
}

/* Returns the bytes for the next record: a long piece itself, or short pieces copied together. The
 * result stays the same while the pieces begin with the same bytes, and never gets shorter when
 * pieces are added. */
static struct iovec next_record(
	const struct iovec *pieces, size_t count, size_t skip, char *together)
{
	struct iovec record = {
		.iov_base = (char *)pieces[0].iov_base + skip, .iov_len = pieces[0].iov_len - skip};

	if (record.iov_len >= RECORD_BYTES || count == 1) {
		if (record.iov_len > RECORD_BYTES)
			record.iov_len = RECORD_BYTES;
		return record;
	}
	memcpy(together, record.iov_base, record.iov_len);
	for (size_t i = 1; i < count && record.iov_len < RECORD_BYTES; i++) {
		size_t n = pieces[i].iov_len;

		if (n > RECORD_BYTES - record.iov_len)
			n = RECORD_BYTES - record.iov_len;
		memcpy(together + record.iov_len, pieces[i].iov_base, n);
		record.iov_len += n;
	}
	record.iov_base = together;
	return record;
}

/* Handles a result n <= 0 of SSL_write or SSL_read. Returns 0: try again after an event; -1:
 * failure. */
static ssize_t not_now(struct kvw_redis_wire *w, int n, bool writing)
{
	int error = errno, ssl_error = SSL_get_error(w->ssl, n);

	if (writing)
		w->blocked = true;
	if (ssl_error == SSL_ERROR_WANT_READ) {
		w->write_wants_read = writing;
		return 0;
	}
	if (ssl_error == SSL_ERROR_WANT_WRITE) {
		w->read_wants_write = !writing;
		return 0;
	}
	return note_failure(w, ssl_error, error);
}

ssize_t kvw_redis_wire_tls_send(struct kvw_redis_wire *w, const struct iovec *pieces, size_t count)
{
	char together[RECORD_BYTES];
	ssize_t sent = 0;
	size_t skip = 0;

	if (!w->writable && !(w->write_wants_read && w->readable))
		return 0;
	while (count > 0) {
		struct iovec record = next_record(pieces, count, skip, together);
		int n;

		if (record.iov_len == 0) {
			pieces++, count--, skip = 0;
			continue;
		}
		ERR_clear_error();
		errno = 0;
		n = SSL_write(w->ssl, record.iov_base, (int)record.iov_len);
		if (n <= 0) {
			ssize_t verdict = not_now(w, n, true);

			return sent > 0 ? sent : verdict;
		}
		w->blocked = w->write_wants_read = false;
		w->sent += (uint64_t)n;
		sent += n;
		for (skip += (size_t)n; count > 0 && skip >= pieces->iov_len; pieces++, count--)
			skip -= pieces->iov_len;
	}
	return sent;
}

ssize_t kvw_redis_wire_tls_receive(
	struct kvw_redis_wire *w, const struct iovec *pieces, size_t count)
{
	ssize_t received = 0;

	if (!w->readable && !SSL_has_pending(w->ssl) && !(w->read_wants_write && w->writable))
		return 0;
	for (size_t i = 0; i < count; i++) {
		size_t at = 0;

		while (at < pieces[i].iov_len) {
			size_t left = pieces[i].iov_len - at;
			int n;

			ERR_clear_error();
			errno = 0;
			n = SSL_read(w->ssl, (char *)pieces[i].iov_base + at,
				left > INT32_MAX ? INT32_MAX : (int)left);
			if (n <= 0) {
				ssize_t verdict = not_now(w, n, false);

				return received > 0 ? received : verdict;
			}
			w->read_wants_write = false;
			w->received += (uint64_t)n;
			at += (size_t)n;
			received += n;
		}
	}
	return received;
}
