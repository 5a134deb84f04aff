/* jwks_test.c - which keys of a set are of use, and which sets are refused. */
#include <check.h>

#include "auth/jwks.h"
#include "tests/unit/router/auth/jwt_make.h"
#include "tests/unit/suite.h"

static EVP_PKEY *rsa, *p256, *edwards;
static char why[256];

static enum kvw_err parse(const char *text, struct kvw_jwks **out)
{
	return kvw_jwks_parse(text, strlen(text), why, sizeof(why), out);
}

/* How many keys of {"keys":[...]} are of use. */
static size_t usable(const char *keys)
{
	char *text = make_text("{\"keys\":[%s]}", keys);
	struct kvw_jwks *jwks = NULL;
	enum kvw_err err = parse(text, &jwks);
	size_t count = err == KVW_OK ? kvw_jwks_count(jwks) : 0;

	ck_assert_int_ne(err, KVW_ENOMEM);
	kvw_jwks_unref(jwks);
	free(text);
	return count;
}

static size_t usable_jwk(EVP_PKEY *pkey, const char *more)
{
	char *jwk = make_jwk(pkey, more);
	size_t count = usable(jwk);

	free(jwk);
	return count;
}

START_TEST(keys_of_use)
{
	ck_assert_uint_eq(usable_jwk(rsa, ""), 1);
	ck_assert_uint_eq(usable_jwk(rsa, ",\"alg\":\"RS256\",\"use\":\"sig\",\"kid\":\"a\""), 1);
	ck_assert_uint_eq(usable_jwk(rsa, ",\"key_ops\":[\"sign\",\"verify\"]"), 1);
	ck_assert_uint_eq(usable_jwk(p256, ",\"alg\":\"ES256\""), 1);
	ck_assert_uint_eq(usable_jwk(edwards, ",\"alg\":\"EdDSA\""), 1);
	ck_assert_uint_eq(usable_jwk(edwards, ",\"alg\":\"Ed25519\""), 1);
}
END_TEST

START_TEST(keys_of_no_use)
{
	static const char *const more[] = {",\"alg\":\"RS512\"", ",\"alg\":\"PS256\"", ",\"alg\":\"HS256\"",
		",\"alg\":\"ES256\"", ",\"alg\":7", ",\"use\":\"enc\"", ",\"key_ops\":[\"sign\"]",
		",\"key_ops\":[]", ",\"kid\":7"};
	static const char *const others[] = {"{\"kty\":\"oct\",\"k\":\"c2VjcmV0\",\"alg\":\"HS256\"}", "{}", "7",
		"null", "{\"kty\":\"RSA\",\"n\":\"AQAB\",\"e\":\"AQAB\"}", "{\"kty\":\"RSA\",\"e\":\"AQAB\"}",
		"{\"kty\":\"EC\",\"crv\":\"P-384\",\"x\":\"AA\",\"y\":\"AA\"}",
		/* (1, 1) is not on the curve */
		("{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE\","
		"\"y\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE\"}"),
		"{\"kty\":\"OKP\",\"crv\":\"X25519\",\"x\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE\"}",
		"{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"AAAA\"}"};
	EVP_PKEY *small = EVP_RSA_gen(1024);
	char kid[300], *text;

	for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++)
		ck_assert_msg(usable_jwk(rsa, more[i]) == 0, "%s", more[i]);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		ck_assert_msg(usable(others[i]) == 0, "%s", others[i]);
	ck_assert_uint_eq(usable_jwk(p256, ",\"alg\":\"RS256\""), 0);
	ck_assert_uint_eq(usable_jwk(small, ""), 0);
	ck_assert_ptr_nonnull(strstr(why, "no key of use among 1"));
	EVP_PKEY_free(small);
	memset(kid, 'k', sizeof(kid) - 1);
	kid[sizeof(kid) - 1] = '\0';
	text = make_text(",\"kid\":\"%s\"", kid);
	ck_assert_uint_eq(usable_jwk(rsa, text), 0);
	free(text);
}
END_TEST

/* An exponent of 3, and one that would take a second for each token. */
START_TEST(exponents)
{
	char *jwk = make_jwk(rsa, ""), *e = strstr(jwk, "\"e\":\"") + 5;
	char *small = make_text("%.*sAw\"}", (int)(e - jwk), jwk);
	char *large = make_text("%.*s%s\"}", (int)(e - jwk), jwk, "AQAAAAAAAAAAAAAAAAAAAAAB");

	ck_assert_uint_eq(usable(jwk), 1);
	ck_assert_uint_eq(usable(small), 0);
	ck_assert_uint_eq(usable(large), 0);
	free(small);
	free(large);
	free(jwk);
}
END_TEST

