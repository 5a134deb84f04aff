/*
 * sim_token_test.c - tokenizer, chat template, faults' syntax, and the answers' buffer.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "bench/load/mem.h"
#include "bench/sim/sim_fail.h"
#include "bench/sim/sim_profile.h"
#include "bench/sim/sim_prompt.h"
#include "bench/sim/sim_token.h"
#include "tests/unit/suite.h"

static struct kvb_tokens cut(const char *text)
{
	struct kvb_tokens tokens = {0};

	kvb_tokens_text(&tokens, text, strlen(text));
	return tokens;
}

START_TEST(text_survives_the_tokens)
{
	static const char *const texts[] = {"", "a", "Hello, world",
		"caf\xc3\xa9 \xe6\x97\xa5\xe6\x9c\xac", "\xf0\x9f\x98\x80 and more", "\n\t\x01"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct kvb_tokens tokens = cut(texts[i]);
		struct kvb_buf out = {0};

		for (size_t t = 0; t < tokens.count; t++) {
			ck_assert_uint_lt(tokens.ids[t], KVB_TOKEN_VOCAB);
			kvb_token_write(&out, tokens.ids[t]);
		}
		ck_assert_uint_eq(out.len, strlen(texts[i]));
		ck_assert_mem_eq(out.data == NULL ? "" : out.data, texts[i], out.len);
		kvb_buf_finish(&out);
		kvb_tokens_free(&tokens);
	}
}
END_TEST

START_TEST(four_ascii_characters_are_a_token)
{
	struct kvb_tokens tokens = cut("0123456789");

	ck_assert_uint_eq(tokens.count, 3);
	kvb_tokens_free(&tokens);
	tokens = cut("ab\xe6\x97\xa5\xe6\x9c\xac"); /* "ab", then one each */
	ck_assert_uint_eq(tokens.count, 3);
	kvb_tokens_free(&tokens);
}
END_TEST

START_TEST(bytes_that_are_not_utf8_do_no_harm)
{
	static const unsigned char bad[] = {
		0xff, 0xfe, 0xc3, 0x28, 0xe6, 0x97, 0xf0, 0x9f, 0x80, 0xc3};
	struct kvb_tokens tokens = {0};

	kvb_tokens_text(&tokens, (const char *)bad, sizeof(bad));
	ck_assert_uint_gt(tokens.count, 0);
	for (size_t i = 0; i < tokens.count; i++)
		ck_assert_uint_lt(tokens.ids[i], KVB_TOKEN_SPECIAL);
	kvb_tokens_free(&tokens);
}
END_TEST

START_TEST(generated_text_is_cut_where_it_was_generated)
{
	struct kvb_buf text = {0};
	struct kvb_tokens again = {0};
	uint32_t made[50];
	uint64_t state = 1234;

	for (uint32_t i = 0; i < 50; i++) {
		made[i] = kvb_token_generate(&state, i);
		kvb_token_write(&text, made[i]);
	}
	kvb_tokens_text(&again, text.data, text.len);
	ck_assert_uint_eq(again.count, 50);
	ck_assert_mem_eq(again.ids, made, sizeof(made));
	kvb_buf_finish(&text);
	kvb_tokens_free(&again);
}
END_TEST

static struct kvb_tokens render(const char *messages)
{
	json_t *json = json_loads(messages, 0, NULL);
	struct kvb_tokens tokens = {0};

	ck_assert_ptr_nonnull(json);
	ck_assert(kvb_prompt_messages(&tokens, json));
	kvb_prompt_generation(&tokens);
	json_decref(json);
	return tokens;
}

START_TEST(a_longer_conversation_extends_the_shorter_one)
{
	struct kvb_tokens first = render("[{\"role\":\"system\",\"content\":\"Be kind.\"},"
					 "{\"role\":\"user\",\"content\":\"Hi\"}]");
	struct kvb_tokens next = render("[{\"content\":\"Be kind.\",\"role\":\"system\"},"
					"{\"role\":\"user\",\"content\":\"Hi\"},"
					"{\"role\":\"assistant\",\"content\":\" the sun\"},"
					"{\"role\":\"user\",\"content\":\"More\"}]");

	ck_assert_uint_gt(next.count, first.count + 2);
	ck_assert_mem_eq(next.ids, first.ids, first.count * sizeof(uint32_t));
	kvb_tokens_free(&first);
	kvb_tokens_free(&next);
}
END_TEST

START_TEST(what_a_message_means_decides_its_tokens)
{
	struct kvb_tokens plain = render("[{\"role\":\"user\",\"content\":\"caf\\u00e9\"}]");
	struct kvb_tokens raw = render("[ {\"content\" : \"caf\xc3\xa9\", \"role\" : \"user\"} ]");
	struct kvb_tokens role = render("[{\"role\":\"tool\",\"content\":\"caf\\u00e9\"}]");
	struct kvb_tokens image = render("[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\","
					 "\"image_url\":{\"url\":\"http://a/1\"}}]}]");
	struct kvb_tokens other = render("[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\","
					 "\"image_url\":{\"url\":\"http://a/2\"}}]}]");

	ck_assert_uint_eq(plain.count, raw.count);
	ck_assert_mem_eq(plain.ids, raw.ids, plain.count * sizeof(uint32_t));
	ck_assert_uint_eq(plain.count, role.count);
	ck_assert_mem_ne(plain.ids, role.ids, plain.count * sizeof(uint32_t));
	ck_assert_uint_eq(image.count, other.count);
	ck_assert_mem_ne(image.ids, other.ids, image.count * sizeof(uint32_t));
	kvb_tokens_free(&plain);
	kvb_tokens_free(&raw);
	kvb_tokens_free(&role);
	kvb_tokens_free(&image);
	kvb_tokens_free(&other);
}
END_TEST

