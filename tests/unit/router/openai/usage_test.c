/*
 * usage_test.c - counts out of a real vLLM's answers, and out of strange ones.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "openai/usage.h"
#include "tests/unit/suite.h"

#define UNKNOWN (-1)

static void check_counts(const struct kvw_usage *usage, long prompt, long cached, long completion)
{
	ck_assert_int_eq(usage->prompt_known, prompt >= 0);
	ck_assert_int_eq(usage->cached_known, cached >= 0);
	ck_assert_int_eq(usage->completion_known, completion >= 0);
	if (prompt >= 0)
		ck_assert_int_eq(usage->prompt_tokens, prompt);
	if (cached >= 0)
		ck_assert_int_eq(usage->cached_tokens, cached);
	if (completion >= 0)
		ck_assert_int_eq(usage->completion_tokens, completion);
}

static void feed_pieces(struct kvw_usage *usage, const char *data, size_t len, size_t piece)
{
	kvw_usage_init(usage);
	for (size_t at = 0; at < len; at += piece) {
		size_t size = len - at < piece ? len - at : piece;
		char *copy = malloc(size);

		memcpy(copy, data + at, size);
		kvw_usage_feed(usage, copy, size);
		free(copy);
	}
	kvw_usage_finish(usage);
}

static const struct {
	const char *name;
	long prompt, cached, completion;
} answers[] = {
	{"completions.resp", 104, 0, 5},
	{"completions_stream.resp", 104, 96, 5},
	{"chat.resp", 137, 0, 5},
	{"chat_stream.resp", 137, 128, 5},
	{"chat_stream_plain.resp", UNKNOWN, UNKNOWN, UNKNOWN},
	{"chat_stream_continuous.resp", 137, 128, 5},
	{"messages.resp", 137, 128, 5},
	{"messages_stream.resp", 137, 128, 5},
	{"responses.resp", 137, 128, 5},
	{"responses_stream.resp", 137, 128, 5},
	{"error_model_chat.resp", UNKNOWN, UNKNOWN, UNKNOWN},
};

START_TEST(recorded_answer)
{
	struct kvw_usage usage;
	size_t len;
	char *data = test_answer(answers[_i].name, &len);

	for (size_t piece = 1; piece <= len; piece += piece < 300 ? 1 : 97) {
		feed_pieces(&usage, data, len, piece);
		check_counts(
			&usage, answers[_i].prompt, answers[_i].cached, answers[_i].completion);
	}
	free(data);
}
END_TEST

/* With continuous statistics the prompt is known before the end; the cached count only at it. */
START_TEST(continuous_statistics)
{
	struct kvw_usage usage;
	size_t len;
	char *data = test_answer("chat_stream_continuous.resp", &len), *end;

	end = strstr(data, "\n\n");
	ck_assert_ptr_nonnull(end);
	end = strstr(end + 2, "\n\n");
	kvw_usage_init(&usage);
	kvw_usage_feed(&usage, data, (size_t)(end - data));
	ck_assert(usage.prompt_known && usage.prompt_tokens == 137);
	ck_assert(!usage.cached_known);
	free(data);
}
END_TEST

/* message_start says how long the prompt is before anything is known of the cache. */
START_TEST(message_start_counts)
{
	struct kvw_usage usage;
	size_t len;
	char *data = test_answer("messages_stream.resp", &len);

	kvw_usage_init(&usage);
	kvw_usage_feed(&usage, data, (size_t)(strstr(data, "\n\n") - data));
	check_counts(&usage, 137, UNKNOWN, 0);
	free(data);
}
END_TEST

