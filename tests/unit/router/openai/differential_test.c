/*
 * differential_test.c - bodies from a fixed seed, understood by the scan and by the reference.
 *
 * The generator knows the APIs: most bodies are well formed and use the keys that matter, in any
 * order, with odd spacing and escapes; then some bytes are changed.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference.h"
#include "tests/unit/steps.h"
#include "tests/unit/suite.h"

#define BODY_SIZE (64 << 10)
#define BODIES    (1200 / KVT_TEST_SHARE) /* of a seed */

struct maker {
	char data[BODY_SIZE];
	size_t len;
	uint64_t random;
	bool spaced, escaped;
};

static unsigned pick(struct maker *maker, unsigned below)
{
	return (unsigned)(test_random(&maker->random) % below);
}

static void raw(struct maker *maker, const char *text)
{
	size_t len = strlen(text);

	if (maker->len + len < BODY_SIZE) {
		memcpy(maker->data + maker->len, text, len);
		maker->len += len;
	}
}

static void space(struct maker *maker)
{
	static const char *const spaces[] = {" ", "\n", "\t ", "\r\n", "  "};

	if (maker->spaced && pick(maker, 3) == 0)
		raw(maker, spaces[pick(maker, 5)]);
}

static void character(struct maker *maker)
{
	static const char *const odd[] = {"\\n", "\\\"", "\\\\", "\\/", "\\t", "\\b", "\\f", "\\r",
		"\\u000a", "\\u0041", "\\u00e9", "\\u4e2d", "\\u4E2D\\u6587", "\\ud83d\\ude00",
		"\xc3\xa9", "\xe4\xb8\xad", "\xf0\x9f\x98\x80", "\x7f", "\\u001f", "\\u0000",
		"\\u0022", "\\u005c", "\\ud83d", "\\udc00", "\\u07ff", "\\u0800", "/"};
	char spelt[16];

	if (pick(maker, maker->escaped ? 3 : 40) == 0) {
		raw(maker, odd[pick(maker, sizeof(odd) / sizeof(odd[0]))]);
		return;
	}
	snprintf(spelt, sizeof(spelt), "%c", 'a' + (int)pick(maker, 26));
	raw(maker, spelt);
}

static void string_of(struct maker *maker, unsigned len)
{
	raw(maker, "\"");
	for (unsigned i = 0; i < len; i++)
		character(maker);
	raw(maker, "\"");
}

static void word_of(struct maker *maker, const char *const *words, unsigned count)
{
	raw(maker, "\"");
	raw(maker, words[pick(maker, count)]);
	raw(maker, "\"");
}

static void number(struct maker *maker)
{
	static const char *const numbers[] = {"0", "-0", "1", "-1", "12345", "4294967295",
		"4294967296", "1.0", "1e2", "100.0", "-2.5E-3", "9223372036854775807", "0.1e1"};

	raw(maker, numbers[pick(maker, sizeof(numbers) / sizeof(numbers[0]))]);
}

static void value(struct maker *maker, unsigned depth);

static void separator(struct maker *maker, unsigned i)
{
	if (i > 0)
		raw(maker, ",");
	space(maker);
}

static void key(struct maker *maker, const char *name)
{
	raw(maker, "\"");
	raw(maker, name);
	raw(maker, "\"");
	space(maker);
	raw(maker, ":");
	space(maker);
}

static void object(struct maker *maker, unsigned depth)
{
	static const char *const names[] = {"a", "b", "name", "type", "description", "properties",
		"url", "data", "cache_control", "required", "text", "k\\u0065y", "key", "source"};
	unsigned count = pick(maker, 6);

	raw(maker, "{");
	for (unsigned i = 0; i < count; i++) {
		separator(maker, i);
		key(maker, names[pick(maker, sizeof(names) / sizeof(names[0]))]);
		value(maker, depth + 1);
		space(maker);
	}
	raw(maker, "}");
}

static void list(struct maker *maker, unsigned depth, void (*element)(struct maker *, unsigned))
{
	unsigned count = pick(maker, 5);

	raw(maker, "[");
	for (unsigned i = 0; i < count; i++) {
		separator(maker, i);
		element(maker, depth + 1);
	}
	space(maker);
	raw(maker, "]");
}

static void value(struct maker *maker, unsigned depth)
{
	static const char *const literals[] = {"true", "false", "null"};

	switch (pick(maker, depth > 4 ? 5 : 8)) {
	case 0:
		number(maker);
		return;
	case 1:
		raw(maker, literals[pick(maker, 3)]);
		return;
	case 5:
		list(maker, depth, value);
		return;
	case 6:
	case 7:
		object(maker, depth);
		return;
	default:
		string_of(maker, pick(maker, 4) == 0 ? pick(maker, 700) : pick(maker, 12));
	}
}

