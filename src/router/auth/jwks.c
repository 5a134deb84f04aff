/* jwks.c - the public keys that verify clients' tokens (JSON Web Key Set, RFC 7517), by name. */
#include "auth/jwks.h"

#include <jansson.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"

#define COORDINATE 32 /* bytes, of P-256 and Ed25519 */

/* One key. */
struct key {
	char kid[KVW_JWKS_KID_MOST];
	size_t kid_len; /* 0: no name */
	enum kvw_jwt_alg alg;
	EVP_PKEY *pkey; /* owned */
};

struct kvw_jwks {
	_Atomic size_t refs;
	size_t count, skipped;
	bool starved; /* memory was too short to make one of the keys */
	struct key keys[KVW_JWKS_MOST];
};

/* --- one key --- */

static const char *text_of(const json_t *jwk, const char *name)
{
	return json_string_value(json_object_get(jwk, name));
}

/* Decodes a member in base64url. Returns the number of bytes; 0: it is missing or invalid. */
static size_t bytes_of(const json_t *jwk, const char *name, unsigned char *out, size_t room)
{
	const char *text = text_of(jwk, name);
	size_t len = 0;

	if (text == NULL || !kvw_base64_read(kvw_slice_of(text), KVW_BASE64_URL, out, room, &len))
		return 0;
	return len;
}

/* Returns whether OpenSSL has failed for lack of memory since its errors were cleared, rather than
 * refused a key. */
static bool ran_out(void)
{
	unsigned long code;
	bool out = ERR_peek_error() == 0;

	while ((code = ERR_get_error()) != 0)
		out = out || ERR_GET_REASON(code) == ERR_R_MALLOC_FAILURE;
	return out;
}

static EVP_PKEY *make_key(const char *type, OSSL_PARAM_BLD *build, bool *starved)
{
	OSSL_PARAM *params = OSSL_PARAM_BLD_to_param(build);
	EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
	EVP_PKEY *pkey = NULL;

	if (params == NULL || ctx == NULL || EVP_PKEY_fromdata_init(ctx) != 1) {
		*starved = true;
	} else if (EVP_PKEY_fromdata(ctx, &pkey, EVP_PKEY_PUBLIC_KEY, params) != 1) {
		*starved = ran_out();
		EVP_PKEY_free(pkey);
		pkey = NULL;
	}
	EVP_PKEY_CTX_free(ctx);
	OSSL_PARAM_free(params);
	return pkey;
}

/* Returns whether an RSA key is acceptable: with a large exponent each verification would be slow,
 * and small ones have enabled attacks on faulty libraries. */
static bool good_rsa(const BIGNUM *n, const BIGNUM *e)
{
	int bits = BN_num_bits(n);

	return bits >= KVW_JWKS_RSA_LEAST && bits <= KVW_JWKS_RSA_MOST && BN_is_odd(n) &&
	       BN_is_odd(e) && BN_num_bits(e) >= 17 && BN_num_bits(e) <= 64;
}

static EVP_PKEY *rsa_of(const json_t *jwk, bool *starved)
{
	unsigned char n_bytes[KVW_JWKS_RSA_MOST / 8 + 1], e_bytes[9];
	size_t n_len = bytes_of(jwk, "n", n_bytes, sizeof(n_bytes));
	size_t e_len = bytes_of(jwk, "e", e_bytes, sizeof(e_bytes));
	BIGNUM *n = BN_bin2bn(n_bytes, (int)n_len, NULL), *e = BN_bin2bn(e_bytes, (int)e_len, NULL);
	OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
	EVP_PKEY *pkey = NULL;

	*starved = n == NULL || e == NULL || build == NULL;
	if (!*starved && good_rsa(n, e)) {
		*starved = OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_N, n) != 1 ||
			   OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_E, e) != 1;
		if (!*starved)
			pkey = make_key("RSA", build, starved);
	}
	OSSL_PARAM_BLD_free(build);
	BN_free(n);
	BN_free(e);
	return pkey;
}

static bool on_curve(EVP_PKEY *pkey, bool *starved)
{
	EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(NULL, pkey, NULL);
	bool good = ctx != NULL && EVP_PKEY_public_check(ctx) == 1;

	*starved = ctx == NULL || (!good && ran_out());
	EVP_PKEY_CTX_free(ctx);
	return good;
}

