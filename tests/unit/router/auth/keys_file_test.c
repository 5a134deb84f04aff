/*
 * keys_file_test.c - the file of clients' keys: what is read, what is refused and how that is said; and the
 * table that is made of it.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "auth/keys_file.h"
#include "tests/unit/suite.h"

#define A64 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B64 "BBBBbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static char *said; /* of the last parse */

static enum kvw_err parse(const char *text, struct kvw_keyring **out)
{
	size_t len = 0;
	FILE *errors;
	enum kvw_err err;

	free(said);
	errors = open_memstream(&said, &len);
	ck_assert_ptr_nonnull(errors);
	err = kvw_keys_file_parse("keys.yaml", text, strlen(text), errors, out);
	fclose(errors);
	return err;
}

static void refused(const char *text, const char *line)
{
	struct kvw_keyring *ring = NULL;

	ck_assert_int_eq(parse(text, &ring), KVW_EINVAL);
	ck_assert_ptr_null(ring);
	ck_assert_msg(strstr(said, line) != NULL, "%s", said);
}

static const struct kvw_client_key *find(const struct kvw_keyring *ring, int byte)
{
	struct kvw_digest digest;

	memset(digest.bytes, byte, sizeof(digest.bytes));
	return kvw_keyring_find(ring, &digest);
}

START_TEST(entries_are_found_by_their_hash)
{
	struct kvw_keyring *ring = NULL;
	const struct kvw_client_key *key;

	ck_assert_int_eq(parse("keys:\n"
			       "  - {name: alice, sha256: " A64 ", tenant: lab, class: high, trusted: true,\n"
			       "     models: [llama-*, tiny], paths: [/v1/models, /v1/responses/*], expires: 2027-01-31}\n"
			       "  - name: bob@b-c.d_e\n    sha256: " B64 "\n    expires: '2027-01-31T18:00:01Z'\n",
				 &ring),
		KVW_OK);
	ck_assert_uint_eq(kvw_keyring_count(ring), 2);
	key = find(ring, 0xaa);
	ck_assert_str_eq(key->name, "alice");
	ck_assert_str_eq(key->tenant, "lab");
	ck_assert_str_eq(key->class, "high");
	ck_assert(key->trusted);
	ck_assert_int_eq(key->expires, 1801353600);
	ck_assert(kvw_client_key_lives(key, 1801353599) && !kvw_client_key_lives(key, 1801353600));
	ck_assert(kvw_client_key_may_use(key, KVW_SLICE("llama-70b")));
	ck_assert(kvw_client_key_may_use(key, KVW_SLICE("llama-")));
	ck_assert(kvw_client_key_may_use(key, KVW_SLICE("tiny")));
	ck_assert(!kvw_client_key_may_use(key, KVW_SLICE("tiny2")));
	ck_assert(!kvw_client_key_may_use(key, KVW_SLICE("llama")));
	ck_assert(!kvw_client_key_may_use(key, KVW_SLICE("")));
	key = find(ring, 0xbb);
	ck_assert_str_eq(key->name, "bob@b-c.d_e");
	ck_assert(!key->trusted);
	ck_assert_int_eq(key->expires, 1801353600 + 18 * 3600 + 1);
	ck_assert(kvw_client_key_may_use(key, KVW_SLICE("any")));
	ck_assert_ptr_null(find(ring, 0xcc));
	kvw_keyring_unref(ring);
}
END_TEST

START_TEST(a_list_may_be_empty)
{
	struct kvw_keyring *ring = NULL;

	ck_assert_int_eq(parse("keys: []\n", &ring), KVW_OK);
	ck_assert_uint_eq(kvw_keyring_count(ring), 0);
	ck_assert_ptr_null(find(ring, 0));
	kvw_keyring_unref(ring);
}
END_TEST

START_TEST(mistakes_are_named_with_line_and_key)
{
	refused("", "keys.yaml:1:1: found nothing, expected `keys:`");
	refused("keys:\n", "keys.yaml:1:6: keys: found nothing");
	refused("- a\n", "keys.yaml:1:1: found a list");
	refused("other: 1\nkeys: []\n", "keys.yaml:1:1: other: found an unknown key");
	refused("keys: []\nkeys: []\n", "keys.yaml:2:1: keys: found a second time");
	refused("keys: [alice]\n", "keys.yaml:1:8: keys[0]: found text");
	refused("keys: [{name: a}]\n", "keys.yaml:1:8: keys[0].sha256: found nothing");
	refused("keys: [{sha256: " A64 "}]\n", "keys[0].name: found nothing");
	refused("keys:\n  - name: a b\n    sha256: " A64 "\n", "keys.yaml:2:11: keys[0].name: found `a b`");
	refused("keys: [{name: a, sha256: " A64 ", tenant: a/b}]\n", "keys[0].tenant: found `a/b`");
	refused("keys: [{name: a, sha256: " A64 ", nane: b}]\n", "did you mean `name`?");
	refused("keys: [{name: a, sha256: " A64 ", paths: [v1]}]\n", "keys[0].paths: found `v1`");
	refused("keys: [{name: a, sha256: " A64 ", paths: [/v1/../x]}]\n", "keys[0].paths: found");
	refused("keys: [{name: a, sha256: " A64 ", paths: [/v1/*/x]}]\n", "keys[0].paths: found");
	refused("keys: [{name: a, sha256: " A64 ", models: ['a*b']}]\n", "keys[0].models: found `a*b`");
	refused("keys: [{name: a, sha256: " A64 ", requests_per_minute: 1.5}]\n",
		"keys[0].requests_per_minute: found `1.5`");
	refused("keys: [{name: a, sha256: " A64 ", burst: 10}]\n", "keys[0].burst: found `10`");
	refused("keys: [{name: a, sha256: " A64 ", expires: tomorrow}]\n", "keys[0].expires: found `tomorrow`");
	refused("keys: [{name: a, sha256: " A64 ", expires: 2027-02-30}]\n", "keys[0].expires: found");
	refused("keys: [{name: a, sha256: " A64 ", expires: 2027-02-28T25:00:00Z}]\n", "expires: found");
	refused("keys:\n- {name: a, sha256: " A64 "}\n- {name: a, sha256: " B64 "}\n",
		"keys.yaml:3:10: keys[1].name: found `a` a second time");
	refused("keys:\n- {name: a, sha256: " A64 "}\n- {name: b, sha256: " A64 "}\n",
		"keys.yaml:3:10: keys[1].sha256: found the hash of an entry before it");
	refused("keys: [{name: &x a, sha256: " A64 "}]\n", "anchor");
}
END_TEST

