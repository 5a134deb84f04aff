/*
 * chars_test.c - the class table against the grammars' own lists of characters, and the scans
 * against plain loops at every length and place.
 */
#include <check.h>
#include <stdlib.h>

#include "http/chars.h"
#include "tests/unit/suite.h"

static bool alnum(int c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool listed(const char *list, int c)
{
	return c != 0 && strchr(list, c) != NULL;
}

START_TEST(table_follows_the_grammars)
{
	for (int c = 0; c < 256; c++) {
		char byte = (char)c;

		ck_assert_int_eq(kvw_char_is(byte, KVW_CHAR_TOKEN),
			alnum(c) || listed("!#$%&'*+-.^_`|~", c));
		ck_assert_int_eq(kvw_char_is(byte, KVW_CHAR_HOST), alnum(c) || listed("-._~"
										      "!$&'()*+;="
										      "%",
										       c));
		ck_assert_int_eq(
			kvw_char_is(byte, KVW_CHAR_HEX), listed("0123456789abcdefABCDEF", c));
		ck_assert_int_eq(
			kvw_char_is(byte, KVW_CHAR_VALUE), c == '\t' || (c >= 0x20 && c != 0x7f));
		ck_assert_int_eq(kvw_char_is_digit(byte), listed("0123456789", c));
		if (kvw_char_is(byte, KVW_CHAR_HEX)) {
			char text[2] = {byte, '\0'};

			ck_assert_uint_eq(kvw_char_hex(byte), strtoul(text, NULL, 16));
		}
	}
}
END_TEST

static const char *plain_value(const char *p, const char *end)
{
	while (p < end && ((uint8_t)*p >= 0x20 || *p == '\t') && *p != 0x7f)
		p++;
	return p;
}

static const char *plain_visible(const char *p, const char *end)
{
	while (p < end && (uint8_t)*p > 0x20 && (uint8_t)*p < 0x7f)
		p++;
	return p;
}

static const char *plain_line_pair(const char *p, const char *end)
{
	for (; p < end; p++) {
		if (*p == '\n' && (p + 1 == end || p[1] == '\r' || p[1] == '\n'))
			break;
	}
	return p;
}

START_TEST(scans_equal_plain_loops)
{
	for (size_t len = 0; len < 50; len++) {
		char *text = malloc(len + 1);

		ck_assert_ptr_nonnull(text);
		for (size_t at = 0; at < len; at++) {
			for (int c = 0; c < 256; c++) {
				char *begin = text + 1; /* ends where the memory ends */

				memset(begin, at % 2 == 0 ? 'x' : 0xe4, len);
				if (at % 3 == 0)
					memset(begin, '\n', len);
				begin[at] = (char)c;
				ck_assert_ptr_eq(kvw_scan_value(begin, begin + len),
					plain_value(begin, begin + len));
				ck_assert_ptr_eq(kvw_scan_visible(begin, begin + len),
					plain_visible(begin, begin + len));
				memset(begin, at % 2 == 0 ? 'x' : '\n', at);
				ck_assert_ptr_eq(kvw_scan_line_pair(begin, begin + len),
					plain_line_pair(begin, begin + len));
			}
		}
		free(text);
	}
}
END_TEST

START_TEST(token_comparison)
{
	ck_assert(kvw_token_is("TE", "te", 2));
	ck_assert(!kvw_token_is("T-", "te", 2));
	ck_assert(kvw_token_is("Content-Length", "content-length", 14));
	for (size_t i = 0; i < 14; i++) { /* every byte counts */
		char name[] = "Content-Length";

		name[i] = '!';
		ck_assert(!kvw_token_is(name, "content-length", 14));
	}
	for (int c = 0; c < 256; c++) { /* of the tokens only the letter and its capital */
		char byte = (char)c;

		if (kvw_char_is(byte, KVW_CHAR_TOKEN))
			ck_assert_int_eq(kvw_token_is(&byte, "k", 1), c == 'k' || c == 'K');
		if (kvw_char_is(byte, KVW_CHAR_TOKEN))
			ck_assert_int_eq(kvw_token_is(&byte, "-", 1), c == '-');
	}
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("all");

	tcase_add_test(tcase, table_follows_the_grammars);
	tcase_add_test(tcase, scans_equal_plain_loops);
	tcase_add_test(tcase, token_comparison);
	return run_tcase("chars", tcase);
}
