/*
 * bytes_test.c - what the tiers' formats share: sums, headers of seals, hex.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tiers/bytes.h"
#include "tests/unit/suite.h"

static const size_t lengths[] = {32, 128, 200, 336, 4096, 12288};

static void fill(uint8_t *block, size_t len)
{
	for (size_t i = 0; i < len; i++)
		block[i] = (uint8_t)(i * 7 + 3);
}

/* The sum is the one-shot hash of the block with its own place zero, whatever was there before. */
START_TEST(a_stamp_is_the_sum_of_the_rest)
{
	size_t len = lengths[_i];
	uint8_t block[12288], plain[12288];
	XXH128_hash_t expected;

	fill(block, len);
	memcpy(plain, block, len);
	memset(plain + 16, 0, 16);
	expected = XXH3_128bits_withSeed(plain, len, 99);
	kvt_bytes_stamp(block, len, 99);
	ck_assert_uint_eq(kvt_get64(block + 16), expected.low64);
	ck_assert_uint_eq(kvt_get64(block + 24), expected.high64);
	expected = XXH3_128bits(plain, len);
	kvt_bytes_stamp(block, len, 0);
	ck_assert_uint_eq(kvt_get64(block + 16), expected.low64);
	ck_assert_uint_eq(kvt_get64(block + 24), expected.high64);
}
END_TEST

START_TEST(any_changed_byte_fails_the_proof)
{
	uint8_t block[336];

	fill(block, sizeof(block));
	ck_assert(!kvt_bytes_prove(block, sizeof(block), 5));
	kvt_bytes_stamp(block, sizeof(block), 5);
	ck_assert(kvt_bytes_prove(block, sizeof(block), 5));
	ck_assert(!kvt_bytes_prove(block, sizeof(block), 6));
	ck_assert(!kvt_bytes_prove(block, sizeof(block) - 1, 5));
	for (size_t i = 0; i < sizeof(block); i++) {
		block[i] ^= 0x10;
		ck_assert(!kvt_bytes_prove(block, sizeof(block), 5));
		block[i] ^= 0x10;
	}
}
END_TEST

START_TEST(a_seal_keeps_its_bytes)
{
	static const uint8_t expected[KVT_BYTES_SEAL] = {1, 0, 0, 0, 4, 3, 2, 1, 8, 7, 6, 5, 4, 3, 2,
		1, 's', 'a', 'l', 't', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80};
	struct kvt_seal_header seal = {
		.format = 1,
		.key_id = 0x01020304,
		.tenant_key_id = 0x0102030405060708,
		.salt = "salt",
		.first_nonce = UINT64_C(1) << 63,
	};
	struct kvt_seal_header again;
	uint8_t bytes[KVT_BYTES_SEAL];

	kvt_bytes_put_seal(bytes, &seal);
	ck_assert_mem_eq(bytes, expected, sizeof(bytes));
	kvt_bytes_get_seal(bytes, &again);
	ck_assert_mem_eq(&again, &seal, sizeof(seal));
}
END_TEST

START_TEST(hex_ends_with_a_nul)
{
	static const uint8_t bytes[] = {0x00, 0x9f, 0xa0, 0xff};
	char text[16];

	memset(text, 'x', sizeof(text));
	ck_assert_ptr_eq(kvt_bytes_put_hex(text, bytes, sizeof(bytes)), text + 8);
	ck_assert_str_eq(text, "009fa0ff");
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("bytes");

	tcase_add_loop_test(
		tcase, a_stamp_is_the_sum_of_the_rest, 0, sizeof(lengths) / sizeof(lengths[0]));
	tcase_add_test(tcase, any_changed_byte_fails_the_proof);
	tcase_add_test(tcase, a_seal_keeps_its_bytes);
	tcase_add_test(tcase, hex_ends_with_a_nul);
	return run_tcase("bytes", tcase);
}
