/*
 * jwt_gate_test.c - tokens at the gate: remembered until they end or the keys change; keys that are replaced, and that
 * cannot be read for too long.
 */
#include <check.h>
#include <time.h>
#include <unistd.h>

#include "auth/auth.h"
#include "auth/jwt_cache.h"
#include "auth/jwt_gate.h"
#include "tests/unit/router/auth/jwt_make.h"
#include "tests/unit/suite.h"

#define NOW    1800000000
#define CLAIMS "{\"iss\":\"i\",\"aud\":\"a\",\"sub\":\"alice\",\"exp\":1800000600}"

static char folder[] = "/tmp/kvw-jwt-XXXXXX";
static char path[64], other[64];
static EVP_PKEY *first, *second;
static char a[] = "a", issuer[] = "i", sub[] = "sub", none[] = "", missing[] = "/nowhere/x";
static char *audience[] = {a};

static struct kvw_config config_of(void)
{
	return (struct kvw_config){
		.auth_jwt_jwks_file = path,
		.auth_jwt_jwks_url = none,
		.auth_jwt_jwks_ca_file = none,
		.auth_jwt_issuer = issuer,
		.auth_jwt_audience = {audience, 1},
		.auth_jwt_name_claim = sub,
		.auth_jwt_tenant_claim = none,
		.auth_jwt_class_claim = none,
		.auth_jwt_models_claim = none,
		.auth_jwt_paths_claim = none,
		.auth_jwt_limits_claim = none,
		.auth_jwt_refresh_pause_ms = 100,
		.auth_jwt_refresh_ms = 1000,
		.auth_jwt_keep_ms = 3600000,
		.auth_jwt_remember = 64,
	};
}

static void write_keys(EVP_PKEY *pkey, const char *kid)
{
	char *more = make_text(",\"kid\":\"%s\"", kid), *jwk = make_jwk(pkey, more);
	FILE *out = fopen(other, "w");

	ck_assert_ptr_nonnull(out);
	fprintf(out, "{\"keys\":[%s]}", jwk);
	ck_assert_int_eq(fclose(out), 0);
	ck_assert_int_eq(rename(other, path), 0);
	free(more);
	free(jwk);
}

static char *token_of(EVP_PKEY *pkey, const char *kid)
{
	char *header = make_text("{\"alg\":\"ES256\",\"kid\":\"%s\"}", kid), *out = make_token(pkey, header, CLAIMS);

	free(header);
	return out;
}

static enum kvw_jwt_verdict check_at(struct kvw_jwt_gate *gate, const char *token, int64_t now_s)
{
	struct kvw_keyring *ring = NULL;
	struct kvw_digest digest;
	enum kvw_jwt_verdict verdict;

	kvw_key_digest(kvw_slice_of(token), &digest);
	verdict = kvw_jwt_gate_check(gate, kvw_slice_of(token), &digest, now_s, &ring);
	if (verdict == KVW_JWT_GOOD)
		ck_assert_str_eq(kvw_keyring_find(ring, &digest)->name, "jwt:alice");
	kvw_keyring_unref(ring);
	return verdict;
}

/* Until the token is judged so once; fails after 20 s. A later check may judge otherwise: the pause between two
 * readings of the keys ends, and keys that cannot be read grow too old. */
static void await(struct kvw_jwt_gate *gate, const char *token, enum kvw_jwt_verdict verdict)
{
	const struct timespec wait = {.tv_nsec = 5000000};
	enum kvw_jwt_verdict last = check_at(gate, token, NOW);

	for (int i = 0; i < 4000 && last != verdict; i++) {
		nanosleep(&wait, NULL);
		last = check_at(gate, token, NOW);
	}
	ck_assert_int_eq(last, verdict);
}