START_TEST(messages_of_a_wrong_shape_are_refused)
{
	static const char *const wrong[] = {"[1]", "[{}]", "[{\"role\":1,\"content\":\"x\"}]",
		"[{\"role\":\"user\",\"content\":5}]", "[{\"role\":\"user\",\"content\":[5]}]"};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		json_t *json = json_loads(wrong[i], 0, NULL);
		struct kvb_tokens tokens = {0};

		ck_assert(!kvb_prompt_messages(&tokens, json));
		json_decref(json);
		kvb_tokens_free(&tokens);
	}
}
END_TEST

START_TEST(ids_beyond_the_vocabulary_are_refused)
{
	json_t *good = json_loads("[1, 2, 536870927]", 0, NULL);
	json_t *large = json_loads("[1, 536870928]", 0, NULL);
	json_t *negative = json_loads("[-1]", 0, NULL);
	json_t *text = json_loads("[1, \"x\"]", 0, NULL);
	struct kvb_tokens tokens = {0};
	json_int_t bad;

	ck_assert(kvb_prompt_ids(&tokens, good, &bad));
	ck_assert_uint_eq(tokens.count, 3);
	ck_assert(!kvb_prompt_ids(&tokens, large, &bad));
	ck_assert_int_eq(bad, 536870928);
	ck_assert(!kvb_prompt_ids(&tokens, negative, &bad));
	ck_assert(!kvb_prompt_ids(&tokens, text, &bad));
	ck_assert_int_eq(bad, -1);
	kvb_tokens_free(&tokens);
	json_decref(good);
	json_decref(large);
	json_decref(negative);
	json_decref(text);
}
END_TEST

static bool parse(const char *text, struct kvb_fail *fail)
{
	return kvb_fail_parse(text, strlen(text), fail);
}

START_TEST(faults_are_read_and_typos_refused)
{
	static const char *const wrong[] = {"status", "status=", "status=5x", "status=99", "hang=1",
		"nonsense", "chunk=0", "hang;nonsense", "delay-ms=-1",
		"delay-ms=99999999999999999999999"};
	struct kvb_fail fail;

	ck_assert(parse(" reset-after-tokens=3 ; delay-ms=10;;hang", &fail));
	ck_assert_int_eq(fail.value[KVB_FAIL_RESET_AFTER_TOKENS], 3);
	ck_assert_int_eq(fail.value[KVB_FAIL_DELAY_MS], 10);
	ck_assert(kvb_fail_on(&fail, KVB_FAIL_HANG));
	ck_assert(!kvb_fail_on(&fail, KVB_FAIL_STATUS));
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		ck_assert_msg(!parse(wrong[i], &fail), "%s", wrong[i]);
		for (int k = 0; k < KVB_FAIL_COUNT; k++)
			ck_assert_int_eq(fail.value[k], -1);
	}
	ck_assert(parse("", &fail));
}
END_TEST

START_TEST(json_strings_are_escaped)
{
	struct kvb_buf buf = {0};

	kvb_buf_json(&buf, "a\"b\\c\n\x01\xc3\xa9", 9);
	kvb_buf_add(&buf, "", 1);
	ck_assert_str_eq(buf.data, "\"a\\\"b\\\\c\\n\\u0001\xc3\xa9\"");
	kvb_buf_finish(&buf);
}
END_TEST

START_TEST(numbers_are_written_as_python_does)
{
	static const struct {
		double value;
		const char *text;
	} cases[] = {{0, "0.0"}, {1, "1.0"}, {10, "10.0"}, {7680, "7680.0"}, {0.1, "0.1"},
		{0.001, "0.001"}, {-1.5, "-1.5"}, {1795242761.25, "1795242761.25"},
		{1.0 / 3, "0.3333333333333333"}, {1e20, "1e+20"}, {123456, "123456.0"}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct kvb_buf buf = {0};

		kvb_buf_number(&buf, cases[i].value);
		kvb_buf_add(&buf, "", 1);
		ck_assert_str_eq(buf.data, cases[i].text);
		kvb_buf_finish(&buf);
	}
}
END_TEST

START_TEST(profiles_are_found_by_name)
{
	const struct kvb_profile *reference = kvb_profile_find("reference");

	ck_assert_ptr_nonnull(reference);
	ck_assert_double_eq(reference->prefill_tps, 20480);
	ck_assert_double_eq(reference->attention_ns, 1.75);
	ck_assert_ptr_nonnull(kvb_profile_find("instant"));
	ck_assert_ptr_null(kvb_profile_find("no such profile"));
}
END_TEST

int main(void)
{
	const TTest *const all[] = {text_survives_the_tokens, four_ascii_characters_are_a_token,
		bytes_that_are_not_utf8_do_no_harm, generated_text_is_cut_where_it_was_generated,
		a_longer_conversation_extends_the_shorter_one,
		what_a_message_means_decides_its_tokens, messages_of_a_wrong_shape_are_refused,
		ids_beyond_the_vocabulary_are_refused, faults_are_read_and_typos_refused,
		json_strings_are_escaped, numbers_are_written_as_python_does,
		profiles_are_found_by_name};
	TCase *tests = tcase_create("token");

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		tcase_add_test(tests, all[i]);
	return run_tcase("sim_token", tests);
}
