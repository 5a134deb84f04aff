/*
 * apis_test.c - fields and prompt of each API's bodies.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "support.h"
#include "tests/unit/suite.h"

/* A body and what is to be seen in it. */
struct expected {
	enum kvw_api api;
	const char *body;
	const char *model, *session, *previous;
	bool stream, include_usage, known, teaches, ids;
	uint32_t chains, chunks, choices, most;
};

static const struct expected bodies[] = {
	{.api = KVW_API_COMPLETIONS,
		.body = "{\"model\":\"a\\/b\",\"prompt\":\"hi\"}",
		.model = "a/b",
		.known = true,
		.teaches = true,
		.chains = 1,
		.chunks = 1},
	{.api = KVW_API_COMPLETIONS,
		.body = "{\"prompt\":\"\"}",
		.known = true,
		.teaches = true,
		.chains = 1},
	{.api = KVW_API_COMPLETIONS,
		.body = "{\"prompt\":[\"a\",\"\",\"b\"]}",
		.known = true,
		.teaches = true,
		.chains = 3,
		.chunks = 2},
	{.api = KVW_API_COMPLETIONS,
		.body = "{\"prompt\":[1,2,3]}",
		.known = true,
		.teaches = true,
		.ids = true,
		.chains = 1,
		.chunks = 1},
	{.api = KVW_API_COMPLETIONS,
		.body = "{\"prompt\":[[1,2],[3],[]]}",
		.known = true,
		.teaches = true,
		.ids = true,
		.chains = 3,
		.chunks = 2},
	{.api = KVW_API_COMPLETIONS,
		.body = "{\"prompt\":[]}",
		.known = true,
		.teaches = true,
		.chains = 1},
	{.api = KVW_API_COMPLETIONS, .body = "{\"model\":null}", .teaches = true},
	{.api = KVW_API_COMPLETIONS, .body = "{\"n\":\"7\",\"n\":16}", .teaches = true, .choices = 16},
	{.api = KVW_API_CHAT, .body = "{\"n\":3,\"x\":9,\"m\":{\"n\":5}}", .teaches = true, .choices = 3},
	{.api = KVW_API_CHAT, .body = "{\"n\":3,\"n\":null}", .teaches = true},
	{.api = KVW_API_CHAT, .body = "{\"n\":1.5}", .teaches = true},
	{.api = KVW_API_CHAT, .body = "{\"n\":123456}", .teaches = true},
	{.api = KVW_API_CHAT, .body = "{\"n\":[2,4]}", .teaches = true},
	{.api = KVW_API_MESSAGES, .body = "{\"n\":3}", .teaches = true},
	{.api = KVW_API_MESSAGES, .body = "{\"max_tokens\":300}", .teaches = true, .most = 300},
	{.api = KVW_API_COMPLETIONS, .body = "{\"max_tokens\":5,\"max_tokens\":6}", .teaches = true, .most = 6},
	{.api = KVW_API_CHAT, .body = "{\"max_completion_tokens\":9,\"max_tokens\":5}", .teaches = true, .most = 9},
	{.api = KVW_API_CHAT, .body = "{\"max_tokens\":null,\"x\":{\"max_tokens\":5}}", .teaches = true},
	{.api = KVW_API_CHAT, .body = "{\"max_tokens\":9999999999}", .teaches = true},
	{.api = KVW_API_CHAT, .body = "{\"max_tokens\":-4,\"max_completion_tokens\":\"7\"}", .teaches = true},
	{.api = KVW_API_RESPONSES, .body = "{\"max_output_tokens\":64,\"max_tokens\":5}", .teaches = true, .most = 64},
	{.api = KVW_API_EMBEDDINGS, .body = "{\"max_tokens\":5}"},
	{.api = KVW_API_COMPLETIONS,
		.body = "{\"prompt\":\"a\",\"prompt_embeds\":\"AAAA\"}",
		.teaches = true},
	{.api = KVW_API_COMPLETIONS,
		.body = "{\"prompt\":\"a\",\"prompt_embeds\":null}",
		.known = true,
		.teaches = true,
		.chains = 1,
		.chunks = 1},
	{.api = KVW_API_CHAT,
		.body = "{\"model\":\"m\",\"stream\":true,\"stream_options\":{\"include_usage\":"
			"true},"
			"\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"user\":\"u\"}",
		.model = "m",
		.session = "u",
		.stream = true,
		.include_usage = true,
		.known = true,
		.teaches = true,
		.chains = 1,
		.chunks = 1},
	{.api = KVW_API_CHAT,
		.body = "{\"user\":\"u\",\"session_id\":\"s\\u0031\",\"stream\":false,\"stream_"
			"options\":"
			"{\"continuous_usage_stats\":true},\"messages\":[]}",
		.session = "s1",
		.known = true,
		.teaches = true,
		.chains = 1},
	{.api = KVW_API_CHAT,
		.body = "{\"user\":\"u\",\"session_id\":{\"a\":[1]},\"stream\":null,\"messages\":[]"
			","
			"\"metadata\":{\"user\":\"x\",\"model\":\"y\",\"messages\":3}}",
		.session = "u",
		.known = true,
		.teaches = true,
		.chains = 1},
	{.api = KVW_API_CHAT, .body = "{\"prompt\":\"not chat\"}", .teaches = true},
	{.api = KVW_API_RESPONSES,
		.body = "{\"input\":\"hi\",\"model\":\"m\"}",
		.model = "m",
		.known = true,
		.teaches = true,
		.chains = 1,
		.chunks = 1},
	{.api = KVW_API_RESPONSES,
		.body = "{\"input\":[{\"role\":\"user\",\"content\":\"a\"},{\"type\":\"function_"
			"call\","
			"\"name\":\"f\",\"arguments\":\"{}\",\"call_id\":\"c\"},{\"type\":"
			"\"function_call_output\",\"call_id\":\"c\",\"output\":\"1\"}],"
			"\"instructions\":\"be kind\"}",
		.known = true,
		.teaches = true,
		.chains = 1,
		.chunks = 4},
	{.api = KVW_API_RESPONSES,
		.body = "{\"input\":\"hi\",\"previous_response_id\":\"resp_1\"}",
		.previous = "resp_1",
		.teaches = true},
	{.api = KVW_API_RESPONSES,
		.body = "{\"input\":\"hi\",\"previous_response_id\":null,\"conversation\":null}",
		.known = true,
		.teaches = true,
		.chains = 1,
		.chunks = 1},
	{.api = KVW_API_RESPONSES,
		.body = "{\"input\":\"hi\",\"conversation\":{\"id\":\"c\"}}",
		.teaches = true},
	{.api = KVW_API_MESSAGES,
		.body = "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\","
			"\"tool_use_id\":\"t\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}]},{"
			"\"type\":"
			"\"text\",\"text\":\"go "
			"on\"}]}],\"system\":\"s\",\"model\":\"m\",\"stream\":true}",
		.model = "m",
		.stream = true,
		.known = true,
		.teaches = true,
		.chains = 1,
		.chunks = 3},
	{.api = KVW_API_COUNT_TOKENS,
		.body = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"model\":\"m\"}",
		.model = "m",
		.known = true,
		.chains = 1,
		.chunks = 1},
	{.api = KVW_API_EMBEDDINGS,
		.body = "{\"input\":[\"a\",\"b\"],\"model\":\"e\"}",
		.model = "e",
		.known = true,
		.chains = 2,
		.chunks = 2},
	{.api = KVW_API_EMBEDDINGS,
		.body = "{\"input\":[[1],[2,3]]}",
		.known = true,
		.ids = true,
		.chains = 2,
		.chunks = 2},
	{.api = KVW_API_EMBEDDINGS,
		.body = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}",
		.known = true,
		.chains = 1,
		.chunks = 1},
	{.api = KVW_API_TOKENIZE,
		.body = "{\"prompt\":\"a\"}",
		.known = true,
		.chains = 1,
		.chunks = 1},
	{.api = KVW_API_TOKENIZE,
		.body = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}",
		.known = true,
		.chains = 1,
		.chunks = 1},
	{.api = KVW_API_TOKENIZE, .body = "{\"messages\":[],\"prompt\":\"which?\"}"},
	{.api = KVW_API_RERANK,
		.body = "{\"model\":\"r\",\"query\":\"q\",\"documents\":[\"a\"]}",
		.model = "r"},
	{.api = KVW_API_GENERATE,
		.body = "{\"model\":\"m\",\"token_ids\":[1,2,3],\"max_tokens\":9,\"n\":8,\"sampling_params\":{\"n\":2,"
			"\"max_tokens\":7,\"temperature\":0,\"x\":{\"n\":3}},\"stream\":true}",
		.model = "m",
		.stream = true,
		.known = true,
		.teaches = true,
		.ids = true,
		.chains = 1,
		.chunks = 1,
		.choices = 2,
		.most = 7},
	{.api = KVW_API_GENERATE,
		.body = "{\"text\":[\"a\",\"b\"],\"sampling_params\":[{\"n\":2}],\"prompt\":5}",
		.known = true,
		.teaches = true,
		.chains = 2,
		.chunks = 2},
	{.api = KVW_API_GENERATE,
		.body = "{\"input_ids\":[[1],[2]],\"sampling_params\":{\"max_new_tokens\":4}}",
		.known = true,
		.teaches = true,
		.ids = true,
		.chains = 2,
		.chunks = 2,
		.most = 4},
	{.api = KVW_API_GENERATE, .body = "{\"text\":\"a\",\"input_ids\":[1]}", .teaches = true},
	{.api = KVW_API_CHAT_BATCH,
		.body = "{\"messages\":[[{\"role\":\"user\",\"content\":\"a\"}],[{\"role\":\"user\",\"content\":\"a\"},"
			"{\"role\":\"user\",\"content\":\"b\"}]],\"model\":\"m\",\"max_tokens\":5}",
		.model = "m",
		.known = true,
		.teaches = true,
		.chains = 2,
		.chunks = 3,
		.most = 5},
	{.api = KVW_API_OTHER,
		.body = "{\"model\":\"o\",\"messages\":1,\"prompt\":{},\"user\":\"u\"}",
		.model = "o",
		.session = "u"},
};

