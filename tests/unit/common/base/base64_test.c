/* base64_test.c - both alphabets, and that bytes have one spelling. */
#include <check.h>
#include <string.h>

#include "base/base64.h"
#include "tests/unit/suite.h"

static bool read_as(enum kvw_base64 kind, const char *text, const char *bytes, size_t bytes_len)
{
	unsigned char out[8];
	size_t len;

	return kvw_base64_read(kvw_slice_of(text), kind, out, sizeof(out), &len) && len == bytes_len &&
	       memcmp(out, bytes, len) == 0;
}

START_TEST(bytes_have_one_spelling)
{
	static const char *const bad[] = {"Zg==", "Zg=", "Z", "Zh", "Zm9", "Zm9v ", " Zm9v", "Zm9v\n", "Zm 9v",
		"Zm9vYmFyA", "\xc3\xa4\xc3\xa4", "Zm9vYmFyYmF6" /* 9 bytes */};
	unsigned char out[8];
	size_t len;

	for (enum kvw_base64 kind = KVW_BASE64; kind <= KVW_BASE64_URL; kind++) {
		ck_assert(read_as(kind, "", "", 0));
		ck_assert(read_as(kind, "Zg", "f", 1));
		ck_assert(read_as(kind, "Zm9vYmE", "fooba", 5));
		for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
			ck_assert_msg(!kvw_base64_read(kvw_slice_of(bad[i]), kind, out, sizeof(out), &len), "%s", bad[i]);
	}
}
END_TEST

START_TEST(alphabets_differ)
{
	ck_assert(read_as(KVW_BASE64_URL, "-_-_", "\xfb\xff\xbf", 3));
	ck_assert(read_as(KVW_BASE64, "+/+/", "\xfb\xff\xbf", 3));
	ck_assert(!read_as(KVW_BASE64, "-_-_", "\xfb\xff\xbf", 3));
	ck_assert(!read_as(KVW_BASE64_URL, "+/+/", "\xfb\xff\xbf", 3));
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("base64");

	tcase_add_test(tcase, bytes_have_one_spelling);
	tcase_add_test(tcase, alphabets_differ);
	return run_tcase("base64", tcase);
}
