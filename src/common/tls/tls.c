/*
 * tls.c - contexts: certificates, trust and the settings of OpenSSL.
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
#include "tls/tls.h"

#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>

#include "tls/tls_internal.h"

/* Protocol names as ALPN writes them. */
static const unsigned char alpn_http[] = "\x08http/1.1";

static bool given(const char *path)
{
	return path != NULL && path[0] != '\0';
}

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

/* What servers and clients have in common. */
static enum kvw_err create(const SSL_METHOD *method, struct kvw_tls **out)
{
	struct kvw_tls *tls = calloc(1, sizeof(*tls));

	if (tls == NULL)
		return KVW_ENOMEM;
	tls->ctx = SSL_CTX_new(method);
	tls->method = kvw_tls_bio_method();
	if (tls->ctx == NULL || tls->method == NULL ||
		SSL_CTX_set_min_proto_version(tls->ctx, TLS1_2_VERSION) != 1) {
		kvw_tls_destroy(tls);
		return KVW_ENOMEM;
	}
	SSL_CTX_set_mode(tls->ctx, SSL_MODE_ENABLE_PARTIAL_WRITE |
					   SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
					   SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_options(tls->ctx, SSL_OP_NO_RENEGOTIATION);
	SSL_CTX_set_read_ahead(tls->ctx, 1);
	SSL_CTX_set_session_cache_mode(tls->ctx, SSL_SESS_CACHE_OFF);
	*out = tls;
	return KVW_OK;
}

/* A server has no terminal to ask for a passphrase. */
static int no_passphrase(char *out, int size, int writing, void *arg)
{
	(void)out, (void)size, (void)writing, (void)arg;
	return -1;
}

static enum kvw_err load_certificate(
	SSL_CTX *ctx, const struct kvw_tls_server_options *options, char *why, size_t why_size)
{
	ERR_clear_error();
	SSL_CTX_set_default_passwd_cb(ctx, no_passphrase);
	if (SSL_CTX_use_certificate_chain_file(ctx, options->certificate) != 1)
		return complain(why, why_size, "certificate", options->certificate);
	if (SSL_CTX_use_PrivateKey_file(ctx, options->key, SSL_FILETYPE_PEM) != 1 ||
		SSL_CTX_check_private_key(ctx) != 1)
		return complain(why, why_size, "key", options->key);
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

enum kvw_err kvw_tls_server_create(const struct kvw_tls_server_options *options, char *why,
	size_t why_size, struct kvw_tls **out)
{
	static const unsigned char session_context[] = "kvway";
	struct kvw_tls *tls;
	enum kvw_err err = create(TLS_server_method(), &tls);

	if (err != KVW_OK)
		return err;
	err = load_certificate(tls->ctx, options, why, why_size);
	if (err == KVW_OK && given(options->client_ca))
		err = load_client_ca(tls->ctx, options->client_ca, why, why_size);
	if (err == KVW_OK &&
		(SSL_CTX_set_session_id_context(
			 tls->ctx, session_context, sizeof(session_context) - 1) != 1 ||
			SSL_CTX_set_num_tickets(tls->ctx, 1) != 1 ||
			(options->only_1_3 &&
				SSL_CTX_set_min_proto_version(tls->ctx, TLS1_3_VERSION) != 1)))
		err = KVW_ENOMEM;
	if (err != KVW_OK) {
		kvw_tls_destroy(tls);
		return err;
	}
	SSL_CTX_set_alpn_select_cb(tls->ctx, choose_protocol, NULL);
	*out = tls;
	return KVW_OK;
}

static enum kvw_err load_trust(SSL_CTX *ctx, const char *path, char *why, size_t why_size)
{
	ERR_clear_error();
	if (given(path))
		return SSL_CTX_load_verify_file(ctx, path) == 1
			       ? KVW_OK
			       : complain(why, why_size, "authorities", path);
	return SSL_CTX_set_default_verify_paths(ctx) == 1
		       ? KVW_OK
		       : complain(why, why_size, "authorities", "of the system");
}

enum kvw_err kvw_tls_client_create(const struct kvw_tls_client_options *options, char *why,
	size_t why_size, struct kvw_tls **out)
{
	struct kvw_tls *tls;
	enum kvw_err err = create(TLS_client_method(), &tls);

	if (err != KVW_OK)
		return err;
	tls->verify = !options->insecure;
	SSL_CTX_set_verify(tls->ctx, tls->verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, NULL);
	if (tls->verify)
		err = load_trust(tls->ctx, options->ca_file, why, why_size);
	if (err == KVW_OK &&
		SSL_CTX_set_alpn_protos(tls->ctx, alpn_http, sizeof(alpn_http) - 1) != 0)
		err = KVW_ENOMEM;
	if (err != KVW_OK) {
		kvw_tls_destroy(tls);
		return err;
	}
	*out = tls;
	return KVW_OK;
}

void kvw_tls_destroy(struct kvw_tls *tls)
{
	if (tls == NULL)
		return;
	SSL_CTX_free(tls->ctx);
	BIO_meth_free(tls->method);
	free(tls);
}
