/*
 * meaning_test.c - the same prompt has the same chain however it is written; another prompt has
 * another one, from the first place on where it differs.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "tests/unit/suite.h"

/* Pairs that mean the same. */
static const struct {
	enum kvw_api api;
	const char *one, *other;
} same[] = {
	/* spacing, order of keys */
	{KVW_API_CHAT,
		"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":"
		"true}",
		"{ \"stream\" : true ,\n\"messages\" : [ { \"content\":\t\"hi\" , \"role\" : "
		"\"user\" } ]"
		" , \"model\":\"m\" }"},
	/* escapes */
	{KVW_API_CHAT,
		"{\"messages\":[{\"role\":\"user\",\"content\":\"a/b\\n\\\"\xc3\xa9\xe4\xb8\xad"
		"\xf0\x9f\x98\x80\"}],\"model\":\"m\"}",
		"{\"m\\u006fdel\":\"\\u006d\",\"m\\u0065ssages\":[{\"\\u0072ole\":\"us\\u0065r\","
		"\"content\":\"\\u0061\\/b\\u000a\\u0022\\u00e9\\u4E2D\\uD83D\\uDE00\"}]}"},
	/* what does not reach the prompt */
	{KVW_API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}",
		"{\"messages\":[{\"role\":\"user\",\"content\":\"hi\",\"name\":null}],"
		"\"temperature\":0,"
		"\"max_tokens\":5,\"response_format\":{\"type\":\"text\"},\"tools\":null,\"seed\":"
		"1,"
		"\"add_generation_prompt\":true,\"continue_final_message\":false,\"tools\":[],"
		"\"add_special_tokens\":false,\"logit_bias\":{\"1\":2}}"},
	/* one text part is a string */
	{KVW_API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}",
		"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"hi\"}"
		"]}]}"},
	{KVW_API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[\"a\",\"b\"]}]}",
		"{\"messages\":[{\"role\":\"user\",\"content\":[{\"text\":\"a\",\"type\":\"text\"},"
		"{\"type\":\"text\",\"text\":\"b\"}]}]}"},
	/* tools: order of keys at every level, escapes in keys */
	{KVW_API_CHAT,
		"{\"messages\":[],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
		"\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},"
		"\"b\":"
		"{\"enum\":[1,2.50,true,null]}}}}}]}",
		"{\"tools\":[{\"function\":{\"parameters\":{\"properties\":{\"b\":{\"enum\":[1,25e-"
		"1,true"
		", null ]},\"\\u0061\":{\"type\":\"string\"}},\"type\":\"object\"},\"name\":\"f\"},"
		"\"type\":\"function\"}],\"messages\":[]}"},
	/* the last of equal keys counts */
	{KVW_API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"model\":\"m\"}",
		"{\"model\":\"x\",\"messages\":[{\"role\":\"system\",\"content\":\"no\"}],"
		"\"messages\":["
		"{\"role\":\"x\",\"content\":[{\"text\":\"no\"}],\"role\":\"user\",\"content\":"
		"\"hi\"}],"
		"\"model\":\"m\"}"},
	{KVW_API_CHAT, "{\"messages\":[],\"tools\":[{\"a\":{\"b\":2},\"c\":3}]}",
		"{\"messages\":[],\"tools\":[{\"z\":1}],\"tools\":[{\"a\":1,\"c\":4,\"a\":{\"b\":1,"
		"\"b\":2"
		"},\"c\":3}]}"},
	{KVW_API_COMPLETIONS, "{\"prompt\":\"yes\"}",
		"{\"prompt\":[\"a\",\"b\"],\"prompt\":\"yes\"}"},
	{KVW_API_COMPLETIONS, "{\"prompt\":\"yes\",\"suffix\":null}",
		"{\"prompt\":\"yes\",\"suffix\":\"a\",\"suffix\":null}"},
	/* token ids */
	{KVW_API_COMPLETIONS, "{\"prompt\":[1,2,33]}", "{\"prompt\" : [ 1 ,2,\n33 ]}"},
	/* cache_control marks move from turn to turn */
	{KVW_API_MESSAGES,
		"{\"system\":[{\"type\":\"text\",\"text\":\"s\"}],\"tools\":[{\"name\":\"t\"}],"
		"\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}",
		"{\"system\":[{\"type\":\"text\",\"text\":\"s\",\"cache_control\":{\"type\":"
		"\"ephemeral\"}}]"
		",\"tools\":[{\"name\":\"t\",\"cache_control\":{\"type\":\"ephemeral\"}}],"
		"\"messages\":[{"
		"\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"hi\",\"cache_"
		"control\":"
		"{\"type\":\"ephemeral\"}}]}]}"},
	{KVW_API_MESSAGES, "{\"system\":\"s\",\"messages\":[]}",
		"{\"messages\":[],\"system\":[{\"type\":\"text\",\"text\":"
		"\"x-anthropic-billing-header: cch=1\"},{\"type\":\"text\",\"text\":\"s\"}]}"},
	{KVW_API_MESSAGES, "{\"system\":\"s\",\"messages\":[]}",
		"{\"messages\":[],\"system\":[{\"text\":\"x-anthropic\\u002dbilling-header: "
		"cch=2\",\"type\""
		":\"text\"},{\"type\":\"text\",\"text\":\"s\"}]}"},
	/* responses: an item's place in the store does not matter */
	{KVW_API_RESPONSES, "{\"input\":\"hi\"}",
		"{\"input\":[{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":"
		"\"input_text\","
		"\"text\":\"hi\"}],\"id\":\"msg_1\",\"status\":\"completed\"}]}"},
};