static EVP_PKEY *p256_of(const json_t *jwk, bool *starved)
{
	unsigned char point[1 + 2 * COORDINATE] = {4}; /* not compressed */
	OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
	EVP_PKEY *pkey = NULL;

	*starved = build == NULL;
	if (!*starved && bytes_of(jwk, "x", point + 1, COORDINATE) == COORDINATE &&
		bytes_of(jwk, "y", point + 1 + COORDINATE, COORDINATE) == COORDINATE) {
		*starved = OSSL_PARAM_BLD_push_utf8_string(
				   build, OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) != 1 ||
			   OSSL_PARAM_BLD_push_octet_string(
				   build, OSSL_PKEY_PARAM_PUB_KEY, point, sizeof(point)) != 1;
		if (!*starved)
			pkey = make_key("EC", build, starved);
	}
	OSSL_PARAM_BLD_free(build);
	if (pkey != NULL && !on_curve(pkey, starved)) {
		EVP_PKEY_free(pkey);
		pkey = NULL;
	}
	return pkey;
}

static EVP_PKEY *ed25519_of(const json_t *jwk, bool *starved)
{
	unsigned char bytes[COORDINATE];
	EVP_PKEY *pkey;

	if (bytes_of(jwk, "x", bytes, sizeof(bytes)) != sizeof(bytes))
		return NULL;
	pkey = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, bytes, sizeof(bytes));
	/* any bytes of this length are a key, so a failure means lack of memory */
	*starved = pkey == NULL;
	return pkey;
}

/* Returns whether a member has one of the two values; a missing member is accepted, too. */
static bool says(const json_t *jwk, const char *name, const char *one, const char *other)
{
	const json_t *value = json_object_get(jwk, name);
	const char *text = json_string_value(value);

	return value == NULL ||
	       (text != NULL && (strcmp(text, one) == 0 || strcmp(text, other) == 0));
}

static bool may_verify(const json_t *jwk)
{
	const json_t *operations = json_object_get(jwk, "key_ops");

	if (!says(jwk, "use", "sig", "sig"))
		return false;
	for (size_t i = 0; i < json_array_size(operations); i++) {
		const char *operation = json_string_value(json_array_get(operations, i));

		if (operation != NULL && strcmp(operation, "verify") == 0)
			return true;
	}
	return operations == NULL;
}

static bool is(const char *text, const char *word)
{
	return text != NULL && strcmp(text, word) == 0;
}

/* Makes a key, with the algorithm that its type and curve have. NULL: it cannot be used, or, if
 * *starved is set, memory is short. */
static EVP_PKEY *pkey_of(const json_t *jwk, enum kvw_jwt_alg *alg, bool *starved)
{
	const char *type = text_of(jwk, "kty"), *curve = text_of(jwk, "crv");

	if (!may_verify(jwk))
		return NULL;
	if (is(type, "RSA") && says(jwk, "alg", "RS256", "RS256")) {
		*alg = KVW_JWT_RS256;
		return rsa_of(jwk, starved);
	}
	if (is(type, "EC") && is(curve, "P-256") && says(jwk, "alg", "ES256", "ES256")) {
		*alg = KVW_JWT_ES256;
		return p256_of(jwk, starved);
	}
	if (is(type, "OKP") && is(curve, "Ed25519") && says(jwk, "alg", "EdDSA", "Ed25519")) {
		*alg = KVW_JWT_EDDSA;
		return ed25519_of(jwk, starved);
	}
	return NULL;
}

/* Adds a key. Returns false if it is left out, or memory is short, which `starved` shows. */
static bool add_key(struct kvw_jwks *jwks, const json_t *jwk)
{
	struct key *key = &jwks->keys[jwks->count];
	const json_t *kid = json_object_get(jwk, "kid");
	bool known, starved = false;

	if (!json_is_object(jwk) || (kid != NULL && !json_is_string(kid)) ||
		json_string_length(kid) > sizeof(key->kid))
		return false;
	key->kid_len = json_string_length(kid);
	if (key->kid_len > 0)
		memcpy(key->kid, json_string_value(kid), key->kid_len);
	ERR_clear_error();
	key->pkey = pkey_of(jwk, &key->alg, &starved);
	jwks->starved = jwks->starved || starved;
	if (key->pkey == NULL)
		return false;
	if (key->kid_len > 0 && kvw_jwks_find(jwks, (struct kvw_slice){key->kid, key->kid_len},
					key->alg, &known) != NULL) {
		/* if several keys have the same name, the first one counts */
		EVP_PKEY_free(key->pkey);
		return false;
	}
	jwks->count++;
	return true;
}

