/* ocsp_test.c - which OCSP responses are shown with a certificate, and until when. */
#include <openssl/ocsp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "support.h"
#include "tests/unit/suite.h"

static struct files files;
static char path[128], why[384];
static unsigned char der[8192];
static int der_len;

static X509 *certificate_in(const char *file)
{
	FILE *in = fopen(file, "r");
	X509 *certificate = PEM_read_X509(in, NULL, NULL, NULL);

	fclose(in);
	ck_assert_ptr_nonnull(certificate);
	return certificate;
}

static void save(size_t len)
{
	FILE *out = fopen(path, "w");

	ck_assert_uint_eq(fwrite(der, 1, len, out), len);
	fclose(out);
}

/* A response about our certificate, or one of another number, from..until in seconds from now; until 0: it does not
 * say. */
static void respond_about(bool ours, int status, long from_s, long until_s)
{
	X509 *certificate = certificate_in(files.cert), *authority = certificate_in(files.ca);
	FILE *in = fopen(files.key, "r");
	EVP_PKEY *key = PEM_read_PrivateKey(in, NULL, NULL, NULL);
	OCSP_BASICRESP *basic = OCSP_BASICRESP_new();
	OCSP_CERTID *id;
	ASN1_TIME *from = X509_gmtime_adj(NULL, from_s), *until = X509_gmtime_adj(NULL, until_s);
	ASN1_TIME *then = X509_gmtime_adj(NULL, -10);
	unsigned char *at = der;
	OCSP_RESPONSE *response;

	fclose(in);
	if (!ours)
		ASN1_INTEGER_set(X509_get_serialNumber(certificate), 77);
	id = OCSP_cert_to_id(NULL, certificate, authority);
	ck_assert_ptr_nonnull(OCSP_basic_add1_status(basic, id, status, 0,
		status == V_OCSP_CERTSTATUS_REVOKED ? then : NULL, from, until_s == 0 ? NULL : until));
	ck_assert_int_eq(OCSP_basic_sign(basic, certificate, key, EVP_sha256(), NULL, 0), 1);
	response = OCSP_response_create(OCSP_RESPONSE_STATUS_SUCCESSFUL, basic);
	der_len = i2d_OCSP_RESPONSE(response, NULL);
	ck_assert_int_lt(der_len, (int)sizeof(der));
	i2d_OCSP_RESPONSE(response, &at);
	save((size_t)der_len);
	OCSP_RESPONSE_free(response);
	OCSP_BASICRESP_free(basic);
	OCSP_CERTID_free(id);
	ASN1_TIME_free(from);
	ASN1_TIME_free(until);
	ASN1_TIME_free(then);
	EVP_PKEY_free(key);
	X509_free(certificate);
	X509_free(authority);
}

static void respond(int status, long from_s, long until_s)
{
	respond_about(true, status, from_s, until_s);
}

static void set_up(void)
{
	files_make(&files);
	snprintf(path, sizeof(path), "%s/ocsp.der", files.folder);
}

static void tear_down(void)
{
	unlink(path);
	files_remove(&files);
}

static enum kvw_tls_response check_it(void)
{
	const struct kvw_tls_server_options options = {.certificate = files.cert, .key = files.key};
	int64_t until_s;

	return kvw_tls_response_check(path, &options, &until_s, why, sizeof(why));
}

