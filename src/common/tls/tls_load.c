/*
 * tls_load.c - loads certificates, trusted CAs and settings into OpenSSL.
 *
 * Groups and the ciphers of TLS 1.3 are OpenSSL's defaults, which the distribution keeps up to
 * date; for TLS 1.2 servers accept only ciphers with forward secrecy and authenticated encryption.
 * Set here:
 *
 *   - read ahead: a record's header, body and the bytes after it in one system call
 *   - buffers released when empty: an idle connection keeps none of its 34 KB
 *   - partial writes and moving buffers: a blocked write is reported as such, and its bytes may
 *     have been copied elsewhere before they are offered again
 *   - session tickets instead of a cache: resumption without a table shared by loops
 *   - no renegotiation (TLS 1.2), which lets a client waste the server's time; and a bound on how
 *     often the peer may ask for it or for a key update (tls_flood.c)
 */
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

#include "tls/tls_internal.h"

/* Names of protocols in the form of ALPN. */
static const unsigned char alpn_http[] = "\x08http/1.1";

/* Writes "what PATH: reason". The reason is the oldest error in OpenSSL's queue, which is the cause
 * of the others. */
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

/* Chooses http/1.1 if the client offers it; a client that offers only other protocols gets an
 * alert. */
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

/* Makes an SSL_CTX with the settings that servers and clients have in common. NULL: memory is
 * short. */
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
	SSL_CTX_set_msg_callback(ctx, kvw_tls_on_message);
	SSL_CTX_set_read_ahead(ctx, 1);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	return ctx;
}

/* Refuses to ask for a passphrase: a server has no terminal. */
static int no_passphrase(char *out, int size, int writing, void *arg)
{
	(void)out, (void)size, (void)writing, (void)arg;
	return -1;
}

bool kvw_tls_use_chain(SSL_CTX *ctx, const char *path)
{
	SSL_CTX_set_default_passwd_cb(ctx, no_passphrase);
	return SSL_CTX_use_certificate_chain_file(ctx, path) == 1;
}

bool kvw_tls_use_key(SSL_CTX *ctx, const char *path)
{
	SSL_CTX_set_default_passwd_cb(ctx, no_passphrase);
	return SSL_CTX_use_PrivateKey_file(ctx, path, SSL_FILETYPE_PEM) == 1;
}

static enum kvw_err load_certificate(
	SSL_CTX *ctx, const char *certificate, const char *key, char *why, size_t why_size)
{
	ERR_clear_error();
	if (!kvw_tls_use_chain(ctx, certificate))
		return complain(why, why_size, "certificate", certificate);
	if (!kvw_tls_use_key(ctx, key) || SSL_CTX_check_private_key(ctx) != 1)
		return complain(why, why_size, "key", key);
	return KVW_OK;
}

/* Requires client certificates of these CAs, whose names the handshake sends. asked: a client
 * without a certificate is accepted, too. */
static enum kvw_err load_client_ca(
	SSL_CTX *ctx, const char *path, bool asked, char *why, size_t why_size)
{
	STACK_OF(X509_NAME) * names;

	ERR_clear_error();
	names = SSL_load_client_CA_file(path);
	if (names == NULL || SSL_CTX_load_verify_file(ctx, path) != 1) {
		sk_X509_NAME_pop_free(names, X509_NAME_free);
		return complain(why, why_size, "client authorities", path);
	}
	SSL_CTX_set_client_CA_list(ctx, names); /* takes names */
	SSL_CTX_set_verify(
		ctx, SSL_VERIFY_PEER | (asked ? 0 : SSL_VERIFY_FAIL_IF_NO_PEER_CERT), NULL);
	return KVW_OK;
}

static enum kvw_err load_ciphers(
	const struct kvw_tls *tls, SSL_CTX *ctx, char *why, size_t why_size)
{
	const char *ciphers = tls->ciphers != NULL ? tls->ciphers : KVW_TLS_CIPHERS;

	ERR_clear_error();
	if (SSL_CTX_set_cipher_list(ctx, ciphers) != 1)
		return complain(why, why_size, "ciphers", ciphers);
	if (tls->ciphersuites != NULL && SSL_CTX_set_ciphersuites(ctx, tls->ciphersuites) != 1)
		return complain(why, why_size, "ciphersuites", tls->ciphersuites);
	return KVW_OK;
}

