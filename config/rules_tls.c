/*
 * rules_tls.c - checks that the files of certificates, keys and authorities exist and fit together.
 *
 * OpenSSL loads them while the configuration is read, so that `kvway check` finds an unusable file
 * and the line that names it. Only regular files of a sensible size are opened: a pipe would make
 * the check wait for ever, a device could feed it without end. A key with a passphrase is refused,
 * since a server has no user to type it.
 */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "config/rules.h"
#include "settings/address.h"
#include "tls/tls.h"

/* most bytes of a file; a system's whole list of authorities has 0.2 MB */
#define PEM_MOST_BYTES (4 << 20)

static const char *text_of(const struct kvw_build *build, enum kvw_key_index key)
{
	const char *text;

	memcpy(&text, (const char *)build->config + kvw_keys[key].offset, sizeof(text));
	return text;
}

static bool is_set(const struct kvw_build *build, enum kvw_key_index key)
{
	return build->met[key].valid && text_of(build, key)[0] != '\0';
}

/* A file that a key, or an entry of its list, names. */
struct named {
	struct kvw_report *report;
	struct kvw_place place; /* place of the key's value */
	const char *key;        /* its path */
	const char *path;       /* path of the file */
};

static struct named named_by(struct kvw_build *build, enum kvw_key_index key)
{
	return (struct named){
		build->walk.report, build->met[key].place, kvw_keys[key].path, text_of(build, key)};
}

static void report_file(struct named file, const char *why, const char *expected)
{
	char quoted[KVW_REPORT_QUOTE];

	kvw_report_mistake(file.report, file.place, file.key, "found %s (%s), expected %s",
		kvw_report_quote(quoted, file.path, strlen(file.path)), why, expected);
}

/* Checks that a file may be opened. */
static bool check_file(struct named file, const char *expected)
{
	struct stat info;

	if (stat(file.path, &info) != 0 || access(file.path, R_OK) != 0)
		report_file(file, strerror(errno), expected);
	else if (!S_ISREG(info.st_mode))
		report_file(file, "not a regular file", expected);
	else if (info.st_size > PEM_MOST_BYTES)
		report_file(file, "too large", expected);
	else
		return true;
	return false;
}

static void report_openssl(struct named file, const char *expected)
{
	unsigned long code = ERR_peek_error();
	const char *reason = ERR_reason_error_string(code);

	report_file(file, reason != NULL ? reason : "unfit", expected);
	ERR_clear_error();
}

/* Checks the end date of the certificate that was loaded into ctx. */
static void check_end(struct named file, const SSL_CTX *ctx)
{
	const ASN1_TIME *end = X509_get0_notAfter(SSL_CTX_get0_certificate(ctx));
	struct tm tm;
	char why[48];

	if (X509_cmp_current_time(end) >= 0 || ASN1_TIME_to_tm(end, &tm) != 1)
		return;
	(void)strftime(why, sizeof(why), "expired %Y-%m-%d %H:%M:%S UTC", &tm);
	report_file(file, why, "a certificate that is still valid");
}

/* Checks a certificate and its key, which may be in the same file. */
static enum kvw_err check_pair(struct named certificate, struct named key)
{
	static const char a_chain[] = "a certificate and its chain in PEM form";
	static const char a_key[] = "a private key in PEM form, without a passphrase";
	SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
	char its_key[96];
	bool good;

	if (ctx == NULL)
		return KVW_ENOMEM;
	ERR_clear_error();
	good = check_file(certificate, a_chain);
	if (good && !kvw_tls_use_chain(ctx, certificate.path)) {
		report_openssl(certificate, a_chain);
		good = false;
	}
	if (good)
		check_end(certificate, ctx);
	/* Loading the key also fails if it does not belong to the certificate, which is loaded
	 * already. */
	(void)snprintf(its_key, sizeof(its_key), "the key of the certificate in `%s`", certificate.key);
	if (check_file(key, a_key) &&
		(!kvw_tls_use_key(ctx, key.path) ||
			(good && SSL_CTX_check_private_key(ctx) != 1)))
		report_openssl(key, ERR_GET_LIB(ERR_peek_error()) != ERR_LIB_X509 ? a_key : its_key);
	SSL_CTX_free(ctx);
	return KVW_OK;
}

/* Checks an entry of a list of certificates: a file with chain and key, or a folder with a file for
 * each. */
