/*
 * json_test.c - what is JSON and what is not, wherever the body is cut.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "support.h"
#include "tests/unit/suite.h"

/* Wraps a text as the value of a member that is checked but not looked at. */
static struct seen *as_value(const char *text)
{
	char body[4096];

	snprintf(body, sizeof(body), "{\"model\":\"m\",\"messages\":[],\"x\":%s}", text);
	return see_text(KVW_API_CHAT, body);
}

static const char *const good_values[] = {"0", "-0", "1", "-1.5e+10", "1E5", "0.0", "1e-7", "true",
	"false", "null", "\"\"", "\"\\u0000\"", "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "[]", "{}", "[ ]",
	"{ }", "[1]", "[1,2]", "[[],[[]],{}]", "{\"a\":{\"b\":[{}]}}", "\"\\ud83d\\ude00\"",
	"\"\\uD800\"", "\"\x7f\"", " 1 ", "\t\r\n1\t\r\n", "[1 , 2]", "{\"a\" : 1 , \"b\" : 2}",
	"123456789012345678901234567890", "1e999", "NaN", "Infinity", "-Infinity", "[-Infinity,NaN , Infinity]"};

START_TEST(good_value)
{
	struct seen *seen = as_value(good_values[_i]);

	ck_assert_int_eq(seen->err, KVW_OK);
	ck_assert(kvw_slice_equal(seen->request.model, KVW_SLICE("m")));
	seen_free(seen);
}
END_TEST

static const char *const bad_values[] = {"", "01", "-", "+1", "1.", ".5", "1e", "1e+", "0x10",
	"--1", "1-", "-NaN", "--Infinity", "+Infinity", "-Infinit", "1Infinity", "Nan", "nan", "NaN1", "inf", "nul", "nulll", "True", "tru", "'a'", "\"a",
	"\"\\x\"", "\"\\u12\"", "\"\\u123g\"", "\"\\ud83d\\u12\"", "\"\t\"", "\"\n\"", "\"\x1f\"",
	"\"\\", "[", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "[1}", "{", "{\"a\"",
	"{\"a\":", "{\"a\":1", "{\"a\":1,", "{\"a\":1,}", "{\"a\" 1}", "{a:1}", "{1:2}",
	"{\"a\":1]", "{,}", "{\"a\":1 \"b\":2}", "]", "}", "1 2", "\"a\" \"b\"", "[1]]", "\f1",
	"\v1", "\xc2\xa0 1", "/* */1", "1//", "\xef\xbb\xbf"};

START_TEST(bad_value)
{
	struct seen *seen = as_value(bad_values[_i]);

	ck_assert_int_eq(seen->err, KVW_EPROTO);
	ck_assert_int_eq(seen->request.api, KVW_API_CHAT);
	ck_assert_uint_eq(seen->request.model.len, 0);
	ck_assert(!seen->request.content_known);
	ck_assert_uint_eq(seen->request.chunk_count, 0);
	seen_free(seen);
}
END_TEST

static const char *const bad_bodies[] = {"", " ", "[]", "1", "null", "\"a\"", "{}{}", "{} x", "{}]",
	"\xef\xbb\xbf", "\xef\xbb{}", "\xef{}", " \xef\xbb\xbf{}", "\xef\xbb\xbf\xef\xbb\xbf{}", "\xbb\xbf{}", "{}\xef\xbb\xbf",
	"\xff\xfe{", "{", "}", "\0{}", "{\"model\":\"m\"", "{\"model\":\"m\"}}",
	"--boundary\r\n", "model=m"};

START_TEST(bad_body)
{
	struct seen *seen = see_text(KVW_API_CHAT, bad_bodies[_i]);

	ck_assert_int_eq(seen->err, KVW_EPROTO);
	seen_free(seen);
}
END_TEST

START_TEST(white_space_around_the_body)
{
	struct seen *seen = see_text(KVW_API_CHAT, " \r\n\t{ } \n");

	ck_assert_int_eq(seen->err, KVW_OK);
	ck_assert(!seen->request.content_known);
	seen_free(seen);
}
END_TEST

START_TEST(mark_in_front)
{
	struct seen *seen = see_text(KVW_API_CHAT, "\xef\xbb\xbf {\"model\":\"m\",\"messages\":[]}");

	ck_assert_int_eq(seen->err, KVW_OK);
	ck_assert(kvw_slice_equal(seen->request.model, KVW_SLICE("m")));
	seen_free(seen);
}
END_TEST

