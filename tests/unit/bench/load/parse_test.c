/*
 * parse_test.c - what is read: traces, event streams, answers, job lines, plain replies,
 * stamps. Byte streams are fed whole, byte by byte, and cut at every place.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/load/answer.h"
#include "bench/load/job.h"
#include "bench/load/options.h"
#include "bench/load/reply.h"
#include "bench/load/sse.h"
#include "bench/load/stamps.h"
#include "bench/load/trace_file.h"
#include "tests/unit/suite.h"

/* Loads a trace from text; the message, if any, is left in said. */
static enum kvw_err load(
	const char *text, size_t limit, struct kvb_trace *out, char *said, size_t room)
{
	char path[] = "/tmp/kvb-trace-XXXXXX";
	int fd = mkstemp(path);
	FILE *error = fmemopen(said, room, "w");
	enum kvw_err err;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	err = kvb_trace_load(path, limit, out, error);
	fclose(error);
	unlink(path);
	return err;
}

START_TEST(trace_is_read)
{
	static const char text[] = "{\"timestamp\": 0, \"input_length\": 6758, \"output_length\": "
				   "500, \"hash_ids\": [0, 1]}\n"
				   "\n"
				   "{\"hash_ids\":[7,8,9],\"timestamp\":3000,\"output_length\":1,"
				   "\"input_length\":1025,"
				   "\"more\":null}\n"
				   "{\"timestamp\": 3000, \"input_length\": 5, \"output_length\": "
				   "6, \"hash_ids\": [1]}";
	struct kvb_trace trace;
	char said[256] = "";

	ck_assert_int_eq(load(text, 0, &trace, said, sizeof(said)), KVW_OK);
	ck_assert_uint_eq(trace.count, 3);
	ck_assert_uint_eq(trace.rows[0].input_tokens, 6758);
	ck_assert_uint_eq(trace.rows[0].output_tokens, 500);
	ck_assert_int_eq(trace.rows[1].timestamp_ms, 3000);
	ck_assert_uint_eq(trace.rows[1].id_count, 3);
	ck_assert_uint_eq(trace.rows[1].ids[2], 9);
	kvb_trace_finish(&trace);
	ck_assert_int_eq(load(text, 2, &trace, said, sizeof(said)), KVW_OK);
	ck_assert_uint_eq(trace.count, 2);
	kvb_trace_finish(&trace);
}
END_TEST