/* Binds sessions to the CAs for clients: a server with other CAs does not resume them. */
static bool set_session_context(const struct kvw_tls *tls, SSL_CTX *ctx)
{
	static const unsigned char session_context[] = "kvway";
	unsigned char digest[EVP_MAX_MD_SIZE];
	STACK_OF(X509_OBJECT) *known = X509_STORE_get0_objects(SSL_CTX_get_cert_store(ctx));
	EVP_MD_CTX *hash;
	unsigned len = 0;
	bool good;

	if (tls->authorities == NULL)
		return SSL_CTX_set_session_id_context(
			       ctx, session_context, sizeof(session_context) - 1) == 1;
	hash = EVP_MD_CTX_new();
	good = hash != NULL && EVP_DigestInit_ex(hash, EVP_sha256(), NULL) == 1 &&
	       EVP_DigestUpdate(hash, &tls->client_asked, sizeof(tls->client_asked)) == 1;
	for (int i = 0; good && i < sk_X509_OBJECT_num(known); i++) {
		X509 *authority = X509_OBJECT_get0_X509(sk_X509_OBJECT_value(known, i));

		good = authority == NULL ||
		       (X509_digest(authority, EVP_sha256(), digest, &len) == 1 &&
			       EVP_DigestUpdate(hash, digest, len) == 1);
	}
	good = good && EVP_DigestFinal_ex(hash, digest, &len) == 1 &&
	       SSL_CTX_set_session_id_context(ctx, digest, len) == 1;
	EVP_MD_CTX_free(hash);
	return good;
}

static enum kvw_err load_server(const struct kvw_tls *tls, const struct kvw_tls_pair *pair,
	SSL_CTX *ctx, char *why, size_t why_size)
{
	enum kvw_err err = load_certificate(ctx, pair->certificate, pair->key, why, why_size);

	if (err == KVW_OK && tls->authorities != NULL)
		err = load_client_ca(ctx, tls->authorities, tls->client_asked, why, why_size);
	if (err == KVW_OK)
		err = load_ciphers(tls, ctx, why, why_size);
	if (err != KVW_OK)
		return err;
	SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
	kvw_tls_tickets_use(ctx);
	if (!set_session_context(tls, ctx) || SSL_CTX_set_num_tickets(ctx, 1) != 1 ||
		(tls->only_1_3 && SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) != 1))
		return KVW_ENOMEM;
	return KVW_OK;
}

static bool names(const SSL_CTX *ctx, const char *host)
{
	return X509_check_host(SSL_CTX_get0_certificate(ctx), host, 0,
		       X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS, NULL) == 1;
}

/* Chooses the first certificate that is valid for the name that the client requests. */
static int choose_certificate(SSL *ssl, int *alert, void *arg)
{
	const struct kvw_tls_set *set = arg;
	const char *host = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);

	(void)alert;
	if (host == NULL || names(set->ctx, host))
		return SSL_TLSEXT_ERR_OK;
	for (size_t i = 0; i < set->count; i++)
		if (names(set->others[i], host))
			return SSL_set_SSL_CTX(ssl, set->others[i]) != NULL
				       ? SSL_TLSEXT_ERR_OK
				       : SSL_TLSEXT_ERR_ALERT_FATAL;
	return SSL_TLSEXT_ERR_OK;
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
	if (err == KVW_OK && tls->pair_count > 0)
		err = load_certificate(
			ctx, tls->pairs->certificate, tls->pairs->key, why, why_size);
	if (err == KVW_OK && SSL_CTX_set_alpn_protos(ctx, alpn_http, sizeof(alpn_http) - 1) != 0)
		err = KVW_ENOMEM;
	return err;
}

static enum kvw_err load_one(const struct kvw_tls *tls, const struct kvw_tls_pair *pair, char *why,
	size_t why_size, SSL_CTX **out)
{
	SSL_CTX *ctx = new_ctx(tls->server ? TLS_server_method() : TLS_client_method());
	enum kvw_err err;

	if (ctx == NULL)
		return KVW_ENOMEM;
	if (tls->wipe)
		SSL_CTX_set_options(ctx, SSL_OP_CLEANSE_PLAINTEXT);
	err = tls->server ? load_server(tls, pair, ctx, why, why_size)
			  : load_client(tls, ctx, why, why_size);
	if (err == KVW_OK)
		*out = ctx;
	else
		SSL_CTX_free(ctx);
	return err;
}

enum kvw_err kvw_tls_load(
	const struct kvw_tls *tls, char *why, size_t why_size, struct kvw_tls_set **out)
{
	size_t count = tls->server ? tls->pair_count - 1 : 0;
	struct kvw_tls_set *set = calloc(1, sizeof(*set) + count * sizeof(set->others[0]));
	enum kvw_err err;

	if (set == NULL)
		return KVW_ENOMEM;
	atomic_init(&set->refs, 1);
	err = load_one(tls, tls->pairs, why, why_size, &set->ctx);
	for (; err == KVW_OK && set->count < count; set->count += err == KVW_OK)
		err = load_one(tls, &tls->pairs[set->count + 1], why, why_size,
			&set->others[set->count]);
	if (err != KVW_OK) {
		kvw_tls_set_unref(set);
		return err;
	}
	if (count > 0) {
		(void)SSL_CTX_set_tlsext_servername_callback(set->ctx, choose_certificate);
		(void)SSL_CTX_set_tlsext_servername_arg(set->ctx, set);
	}
	*out = set;
	return KVW_OK;
}

void kvw_tls_set_unref(struct kvw_tls_set *set)
{
	if (set == NULL || atomic_fetch_sub_explicit(&set->refs, 1, memory_order_acq_rel) > 1)
		return;
	SSL_CTX_free(set->ctx);
	for (size_t i = 0; i < set->count; i++)
		SSL_CTX_free(set->others[i]);
	free(set);
}