START_TEST(same_meaning)
{
	struct seen *one = see_text(same[_i].api, same[_i].one);
	struct seen *other = see_text(same[_i].api, same[_i].other);

	ck_assert_int_eq(one->err, KVW_OK);
	ck_assert_int_eq(other->err, KVW_OK);
	ck_assert(one->request.content_known);
	ck_assert(seen_same_prompt(one, other));
	seen_free(one);
	seen_free(other);
}
END_TEST

/* A conversation of which each part can be replaced. Long enough for several chunks a message. */
struct talk {
	const char *top;    /* members in front */
	const char *role;   /* of the second message */
	const char *before; /* members of the second message before its content */
	const char *content;
	const char *after;
};

static struct seen *see_talk(struct talk talk)
{
	char *body = malloc(8192), filler[601];
	struct seen *seen;

	memset(filler, 'x', 600);
	filler[600] = '\0';
	snprintf(body, 8192,
		"{%s\"messages\":[{\"role\":\"system\",\"content\":\"%s\"},{\"role\":\"%s\"%s,"
		"\"content\":"
		"%s%s},{\"role\":\"user\",\"content\":\"%s\"}]}",
		talk.top, filler, talk.role, talk.before, talk.content, talk.after, filler);
	seen = see_text(KVW_API_CHAT, body);
	ck_assert_int_eq(seen->err, KVW_OK);
	ck_assert(seen->request.content_known);
	free(body);
	return seen;
}

static const struct talk usual = {"\"model\":\"m\",", "user", "", "\"question\"", ""};