/* One of everything, in every API's words. */
static const struct {
	enum kvw_api api;
	const char *body;
} samples[] = {
	{KVW_API_CHAT,
		"{\"mod\\u0065l\" : \"a\\/\\\"\\u4e2d\\ud83d\\ude00\", "
		"\"stream\":true,\"n\":-1.5e+3,"
		"\"stream_options\":{\"include_usage\":true,\"x\":[null,false]},\"messages\":["
		"{\"content\":\"h\\u00e9\\n\\u4e2d\\u6587\\u6587\\u6587\\u6587\\u6587\\u6587\\u6587"
		"\\u6587\\ud800\\ud83d\\ude00\\udc00 \\\\ \\\" \\/ \\u000a\",\"role\":\"user\"},"
		"{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c1\",\"type\":"
		"\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}}]},"
		"{\"role\":\"user\",\"content\":[{\"text\":\"look\",\"type\":\"text\"},{\"type\":"
		"\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,AAAA\"}}]}],"
		"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"user\":"
		"\"u\"}"},
	{KVW_API_COMPLETIONS, "{\"prompt\":[1,22, 333,4294967295,0,  7 ,88888888,999999999\n,10], "
			      "\"model\":\"m\"}"},
	{KVW_API_COMPLETIONS, "{\"prompt\":[[1,2,3],[],[4]],\"cache_salt\":\"s\"}"},
	{KVW_API_COMPLETIONS, "{\"prompt\":[\"one\",\"\",\"tw\\u006f\"]}"},
	{KVW_API_MESSAGES,
		"{\"system\":[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: "
		"1\"},{\"type\":"
		"\"text\",\"text\":\"x-anthropic-bill\"},{\"type\":\"text\",\"text\":\"rules\"}],"
		"\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":5}"},
	{KVW_API_RESPONSES,
		"{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":"
		"\"a\"}]}"
		",{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"42\"}],"
		"\"instructions\":\"be short\",\"model\":\"m\"}"},
};

START_TEST(cut_anywhere)
{
	const char *body = samples[_i].body;
	size_t len = strlen(body);
	struct seen *whole = see(samples[_i].api, body, len, 0), *cut;

	ck_assert_int_eq(whole->err, KVW_OK);
	ck_assert(whole->request.content_known);
	ck_assert_uint_gt(whole->request.chunk_count, 0);
	for (size_t at = 0; at <= len; at++) {
		cut = see_split(samples[_i].api, body, len, at);
		ck_assert_msg(seen_equal(whole, cut), "cut at %zu", at);
		seen_free(cut);
	}
	for (size_t piece = 1; piece < 70; piece++) {
		cut = see(samples[_i].api, body, len, piece);
		ck_assert_msg(seen_equal(whole, cut), "in pieces of %zu", piece);
		seen_free(cut);
	}
	seen_free(whole);
}
END_TEST

/* A body that is cut off is never understood. */
START_TEST(incomplete_bodies)
{
	const char *body = samples[_i].body;
	size_t len = strlen(body);

	for (size_t at = 0; at < len; at++) {
		struct seen *seen = see(samples[_i].api, body, at, 0);

		ck_assert_msg(seen->err == KVW_EPROTO, "the first %zu bytes", at);
		seen_free(seen);
	}
}
END_TEST

/* Escapes and stops at every position of the blocks in which text is looked at. */
START_TEST(every_alignment)
{
	static const char *const inserts[] = {"\\n", "\\\\", "\\\"", "\\u4e2d", "\\u0041", "\\/",
		"\\ud83d\\ude00", "\\\\\\\\\\\\\\\"",
		("\\u4e2d\\u4e2d\\u4e2d\\u4e2d\\u4e2d\\u4e2d\\u4e2d"
		 "\\u4e2d\\u4e2d\\u4e2d")};
	static const char *const bad[] = {"\\x", "\\u00g0", "\x1f", "\\", "\\u", "\n"};
	char body[1024];

	for (int before = 0; before < 140; before++) {
		for (size_t i = 0; i < sizeof(inserts) / sizeof(inserts[0]); i++) {
			struct seen *whole, *bytewise;
			int len =
				snprintf(body, sizeof(body), "{\"prompt\":\"%.*s%s%.*s\"}", before,
					"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdef"
					"ghijklmnopqrstuvwxyz"
					"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdef"
					"ghijklmnopqrstuvwxyz",
					inserts[i], 100 - before % 100,
					"0123456789012345678901234567890123456789012345678901234567"
					"890123456789"
					"0123456789012345678901234567890123456789");

			whole = see(KVW_API_COMPLETIONS, body, (size_t)len, 0);
			bytewise = see(KVW_API_COMPLETIONS, body, (size_t)len, 1);
			ck_assert_int_eq(whole->err, KVW_OK);
			ck_assert(seen_equal(whole, bytewise));
			seen_free(whole);
			seen_free(bytewise);
		}
		for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
			struct seen *seen;

			snprintf(body, sizeof(body), "{\"prompt\":\"%.*s%s\"}", before,
				"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmn"
				"opqrstuvwxyz"
				"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmn"
				"opqrstuvwxyz",
				bad[i]);
			seen = see_text(KVW_API_COMPLETIONS, body);
			ck_assert_int_eq(seen->err, KVW_EPROTO);
			seen_free(seen);
		}
	}
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

int main(void)
{
	TCase *tc = tcase_create("grammar");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, good_value, 0, COUNT(good_values));
	tcase_add_loop_test(tc, bad_value, 0, COUNT(bad_values));
	tcase_add_loop_test(tc, bad_body, 0, COUNT(bad_bodies));
	tcase_add_test(tc, white_space_around_the_body);
	tcase_add_test(tc, mark_in_front);
	tcase_add_loop_test(tc, cut_anywhere, 0, COUNT(samples));
	tcase_add_loop_test(tc, incomplete_bodies, 0, COUNT(samples));
	tcase_add_test(tc, every_alignment);
	return run_tcase("openai-json", tc);
}