/* --- the set --- */

enum kvw_err kvw_jwks_parse(
	const char *text, size_t len, char *why, size_t room, struct kvw_jwks **out)
{
	struct kvw_jwks *jwks = calloc(1, sizeof(*jwks));
	json_t *root = NULL;
	const json_t *keys;
	json_error_t error;
	enum kvw_err err = KVW_EINVAL;

	if (jwks == NULL)
		return KVW_ENOMEM;
	atomic_init(&jwks->refs, 1);
	if (len > KVW_JWKS_MAX_BYTES) {
		snprintf(why, room, "found more than %zu bytes, expected a set of keys",
			KVW_JWKS_MAX_BYTES);
		goto out;
	}
	root = json_loadb(len > 0 ? text : "", len, JSON_REJECT_DUPLICATES, &error);
	if (root == NULL && json_error_code(&error) == json_error_out_of_memory) {
		err = KVW_ENOMEM;
		goto out;
	}
	keys = json_object_get(root, "keys");
	if (!json_is_array(keys)) {
		snprintf(why, room, "found %s, expected an object with a list `keys`",
			root == NULL ? "no JSON" : "other JSON");
		goto out;
	}
	if (json_array_size(keys) > KVW_JWKS_MOST) {
		snprintf(why, room, "found %zu keys, expected at most %d", json_array_size(keys),
			KVW_JWKS_MOST);
		goto out;
	}
	for (size_t i = 0; i < json_array_size(keys); i++)
		jwks->skipped += !add_key(jwks, json_array_get(keys, i));
	ERR_clear_error();
	/* A key that is only missing for lack of memory was not withdrawn by the issuer, so the set
	 * is not used. */
	if (jwks->starved) {
		err = KVW_ENOMEM;
		goto out;
	}
	if (jwks->count == 0) {
		snprintf(why, room,
			"found no key of use among %zu, expected RSA of %d bits or more, P-256 or "
			"Ed25519",
			json_array_size(keys), KVW_JWKS_RSA_LEAST);
		err = KVW_ENOTFOUND;
		goto out;
	}
	*out = jwks;
	jwks = NULL;
	err = KVW_OK;
out:
	json_decref(root);
	kvw_jwks_unref(jwks);
	return err;
}

void kvw_jwks_ref(struct kvw_jwks *jwks)
{
	atomic_fetch_add_explicit(&jwks->refs, 1, memory_order_relaxed);
}

void kvw_jwks_unref(struct kvw_jwks *jwks)
{
	if (jwks == NULL || atomic_fetch_sub_explicit(&jwks->refs, 1, memory_order_acq_rel) > 1)
		return;
	for (size_t i = 0; i < jwks->count; i++)
		EVP_PKEY_free(jwks->keys[i].pkey);
	free(jwks);
}

size_t kvw_jwks_count(const struct kvw_jwks *jwks)
{
	return jwks->count;
}

size_t kvw_jwks_skipped(const struct kvw_jwks *jwks)
{
	return jwks->skipped;
}

EVP_PKEY *kvw_jwks_find(
	const struct kvw_jwks *jwks, struct kvw_slice kid, enum kvw_jwt_alg alg, bool *known)
{
	EVP_PKEY *found = NULL;

	*known = false;
	for (size_t i = 0; i < jwks->count; i++) {
		const struct key *key = &jwks->keys[i];

		if (kid.data != NULL &&
			!kvw_slice_equal(kid, (struct kvw_slice){key->kid, key->kid_len}))
			continue;
		*known = true;
		if (key->alg != alg)
			continue;
		if (found != NULL) /* the token has no key name, so it could mean either key */
			return NULL;
		found = key->pkey;
	}
	return found;
}
