/*
 * answer_text_test.c - what a model wrote, out of a real vLLM's answers and of strange ones, however they are cut.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "openai/answer_text.h"
#include "support.h"
#include "tests/unit/suite.h"

/* What was written so far. */
struct written {
	char text[4096];
	size_t len;
};

static void take(void *user, const char *text, size_t len)
{
	struct written *written = user;

	ck_assert_uint_gt(len, 0);
	ck_assert_uint_le(written->len + len, sizeof(written->text));
	memcpy(written->text + written->len, text, len);
	written->len += len;
}

/* Fed in pieces, each in memory of exactly its size. */
static struct kvw_answer_text read_text(const char *data, size_t len, size_t piece, struct written *written)
{
	struct kvw_answer_text answer = {0};

	written->len = 0;
	for (size_t at = 0; at < len; at += piece) {
		size_t size = len - at < piece ? len - at : piece;
		char *copy = malloc(size);

		memcpy(copy, data + at, size);
		kvw_answer_text_feed(&answer, copy, size, take, written);
		free(copy);
	}
	return answer;
}

static const struct {
	const char *name, *text;
	bool failed;
} answers[] = {
	{"chat.resp", "metem wait werein", false},
	{"chat_stream.resp", "metem wait werein", false},
	{"chat_stream_continuous.resp", "metem wait werein", false},
	{"completions.resp", " co after\x1fpp", false},
	{"completions_stream.resp", " co after\x1fpp", false},
	{"error_model_chat.resp", "", true},
};

START_TEST(recorded_answer)
{
	struct written written;
	size_t len;
	char *data = test_answer(answers[_i].name, &len);

	for (size_t piece = 1; piece <= len; piece += piece < 60 ? 1 : 97) {
		struct kvw_answer_text answer = read_text(data, len, piece, &written);

		ck_assert_msg(written.len == strlen(answers[_i].text) &&
				memcmp(written.text, answers[_i].text, written.len) == 0,
			"%s in pieces of %zu: %.*s", answers[_i].name, piece, (int)written.len, written.text);
		ck_assert_int_eq(answer.failed, answers[_i].failed);
		ck_assert(!answer.several);
	}
	free(data);
}
END_TEST

#define CHOICE(inside) "{\"id\":\"text\",\"choices\":[{\"index\":0," inside "}],\"usage\":{\"text\":\"no\"}}"

static const struct {
	const char *data, *text;
	bool failed, several;
} strange[] = {
	{"", "", false, false},
	{CHOICE("\"text\":\"a\\\"b\\\\c\\/d\\n\\t\\b\\f\\r\""), "a\"b\\c/d\n\t\b\f\r", false, false},
	{CHOICE("\"text\":\"\\u00e9\\u4f60\\ud83d\\ude00 \xc3\xa9\""), "\xc3\xa9\xe4\xbd\xa0\xf0\x9f\x98\x80 \xc3\xa9",
		false, false},
	{CHOICE("\"text\" :\n\"a\" , \"logprobs\":{\"tokens\":[\"text\",\"x\"],\"content\":[{\"token\":\"q\"}]}"), "a",
		false, false},
	{CHOICE("\"message\":{\"role\":\"assistant\",\"content\":null,\"reasoning\":\"hm\",\"tool_calls\":[{\"index\":1,"
		"\"id\":\"call-7\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}}]}"),
		"hmf{\"a\":1}", false, false},
	{CHOICE("\"delta\":{\"reasoning_content\":\"so\",\"content\":\"\"}"), "so", false, false},
	/* brackets and names within texts are text */
	{CHOICE("\"text\":\"]}{\\\"text\\\":\\\"x\\\"}\""), "]}{\"text\":\"x\"}", false, false},
	/* events: comments and a keyword in between */
	{": ping, \"text\": 1\n\ndata: " CHOICE("\"text\":\"a\"") "\n\n", "a", false, false},
	{"event: x\ndata: " CHOICE("\"text\":\"a\"") "\n\ndata: " CHOICE("\"text\":\"b\"") "\n\ndata: [DONE]\n\n", "ab",
		false, false},
	{"data: " CHOICE("\"text\":\"a\"") "\n\ndata: {\"error\":{\"message\":\"text\",\"code\":500}}\n\n", "a", true,
		false},
	{"{\"error\":null,\"choices\":[{\"index\":0,\"text\":\"a\"}]}", "a", false, false},
	{"{\"choices\":[{\"index\":0,\"text\":\"a\"},{\"text\":\"b\",\"index\": 12}]}", "ab", false, true},
	/* elsewhere */
	{"{\"text\":\"a\",\"content\":\"b\",\"x\":[{\"text\":\"c\"}]}", "", false, false},
	{"]]}}{\"choices\":[{\"text\":\"a", "a", false, false},
};

START_TEST(strange_answer)
{
	const char *data = strange[_i].data;
	struct written written;

	for (size_t piece = 1; piece <= strlen(data) + 1; piece++) {
		struct kvw_answer_text answer = read_text(data, strlen(data), piece, &written);

		ck_assert_msg(written.len == strlen(strange[_i].text) &&
				memcmp(written.text, strange[_i].text, written.len) == 0,
			"%s in pieces of %zu: %.*s", data, piece, (int)written.len, written.text);
		ck_assert_int_eq(answer.failed, strange[_i].failed);
		ck_assert_int_eq(answer.several, strange[_i].several);
	}
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("answer_text");

	tcase_add_loop_test(tcase, recorded_answer, 0, sizeof(answers) / sizeof(answers[0]));
	tcase_add_loop_test(tcase, strange_answer, 0, sizeof(strange) / sizeof(strange[0]));
	return run_tcase("openai_answer_text", tcase);
}