static bool text_is(struct kvw_slice slice, const char *text)
{
	return kvw_slice_equal(slice, kvw_slice_of(text));
}

START_TEST(body_is_understood)
{
	const struct expected *expected = &bodies[_i];
	struct seen *seen = see_text(expected->api, expected->body);
	const struct kvw_route_request *request = &seen->request;

	ck_assert_int_eq(seen->err, KVW_OK);
	ck_assert_int_eq(request->api,
		expected->api == KVW_API_GENERATE           ? KVW_API_COMPLETIONS
			: expected->api == KVW_API_CHAT_BATCH ? KVW_API_CHAT
							      : expected->api);
	ck_assert(text_is(request->model, expected->model));
	ck_assert(text_is(request->session, expected->session));
	ck_assert(text_is(request->previous_id, expected->previous));
	ck_assert_int_eq(request->stream, expected->stream);
	ck_assert_int_eq(request->include_usage, expected->include_usage);
	ck_assert_int_eq(request->content_known, expected->known);
	ck_assert_int_eq(request->teaches, expected->teaches);
	ck_assert_int_eq(request->token_ids, expected->ids);
	ck_assert_uint_eq(request->choices, expected->choices);
	ck_assert_uint_eq(request->answer_most, expected->most);
	ck_assert_uint_eq(request->chain_count, expected->chains);
	ck_assert_uint_eq(request->chunk_count, expected->chunks);
	if (expected->chains > 0)
		ck_assert_uint_eq(seen->chain_ends[expected->chains - 1], expected->chunks);
	seen_free(seen);
}
END_TEST

