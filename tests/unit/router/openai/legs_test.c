/*
 * legs_test.c - the bodies of a request that one worker prefills and another decodes: that nothing else of them
 * changes, and that parameters pass byte for byte. Recorded legs of vLLM 0.32 are in data/pd.
 */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "legs_check.h"
#include "openai/members.h"
#include "support.h"
#include "tests/unit/suite.h"

#define ASK                                                                                                            \
	"{\"do_remote_decode\":true,\"do_remote_prefill\":false,\"remote_engine_id\":null,\"remote_block_ids\":null,"  \
	"\"remote_host\":null,\"remote_port\":null}"

/* What is left to be sent after any number of bytes is the rest of the changed body. */
static void expect_rest(const struct kvw_splice *splice, const char *body, const char *after)
{
	struct kvw_pieces pieces;
	struct iovec iov[KVW_PIECES];

	kvw_splice_pieces(splice, kvw_slice_of(body), &pieces);
	ck_assert_uint_eq(pieces.len, strlen(after));
	for (size_t sent = 0; sent <= pieces.len; sent++) {
		const char *at = after + sent;
		int count = kvw_pieces_from(&pieces, sent, iov);

		for (int i = 0; i < count; i++) {
			ck_assert_uint_gt(iov[i].iov_len, 0);
			ck_assert_mem_eq(at, iov[i].iov_base, iov[i].iov_len);
			at += iov[i].iov_len;
		}
		ck_assert_str_eq(at, "");
	}
}

static void expect_prefill(enum kvw_api api, const char *body, const char *after)
{
	struct kvw_splice splice;
	char out[2048];

	ck_assert_int_eq(kvw_leg_prefill(kvw_slice_of(body), api, KVW_SLICE(ASK), &splice), after == NULL ? KVW_EINVAL : KVW_OK);
	if (after == NULL)
		return;
	out[kvw_splice_write(&splice, kvw_slice_of(body), out)] = '\0';
	ck_assert_str_eq(out, after);
	ck_assert_uint_eq(strlen(out), strlen(body) + (size_t)splice.growth);
	expect_rest(&splice, body, after);
}

static void expect_decode(const char *body, const char *params, const char *after)
{
	struct kvw_splice splice;
	char out[2048];

	ck_assert_int_eq(kvw_leg_decode(kvw_slice_of(body), kvw_slice_of(params), &splice),
		after == NULL ? KVW_EINVAL : KVW_OK);
	if (after == NULL)
		return;
	out[kvw_splice_write(&splice, kvw_slice_of(body), out)] = '\0';
	ck_assert_str_eq(out, after);
	expect_rest(&splice, body, after);
}

START_TEST(test_a_prefiller_without_parameters)
{
	static const char body[] = "{\"kv_transfer_params\":null,\"a\":1,\"stream\":true}";
	struct kvw_splice splice;
	char out[256];

	ck_assert_int_eq(kvw_leg_prefill(kvw_slice_of(body), KVW_API_CHAT, (struct kvw_slice){NULL, 0}, &splice), KVW_OK);
	out[kvw_splice_write(&splice, kvw_slice_of(body), out)] = '\0';
	ck_assert_str_eq(out, "{\"max_tokens\":1,\"kv_transfer_params\":null,\"a\":1,\"stream\":false}");
}
END_TEST

START_TEST(test_the_prefiller_generates_one_token_and_no_stream)
{
	expect_prefill(KVW_API_CHAT, "{\"a\":1}", "{\"kv_transfer_params\":" ASK ",\"max_tokens\":1,\"a\":1}");
	expect_prefill(KVW_API_CHAT,
		"{ \"max_tokens\" : 500 ,\"stream\":true,\"stream_options\":{\"include_usage\":true},\"min_tokens\":7}",
		"{\"kv_transfer_params\":" ASK
		", \"max_tokens\" : 1 ,\"stream\":false,\"stream_options\":null,\"min_tokens\":0}");
	expect_prefill(KVW_API_CHAT, "{\"max_completion_tokens\":9,\"n\":1}",
		"{\"kv_transfer_params\":" ASK ",\"max_tokens\":1,\"max_completion_tokens\":1,\"n\":1}");
	expect_prefill(KVW_API_RESPONSES, "{\"input\":\"max_tokens\",\"store\":true}",
		"{\"kv_transfer_params\":" ASK ",\"max_output_tokens\":1,\"input\":\"max_tokens\",\"store\":false}");
	expect_prefill(KVW_API_RESPONSES, "{\"max_output_tokens\":9,\"kv_transfer_params\":null}",
		"{\"max_output_tokens\":1,\"kv_transfer_params\":" ASK "}");
}
END_TEST