START_TEST(test_what_fits)
{
	static const struct {
		int status;
		long from_s, until_s;
		const char *why; /* NULL: it fits */
	} cases[] = {
		{V_OCSP_CERTSTATUS_GOOD, -10, 3600, NULL},
		{V_OCSP_CERTSTATUS_GOOD, 200, 3600, NULL}, /* the responder's clock is ahead */
		{V_OCSP_CERTSTATUS_GOOD, 400, 3600, "begins later"},
		{V_OCSP_CERTSTATUS_GOOD, -3600, -10, "has ended"},
		{V_OCSP_CERTSTATUS_GOOD, -10, 0, "does not say when it ends"},
		{V_OCSP_CERTSTATUS_REVOKED, -10, 3600, "revoked"},
		{V_OCSP_CERTSTATUS_UNKNOWN, -10, 3600, "unknown"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		respond(cases[i].status, cases[i].from_s, cases[i].until_s);
		ck_assert_msg(check_it() == (cases[i].why == NULL ? KVW_TLS_RESPONSE_FITS : KVW_TLS_RESPONSE_UNFIT),
			"case %zu", i);
		if (cases[i].why != NULL)
			ck_assert_msg(strstr(why, cases[i].why) != NULL, "%s", why);
	}
	respond_about(false, V_OCSP_CERTSTATUS_GOOD, -10, 3600);
	ck_assert_int_eq(check_it(), KVW_TLS_RESPONSE_UNFIT);
	ck_assert_ptr_nonnull(strstr(why, "none of the certificates"));
}
END_TEST

/* Cut anywhere, a bit changed anywhere, something behind it. */
START_TEST(test_what_is_none)
{
	enum kvw_tls_response found;

	respond(V_OCSP_CERTSTATUS_GOOD, -10, 3600);
	for (int len = 0; len < der_len; len += 3) {
		save((size_t)len);
		ck_assert_int_eq(check_it(), KVW_TLS_RESPONSE_BROKEN);
	}
	for (int i = 0; i < der_len; i++) {
		der[i] ^= (unsigned char)(1 << i % 8);
		save((size_t)der_len);
		found = check_it();
		ck_assert(found != KVW_TLS_RESPONSE_BROKEN || why[0] != '\0');
		der[i] ^= (unsigned char)(1 << i % 8);
	}
	der[der_len] = 0;
	save((size_t)der_len + 1);
	ck_assert_int_eq(check_it(), KVW_TLS_RESPONSE_BROKEN);
	unlink(path);
	ck_assert_int_eq(check_it(), KVW_TLS_RESPONSE_BROKEN);
	ck_assert_ptr_nonnull(strstr(why, "No such file"));
}
END_TEST

static int64_t shown_until(const struct kvw_tls *tls)
{
	const struct kvw_tls_file *file;

	for (size_t i = 0; (file = kvw_tls_file(tls, i)) != NULL; i++)
		if (file->kind == KVW_TLS_FILE_RESPONSE)
			return atomic_load(&file->not_after_s);
	return -1;
}

START_TEST(test_one_that_ends_is_reported_once)
{
	const char *responses[] = {path};
	const struct kvw_tls_server_options options = {
		.certificate = files.cert, .key = files.key, .responses = responses, .response_count = 1};
	struct kvw_tls *tls = NULL;

	respond(V_OCSP_CERTSTATUS_GOOD, -10, 1);
	ck_assert_int_eq(kvw_tls_server_create(&options, why, sizeof(why), &tls), KVW_OK);
	for (int i = 0; i < 100 && shown_until(tls) != 0; i++) {
		usleep(50000);
		ck_assert_int_eq(kvw_tls_look(tls, false, why, sizeof(why)), KVW_TLS_SAME);
	}
	ck_assert_int_eq(shown_until(tls), 0);
	ck_assert(kvw_tls_warning(tls, why, sizeof(why)));
	ck_assert_ptr_nonnull(strstr(why, "it has ended"));
	ck_assert_int_eq(kvw_tls_look(tls, true, why, sizeof(why)), KVW_TLS_SAME);
	ck_assert(!kvw_tls_warning(tls, why, sizeof(why)));
	respond(V_OCSP_CERTSTATUS_GOOD, -10, 3600);
	ck_assert_int_eq(kvw_tls_look(tls, true, why, sizeof(why)), KVW_TLS_RENEWED);
	ck_assert(!kvw_tls_warning(tls, why, sizeof(why)));
	ck_assert_int_gt(shown_until(tls), time(NULL) + 3000);
	kvw_tls_destroy(tls);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tls_ocsp");
	TCase *responses = tcase_create("responses");

	tcase_add_checked_fixture(responses, set_up, tear_down);
	tcase_set_timeout(responses, 60);
	tcase_add_test(responses, test_what_fits);
	tcase_add_test(responses, test_what_is_none);
	tcase_add_test(responses, test_one_that_ends_is_reported_once);
	suite_add_tcase(suite, responses);
	return run_suite(suite);
}
