/*
 * tokenless_test.c - which beginnings of answers have a token.
 */
#include <check.h>
#include <string.h>

#include "openai/tokenless.h"
#include "tests/unit/suite.h"

#define OPENS                                                                                                          \
	"data: {\"id\":\"1\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}," \
	"\"logprobs\":null,\"finish_reason\":null}]}\n\n"
#define TOKEN "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\n"
#define LAST  "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\n"
#define USAGE "data: {\"id\":\"1\",\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\n\n"
#define ABORT "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"abort\"}]}\n\n"
/* What a model says of it is in quotes. */
#define QUOTE "data: {\"choices\":[{\"index\":0,\"text\":\"\\\"finish_reason\\\":\\\"abort\\\"\"}]}\n\n"
#define DELTA "event: message_delta\ndata: {\"type\":\"message_delta\"}\n\n"
#define BLOCK "event: content_block_start\ndata: {}\n\n"

static enum kvw_token_sign after(enum kvw_token_sign so_far, const char *piece)
{
	return kvw_tokens_in_piece(so_far, piece, strlen(piece));
}

START_TEST(pieces_of_streams)
{
	static const struct {
		const char *piece;
		enum kvw_token_sign first, second;
	} all[] = {
		{"data: [DONE]\n\n", KVW_TOKENS_NONE, KVW_TOKENS_NONE},
		{USAGE, KVW_TOKENS_NONE, KVW_TOKENS_NONE},
		{ABORT, KVW_TOKENS_NONE, KVW_TOKENS_NONE},
		{OPENS, KVW_TOKENS_OPENED, KVW_TOKENS_SOME},
		{TOKEN, KVW_TOKENS_SOME, KVW_TOKENS_SOME},
		{LAST, KVW_TOKENS_SOME, KVW_TOKENS_SOME},
		{QUOTE, KVW_TOKENS_SOME, KVW_TOKENS_SOME},
		{DELTA, KVW_TOKENS_SOME, KVW_TOKENS_NONE},
		{BLOCK, KVW_TOKENS_SOME, KVW_TOKENS_SOME},
		{OPENS TOKEN, KVW_TOKENS_SOME, KVW_TOKENS_SOME},
		{": a comment\n\n", KVW_TOKENS_SOME, KVW_TOKENS_SOME},
		{"", KVW_TOKENS_SOME, KVW_TOKENS_SOME},
		{"\n\n", KVW_TOKENS_SOME, KVW_TOKENS_SOME},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		ck_assert_msg(after(KVW_TOKENS_UNKNOWN, all[i].piece) == all[i].first, "%s", all[i].piece);
		ck_assert_msg(after(KVW_TOKENS_OPENED, all[i].piece) == all[i].second, "%s", all[i].piece);
	}
}
END_TEST

/* Cut anywhere, it is no whole event: nothing is known, and so nothing is kept back. */
START_TEST(what_is_cut_is_taken_to_have_a_token)
{
	for (size_t len = 0; len < sizeof(OPENS) - 1; len++)
		ck_assert_int_eq(kvw_tokens_in_piece(KVW_TOKENS_UNKNOWN, OPENS, len), KVW_TOKENS_SOME);
}
END_TEST

START_TEST(plain_answers)
{
	static const struct {
		const char *text;
		bool aborted;
	} all[] = {
		{"{\"choices\":[{\"text\":\"a\",\"finish_reason\":\"abort\"}]}", true},
		{"{\"choices\":[{\"text\":\"a\",\"finish_reason\":\"stop\"}]}", false},
		{"{\"choices\":[{\"text\":\"\\\"finish_reason\\\":\\\"abort\\\"\"}]}", false},
		{"{\"type\":\"message\",\"usage\":{\"input_tokens\":9,\"output_tokens\":0,\"x\":1}}", true},
		{"{\"type\":\"message\",\"usage\":{\"input_tokens\":9,\"output_tokens\":10}}", false},
		{"{\"usage\":{\"input_tokens\":9,\"output_tokens\":0}}", false},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		ck_assert_msg(
			kvw_tokens_aborted(all[i].text, strlen(all[i].text)) == all[i].aborted, "%s", all[i].text);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("tokenless");

	tcase_add_test(tc, pieces_of_streams);
	tcase_add_test(tc, what_is_cut_is_taken_to_have_a_token);
	tcase_add_test(tc, plain_answers);
	return run_tcase("tokenless", tc);
}
