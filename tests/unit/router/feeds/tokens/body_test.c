/*
 * body_test.c - prompts of other APIs as the chat that vLLM makes of them. The expected bodies and
 * the originals were posted to a vLLM 0.32: the count of tokens was that of the original, and a
 * prompt of these tokens made all full blocks of the original a hit.
 */
#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "feeds/tokens/token_body.h"
#include "tests/unit/suite.h"

struct body_case {
	enum kvw_api api;
	const char *from;
	const char *to; /* NULL: KVW_ENOTFOUND */
};

#define USER(text) "{\"role\":\"user\",\"content\":" text "}"
#define HI         USER("\"hi\"")

static const struct body_case cases[] = {
	{KVW_API_COMPLETIONS, "{\"model\":\"m\",\"prompt\":[\"a\"],\"max_tokens\":3}",
		"{\"model\":\"m\",\"prompt\":\"a\"}"},
	{KVW_API_COMPLETIONS, "{\"prompt\":[\"a\"],\"add_special_tokens\":false}",
		"{\"prompt\":\"a\",\"add_special_tokens\":false}"},
	{KVW_API_COMPLETIONS, "{\"prompt\":[\"a\",\"b\"]}", NULL},
	{KVW_API_COMPLETIONS, "{\"prompt\":[1]}", NULL},

	{KVW_API_CHAT,
		"{\"messages\":[" HI "],\"n\":2,\"tools\":[{\"a\":1}],\"reasoning_effort\":\"low\"}",
		"{\"messages\":[" HI "],\"tools\":[{\"a\":1}],\"chat_template_kwargs\":"
		"{\"enable_thinking\":true,\"reasoning_effort\":\"low\"}}"},
	{KVW_API_CHAT,
		"{\"messages\":[" HI "],\"reasoning_effort\":\"none\",\"documents\":[{\"t\":1}],"
		"\"chat_template_kwargs\":{\"k\":0.5}}",
		"{\"messages\":[" HI "],\"chat_template_kwargs\":{\"k\":0.5,\"documents\":[{\"t\":1}],"
		"\"enable_thinking\":false,\"reasoning_effort\":\"none\"}}"},
	{KVW_API_CHAT,
		"{\"messages\":[" HI "],\"reasoning_effort\":\"none\",\"chat_template_kwargs\":"
		"{\"enable_thinking\":true}}",
		"{\"messages\":[" HI "],\"chat_template_kwargs\":{\"enable_thinking\":true,"
		"\"reasoning_effort\":\"none\"}}"},

	{KVW_API_MESSAGES, "{\"model\":\"m\",\"max_tokens\":1,\"messages\":[" HI "]}",
		"{\"model\":\"m\",\"messages\":[" HI "]}"},
	{KVW_API_MESSAGES, "{\"system\":\"s\",\"messages\":[" HI "]}",
		"{\"messages\":[{\"role\":\"system\",\"content\":\"s\"}," HI "]}"},
	{KVW_API_MESSAGES,
		"{\"messages\":[" USER("[{\"type\":\"text\",\"text\":\"hi\"}]")
		"],\"system\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\","
		"\"text\":\"x-anthropic-billing-header: 1\"},{\"type\":\"text\",\"text\":\"b\"}]}",
		"{\"messages\":[{\"role\":\"system\",\"content\":\"ab\"}," HI "]}"},
	{KVW_API_MESSAGES,
		"{\"messages\":[" USER("[{\"type\":\"text\",\"text\":\"a\",\"cache_control\":{}},"
				       "{\"type\":\"text\",\"text\":\"b\"}]") "]}",
		"{\"messages\":[" USER("[{\"type\":\"text\",\"text\":\"a\"},"
				       "{\"type\":\"text\",\"text\":\"b\"}]") "]}"},
	{KVW_API_MESSAGES,
		"{\"messages\":[" HI "],\"thinking\":{\"type\":\"adaptive\"},"
		"\"output_config\":{\"effort\":\"high\"}}",
		"{\"messages\":[" HI "],\"chat_template_kwargs\":{\"enable_thinking\":true,"
		"\"reasoning_effort\":\"high\"}}"},
	{KVW_API_MESSAGES, "{\"messages\":[" HI "],\"thinking\":{\"type\":\"disabled\"}}", NULL},
	{KVW_API_MESSAGES, "{\"messages\":[{\"role\":\"system\",\"content\":\"a\"}," HI "]}", NULL},
	{KVW_API_MESSAGES, "{\"messages\":[" USER("[{\"type\":\"image\"}]") "]}", NULL},
	{KVW_API_MESSAGES, "{\"messages\":[" USER("[{\"type\":\"tool_result\",\"content\":\"a\"}]") "]}",
		NULL},
	{KVW_API_MESSAGES, "{\"messages\":[" USER("[]") "]}", NULL},

	{KVW_API_RESPONSES, "{\"input\":\"hi\",\"instructions\":\"s\",\"store\":false}",
		"{\"messages\":[{\"role\":\"system\",\"content\":\"s\"}," HI "]}"},
	{KVW_API_RESPONSES,
		"{\"input\":[{\"role\":\"developer\",\"content\":\"d\"},{\"type\":\"message\",\"id\":\"x\","
		"\"status\":\"completed\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\","
		"\"text\":\"ok\",\"annotations\":[]}]}," USER("[{\"type\":\"input_text\",\"text\":\"a\"}]")
		"],\"reasoning\":{\"effort\":\"low\"}}",
		"{\"messages\":[{\"role\":\"developer\",\"content\":\"d\"},{\"role\":\"assistant\","
		"\"content\":\"ok\"}," USER("[{\"type\":\"text\",\"text\":\"a\"}]")
		"],\"chat_template_kwargs\":{\"enable_thinking\":true,\"reasoning_effort\":\"low\"}}"},
	{KVW_API_RESPONSES, "{\"input\":[{\"type\":\"function_call\",\"name\":\"f\"}]}", NULL},
	{KVW_API_RESPONSES, "{\"input\":[{\"type\":\"reasoning\"}]}", NULL},
	{KVW_API_RESPONSES,
		"{\"input\":[" HI ",{\"role\":\"assistant\",\"status\":\"incomplete\",\"content\":\"a\"}]}",
		NULL},
	{KVW_API_RESPONSES, "{\"input\":7}", NULL},
	{KVW_API_EMBEDDINGS, "{\"input\":\"a\"}", NULL},
};

