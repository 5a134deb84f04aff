/*
 * siphash_test.c - SipHash-2-4 against its authors' vectors, and the numbers of Python's hash().
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/suite.h"
#include "wire/pyhash.h"

/* siphash-2-4 of 00, 00 01, ... under the key 00 01 .. 0f, by length: vectors.h of the authors'
 * reference implementation, as little-endian words. The first 17 cover every way a tail can end. */
static const uint64_t authors[] = {
	UINT64_C(0x726fdb47dd0e0e31),
	UINT64_C(0x74f839c593dc67fd),
	UINT64_C(0x0d6c8009d9a94f5a),
	UINT64_C(0x85676696d7fb7e2d),
	UINT64_C(0xcf2794e0277187b7),
	UINT64_C(0x18765564cd99a68d),
	UINT64_C(0xcbc9466e58fee3ce),
	UINT64_C(0xab0200f58b01d137),
	UINT64_C(0x93f5f5799a932462),
	UINT64_C(0x9e0082df0ba9e4b0),
	UINT64_C(0x7a5dbbc594ddb9f3),
	UINT64_C(0xf4b32f46226bada7),
	UINT64_C(0x751e8fbc860ee5fb),
	UINT64_C(0x14ea5627c0843d90),
	UINT64_C(0xf723ca908e7af2ee),
	UINT64_C(0xa129ca6149be45e5),
	UINT64_C(0x3f2acc7f57c29bdb),
};

START_TEST(siphash_24_gives_its_authors_vectors)
{
	uint8_t message[64];

	for (size_t i = 0; i < sizeof(message); i++)
		message[i] = (uint8_t)i;
	for (size_t len = 0; len < sizeof(authors) / sizeof(authors[0]); len++)
		ck_assert_uint_eq(kvw_siphash(KVW_SIPHASH_24, UINT64_C(0x0706050403020100),
					  UINT64_C(0x0f0e0d0c0b0a0908), message, len),
			authors[len]);
}
END_TEST

/* Printed by CPython 3.11.7 (1-3) and 3.10.13 (2-4) under PYTHONHASHSEED. */
static const struct {
	const char *seed, *text;
	int64_t hash13, hash24;
} texts[] = {
#include "data/text_hashes.inc"
};

START_TEST(strings_hash_as_in_python)
{
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct kvw_py_key key;
		size_t len = strlen(texts[i].text);

		ck_assert_int_eq(kvw_py_key_init(&key, KVW_SIPHASH_13, texts[i].seed), KVW_OK);
		ck_assert_int_eq(
			(int64_t)kvw_py_hash_text(&key, texts[i].text, len), texts[i].hash13);
		ck_assert_int_eq(kvw_py_key_init(&key, KVW_SIPHASH_24, texts[i].seed), KVW_OK);
		ck_assert_int_eq(
			(int64_t)kvw_py_hash_text(&key, texts[i].text, len), texts[i].hash24);
	}
}
END_TEST

START_TEST(a_seed_is_a_number_of_32_bits)
{
	static const char *const bad[] = {"", "random", "-1", "+1", " 1", "1 ", "0x10",
		"4294967296", "99999999999999999999999999"};
	struct kvw_py_key key, other;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_int_eq(kvw_py_key_init(&key, KVW_SIPHASH_13, bad[i]), KVW_EINVAL);
	ck_assert_int_eq(kvw_py_key_init(&key, KVW_SIPHASH_13, "4294967295"), KVW_OK);
	ck_assert_int_eq(kvw_py_key_init(&key, KVW_SIPHASH_13, "00123"), KVW_OK);
	ck_assert_int_eq(kvw_py_key_init(&other, KVW_SIPHASH_13, "123"), KVW_OK);
	ck_assert_uint_eq(key.k0, other.k0);
	ck_assert_uint_eq(key.k1, other.k1);
}
END_TEST

START_TEST(ints_hash_as_in_python)
{
	static const int64_t prime = (INT64_C(1) << 61) - 1;

	ck_assert_int_eq((int64_t)kvw_py_hash_int(0), 0);
	ck_assert_int_eq((int64_t)kvw_py_hash_int(1), 1);
	ck_assert_int_eq((int64_t)kvw_py_hash_int(-1), -2);
	ck_assert_int_eq((int64_t)kvw_py_hash_int(-2), -2);
	ck_assert_int_eq((int64_t)kvw_py_hash_int(prime), 0);
	ck_assert_int_eq((int64_t)kvw_py_hash_int(-prime), 0);
	ck_assert_int_eq((int64_t)kvw_py_hash_int(prime - 1), prime - 1);
	ck_assert_int_eq((int64_t)kvw_py_hash_int(-prime - 1), -2);
	ck_assert_int_eq((int64_t)kvw_py_hash_int(INT64_MAX), 3);
	ck_assert_int_eq((int64_t)kvw_py_hash_int(INT64_MIN), -4);
}
END_TEST

/* hash(()), hash((1, 2, 3)), hash((-1, -2)), hash((2**32 - 1,)) of any CPython since 3.8. */
START_TEST(tuples_hash_as_in_python)
{
	struct kvw_py_tuple empty = {KVW_PY_TUPLE_START, 0}, tuple = empty;

	ck_assert_int_eq((int64_t)kvw_py_tuple_hash(&empty), INT64_C(5740354900026072187));
	for (int64_t i = 1; i <= 3; i++)
		kvw_py_tuple_add(&tuple, kvw_py_hash_int(i));
	ck_assert_int_eq((int64_t)kvw_py_tuple_hash(&tuple), INT64_C(529344067295497451));
	tuple = empty;
	kvw_py_tuple_add(&tuple, kvw_py_hash_int(-1));
	kvw_py_tuple_add(&tuple, kvw_py_hash_int(-2));
	ck_assert_int_eq((int64_t)kvw_py_tuple_hash(&tuple), INT64_C(960947337673586213));
	tuple = empty;
	kvw_py_tuple_add(&tuple, kvw_py_hash_int(INT64_C(4294967295)));
	ck_assert_int_eq((int64_t)kvw_py_tuple_hash(&tuple), INT64_C(4931568673036964247));
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("siphash");

	tcase_add_test(tcase, siphash_24_gives_its_authors_vectors);
	tcase_add_test(tcase, strings_hash_as_in_python);
	tcase_add_test(tcase, a_seed_is_a_number_of_32_bits);
	tcase_add_test(tcase, ints_hash_as_in_python);
	tcase_add_test(tcase, tuples_hash_as_in_python);
	return run_tcase("siphash", tcase);
}