/* A body on /invocations, and the path that it stands for. */
static const struct {
	const char *body;
	enum kvw_api api;
	const char *there; /* the same on that path; NULL: it is `body` itself */
	bool known;
} invocations[] = {
	{"{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"functions\":[{\"name\":\"f\"}],\"n\":2,"
	 "\"max_completion_tokens\":4,\"documents\":[1],\"model\":\"m\",\"cache_salt\":\"s\"}",
		KVW_API_CHAT, NULL, true},
	{"{\"max_completion_tokens\":4,\"documents\":[1],\"functions\":[{\"name\":\"f\"}],\"suffix\":\"s\","
	 "\"max_tokens\":7,\"tools\":[{\"x\":1}],\"prompt\":[\"a\",\"b\"],\"n\":2,\"model\":\"m\"}",
		KVW_API_COMPLETIONS, NULL, true},
	{"{\"prompt\":[[1,2],[3]],\"input\":null,\"messages\":null}", KVW_API_COMPLETIONS, NULL, true},
	{"{\"prompt_embeds\":\"AAAA\"}", KVW_API_COMPLETIONS, NULL, false},
	{"{\"input\":[\"a\",\"b\"],\"suffix\":\"s\",\"n\":3,\"max_tokens\":5,\"reasoning_effort\":\"low\"}",
		KVW_API_EMBEDDINGS, NULL, true},
	{"{\"query\":\"q\",\"documents\":[\"a\"],\"model\":\"m\"}", KVW_API_RERANK, NULL, false},
	{"{\"requestType\":\"NEW_SESSION\"}", KVW_API_RERANK, NULL, false},
	{"{\"inputs\":\"hi\",\"parameters\":{\"max_new_tokens\":4}}", KVW_API_COMPLETIONS,
		"{\"prompt\":\"hi\"}", true},
	/* what the worker makes of two: a chat before all else; of the others it is not guessed at */
	{"{\"prompt\":\"a\",\"prompt_embeds\":\"AAAA\",\"suffix\":\"s\",\"input\":[1],\"messages\":"
	 "[{\"role\":\"user\",\"content\":\"hi\"}]}",
		KVW_API_CHAT, NULL, true},
	{"{\"input\":\"a\",\"prompt\":\"b\"}", KVW_API_COMPLETIONS, NULL, false},
	{"{\"prompt\":\"b\",\"input\":\"a\"}", KVW_API_COMPLETIONS, NULL, false},
	{"{\"prompt\":\"b\",\"input\":\"a\",\"prompt\":null}", KVW_API_EMBEDDINGS, "{\"input\":\"a\"}", true},
	{"{\"input\":\"a\",\"prompt\":\"b\",\"input\":null}", KVW_API_COMPLETIONS, "{\"prompt\":\"b\"}", true},
};

