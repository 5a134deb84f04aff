/*
 * jwt_make.h - keys and tokens for tests, made with OpenSSL: an issuer's side of src/router/auth/jwt.h.
 *
 * Texts are on the heap and the caller's. What fails ends the program.
 */
#ifndef TESTS_JWT_MAKE_H
#define TESTS_JWT_MAKE_H

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rsa.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAKE_MUST(what)                                                                            \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);                 \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

static inline char *make_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline char *make_text(const char *format, ...)
{
	va_list args;
	char *out;

	va_start(args, format);
	MAKE_MUST(vasprintf(&out, format, args) >= 0);
	va_end(args);
	return out;
}

static inline char *make_base64url(const void *bytes, size_t len)
{
	char *out = malloc(len * 4 / 3 + 8);
	int n;

	MAKE_MUST(out != NULL);
	n = EVP_EncodeBlock((unsigned char *)out, bytes, (int)len);
	while (n > 0 && out[n - 1] == '=')
		n--;
	out[n] = '\0';
	for (char *at = out; *at != '\0'; at++)
		*at = *at == '+' ? '-' : *at == '/' ? '_' : *at;
	return out;
}

static inline char *make_base64url_text(const char *text)
{
	return make_base64url(text, strlen(text));
}

/* A JWK of a key: `more` is further members, each with a comma before it. */
static inline char *make_jwk(EVP_PKEY *pkey, const char *more)
{
	unsigned char bytes[2048], x[32], y[32];
	BIGNUM *one = NULL, *two = NULL;
	char *a, *b = NULL, *out;
	size_t len = sizeof(bytes);

	if (EVP_PKEY_is_a(pkey, "RSA")) {
		MAKE_MUST(EVP_PKEY_get_bn_param(pkey, OSSL_PKEY_PARAM_RSA_N, &one) == 1);
		MAKE_MUST(EVP_PKEY_get_bn_param(pkey, OSSL_PKEY_PARAM_RSA_E, &two) == 1);
		a = make_base64url(bytes, (size_t)BN_bn2bin(one, bytes));
		b = make_base64url(bytes, (size_t)BN_bn2bin(two, bytes));
		out = make_text("{\"kty\":\"RSA\",\"n\":\"%s\",\"e\":\"%s\"%s}", a, b, more);
	} else if (EVP_PKEY_is_a(pkey, "EC")) {
		MAKE_MUST(EVP_PKEY_get_bn_param(pkey, OSSL_PKEY_PARAM_EC_PUB_X, &one) == 1);
		MAKE_MUST(EVP_PKEY_get_bn_param(pkey, OSSL_PKEY_PARAM_EC_PUB_Y, &two) == 1);
		MAKE_MUST(BN_bn2binpad(one, x, 32) == 32 && BN_bn2binpad(two, y, 32) == 32);
		a = make_base64url(x, 32);
		b = make_base64url(y, 32);
		out = make_text("{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"%s\",\"y\":\"%s\"%s}", a, b, more);
	} else {
		MAKE_MUST(EVP_PKEY_get_raw_public_key(pkey, bytes, &len) == 1);
		a = make_base64url(bytes, len);
		out = make_text("{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"%s\"%s}", a, more);
	}
	BN_free(one);
	BN_free(two);
	free(a);
	free(b);
	return out;
}

/* The signature over a text, as JOSE has it. */
static inline char *make_signature(EVP_PKEY *pkey, const char *text)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	bool edwards = EVP_PKEY_is_a(pkey, "ED25519");
	unsigned char bytes[2048], raw[64];
	const unsigned char *at = bytes;
	size_t len = sizeof(bytes);
	ECDSA_SIG *pair;

	MAKE_MUST(EVP_DigestSignInit(ctx, NULL, edwards ? NULL : EVP_sha256(), NULL, pkey) == 1);
	MAKE_MUST(EVP_DigestSign(ctx, bytes, &len, (const unsigned char *)text, strlen(text)) == 1);
	EVP_MD_CTX_free(ctx);
	if (!EVP_PKEY_is_a(pkey, "EC"))
		return make_base64url(bytes, len);
	pair = d2i_ECDSA_SIG(NULL, &at, (long)len);
	MAKE_MUST(pair != NULL && BN_bn2binpad(ECDSA_SIG_get0_r(pair), raw, 32) == 32 &&
		  BN_bn2binpad(ECDSA_SIG_get0_s(pair), raw + 32, 32) == 32);
	ECDSA_SIG_free(pair);
	return make_base64url(raw, sizeof(raw));
}

/* The first two parts of a token, of JSON texts. */
static inline char *make_unsigned(const char *header, const char *claims)
{
	char *a = make_base64url_text(header), *b = make_base64url_text(claims), *out = make_text("%s.%s", a, b);

	free(a);
	free(b);
	return out;
}

static inline char *make_token(EVP_PKEY *pkey, const char *header, const char *claims)
{
	char *text = make_unsigned(header, claims), *signature = make_signature(pkey, text);
	char *out = make_text("%s.%s", text, signature);

	free(text);
	free(signature);
	return out;
}

#endif
