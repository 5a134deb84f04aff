/*
 * tls_ocsp.c - OCSP responses that the server shows with its certificates (stapling), from files.
 *
 * Something else fetches them (`openssl ocsp -respout`, certbot's hooks, an operator): a server that asks its authority
 * itself needs a way out of its network, and a cache that survives restarts. A response says by hashes and
 * serial number which certificate it is for, so files need no order: each goes to the certificates that it names.
 *
 * What clients would refuse is not shown, since they may refuse the connection for it: another certificate, one that is
 * not good, a time that is over. The signature is left to the clients, which know what they trust. A response
 * that is unfit keeps no certificate from being renewed; the one before is shown until it ends.
 */
#include <openssl/err.h>
#include <openssl/ocsp.h>
#include <openssl/pem.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/read_file.h"
#include "tls/tls_internal.h"

#define RESPONSE_MOST ((size_t)64 << 10)
#define SKEW_S        300 /* of the responder's clock ahead of ours */

/* A file as it was read. */
struct response {
	unsigned char *der; /* owned */
	size_t len;
	OCSP_BASICRESP *basic; /* owned */
};

static void forget(struct response *response)
{
	OCSP_BASICRESP_free(response->basic);
	free(response->der);
	*response = (struct response){0};
}

static bool complain(char *why, size_t why_size, const char *path, const char *what)
{
	(void)snprintf(why, why_size, "OCSP response %s: %s", path, what);
	return false;
}

/* False: it is none, and `why` says so. */
static bool read_response(const char *path, struct response *out, char *why, size_t why_size)
{
	char cause[KVT_READ_FILE_WHY];
	const unsigned char *at;
	OCSP_RESPONSE *outer;
	int status;

	*out = (struct response){0};
	out->der = (unsigned char *)kvt_read_file(path, RESPONSE_MOST, &out->len, cause);
	if (out->der == NULL)
		return complain(why, why_size, path, cause);
	at = out->der;
	ERR_clear_error();
	outer = d2i_OCSP_RESPONSE(NULL, &at, (long)out->len);
	status = outer != NULL ? OCSP_response_status(outer) : -1;
	if (status == OCSP_RESPONSE_STATUS_SUCCESSFUL)
		out->basic = OCSP_response_get1_basic(outer);
	OCSP_RESPONSE_free(outer);
	ERR_clear_error();
	if (out->basic != NULL && at == out->der + out->len)
		return true;
	complain(why, why_size, path,
		status > OCSP_RESPONSE_STATUS_SUCCESSFUL ? OCSP_response_status_str(status) : "it is none in DER form");
	forget(out);
	return false;
}

/* 0: it cannot be read. */
static int64_t seconds_of(const ASN1_GENERALIZEDTIME *text)
{
	struct tm tm;

	return text != NULL && ASN1_TIME_to_tm(text, &tm) == 1 ? timegm(&tm) : 0;
}

/* By the name of its issuer, whose hash the response has, and by its number. */
static bool is_about(const OCSP_SINGLERESP *single, const X509 *certificate)
{
	ASN1_OCTET_STRING *name;
	ASN1_OBJECT *algorithm;
	ASN1_INTEGER *serial;
	unsigned char hash[EVP_MAX_MD_SIZE];
	const EVP_MD *md;
	unsigned len;

	if (OCSP_id_get0_info(&name, &algorithm, NULL, &serial, (OCSP_CERTID *)OCSP_SINGLERESP_get0_id(single)) != 1)
		return false;
	md = EVP_get_digestbyobj(algorithm);
	return md != NULL && ASN1_INTEGER_cmp(serial, X509_get0_serialNumber(certificate)) == 0 &&
	       X509_NAME_digest(X509_get_issuer_name(certificate), md, hash, &len) == 1 &&
	       ASN1_STRING_length(name) == (int)len && memcmp(ASN1_STRING_get0_data(name), hash, len) == 0;
}

