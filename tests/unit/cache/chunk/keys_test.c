/*
 * keys_test.c - keys, chain ids and tenants against digests that Python's hashlib made from the
 * description at the top of keys.c, and every part of a key changes it.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvtier/kvtier.h"
#include "tests/unit/suite.h"

static uint8_t chain_id[64];

static struct kvt_key_parts sample(void)
{
	struct kvt_key_parts parts = {
		.size = sizeof(parts),
		.rank = 3,
		.chain_id = chain_id,
		.chain_id_bytes = 32,
		.hash_recipe = "sha256_cbor",
		.hash_seed = "0",
	};

	for (size_t i = 0; i < sizeof(chain_id); i++)
		chain_id[i] = (uint8_t)i;
	for (size_t i = 0; i < sizeof(parts.fingerprint.bytes); i++)
		parts.fingerprint.bytes[i] = (uint8_t)(100 + i);
	for (size_t i = 0; i < sizeof(parts.tenant.bytes); i++)
		parts.tenant.bytes[i] = (uint8_t)(200 + i);
	return parts;
}

static void hex(const uint8_t *bytes, size_t n, char *out)
{
	for (size_t i = 0; i < n; i++)
		sprintf(out + 2 * i, "%02x", bytes[i]);
}

static void check_hex(const uint8_t *bytes, size_t n, const char *expected)
{
	char text[65];

	hex(bytes, n, text);
	ck_assert_str_eq(text, expected);
}

START_TEST(test_key_vectors)
{
	struct kvt_key_parts parts = sample();
	struct kvt_key key;

	ck_assert_int_eq(kvt_key_make(&parts, &key), KVT_OK);
	check_hex(
		key.bytes, 32, "259e9e8fb56607cee58e7fd794f69a891d10b5b524a20b95460fc8c90a49ef12");
	parts.hash_seed = NULL;
	ck_assert_int_eq(kvt_key_make(&parts, &key), KVT_OK);
	check_hex(
		key.bytes, 32, "b239097738e23b2d1cd5dd692032fd135db0d23c09cb54eaed5fc8c9f1d9ab4a");
}
END_TEST

/* One change per case. */
static void vary(struct kvt_key_parts *parts, int which)
{
	switch (which) {
	case 0:
		parts->rank = 4;
		break;
	case 1:
		chain_id[31] ^= 1;
		break;
	case 2:
		parts->chain_id_bytes = 31;
		break;
	case 3:
		parts->chain_id_bytes = 33;
		break;
	case 4:
		parts->hash_recipe = "sha256";
		break;
	case 5: /* the same letters, cut elsewhere */
		parts->hash_recipe = "sha256_cbor0";
		parts->hash_seed = "";
		break;
	case 6:
		parts->hash_seed = "1";
		break;
	case 7:
		parts->hash_seed = NULL;
		break;
	case 8:
		parts->hash_seed = "";
		break;
	case 9:
		parts->fingerprint.bytes[0] ^= 0x80;
		break;
	case 10:
		parts->tenant.bytes[15] ^= 1;
		break;
	default:
		break; /* the sample itself */
	}
}

START_TEST(test_every_part_counts)
{
	struct kvt_key keys[12];

	for (int i = 0; i < 12; i++) {
		struct kvt_key_parts parts = sample();

		vary(&parts, i);
		ck_assert_int_eq(kvt_key_make(&parts, &keys[i]), KVT_OK);
		for (int k = 0; k < i; k++)
			ck_assert_int_ne(memcmp(&keys[i], &keys[k], sizeof(keys[i])), 0);
	}
}
END_TEST

