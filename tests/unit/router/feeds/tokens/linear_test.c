/*
 * linear_test.c - the tokenizer's thread serves all clients: what it does for one grows with its bytes, not faster.
 */
#include <check.h>
#include <stdlib.h>

#include "feeds/tokens/token_answer.h"
#include "feeds/tokens/token_body.h"
#include "tests/unit/linear.h"
#include "tests/unit/suite.h"

#define ANSWER (-1) /* of /tokenize, else an enum kvw_api */
#define HI     "{\"role\":\"user\",\"content\":\"hi\"}"
#define BLOCK  "{\"type\":\"text\",\"text\":\"a\"},"

static const struct linear_shape shapes[] = {
	{KVW_API_MESSAGES, "{\"messages\":[" HI "],\"system\":[", BLOCK, "]}"},
	{KVW_API_MESSAGES, "{\"messages\":[" HI "],\"system\":[",
		"{\"type\":\"text\",\"text\":\"x-anthropic-billing-header\"},", "]}"},
	{KVW_API_MESSAGES, "{\"messages\":[" HI "],\"system\":\"", "a\\n", "\"}"},
	{KVW_API_MESSAGES, "{\"messages\":[", HI ",", "]}"},
	{KVW_API_MESSAGES, "{\"messages\":[{\"role\":\"user\",\"content\":[", BLOCK, "]}]}"},
	{KVW_API_MESSAGES, "{\"messages\":[{\"role\":\"user\",\"content\":\"", "\\ud83d\\ude00", "\"}]}"},
	{KVW_API_MESSAGES, "{\"messages\":[" HI "],\"chat_template_kwargs\":{", "\"k#\":#,", "}}"},
	{KVW_API_RESPONSES, "{\"input\":[", HI ",", "]}"},
	{KVW_API_RESPONSES, "{\"input\":[{\"role\":\"user\",\"content\":[",
		"{\"type\":\"input_text\",\"text\":\"a\"},", "]}]}"},
	{KVW_API_RESPONSES, "{\"input\":\"x\",\"instructions\":\"", "ab", "\"}"},
	{KVW_API_RESPONSES, "{\"input\":\"x\",\"metadata\":{", "\"k#\":[[]],", "}}"},
	{KVW_API_CHAT, "{\"messages\":[", HI ",", "],\"reasoning_effort\":\"low\"}"},
	{KVW_API_CHAT, "{\"messages\":[" HI "],\"documents\":[", "{\"a\":1.5e3},", "]}"},
	{KVW_API_CHAT, "{\"messages\":[" HI "],\"tools\":[", "{\"a\":{\"b#\":[null]}},", "]}"},
	{KVW_API_CHAT, "{\"messages\":[" HI "],\"x\":{", "\"same\":1,", "}}"},
	{KVW_API_CHAT, "{\"messages\":[" HI "],\"x\":0.", "1234567", "}"},
	{KVW_API_COMPLETIONS, "{\"prompt\":[\"", "ab\xc3\xa9", "\"]}"},
	{KVW_API_COMPLETIONS, "{\"prompt\":[", "\"a\",", "]}"},
	{KVW_API_COMPLETIONS, "", "[", ""},
	{ANSWER, "{\"tokens\":[", "#,", "]}"},
	{ANSWER, "{\"token_strs\":[", "\"a\",", "],\"tokens\":[1]}"},
	{ANSWER, "{\"tokens\":[1],", "\"x#\":{},", "}"},
};

static void run(int kind, const char *text, size_t len)
{
	struct kvw_token_list *list = NULL;
	char *out = NULL;
	size_t out_len;

	if (kind != ANSWER)
		(void)!kvw_token_body_convert((enum kvw_api)kind, text, len, &out, &out_len);
	else if (kvw_token_answer_read(text, len, &list) == KVW_OK)
		kvw_token_list_put(list);
	free(out);
}

START_TEST(a_conversion_costs_by_the_byte)
{
	check_linear(run, &shapes[_i]);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("linear");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, a_conversion_costs_by_the_byte, 0, (int)(sizeof(shapes) / sizeof(shapes[0])));
	return run_tcase("token-linear", tcase);
}