/* What a response says of a certificate, or NULL. */
static OCSP_SINGLERESP *find(const struct response *response, const X509 *certificate)
{
	for (int i = 0; certificate != NULL && i < OCSP_resp_count(response->basic); i++) {
		OCSP_SINGLERESP *single = OCSP_resp_get0(response->basic, i);

		if (is_about(single, certificate))
			return single;
	}
	return NULL;
}

/* May it be shown now? Sets *until_s; else the cause. */
static const char *judge(OCSP_SINGLERESP *single, int64_t *until_s)
{
	ASN1_GENERALIZEDTIME *begins = NULL, *ends = NULL;
	int status = OCSP_single_get0_status(single, NULL, NULL, &begins, &ends);
	int64_t now_s = time(NULL), end_s = seconds_of(ends), begin_s = seconds_of(begins);

	if (status == V_OCSP_CERTSTATUS_REVOKED)
		return "it says that the certificate is revoked";
	if (status != V_OCSP_CERTSTATUS_GOOD)
		return "it says that the certificate is unknown";
	if (ends == NULL)
		return "it does not say when it ends";
	if (begin_s == 0 || begin_s > now_s + SKEW_S)
		return "it begins later than now";
	if (end_s <= now_s)
		return "it has ended";
	*until_s = end_s;
	return NULL;
}

/* --- contexts --- */

/* The client asks for one. OpenSSL frees what it is given. */
static int on_status(SSL *ssl, void *arg)
{
	const struct kvw_tls_staple *staple = arg;
	unsigned char *copy;

	if (staple->der == NULL || staple->until_s <= time(NULL))
		return SSL_TLSEXT_ERR_NOACK;
	copy = OPENSSL_memdup(staple->der, staple->len);
	if (copy == NULL)
		return SSL_TLSEXT_ERR_NOACK;
	SSL_set_tlsext_status_ocsp_resp(ssl, copy, (long)staple->len);
	return SSL_TLSEXT_ERR_OK;
}

static SSL_CTX *ctx_of(const struct kvw_tls_set *set, size_t i)
{
	return i == 0 ? set->ctx : set->others[i - 1];
}

static bool put(struct kvw_tls_staple *staple, const unsigned char *der, size_t len, const char *path, int64_t until_s)
{
	unsigned char *copy = malloc(len);

	if (copy == NULL)
		return false;
	memcpy(copy, der, len);
	free(staple->der);
	*staple = (struct kvw_tls_staple){.der = copy, .len = len, .path = path, .until_s = until_s};
	return true;
}

/* One file, for the certificates that it names. */
static bool take_file(struct kvw_tls_set *set, const char *path, char *why, size_t why_size)
{
	const char *cause = "it is for none of the certificates";
	struct response response;
	bool taken = false;

	if (!read_response(path, &response, why, why_size))
		return false;
	for (size_t i = 0; i <= set->count; i++) {
		OCSP_SINGLERESP *single = find(&response, SSL_CTX_get0_certificate(ctx_of(set, i)));
		int64_t until_s = 0;

		if (single == NULL)
			continue;
		cause = judge(single, &until_s);
		if (cause == NULL && !put(&set->staples[i], response.der, response.len, path, until_s))
			cause = "out of memory";
		taken = taken || cause == NULL;
	}
	forget(&response);
	return taken || complain(why, why_size, path, cause);
}

/* What was shown before with the same certificate, where there is nothing new. */
static void keep_former(struct kvw_tls_set *set, const struct kvw_tls_set *before)
{
	for (size_t i = 0; i <= set->count && i <= before->count; i++) {
		const struct kvw_tls_staple *former = &before->staples[i];

		if (set->staples[i].der == NULL && former->der != NULL && former->until_s > time(NULL) &&
			X509_cmp(SSL_CTX_get0_certificate(ctx_of(set, i)),
				SSL_CTX_get0_certificate(ctx_of(before, i))) == 0)
			(void)put(&set->staples[i], former->der, former->len, former->path, former->until_s);
	}
}

enum kvw_err kvw_tls_staple(struct kvw_tls *tls, struct kvw_tls_set *set, const struct kvw_tls_set *before)
{
	bool asked = false;