START_TEST(invocation_is_what_its_body_is)
{
	const char *body = invocations[_i].body, *there = invocations[_i].there;
	struct seen *here = see(KVW_API_INVOCATIONS, body, strlen(body), 3);
	struct seen *other = see_text(invocations[_i].api, there == NULL ? body : there);

	ck_assert_int_eq(here->err, KVW_OK);
	ck_assert_int_eq(here->request.api, invocations[_i].api);
	ck_assert_int_eq(here->request.content_known, invocations[_i].known);
	ck_assert_int_eq(here->request.teaches, other->request.teaches);
	ck_assert_uint_eq(here->request.choices, other->request.choices);
	ck_assert_uint_eq(here->request.answer_most, other->request.answer_most);
	if (invocations[_i].known)
		ck_assert(seen_same_prompt(here, other));
	seen_free(here);
	seen_free(other);
}
END_TEST

/* Types that the path does not promise. */
static const struct {
	enum kvw_api api;
	const char *body;
} wrong[] = {
	{KVW_API_COMPLETIONS, "{\"prompt\":1}"},
	{KVW_API_COMPLETIONS, "{\"prompt\":{}}"},
	{KVW_API_COMPLETIONS, "{\"prompt\":true}"},
	{KVW_API_COMPLETIONS, "{\"prompt\":[1,\"a\"]}"},
	{KVW_API_COMPLETIONS, "{\"prompt\":[\"a\",1]}"},
	{KVW_API_COMPLETIONS, "{\"prompt\":[\"a\",[1]]}"},
	{KVW_API_COMPLETIONS, "{\"prompt\":[[1],\"a\"]}"},
	{KVW_API_COMPLETIONS, "{\"prompt\":[[1],2]}"},
	{KVW_API_COMPLETIONS, "{\"prompt\":[[[1]]]}"},
	{KVW_API_COMPLETIONS, "{\"prompt\":[[\"a\"]]}"},
	{KVW_API_COMPLETIONS, "{\"prompt\":[-1]}"},
	{KVW_API_COMPLETIONS, "{\"prompt\":[1.0]}"},
	{KVW_API_COMPLETIONS, "{\"prompt\":[1e3]}"},
	{KVW_API_COMPLETIONS, "{\"prompt\":[4294967296]}"},
	{KVW_API_COMPLETIONS, "{\"prompt\":[null]}"},
	{KVW_API_COMPLETIONS, "{\"prompt\":[1,null]}"},
	{KVW_API_COMPLETIONS, "{\"prompt\":[1,2,{}]}"},
	{KVW_API_CHAT, "{\"messages\":{}}"},
	{KVW_API_CHAT, "{\"messages\":\"a\"}"},
	{KVW_API_CHAT, "{\"messages\":[\"a\"]}"},
	{KVW_API_CHAT, "{\"messages\":[[]]}"},
	{KVW_API_CHAT, "{\"messages\":[null]}"},
	{KVW_API_CHAT, "{\"messages\":[{\"role\":1}]}"},
	{KVW_API_CHAT, "{\"messages\":[{\"role\":[]}]}"},
	{KVW_API_CHAT, "{\"messages\":[{\"content\":1}]}"},
	{KVW_API_CHAT, "{\"messages\":[{\"content\":{}}]}"},
	{KVW_API_CHAT, "{\"messages\":[{\"content\":[1]}]}"},
	{KVW_API_CHAT, "{\"messages\":[{\"content\":[null]}]}"},
	{KVW_API_CHAT, "{\"messages\":[{\"content\":[[]]}]}"},
	{KVW_API_CHAT, "{\"messages\":[{\"content\":[{\"type\":1}]}]}"},
	{KVW_API_CHAT, "{\"messages\":[{\"content\":[{\"text\":{}}]}]}"},
	{KVW_API_CHAT, "{\"messages\":[],\"model\":1}"},
	{KVW_API_CHAT, "{\"messages\":[],\"model\":{}}"},
	{KVW_API_CHAT, "{\"messages\":[],\"stream\":\"true\"}"},
	{KVW_API_CHAT, "{\"messages\":[],\"stream\":1}"},
	{KVW_API_CHAT, "{\"messages\":[],\"stream_options\":[]}"},
	{KVW_API_CHAT, "{\"messages\":[],\"stream_options\":{\"include_usage\":1}}"},
	{KVW_API_CHAT, "{\"messages\":[],\"cache_salt\":true}"},
	{KVW_API_CHAT, "{\"messages\":[],\"tools\":{}}"},
	{KVW_API_CHAT, "{\"messages\":[],\"tools\":[1]}"},
	{KVW_API_CHAT, "{\"messages\":[],\"tools\":[[]]}"},
	{KVW_API_RESPONSES, "{\"input\":1}"},
	{KVW_API_RESPONSES, "{\"input\":[\"a\"]}"},
	{KVW_API_RESPONSES, "{\"input\":\"a\",\"previous_response_id\":1}"},
	{KVW_API_MESSAGES, "{\"messages\":[],\"system\":1}"},
	{KVW_API_MESSAGES, "{\"messages\":[],\"system\":{}}"},
	{KVW_API_EMBEDDINGS, "{\"input\":{}}"},
	{KVW_API_INVOCATIONS, "{\"input\":{}}"},
	{KVW_API_INVOCATIONS, "{\"messages\":\"a\"}"},
};