static const struct {
	const char *data;
	long prompt, cached, completion;
} strange[] = {
	{"{\"usage\":null}", UNKNOWN, UNKNOWN, UNKNOWN},
	{"{\"usage\":{}}", UNKNOWN, UNKNOWN, UNKNOWN},
	/* Cohere's, as vLLM 0.32 writes them */
	{"{\"id\":\"e\",\"embeddings\":{\"float\":[[0.1,-0.5]]},\"texts\":[\"a\"],\"meta\":{\"api_version\":"
	 "{\"version\":\"2\"},\"billed_units\":{\"input_tokens\":12,\"image_tokens\":0}}}",
		12, UNKNOWN, UNKNOWN},
	{"{\"meta\":{\"billed_units\":{\"input_tokens\":0,\"image_tokens\":900}}}", 900, UNKNOWN, UNKNOWN},
	{"{\"id\":\"c\",\"message\":{\"role\":\"assistant\",\"content\":[]},\"usage\":{\"billed_units\":"
	 "{\"input_tokens\":7.0,\"output_tokens\":2.0,\"search_units\":null},\"tokens\":{\"input_tokens\":12.0,"
	 "\"output_tokens\":5.0},\"cached_tokens\":8.0}}",
		12, 8, 5},
	{"event: message-end\ndata: {\"type\":\"message-end\",\"id\":\"c\",\"delta\":{\"finish_reason\":\"COMPLETE\","
	 "\"usage\":{\"billed_units\":{\"input_tokens\":12,\"output_tokens\":5},\"tokens\":{\"input_tokens\":12,"
	 "\"output_tokens\":5}}}}\n\n",
		12, UNKNOWN, 5},
	{" \n{\"meta\":{\"billed_units\":{\"input_tokens\":12}}}\n\n", 12, UNKNOWN, UNKNOWN},
	/* no event has it */
	{"data: {\"meta\":{\"billed_units\":{\"input_tokens\":12}}}\n\n", UNKNOWN, UNKNOWN, UNKNOWN},
	{"{\"id\":\"e\"}\n\ndata: {\"meta\":{\"billed_units\":{\"input_tokens\":12}}}\n\n", UNKNOWN, UNKNOWN, UNKNOWN},
	{"{\"choices\":[{\"delta\":{\"usage\":{\"prompt_tokens\":5}}}],\"texts\":{\"meta\":{\"billed_units\":"
	 "{\"input_tokens\":12}}}}",
		UNKNOWN, UNKNOWN, UNKNOWN},
	{"{\"usage\":{\"prompt_tokens\":5,\"other\":{\"cached_tokens\":3,\"completion_tokens\":9}}}", 5, UNKNOWN, UNKNOWN},
	{"{\"usage\":{\"prompt_tokens\":5}}", 5, UNKNOWN, UNKNOWN},
	{"{\"usage\" : { \"prompt_tokens\" : 5 , \"completion_tokens\" :\n7 } }", 5, UNKNOWN, 7},
	{"{\"usage\":{\"prompt_tokens\":5,\"prompt_tokens_details\":null}}", 5, UNKNOWN, UNKNOWN},
	{"{\"usage\":{\"prompt_tokens\":5,\"prompt_tokens_details\":{\"cached_tokens\":null}}}", 5,
		UNKNOWN, UNKNOWN},
	{"{\"usage\":{\"prompt_tokens\":5,\"prompt_tokens_details\":{\"cached_tokens\":3}}}", 5, 3,
		UNKNOWN},
	{"{\"usage\":{\"prompt_tokens_details\":{\"x\":[{}],\"cached_tokens\":3},\"prompt_tokens\":"
	 "5}}",
		5, 3, UNKNOWN},
	/* counts elsewhere are others' */
	{"{\"usage\":{\"prompt_tokens\":5,\"completion_tokens_details\":{\"cached_tokens\":3}}}", 5,
		UNKNOWN, UNKNOWN},
	{"{\"usage\":{\"prompt_tokens\":5,\"cached_tokens\":3,\"x\":{\"prompt_tokens\":9}}}", 5,
		UNKNOWN, UNKNOWN},
	/* more cached than there is */
	{"{\"usage\":{\"prompt_tokens\":5,\"prompt_tokens_details\":{\"cached_tokens\":6}}}", 5,
		UNKNOWN, UNKNOWN},
	/* not counts */
	{"{\"usage\":{\"prompt_tokens\":-5}}", UNKNOWN, UNKNOWN, UNKNOWN},
	{"{\"usage\":{\"prompt_tokens\":5.5}}", UNKNOWN, UNKNOWN, UNKNOWN},
	{"{\"usage\":{\"prompt_tokens\":\"5\"}}", UNKNOWN, UNKNOWN, UNKNOWN},
	{"{\"usage\":{\"prompt_tokens\":99999999999999999999}}", UNKNOWN, UNKNOWN, UNKNOWN},
	/* text about usage is not usage */
	{"{\"content\":\"\\\"usage\\\":{\\\"prompt_tokens\\\":5}\"}", UNKNOWN, UNKNOWN, UNKNOWN},
	{"{\"a\":\"usage\",\"b\":{\"prompt_tokens\":5}}", UNKNOWN, UNKNOWN, UNKNOWN},
	{"{\"usage\":{\"note\":\"}\\\"{\",\"prompt_tokens\":5}}", 5, UNKNOWN, UNKNOWN},
	/* the last one counts, and brings its own cached count or none */
	{"{\"usage\":{\"prompt_tokens\":9,\"prompt_tokens_details\":{\"cached_tokens\":8}}}"
	 "{\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2}}",
		5, UNKNOWN, 2},
	{"{\"usage\":{\"input_tokens\":5,\"cache_read_input_tokens\":3,"
	 "\"cache_creation_input_tokens\":2}}{\"usage\":{\"output_tokens\":7}}",
		10, 3, 7},
	{"{\"usage\":null}{\"usage\":null,\"usage\":{\"prompt_tokens\":5}}", 5, UNKNOWN, UNKNOWN},
	/* cut off */
	{"{\"usage\":{\"prompt_tokens\":5", UNKNOWN, UNKNOWN, UNKNOWN},
	/* an echo of what a client sent is not usage */
	{"{\"tools\":[{\"parameters\":{\"usage\":{\"input_tokens\":0,\"output_tokens\":0}}}]}", UNKNOWN, UNKNOWN,
		UNKNOWN},
	{"{\"metadata\":{\"usage\":{\"input_tokens\":1}},\"usage\":{\"input_tokens\":5}}", 5, UNKNOWN, UNKNOWN},
	{"{\"usage\":{\"input_tokens\":5},\"tools\":[{\"usage\":{\"input_tokens\":1}}]}", 5, UNKNOWN, UNKNOWN},
	{"{\"response\":{\"tools\":[{\"usage\":{\"input_tokens\":1}}],\"metadata\":{\"usage\":{\"input_tokens\":2}},"
	 "\"usage\":{\"input_tokens\":5}}}",
		5, UNKNOWN, UNKNOWN},
	{"{\"response\":[{\"usage\":{\"input_tokens\":1}}],\"x\":{\"message\":{\"usage\":{\"input_tokens\":2}}}}",
		UNKNOWN, UNKNOWN, UNKNOWN},
	{"{\"choices\":[{\"message\":{\"usage\":{\"prompt_tokens\":1}}}]}", UNKNOWN, UNKNOWN, UNKNOWN},
	{"{\"message\":{\"a\":\"b\\\\\",\"usage\":{\"input_tokens\":5}},\"y\":{\"usage\":{\"input_tokens\":2}}}", 5,
		UNKNOWN, UNKNOWN},
	{"{\"usages\":{\"input_tokens\":1},\"a_very_long_usage\":{\"input_tokens\":2},\"usag\":{\"input_tokens\":3}}",
		UNKNOWN, UNKNOWN, UNKNOWN},
	{"event: response.created\ndata: {\"response\":{\"tools\":[{\"usage\":{\"input_tokens\":1}}],\"usage\":null}}\n\n"
	 "data: {\"delta\":\"x\"}\n\n",
		UNKNOWN, UNKNOWN, UNKNOWN},
	{"data: {\"usage\":null}\n\ndata: {\"t\":[{\"usage\":{\"input_tokens\":1}}],\"usage\":null}\n\n"
	 ": keep-alive\n\nevent: x\r\ndata: {\"response\":{\"usage\":{\"input_tokens\":7}}}\r\n\r\ndata: [DONE]\n\n",
		7, UNKNOWN, UNKNOWN},
};

