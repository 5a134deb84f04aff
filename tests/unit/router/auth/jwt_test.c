/*
 * jwt_test.c - tokens that get in, and a table of those that must not: each is made from a good one by one change.
 */
#include <check.h>

#include "auth/jwt.h"
#include "auth/keyring.h"
#include "tests/unit/router/auth/jwt_make.h"
#include "tests/unit/suite.h"

#define NOW   1800000000
#define ALICE "\"iss\":\"https://issuer\",\"aud\":\"kvway\",\"sub\":\"alice\""
#define GOOD  "{" ALICE ",\"exp\":1800000600}"

static EVP_PKEY *rsa, *p256, *edwards, *stranger;
static struct kvw_jwks *jwks;
static char aud_other[] = "other", aud[] = "kvway", issuer[] = "https://issuer", sub[] = "sub", none[] = "";
static char tenant[] = "tenant", class[] = "class", models[] = "models", limits[] = "limits";
static char *audiences[] = {aud_other, aud};
static const struct kvw_config config = {
	.auth_jwt_issuer = issuer,
	.auth_jwt_audience = {audiences, 2},
	.auth_jwt_leeway_ms = 30000,
	.auth_jwt_name_claim = sub,
	.auth_jwt_tenant_claim = tenant,
	.auth_jwt_class_claim = class,
	.auth_jwt_models_claim = models,
	.auth_jwt_paths_claim = none,
	.auth_jwt_limits_claim = limits,
	.auth_jwt_requests_per_minute = 60,
	.auth_jwt_tokens_per_day = 5000,
	.auth_jwt_burst_ms = 10000,
};

static enum kvw_jwt_verdict verify_at(const char *token, int64_t now_s, struct kvw_client_key **key)
{
	return kvw_jwt_verify(&config, jwks, kvw_slice_of(token), now_s, key);
}

/* Takes the token. */
static void is(enum kvw_jwt_verdict expected, char *token)
{
	struct kvw_client_key *key = NULL;
	enum kvw_jwt_verdict verdict = verify_at(token, NOW, &key);

	ck_assert_msg(verdict == expected, "%s instead of %s: %.300s", kvw_jwt_verdict_name(verdict),
		kvw_jwt_verdict_name(expected), token);
	ck_assert((key != NULL) == (verdict == KVW_JWT_GOOD));
	if (key != NULL)
		kvw_client_keys_free(key, 1);
	free(token);
}

static void header_is(enum kvw_jwt_verdict expected, EVP_PKEY *pkey, const char *header)
{
	is(expected, make_token(pkey, header, GOOD));
}

/* members: of the claims, besides `exp`. */
static void claims_are(enum kvw_jwt_verdict expected, const char *members)
{
	char *claims = make_text("{\"exp\":1800000600,%s}", members);

	is(expected, make_token(p256, "{\"alg\":\"ES256\",\"kid\":\"e\"}", claims));
	free(claims);
}

START_TEST(each_algorithm)
{
	header_is(KVW_JWT_GOOD, rsa, "{\"alg\":\"RS256\",\"kid\":\"r\"}");
	header_is(KVW_JWT_GOOD, p256, "{\"alg\":\"ES256\",\"kid\":\"e\"}");
	header_is(KVW_JWT_GOOD, edwards, "{\"alg\":\"EdDSA\",\"kid\":\"d\"}");
	header_is(KVW_JWT_GOOD, p256, "{\"alg\":\"ES256\"}"); /* the only key of the algorithm */
	header_is(KVW_JWT_GOOD, p256, "{\"alg\":\"ES256\",\"typ\":\"jwt\",\"kid\":\"e\"}");
	header_is(KVW_JWT_GOOD, p256, "{\"alg\":\"ES256\",\"typ\":\"application/at+jwt\",\"kid\":\"e\"}");
}
END_TEST