START_TEST(wrong_type)
{
	struct seen *seen = see_text(wrong[_i].api, wrong[_i].body);

	ck_assert_int_eq(seen->err, KVW_EPROTO);
	ck_assert(!seen->request.content_known);
	ck_assert_int_eq(seen->request.api, wrong[_i].api);
	seen_free(seen);
}
END_TEST

START_TEST(units_are_bytes_or_ids)
{
	char body[8192] = "{\"prompt\":[";
	struct seen *seen;

	for (int i = 0; i < 150; i++)
		snprintf(body + strlen(body), 16, "%s%d", i == 0 ? "" : ",", 1000 + i);
	strcat(body, "]}");
	seen = see_text(KVW_API_COMPLETIONS, body);
	ck_assert_uint_eq(seen->request.chunk_count, 3);
	ck_assert_uint_eq(seen->chunks[0].end, 64);
	ck_assert_uint_eq(seen->chunks[1].end, 128);
	ck_assert_uint_eq(seen->chunks[2].end, 150);
	seen_free(seen);

	strcpy(body, "{\"prompt\":\"");
	memset(body + strlen(body), 'a', 600);
	strcpy(body + 11 + 600, "\\u00e9\"}");
	seen = see_text(KVW_API_COMPLETIONS, body);
	ck_assert_uint_eq(seen->request.chunk_count, 3);
	ck_assert_uint_eq(seen->chunks[0].end, 256);
	ck_assert_uint_eq(seen->chunks[1].end, 512);
	ck_assert_uint_eq(seen->chunks[2].end, 602);
	seen_free(seen);
}
END_TEST