	set->staples = calloc(set->count + 1, sizeof(set->staples[0]));
	if (set->staples == NULL)
		return KVW_ENOMEM;
	for (size_t i = 0; i < tls->file_count; i++) {
		const struct kvw_tls_file *file = &tls->files[i].file;
		char why[sizeof(tls->warning)];

		if (file->kind != KVW_TLS_FILE_RESPONSE)
			continue;
		asked = true;
		if (!take_file(set, file->path, why, sizeof(why)))
			memcpy(tls->warning, why, sizeof(why));
	}
	for (size_t i = 0; i <= set->count && asked; i++) {
		(void)SSL_CTX_set_tlsext_status_cb(ctx_of(set, i), on_status);
		(void)SSL_CTX_set_tlsext_status_arg(ctx_of(set, i), &set->staples[i]);
	}
	if (before != NULL && asked)
		keep_former(set, before);
	return KVW_OK;
}

void kvw_tls_note_staples(struct kvw_tls *tls)
{
	for (size_t i = 0; i < tls->file_count; i++) {
		struct kvw_tls_file *file = &tls->files[i].file;
		int64_t until_s = 0;

		for (size_t k = 0; k <= tls->set->count && file->kind == KVW_TLS_FILE_RESPONSE; k++)
			if (tls->set->staples[k].path == file->path)
				until_s = tls->set->staples[k].until_s;
		if (file->kind == KVW_TLS_FILE_RESPONSE)
			atomic_store_explicit(&file->not_after_s, until_s, memory_order_relaxed);
	}
}

void kvw_tls_look_at_staples(struct kvw_tls *tls)
{
	for (size_t i = 0; i < tls->file_count; i++) {
		struct kvw_tls_file *file = &tls->files[i].file;
		int64_t until_s = atomic_load_explicit(&file->not_after_s, memory_order_relaxed);

		if (file->kind != KVW_TLS_FILE_RESPONSE || until_s == 0 || until_s > time(NULL))
			continue;
		atomic_store_explicit(&file->not_after_s, 0, memory_order_relaxed);
		complain(tls->warning, sizeof(tls->warning), file->path, "it has ended");
	}
}

bool kvw_tls_warning(struct kvw_tls *tls, char *out, size_t room)
{
	if (tls->warning[0] == '\0')
		return false;
	(void)snprintf(out, room, "%s", tls->warning);
	tls->warning[0] = '\0';
	return true;
}

/* --- checks --- */

/* The first certificate of a PEM file, or of a folder. NULL: it has none. */
static X509 *read_certificate(const char *path)
{
	struct stat info;
	char *inside = NULL;
	X509 *certificate = NULL;
	BIO *file;

	if (stat(path, &info) == 0 && S_ISDIR(info.st_mode) &&
		asprintf(&inside, "%s/" KVW_TLS_FOLDER_CERTIFICATE, path) < 0)
		return NULL;
	file = kvw_tls_open(inside != NULL ? inside : path);
	if (file != NULL)
		certificate = PEM_read_bio_X509(file, NULL, NULL, NULL);
	BIO_free(file);
	free(inside);
	ERR_clear_error();
	return certificate;
}

enum kvw_tls_response kvw_tls_response_check(const char *path, const struct kvw_tls_server_options *options,
	int64_t *until_s, char *why, size_t why_size)
{
	const char *cause = "it is for none of the certificates";
	struct response response;
	bool fits = false;

	if (!read_response(path, &response, why, why_size))
		return KVW_TLS_RESPONSE_BROKEN;
	for (size_t i = 0; i <= options->more_count; i++) {
		X509 *certificate = read_certificate(i == 0 ? options->certificate : options->more[i - 1]);
		OCSP_SINGLERESP *single = find(&response, certificate);

		X509_free(certificate);
		if (single == NULL)
			continue;
		cause = judge(single, until_s);
		fits = fits || cause == NULL;
	}
	forget(&response);
	if (!fits)
		complain(why, why_size, path, cause);
	return fits ? KVW_TLS_RESPONSE_FITS : KVW_TLS_RESPONSE_UNFIT;
}