START_TEST(what_a_token_becomes)
{
	char *token = make_token(rsa, "{\"alg\":\"RS256\",\"kid\":\"r\"}",
		"{\"iss\":\"https://issuer\",\"aud\":[\"x\",\"kvway\"],\"sub\":\"auth0|a1\",\"tenant\":\"lab\","
		"\"class\":\"batch\",\"models\":[\"llama-*\",\"tiny\"],\"paths\":[7],\"trusted\":true,"
		"\"limits\":{\"requests_per_minute\":7,\"max_body\":\"2KiB\",\"timeout\":\"30s\",\"concurrent\":0},"
		"\"exp\":1800000600.5,\"nbf\":1800000030}");
	struct kvw_client_key *key = NULL;

	ck_assert_int_eq(verify_at(token, NOW, &key), KVW_JWT_GOOD);
	ck_assert_str_eq(key->name, "jwt:auth0|a1");
	ck_assert_str_eq(key->tenant, "lab");
	ck_assert_str_eq(key->class, "batch");
	ck_assert(!key->trusted);
	ck_assert_uint_eq(key->models.count, 2);
	ck_assert(kvw_client_key_may_use(key, KVW_SLICE("llama-70b")));
	ck_assert(!kvw_client_key_may_use(key, KVW_SLICE("secret")));
	ck_assert_uint_eq(key->paths.count, 0); /* no claim is read for them */
	ck_assert_int_eq(key->expires, 1800000630);
	ck_assert_int_eq(key->requests_per_minute, 7);
	ck_assert_int_eq(key->tokens_per_day, 5000); /* which the configuration says */
	ck_assert_int_eq(key->burst_ms, 10000);
	ck_assert_uint_eq(key->max_body, 2048);
	ck_assert_int_eq(key->timeout_ms, 30000);
	kvw_client_keys_free(key, 1);
	free(token);
}
END_TEST