/* What is changed, and how many chunks are still equal. The first message has three. */
static const struct {
	struct talk talk;
	uint32_t common;
} different[] = {
	{{"\"model\":\"n\",", "user", "", "\"question\"", ""}, 0},
	{{"", "user", "", "\"question\"", ""}, 0},
	{{"\"model\":\"m\",\"cache_salt\":\"s\",", "user", "", "\"question\"", ""}, 0},
	{{"\"model\":\"m\",\"tools\":[{\"name\":\"t\"}],", "user", "", "\"question\"", ""}, 0},
	{{"\"model\":\"m\",\"functions\":[{\"name\":\"t\"}],", "user", "", "\"question\"", ""}, 0},
	{{"\"model\":\"m\",\"chat_template\":\"t\",", "user", "", "\"question\"", ""}, 0},
	{{"\"model\":\"m\",\"chat_template_kwargs\":{\"a\":1},", "user", "", "\"question\"", ""},
		0},
	{{"\"model\":\"m\",\"documents\":[{\"a\":\"b\"}],", "user", "", "\"question\"", ""}, 0},
	{{"\"model\":\"m\",\"add_generation_prompt\":false,", "user", "", "\"question\"", ""}, 0},
	{{"\"model\":\"m\",\"reasoning_effort\":\"high\",", "user", "", "\"question\"", ""}, 0},
	{{"\"model\":\"m\",", "assistant", "", "\"question\"", ""}, 3},
	{{"\"model\":\"m\",", "user", ",\"name\":\"ann\"", "\"question\"", ""}, 3},
	{{"\"model\":\"m\",", "user", ",\"tool_call_id\":\"ann\"", "\"question\"", ""}, 3},
	{{"\"model\":\"m\",", "user", "", "\"Question\"", ""}, 3},
	{{"\"model\":\"m\",", "user", "", "\"question \"", ""}, 3},
	{{"\"model\":\"m\",", "user", "", "null", ""}, 3},
	{{"\"model\":\"m\",", "user", "", "[\"quest\",\"ion\"]", ""}, 3},
	{{"\"model\":\"m\",", "user", "", "[{\"type\":\"refusal\",\"text\":\"question\"}]", ""}, 3},
	{{"\"model\":\"m\",", "user", "", "[{\"type\":\"x\",\"y\":1},\"question\"]", ""}, 3},
	/* behind the content: its chunk is still equal */
	{{"\"model\":\"m\",", "user", "",
		 "[\"question\",{\"type\":\"image_url\",\"image_url\":{\"url\":"
		 "\"http://a/b\"}}]",
		 ""},
		4},
	{{"\"model\":\"m\",", "user", "", "\"question\"", ",\"tool_calls\":[{\"id\":\"c\"}]"}, 4},
	{{"\"model\":\"m\",", "user", "", "\"question\"", ",\"function_call\":{\"name\":\"c\"}"},
		4},
};

START_TEST(different_meaning)
{
	struct seen *one = see_talk(usual), *other = see_talk(different[_i].talk);

	ck_assert_uint_gt(one->request.chunk_count, 6);
	ck_assert_uint_eq(seen_common(one, other), different[_i].common);
	/* Once different, always different: the last chunks differ too. */
	ck_assert(one->chunks[one->request.chunk_count - 1].hash !=
		  other->chunks[other->request.chunk_count - 1].hash);
	seen_free(one);
	seen_free(other);
}
END_TEST

/* Values inside tools that must not be taken for one another. */
START_TEST(different_values)
{
	static const char *const values[] = {"1", "1.0", "-1", "\"1\"", "true", "false", "null",
		"[]", "{}", "[[]]", "[1]", "[1,1]", "{\"a\":1}", "{\"1\":\"a\"}", "{\"a\":{}}",
		"\"\"", "\" \"", "[\"a\",\"b\"]", "[\"ab\"]", "[\"a\",[\"b\"]]",
		"{\"a\":1,\"b\":2}", "{\"a\":2,\"b\":1}", "{\"a\":null}", "1e300", "1e301",
		"[{\"a\":1},{\"b\":2}]", "[{\"a\":1,\"b\":2}]"};
	enum { VALUES = sizeof(values) / sizeof(values[0]) };
	uint64_t hashes[VALUES];
	char body[512];

	for (int i = 0; i < VALUES; i++) {
		struct seen *seen;

		snprintf(body, sizeof(body), "{\"messages\":[],\"tools\":[{\"x\":%s}]}", values[i]);
		seen = see_text(KVW_API_CHAT, body);
		ck_assert_int_eq(seen->err, KVW_OK);
		ck_assert_uint_eq(seen->request.chunk_count, 1);
		hashes[i] = seen->chunks[0].hash;
		seen_free(seen);
		for (int k = 0; k < i; k++)
			ck_assert_msg(hashes[k] != hashes[i], "%s and %s", values[k], values[i]);
	}
}
END_TEST

