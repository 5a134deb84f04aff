/*
 * test_page.c - escapes, numbers, histogram buckets.
 */
#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "admin/histogram.h"
#include "admin/page.h"

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

/* The table lookup agrees with the definition: the first bound that is not below the value. */
START_TEST(buckets_match_their_definition)
{
	static const uint64_t us[] = {1, 10, 11, 12, 13, 50, 75, 100, 1000, 2500, 60000000};
	size_t count = sizeof(us) / sizeof(us[0]);
	struct kvw_bounds bounds;

	kvw_bounds_init(&bounds, us, count);
	srand(11);
	for (int round = 0; round < 20000; round++) {
		struct kvw_histogram histogram = {0};
		struct kvw_histogram_sum sum = {0};
		int64_t value = (int64_t)((uint64_t)rand() << 20 >> (rand() % 52));
		size_t expected = 0;

		if (round < (int)count * 3) /* on the bounds and beside them */
			value = (int64_t)us[round / 3] * 1000 + round % 3 - 1;
		while (expected < count && value > (int64_t)us[expected] * 1000)
			expected++;
		kvw_histogram_observe(&histogram, &bounds, value);
		kvw_histogram_collect(&histogram, &sum);
		ck_assert_msg(sum.buckets[expected] == 1, "value %lld", (long long)value);
		ck_assert_uint_eq(sum.count, 1);
		ck_assert_uint_eq(sum.sum_ns, (uint64_t)value);
	}
}
END_TEST

START_TEST(negative_durations_count_as_zero)
{
	static const uint64_t us[] = {1};
	struct kvw_histogram histogram = {0};
	struct kvw_histogram_sum sum = {0};
	struct kvw_bounds bounds;

	kvw_bounds_init(&bounds, us, 1);
	kvw_histogram_observe(&histogram, &bounds, -5);
	kvw_histogram_observe(&histogram, &bounds, INT64_MAX);
	kvw_histogram_collect(&histogram, &sum);
	ck_assert_uint_eq(sum.buckets[0], 1);
	ck_assert_uint_eq(sum.buckets[1], 1);
	ck_assert_uint_eq(sum.sum_ns, (uint64_t)INT64_MAX);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("admin text");
	TCase *tcase = tcase_create("text");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_test(tcase, json_escapes);
	tcase_add_test(tcase, json_escape_cuts_between_characters);
	tcase_add_test(tcase, json_of_random_bytes);
	tcase_add_test(tcase, numbers);
	tcase_add_test(tcase, buckets_match_their_definition);
	tcase_add_test(tcase, negative_durations_count_as_zero);
	suite_add_tcase(suite, tcase);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