/* Equal prompts of a list have equal chains: each begins at the seed. */
START_TEST(chains_are_independent)
{
	struct seen *list = see_text(KVW_API_COMPLETIONS, "{\"prompt\":[\"a\",\"b\",\"a\"]}");
	struct seen *one = see_text(KVW_API_COMPLETIONS, "{\"prompt\":\"a\"}");

	ck_assert_uint_eq(list->request.chunk_count, 3);
	ck_assert(list->chunks[0].hash == list->chunks[2].hash);
	ck_assert(list->chunks[0].hash != list->chunks[1].hash);
	ck_assert(list->chunks[0].hash == one->chunks[0].hash);
	ck_assert_uint_eq(list->chunks[2].end, 1);
	seen_free(list);
	seen_free(one);
}
END_TEST

/* A scan forgets the last body. */
START_TEST(reset_forgets)
{
	static const char first[] =
		"{\"model\":\"m\",\"stream\":true,\"user\":\"u\",\"tools\":[{}],"
		"\"chat_template\":\"t\",\"cache_salt\":\"s\",\"messages\":[{"
		"\"role\":\"user\",\"content\":\"hello\\u12";
	static const char second[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}";
	struct seen *alone = see_text(KVW_API_CHAT, second);
	struct kvw_route_request request;
	struct kvw_scan *scan;

	ck_assert_int_eq(kvw_scan_create(&test_options, &scan), KVW_OK);
	kvw_scan_reset(scan, KVW_API_MESSAGES);
	kvw_scan_feed(scan, first, sizeof(first) - 1);
	kvw_scan_reset(scan, KVW_API_CHAT);
	kvw_scan_feed(scan, second, sizeof(second) - 1);
	ck_assert_int_eq(kvw_scan_finish(scan, &request), KVW_OK);
	ck_assert_uint_eq(request.model.len, 0);
	ck_assert_uint_eq(request.session.len, 0);
	ck_assert(!request.stream);
	ck_assert(request.seed == alone->request.seed);
	ck_assert_uint_eq(request.chunk_count, 1);
	ck_assert(request.chunks[0].hash == alone->chunks[0].hash);
	kvw_scan_destroy(scan);
	kvw_scan_destroy(NULL);
	seen_free(alone);
}
END_TEST

/* A session field may be one that has a meaning of its own. */
START_TEST(session_from_any_field)
{
	static const char *const fields[] = {"nowhere", "cache_salt", "prompt_cache_key"};
	static const struct kvw_scan_options options = {fields, 3};
	static const char body[] =
		"{\"prompt_cache_key\":\"k\",\"cache_salt\":\"s\",\"prompt\":\"a\"}";
	struct kvw_route_request request;
	struct kvw_scan *scan;

	ck_assert_int_eq(kvw_scan_create(&options, &scan), KVW_OK);
	kvw_scan_reset(scan, KVW_API_COMPLETIONS);
	kvw_scan_feed(scan, body, sizeof(body) - 1);
	ck_assert_int_eq(kvw_scan_finish(scan, &request), KVW_OK);
	ck_assert(kvw_slice_equal(request.session, KVW_SLICE("s")));
	kvw_scan_destroy(scan);
}
END_TEST

