/*
 * tls_load.c - from files to OpenSSL: certificates, trust and settings.
 *
 * Ciphers and groups are OpenSSL's defaults, which the distribution keeps up to date. Set here:
 *
 *   - read ahead: a record's header and body in one system call, and what follows them too
 *   - buffers released when empty: an idle connection keeps none of its 34 KB
 *   - partial writes and moving buffers: a blocked write is reported as such, and its bytes may have been
 *     copied elsewhere before they are offered again
 *   - session tickets instead of a cache: resumption without a table that loops would share
 *   - no renegotiation (TLS 1.2): it lets a client make us work for nothing
 */
#include <openssl/err.h>
#include <string.h>

#include "tls/tls_internal.h"

/* Protocol names as ALPN writes them. */
static const unsigned char alpn_http[] = "\x08http/1.1";

/* "what PATH: reason" of OpenSSL's oldest complaint, which is the cause of the others. */
static enum kvw_err complain(char *why, size_t why_size, const char *what, const char *path)
{
	unsigned long code = ERR_peek_error();
	const char *reason = ERR_SYSTEM_ERROR(code) ? strerror(ERR_GET_REASON(code))
						    : ERR_reason_error_string(code);

	(void)snprintf(why, why_size, "%s %s: %s", what, path,
		reason != NULL ? reason : "unknown error");
	ERR_clear_error();
	return KVW_EINVAL;
}

/* http/1.1 if the client offers it; a client that speaks only other protocols gets an alert. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
	const unsigned char *in, unsigned in_len, void *arg)
{
	unsigned char *chosen;

	(void)ssl, (void)arg;
	if (SSL_select_next_proto(&chosen, out_len, alpn_http, sizeof(alpn_http) - 1, in, in_len) !=
		OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*out = chosen;
	return SSL_TLSEXT_ERR_OK;
}

/* What servers and clients have in common. NULL: out of memory. */
static SSL_CTX *new_ctx(const SSL_METHOD *method)
{
	SSL_CTX *ctx = SSL_CTX_new(method);

	if (ctx == NULL || SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1) {
		SSL_CTX_free(ctx);
		return NULL;
	}
	SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
				      SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION);
	SSL_CTX_set_read_ahead(ctx, 1);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	return ctx;
}

/* A server has no terminal to ask for a passphrase. */
static int no_passphrase(char *out, int size, int writing, void *arg)
{
	(void)out, (void)size, (void)writing, (void)arg;
	return -1;
}

static enum kvw_err load_certificate(
	SSL_CTX *ctx, const char *certificate, const char *key, char *why, size_t why_size)
{
	ERR_clear_error();
	SSL_CTX_set_default_passwd_cb(ctx, no_passphrase);
	if (SSL_CTX_use_certificate_chain_file(ctx, certificate) != 1)
		return complain(why, why_size, "certificate", certificate);
	if (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1 ||
		SSL_CTX_check_private_key(ctx) != 1)
		return complain(why, why_size, "key", key);
	return KVW_OK;
}

/* Clients must show a certificate of one of these authorities; the handshake sends them the names. */
static enum kvw_err load_client_ca(SSL_CTX *ctx, const char *path, char *why, size_t why_size)
{
	STACK_OF(X509_NAME) * names;

	ERR_clear_error();
	names = SSL_load_client_CA_file(path);
	if (names == NULL || SSL_CTX_load_verify_file(ctx, path) != 1) {
		sk_X509_NAME_pop_free(names, X509_NAME_free);
		return complain(why, why_size, "client authorities", path);
	}
	SSL_CTX_set_client_CA_list(ctx, names); /* takes names */
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	return KVW_OK;
}

static enum kvw_err load_server(const struct kvw_tls *tls, SSL_CTX *ctx, char *why, size_t why_size)
{
	static const unsigned char session_context[] = "kvway";
	enum kvw_err err = load_certificate(ctx, tls->certificate, tls->key, why, why_size);

	if (err == KVW_OK && tls->authorities != NULL)
		err = load_client_ca(ctx, tls->authorities, why, why_size);
	if (err != KVW_OK)
		return err;
	SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
	if (SSL_CTX_set_session_id_context(ctx, session_context, sizeof(session_context) - 1) != 1 ||
		SSL_CTX_set_num_tickets(ctx, 1) != 1 ||
		(tls->only_1_3 && SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) != 1))
		return KVW_ENOMEM;
	return KVW_OK;
}

static enum kvw_err load_trust(SSL_CTX *ctx, const char *path, char *why, size_t why_size)
{
	ERR_clear_error();
	if (path != NULL)
		return SSL_CTX_load_verify_file(ctx, path) == 1
			       ? KVW_OK
			       : complain(why, why_size, "authorities", path);
	return SSL_CTX_set_default_verify_paths(ctx) == 1
		       ? KVW_OK
		       : complain(why, why_size, "authorities", "of the system");
}

static enum kvw_err load_client(const struct kvw_tls *tls, SSL_CTX *ctx, char *why, size_t why_size)
{
	enum kvw_err err = KVW_OK;

	SSL_CTX_set_verify(ctx, tls->verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, NULL);
	if (tls->verify)
		err = load_trust(ctx, tls->authorities, why, why_size);
	if (err == KVW_OK && SSL_CTX_set_alpn_protos(ctx, alpn_http, sizeof(alpn_http) - 1) != 0)
		err = KVW_ENOMEM;
	return err;
}

enum kvw_err kvw_tls_load(const struct kvw_tls *tls, char *why, size_t why_size, SSL_CTX **out)
{
	SSL_CTX *ctx = new_ctx(tls->server ? TLS_server_method() : TLS_client_method());
	enum kvw_err err;

	if (ctx == NULL)
		return KVW_ENOMEM;
	err = tls->server ? load_server(tls, ctx, why, why_size) : load_client(tls, ctx, why, why_size);
	if (err == KVW_OK)
		*out = ctx;
	else
		SSL_CTX_free(ctx);
	return err;
}
