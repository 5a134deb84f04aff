/*
 * splice_test.c - bodies that get another model and another salt: that nothing else of them changes.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "openai/engine_fields.h"
#include "openai/splice.h"
#include "splice_check.h"
#include "support.h"
#include "tests/unit/suite.h"

/* The body with the salt S and the model M, either of which may be "". */
static void expect_as(enum kvw_api api, const char *body, const char *salt, const char *model, const char *after)
{
	struct kvw_route_request request;
	struct kvw_splice splice;
	struct kvw_scan *scan;
	char out[1024];
	size_t len;

	for (size_t piece = 1; piece <= strlen(body); piece++) {
		ck_assert_int_eq(kvw_scan_create(&test_options, &scan), KVW_OK);
		kvw_scan_reset(scan, api);
		for (size_t i = 0; i < strlen(body); i += piece)
			kvw_scan_feed(scan, body + i, strlen(body) - i < piece ? strlen(body) - i : piece);
		ck_assert_int_eq(kvw_scan_finish(scan, &request), KVW_OK);
		ck_assert_int_eq(
			kvw_splice_plan(scan, kvw_slice_of(salt), kvw_slice_of(model), &splice),
			after == NULL ? KVW_EINVAL : KVW_OK);
		if (after != NULL) {
			len = kvw_splice_write(&splice, kvw_slice_of(body), out);
			out[len] = '\0';
			ck_assert_str_eq(out, after);
		}
		kvw_scan_destroy(scan);
	}
}

static void expect(const char *body, const char *salt, const char *model, const char *after)
{
	expect_as(KVW_API_CHAT, body, salt, model, after);
}

START_TEST(test_a_salt_is_added_once)
{
	expect("{}", "s", "", "{\"cache_salt\":\"s\"}");
	expect(" { } ", "s", "", " {\"cache_salt\":\"s\" } ");
	expect("{\"a\":{\"cache_salt\":\"x\"}}", "s", "", "{\"cache_salt\":\"s\",\"a\":{\"cache_salt\":\"x\"}}");
	expect("{ \"cache_salt\" : \"own\", \"a\":1}", "s", "", "{ \"cache_salt\" : \"s\", \"a\":1}");
	expect("{\"cache_salt\":null}", "s", "", "{\"cache_salt\":\"s\"}");
	expect("{\"cache\\u005fsalt\":\"a\\\"b\"}", "s", "", "{\"cache\\u005fsalt\":\"s\"}");
	expect("{\"cache_salt\":\"a\",\"n\":1,\"cache_salt\":null}", "s", "",
		"{\"cache_salt\":\"s\",\"n\":1,\"cache_salt\":\"s\"}");
	expect("{\"a\":[\"cache_salt\"]}", "", "", "{\"a\":[\"cache_salt\"]}");
}
END_TEST

START_TEST(test_a_model_is_replaced_wherever_it_counts)
{
	expect("{\"model\":\"a\"}", "", "b/c", "{\"model\":\"b/c\"}");
	expect("{\"model\" :\n\"a\", \"x\":{\"model\":\"a\"}}", "", "b", "{\"model\" :\n\"b\", \"x\":{\"model\":\"a\"}}");
	expect("{\"model\":null,\"model\":\"a\"}", "", "b", "{\"model\":\"b\",\"model\":\"b\"}");
	expect("{\"model\":\"a\"}", "", "b\"\\\n", "{\"model\":\"b\\\"\\\\\\u000a\"}");
	expect("{\"model\":\"a\",\"cache_salt\":\"x\"}", "s", "b", "{\"model\":\"b\",\"cache_salt\":\"s\"}");
	expect("{\"cache_salt\":\"x\",\"model\":\"a\"}", "s", "longer", "{\"cache_salt\":\"s\",\"model\":\"longer\"}");
	expect("{\"model\":\"a\"}", "s", "b", "{\"cache_salt\":\"s\",\"model\":\"b\"}");
}
END_TEST

/* With these members watched that direct the engine. */
static void expect_stripped(enum kvw_api api, uint32_t fields, const char *body, const char *after)
{
	struct kvw_route_request request;
	struct kvw_splice splice;
	struct kvw_scan *scan;
	char out[1024];

	for (size_t piece = 1; piece <= strlen(body); piece++) {
		ck_assert_int_eq(kvw_scan_create(&test_options, &scan), KVW_OK);
		kvw_scan_reset(scan, api);
		kvw_scan_watch_fields(scan, fields);
		for (size_t i = 0; i < strlen(body); i += piece)
			kvw_scan_feed(scan, body + i, strlen(body) - i < piece ? strlen(body) - i : piece);
		ck_assert_int_eq(kvw_scan_finish(scan, &request), KVW_OK);
		ck_assert_int_eq(kvw_splice_plan(scan, kvw_slice_of(""), kvw_slice_of(""), &splice), KVW_OK);
		ck_assert(kvw_scan_places(scan)->fields == (splice.count > 0));
		out[kvw_splice_write(&splice, kvw_slice_of(body), out)] = '\0';
		ck_assert_str_eq(out, after);
		kvw_scan_destroy(scan);
	}
}