static enum kvw_err check_entry(struct kvw_build *build, enum kvw_key_index list, const char *entry)
{
	struct named certificate = {
		build->walk.report, build->met[list].place, kvw_keys[list].path, entry};
	struct named key = certificate;
	char *certificate_path = NULL, *key_path = NULL;
	enum kvw_err err = KVW_ENOMEM;
	struct stat info;

	if (stat(entry, &info) != 0 || !S_ISDIR(info.st_mode))
		return check_pair(certificate, key);
	if (asprintf(&certificate_path, "%s/" KVW_TLS_FOLDER_CERTIFICATE, entry) < 0)
		return KVW_ENOMEM;
	if (asprintf(&key_path, "%s/" KVW_TLS_FOLDER_KEY, entry) >= 0) {
		certificate.path = certificate_path;
		key.path = key_path;
		err = check_pair(certificate, key);
		free(key_path);
	}
	free(certificate_path);
	return err;
}

static void check_authorities_file(struct named file)
{
	static const char expected[] = "certificates of authorities in PEM form";
	STACK_OF(X509_NAME) * names;

	if (!check_file(file, expected))
		return;
	names = SSL_load_client_CA_file(file.path);
	if (names == NULL)
		report_openssl(file, expected);
	sk_X509_NAME_pop_free(names, X509_NAME_free);
}

static void check_authorities(struct kvw_build *build, enum kvw_key_index key)
{
	if (is_set(build, key))
		check_authorities_file(named_by(build, key));
}

/* Checks a name in the form that certificates have it, in which addresses have no brackets. */
static void check_server_name(struct kvw_report *report, const char *name, size_t index, struct kvw_place place)
{
	char shown[48], quoted[KVW_REPORT_QUOTE], authority[KVW_ADDRESS_MAX_HOST + 8];
	struct kvw_address address;
	int len;

	if (name == NULL || name[0] == '\0')
		return;
	len = snprintf(authority, sizeof(authority), strchr(name, ':') != NULL ? "[%s]:1" : "%s:1", name);
	if (len < (int)sizeof(authority) && kvw_address_split(kvw_slice_of(authority), &address) == KVW_ADDRESS_OK &&
		address.host.len == strlen(name))
		return;
	(void)snprintf(shown, sizeof(shown), "workers[%zu].tls_server_name", index);
	kvw_report_mistake(report, place, shown, "found %s, expected a host name or an IP address without brackets",
		kvw_report_quote(quoted, name, strlen(name)));
}

void kvw_rules_check_worker_tls(struct kvw_report *report, const struct kvw_worker_config *worker,
	size_t index, struct kvw_place place)
{
	char shown[48];

	check_server_name(report, worker->tls_server_name, index, place);
	if (worker->tls_ca_file == NULL || worker->tls_ca_file[0] == '\0')
		return;
	(void)snprintf(shown, sizeof(shown), "workers[%zu].tls_ca_file", index);
	check_authorities_file((struct named){report, place, shown, worker->tls_ca_file});
}

/* The keys for one address that accepts TLS. */
struct listener {
	enum kvw_key_index certificate, key, certificates, client_ca, ciphers, ciphersuites;
	size_t more; /* offset in struct kvw_config of the list of further certificates */
};

static const struct listener listeners[] = {
	{KVW_KEY_tls_certificate, KVW_KEY_tls_key, KVW_KEY_tls_certificates, KVW_KEY_tls_client_ca, KVW_KEY_tls_ciphers,
		KVW_KEY_tls_ciphersuites, offsetof(struct kvw_config, tls_certificates)},
	{KVW_KEY_admin_tls_certificate, KVW_KEY_admin_tls_key, KVW_KEY_admin_tls_certificates, KVW_KEY_admin_tls_client_ca,
		KVW_KEY_admin_tls_ciphers, KVW_KEY_admin_tls_ciphersuites,
		offsetof(struct kvw_config, admin_tls_certificates)},
};

/* Names that OpenSSL knows. */
static enum kvw_err check_ciphers(struct kvw_build *build, const struct listener *keys)
{
	const char *ciphers = text_of(build, keys->ciphers);
	const char *suites = text_of(build, keys->ciphersuites);
	SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());

	if (ctx == NULL)
		return KVW_ENOMEM;
	if (is_set(build, keys->ciphers) && SSL_CTX_set_cipher_list(ctx, ciphers) != 1)
		report_openssl(named_by(build, keys->ciphers),
			"ciphers of TLS 1.2, such as `ECDHE+AESGCM` (see `openssl ciphers`)");
	if (is_set(build, keys->ciphersuites) && SSL_CTX_set_ciphersuites(ctx, suites) != 1)
		report_openssl(named_by(build, keys->ciphersuites),
			"ciphersuites of TLS 1.3, such as `TLS_AES_128_GCM_SHA256`");
	ERR_clear_error();
	SSL_CTX_free(ctx);
	return KVW_OK;
}

