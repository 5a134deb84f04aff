/*
 * tls_files.c - detects replaced files of a context, and takes over their contents.
 *
 * Files are polled, not watched by inotify: stat(2) follows the links by which a Kubernetes Secret
 * is swapped whole, works on every file system, and sees a file that is removed and comes back. A
 * certificate and its key are two files that are seldom replaced at the same moment. So changed
 * files are read only after two calls of kvw_tls_look have found them in the same state. If the
 * files do not fit together, each call tries them again, without another log line until they
 * change.
 *
 * A new SSL_CTX is complete before the context's pointer is set to it. Connections have counted
 * references to theirs.
 */
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tls/tls_internal.h"

static int64_t ns_of(struct timespec t)
{
	return (int64_t)t.tv_sec * KVW_NS_PER_S + t.tv_nsec;
}

static struct kvw_tls_stamp stamp_of(const char *path)
{
	struct stat info;

	if (stat(path, &info) != 0)
		return (struct kvw_tls_stamp){0};
	return (struct kvw_tls_stamp){.device = info.st_dev,
		.inode = info.st_ino,
		.size = (uint64_t)info.st_size,
		.changed_ns = ns_of(info.st_ctim),
		.written_ns = ns_of(info.st_mtim)};
}

static bool is_same_stamp(const struct kvw_tls_stamp *a, const struct kvw_tls_stamp *b)
{
	return a->device == b->device && a->inode == b->inode && a->size == b->size &&
	       a->changed_ns == b->changed_ns && a->written_ns == b->written_ns;
}

bool kvw_tls_watch(
	struct kvw_tls *tls, const char *path, enum kvw_tls_file_kind kind, const char **out)
{
	struct kvw_tls_watched *watched = &tls->files[tls->file_count];

	if (path == NULL || path[0] == '\0')
		return true;
	watched->file.path = strdup(path);
	if (watched->file.path == NULL)
		return false;
	watched->file.kind = kind;
	*out = watched->file.path;
	tls->file_count++;
	return true;
}

void kvw_tls_forget_files(struct kvw_tls *tls)
{
	while (tls->file_count > 0)
		free((char *)tls->files[--tls->file_count].file.path);
}

static void note_end(struct kvw_tls_watched *watched)
{
	if (watched->file.kind == KVW_TLS_FILE_CERTIFICATES)
		atomic_store_explicit(&watched->file.not_after_s,
			kvw_tls_not_after_s(watched->file.path), memory_order_relaxed);
}

void kvw_tls_note_files(struct kvw_tls *tls)
{
	for (size_t i = 0; i < tls->file_count; i++) {
		struct kvw_tls_watched *watched = &tls->files[i];

		watched->in_force = watched->last = stamp_of(watched->file.path);
		note_end(watched);
	}
}

int64_t kvw_tls_not_after_s(const char *path)
{
	BIO *file = BIO_new_file(path, "r");
	int64_t first_s = 0;
	X509 *certificate;

	while (file != NULL && (certificate = PEM_read_bio_X509(file, NULL, NULL, NULL)) != NULL) {
		struct tm end;
		int64_t end_s = ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &end) == 1
					? timegm(&end)
					: 0;

		if (end_s > 0 && (first_s == 0 || end_s < first_s))
			first_s = end_s;
		X509_free(certificate);
	}
	BIO_free(file);
	ERR_clear_error();
	return first_s;
}

const struct kvw_tls_file *kvw_tls_file(const struct kvw_tls *tls, size_t i)
{
	return i < tls->file_count ? &tls->files[i].file : NULL;
}

/* Returns whether the file was replaced since it was loaded. path: the context's copy of its
 * path. */
static bool is_new(const struct kvw_tls *tls, const char *path)
{
	for (size_t i = 0; i < tls->file_count; i++)
		if (tls->files[i].file.path == path)
			return !is_same_stamp(&tls->files[i].now, &tls->files[i].in_force);
	return false;
}

/* Returns whether a new certificate has expired; such a one is not used, since the old one may
 * still be valid. A certificate that was loaded before and has expired does not block the renewal
 * of others. */
static bool has_ended(
	const struct kvw_tls *tls, const struct kvw_tls_set *set, char *why, size_t why_size)
{
	for (size_t i = 0; i < tls->pair_count; i++) {
		const X509 *own = SSL_CTX_get0_certificate(i == 0 ? set->ctx : set->others[i - 1]);

		if (!is_new(tls, tls->pairs[i].certificate) ||
			X509_cmp_current_time(X509_get0_notAfter(own)) >= 0)
			continue;
		(void)snprintf(why, why_size, "certificate %s: expired", tls->pairs[i].certificate);
		return true;
	}
	return false;
}

/* Returns false if the certificates are refused. */
static bool take_over(struct kvw_tls *tls, char *why, size_t why_size)
{
	struct kvw_tls_set *set, *before;
	enum kvw_err err = kvw_tls_load(tls, why, why_size, &set);

	if (err != KVW_OK) {
		if (err == KVW_ENOMEM)
			(void)snprintf(why, why_size, "out of memory");
		return false;
	}
	if (has_ended(tls, set, why, why_size)) {
		kvw_tls_set_unref(set);
		return false;
	}
	pthread_mutex_lock(&tls->lock);
	before = tls->set;
	tls->set = set;
	pthread_mutex_unlock(&tls->lock);
	kvw_tls_set_unref(before);
	return true;
}

enum kvw_tls_look kvw_tls_look(struct kvw_tls *tls, bool now_too, char *why, size_t why_size)
{
	bool changed = false, settled = true, reported = tls->refused, taken;

	for (size_t i = 0; i < tls->file_count; i++) {
		struct kvw_tls_watched *watched = &tls->files[i];

		watched->now = stamp_of(watched->file.path);
		changed = changed || !is_same_stamp(&watched->now, &watched->in_force);
		settled = settled && is_same_stamp(&watched->now, &watched->last);
		reported = reported && is_same_stamp(&watched->now, &watched->refused);
		watched->last = watched->now;
	}
	if (!changed)
		tls->refused = false;
	if (!changed || (!settled && !now_too))
		return KVW_TLS_SAME;
	taken = take_over(tls, why, why_size);
	tls->refused = !taken;
	for (size_t i = 0; i < tls->file_count; i++) {
		struct kvw_tls_watched *watched = &tls->files[i];

		if (!taken) {
			watched->refused = watched->now;
			continue;
		}
		watched->in_force = watched->now;
		note_end(watched);
	}
	if (taken)
		return KVW_TLS_RENEWED;
	return reported ? KVW_TLS_SAME : KVW_TLS_REFUSED;
}
