/* tls.c - contexts: made of their options, lent to connections. */
#include "tls/tls.h"

#include <stdlib.h>

#include "tls/tls_internal.h"

static struct kvw_tls *new_tls(bool server)
{
	struct kvw_tls *tls = calloc(1, sizeof(*tls));

	if (tls == NULL)
		return NULL;
	pthread_mutex_init(&tls->lock, NULL);
	tls->server = server;
	tls->method = kvw_tls_bio_method();
	if (tls->method == NULL) {
		kvw_tls_destroy(tls);
		return NULL;
	}
	return tls;
}

/* Takes tls. */
static enum kvw_err finish_create(
	struct kvw_tls *tls, bool complete, char *why, size_t why_size, struct kvw_tls **out)
{
	enum kvw_err err = KVW_ENOMEM;

	if (complete) {
		kvw_tls_note_files(tls);
		err = kvw_tls_load(tls, why, why_size, &tls->ctx);
	}
	if (err == KVW_OK)
		*out = tls;
	else
		kvw_tls_destroy(tls);
	return err;
}

enum kvw_err kvw_tls_server_create(const struct kvw_tls_server_options *options, char *why,
	size_t why_size, struct kvw_tls **out)
{
	struct kvw_tls *tls = new_tls(true);
	bool complete;

	if (tls == NULL)
		return KVW_ENOMEM;
	tls->only_1_3 = options->only_1_3;
	complete = kvw_tls_watch(tls, options->certificate, &tls->certificate) &&
		   kvw_tls_watch(tls, options->key, &tls->key) &&
		   kvw_tls_watch(tls, options->client_ca, &tls->authorities);
	return finish_create(tls, complete, why, why_size, out);
}

enum kvw_err kvw_tls_client_create(const struct kvw_tls_client_options *options, char *why,
	size_t why_size, struct kvw_tls **out)
{
	struct kvw_tls *tls = new_tls(false);
	bool complete;

	if (tls == NULL)
		return KVW_ENOMEM;
	tls->verify = !options->insecure;
	complete = !tls->verify || kvw_tls_watch(tls, options->ca_file, &tls->authorities);
	return finish_create(tls, complete, why, why_size, out);
}

SSL *kvw_tls_connection(struct kvw_tls *tls)
{
	SSL_CTX *ctx;
	SSL *ssl;

	pthread_mutex_lock(&tls->lock);
	ctx = tls->ctx;
	SSL_CTX_up_ref(ctx);
	pthread_mutex_unlock(&tls->lock);
	ssl = SSL_new(ctx);
	SSL_CTX_free(ctx);
	return ssl;
}

void kvw_tls_destroy(struct kvw_tls *tls)
{
	if (tls == NULL)
		return;
	SSL_CTX_free(tls->ctx);
	BIO_meth_free(tls->method);
	kvw_tls_forget_files(tls);
	pthread_mutex_destroy(&tls->lock);
	free(tls);
}
