/*
 * crypto_test.c - the algorithms against published vectors and the definition.
 */
#include <check.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>

#include "protect/crypto.h"
#include "tests/unit/suite.h"

static size_t from_hex(const char *hex, uint8_t *out)
{
	size_t n = strlen(hex) / 2;

	for (size_t i = 0; i < n; i++) {
		unsigned byte;

		ck_assert_int_eq(sscanf(hex + 2 * i, "%2x", &byte), 1);
		out[i] = (uint8_t)byte;
	}
	return n;
}

/* Test case 16 of "The Galois/Counter Mode of Operation", McGrew and Viega. */
START_TEST(gcm_is_as_published)
{
	uint8_t key[32], iv[12], aad[20], plain[60], expected[60], tag[16], made[60], made_tag[16];
	struct kvt_crypto crypto;
	struct kvt_crypto_message m = {.key = key,
		.iv = iv,
		.aad = aad,
		.from = plain,
		.to = made,
		.bytes = sizeof(plain),
		.tag = made_tag};

	from_hex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308", key);
	from_hex("cafebabefacedbaddecaf888", iv);
	m.aad_bytes = from_hex("feedfacedeadbeeffeedfacedeadbeefabaddad2", aad);
	from_hex(
		"d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532f"
		"cf0e2449a6b525b16aedf5aa0de657ba637b39",
		plain);
	from_hex(
		"522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7"
		"b08b1056828838c5f61e6393ba7a0abcc9f662",
		expected);
	from_hex("76fc6ece0f4e1768cddf8853bb2d551b", tag);
	ck_assert_int_eq(kvt_crypto_init(&crypto), KVT_OK);
	ck_assert_int_eq(kvt_crypto_seal(&crypto, &m), KVT_OK);
	ck_assert_mem_eq(made, expected, sizeof(made));
	ck_assert_mem_eq(made_tag, tag, sizeof(tag));
	m.from = expected;
	ck_assert_int_eq(kvt_crypto_open(&crypto, &m), KVT_OK);
	ck_assert_mem_eq(made, plain, sizeof(plain));
	for (size_t bit = 0; bit < 8 * sizeof(aad); bit++) {
		aad[bit / 8] ^= (uint8_t)(1 << bit % 8);
		ck_assert_int_eq(kvt_crypto_open(&crypto, &m), KVT_ECORRUPT);
		for (size_t i = 0; i < sizeof(made); i++)
			ck_assert_uint_eq(made[i], 0);
		aad[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	kvt_crypto_finish(&crypto);
}
END_TEST

/* RFC 5869: PRK = HMAC(salt, key); first block = HMAC(PRK, info | 0x01). */
START_TEST(hkdf_is_as_defined)
{
	uint8_t key[32], salt[16], prk[32], block[64], expected[32], made[32];
	static const char info[] = "what it is for";
	struct kvt_crypto crypto;
	unsigned n = 0;

	for (size_t i = 0; i < sizeof(key); i++)
		key[i] = (uint8_t)(7 * i + 1);
	for (size_t i = 0; i < sizeof(salt); i++)
		salt[i] = (uint8_t)(251 - i);
	HMAC(EVP_sha256(), salt, sizeof(salt), key, sizeof(key), prk, &n);
	memcpy(block, info, sizeof(info) - 1);
	block[sizeof(info) - 1] = 1;
	HMAC(EVP_sha256(), prk, sizeof(prk), block, sizeof(info), expected, &n);
	ck_assert_int_eq(kvt_crypto_init(&crypto), KVT_OK);
	ck_assert_int_eq(kvt_crypto_subkey(&crypto, key, salt, info, made), KVT_OK);
	ck_assert_mem_eq(made, expected, sizeof(made));
	salt[0] ^= 1;
	ck_assert_int_eq(kvt_crypto_subkey(&crypto, key, salt, info, made), KVT_OK);
	ck_assert_mem_ne(made, expected, sizeof(made));
	kvt_crypto_finish(&crypto);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("crypto");

	tcase_add_test(tc, gcm_is_as_published);
	tcase_add_test(tc, hkdf_is_as_defined);
	return run_tcase("cache-protect-crypto", tc);
}