START_TEST(strange_answer)
{
	size_t len = strlen(strange[_i].data);
	struct kvw_usage usage;

	for (size_t piece = 1; piece <= len; piece++) {
		feed_pieces(&usage, strange[_i].data, len, piece);
		check_counts(
			&usage, strange[_i].prompt, strange[_i].cached, strange[_i].completion);
	}
}
END_TEST

/* An object longer than the window is ignored; what follows is not. */
START_TEST(too_long_object)
{
	char data[4096] = "{\"usage\":{\"prompt_tokens\":9,\"x\":\"";
	struct kvw_usage usage;

	memset(data + strlen(data), 'x', 2000);
	strcat(data, "\"}}");
	feed_pieces(&usage, data, strlen(data), 100);
	check_counts(&usage, UNKNOWN, UNKNOWN, UNKNOWN);
	strcat(data, "{\"usage\":{\"prompt_tokens\":5}}");
	feed_pieces(&usage, data, strlen(data), 100);
	check_counts(&usage, 5, UNKNOWN, UNKNOWN);
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

int main(void)
{
	TCase *tc = tcase_create("usage");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, recorded_answer, 0, COUNT(answers));
	tcase_add_test(tc, continuous_statistics);
	tcase_add_test(tc, message_start_counts);
	tcase_add_loop_test(tc, strange_answer, 0, COUNT(strange));
	tcase_add_test(tc, too_long_object);
	return run_tcase("openai-usage", tc);
}
