/*
 * credential_test.c - the key that a head shows: found, missing or refused; and gone from the head afterwards.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "auth/credential.h"
#include "auth/keyring.h"
#include "tests/unit/suite.h"

static struct kvw_head head;
static char text[2048];

static enum kvw_credential take(const char *target, const char *fields, struct kvw_digest *out)
{
	struct kvw_head_error error;

	snprintf(text, sizeof(text), "POST %s HTTP/1.1\r\nHost: h\r\n%s\r\n", target, fields);
	ck_assert_int_eq(kvw_head_parse_request(&head, text, strlen(text), &error), KVW_OK);
	return kvw_credential_take(&head, out);
}

/* It is found, it is `key`, and nothing of it is left. */
static void shows(const char *fields, const char *key)
{
	struct kvw_digest digest, expected;

	kvw_key_digest(kvw_slice_of(key), &expected);
	ck_assert_int_eq(take("/v1/models", fields, &digest), KVW_CREDENTIAL_FOUND);
	ck_assert_mem_eq(digest.bytes, expected.bytes, sizeof(digest.bytes));
	ck_assert_ptr_null(strstr(text, key));
}

static void is(enum kvw_credential expected, const char *target, const char *fields)
{
	struct kvw_digest digest;

	ck_assert_int_eq(take(target, fields, &digest), expected);
	ck_assert_ptr_null(strstr(text, "canary"));
}

START_TEST(keys_are_found)
{
	shows("Authorization: Bearer canary\r\n", "canary");
	shows("AUTHORIZATION: bEARER   canary\r\n", "canary");
	shows("authorization:Bearer\tcanary \r\n", "canary");
	shows("X-Api-Key: canary\r\n", "canary");
	shows("x-api-key: canary\r\nAuthorization: Bearer canary\r\n", "canary");
	shows("x-api-key: canary\r\nAuthorization: Bearer\r\n", "canary");
	shows("x-api-key: canary\r\nAuthorization:\r\n", "canary");
	shows("x-api-key:\r\nAuthorization: Bearer canary\r\n", "canary");
}
END_TEST

START_TEST(what_is_no_key_is_missing)
{
	is(KVW_CREDENTIAL_MISSING, "/", "");
	is(KVW_CREDENTIAL_MISSING, "/", "x-api-key:\r\n");
	is(KVW_CREDENTIAL_MISSING, "/", "Authorization: Bearer\r\n");
	is(KVW_CREDENTIAL_MISSING, "/", "x-api-key2: other\r\nproxy-authorization: Bearer a\r\n");
	is(KVW_CREDENTIAL_SCHEME, "/", "Authorization: Basic canary\r\n");
	is(KVW_CREDENTIAL_SCHEME, "/", "Authorization: Bearercanary\r\n");
	is(KVW_CREDENTIAL_SCHEME, "/", "Authorization: canary\r\nx-api-key: canary\r\n");
}
END_TEST

START_TEST(two_keys_are_refused)
{
	is(KVW_CREDENTIAL_TWICE, "/", "Authorization: Bearer canary\r\nAuthorization: Bearer canary\r\n");
	is(KVW_CREDENTIAL_TWICE, "/", "x-api-key: canary\r\nX-API-KEY: canary\r\n");
	is(KVW_CREDENTIAL_TWICE, "/", "x-api-key:\r\nx-api-key: canary\r\n");
	is(KVW_CREDENTIAL_TWICE, "/", "x-api-key: canary1\r\nAuthorization: Bearer canary2\r\n");
	is(KVW_CREDENTIAL_TWICE, "/", "x-api-key: canary\r\nAuthorization: Bearer canary2\r\n");
}
END_TEST

START_TEST(a_key_in_the_query_is_refused)
{
	static const char *const targets[] = {"/?key=canary", "/v1/models?a=b&api_key=canary", "/?API-KEY=canary",
		"/?%61pi%5fkey=canary", "/?a;access_token=canary", "/?apikey", "http://h/x?key=canary",
		"/?x=1&authorization=Bearer%20canary", "/?key"};

	for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
		is(KVW_CREDENTIAL_QUERY, targets[i], "");
		is(KVW_CREDENTIAL_QUERY, targets[i], "x-api-key: canary\r\n");
	}
	is(KVW_CREDENTIAL_MISSING, "/?keys=1&monkey=2&model=key&a==key&", "");
	is(KVW_CREDENTIAL_MISSING, "/api_key=1", "");
	is(KVW_CREDENTIAL_MISSING, "/?", "");
	is(KVW_CREDENTIAL_MISSING, "/?%6", "");
	is(KVW_CREDENTIAL_MISSING, "/?api_keyapi_keyapi_keyapi_key=1", "");
}
END_TEST

START_TEST(hidden_fields_are_not_forwarded)
{
	struct kvw_digest digest;
	size_t hidden = 0;

	ck_assert_int_eq(take("/", "Authorization: Bearer a\r\nX-API-Key: a\r\nAccept: a\r\n", &digest),
		KVW_CREDENTIAL_FOUND);
	kvw_credential_hide(&head);
	for (size_t i = 0; i < head.field_count; i++)
		hidden += head.fields[i].hop_by_hop;
	ck_assert_uint_eq(hidden, 2);
}
END_TEST

static void setup(void)
{
	ck_assert_int_eq(kvw_head_init(&head, 64), KVW_OK);
}

static void teardown(void)
{
	kvw_head_finish(&head);
}

int main(void)
{
	TCase *tcase = tcase_create("credential");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, keys_are_found);
	tcase_add_test(tcase, what_is_no_key_is_missing);
	tcase_add_test(tcase, two_keys_are_refused);
	tcase_add_test(tcase, a_key_in_the_query_is_refused);
	tcase_add_test(tcase, hidden_fields_are_not_forwarded);
	return run_tcase("auth-credential", tcase);
}
