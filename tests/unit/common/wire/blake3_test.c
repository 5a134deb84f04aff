/*
 * blake3_test.c - BLAKE3 against its authors' vectors, and the chunk hashes of LMCache's servers.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/suite.h"
#include "wire/lmcache_chunks.h"

#define LONGEST 102400u

/* The first 32 bytes of the authors' test_vectors.json, of inputs 0, 1, ... 250, 0, 1, ... by
 * length. The lengths cover one block, one chunk, and trees of each shape. */
static const struct {
	size_t len;
	const char *digest;
} vectors[] = {
	{0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"},
	{1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"},
	{63, "e9bc37a594daad83be9470df7f7b3798297c3d834ce80ba85d6e207627b7db7b"},
	{64, "4eed7141ea4a5cd4b788606bd23f46e212af9cacebacdc7d1f4c6dc7f2511b98"},
	{65, "de1e5fa0be70df6d2be8fffd0e99ceaa8eb6e8c93a63f2d8d1c30ecb6b263dee"},
	{127, "d81293fda863f008c09e92fc382a81f5a0b4a1251cba1634016a0f86a6bd640d"},
	{128, "f17e570564b26578c33bb7f44643f539624b05df1a76c81f30acd548c44b45ef"},
	{129, "683aaae9f3c5ba37eaaf072aed0f9e30bac0865137bae68b1fde4ca2aebdcb12"},
	{1023, "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11"},
	{1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"},
	{1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"},
	{2048, "e776b6028c7cd22a4d0ba182a8bf62205d2ef576467e838ed6f2529b85fba24a"},
	{2049, "5f4d72f40d7a5f82b15ca2b2e44b1de3c2ef86c426c95c1af0b6879522563030"},
	{3072, "b98cb0ff3623be03326b373de6b9095218513e64f1ee2edd2525c7ad1e5cffd2"},
	{3073, "7124b49501012f81cc7f11ca069ec9226cecb8a2c850cfe644e327d22d3e1cd3"},
	{4096, "015094013f57a5277b59d8475c0501042c0b642e531b0a1c8f58d2163229e969"},
	{4097, "9b4052b38f1c5fc8b1f9ff7ac7b27cd242487b3d890d15c96a1c25b8aa0fb995"},
	{5120, "9cadc15fed8b5d854562b26a9536d9707cadeda9b143978f319ab34230535833"},
	{8192, "aae792484c8efe4f19e2ca7d371d8c467ffb10748d8a5a1ae579948f718a2a63"},
	{8193, "bab6c09cb8ce8cf459261398d2e7aef35700bf488116ceb94a36d0f5f1b7bc3b"},
	{16384, "f875d6646de28985646f34ee13be9a576fd515f76b5b0a26bb324735041ddde4"},
	{31744, "62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32e7abc4fb4c6cdcce94895c47"},
	{102400, "bc3e3d41a1146b069abffad3c0d44860cf664390afce4d9661f7902e7943e085"},
};

static uint8_t input[LONGEST];

static void setup(void)
{
	for (size_t i = 0; i < LONGEST; i++)
		input[i] = (uint8_t)(i % 251);
}

static void write_digits(const uint8_t digest[KVW_BLAKE3_BYTES], char text[65])
{
	for (size_t i = 0; i < KVW_BLAKE3_BYTES; i++)
		(void)snprintf(text + 2 * i, 3, "%02x", digest[i]);
}

/* Puts the input in pieces. */
static void check_vector(size_t vector, size_t piece)
{
	struct kvw_blake3 state;
	uint8_t digest[KVW_BLAKE3_BYTES];
	char text[65];
	size_t len = vectors[vector].len;

	kvw_blake3_start(&state);
	for (size_t at = 0; at < len; at += piece)
		kvw_blake3_put(&state, input + at, len - at < piece ? len - at : piece);
	kvw_blake3_finish(&state, digest);
	write_digits(digest, text);
	ck_assert_str_eq(text, vectors[vector].digest);
}

START_TEST(its_authors_vectors)
{
	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		check_vector(i, LONGEST);
		check_vector(i, 7);
		check_vector(i, 64);
		check_vector(i, 1025);
	}
}
END_TEST

START_TEST(a_state_goes_on_after_a_digest)
{
	struct kvw_blake3 state;
	uint8_t digest[KVW_BLAKE3_BYTES];
	char text[65];

	kvw_blake3_start(&state);
	for (size_t at = 0; at < 5120; at += 512) {
		kvw_blake3_finish(&state, digest);
		kvw_blake3_put(&state, input + at, 512);
	}
	kvw_blake3_finish(&state, digest);
	write_digits(digest, text);
	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
		if (vectors[i].len == 5120)
			ck_assert_str_eq(text, vectors[i].digest);
}
END_TEST

/* A request that `lmcache server` 0.5.6 stored, chunk by chunk, with its keys. */
static const struct {
	const char *hash;
	uint32_t tokens[64];
} recorded[] = {
#include "data/lmcache_chunks.inc"
};

START_TEST(chunks_are_named_as_by_lmcache)
{
	struct kvw_lmcache_chunks chunks;
	char text[65];

	kvw_lmcache_chunks_start(&chunks);
	for (size_t i = 0; i < sizeof(recorded) / sizeof(recorded[0]); i++) {
		kvw_lmcache_chunks_next(&chunks, recorded[i].tokens, 64);
		write_digits(chunks.hash, text);
		ck_assert_str_eq(text, recorded[i].hash);
	}
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("blake3");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, its_authors_vectors);
	tcase_add_test(tcase, a_state_goes_on_after_a_digest);
	tcase_add_test(tcase, chunks_are_named_as_by_lmcache);
	return run_tcase("blake3", tcase);
}