START_TEST(trace_mistakes_name_their_line)
{
#define GOOD "{\"timestamp\":5,\"input_length\":1,\"output_length\":1,\"hash_ids\":[0]}\n"
	static const struct {
		const char *text;
		enum kvw_err err;
		const char *said;
	} cases[] = {
		{"", KVW_ENOTFOUND, "no request"},
		{GOOD "{nonsense\n", KVW_EPROTO, ":2: not JSON"},
		{GOOD "[]\n", KVW_EPROTO, ":2: timestamp"},
		{GOOD "\n{\"timestamp\":6,\"output_length\":1,\"hash_ids\":[0]}\n", KVW_EPROTO,
			":3: input_length"},
		{"{\"timestamp\":5,\"input_length\":-1,\"output_length\":1,\"hash_ids\":[0]}\n",
			KVW_EPROTO, ":1: input_length"},
		{"{\"timestamp\":5,\"input_length\":1e9,\"output_length\":1,\"hash_ids\":[0]}\n",
			KVW_EPROTO, ":1: input_length"},
		{"{\"timestamp\":5,\"input_length\":1,\"output_length\":\"1\",\"hash_ids\":[0]}\n",
			KVW_EPROTO, ":1: output_length"},
		{"{\"timestamp\":5,\"input_length\":1,\"output_length\":1,\"hash_ids\":[]}\n",
			KVW_EPROTO, ":1: hash_ids"},
		{"{\"timestamp\":5,\"input_length\":1,\"output_length\":1,\"hash_ids\":[\"a\"]}\n",
			KVW_EPROTO, ":1: hash_ids"},
		{GOOD "{\"timestamp\":4,\"input_length\":1,\"output_length\":1,\"hash_ids\":[0]}\n",
			KVW_EPROTO, ":2: timestamp goes back"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct kvb_trace trace;
		char said[256] = "";

		ck_assert_int_eq(load(cases[i].text, 0, &trace, said, sizeof(said)), cases[i].err);
		ck_assert_msg(strstr(said, cases[i].said) != NULL, "case %zu said: %s", i, said);
	}
}
END_TEST

/* Events joined by '|', for comparison. */
static void collect(void *arg, const char *data, size_t len)
{
	kvb_buf_add(arg, data, len);
	kvb_buf_text(arg, "|");
}

START_TEST(events_are_found_however_they_are_cut)
{
	static const char stream[] =
		"data: one\n\n: comment\nevent: x\r\ndata:two\r\ndata: 2\r\n\r\n\n"
		"data: {\"a\":1}\n\ndata:\n\ndata: unfinished\n";

	for (size_t cut = 0; cut < sizeof(stream); cut++) {
		struct kvb_sse sse = {0};
		struct kvb_buf found = {0};

		for (size_t i = 0; i < sizeof(stream) - 1; i++)
			if (cut == 0) /* byte by byte */
				kvb_sse_feed(&sse, stream + i, 1, collect, &found);
		if (cut > 0) {
			kvb_sse_feed(&sse, stream, cut, collect, &found);
			kvb_sse_feed(&sse, stream + cut, sizeof(stream) - 1 - cut, collect, &found);
		}
		ck_assert_str_eq(kvb_buf_str(&found), "one|two\n2|{\"a\":1}||");
		kvb_sse_finish(&sse);
		kvb_buf_finish(&found);
	}
}
END_TEST

/* Reads one event; the error it returns is the caller's to check. */
static enum kvw_err read_event(struct kvb_answer *answer, const char *text, bool *content)
{
	return kvb_answer_read(answer, text, strlen(text), content);
}

START_TEST(answers_are_understood)
{
	struct kvb_answer answer = {0};
	bool content;

	ck_assert_int_eq(
		read_event(&answer,
			"{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}",
			&content),
		KVW_OK);
	ck_assert(!content);
	ck_assert_int_eq(
		read_event(&answer, "{\"choices\":[{\"delta\":{\"content\":\"Hi \\u00e4\"}}]}",
			&content),
		KVW_OK);
	ck_assert(content);
	ck_assert_int_eq(
		read_event(&answer, "{\"choices\":[{\"delta\":{\"reasoning\":\"hm\"}}]}", &content),
		KVW_OK);
	ck_assert(content);
	ck_assert_int_eq(
		read_event(&answer, "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}",
			&content),
		KVW_OK);
	ck_assert(content);
	ck_assert_int_eq(read_event(&answer, "{\"choices\":[{\"text\":\"!\"}]}", &content), KVW_OK);
	ck_assert(content);
	ck_assert(!answer.usage_known);
	ck_assert_int_eq(read_event(&answer,
				 "{\"choices\":[],\"usage\":{\"prompt_tokens\":137,\"completion_"
				 "tokens\":5}}",
				 &content),
		KVW_OK);
	ck_assert(!content && answer.usage_known && !answer.cached_known);
	ck_assert_int_eq(
		read_event(&answer,
			"{\"choices\":[],\"usage\":{\"prompt_tokens\":137,\"completion_tokens\":5,"
			"\"prompt_tokens_details\":{\"cached_tokens\":128}}}",
			&content),
		KVW_OK);
	ck_assert(answer.cached_known);
	ck_assert_int_eq(answer.cached_tokens, 128);
	ck_assert_int_eq(answer.prompt_tokens, 137);
	ck_assert(!answer.done);
	ck_assert_int_eq(read_event(&answer, "[DONE]", &content), KVW_OK);
	ck_assert(answer.done && !answer.failed);
	ck_assert_str_eq(kvb_buf_str(&answer.text), "Hi \xc3\xa4!");
	kvb_answer_finish(&answer);
}
END_TEST

START_TEST(errors_in_streams_are_seen)
{
	struct kvb_answer answer = {0};
	bool content;

	ck_assert_int_eq(read_event(&answer, "{broken", &content), KVW_EPROTO);
	ck_assert_int_eq(read_event(&answer, "[]", &content), KVW_EPROTO);
	ck_assert_int_eq(
		read_event(&answer, "{\"error\":{\"message\":\"engine died\",\"code\":500}}",
			&content),
		KVW_OK);
	ck_assert(answer.failed);
	ck_assert_str_eq(answer.error, "engine died");
	kvb_answer_finish(&answer);
}
END_TEST

START_TEST(replies_end_where_they_end)
{
	static const char text[] =
		"HTTP/1.1 200 OK\r\nserver: x\r\nContent-Length: 5\r\nA: b\r\n\r\nhello";

	for (size_t cut = 1; cut < sizeof(text) - 1; cut++) {
		struct kvb_reply reply;

		kvb_reply_begin(&reply);
		ck_assert_int_eq(kvb_reply_feed(&reply, text, cut), KVB_REPLY_MORE);
		ck_assert_int_eq(
			kvb_reply_feed(&reply, text + cut, sizeof(text) - 1 - cut), KVB_REPLY_DONE);
		ck_assert_int_eq(reply.status, 200);
	}
}
END_TEST

START_TEST(replies_that_cannot_be_counted_are_refused)
{
	static const char *const texts[] = {
		"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nabc", /* more than it said */
		"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
		"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
		"nonsense\r\n\r\n",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct kvb_reply reply;

		kvb_reply_begin(&reply);
		ck_assert_int_eq(kvb_reply_feed(&reply, texts[i], strlen(texts[i])), KVB_REPLY_BAD);
	}
}
END_TEST

static void sum_stamp(void *arg, int64_t ns)
{
	int64_t *seen = arg;

	seen[0]++;
	seen[1] += ns;
}

START_TEST(stamps_are_found_however_they_are_cut)
{
	char text[400];
	int len = snprintf(text, sizeof(text),
		"5b\r\ndata: {" KVB_STAMP_KEY "%020d\"}\n\n\r\n" KVB_STAMP_KEY "%020d"
		"\"kvb_ns\":\"0000" /* never completed */
		"\r\nx" KVB_STAMP_KEY "%020d\"",
		7, 1000, 500000);

	for (int piece = 1; piece <= len; piece++) {
		struct kvb_stamp_reader reader = {.tail_len = 0};
		int64_t seen[2] = {0};

		for (int at = 0; at < len; at += piece)
			kvb_stamps_read(&reader, text + at,
				(size_t)(len - at < piece ? len - at : piece), sum_stamp, seen);
		ck_assert_msg(seen[0] >= 3, "pieces of %d: %d stamps", piece, (int)seen[0]);
	}
}
END_TEST

START_TEST(stamps_are_counted_once)
{
	char text[200];
	int len = snprintf(text, sizeof(text),
		"abc " KVB_STAMP_KEY "%020d\" and " KVB_STAMP_KEY "%020d\" end", 41, 1);

	for (int first = 0; first <= len; first++)
		for (int second = first; second <= len; second++) {
			struct kvb_stamp_reader reader = {.tail_len = 0};
			int64_t seen[2] = {0};

			kvb_stamps_read(&reader, text, (size_t)first, sum_stamp, seen);
			kvb_stamps_read(
				&reader, text + first, (size_t)(second - first), sum_stamp, seen);
			kvb_stamps_read(
				&reader, text + second, (size_t)(len - second), sum_stamp, seen);
			ck_assert_int_eq(seen[0], 2);
			ck_assert_int_eq(seen[1], 42);
		}
}
END_TEST

START_TEST(jobs_are_parsed)
{
	char line[] = "requests port=1234 body=32768 pid=99 rate=500\n";
	char wrong_kind[] = "walk port=1", wrong_key[] = "idle colour=1",
	     wrong_value[] = "idle port=x";
	char too_big[] = "idle port=70000", no_value[] = "stream port";
	char *const wrong[] = {wrong_kind, wrong_key, wrong_value, too_big, no_value};
	struct kvb_job job;
	char said[256] = "";
	FILE *error = fmemopen(said, sizeof(said), "w");

	ck_assert_int_eq(kvb_job_parse(line, &job, error), KVW_OK);
	ck_assert_int_eq(job.kind, KVB_JOB_REQUESTS);
	ck_assert_int_eq(job.port, 1234);
	ck_assert_int_eq(job.body, 32768);
	ck_assert_int_eq(job.pid, 99);
	ck_assert_int_eq(job.rate, 500);
	ck_assert_int_eq(job.connections, 64);
	for (size_t i = 0; i < 5; i++)
		ck_assert_int_eq(kvb_job_parse(wrong[i], &job, error), KVW_EINVAL);
	ck_assert_int_eq(job.port, 1234); /* untouched by what failed */
	fclose(error);
	ck_assert(strstr(said, "port is '70000'") != NULL);
}
END_TEST

/* Parses a command line of words separated by spaces. */
static enum kvw_err parse(const char *words, struct kvb_options *out)
{
	static char copy[512];
	char *argv[32];
	FILE *silent = fopen("/dev/null", "w");
	enum kvw_err err;
	int argc = 0;

	snprintf(copy, sizeof(copy), "%s", words);
	for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " "))
		argv[argc++] = word;
	argv[argc] = NULL;
	err = kvb_options_parse(argc, argv, out, silent);
	fclose(silent);
	return err;
}