START_TEST(headers_that_attack)
{
	static const struct {
		enum kvw_jwt_verdict verdict;
		const char *header;
	} table[] = {
		{KVW_JWT_ALGORITHM, "{\"alg\":\"none\",\"kid\":\"e\"}"},
		{KVW_JWT_ALGORITHM, "{\"alg\":\"None\",\"kid\":\"e\"}"},
		{KVW_JWT_ALGORITHM, "{\"alg\":\"NONE\"}"},
		{KVW_JWT_ALGORITHM, "{\"alg\":\"HS256\",\"kid\":\"r\"}"},
		{KVW_JWT_ALGORITHM, "{\"alg\":\"ES384\",\"kid\":\"e\"}"},
		{KVW_JWT_ALGORITHM, "{\"alg\":\"es256\",\"kid\":\"e\"}"},
		{KVW_JWT_ALGORITHM, "{\"alg\":[\"ES256\"],\"kid\":\"e\"}"},
		{KVW_JWT_ALGORITHM, "{\"kid\":\"e\"}"},
		{KVW_JWT_ALGORITHM, "{\"alg\":\"ES256\",\"kid\":\"r\"}"}, /* another key's algorithm */
		{KVW_JWT_ALGORITHM, "{\"alg\":\"RS256\",\"kid\":\"e\"}"},
		{KVW_JWT_KEY, "{\"alg\":\"ES256\",\"kid\":\"../../dev/null\"}"},
		{KVW_JWT_KEY, "{\"alg\":\"ES256\",\"kid\":\"e' OR '1'='1\"}"},
		{KVW_JWT_KEY, "{\"alg\":\"ES256\",\"kid\":\"E\"}"},
		{KVW_JWT_KEY, "{\"alg\":\"ES256\",\"kid\":\"\"}"},
		{KVW_JWT_MALFORMED, "{\"alg\":\"ES256\",\"kid\":7}"},
		{KVW_JWT_MALFORMED, "{\"alg\":\"ES256\",\"kid\":null}"},
		{KVW_JWT_MALFORMED, "{\"alg\":\"ES256\",\"kid\":\"e\\u0000\"}"},
		{KVW_JWT_MALFORMED, "{\"alg\":\"ES256\",\"kid\":\"e\",\"crit\":[\"exp\"]}"},
		{KVW_JWT_MALFORMED, "{\"alg\":\"ES256\",\"kid\":\"e\",\"crit\":[]}"},
		{KVW_JWT_MALFORMED, "{\"alg\":\"none\",\"alg\":\"ES256\",\"kid\":\"e\"}"},
		{KVW_JWT_MALFORMED, "{\"alg\":\"ES256\",\"kid\":\"x\",\"kid\":\"e\"}"},
		{KVW_JWT_MALFORMED, "{\"alg\":\"ES256\",\"kid\":\"e\",\"typ\":\"logout+jwt\"}"},
		{KVW_JWT_MALFORMED, "{\"alg\":\"ES256\",\"kid\":\"e\",\"typ\":7}"},
		{KVW_JWT_MALFORMED, "[\"ES256\"]"},
		{KVW_JWT_MALFORMED, "{\"alg\":\"ES256\",\"kid\":\"e\"} {}"},
		{KVW_JWT_MALFORMED, "{\"alg\":\"ES256\",\"kid\":\"\xff\"}"},
		{KVW_JWT_MALFORMED, "{\"alg\":\"ES256\",\"x\":[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]}"},
		{KVW_JWT_MALFORMED, ""},
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		header_is(table[i].verdict, p256, table[i].header);
}
END_TEST

/* What is inside the token says nothing about the key. */
START_TEST(keys_inside_the_token)
{
	char *jwk = make_jwk(stranger, ""), *header;

	header = make_text("{\"alg\":\"ES256\",\"kid\":\"e\",\"jwk\":%s,\"jku\":\"https://evil/\"}", jwk);
	header_is(KVW_JWT_SIGNATURE, stranger, header);
	free(header);
	header = make_text("{\"alg\":\"ES256\",\"kid\":\"new\",\"jwk\":%s,\"x5u\":\"https://evil/\"}", jwk);
	header_is(KVW_JWT_KEY, stranger, header);
	free(header);
	free(jwk);
}
END_TEST

/* The classic: the public key as the secret of an HMAC. */
START_TEST(hmac_by_the_public_key)
{
	char *jwk = make_jwk(rsa, ""), *text, *signature;
	const char *headers[] = {"{\"alg\":\"HS256\",\"kid\":\"r\"}", "{\"alg\":\"RS256\",\"kid\":\"r\"}"};
	unsigned char mac[32];
	unsigned len = sizeof(mac);

	for (size_t i = 0; i < 2; i++) {
		text = make_unsigned(headers[i], GOOD);
		HMAC(EVP_sha256(), jwk, (int)strlen(jwk), (unsigned char *)text, strlen(text), mac, &len);
		signature = make_base64url(mac, len);
		is(i == 0 ? KVW_JWT_ALGORITHM : KVW_JWT_SIGNATURE, make_text("%s.%s", text, signature));
		free(signature);
		free(text);
	}
	free(jwk);
}
END_TEST

static char *with_signature(const char *header, const char *signature)
{
	char *text = make_unsigned(header, GOOD), *out = make_text("%s.%s", text, signature);

	free(text);
	return out;
}

START_TEST(signatures_that_attack)
{
	static const char e[] = "{\"alg\":\"ES256\",\"kid\":\"e\"}", r[] = "{\"alg\":\"RS256\",\"kid\":\"r\"}";
	static const char d[] = "{\"alg\":\"EdDSA\",\"kid\":\"d\"}";
	const char *headers[] = {e, r, d};
	unsigned char bytes[300] = {0};

	for (size_t i = 0; i < 3; i++) {
		static const size_t lengths[] = {0, 1, 32, 63, 64, 65, 70, 72, 96, 128, 255, 256, 257};

		for (size_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++) {
			char *zero;

			for (int value = 0; value < 256; value += 255) {
				memset(bytes, value, sizeof(bytes));
				zero = make_base64url(bytes, lengths[k]);
				is(KVW_JWT_SIGNATURE, with_signature(headers[i], zero));
				free(zero);
			}
		}
	}
	is(KVW_JWT_SIGNATURE, make_token(stranger, e, GOOD));
	is(KVW_JWT_SIGNATURE, make_token(edwards, e, GOOD)); /* 64 bytes, too */
}
END_TEST

/* A signature in DER, as OpenSSL makes them, is none of JOSE. */
START_TEST(der_is_no_signature)
{
	char *text = make_unsigned("{\"alg\":\"ES256\",\"kid\":\"e\"}", GOOD), *encoded;
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	unsigned char bytes[128];
	size_t len = sizeof(bytes);

	ck_assert_int_eq(EVP_DigestSignInit(ctx, NULL, EVP_sha256(), NULL, p256), 1);
	ck_assert_int_eq(EVP_DigestSign(ctx, bytes, &len, (unsigned char *)text, strlen(text)), 1);
	EVP_MD_CTX_free(ctx);
	encoded = make_base64url(bytes, len);
	is(KVW_JWT_SIGNATURE, make_text("%s.%s", text, encoded));
	free(encoded);
	free(text);
}
END_TEST

START_TEST(every_byte_counts)
{
	char *good = make_token(p256, "{\"alg\":\"ES256\",\"kid\":\"e\"}", GOOD);
	struct kvw_client_key *key;

	for (size_t i = 0; good[i] != '\0'; i++) {
		char was = good[i];

		good[i] = was == 'A' ? 'B' : 'A';
		ck_assert_int_ne(verify_at(good, NOW, &key), KVW_JWT_GOOD);
		good[i] = was;
	}
	is(KVW_JWT_GOOD, good);
}
END_TEST

START_TEST(forms_that_attack)
{
	char *good = make_token(p256, "{\"alg\":\"ES256\",\"kid\":\"e\"}", GOOD);
	const char *first = strchr(good, '.'), *second = strrchr(good, '.');
	char *huge = calloc(1, KVW_JWT_MOST + strlen(good) + 1);

	is(KVW_JWT_MALFORMED, make_text("%s=", good));
	is(KVW_JWT_MALFORMED, make_text("%s==", good));
	is(KVW_JWT_MALFORMED, make_text("%s ", good));
	is(KVW_JWT_MALFORMED, make_text(" %s", good));
	is(KVW_JWT_MALFORMED, make_text("%.*s=%s", (int)(first - good), good, first));
	is(KVW_JWT_SIGNATURE, make_text("%.*s=%s", (int)(second - good), good, second)); /* what is signed */
	is(KVW_JWT_MALFORMED, make_text("%s\n", good));
	is(KVW_JWT_MALFORMED, make_text("%s.", good));
	is(KVW_JWT_MALFORMED, make_text("%s.a", good));
	is(KVW_JWT_MALFORMED, make_text("%.*s", (int)(second - good), good));
	is(KVW_JWT_SIGNATURE, make_text("%.*s.", (int)(second - good), good));
	is(KVW_JWT_MALFORMED, make_text(".%s", first + 1));
	is(KVW_JWT_MALFORMED, make_text(".."));
	is(KVW_JWT_MALFORMED, make_text("..."));
	memset(huge, 'A', KVW_JWT_MOST);
	strcat(huge, good);
	is(KVW_JWT_MALFORMED, huge);
	ck_assert(kvw_jwt_looks(KVW_SLICE("..")) && kvw_jwt_looks(kvw_slice_of(good)));
	ck_assert(!kvw_jwt_looks(KVW_SLICE("sk-kvway-a.b")) && !kvw_jwt_looks(KVW_SLICE("...")));
	ck_assert(!kvw_jwt_looks(KVW_SLICE("")));
	free(good);
}
END_TEST

START_TEST(claims_that_are_refused)
{
	claims_are(KVW_JWT_GOOD, ALICE);
	claims_are(KVW_JWT_ISSUER, "\"aud\":\"kvway\",\"sub\":\"alice\"");
	claims_are(KVW_JWT_ISSUER, "\"iss\":\"https://issuer/\",\"aud\":\"kvway\",\"sub\":\"alice\"");
	claims_are(KVW_JWT_ISSUER, "\"iss\":[\"https://issuer\"],\"aud\":\"kvway\",\"sub\":\"alice\"");
	claims_are(KVW_JWT_AUDIENCE, "\"iss\":\"https://issuer\",\"sub\":\"alice\"");
	claims_are(KVW_JWT_AUDIENCE, "\"iss\":\"https://issuer\",\"aud\":\"kv\",\"sub\":\"alice\"");
	claims_are(KVW_JWT_AUDIENCE, "\"iss\":\"https://issuer\",\"aud\":[],\"sub\":\"alice\"");
	claims_are(KVW_JWT_AUDIENCE, "\"iss\":\"https://issuer\",\"aud\":{\"kvway\":1},\"sub\":\"alice\"");
	claims_are(KVW_JWT_AUDIENCE, "\"iss\":\"https://issuer\",\"aud\":[[\"kvway\"]],\"sub\":\"alice\"");
	claims_are(KVW_JWT_MALFORMED, ALICE ",\"sub\":\"bob\""); /* twice */
	claims_are(KVW_JWT_MALFORMED, ALICE ",\"exp\":99999999999");
	claims_are(KVW_JWT_MALFORMED, ALICE ",\"a\":\"\\u0000\"");
	claims_are(KVW_JWT_CLAIMS, "\"iss\":\"https://issuer\",\"aud\":\"kvway\"");
	claims_are(KVW_JWT_CLAIMS, "\"iss\":\"https://issuer\",\"aud\":\"kvway\",\"sub\":\"\"");
	claims_are(KVW_JWT_CLAIMS, "\"iss\":\"https://issuer\",\"aud\":\"kvway\",\"sub\":\"a b\"");
	claims_are(KVW_JWT_CLAIMS, "\"iss\":\"https://issuer\",\"aud\":\"kvway\",\"sub\":\"a\\nb\"");
	claims_are(KVW_JWT_CLAIMS, "\"iss\":\"https://issuer\",\"aud\":\"kvway\",\"sub\":7");
	claims_are(KVW_JWT_CLAIMS, ALICE ",\"tenant\":\"a/b\"");
	claims_are(KVW_JWT_CLAIMS, ALICE ",\"tenant\":null");
	claims_are(KVW_JWT_CLAIMS, ALICE ",\"class\":[\"high\"]");
	claims_are(KVW_JWT_CLAIMS, ALICE ",\"models\":[]");
	claims_are(KVW_JWT_CLAIMS, ALICE ",\"models\":\"  \"");
	claims_are(KVW_JWT_CLAIMS, ALICE ",\"models\":null");
	claims_are(KVW_JWT_CLAIMS, ALICE ",\"models\":{\"tiny\":1}");
	claims_are(KVW_JWT_CLAIMS, ALICE ",\"models\":[\"tiny\",7]");
	claims_are(KVW_JWT_CLAIMS, ALICE ",\"models\":[\"*x\"]");
	claims_are(KVW_JWT_GOOD, ALICE ",\"models\":\"tiny llama-*\"");
	claims_are(KVW_JWT_CLAIMS, ALICE ",\"limits\":null");
	claims_are(KVW_JWT_CLAIMS, ALICE ",\"limits\":{\"concurrent\":1000000001}");
	claims_are(KVW_JWT_CLAIMS, ALICE ",\"limits\":{\"concurrent\":[1]}");
	claims_are(KVW_JWT_CLAIMS, ALICE ",\"limits\":{\"trusted\":\"true\"}");
	claims_are(KVW_JWT_CLAIMS, ALICE ",\"limits\":{\"burst\":\"0s\"}");
	claims_are(KVW_JWT_GOOD, ALICE ",\"limits\":{\"burst\":\"1m\"}");
	claims_are(KVW_JWT_CLAIMS, ALICE ",\"nbf\":\"now\"");
	claims_are(KVW_JWT_EARLY, ALICE ",\"nbf\":1800000031");
	claims_are(KVW_JWT_GOOD, ALICE ",\"nbf\":1800000030");
	claims_are(KVW_JWT_CLAIMS, ALICE ",\"nbf\":1e300");
}
END_TEST

START_TEST(when_a_token_ends)
{
	static const char e[] = "{\"alg\":\"ES256\",\"kid\":\"e\"}";
	char *good = make_token(p256, e, GOOD);
	struct kvw_client_key *key = NULL;

	ck_assert_int_eq(verify_at(good, 1800000629, &key), KVW_JWT_GOOD);
	kvw_client_keys_free(key, 1);
	ck_assert_int_eq(verify_at(good, 1800000630, &key), KVW_JWT_EXPIRED);
	free(good);
	is(KVW_JWT_EXPIRED, make_token(p256, e, "{" ALICE "}"));
	is(KVW_JWT_EXPIRED, make_token(p256, e, "{" ALICE ",\"exp\":\"1800000600\"}"));
	is(KVW_JWT_EXPIRED, make_token(p256, e, "{" ALICE ",\"exp\":-1}"));
	is(KVW_JWT_EXPIRED, make_token(p256, e, "{" ALICE ",\"exp\":1e300}"));
	is(KVW_JWT_MALFORMED, make_token(p256, e, "{" ALICE ",\"exp\":99999999999999999999}"));
	is(KVW_JWT_MALFORMED, make_token(p256, e, "not JSON"));
	is(KVW_JWT_MALFORMED, make_token(p256, e, "[]"));
	is(KVW_JWT_MALFORMED, make_token(p256, e, ""));
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("jwt");
	char *r, *e, *d, *text, why[256];
	int failed;

	rsa = EVP_RSA_gen(2048);
	p256 = EVP_EC_gen("P-256");
	stranger = EVP_EC_gen("P-256");
	edwards = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
	r = make_jwk(rsa, ",\"kid\":\"r\"");
	e = make_jwk(p256, ",\"kid\":\"e\"");
	d = make_jwk(edwards, ",\"kid\":\"d\"");
	text = make_text("{\"keys\":[%s,%s,%s]}", r, e, d);
	MAKE_MUST(kvw_jwks_parse(text, strlen(text), why, sizeof(why), &jwks) == KVW_OK);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, each_algorithm);
	tcase_add_test(tcase, what_a_token_becomes);
	tcase_add_test(tcase, headers_that_attack);
	tcase_add_test(tcase, keys_inside_the_token);
	tcase_add_test(tcase, hmac_by_the_public_key);
	tcase_add_test(tcase, signatures_that_attack);
	tcase_add_test(tcase, der_is_no_signature);
	tcase_add_test(tcase, every_byte_counts);
	tcase_add_test(tcase, forms_that_attack);
	tcase_add_test(tcase, claims_that_are_refused);
	tcase_add_test(tcase, when_a_token_ends);
	failed = run_tcase("jwt", tcase);
	kvw_jwks_unref(jwks);
	EVP_PKEY_free(rsa);
	EVP_PKEY_free(p256);
	EVP_PKEY_free(stranger);
	EVP_PKEY_free(edwards);
	free(r);
	free(e);
	free(d);
	free(text);
	return failed;
}
