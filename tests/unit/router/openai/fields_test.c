/*
 * fields_test.c - a scan that looks for fields only finds them, refuses what the full one refuses,
 * and forgets the restriction with the next body.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "openai/scan.h"
#include "tests/unit/suite.h"

static const char body[] = "{\"model\":\"m-\\u0031\",\"stream\":true,\"user\":\"u7\",\"messages\":["
			   "{\"role\":\"user\",\"content\":\"say \\u4f60\\u597d, \\\"you\\\"\"},"
			   "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"more\"}]}],"
			   "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}";

static struct kvw_scan *make(void)
{
	static const char *const fields[] = {"user"};
	static const struct kvw_scan_options options = {fields, 1};
	struct kvw_scan *scan;

	ck_assert_int_eq(kvw_scan_create(&options, &scan), KVW_OK);
	return scan;
}

static enum kvw_err scan_text(struct kvw_scan *scan, enum kvw_api api, const char *text, size_t piece,
	bool fields_only, struct kvw_route_request *out)
{
	size_t len = strlen(text);

	kvw_scan_reset(scan, api);
	if (fields_only)
		kvw_scan_fields_only(scan);
	for (size_t i = 0; i < len; i += piece)
		kvw_scan_feed(scan, text + i, len - i < piece ? len - i : piece);
	return kvw_scan_finish(scan, out);
}

START_TEST(test_fields_are_found)
{
	struct kvw_scan *scan = make();

	for (size_t piece = 1; piece < sizeof(body); piece++) {
		struct kvw_route_request request;

		ck_assert_int_eq(scan_text(scan, KVW_API_CHAT, body, piece, true, &request), KVW_OK);
		ck_assert(kvw_slice_equal(request.model, KVW_SLICE("m-1")));
		ck_assert(kvw_slice_equal(request.session, KVW_SLICE("u7")));
		ck_assert(request.stream);
		ck_assert(!request.content_known);
		ck_assert_uint_eq(request.chunk_count, 0);
	}
	kvw_scan_destroy(scan);
}
END_TEST

START_TEST(test_bad_bodies_are_refused_alike)
{
	static const char *const bad[] = {"", "{", "[]", "{\"prompt\":\"a\nb\"}", "{\"prompt\":\"\\x\"}",
		"{\"prompt\":[1,-2]}", "{\"prompt\":\"a\"} x", "{\"prompt\":\"\\ud83\"}"};
	struct kvw_scan *scan = make();

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct kvw_route_request request;
		enum kvw_err full = scan_text(scan, KVW_API_COMPLETIONS, bad[i], 7, false, &request);

		ck_assert_int_eq(full, KVW_EPROTO);
		ck_assert_int_eq(
			scan_text(scan, KVW_API_COMPLETIONS, bad[i], 7, true, &request), KVW_EPROTO);
	}
	kvw_scan_destroy(scan);
}
END_TEST

/* Text is passed in large steps where nothing is hashed; nothing may hide in one. */
START_TEST(test_nothing_hides_in_a_large_step)
{
	struct kvw_scan *scan = make();
	struct kvw_route_request request;
	char text[800];

	for (size_t at = 0; at < 600; at++) {
		static const char odd[] = {'\x01', '\n', '"', '\\'};

		for (size_t i = 0; i < sizeof(odd); i++) {
			(void)snprintf(text, sizeof(text), "{\"prompt\":\"%0600d\",\"model\":\"m\"}", 0);
			ck_assert_int_eq(
				scan_text(scan, KVW_API_COMPLETIONS, text, 800, true, &request), KVW_OK);
			ck_assert(kvw_slice_equal(request.model, KVW_SLICE("m")));
			text[11 + at] = odd[i]; /* an escape of "0" is none either */
			ck_assert_int_eq(scan_text(scan, KVW_API_COMPLETIONS, text, 800, true, &request),
				KVW_EPROTO);
		}
	}
	kvw_scan_destroy(scan);
}
END_TEST

START_TEST(test_reset_ends_the_restriction)
{
	struct kvw_scan *scan = make();
	struct kvw_route_request request;

	ck_assert_int_eq(scan_text(scan, KVW_API_CHAT, body, 64, true, &request), KVW_OK);
	ck_assert_int_eq(scan_text(scan, KVW_API_CHAT, body, 64, false, &request), KVW_OK);
	ck_assert(request.content_known);
	ck_assert_uint_gt(request.chunk_count, 0);
	ck_assert_int_eq(
		scan_text(scan, KVW_API_COMPLETIONS, "{\"prompt\":[1,2,3]}", 3, true, &request), KVW_OK);
	ck_assert_uint_eq(request.chunk_count, 0);
	kvw_scan_destroy(scan);
}
END_TEST

START_TEST(test_temperature)
{
	static const struct {
		const char *text;
		bool greedy;
	} bodies[] = {
		{"{\"prompt\":\"a\",\"temperature\":0}", true},
		{"{\"prompt\":\"a\",\"temperature\": 0.0 }", true},
		{"{\"temperature\":1e-6,\"prompt\":\"a\"}", true},
		{"{\"temperature\":0,\"prompt\":\"a\",\"temperature\":0.7}", false},
		{"{\"temperature\":0,\"prompt\":\"a\",\"temperature\":null}", false},
		{"{\"prompt\":\"a\",\"temperature\":0.00001}", false},
		{"{\"prompt\":\"a\",\"temperature\":\"0\"}", false},
		{"{\"prompt\":\"a\",\"x\":{\"temperature\":0}}", false},
		{"{\"prompt\":\"a\"}", false},
	};
	struct kvw_scan *scan = make();
	struct kvw_route_request request;

	for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
		for (size_t piece = 1; piece < 40; piece++) {
			ck_assert_int_eq(
				scan_text(scan, KVW_API_COMPLETIONS, bodies[i].text, piece, i % 2, &request), KVW_OK);
			ck_assert_msg(kvw_scan_greedy(scan) == bodies[i].greedy, "%s", bodies[i].text);
		}
	kvw_scan_destroy(scan);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("all");

	tcase_add_test(tcase, test_fields_are_found);
	tcase_add_test(tcase, test_bad_bodies_are_refused_alike);
	tcase_add_test(tcase, test_nothing_hides_in_a_large_step);
	tcase_add_test(tcase, test_reset_ends_the_restriction);
	tcase_add_test(tcase, test_temperature);
	return run_tcase("fields", tcase);
}