static const struct {
	const char *body, *session;
} nested[] = {
	{"{\"metadata\":{\"user_id\":\"u\"}}", "u"},
	{"{\"metadata\":{\"user_id\":\"u\",\"session_id\":\"s\"}}", "s"}, /* the list's order, not the body's */
	{"{\"nvext\":{\"x\":[{\"agent_context\":{\"session_id\":\"no\"}}],\"agent_context\":{\"a\":{},\"session_id\":\"n\"}}}",
		"n"},
	{"{\"nvext\":{\"session_id\":\"no\",\"agent_context\":\"session_id\"}}", ""},
	{"{\"a\":{\"metadata\":{\"user_id\":\"no\"}},\"metadata\":[{\"user_id\":\"no\"}],\"user_id\":\"no\"}", ""},
	{"{\"metadata\":{\"user_id\":{\"user_id\":\"no\"}}}", ""},
	{"{\"metadata\":{\"user_id\":7,\"more\":{\"user_id\":\"no\"}},\"metadat\":{\"user_id\":\"no\"}}", ""},
	{"{\"metadata\":{\"user_id\":\"old\"},\"metadata\":{\"user_id\":\"new\"}}", "new"}, /* as servers read it */
	{"{\"metadata\":{\"user_id\":\"old\"},\"metadata\":null}", ""},
	{"{\"metadata.user_id\":\"dots and all\"}", "dots and all"},
	{"{\"vllm_xargs\":{\"n\":1,\"agentic_context\":{\"session_id\":\"x\"}},\"metadata\":{\"session_id\":\"s\"}}", "x"},
};

START_TEST(session_from_a_nested_field)
{
	static const char *const fields[] = {"vllm_xargs.agentic_context.session_id",
		"nvext.agent_context.session_id", "metadata.session_id", "metadata.user_id"};
	static const struct kvw_scan_options options = {fields, 4};
	struct kvw_route_request request;
	size_t len = strlen(nested[_i].body);
	struct kvw_scan *scan;

	ck_assert_int_eq(kvw_scan_create(&options, &scan), KVW_OK);
	for (size_t piece = 1; piece <= len; piece++) {
		kvw_scan_reset(scan, KVW_API_MESSAGES);
		for (size_t at = 0; at < len; at += piece)
			kvw_scan_feed(scan, nested[_i].body + at, len - at < piece ? len - at : piece);
		ck_assert_int_eq(kvw_scan_finish(scan, &request), KVW_OK);
		ck_assert(kvw_slice_equal(request.session, kvw_slice_of(nested[_i].session)));
	}
	kvw_scan_destroy(scan);
}
END_TEST

START_TEST(too_many_session_fields)
{
	static const char *const fields[KVW_SCAN_MAX_SESSION_FIELDS + 1] = {"a"};
	static const struct kvw_scan_options options = {fields, KVW_SCAN_MAX_SESSION_FIELDS + 1};
	struct kvw_scan *scan = NULL;

	ck_assert_int_eq(kvw_scan_create(&options, &scan), KVW_EINVAL);
	ck_assert_ptr_null(scan);
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

int main(void)
{
	TCase *tc = tcase_create("bodies");

	tcase_add_loop_test(tc, body_is_understood, 0, COUNT(bodies));
	tcase_add_loop_test(tc, wrong_type, 0, COUNT(wrong));
	tcase_add_loop_test(tc, invocation_is_what_its_body_is, 0, COUNT(invocations));
	tcase_add_test(tc, units_are_bytes_or_ids);
	tcase_add_test(tc, chains_are_independent);
	tcase_add_test(tc, reset_forgets);
	tcase_add_test(tc, session_from_any_field);
	tcase_add_loop_test(tc, session_from_a_nested_field, 0, (int)(sizeof(nested) / sizeof(nested[0])));
	tcase_add_test(tc, too_many_session_fields);
	return run_tcase("openai-apis", tc);
}