static void part(struct maker *maker, unsigned depth)
{
	static const char *const types[] = {"text", "input_text", "output_text", "image_url",
		"tool_result", "thinking", "input_audio", "t\\u0065xt"};
	static const char *const names[] = {"type", "text", "image_url", "content", "cache_control",
		"input_audio", "tool_use_id", "source"};
	unsigned count = pick(maker, 5);

	if (pick(maker, 6) == 0) {
		string_of(maker, pick(maker, 300));
		return;
	}
	if (pick(maker, 8) == 0) {
		raw(maker, "{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: abc\"}");
		return;
	}
	raw(maker, "{");
	for (unsigned i = 0; i < count; i++) {
		const char *name = names[pick(maker, i < 2 ? 2 : 8)];

		separator(maker, i);
		key(maker, name);
		if (strcmp(name, "type") == 0)
			word_of(maker, types, 8);
		else if (strcmp(name, "text") == 0)
			string_of(maker, pick(maker, 600));
		else
			value(maker, depth + 1);
	}
	raw(maker, "}");
}

static void content(struct maker *maker, unsigned depth)
{
	switch (pick(maker, 10)) {
	case 0:
		raw(maker, "null");
		return;
	case 1:
	case 2:
	case 3:
		list(maker, depth, part);
		return;
	default:
		string_of(maker, pick(maker, 900));
	}
}

static void message(struct maker *maker, unsigned depth)
{
	static const char *const roles[] = {"user", "assistant", "system", "tool"};
	static const char *const types[] = {"message", "function_call", "function_call_output"};
	static const char *const names[] = {"role", "content", "name", "tool_calls",
		"function_call", "type", "id", "tool_call_id", "output", "refusal"};
	unsigned count = 1 + pick(maker, 5);

	raw(maker, "{");
	for (unsigned i = 0; i < count; i++) {
		const char *name = names[pick(maker, i < 2 ? 2 : 10)];

		separator(maker, i);
		key(maker, name);
		if (strcmp(name, "role") == 0)
			word_of(maker, roles, 4);
		else if (strcmp(name, "type") == 0)
			word_of(maker, types, 3);
		else if (strcmp(name, "content") == 0)
			content(maker, depth);
		else
			value(maker, depth + 1);
	}
	raw(maker, "}");
}

static void ids(struct maker *maker, unsigned depth)
{
	unsigned count = pick(maker, 4) == 0 ? pick(maker, 400) : pick(maker, 6);
	char spelt[16];

	(void)depth;
	raw(maker, "[");
	for (unsigned i = 0; i < count; i++) {
		snprintf(spelt, sizeof(spelt), "%s%u",
			i == 0          ? ""
			: maker->spaced ? ", "
					: ",",
			pick(maker, 10) == 0 ? pick(maker, UINT32_MAX) : pick(maker, 130000));
		raw(maker, spelt);
	}
	raw(maker, "]");
}

static void text(struct maker *maker, unsigned depth)
{
	(void)depth;
	string_of(maker, pick(maker, pick(maker, 8) == 0 ? 9000 : 1200));
}

static void prompt(struct maker *maker)
{
	switch (pick(maker, 5)) {
	case 0:
		list(maker, 1, text);
		return;
	case 1:
		ids(maker, 1);
		return;
	case 2:
		list(maker, 1, ids);
		return;
	default:
		text(maker, 1);
	}
}

static void tool(struct maker *maker, unsigned depth)
{
	object(maker, depth);
}

static void conversation(struct maker *maker, unsigned depth)
{
	list(maker, depth, message);
}

static void sampling(struct maker *maker)
{
	static const char *const texts[] = {"{\"n\": 3, \"max_tokens\": 7}", "{\"max_new_tokens\":9,\"n\":2,\"n\":null}",
		"{\"x\":{\"n\":4},\"max_tokens\":\"8\"}", "[{\"n\":5}]", "{}", "null"};

	raw(maker, texts[pick(maker, sizeof(texts) / sizeof(texts[0]))]);
}