/* A long text that differs in one byte: equal up to its chunk. */
START_TEST(first_affected_chunk)
{
	enum { LEN = 5000 };
	char *text = malloc(LEN + 64);
	struct seen *one, *other;
	int len = snprintf(text, LEN + 64, "{\"prompt\":\"");

	memset(text + len, 'a', LEN);
	strcpy(text + len + LEN, "\"}");
	one = see_text(KVW_API_COMPLETIONS, text);
	ck_assert_uint_eq(one->request.chunk_count, (LEN + 255) / 256);
	for (int at = 0; at < LEN; at += 37) {
		text[len + at] = 'b';
		other = see_text(KVW_API_COMPLETIONS, text);
		text[len + at] = 'a';
		ck_assert_uint_eq(seen_common(one, other), (uint32_t)at / 256);
		seen_free(other);
	}
	seen_free(one);
	free(text);
}
END_TEST

/* Each turn of a conversation finds the whole of the one before. */
START_TEST(next_turn_matches_to_the_end)
{
	char *body = malloc(1 << 16), *turns = malloc(1 << 16);
	struct seen *last = NULL, *seen;
	uint64_t random = 7;

	turns[0] = '\0';
	for (int turn = 0; turn < 12; turn++) {
		char message[2048], text[1500];
		size_t len = test_random(&random) % 1400;

		memset(text, 'a' + turn, len);
		text[len] = '\0';
		snprintf(message, sizeof(message), "%s{\"role\":\"user\",\"content\":\"%s\"}",
			turn == 0 ? "" : ",{\"role\":\"assistant\",\"content\":\"answer\"},", text);
		strcat(turns, message);
		snprintf(body, 1 << 16, "{\"messages\":[%s]}", turns);
		seen = see_text(KVW_API_CHAT, body);
		ck_assert_int_eq(seen->err, KVW_OK);
		if (last != NULL) {
			ck_assert_uint_eq(seen_common(last, seen), last->request.chunk_count);
			ck_assert_uint_gt(seen->request.chunk_count, last->request.chunk_count);
		}
		seen_free(last);
		last = seen;
	}
	seen_free(last);
	free(body);
	free(turns);
}
END_TEST

/* The length of an image's data says nothing about the length of the prompt. */
START_TEST(media_count_by_their_digest)
{
	char *body = malloc(1 << 17), *data = malloc(1 << 16);
	struct seen *seen;

	memset(data, 'A', (1 << 16) - 1);
	data[(1 << 16) - 1] = '\0';
	snprintf(body, 1 << 17,
		"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\","
		"\"image_url\":{\"url\":\"data:image/png;base64,%s\"}}]}]}",
		data);
	seen = see_text(KVW_API_CHAT, body);
	ck_assert_uint_eq(seen->request.chunk_count, 1);
	ck_assert_uint_lt(seen_units(seen), 100);
	seen_free(seen);
	free(body);
	free(data);
}
END_TEST

/* Chat, Anthropic and responses put the same conversation through the same template. */
START_TEST(same_conversation_in_three_apis)
{
	struct seen *chat =
		see_text(KVW_API_CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"system\","
				       "\"content\":\"s\"},{\"role\":\"user\","
				       "\"content\":\"hi\"}]}");
	struct seen *messages =
		see_text(KVW_API_MESSAGES, "{\"model\":\"m\",\"max_tokens\":1,\"messages\":[{"
					   "\"role\":\"user\",\"content\":[{\"type\":"
					   "\"text\",\"text\":\"hi\"}]}],\"system\":\"s\"}");
	struct seen *responses = see_text(
		KVW_API_RESPONSES, "{\"model\":\"m\",\"input\":\"hi\",\"instructions\":\"s\"}");
	struct seen *plain = see_text(KVW_API_COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"hi\"}");

	ck_assert(seen_same_prompt(chat, messages));
	ck_assert(seen_same_prompt(chat, responses));
	ck_assert(chat->request.seed != plain->request.seed);
	seen_free(chat);
	seen_free(messages);
	seen_free(responses);
	seen_free(plain);
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

int main(void)
{
	TCase *tc = tcase_create("chain");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, same_meaning, 0, COUNT(same));
	tcase_add_loop_test(tc, different_meaning, 0, COUNT(different));
	tcase_add_test(tc, different_values);
	tcase_add_test(tc, first_affected_chunk);
	tcase_add_test(tc, next_turn_matches_to_the_end);
	tcase_add_test(tc, media_count_by_their_digest);
	tcase_add_test(tc, same_conversation_in_three_apis);
	return run_tcase("openai-meaning", tc);
}
