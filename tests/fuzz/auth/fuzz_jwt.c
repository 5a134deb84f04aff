/*
 * fuzz_jwt.c - any bytes as a token, as the claims of a token that is signed well, and as a key set.
 *
 * The first byte chooses. No bytes pass for a signed token; what is made of good claims is whole and within its bounds; of
 * a set that is accepted each key is found by no more than it may be.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "auth/jwt.h"
#include "auth/keyring.h"
#include "auth/keys_file.h"
#include "config/path_pattern.h"
#include "tests/fuzz/lines.h"
#include "tests/unit/router/auth/jwt_make.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char issuer[] = "i", aud[] = "a", sub[] = "sub", tenant[] = "tenant", class[] = "class", models[] = "models";
static char paths[] = "paths", limits[] = "limits";
static char *audience[] = {aud};
static const struct kvw_config config = {
	.auth_jwt_issuer = issuer,
	.auth_jwt_audience = {audience, 1},
	.auth_jwt_leeway_ms = 30000,
	.auth_jwt_name_claim = sub,
	.auth_jwt_tenant_claim = tenant,
	.auth_jwt_class_claim = class,
	.auth_jwt_models_claim = models,
	.auth_jwt_paths_claim = paths,
	.auth_jwt_limits_claim = limits,
};
static EVP_PKEY *pkey;
static struct kvw_jwks *jwks;

static void make_keys(void)
{
	char *jwk, *text, why[256];

	pkey = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
	jwk = make_jwk(pkey, ",\"kid\":\"d\"");
	text = make_text("{\"keys\":[%s]}", jwk);
	require(kvw_jwks_parse(text, strlen(text), why, sizeof(why), &jwks) == KVW_OK);
	free(jwk);
	free(text);
}

static void check_key(const struct kvw_client_key *key, int64_t now_s)
{
	size_t len = strlen(key->name);

	require(strncmp(key->name, "jwt:", 4) == 0 && len > 4 && len <= 4 + KVW_JWT_NAME_MOST);
	require(!kvw_keys_file_name_good(key->name) && !key->trusted);
	require(key->tenant == NULL || kvw_keys_file_name_good(key->tenant));
	require(key->class == NULL || kvw_keys_file_name_good(key->class));
	require(kvw_client_key_lives(key, now_s));
	require(key->requests_per_minute >= 0 && key->requests_per_minute <= 1000000000 && key->concurrent >= 0);
	require(key->tokens_per_minute >= 0 && key->tokens_per_day >= 0 && key->tokens_per_day <= 100000000000000);
	require(key->max_body <= UINT64_C(1) << 40 && key->burst_ms >= 0 && key->timeout_ms >= 0);
	for (size_t i = 0; i < key->paths.count; i++)
		require(kvw_path_pattern_good(key->paths.items[i]));
	for (size_t i = 0; i < key->models.count; i++)
		require(key->models.items[i][0] != '\0');
}

static void fuzz_claims(const uint8_t *data, size_t size)
{
	char *claims = strndup((const char *)data, size);
	char *token = make_token(pkey, "{\"alg\":\"EdDSA\",\"kid\":\"d\"}", claims);
	struct kvw_client_key *key = NULL;
	enum kvw_jwt_verdict verdict = kvw_jwt_verify(&config, jwks, kvw_slice_of(token), 1800000000, &key);

	require(verdict < KVW_JWT_VERDICTS && verdict != KVW_JWT_SIGNATURE && verdict != KVW_JWT_KEY);
	require((verdict == KVW_JWT_GOOD) == (key != NULL));
	if (key != NULL) {
		check_key(key, 1800000000);
		kvw_client_keys_free(key, 1);
	}
	free(token);
	free(claims);
}

/* With a header that names the key, so that all of it is read. */
static void fuzz_token(const uint8_t *data, size_t size, bool whole)
{
	char *head = make_base64url_text("{\"alg\":\"EdDSA\",\"kid\":\"d\"}");
	char *token = whole ? make_text("%.*s", (int)size, data) : make_text("%s.%.*s", head, (int)size, data);
	struct kvw_client_key *key = NULL;
	enum kvw_jwt_verdict verdict = kvw_jwt_verify(&config, jwks, kvw_slice_of(token), 1800000000, &key);

	require(verdict != KVW_JWT_GOOD && key == NULL);
	require(kvw_jwt_verdict_name(verdict)[0] != '\0' && kvw_jwt_verdict_text(verdict)[0] != '\0');
	free(token);
	free(head);
}

static void fuzz_set(const uint8_t *data, size_t size)
{
	struct kvw_jwks *made = NULL;
	char why[64] = "";
	enum kvw_err err = kvw_jwks_parse((const char *)data, size, why, sizeof(why), &made);
	bool known;

	require((err == KVW_OK) == (made != NULL));
	require(err == KVW_OK || ((err == KVW_EINVAL || err == KVW_ENOTFOUND) && why[0] != '\0'));
	if (made == NULL)
		return;
	require(kvw_jwks_count(made) > 0 && kvw_jwks_count(made) + kvw_jwks_skipped(made) <= KVW_JWKS_MOST);
	for (int alg = KVW_JWT_RS256; alg <= KVW_JWT_EDDSA; alg++)
		(void)kvw_jwks_find(made, (struct kvw_slice){NULL, 0}, (enum kvw_jwt_alg)alg, &known);
	require(known);
	kvw_jwks_unref(made);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (pkey == NULL)
		make_keys();
	if (size == 0)
		return 0;
	switch (data[0] % 4) {
	case 0:
		fuzz_claims(data + 1, size - 1);
		break;
	case 1:
		fuzz_set(data + 1, size - 1);
		break;
	default:
		fuzz_token(data + 1, size - 1, data[0] % 4 == 2);
	}
	return 0;
}