START_TEST(test_key_refusals)
{
	struct kvt_key key, untouched;
	struct kvt_key_parts parts = sample();

	memset(&key, 0x5a, sizeof(key));
	untouched = key;
	ck_assert_int_eq(kvt_key_make(NULL, &key), KVT_EINVAL);
	ck_assert_int_eq(kvt_key_make(&parts, NULL), KVT_EINVAL);
	parts.chain_id_bytes = 15;
	ck_assert_int_eq(kvt_key_make(&parts, &key), KVT_EINVAL);
	parts.chain_id_bytes = 65;
	ck_assert_int_eq(kvt_key_make(&parts, &key), KVT_EINVAL);
	parts = sample();
	parts.chain_id = NULL;
	ck_assert_int_eq(kvt_key_make(&parts, &key), KVT_EINVAL);
	parts = sample();
	parts.hash_recipe = NULL;
	ck_assert_int_eq(kvt_key_make(&parts, &key), KVT_EINVAL);
	parts.hash_recipe = "";
	ck_assert_int_eq(kvt_key_make(&parts, &key), KVT_EINVAL);
	parts = sample();
	parts.size = sizeof(parts) - 1;
	ck_assert_int_eq(kvt_key_make(&parts, &key), KVT_EINVAL);
	ck_assert_int_eq(memcmp(&key, &untouched, sizeof(key)), 0);
	parts = sample();
	parts.chain_id_bytes = 16;
	ck_assert_int_eq(kvt_key_make(&parts, &key), KVT_OK);
	parts.chain_id_bytes = 64;
	ck_assert_int_eq(kvt_key_make(&parts, &key), KVT_OK);
}
END_TEST

/* A caller with a later header: what this version does not know must not be lost silently. */
START_TEST(test_key_of_later_header)
{
	struct {
		struct kvt_key_parts parts;
		uint64_t later;
	} grown = {.parts = sample()};
	struct kvt_key_parts parts = sample();
	struct kvt_key key, plain;

	grown.parts.size = sizeof(grown);
	ck_assert_int_eq(kvt_key_make(&parts, &plain), KVT_OK);
	ck_assert_int_eq(kvt_key_make(&grown.parts, &key), KVT_OK);
	ck_assert_int_eq(memcmp(&key, &plain, sizeof(key)), 0);
	grown.later = 1;
	ck_assert_int_eq(kvt_key_make(&grown.parts, &key), KVT_EINVAL);
}
END_TEST

START_TEST(test_chain_vectors)
{
	uint32_t tokens[100];
	uint8_t id[32];

	for (uint32_t i = 0; i < 100; i++)
		tokens[i] = i * 7;
	kvt_chain_id(NULL, tokens, 100, id);
	check_hex(id, 32, "db0f4b9af62728c6fbf204c149ec6b6180bc0ffb8d9ab0a769b7b841bbd04b2d");
	kvt_chain_id(id, tokens, 3, id); /* in place */
	check_hex(id, 32, "42fb3e65150f324cf67c8e1ba509766122135ef84ce85678f1da9e87f9f6934c");
	kvt_chain_id(NULL, NULL, 0, id);
	check_hex(id, 32, "e1a723acaa5b83ca853ca4e7e7f0f191913df40494a7712aca3a5dca0da26731");
}
END_TEST

START_TEST(test_tenants)
{
	struct kvt_tenant tenant, zero = {{0}}, other;

	kvt_tenant_of("salt", 4, &tenant);
	check_hex(tenant.bytes, 16, "0b6604b4f2c85508d733bb61493ebd71");
	kvt_tenant_of("salt", 3, &other);
	ck_assert_int_ne(memcmp(&tenant, &other, sizeof(tenant)), 0);
	kvt_tenant_of("x", 0, &tenant);
	ck_assert_int_eq(memcmp(&tenant, &zero, sizeof(tenant)), 0);
	kvt_tenant_of(NULL, 0, &tenant);
	ck_assert_int_eq(memcmp(&tenant, &zero, sizeof(tenant)), 0);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("all");

	tcase_add_test(tcase, test_key_vectors);
	tcase_add_test(tcase, test_every_part_counts);
	tcase_add_test(tcase, test_key_refusals);
	tcase_add_test(tcase, test_key_of_later_header);
	tcase_add_test(tcase, test_chain_vectors);
	tcase_add_test(tcase, test_tenants);
	return run_tcase("keys", tcase);
}
