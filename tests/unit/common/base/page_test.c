/*
 * page_test.c - escapes and numbers.
 */
#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/page.h"
#include "tests/unit/suite.h"

static void check_json(const char *in, size_t len, const char *expected)
{
	char out[256];
	size_t n = kvw_json_escape(out, sizeof(out), (struct kvw_slice){in, len});

	ck_assert_msg(n == strlen(expected) && memcmp(out, expected, n) == 0,
		"got %.*s, want %s", (int)n, out, expected);
}

#define CHECK_JSON(literal, expected) check_json(literal, sizeof(literal) - 1, expected)

START_TEST(json_escapes)
{
	CHECK_JSON("", "");
	CHECK_JSON("plain /path?x=1", "plain /path?x=1");
	CHECK_JSON("a\"b\\c", "a\\\"b\\\\c");
	CHECK_JSON("\b\f\n\r\t", "\\b\\f\\n\\r\\t");
	CHECK_JSON("\0\1\x1f\x7f", "\\u0000\\u0001\\u001f\\u007f");
	CHECK_JSON("gr\xC3\xBC\xC3\x9F \xE4\xB8\xAD \xF0\x9F\x98\x80", "gr\xC3\xBC\xC3\x9F \xE4\xB8\xAD \xF0\x9F\x98\x80");
	CHECK_JSON("\xC2\x80\xC2\x9B\xC2\x9F\xC2\xA0", "\\u0080\\u009b\\u009f\xC2\xA0"); /* C1: some terminals obey them */
	CHECK_JSON("\xFF\xC3", "\\ufffd\\ufffd");             /* never a start; cut short */
	CHECK_JSON("\xC0\x80", "\\ufffd\\ufffd");             /* overlong */
	CHECK_JSON("\xED\xA0\x80", "\\ufffd\\ufffd\\ufffd");  /* a surrogate */
	CHECK_JSON("\xF4\x90\x80\x80", "\\ufffd\\ufffd\\ufffd\\ufffd");
	CHECK_JSON("\xE4\xB8x", "\\ufffd\\ufffdx");
}
END_TEST

/* Whatever the room, the result is a prefix that ends between characters. */
START_TEST(json_escape_cuts_between_characters)
{
	static const char in[] = "ab\n\"\xC3\xBC\x01 \xF0\x9F\x98\x80\xFFz";
	char whole[128], out[128], text[160];
	size_t full = kvw_json_escape(whole, sizeof(whole), KVW_SLICE(in));

	for (size_t room = 0; room <= full; room++) {
		json_t *value;
		size_t n = kvw_json_escape(out, room, KVW_SLICE(in));

		ck_assert_uint_le(n, room);
		ck_assert_mem_eq(out, whole, n);
		snprintf(text, sizeof(text), "\"%.*s\"", (int)n, out);
		value = json_loads(text, JSON_DECODE_ANY, NULL);
		ck_assert_msg(value != NULL, "cut at %zu: %s", room, text);
		json_decref(value);
	}
}
END_TEST

/* Any bytes become JSON that a strict reader accepts. */
START_TEST(json_of_random_bytes)
{
	srand(7);
	for (int round = 0; round < 3000; round++) {
		char bytes[40];
		size_t len = (size_t)rand() % sizeof(bytes);
		struct kvw_page text = {0};
		json_t *value;

		for (size_t i = 0; i < len; i++)
			bytes[i] = (char)(rand() % 256);
		kvw_page_json(&text, (struct kvw_slice){bytes, len});
		ck_assert(!text.failed);
		value = json_loadb(text.data, text.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
		ck_assert_msg(value != NULL, "refused: %.*s", (int)text.len, text.data);
		json_decref(value);
		free(text.data);
	}
}
END_TEST

static void check_text(struct kvw_page *text, const char *expected)
{
	ck_assert(!text->failed);
	ck_assert_msg(text->len == strlen(expected) && memcmp(text->data, expected, text->len) == 0,
		"got %.*s, want %s", (int)text->len, text->data, expected);
	text->len = 0;
}

START_TEST(numbers)
{
	struct kvw_page text = {0};

	kvw_page_u64(&text, 0);
	check_text(&text, "0");
	kvw_page_u64(&text, UINT64_MAX);
	check_text(&text, "18446744073709551615");
	kvw_page_i64(&text, INT64_MIN);
	check_text(&text, "-9223372036854775808");
	kvw_page_seconds(&text, 0);
	check_text(&text, "0");
	kvw_page_seconds(&text, 1250000000);
	check_text(&text, "1.25");
	kvw_page_seconds(&text, 1);
	check_text(&text, "0.000000001");
	kvw_page_seconds(&text, -2000000000);
	check_text(&text, "-2");
	kvw_page_double(&text, 0.1);
	check_text(&text, "0.1");
	kvw_page_double(&text, 1.0 / 0.0);
	check_text(&text, "+Inf");
	kvw_page_label(&text, KVW_SLICE("a\"b\\c\nd\xFF"));
	check_text(&text, "a\\\"b\\\\c\\nd\xEF\xBF\xBD");
	free(text.data);
}
END_TEST

/* A name or value that ends with a brace begins no object. */
START_TEST(members_have_commas_between_them)
{
	static const char expected[] = "{\"a{\":1,\"b\":{\"c\":\"{\",\"d\":2}}";
	struct kvw_page page = {0};

	kvw_page_string(&page, "{");
	kvw_page_member(&page, "a{");
	kvw_page_u64(&page, 1);
	kvw_page_member(&page, "b");
	kvw_page_string(&page, "{");
	kvw_page_member(&page, "c");
	kvw_page_json(&page, KVW_SLICE("{"));
	kvw_page_member(&page, "d");
	kvw_page_u64(&page, 2);
	kvw_page_string(&page, "}}");
	ck_assert_uint_eq(page.len, strlen(expected));
	ck_assert_mem_eq(page.data, expected, page.len);
	free(page.data);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("page");

	tcase_add_test(tcase, json_escapes);
	tcase_add_test(tcase, json_escape_cuts_between_characters);
	tcase_add_test(tcase, json_of_random_bytes);
	tcase_add_test(tcase, numbers);
	tcase_add_test(tcase, members_have_commas_between_them);
	return run_tcase("page", tcase);
}