/* One member at the top, of the kind its key asks for nearly always. */
static void member(struct maker *maker, enum kvw_api api)
{
	static const char *const names[] = {"messages", "prompt", "input", "model", "stream",
		"stream_options", "tools", "system", "instructions", "cache_salt", "user",
		"session_id", "temperature", "functions", "chat_template_kwargs", "documents",
		"add_generation_prompt", "add_special_tokens", "previous_response_id", "thinking",
		"reasoning", "metadata", "n", "continue_final_message", "prompt_embeds", "suffix", "inputs",
		"token_ids", "input_ids", "text", "input_embeds", "sampling_params", "max_tokens"};
	const char *name = names[pick(maker, sizeof(names) / sizeof(names[0]))];

	if (pick(maker, 3) == 0)
		name = api == KVW_API_COMPLETIONS                              ? "prompt"
		       : api == KVW_API_GENERATE                               ? "token_ids"
		       : api == KVW_API_RESPONSES || api == KVW_API_EMBEDDINGS ? "input"
									       : "messages";
	key(maker, name);
	if (pick(maker, 60) == 0)
		value(maker, 1);
	else if (strcmp(name, "messages") == 0 && api == KVW_API_CHAT_BATCH && pick(maker, 8) > 0)
		list(maker, 1, conversation);
	else if (strcmp(name, "sampling_params") == 0)
		sampling(maker);
	else if (strcmp(name, "messages") == 0 ||
		 (strcmp(name, "input") == 0 && api == KVW_API_RESPONSES && pick(maker, 2) == 0))
		list(maker, 1, message);
	else if (strcmp(name, "prompt") == 0 || strcmp(name, "input") == 0 || strcmp(name, "inputs") == 0 ||
		 strcmp(name, "token_ids") == 0 || strcmp(name, "input_ids") == 0 || strcmp(name, "text") == 0)
		prompt(maker);
	else if (strcmp(name, "stream") == 0)
		raw(maker, pick(maker, 2) == 0 ? "true" : "false");
	else if (strcmp(name, "n") == 0)
		raw(maker, pick(maker, 2) == 0 ? "16" : "2.5e1");
	else if (strcmp(name, "stream_options") == 0)
		raw(maker, "{\"include_usage\": true, \"continuous_usage_stats\": false}");
	else if (strcmp(name, "tools") == 0 || strcmp(name, "functions") == 0)
		list(maker, 1, tool);
	else if (strcmp(name, "system") == 0 || strcmp(name, "instructions") == 0)
		content(maker, 1);
	else if (strcmp(name, "model") == 0 || strcmp(name, "cache_salt") == 0 ||
		 strcmp(name, "previous_response_id") == 0 || strcmp(name, "user") == 0 ||
		 strcmp(name, "session_id") == 0)
		string_of(maker, pick(maker, 12));
	else
		value(maker, 1);
}

static void body(struct maker *maker, enum kvw_api api)
{
	unsigned count = 1 + pick(maker, 5);

	maker->len = 0;
	maker->spaced = pick(maker, 2) == 0;
	maker->escaped = pick(maker, 4) == 0;
	space(maker);
	raw(maker, "{");
	for (unsigned i = 0; i < count; i++) {
		separator(maker, i);
		member(maker, api);
		space(maker);
	}
	raw(maker, "}");
	space(maker);
}

static void spoil(struct maker *maker)
{
	static const char bytes[] = "\"\\{}[]:,0-u\n\x01\xff te";
	unsigned changes = 1 + pick(maker, 3);

	for (unsigned i = 0; i < changes && maker->len > 0; i++) {
		size_t at = pick(maker, (unsigned)maker->len);

		switch (pick(maker, 3)) {
		case 0:
			maker->data[at] = bytes[pick(maker, sizeof(bytes) - 1)];
			break;
		case 1:
			memmove(maker->data + at, maker->data + at + 1, maker->len - at - 1);
			maker->len--;
			break;
		default:
			maker->len = at + 1;
		}
	}
}

static const size_t pieces[] = {0, 1, 2, 3, 7, 16, 61, 64, 255, 256, 1000};

static void run(unsigned seed, unsigned count, bool spoilt)
{
	struct maker *maker = calloc(1, sizeof(*maker));
	unsigned accepted = 0;

	ck_assert_ptr_nonnull(maker);
	maker->random = seed;
#ifdef TEST_BASE
	test_kernel = &kvw_text_base;
#else
	test_kernel = test_kernel_at(seed);
#endif
	for (unsigned i = 0; i < count; i++) {
		enum kvw_api api = (enum kvw_api)pick(maker, KVW_API_COUNT);
		const char *problem;
		struct seen *seen;

		body(maker, api);
		if (spoilt)
			spoil(maker);
		problem = reference_compare(api, maker->data, maker->len,
			pieces[pick(maker, sizeof(pieces) / sizeof(pieces[0]))]);
		ck_assert_msg(problem == NULL, "%s: api %d, body %u of seed %u: %.*s", problem,
			(int)api, i, seed, (int)maker->len, maker->data);
		seen = see(api, maker->data, maker->len, 0);
		accepted += seen->err == KVW_OK;
		seen_free(seen);
	}
	/* The generator is of use only if both answers are common. */
	ck_assert_uint_gt(accepted, count / 20);
	ck_assert_uint_lt(accepted, count - count / 20);
	free(maker);
}

START_TEST(well_formed_bodies)
{
	run((unsigned)_i + 1, BODIES, false);
}
END_TEST

START_TEST(spoilt_bodies)
{
	run((unsigned)_i + 1000, BODIES, true);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("jansson");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, well_formed_bodies, 0, 12);
	tcase_add_loop_test(tc, spoilt_bodies, 0, 12);
	return run_tcase("openai-differential", tc);
}