START_TEST(test_members_that_lie_deeper_stay)
{
	expect_prefill(KVW_API_CHAT, "{\"messages\":[{\"max_tokens\":5,\"x\":\"}\\\"]\"}],\"max_tokens\":5}",
		"{\"kv_transfer_params\":" ASK
		",\"messages\":[{\"max_tokens\":5,\"x\":\"}\\\"]\"}],\"max_tokens\":1}");
	expect_prefill(KVW_API_CHAT, "{\"max_tokens\":2,\"max_tokens\":3}",
		"{\"kv_transfer_params\":" ASK ",\"max_tokens\":1,\"max_tokens\":1}");
}
END_TEST

START_TEST(test_what_must_stay_whole_is_not_split)
{
	expect_prefill(KVW_API_CHAT, "{\"n\":2}", NULL);
	expect_prefill(KVW_API_COMPLETIONS, "{\"best_of\":3}", NULL);
	expect_prefill(KVW_API_COMPLETIONS, "{\"echo\":true}", NULL);
	expect_prefill(KVW_API_COMPLETIONS, "{\"prompt_logprobs\":0}", NULL);
	expect_prefill(KVW_API_RESPONSES, "{\"background\":true}", NULL);
	expect_prefill(KVW_API_CHAT, "{\"use_beam_search\":true}", NULL);
	expect_prefill(KVW_API_CHAT, "{\"kv_transfer_params\":{\"do_remote_decode\":true}}", NULL);
	expect_prefill(KVW_API_CHAT, "{\"max_\\u0074okens\":3}", NULL);
	expect_prefill(KVW_API_CHAT, "{}", NULL);
	expect_decode("{\"kv_transfer\\u005fparams\":3}", "{}", NULL);
}
END_TEST

START_TEST(test_parameters_pass_byte_for_byte)
{
	expect_decode("{\"a\":1}", "{ \"x\" : 1e2 }", "{\"kv_transfer_params\":{ \"x\" : 1e2 },\"a\":1}");
	expect_decode("{\"a\":1,\"kv_transfer_params\" : null }", "{\"x\":[]}",
		"{\"a\":1,\"kv_transfer_params\" : {\"x\":[]} }");
}
END_TEST

static enum kvw_err read_answer(const char *answer, struct kvw_leg_params *out)
{
	return kvw_leg_params_read(kvw_slice_of(answer), out);
}

#define GOOD                                                                                                           \
	"\"do_remote_prefill\":true,\"remote_engine_id\":\"e\",\"remote_request_id\":\"r\",\"remote_host\":\"h\","     \
	"\"remote_port\":5600"

START_TEST(test_parameters_that_lack_something_are_none)
{
	struct kvw_leg_params params;

	ck_assert_int_eq(read_answer("{\"kv_transfer_params\":{" GOOD "}}", &params), KVW_OK);
	ck_assert_int_eq(read_answer("{\"kv_transfer_params\":null}", &params), KVW_EINVAL);
	ck_assert_int_eq(read_answer("{\"id\":\"x\"}", &params), KVW_EINVAL);
	ck_assert_int_eq(read_answer("{\"kv_transfer_params\":{" GOOD ",\"remote_host\":null}}", &params), KVW_EINVAL);
	ck_assert_int_eq(read_answer("{\"kv_transfer_params\":{" GOOD ",\"remote_engine_id\":\"\"}}", &params), KVW_EINVAL);
	ck_assert_int_eq(
		read_answer("{\"kv_transfer_params\":{" GOOD ",\"do_remote_prefill\":false}}", &params), KVW_EINVAL);
	ck_assert_int_eq(read_answer("{\"kv_transfer_params\":{" GOOD "]}", &params), KVW_EPROTO);
	ck_assert_int_eq(read_answer("<html>", &params), KVW_EPROTO);
}
END_TEST