START_TEST(a_token_is_verified_once)
{
	struct kvw_config config = config_of();
	struct kvw_jwt_gate *gate = NULL;
	char *token = token_of(first, "1");
	const struct kvw_jwt_gate_state *state;

	write_keys(first, "1");
	ck_assert(kvw_jwt_wanted(&config));
	ck_assert_int_eq(kvw_jwt_gate_start(&config, stderr, &gate), KVW_OK);
	state = kvw_jwt_gate_state(gate);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(check_at(gate, token, NOW), KVW_JWT_GOOD);
	ck_assert_uint_eq(atomic_load(&state->verified), 1);
	ck_assert_uint_eq(atomic_load(&state->remembered), 4);
	ck_assert_int_eq(check_at(gate, token, NOW + 600), KVW_JWT_EXPIRED); /* also when it is remembered */
	ck_assert_uint_eq(atomic_load(&state->refused[KVW_JWT_EXPIRED]), 1);
	kvw_jwt_gate_stop(gate);
	config.auth_jwt_remember = 0;
	ck_assert_int_eq(kvw_jwt_gate_start(&config, stderr, &gate), KVW_OK);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(check_at(gate, token, NOW), KVW_JWT_GOOD);
	ck_assert_uint_eq(atomic_load(&kvw_jwt_gate_state(gate)->verified), 2);
	kvw_jwt_gate_stop(gate);
	free(token);
}
END_TEST

/* A token of a key that was taken out ends with it, remembered or not. */
START_TEST(keys_are_replaced)
{
	struct kvw_config config = config_of();
	struct kvw_jwt_gate *gate = NULL;
	char *old = token_of(first, "1"), *new = token_of(second, "2");

	write_keys(first, "1");
	ck_assert_int_eq(kvw_jwt_gate_start(&config, stderr, &gate), KVW_OK);
	ck_assert_int_eq(check_at(gate, old, NOW), KVW_JWT_GOOD);
	write_keys(second, "2");
	await(gate, new, KVW_JWT_GOOD); /* asking for it has the file read */
	ck_assert_int_ne(check_at(gate, old, NOW), KVW_JWT_GOOD);
	await(gate, old, KVW_JWT_KEY);
	kvw_jwt_gate_stop(gate);
	free(old);
	free(new);
}
END_TEST

START_TEST(keys_that_cannot_be_read_end)
{
	struct kvw_config config = config_of();
	const struct kvw_jwt_gate_state *state;
	struct kvw_jwt_gate *gate = NULL;
	struct kvw_auth *auth = NULL;
	char *token = token_of(first, "1");

	write_keys(first, "1");
	config.auth_jwt_keep_ms = 1500;
	ck_assert_int_eq(kvw_auth_start("", stderr, &auth), KVW_OK); /* no keys file */
	ck_assert_int_eq(kvw_jwt_gate_start(&config, stderr, &gate), KVW_OK);
	kvw_auth_take_jwt(auth, gate);
	state = kvw_jwt_gate_state(gate);
	ck_assert_int_eq(unlink(path), 0);
	kvw_auth_reload(auth);
	while (atomic_load(&state->keys->failed) == 0)
		usleep(1000);
	await(kvw_auth_jwt(auth), token, KVW_JWT_NO_KEYS);
	ck_assert_uint_eq(atomic_load(&state->keys->keys), 0);
	write_keys(first, "1");
	await(gate, token, KVW_JWT_GOOD);
	ck_assert_int_eq(kvw_jwt_keys_age_s(state->keys, 0), 0);
	kvw_auth_stop(auth);
	free(token);
}
END_TEST

/* An issuer that withdraws its only key shows a good set without any: that is no failure to wait out. */
START_TEST(a_set_without_keys_ends_tokens)
{
	struct kvw_config config = config_of();
	struct kvw_jwt_gate *gate = NULL;
	char *token = token_of(first, "1");
	FILE *out;

	write_keys(first, "1");
	ck_assert_int_eq(kvw_jwt_gate_start(&config, stderr, &gate), KVW_OK);
	ck_assert_int_eq(check_at(gate, token, NOW), KVW_JWT_GOOD);
	out = fopen(other, "w");
	fputs("{\"keys\":[]}", out);
	fclose(out);
	ck_assert_int_eq(rename(other, path), 0);
	kvw_jwt_gate_reload(gate);
	await(gate, token, KVW_JWT_NO_KEYS);
	write_keys(first, "1");
	await(gate, token, KVW_JWT_GOOD);
	kvw_jwt_gate_stop(gate);
	free(token);
}
END_TEST