START_TEST(test_what_directs_the_engine_says_nothing)
{
	uint32_t all = KVW_ENGINE_FIELDS_ALL, priority = kvw_engine_field("priority", 8);

	expect_stripped(KVW_API_CHAT, all, "{\"priority\":-5,\"model\":\"a\",\"priority\" : \"x\" }",
		"{\"priority\":0,\"model\":\"a\",\"priority\" : 0}");
	expect_stripped(KVW_API_CHAT, all,
		"{\"kv_transfer_params\":{\"remote_host\":\"h\",\"x\":[{\"priority\":1}]},\"v\\u006clm_xargs\":{\"a\":{}}}",
		"{\"kv_transfer_params\":null,\"v\\u006clm_xargs\":null}");
	expect_stripped(KVW_API_CHAT, all, "{\"kv_transfer_params\":{\"kvtier.fragments\":false,\"remote_host\":\"h\"}}",
		"{\"kv_transfer_params\":{\"kvtier.fragments\":false}}");
	expect_stripped(KVW_API_COMPLETIONS, all,
		"{\"sampling_params\":{\"extra_args\":{\"kv_transfer_params\":{}},\"n\":1,\"x\":{\"extra_args\":1}},\"extra_args\":true}",
		"{\"sampling_params\":{\"extra_args\":null,\"n\":1,\"x\":{\"extra_args\":1}},\"extra_args\":null}");
	expect_stripped(KVW_API_CHAT, all, "{\"metadata\":{\"priority\":1,\"vllm_xargs\":2},\"user\":\"priority\"}",
		"{\"metadata\":{\"priority\":1,\"vllm_xargs\":2},\"user\":\"priority\"}");
	expect_stripped(KVW_API_CHAT, all & ~(UINT32_C(1) << priority), "{\"priority\":7,\"lora_path\":\"x\"}",
		"{\"priority\":7,\"lora_path\":null}");
	/* SGLang's: a peer's address, an encoder's, the socket of the process that answers. */
	expect_stripped(KVW_API_GENERATE, all,
		"{\"text\":\"a\",\"kv_router_hint\":{\"source_control_endpoint\":\"h\"},\"encoder_urls\":[\"http://h\"],"
		"\"http_worker_ipc\":\"ipc:///x\",\"bootstrap_pair_key\":\"k\",\"rid\":\"r\"}",
		"{\"text\":\"a\",\"kv_router_hint\":null,\"encoder_urls\":null,"
		"\"http_worker_ipc\":null,\"bootstrap_pair_key\":null,\"rid\":\"r\"}");
	expect_stripped(KVW_API_CHAT, 0, "{\"priority\":7,\"vllm_xargs\":{}}", "{\"priority\":7,\"vllm_xargs\":{}}");
	expect_stripped(KVW_API_AUDIO, all,
		"--B\r\nContent-Disposition: form-data; name=\"vllm_xargs\"\r\n\r\n{\"a\":1}\r\n"
		"--B\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx\r\n--B--\r\n",
		"--B\r\nContent-Disposition: form-data; name=\"vllm_xargs\"\r\n\r\nnull\r\n"
		"--B\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx\r\n--B--\r\n");
}
END_TEST

START_TEST(test_a_form_gets_a_model_but_no_salt)
{
	static const char form[] = "--B\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\ngpt\r\n"
				   "--B\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nmodel\r\n--B--\r\n";
	static const char after[] = "--B\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper\r\n"
				    "--B\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nmodel\r\n--B--\r\n";

	expect_as(KVW_API_AUDIO, form, "", "whisper", after);
	expect_as(KVW_API_AUDIO, form, "s", "", NULL);
}
END_TEST