START_TEST(test_parameters_say_when_they_expire)
{
	struct kvw_leg_params params;

	ck_assert_int_eq(read_answer("{\"kv_transfer_params\":{" GOOD ",\"remote_blocks_expiry_time\":1795451005.25,"
				     "\"remote_num_tokens\":434,\"remote_prefill_cached_tokens\":416}}",
				 &params),
		KVW_OK);
	ck_assert_double_eq(params.expires_s, 1795451005.25);
	ck_assert_uint_eq(params.prompt_tokens, 434);
	ck_assert_uint_eq(params.cached_tokens, 416);
	ck_assert(kvw_slice_equal(params.engine_id, KVW_SLICE("\"e\"")));
	ck_assert_int_eq(read_answer("{\"kv_transfer_params\":{" GOOD ",\"remote_blocks_expiry_time\":null}}", &params), KVW_OK);
	ck_assert_double_eq(params.expires_s, 0);
}
END_TEST

/* --- recorded --- */

/* The body behind the head; on the heap. */
static char *read_body(const char *name, const char *leg, size_t *len)
{
	char path[512], *text, *body;
	size_t size;
	FILE *file;

	snprintf(path, sizeof(path), TEST_DATA "/pd/%s_%s", name, leg);
	file = fopen(path, "rb");
	ck_assert_msg(file != NULL, "%s is not there", path);
	text = malloc(64 << 10);
	size = fread(text, 1, (64 << 10) - 1, file);
	fclose(file);
	text[size] = '\0';
	body = strstr(text, "\r\n\r\n");
	ck_assert_ptr_nonnull(body);
	*len = size - (size_t)(body + 4 - text);
	memmove(text, body + 4, *len + 1);
	return text;
}

static json_t *tree(const char *text, size_t len)
{
	json_t *root = json_loadb(text, len, 0, NULL);

	ck_assert_ptr_nonnull(root);
	return root;
}

static char *splice(const struct kvw_splice *plan, const char *body, size_t len, size_t *out_len)
{
	char *out = malloc(len + (size_t)(plan->growth > 0 ? plan->growth : 0) + 1);

	*out_len = kvw_splice_write(plan, (struct kvw_slice){body, len}, out);
	return out;
}

static void check_recorded(const char *name, enum kvw_api api)
{
	struct kvw_leg_params params;
	struct kvw_splice plan;
	size_t plain_len, len, out_len;
	char *plain = read_body(name, "plain.req", &plain_len), *other, *out;
	json_t *ours, *theirs;

	ck_assert_int_eq(kvw_leg_prefill((struct kvw_slice){plain, plain_len}, api, KVW_SLICE(ASK), &plan), KVW_OK);
	out = splice(&plan, plain, plain_len, &out_len);
	other = read_body(name, "prefill.req", &len);
	ours = tree(out, out_len);
	theirs = tree(other, len);
	json_object_set_new(ours, "stream", json_false());
	json_object_del(ours, "stream_options");
	json_object_set_new(theirs, "stream", json_false());
	ck_assert_msg(json_equal(ours, theirs), "%s: the prefiller gets %.*s", name, (int)out_len, out);
	json_decref(ours);
	json_decref(theirs);
	free(other);
	free(out);

	other = read_body(name, "prefill.resp", &len);
	ck_assert_int_eq(kvw_leg_params_read((struct kvw_slice){other, len}, &params), KVW_OK);
	ck_assert_uint_gt(params.prompt_tokens, 0);
	ck_assert_int_eq(kvw_leg_decode((struct kvw_slice){plain, plain_len}, params.text, &plan), KVW_OK);
	out = splice(&plan, plain, plain_len, &out_len);
	ck_assert_ptr_nonnull(memmem(out, out_len, params.text.data, params.text.len));
	free(other);
	other = read_body(name, "decode.req", &len);
	ours = tree(out, out_len);
	theirs = tree(other, len);
	ck_assert_msg(json_equal(ours, theirs), "%s: the decoder gets %.*s", name, (int)out_len, out);
	json_decref(ours);
	json_decref(theirs);
	free(other);
	free(out);
	free(plain);
}