START_TEST(options_are_parsed)
{
	static const char *const wrong[] = {
		"kvbench walk",
		"kvbench chat",
		"kvbench trace --url http://x",
		"kvbench chat --url http://x --trace f",
		"kvbench chat --url http://x --users 0",
		"kvbench chat --url http://x --users 1.5",
		"kvbench chat --url http://x --speed nan",
		"kvbench chat --url http://x --speed",
		"kvbench chat --url http://x --arrivals sometimes",
		"kvbench chat --url http://x extra",
		"kvbench --compare one.json",
	};
	struct kvb_options options;

	ck_assert_int_eq(
		parse("kvbench chat --url http://a --url=http://b --users 64 --sessions 10 "
		      "--speed 20 --arrivals fixed --label=x --no-ignore-eos",
			&options),
		KVW_OK);
	ck_assert_int_eq(options.command, KVB_CHAT);
	ck_assert_uint_eq(options.urls.count, 2);
	ck_assert_str_eq(options.urls.items[1], "http://b");
	ck_assert_int_eq(options.users, 10); /* no more users than conversations */
	ck_assert_double_eq(options.speed, 20);
	ck_assert(!options.poisson && !options.ignore_eos);
	ck_assert_str_eq(options.label, "x");
	ck_assert_int_eq(
		parse("kvbench trace --url http://a --trace f --rate-scale 0.5", &options), KVW_OK);
	ck_assert_int_eq(options.api, KVB_API_COMPLETIONS);
	ck_assert_int_eq(parse("kvbench trace --help", &options), KVW_OK);
	ck_assert_int_eq(options.command, KVB_HELP);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ck_assert_msg(parse(wrong[i], &options) == KVW_EINVAL, "accepted: %s", wrong[i]);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("all");

	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, trace_is_read);
	tcase_add_test(tests, trace_mistakes_name_their_line);
	tcase_add_test(tests, events_are_found_however_they_are_cut);
	tcase_add_test(tests, answers_are_understood);
	tcase_add_test(tests, errors_in_streams_are_seen);
	tcase_add_test(tests, replies_end_where_they_end);
	tcase_add_test(tests, replies_that_cannot_be_counted_are_refused);
	tcase_add_test(tests, stamps_are_found_however_they_are_cut);
	tcase_add_test(tests, stamps_are_counted_once);
	tcase_add_test(tests, jobs_are_parsed);
	tcase_add_test(tests, options_are_parsed);
	return run_tcase("load parse", tests);
}