START_TEST(found_by_name_and_algorithm)
{
	char *a = make_jwk(rsa, ",\"kid\":\"a\""), *b = make_jwk(p256, ",\"kid\":\"b\"");
	char *again = make_jwk(rsa, ",\"kid\":\"a\",\"use\":\"sig\""), *other = make_jwk(edwards, ",\"kid\":\"a\"");
	char *text = make_text("{\"keys\":[%s,%s,%s,%s,{\"kty\":\"oct\"}],\"more\":1}", a, b, again, other);
	const struct kvw_slice nameless = {NULL, 0};
	struct kvw_jwks *jwks = NULL;
	bool known;

	ck_assert_int_eq(parse(text, &jwks), KVW_OK);
	ck_assert_uint_eq(kvw_jwks_count(jwks), 3);
	ck_assert_uint_eq(kvw_jwks_skipped(jwks), 2);
	ck_assert_ptr_nonnull(kvw_jwks_find(jwks, KVW_SLICE("a"), KVW_JWT_RS256, &known));
	ck_assert_ptr_nonnull(kvw_jwks_find(jwks, KVW_SLICE("a"), KVW_JWT_EDDSA, &known));
	ck_assert_ptr_null(kvw_jwks_find(jwks, KVW_SLICE("a"), KVW_JWT_ES256, &known));
	ck_assert(known);
	ck_assert_ptr_null(kvw_jwks_find(jwks, KVW_SLICE("c"), KVW_JWT_ES256, &known));
	ck_assert(!known);
	ck_assert_ptr_null(kvw_jwks_find(jwks, KVW_SLICE(""), KVW_JWT_ES256, &known));
	ck_assert_ptr_nonnull(kvw_jwks_find(jwks, nameless, KVW_JWT_ES256, &known)); /* the only one */
	kvw_jwks_unref(jwks);
	free(text);
	jwks = NULL;
	free(again);
	again = make_jwk(rsa, ",\"kid\":\"z\"");
	text = make_text("{\"keys\":[%s,%s]}", a, again);
	ck_assert_int_eq(parse(text, &jwks), KVW_OK);
	ck_assert_ptr_null(kvw_jwks_find(jwks, nameless, KVW_JWT_RS256, &known)); /* one of two */
	kvw_jwks_unref(jwks);
	free(text);
	free(a);
	free(b);
	free(again);
	free(other);
}
END_TEST

START_TEST(sets_that_are_refused)
{
	static const char *const bad[] = {"", "{", "[]", "{\"keys\":{}}", "{\"keys\":[{}],\"keys\":[]}"};
	struct kvw_jwks *jwks = NULL;
	char *giant = calloc(1, KVW_JWKS_MAX_BYTES + 2), *at = giant;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		why[0] = '\0';
		ck_assert_int_eq(parse(bad[i], &jwks), KVW_EINVAL);
		ck_assert_int_ne(why[0], '\0');
	}
	ck_assert_int_eq(parse("{\"keys\":[]}", &jwks), KVW_ENOTFOUND);
	ck_assert_int_eq(parse("{\"keys\":[{\"kty\":\"oct\"}]}", &jwks), KVW_ENOTFOUND);
	memset(giant, ' ', KVW_JWKS_MAX_BYTES + 1);
	ck_assert_int_eq(kvw_jwks_parse(giant, KVW_JWKS_MAX_BYTES + 1, why, sizeof(why), &jwks), KVW_EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "more than"));
	at += sprintf(at, "{\"keys\":[{}");
	for (int i = 0; i < KVW_JWKS_MOST; i++)
		at += sprintf(at, ",{}");
	sprintf(at, "]}");
	ck_assert_int_eq(parse(giant, &jwks), KVW_EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "expected at most 64"));
	ck_assert_ptr_null(jwks);
	free(giant);
	kvw_jwks_unref(NULL);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("jwks");
	int failed;

	rsa = EVP_RSA_gen(2048);
	p256 = EVP_EC_gen("P-256");
	edwards = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, keys_of_use);
	tcase_add_test(tcase, keys_of_no_use);
	tcase_add_test(tcase, exponents);
	tcase_add_test(tcase, found_by_name_and_algorithm);
	tcase_add_test(tcase, sets_that_are_refused);
	failed = run_tcase("jwks", tcase);
	EVP_PKEY_free(rsa);
	EVP_PKEY_free(p256);
	EVP_PKEY_free(edwards);
	return failed;
}