START_TEST(test_recorded_legs)
{
	check_recorded("chat", KVW_API_CHAT);
	check_recorded("completions", KVW_API_COMPLETIONS);
	check_recorded("completions_stream", KVW_API_COMPLETIONS);
	check_recorded("messages", KVW_API_MESSAGES);
	check_recorded("responses", KVW_API_RESPONSES);
}
END_TEST

/* --- any body --- */

struct text {
	char data[8192];
	size_t len;
};

static void put(struct text *text, const char *more)
{
	size_t len = strlen(more);

	ck_assert_uint_lt(text->len + len, sizeof(text->data));
	memcpy(text->data + text->len, more, len);
	text->len += len;
}

#define ONE_OF(state, list) ((list)[test_random(state) % (sizeof(list) / sizeof((list)[0]))])

static void put_member(struct text *text, uint64_t *state)
{
	static const char *const spaces[] = {"", "", "", " ", "\n\t", "\r"};
	static const char *const names[] = {"max_tokens", "max_completion_tokens", "max_output_tokens", "min_tokens",
		"stream", "stream_options", "store", "n", "kv_transfer_params", "messages", "x", "model", "", "n\\\"",
		"\xc3\xa4", "temperature", "seed"};
	static const char *const values[] = {"1", "-0.5e3", "true", "null", "\"max_tokens\"", "[]", "{}",
		"123456789012345678901234567890", "{\"n\":[{\"stream\":1}]}", "[\"}\",\"\\\\\",\"\\\"]\",{\"a\":{}}]",
		"\"\\ud83d\\ude00\\u00e4\"", "false", "0.1", "1E400"};

	put(text, ONE_OF(state, spaces));
	put(text, "\"");
	put(text, ONE_OF(state, names));
	put(text, "\"");
	put(text, ONE_OF(state, spaces));
	put(text, ":");
	put(text, ONE_OF(state, spaces));
	put(text, ONE_OF(state, values));
	put(text, ONE_OF(state, spaces));
}

START_TEST(test_any_body)
{
	static const enum kvw_api apis[] = {KVW_API_CHAT, KVW_API_COMPLETIONS, KVW_API_RESPONSES, KVW_API_MESSAGES};
	uint64_t state = 51;
	int split_count = 0;

	for (int i = 0; i < 20000; i++) {
		struct text text = {.len = 0};
		uint64_t members = test_random(&state) % 9;
		const char *problem;
		bool split;

		put(&text, test_random(&state) % 3 == 0 ? " {" : "{");
		for (uint64_t m = 0; m < members; m++) {
			if (m > 0)
				put(&text, ",");
			put_member(&text, &state);
		}
		put(&text, test_random(&state) % 3 == 0 ? "\n}\n" : "}");
		if (test_random(&state) % 16 == 0) /* broken */
			text.data[test_random(&state) % text.len] = "\"{}[],:x"[test_random(&state) % 8];
		problem = legs_check(ONE_OF(&state, apis), text.data, text.len, &split);
		ck_assert_msg(problem == NULL, "%s: %.*s", problem, (int)text.len, text.data);
		split_count += split;
	}
	ck_assert_int_gt(split_count, 5000);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("legs");
	Suite *suite = suite_create("openai");

	tcase_add_test(tc, test_a_prefiller_without_parameters);
	tcase_add_test(tc, test_the_prefiller_generates_one_token_and_no_stream);
	tcase_add_test(tc, test_members_that_lie_deeper_stay);
	tcase_add_test(tc, test_what_must_stay_whole_is_not_split);
	tcase_add_test(tc, test_parameters_pass_byte_for_byte);
	tcase_add_test(tc, test_parameters_that_lack_something_are_none);
	tcase_add_test(tc, test_parameters_say_when_they_expire);
	tcase_add_test(tc, test_recorded_legs);
	tcase_add_test(tc, test_any_body);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
