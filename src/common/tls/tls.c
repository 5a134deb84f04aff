/* tls.c - makes contexts from options, and gives connections references to them. */
#include "tls/tls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tls/tls_internal.h"

/* Allocates a context; `pairs` is the most certificates that it can have. */
static struct kvw_tls *new_tls(bool server, size_t pairs)
{
	struct kvw_tls *tls = calloc(1, sizeof(*tls));

	if (tls == NULL)
		return NULL;
	pthread_mutex_init(&tls->lock, NULL);
	pthread_mutex_init(&tls->tickets.lock, NULL);
	tls->server = server;
	tls->file_room = 2 * pairs + 1;
	tls->files = calloc(tls->file_room, sizeof(tls->files[0]));
	tls->pairs = calloc(pairs, sizeof(tls->pairs[0]));
	tls->method = kvw_tls_bio_method();
	if (tls->method == NULL || tls->files == NULL || tls->pairs == NULL ||
		(server && !kvw_tls_tickets_init(&tls->tickets))) {
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
		err = kvw_tls_load(tls, why, why_size, &tls->set);
	}
	if (err == KVW_OK)
		*out = tls;
	else
		kvw_tls_destroy(tls);
	return err;
}

static bool add_pair(struct kvw_tls *tls, const char *certificate, const char *key)
{
	struct kvw_tls_pair *pair = &tls->pairs[tls->pair_count++];

	if (!kvw_tls_watch(tls, certificate, KVW_TLS_FILE_CERTIFICATES, &pair->certificate))
		return false;
	pair->key = pair->certificate;
	return key == NULL || kvw_tls_watch(tls, key, KVW_TLS_FILE_KEY, &pair->key);
}

/* Adds a certificate from a file with chain and key, or from a folder like a Kubernetes
 * Secret's. */
static bool add_certificate(struct kvw_tls *tls, const char *path)
{
	char *certificate, *key;
	struct stat info;
	bool added;

	if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
		return add_pair(tls, path, NULL);
	if (asprintf(&certificate, "%s/" KVW_TLS_FOLDER_CERTIFICATE, path) < 0)
		return false;
	if (asprintf(&key, "%s/" KVW_TLS_FOLDER_KEY, path) < 0) {
		free(certificate);
		return false;
	}
	added = add_pair(tls, certificate, key);
	free(certificate);
	free(key);
	return added;
}

/* Copies a text; "" and NULL become NULL. Returns false if memory is short. */
static bool copy_text(const char *text, char **out)
{
	if (text == NULL || text[0] == '\0')
		return true;
	*out = strdup(text);
	return *out != NULL;
}

enum kvw_err kvw_tls_server_create(const struct kvw_tls_server_options *options, char *why,
	size_t why_size, struct kvw_tls **out)
{
	struct kvw_tls *tls = new_tls(true, 1 + options->more_count);
	bool complete;

	if (tls == NULL)
		return KVW_ENOMEM;
	tls->only_1_3 = options->only_1_3;
	tls->client_asked = options->client_asked;
	tls->wipe = options->wipe;
	complete = add_pair(tls, options->certificate, options->key) &&
		   kvw_tls_watch(
			   tls, options->client_ca, KVW_TLS_FILE_CERTIFICATES, &tls->authorities) &&
		   copy_text(options->ciphers, &tls->ciphers) &&
		   copy_text(options->ciphersuites, &tls->ciphersuites);
	for (size_t i = 0; complete && i < options->more_count; i++)
		complete = add_certificate(tls, options->more[i]);
	return finish_create(tls, complete, why, why_size, out);
}

enum kvw_err kvw_tls_client_create(const struct kvw_tls_client_options *options, char *why,
	size_t why_size, struct kvw_tls **out)
{
	struct kvw_tls *tls = new_tls(false, 1);
	bool complete;

	if (tls == NULL)
		return KVW_ENOMEM;
	tls->verify = !options->insecure;
	complete = !tls->verify || kvw_tls_watch(tls, options->ca_file, KVW_TLS_FILE_CERTIFICATES,
					   &tls->authorities);
	if (complete && options->certificate != NULL && options->certificate[0] != '\0')
		complete = add_pair(tls, options->certificate, options->key);
	return finish_create(tls, complete, why, why_size, out);
}

struct kvw_tls_set *kvw_tls_set_ref(struct kvw_tls *tls)
{
	struct kvw_tls_set *set;

	pthread_mutex_lock(&tls->lock);
	set = tls->set;
	atomic_fetch_add_explicit(&set->refs, 1, memory_order_relaxed);
	pthread_mutex_unlock(&tls->lock);
	return set;
}

uint64_t kvw_tls_floods(const struct kvw_tls *tls)
{
	return atomic_load_explicit(&tls->floods, memory_order_relaxed);
}

void kvw_tls_destroy(struct kvw_tls *tls)
{
	if (tls == NULL)
		return;
	kvw_tls_set_unref(tls->set);
	BIO_meth_free(tls->method);
	kvw_tls_forget_files(tls);
	free(tls->files);
	free(tls->pairs);
	free(tls->ciphers);
	free(tls->ciphersuites);
	kvw_tls_tickets_finish(&tls->tickets);
	pthread_mutex_destroy(&tls->lock);
	free(tls);
}