START_TEST(test_convert)
{
	const struct body_case *c = &cases[_i];
	char *got = NULL;
	size_t len = 0;
	enum kvw_err err =
		kvw_token_body_convert(c->api, c->from, strlen(c->from), &got, &len);
	json_t *a, *b;

	if (c->to == NULL) {
		ck_assert_msg(err == KVW_ENOTFOUND, "%d %s", err, c->from);
		return;
	}
	ck_assert_msg(err == KVW_OK, "%d %s", err, c->from);
	a = json_loadb(got, len, 0, NULL);
	b = json_loads(c->to, 0, NULL);
	ck_assert_ptr_nonnull(b);
	ck_assert_msg(json_equal(a, b), "%s became %.*s", c->from, (int)len, got);
	json_decref(a);
	json_decref(b);
	free(got);
}
END_TEST

START_TEST(what_is_no_json_is_reported)
{
	static const char *const texts[] = {"", "{", "[]", "7", "{\"input\":\"\\ud800\"}", "{}x"};
	char *got = NULL;
	size_t len;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		ck_assert_int_eq(kvw_token_body_convert(KVW_API_RESPONSES, texts[i],
					 strlen(texts[i]), &got, &len),
			KVW_EPROTO);
	ck_assert_ptr_null(got);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("body");

	tcase_add_loop_test(tcase, test_convert, 0, (int)(sizeof(cases) / sizeof(cases[0])));
	tcase_add_test(tcase, what_is_no_json_is_reported);
	return run_tcase("token-body", tcase);
}