START_TEST(test_what_stands_too_often_is_not_changed)
{
	char body[512] = "{";

	for (int i = 0; i < KVW_SCAN_PLACES; i++)
		strcat(body, i > 0 ? ",\"model\":\"a\"" : "\"model\":\"a\"");
	strcat(body, "}");
	ck_assert_ptr_nonnull(strrchr(body, '}'));
	{
		struct kvw_route_request request;
		struct kvw_splice splice;
		struct kvw_scan *scan;

		ck_assert_int_eq(kvw_scan_create(&test_options, &scan), KVW_OK);
		for (int over = 0; over < 2; over++) {
			kvw_scan_reset(scan, KVW_API_CHAT);
			kvw_scan_feed(scan, body, strlen(body));
			ck_assert_int_eq(kvw_scan_finish(scan, &request), KVW_OK);
			ck_assert_int_eq(kvw_splice_plan(scan, KVW_SLICE("s"), KVW_SLICE("m"), &splice),
				over ? KVW_EINVAL : KVW_OK);
			strcpy(strrchr(body, '}'), ",\"cache_salt\":\"a\"}");
		}
		kvw_scan_destroy(scan);
	}
}
END_TEST

/* --- any body --- */

struct text {
	char data[4096];
	size_t len;
};

static void put(struct text *text, const char *more)
{
	size_t len = strlen(more);

	ck_assert_uint_lt(text->len + len, sizeof(text->data));
	memcpy(text->data + text->len, more, len);
	text->len += len;
}

static const char *one_of(uint64_t *state, const char *const *list, size_t count)
{
	return list[test_random(state) % count];
}

#define ONE_OF(state, list) one_of(state, list, sizeof(list) / sizeof((list)[0]))

static void put_member(struct text *text, uint64_t *state)
{
	static const char *const spaces[] = {"", "", " ", "\n\t", "\r"};
	static const char *const models[] = {"\"model\"", "\"mod\\u0065l\"", "\"\\u006dodel\""};
	static const char *const salts[] = {"\"cache_salt\"", "\"cache\\u005fsalt\"", "\"cache_sal\\u0074\""};
	static const char *const others[] = {"\"models\"", "\"cache_salts\"", "\"\"", "\"stop\"", "\"x\\\"y\""};
	static const char *const names[] = {"\"m\"", "\"\"", "null", "\"a\\\\\"", "\"\\ud83d\\ude00\"", "\"\\\"\""};
	static const char *const values[] = {"1", "-0.5e3", "true", "null", "\"cache_salt\"", "[]", "{}",
		"{\"model\":\"m\",\"cache_salt\":\"s\"}", "[{\"cache_salt\":[null]},\"model\",7]", "\"{\\\"\""};
	static const char *const messages[] = {"[{\"role\":\"user\",\"content\":\"cache_salt\"}]",
		"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"\\u00e4 model\"}]}]", "[]"};
	uint64_t kind = test_random(state) % 8;

	put(text, ONE_OF(state, spaces));
	if (kind < 3)
		put(text, ONE_OF(state, models));
	else if (kind < 5)
		put(text, ONE_OF(state, salts));
	else
		put(text, kind == 5 ? "\"messages\"" : ONE_OF(state, others));
	put(text, ONE_OF(state, spaces));
	put(text, ":");
	put(text, ONE_OF(state, spaces));
	if (kind < 5)
		put(text, ONE_OF(state, names));
	else
		put(text, kind == 5 ? ONE_OF(state, messages) : ONE_OF(state, values));
	put(text, ONE_OF(state, spaces));
}

START_TEST(test_any_body)
{
	uint64_t state = 28;
	int changed_count = 0;

	for (int i = 0; i < 20000; i++) {
		struct text text = {.len = 0};
		uint64_t members = test_random(&state) % 9;
		bool changed;
		const char *problem;

		put(&text, test_random(&state) % 3 == 0 ? " {" : "{");
		for (uint64_t m = 0; m < members; m++) {
			if (m > 0)
				put(&text, ",");
			put_member(&text, &state);
		}
		put(&text, test_random(&state) % 3 == 0 ? "\n}\n" : "}");
		if (test_random(&state) % 16 == 0) /* broken */
			text.data[test_random(&state) % text.len] = "\"{}[],:x"[test_random(&state) % 8];
		problem = splice_check(KVW_API_CHAT, text.data, text.len, test_random(&state), &changed);
		ck_assert_msg(problem == NULL, "%s: %.*s", problem, (int)text.len, text.data);
		changed_count += changed;
	}
	ck_assert_int_gt(changed_count, 10000);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("splice");
	Suite *suite = suite_create("openai");

	tcase_add_test(tc, test_a_salt_is_added_once);
	tcase_add_test(tc, test_a_model_is_replaced_wherever_it_counts);
	tcase_add_test(tc, test_what_directs_the_engine_says_nothing);
	tcase_add_test(tc, test_a_form_gets_a_model_but_no_salt);
	tcase_add_test(tc, test_what_stands_too_often_is_not_changed);
	tcase_add_test(tc, test_any_body);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
