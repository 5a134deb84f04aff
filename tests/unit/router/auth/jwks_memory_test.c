/*
 * jwks_memory_test.c - a set of keys for which memory ran out is no set whose keys the issuer has withdrawn.
 *
 * OpenSSL and jansson allocate through functions that fail from the n-th allocation on, for every n.
 */
#include <check.h>
#include <jansson.h>
#include <openssl/crypto.h>

#include "auth/jwks.h"
#include "tests/unit/router/auth/jwt_make.h"
#include "tests/unit/suite.h"

static long allowed = -1; /* allocations that still succeed; -1: all */

static bool may_allocate(void)
{
	if (allowed < 0)
		return true;
	if (allowed > 0)
		allowed--;
	return allowed > 0;
}

static void *get(size_t size, const char *file, int line)
{
	(void)file;
	(void)line;
	return may_allocate() ? malloc(size) : NULL;
}

static void *grow(void *block, size_t size, const char *file, int line)
{
	(void)file;
	(void)line;
	return may_allocate() ? realloc(block, size) : NULL;
}

static void put(void *block, const char *file, int line)
{
	(void)file;
	(void)line;
	free(block);
}

static void *get_for_json(size_t size)
{
	return get(size, NULL, 0);
}

START_TEST(want_of_memory_withdraws_no_key)
{
	EVP_PKEY *pkeys[] = {EVP_RSA_gen(2048), EVP_EC_gen("P-256"), EVP_PKEY_Q_keygen(NULL, NULL, "ED25519")};
	char *jwks_text[3], *text, why[256];
	struct kvw_jwks *jwks = NULL;
	enum kvw_err err = KVW_ENOMEM;
	size_t starved = 0;

	for (size_t i = 0; i < 3; i++) {
		jwks_text[i] = make_jwk(pkeys[i], "");
		EVP_PKEY_free(pkeys[i]);
	}
	text = make_text("{\"keys\":[%s,%s,%s]}", jwks_text[0], jwks_text[1], jwks_text[2]);
	ck_assert_int_eq(kvw_jwks_parse(text, strlen(text), why, sizeof(why), &jwks), KVW_OK); /* what OpenSSL loads once */
	kvw_jwks_unref(jwks);
	for (long most = 1; err != KVW_OK; most++) {
		allowed = most;
		err = kvw_jwks_parse(text, strlen(text), why, sizeof(why), &jwks);
		allowed = -1;
		/* jansson takes some of its own want of memory for bad JSON, which withdraws nothing either. */
		ck_assert_msg(err != KVW_ENOTFOUND, "%ld allocations: %s", most, why);
		starved += err == KVW_ENOMEM;
		if (err != KVW_OK)
			continue;
		ck_assert_uint_eq(kvw_jwks_count(jwks), 3);
		kvw_jwks_unref(jwks);
	}
	ck_assert_uint_gt(starved, 20);
	for (size_t i = 0; i < 3; i++)
		free(jwks_text[i]);
	free(text);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("jwks_memory");

	if (CRYPTO_set_mem_functions(get, grow, put) != 1)
		return 1;
	json_set_alloc_funcs(get_for_json, free);
	tcase_add_test(tcase, want_of_memory_withdraws_no_key);
	tcase_set_timeout(tcase, 60);
	return run_tcase("jwks_memory", tcase);
}
