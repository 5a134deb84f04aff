/*
 * error_body_test.c - errors byte for byte as a real vLLM writes them.
 */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "openai/api_path.h"
#include "openai/error_body.h"
#include "support.h"
#include "tests/unit/suite.h"

static const struct {
	const char *name;
	enum kvw_api api;
	int status;
	const char *type, *param, *message;
} recorded[] = {
	{"error_model_chat.resp", KVW_API_CHAT, 404, NULL, "model",
		"The model `nobody` does not exist. Valid aliases: tiny."},
	{"error_bad_value.resp", KVW_API_COMPLETIONS, 400, NULL, "temperature",
		"temperature must be non-negative, got -1.0. (parameter=temperature, value=-1.0)"},
	{"error_engine.resp", KVW_API_OTHER, 500, NULL, NULL, "Internal server error"},
};

START_TEST(as_recorded)
{
	char buf[1024];
	size_t len, expected;
	char *answer = test_answer(recorded[_i].name, &expected);

	len = kvw_error_body(buf, sizeof(buf), recorded[_i].api, recorded[_i].status,
		recorded[_i].type, recorded[_i].param, recorded[_i].message);
	ck_assert_str_eq(buf, answer);
	ck_assert_uint_eq(len, expected);
	free(answer);
}
END_TEST

/* The member `name` of a body's error. Caller frees. */
static char *error_text(const char *buf, size_t len, const char *name)
{
	json_t *root = json_loadb(buf, len, 0, NULL);
	const char *text = json_string_value(json_object_get(json_object_get(root, "error"), name));
	char *copy = strdup(text == NULL ? "(none)" : text);

	ck_assert_msg(root != NULL, "%.*s", (int)len, buf);
	json_decref(root);
	return copy;
}

static const struct {
	int status;
	const char *type;
} anthropic[] = {
	{400, "invalid_request_error"}, {401, "authentication_error"}, {403, "permission_error"},
	{404, "not_found_error"}, {405, "invalid_request_error"}, {413, "request_too_large"},
	{429, "rate_limit_error"}, {500, "api_error"}, {502, "api_error"}, {503, "overloaded_error"},
	{504, "timeout_error"},
};

/* Whatever type the caller has for OpenAI's clients. */
START_TEST(types_of_anthropic)
{
	static const char *const given[] = {NULL, "NotFoundError", "overloaded"};
	char buf[512], expected[512];

	for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++) {
		(void)snprintf(expected, sizeof(expected),
			"{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":\"so\"}}", anthropic[_i].type);
		kvw_error_body(buf, sizeof(buf), KVW_API_MESSAGES, anthropic[_i].status, given[i], "model", "so");
		ck_assert_str_eq(buf, expected);
		kvw_error_body(buf, sizeof(buf), KVW_API_COUNT_TOKENS, anthropic[_i].status, given[i], NULL, "so");
		ck_assert_str_eq(buf, expected);
	}
}
END_TEST

START_TEST(message_is_escaped)
{
	static const char message[] =
		"a\"b\\c\n\t\x01 \xe4\xb8\xad\xf0\x9f\x98\x80 \xff\xc3( \xed\xa0\x80";
	static const char meant[] = "a\"b\\c\n\t\x01 \xe4\xb8\xad\xf0\x9f\x98\x80 ?\?( ?\?\?";
	char buf[512];

	for (int api = 0; api < KVW_API_COUNT; api++) {
		size_t len = kvw_error_body(
			buf, sizeof(buf), (enum kvw_api)api, 503, NULL, NULL, message);
		char *text = error_text(buf, len, "message"), *type = error_text(buf, len, "type");

		ck_assert_str_eq(text, meant);
		ck_assert_str_eq(type, kvw_api_anthropic((enum kvw_api)api) ? "overloaded_error"
									   : "ServiceUnavailableError");
		free(text);
		free(type);
	}
}
END_TEST

/* However small the buffer: valid JSON of fewer bytes, cut between characters, or nothing. */
START_TEST(any_size)
{
	static const char message[] =
		"\xe4\xb8\xad\"\xe4\xb8\xad\\\xe4\xb8\xad\n\xf0\x9f\x98\x80\x01 end";
	char expected[64] = "";

	for (int api = 0; api < KVW_API_COUNT; api++) {
		for (size_t size = 0; size < 300; size++) {
			char *buf = malloc(size > 0 ? size : 1), *text;
			size_t len = kvw_error_body(
				buf, size, (enum kvw_api)api, 404, "T", "p", message);

			if (size > 0) {
				ck_assert_uint_lt(len, size);
				ck_assert_int_eq(buf[len], '\0');
			}
			if (len > 0) {
				text = error_text(buf, len, "message");
				ck_assert(strncmp(message, text, strlen(text)) == 0);
				strcpy(expected, text);
				free(text);
			} else {
				ck_assert_uint_lt(size, 80);
			}
			free(buf);
		}
		ck_assert_str_eq(expected, message);
	}
}
END_TEST

/* Long types and parameters are cut, never the frame. */
START_TEST(long_names)
{
	char type[2000], buf[600];
	size_t len;
	char *text;

	memset(type, 'T', sizeof(type) - 1);
	type[sizeof(type) - 1] = '\0';
	len = kvw_error_body(buf, sizeof(buf), KVW_API_CHAT, 400, type, type, "hello");
	text = error_text(buf, len, "message");
	ck_assert_str_eq(text, "hello");
	free(text);
	len = kvw_error_body(buf, sizeof(buf), KVW_API_MESSAGES, 400, type, type, "hello");
	free(error_text(buf, len, "message"));
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static const char *event_of(enum kvw_api api, const char *body)
{
	static char buf[256];
	size_t len = kvw_error_event(buf, sizeof(buf), api, body, strlen(body));

	buf[len] = '\0';
	return buf;
}

START_TEST(errors_as_the_events_of_a_stream)
{
	ck_assert_str_eq(event_of(KVW_API_CHAT, "{\"error\":{}}"),
		"data: {\"error\":{}}\n\ndata: [DONE]\n\n");
	ck_assert_str_eq(event_of(KVW_API_MESSAGES, "{\"type\":\"error\",\r\n \"error\":{}}"),
		"event: error\ndata: {\"type\":\"error\",   \"error\":{}}\n\n");
	ck_assert_str_eq(event_of(KVW_API_RESPONSES, "{\"error\":{}}"),
		"event: error\ndata: {\"type\":\"error\",\"sequence_number\":0,\"error\":{}}\n\n");
	ck_assert_str_eq(event_of(KVW_API_CHAT, "<html>"), "");
	ck_assert_str_eq(event_of(KVW_API_CHAT, ""), "");
}
END_TEST

START_TEST(an_event_that_has_no_room_is_none)
{
	static const char body[] = "{\"error\":{}}";
	char buf[64];

	for (size_t size = 0; size <= sizeof(buf); size++) {
		size_t len = kvw_error_event(buf, size, KVW_API_CHAT, body, sizeof(body) - 1);

		ck_assert(len == 0 || (len < size && memcmp(buf + len - 2, "\n\n", 2) == 0));
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("errors");

	tcase_add_loop_test(tc, as_recorded, 0, COUNT(recorded));
	tcase_add_loop_test(tc, types_of_anthropic, 0, COUNT(anthropic));
	tcase_add_test(tc, errors_as_the_events_of_a_stream);
	tcase_add_test(tc, an_event_that_has_no_room_is_none);
	tcase_add_test(tc, message_is_escaped);
	tcase_add_test(tc, any_size);
	tcase_add_test(tc, long_names);
	return run_tcase("openai-error-body", tc);
}