START_TEST(a_bad_file_is_no_start)
{
	struct kvw_config config = config_of();
	struct kvw_jwt_gate *gate = NULL;
	char *said = NULL;
	size_t len = 0, count = 0;
	FILE *errors = open_memstream(&said, &len), *out = fopen(path, "w");

	fputs("{\"keys\":[{\"kty\":\"oct\"}]}", out);
	fclose(out);
	ck_assert_int_eq(kvw_jwt_gate_start(&config, errors, &gate), KVW_EINVAL);
	ck_assert_int_eq(kvw_jwt_keys_check(path, errors, &count), KVW_EINVAL);
	config.auth_jwt_jwks_file = folder;
	ck_assert_int_eq(kvw_jwt_gate_start(&config, errors, &gate), KVW_EIO);
	ck_assert_int_eq(kvw_jwt_keys_check(missing, errors, &count), KVW_EIO);
	write_keys(first, "1");
	ck_assert_int_eq(kvw_jwt_keys_check(path, errors, &count), KVW_OK);
	ck_assert_uint_eq(count, 1);
	fclose(errors);
	ck_assert_ptr_null(gate);
	ck_assert_ptr_nonnull(strstr(said, "no key of use among 1"));
	ck_assert_ptr_nonnull(strstr(said, "not a regular file"));
	free(said);
	kvw_jwt_gate_stop(NULL);
}
END_TEST

static struct kvw_keyring *ring_of(int number, struct kvw_digest *digest)
{
	struct kvw_client_key *key = calloc(1, sizeof(*key));
	struct kvw_keyring *ring = NULL;
	char text[16];
	size_t twice;

	snprintf(text, sizeof(text), "%d", number);
	kvw_key_digest(kvw_slice_of(text), digest);
	key->sha256 = *digest;
	ck_assert_int_eq(kvw_keyring_create(key, 1, &ring, &twice), KVW_OK);
	return ring;
}

START_TEST(the_cache_is_bounded)
{
	struct kvw_jwt_cache *cache = NULL;
	struct kvw_keyring *held[200];
	struct kvw_digest digests[200];
	size_t found = 0;

	ck_assert_int_eq(kvw_jwt_cache_create(64, &cache), KVW_OK);
	for (int i = 0; i < 200; i++) {
		struct kvw_keyring *ring;

		held[i] = ring_of(i, &digests[i]);
		kvw_jwt_cache_put(cache, &digests[i], 1, 100, 0, held[i]);
		ring = kvw_jwt_cache_find(cache, &digests[0], 1, 0); /* the one in use stays */
		ck_assert_ptr_eq(ring, held[0]);
		kvw_keyring_unref(ring);
	}
	for (int i = 0; i < 200; i++)
		found += !kvw_keyring_alone(held[i]);
	ck_assert_uint_le(found, 64);
	ck_assert_uint_gt(found, 32);
	ck_assert_ptr_null(kvw_jwt_cache_find(cache, &digests[0], 2, 0));
	ck_assert_ptr_null(kvw_jwt_cache_find(cache, &digests[0], 1, 100));
	kvw_jwt_cache_destroy(cache);
	for (int i = 0; i < 200; i++) {
		ck_assert(kvw_keyring_alone(held[i]));
		kvw_keyring_unref(held[i]);
	}
	kvw_jwt_cache_destroy(NULL);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("jwt_gate");
	int failed;

	if (mkdtemp(folder) == NULL)
		return 1;
	snprintf(path, sizeof(path), "%s/jwks.json", folder);
	snprintf(other, sizeof(other), "%s/new.json", folder);
	first = EVP_EC_gen("P-256");
	second = EVP_EC_gen("P-256");
	tcase_set_timeout(tcase, 90);
	tcase_add_test(tcase, a_token_is_verified_once);
	tcase_add_test(tcase, keys_are_replaced);
	tcase_add_test(tcase, keys_that_cannot_be_read_end);
	tcase_add_test(tcase, a_set_without_keys_ends_tokens);
	tcase_add_test(tcase, a_bad_file_is_no_start);
	tcase_add_test(tcase, the_cache_is_bounded);
	failed = run_tcase("jwt_gate", tcase);
	EVP_PKEY_free(first);
	EVP_PKEY_free(second);
	(void)unlink(path);
	(void)rmdir(folder);
	return failed;
}
