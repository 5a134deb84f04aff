/*
 * jwt_bench.c - what a client's token costs: verified by each algorithm, and found among those that were.
 *
 * Processor time of one request, its hash included; the median of the rounds.
 *
 *   jwt_bench       prints one line each: name, nanoseconds
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "auth/jwt.h"
#include "auth/jwt_cache.h"
#include "bench/timing.h"
#include "tests/unit/router/auth/jwt_make.h"

#define ROUNDS  15
#define TOKENS  64 /* number of tokens of each algorithm */
#define LOOKS   20000
#define NOW     1800000000

static char issuer[] = "https://issuer.example", aud[] = "kvway", sub[] = "sub", tenant[] = "tenant";
static char class[] = "class", models[] = "models", paths[] = "paths", limits[] = "limits";
static char *audience[] = {aud};
static const struct kvw_config config = {
	.auth_jwt_issuer = issuer,
	.auth_jwt_audience = {audience, 1},
	.auth_jwt_name_claim = sub,
	.auth_jwt_tenant_claim = tenant,
	.auth_jwt_class_claim = class,
	.auth_jwt_models_claim = models,
	.auth_jwt_paths_claim = paths,
	.auth_jwt_limits_claim = limits,
};

static void print_median(const char *name, double rounds[ROUNDS], double looks)
{
	printf("%s %.0f\n", name, kvb_median(rounds, ROUNDS) / looks * 1e9);
}

static struct kvw_jwks *set_of(EVP_PKEY *pkey)
{
	char *jwk = make_jwk(pkey, ",\"kid\":\"k\""), *text = make_text("{\"keys\":[%s]}", jwk), why[256];
	struct kvw_jwks *jwks;

	MAKE_MUST(kvw_jwks_parse(text, strlen(text), why, sizeof(why), &jwks) == KVW_OK);
	free(text);
	free(jwk);
	return jwks;
}

static void make_tokens(EVP_PKEY *pkey, const char *alg, char *tokens[TOKENS])
{
	char *header = make_text("{\"alg\":\"%s\",\"typ\":\"JWT\",\"kid\":\"k\"}", alg);

	for (int i = 0; i < TOKENS; i++) {
		char *claims = make_text("{\"iss\":\"https://issuer.example\",\"aud\":\"kvway\",\"sub\":\"user%d\","
					 "\"iat\":1799999000,\"exp\":1800003600,\"tenant\":\"lab\",\"jti\":\"%032d\"}",
			i, i);

		tokens[i] = make_token(pkey, header, claims);
		free(claims);
	}
	free(header);
}

static void bench_algorithm(EVP_PKEY *pkey, const char *alg, const char *name)
{
	struct kvw_jwks *jwks = set_of(pkey);
	char *tokens[TOKENS];
	double rounds[ROUNDS];

	make_tokens(pkey, alg, tokens);
	for (int round = 0; round < ROUNDS; round++) {
		double start = kvb_cpu_seconds();

		for (int i = 0; i < TOKENS; i++) {
			struct kvw_client_key *key;
			struct kvw_digest digest;

			kvw_key_digest(kvw_slice_of(tokens[i]), &digest);
			MAKE_MUST(kvw_jwt_verify(&config, jwks, kvw_slice_of(tokens[i]), NOW, &key) == KVW_JWT_GOOD);
			kvw_client_keys_free(key, 1);
		}
		rounds[round] = kvb_cpu_seconds() - start;
	}
	print_median(name, rounds, TOKENS);
	for (int i = 0; i < TOKENS; i++)
		free(tokens[i]);
	kvw_jwks_unref(jwks);
	EVP_PKEY_free(pkey);
}

static void bench_memory(void)
{
	EVP_PKEY *pkey = EVP_EC_gen("P-256");
	struct kvw_jwt_cache *cache;
	char *tokens[TOKENS];
	double rounds[ROUNDS];

	MAKE_MUST(kvw_jwt_cache_create(8192, &cache) == KVW_OK);
	make_tokens(pkey, "ES256", tokens);
	for (int round = 0; round < ROUNDS; round++) {
		double start = kvb_cpu_seconds();

		for (int i = 0; i < LOOKS; i++) {
			const char *token = tokens[i % TOKENS];
			struct kvw_digest digest;
			struct kvw_keyring *ring;
			size_t twice;

			kvw_key_digest(kvw_slice_of(token), &digest);
			ring = kvw_jwt_cache_find(cache, &digest, 1, NOW);
			if (ring == NULL) {
				struct kvw_client_key *key = calloc(1, sizeof(*key));

				MAKE_MUST(key != NULL && kvw_keyring_create(key, 1, &ring, &twice) == KVW_OK);
				kvw_jwt_cache_put(cache, &digest, 1, NOW + 1, NOW, ring);
			}
			kvw_keyring_unref(ring);
		}
		rounds[round] = kvb_cpu_seconds() - start;
	}
	print_median("remembered_ns", rounds, LOOKS);
	for (int i = 0; i < TOKENS; i++)
		free(tokens[i]);
	kvw_jwt_cache_destroy(cache);
	EVP_PKEY_free(pkey);
}

int main(void)
{
	bench_algorithm(EVP_RSA_gen(2048), "RS256", "rs256_ns");
	bench_algorithm(EVP_EC_gen("P-256"), "ES256", "es256_ns");
	bench_algorithm(EVP_PKEY_Q_keygen(NULL, NULL, "ED25519"), "EdDSA", "eddsa_ns");
	bench_memory();
	return 0;
}