/* Reports a key that has no meaning without another one. */
static void check_beside(
	struct kvw_build *build, enum kvw_key_index given, enum kvw_key_index needed)
{
	if (is_set(build, given) && build->met[needed].valid && !is_set(build, needed))
		kvw_report_mistake(build->walk.report, build->met[given].place,
			kvw_keys[given].path, "found no `%s`, expected it to be set too",
			kvw_keys[needed].path);
}

static enum kvw_err check_listener(struct kvw_build *build, const struct listener *keys)
{
	const struct kvw_strings *more = (const void *)((const char *)build->config + keys->more);
	enum kvw_err err = KVW_OK;

	check_beside(build, keys->certificate, keys->key);
	check_beside(build, keys->key, keys->certificate);
	check_beside(build, keys->client_ca, keys->certificate);
	check_beside(build, keys->ciphers, keys->certificate);
	check_beside(build, keys->ciphersuites, keys->certificate);
	if (is_set(build, keys->certificate) && is_set(build, keys->key))
		err = check_pair(named_by(build, keys->certificate), named_by(build, keys->key));
	if (is_set(build, keys->certificate))
		check_authorities(build, keys->client_ca);
	if (more->count > 0 && !is_set(build, keys->certificate) && build->met[keys->certificate].valid)
		kvw_report_mistake(build->walk.report, build->met[keys->certificates].place,
			kvw_keys[keys->certificates].path, "found no `%s`, expected it to be set too",
			kvw_keys[keys->certificate].path);
	for (size_t i = 0; i < more->count && err == KVW_OK; i++)
		err = check_entry(build, keys->certificates, more->items[i]);
	return err == KVW_OK ? check_ciphers(build, keys) : err;
}

/* Reports authorities of a worker that would be ignored. */
static void check_insecure_workers(struct kvw_build *build)
{
	const struct kvw_config *config = build->config;
	const struct kvw_met *insecure = &build->met[KVW_KEY_upstream_tls_insecure];

	for (size_t i = 0; insecure->valid && config->upstream_tls_insecure && i < config->worker_count; i++) {
		const char *ca_file = config->workers[i].tls_ca_file;

		if (ca_file != NULL && ca_file[0] != '\0')
			kvw_report_mistake(build->walk.report, insecure->place,
				kvw_keys[KVW_KEY_upstream_tls_insecure].path,
				"found `true` together with `workers[%zu].tls_ca_file`; remove one: workers' "
				"certificates are either verified or not",
				i);
	}
}

enum kvw_err kvw_rules_check_tls(struct kvw_build *build)
{
	enum kvw_err err = KVW_OK;

	check_beside(build, KVW_KEY_upstream_tls_certificate, KVW_KEY_upstream_tls_key);
	check_beside(build, KVW_KEY_upstream_tls_key, KVW_KEY_upstream_tls_certificate);
	for (size_t i = 0; i < sizeof(listeners) / sizeof(listeners[0]) && err == KVW_OK; i++)
		err = check_listener(build, &listeners[i]);
	if (err == KVW_OK && is_set(build, KVW_KEY_upstream_tls_certificate) &&
		is_set(build, KVW_KEY_upstream_tls_key))
		err = check_pair(named_by(build, KVW_KEY_upstream_tls_certificate),
			named_by(build, KVW_KEY_upstream_tls_key));
	check_authorities(build, KVW_KEY_upstream_tls_ca_file);
	check_authorities(build, KVW_KEY_auth_jwt_jwks_ca_file);
	check_authorities(build, KVW_KEY_tracing_ca_file);
	if (is_set(build, KVW_KEY_upstream_tls_ca_file) && build->config->upstream_tls_insecure)
		kvw_report_mistake(build->walk.report,
			build->met[KVW_KEY_upstream_tls_insecure].place,
			kvw_keys[KVW_KEY_upstream_tls_insecure].path,
			"found `true` together with `%s`; remove one: workers' certificates are "
			"either verified or not",
			kvw_keys[KVW_KEY_upstream_tls_ca_file].path);
	check_insecure_workers(build);
	return err;
}
