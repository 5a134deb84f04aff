/*
 * rules_tls.c - certificates, keys and authorities: are the files there, and do they fit together?
 *
 * Asked of OpenSSL while the configuration is read, so that `kvway check` finds an unfit file and says
 * in which line it is named. Only regular files of a sensible size are opened: a pipe would make the
 * check wait for ever, a device could feed it without end. A key with a passphrase is refused, since
 * a server has no user to type it.
 */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "config/rules.h"

#define PEM_MOST_BYTES (4 << 20) /* a system's whole store of authorities has 0.2 MB */

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

static void report_file(
	struct kvw_build *build, enum kvw_key_index key, const char *why, const char *expected)
{
	const char *path = text_of(build, key);
	char quoted[KVW_REPORT_QUOTE];

	kvw_report_mistake(build->walk.report, build->met[key].place, kvw_keys[key].path,
		"found %s (%s), expected %s", kvw_report_quote(quoted, path, strlen(path)), why,
		expected);
}

/* The file may be opened. */
static bool check_file(struct kvw_build *build, enum kvw_key_index key, const char *expected)
{
	const char *path = text_of(build, key);
	struct stat info;

	if (stat(path, &info) != 0 || access(path, R_OK) != 0)
		report_file(build, key, strerror(errno), expected);
	else if (!S_ISREG(info.st_mode))
		report_file(build, key, "not a regular file", expected);
	else if (info.st_size > PEM_MOST_BYTES)
		report_file(build, key, "too large", expected);
	else
		return true;
	return false;
}

static void report_openssl(struct kvw_build *build, enum kvw_key_index key, const char *expected)
{
	unsigned long code = ERR_peek_error();
	const char *reason = ERR_reason_error_string(code);

	report_file(build, key, reason != NULL ? reason : "unfit", expected);
	ERR_clear_error();
}

/* A server has no user to type it. */
static int no_passphrase(char *out, int size, int writing, void *arg)
{
	(void)out, (void)size, (void)writing, (void)arg;
	return -1;
}

/* Of the certificate that was loaded into ctx. */
static void check_end(struct kvw_build *build, const SSL_CTX *ctx, enum kvw_key_index key)
{
	const ASN1_TIME *end = X509_get0_notAfter(SSL_CTX_get0_certificate(ctx));
	struct tm tm;
	char why[48];

	if (X509_cmp_current_time(end) >= 0 || ASN1_TIME_to_tm(end, &tm) != 1)
		return;
	(void)strftime(why, sizeof(why), "expired %Y-%m-%d %H:%M:%S UTC", &tm);
	report_file(build, key, why, "a certificate that is still valid");
}

static void check_certificate(struct kvw_build *build, SSL_CTX *ctx)
{
	static const char a_chain[] = "a certificate and its chain in PEM form";
	static const char a_key[] = "a private key in PEM form, without a passphrase";
	bool good = check_file(build, KVW_KEY_tls_certificate, a_chain);

	if (good && SSL_CTX_use_certificate_chain_file(
			    ctx, text_of(build, KVW_KEY_tls_certificate)) != 1) {
		report_openssl(build, KVW_KEY_tls_certificate, a_chain);
		good = false;
	}
	if (good)
		check_end(build, ctx, KVW_KEY_tls_certificate);
	if (!check_file(build, KVW_KEY_tls_key, a_key))
		return;
	/* With a certificate loaded this fails for a key that is not the certificate's, too. */
	if (SSL_CTX_use_PrivateKey_file(ctx, text_of(build, KVW_KEY_tls_key), SSL_FILETYPE_PEM) ==
			1 &&
		(!good || SSL_CTX_check_private_key(ctx) == 1))
		return;
	if (ERR_GET_LIB(ERR_peek_error()) == ERR_LIB_X509)
		report_openssl(
			build, KVW_KEY_tls_key, "the key of the certificate in `tls.certificate`");
	else
		report_openssl(build, KVW_KEY_tls_key, a_key);
}

static void check_authorities(struct kvw_build *build, enum kvw_key_index key)
{
	static const char expected[] = "certificates of authorities in PEM form";
	STACK_OF(X509_NAME) * names;

	if (!is_set(build, key) || !check_file(build, key, expected))
		return;
	names = SSL_load_client_CA_file(text_of(build, key));
	if (names == NULL)
		report_openssl(build, key, expected);
	sk_X509_NAME_pop_free(names, X509_NAME_free);
}

/* A key that makes no sense without another. */
static void check_beside(
	struct kvw_build *build, enum kvw_key_index given, enum kvw_key_index needed)
{
	if (is_set(build, given) && build->met[needed].valid && !is_set(build, needed))
		kvw_report_mistake(build->walk.report, build->met[given].place,
			kvw_keys[given].path, "found no `%s`, expected it to be set too",
			kvw_keys[needed].path);
}

enum kvw_err kvw_rules_check_tls(struct kvw_build *build)
{
	SSL_CTX *ctx;

	check_beside(build, KVW_KEY_tls_certificate, KVW_KEY_tls_key);
	check_beside(build, KVW_KEY_tls_key, KVW_KEY_tls_certificate);
	check_beside(build, KVW_KEY_tls_client_ca, KVW_KEY_tls_certificate);
	if (is_set(build, KVW_KEY_tls_certificate) && is_set(build, KVW_KEY_tls_key)) {
		ctx = SSL_CTX_new(TLS_server_method());
		if (ctx == NULL)
			return KVW_ENOMEM;
		ERR_clear_error();
		SSL_CTX_set_default_passwd_cb(ctx, no_passphrase);
		check_certificate(build, ctx);
		SSL_CTX_free(ctx);
	}
	if (is_set(build, KVW_KEY_tls_certificate))
		check_authorities(build, KVW_KEY_tls_client_ca);
	check_authorities(build, KVW_KEY_upstream_tls_ca_file);
	if (is_set(build, KVW_KEY_upstream_tls_ca_file) && build->config->upstream_tls_insecure)
		kvw_report_mistake(build->walk.report,
			build->met[KVW_KEY_upstream_tls_insecure].place,
			kvw_keys[KVW_KEY_upstream_tls_insecure].path,
			"found `true` together with `%s`; remove one: workers' certificates are "
			"either verified or not",
			kvw_keys[KVW_KEY_upstream_tls_ca_file].path);
	return KVW_OK;
}
