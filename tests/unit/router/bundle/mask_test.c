/*
 * mask_test.c - what is taken out of texts that leave the machine, and what stays.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "bundle/mask.h"
#include "tests/unit/suite.h"

static struct kvw_mask mask;

static void finish(void)
{
	kvw_mask_finish(&mask);
}

static void expect(const char *text, const char *expected)
{
	char *out = NULL;
	size_t len = 0;

	ck_assert_int_eq(kvw_mask_text(&mask, text, strlen(text), &out, &len), KVW_OK);
	ck_assert_uint_eq(len, strlen(expected));
	ck_assert(len == 0 || memcmp(out, expected, len) == 0);
	free(out);
}

START_TEST(known_secrets_go_wherever_they_stand)
{
	ck_assert_int_eq(kvw_mask_add(&mask, "s3cret-key"), KVW_OK);
	ck_assert_int_eq(kvw_mask_add(&mask, "with\"quote"), KVW_OK);
	ck_assert_int_eq(kvw_mask_add(&mask, NULL), KVW_OK);
	ck_assert_int_eq(kvw_mask_add(&mask, "on"), KVW_OK); /* would mask words */
	expect("a s3cret-key,xs3cret-keys", "a (secret),x(secret)s");
	expect("{\"k\":\"with\\\"quote\"}", "{\"k\":\"(secret)\"}");
	expect("on and on", "on and on");
	ck_assert_int_eq(kvw_mask_add(&mask, "s3cret-key-of-another"), KVW_OK);
	expect("s3cret-key-of-another s3cret-key", "(secret) (secret)");
}
END_TEST

START_TEST(passwords_of_urls_go)
{
	expect("redis://user:pa/ss@host:6379/0", "redis://(secret)@host:6379/0");
	expect("url=\"rediss://:p@b\" next", "url=\"rediss://(secret)@b\" next");
	expect("http://a:8000/b and c@d", "http://a:8000/b and c@d");
	expect("http://a http://u@b", "http://a http://(secret)@b");
}
END_TEST

START_TEST(queries_go)
{
	expect("https://h/p?key=abc&x=1 rest", "https://h/p?(secret) rest");
	expect("{\"path\":\"/v1/chat/completions?api_key=abc\"}", "{\"path\":\"/v1/chat/completions?(secret)\"}");
	expect("https://h/p?debug&key=abc rest", "https://h/p?(secret) rest");
	expect("/p?a:b+c=abc /p?=abc", "/p?(secret) /p?(secret)");
	expect("Why? Since a=b.", "Why? Since a=b.");
	expect("really?", "really?");
}
END_TEST

START_TEST(bearer_tokens_go)
{
	expect("authorization: Bearer abc.def\nhost: a", "authorization: Bearer (secret)\nhost: a");
	expect("Basic dXNlcjpwdw==", "Basic (secret)");
}
END_TEST

START_TEST(nothing_is_left_of_nothing)
{
	expect("", "");
	expect("://", "://");
	expect("?", "?");
	expect("Bearer ", "Bearer (secret)");
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("mask");

	tcase_add_checked_fixture(tcase, NULL, finish);
	tcase_add_test(tcase, known_secrets_go_wherever_they_stand);
	tcase_add_test(tcase, passwords_of_urls_go);
	tcase_add_test(tcase, queries_go);
	tcase_add_test(tcase, bearer_tokens_go);
	tcase_add_test(tcase, nothing_is_left_of_nothing);
	return run_tcase("bundle mask", tcase);
}
