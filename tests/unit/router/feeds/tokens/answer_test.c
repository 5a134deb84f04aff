/*
 * answer_test.c - what /tokenize answers is read, and nothing else is.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "feeds/tokens/token_answer.h"
#include "tests/unit/suite.h"

static enum kvw_err read_copy(const char *text, size_t len, struct kvw_token_list **list)
{
	char *copy = malloc(len + 1); /* so that a sanitizer sees a read beyond the end */
	enum kvw_err err;

	memcpy(copy, text, len);
	err = kvw_token_answer_read(copy, len, list);
	free(copy);
	return err;
}

static enum kvw_err read_text(const char *text, struct kvw_token_list **list)
{
	return read_copy(text, strlen(text), list);
}

START_TEST(ids_are_read)
{
	static const char *const texts[] = {
		"{\"count\":3,\"max_model_len\":64,\"tokens\":[0,151643,4294967295],\"token_strs\":null}",
		" { \"tokens\" : [ 0 , 151643 ,\n4294967295 ] } ",
		"{\"x\":{\"tokens\":[9],\"s\":\"]}\\\"\\\\\"},\"tokens\":[0,151643,4294967295],\"count\":3}",
		"{\"token_strs\":[\"a]\",\"{\"],\"tokens\":[0,151643,4294967295],\"y\":-1.5e3}",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct kvw_token_list *list = NULL;

		ck_assert_msg(read_text(texts[i], &list) == KVW_OK, "%s", texts[i]);
		ck_assert_uint_eq(list->count, 3);
		ck_assert_uint_eq(list->ids[0], 0);
		ck_assert_uint_eq(list->ids[1], 151643);
		ck_assert_uint_eq(list->ids[2], UINT32_MAX);
		kvw_token_list_put(list);
	}
}
END_TEST

START_TEST(an_empty_prompt_is_a_prompt)
{
	struct kvw_token_list *list;

	ck_assert_int_eq(read_text("{\"count\":0,\"tokens\":[]}", &list), KVW_OK);
	ck_assert_uint_eq(list->count, 0);
	kvw_token_list_put(list);
}
END_TEST

START_TEST(what_is_no_answer_is_refused)
{
	static const char *const texts[] = {"", "{", "{}", "[]", "null", "{\"count\":1}",
		"{\"tokens\":[1]", "{\"tokens\":[1,2,3", "{\"tokens\":[1,]}", "{\"tokens\":[,1]}",
		"{\"tokens\":[1 2]}", "{\"tokens\":[-1]}", "{\"tokens\":[1.5]}",
		"{\"tokens\":[01]}", "{\"tokens\":[4294967296]}",
		"{\"tokens\":[99999999999999999999]}", "{\"tokens\":[\"1\"]}",
		"{\"tokens\":null}", "{\"tokens\":{}}", "{\"tokens\":[[1]]}",
		"{\"tokens\":[1],\"count\":2}", "{\"count\":2,\"tokens\":[1]}",
		"{\"tokens\":[1],\"tokens\":[1]}", "{\"tokens\":[1]}x", "{\"tokens\":[1]}{}",
		"{tokens:[1]}", "{\"a\":}{\"tokens\":[1]}", "{\"a\":[},\"tokens\":[1]}",
		"{\"a\":\"\n\",\"tokens\":[1]}", "{\"a\":\"\\", "{\"a\":,\"tokens\":[1]}",
		"<html>"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct kvw_token_list *list = NULL;

		ck_assert_msg(read_text(texts[i], &list) == KVW_EPROTO, "%s", texts[i]);
		ck_assert_ptr_null(list);
	}
}
END_TEST

START_TEST(no_beginning_of_an_answer_is_one)
{
	static const char text[] = "{\"a\":[{\"b\":\"\\\"\"}],\"count\":3,\"tokens\":[1,22,333]}";
	struct kvw_token_list *list = NULL;

	for (size_t len = 0; len < sizeof(text) - 1; len++)
		ck_assert_msg(read_copy(text, len, &list) == KVW_EPROTO, "%zu", len);
	ck_assert_int_eq(read_copy(text, sizeof(text) - 1, &list), KVW_OK);
	kvw_token_list_put(list);
}
END_TEST

START_TEST(nesting_is_limited)
{
	char text[400] = "{\"a\":";
	struct kvw_token_list *list = NULL;

	memset(text + 5, '[', 200);
	memset(text + 205, ']', 100);
	ck_assert_int_eq(read_text(text, &list), KVW_EPROTO);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("answer");

	tcase_add_test(tcase, ids_are_read);
	tcase_add_test(tcase, an_empty_prompt_is_a_prompt);
	tcase_add_test(tcase, what_is_no_answer_is_refused);
	tcase_add_test(tcase, no_beginning_of_an_answer_is_one);
	tcase_add_test(tcase, nesting_is_limited);
	return run_tcase("token-answer", tcase);
}
