/*
 * linear_test.c - what an event loop reads of requests and answers costs it by the byte, whatever the shape.
 */
#include <check.h>
#include <stdlib.h>

#include "openai/answer_text.h"
#include "openai/scan.h"
#include "openai/usage.h"
#include "tests/unit/linear.h"
#include "tests/unit/suite.h"

#define ANSWER (-1) /* of a worker; else an enum kvw_api */
#define BOUND  "--B\r\nContent-Disposition: form-data; name=\"x#\"\r\n\r\nv\r\n"

static const struct linear_shape shapes[] = {
	{KVW_API_CHAT, "{\"messages\":[", "{},", "]}"},
	{KVW_API_CHAT, "{\"messages\":[", "{\"role\":\"user\",\"content\":\"hi\"},", "]}"},
	{KVW_API_CHAT, "{\"messages\":[{\"content\":[", "{\"type\":\"text\",\"text\":\"a\"},", "]}]}"},
	{KVW_API_CHAT, "{\"messages\":[{\"content\":[", "\"\",", "]}]}"},
	{KVW_API_CHAT, "{", "\"messages\":[{\"content\":\"a\"}],", "}"},
	{KVW_API_CHAT, "{\"tools\":[", "{\"a#\":[{}]},", "]}"},
	{KVW_API_CHAT, "{\"tools\":[{", "\"k#\":#,", "}]}"},
	{KVW_API_CHAT, "{\"tools\":[{", "\"k\":1.25e#,", "}]}"},
	{KVW_API_CHAT, "{\"tools\":[0.", "123", "]}"},
	{KVW_API_CHAT, "{\"x\":\"", "\\\\", "\"}"},
	{KVW_API_CHAT, "{", "\"\\u0061#\":null,", "}"},
	{KVW_API_CHAT, "{", "\"model\":\"m#\",", "}"},
	{KVW_API_CHAT, "{\"", "k", "\":1}"},
	{KVW_API_MESSAGES, "{\"system\":[", "{\"type\":\"text\",\"text\":\"x-anthropic-billing-heade\"},", "]}"},
	{KVW_API_RESPONSES, "{\"input\":[", "{\"role\":\"user\",\"content\":\"\\ud83d\\ude00\"},", "]}"},
	{KVW_API_COMPLETIONS, "{\"prompt\":[", "#,", "]}"},
	{KVW_API_COMPLETIONS, "{\"prompt\":[", "\"\",", "]}"},
	{KVW_API_COMPLETIONS, "{\"prompt\":[", "[#],", "]}"},
	{KVW_API_COMPLETIONS, "{", "\"prompt\":[1,2],", "}"},
	{KVW_API_INVOCATIONS, "{", "\"inputs\":\"a\",\"prompt\":\"b\",", "}"},
	{KVW_API_AUDIO, "", BOUND, "--B--"},
	{KVW_API_AUDIO, "--B\r\n\r\n", "\r\n--", "\r\n--B--"},
	{ANSWER, "data: ", "{\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: ", "[DONE]"},
	{ANSWER, "{\"a\":[", "{\"usage\":{\"prompt_tokens\":1}},", "]}"},
	{ANSWER, "{\"a\":[", "\"usage\",", "]}"},
	{ANSWER, "{", "\"usage\":{", ""},
	{ANSWER, "", "[", ""},
};

static void on_text(void *user, const char *text, size_t len)
{
	(void)user;
	(void)text;
	(void)len;
}

static void feed(struct kvw_scan *scan, int kind, const char *text, size_t len, size_t piece)
{
	struct kvw_answer_text answer = {0};
	struct kvw_route_request request;
	struct kvw_usage usage;

	kvw_usage_init(&usage);
	kvw_scan_reset(scan, kind == ANSWER ? KVW_API_CHAT : (enum kvw_api)kind);
	kvw_scan_keep_ids(scan);
	for (size_t at = 0; at < len; at += piece) {
		size_t n = len - at < piece ? len - at : piece;

		if (kind != ANSWER) {
			kvw_scan_feed(scan, text + at, n);
			continue;
		}
		kvw_usage_feed(&usage, text + at, n);
		kvw_answer_text_feed(&answer, text + at, n, on_text, NULL);
	}
	kvw_usage_finish(&usage);
	(void)!kvw_scan_finish(scan, &request);
}

static void run(int kind, const char *text, size_t len)
{
	struct kvw_scan *scan;

	ck_assert_int_eq(kvw_scan_create(NULL, &scan), KVW_OK);
	feed(scan, kind, text, len, 16384);
	feed(scan, kind, text, len, 7);
	kvw_scan_destroy(scan);
}

START_TEST(reading_costs_by_the_byte)
{
	check_linear(run, &shapes[_i]);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("linear");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, reading_costs_by_the_byte, 0, (int)(sizeof(shapes) / sizeof(shapes[0])));
	return run_tcase("openai-linear", tcase);
}