/* Keys pasted in place of their hashes. */
START_TEST(what_stands_for_a_hash_is_not_printed)
{
	refused("keys: [{name: a, sha256: sk-canary-0123}]\n", "keys[0].sha256: found a value that is not printed");
	ck_assert_ptr_null(strstr(said, "canary"));
}
END_TEST

/* An entry copied from there as it is lets no client in. */
START_TEST(the_example_of_the_reference_is_refused)
{
	refused("keys:\n  - name: alice\n    sha256: HASH # what `kvway key new alice` prints\n    models: [llama-*]\n",
		"keys.yaml:3:13: keys[0].sha256: found a value that is not printed");
}
END_TEST

START_TEST(one_run_finds_all_mistakes)
{
	refused("keys: [{name: a/b, sha256: 0}, {name: b}]\n", "keys[0].name");
	ck_assert_ptr_nonnull(strstr(said, "keys[0].sha256"));
	ck_assert_ptr_nonnull(strstr(said, "keys[1].sha256"));
}
END_TEST

START_TEST(a_file_that_cannot_be_read_says_why)
{
	struct kvw_keyring *ring = NULL;
	size_t len = 0;
	FILE *errors;

	free(said);
	errors = open_memstream(&said, &len);
	ck_assert_int_eq(kvw_keys_file_load("/nowhere/keys.yaml", errors, &ring), KVW_EIO);
	ck_assert_int_eq(kvw_keys_file_load("/", errors, &ring), KVW_EIO);
	fclose(errors);
	ck_assert_ptr_nonnull(strstr(said, "/nowhere/keys.yaml: cannot be read: No such file"));
	ck_assert_ptr_nonnull(strstr(said, "/: cannot be read: not a regular file"));
}
END_TEST

START_TEST(many_are_all_found_and_no_other)
{
	enum { COUNT = 20000 };
	struct kvw_keyring *ring = NULL;
	struct kvw_client_key *keys = calloc(COUNT, sizeof(*keys));
	struct kvw_digest digest;
	char text[32];
	size_t twice;

	for (size_t i = 0; i < COUNT; i++) {
		snprintf(text, sizeof(text), "key-%zu", i);
		kvw_key_digest(kvw_slice_of(text), &keys[i].sha256);
	}
	ck_assert_int_eq(kvw_keyring_create(keys, COUNT, &ring, &twice), KVW_OK);
	for (size_t i = 0; i < 2 * COUNT; i++) {
		snprintf(text, sizeof(text), "key-%zu", i);
		kvw_key_digest(kvw_slice_of(text), &digest);
		ck_assert_ptr_eq(kvw_keyring_find(ring, &digest), i < COUNT ? &keys[i] : NULL);
	}
	kvw_keyring_unref(ring);
}
END_TEST

START_TEST(the_hash_is_sha256)
{
	struct kvw_digest digest;

	kvw_key_digest(KVW_SLICE("password"), &digest);
	ck_assert_uint_eq(digest.bytes[0], 0x5e);
	ck_assert_uint_eq(digest.bytes[1], 0x88);
	ck_assert_uint_eq(digest.bytes[31], 0xd8);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("keys_file");
	int failed;

	tcase_add_test(tcase, entries_are_found_by_their_hash);
	tcase_add_test(tcase, a_list_may_be_empty);
	tcase_add_test(tcase, mistakes_are_named_with_line_and_key);
	tcase_add_test(tcase, what_stands_for_a_hash_is_not_printed);
	tcase_add_test(tcase, the_example_of_the_reference_is_refused);
	tcase_add_test(tcase, one_run_finds_all_mistakes);
	tcase_add_test(tcase, a_file_that_cannot_be_read_says_why);
	tcase_add_test(tcase, many_are_all_found_and_no_other);
	tcase_add_test(tcase, the_hash_is_sha256);
	failed = run_tcase("auth-keys_file", tcase);
	free(said);
	return failed;
}
