/*
 * message_test.c - packets of a takeover: what is written is read again, and nothing else is read.
 */
#include <check.h>
#include <string.h>

#include "takeover/message.h"
#include "tests/unit/suite.h"

static enum kvw_err parse(const char *text, struct kvw_takeover_message *out)
{
	return kvw_takeover_parse(text, strlen(text), out);
}

START_TEST(what_is_written_is_read)
{
	for (int kind = 0; kind < KVW_TAKEOVER_KINDS; kind++) {
		struct kvw_takeover_message said = {.kind = (enum kvw_takeover_kind)kind,
			.use = KVW_SOCKET_ADMIN,
			.count = KVW_TAKEOVER_FDS,
			.pid = 4711,
			.version = "1.2.3",
			.address = "[::1]:80",
			.caches = 1,
			.why = "no \x1b reason"};
		struct kvw_takeover_message heard;
		char text[KVW_TAKEOVER_BYTES];
		size_t len = kvw_takeover_format(&said, text);

		ck_assert_int_eq(kvw_takeover_parse(text, len, &heard), KVW_OK);
		ck_assert_int_eq(heard.kind, kind);
		ck_assert_uint_eq(heard.count, KVW_TAKEOVER_FDS);
		ck_assert_int_eq(heard.pid, 4711);
		ck_assert_uint_eq(heard.caches, 1);
		ck_assert_str_eq(heard.version, "1.2.3");
		ck_assert_str_eq(heard.address, "[::1]:80");
		ck_assert_str_eq(heard.why, "no ? reason");
		if (kind == KVW_TAKEOVER_SOCKET)
			ck_assert_int_eq(heard.use, KVW_SOCKET_ADMIN);
	}
}
END_TEST

START_TEST(keys_are_read_as_written)
{
	struct kvw_takeover_message said = {.kind = KVW_TAKEOVER_TICKETS, .use = KVW_SOCKET_CLIENTS, .count = 3599}, heard;
	char text[KVW_TAKEOVER_BYTES];

	said.keys_len = sizeof(said.keys);
	for (size_t i = 0; i < said.keys_len; i++)
		said.keys[i] = (unsigned char)(i * 7);
	ck_assert_int_eq(kvw_takeover_parse(text, kvw_takeover_format(&said, text), &heard), KVW_OK);
	ck_assert_int_eq(heard.use, KVW_SOCKET_CLIENTS);
	ck_assert_uint_eq(heard.count, 3599);
	ck_assert_uint_eq(heard.keys_len, said.keys_len);
	ck_assert_mem_eq(heard.keys, said.keys, said.keys_len);
}
END_TEST

START_TEST(the_longest_values_fit)
{
	struct kvw_takeover_message said = {.kind = KVW_TAKEOVER_SOCKET, .count = 1, .pid = INT32_MAX}, heard;
	char text[KVW_TAKEOVER_BYTES];

	memset(said.version, 'v', sizeof(said.version) - 1);
	memset(said.address, 'a', sizeof(said.address) - 1);
	memset(said.why, 'w', sizeof(said.why) - 1);
	memset(said.keys, 'k', sizeof(said.keys));
	said.keys_len = sizeof(said.keys);
	ck_assert_int_eq(kvw_takeover_parse(text, kvw_takeover_format(&said, text), &heard), KVW_OK);
	ck_assert_str_eq(heard.why, said.why);
}
END_TEST

START_TEST(names_of_a_later_version_are_skipped)
{
	struct kvw_takeover_message heard;

	ck_assert_int_eq(parse("kvway-takeover 1 hello\ncolour blue\npid 7\n", &heard), KVW_OK);
	ck_assert_int_eq(heard.pid, 7);
	ck_assert_int_eq(parse("kvway-takeover 1 socket\nuse moon\naddress x\ncount 1\n", &heard), KVW_OK);
	ck_assert_int_eq(heard.use, KVW_SOCKET_USES);
}
END_TEST

START_TEST(another_version_is_told_from_garbage)
{
	struct kvw_takeover_message heard;

	ck_assert_int_eq(parse("kvway-takeover 2 hello\n", &heard), KVW_EINVAL);
	ck_assert_int_eq(parse("kvway-takeover 11 hello\n", &heard), KVW_EINVAL);
	ck_assert_int_eq(parse("kvway-takeover 2 colour\n", &heard), KVW_EINVAL);
}
END_TEST

START_TEST(all_else_is_refused_and_changes_nothing)
{
	static const char *const bad[] = {"", "\n", "kvway-takeover", "kvway-takeover 1\n", "kvway-takeover 1 \n",
		"kvway-takeover 1 hell\n", "kvway-takeover 1 hello", "kvway-takeover 1 hello \n",
		"kvway-takeover 1 hello\n\n", "kvway-takeover 1 hello\npid\n", "kvway-takeover 1 hello\n pid 1\n",
		"kvway-takeover 1 hello\npid \n", "kvway-takeover 1 hello\npid 1x\n", "kvway-takeover 1 hello\npid -1\n",
		"kvway-takeover 1 hello\npid 2147483648\n", "kvway-takeover 1 hello\npid 99999999999\n",
		"kvway-takeover 1 hello\npid 1\npid 1\n", "kvway-takeover 1 hello\npid 1\t\n",
		"kvway-takeover 1 hello\nversion 12345678901234567890123456789012\n", "kvway-takeover 1 end\n",
		"kvway-takeover 1 socket\n", "kvway-takeover 1 socket\nuse listen\naddress x\n",
		"kvway-takeover 1 socket\nuse listen\naddress \ncount 1\n",
		"kvway-takeover 1 socket\nuse listen\naddress x\ncount 0\n",
		"kvway-takeover 1 socket\nuse listen\naddress x\ncount 17\n",
		"kvway-takeover 1 tickets\nuse listen\nkeys 00\n", "kvway-takeover 1 tickets\ncount 1\nkeys 00\n",
		"kvway-takeover 1 tickets\nuse listen\ncount 1\nkeys 0\n",
		"kvway-takeover 1 tickets\nuse listen\ncount 1\nkeys 0G\n"};
	struct kvw_takeover_message heard, before;

	memset(&heard, 7, sizeof(heard));
	before = heard;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ck_assert_msg(parse(bad[i], &heard) == KVW_EPROTO, "%s", bad[i]);
		ck_assert_mem_eq(&heard, &before, sizeof(heard));
	}
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("message");

	tcase_add_test(tcase, what_is_written_is_read);
	tcase_add_test(tcase, the_longest_values_fit);
	tcase_add_test(tcase, keys_are_read_as_written);
	tcase_add_test(tcase, names_of_a_later_version_are_skipped);
	tcase_add_test(tcase, another_version_is_told_from_garbage);
	tcase_add_test(tcase, all_else_is_refused_and_changes_nothing);
	return run_tcase("takeover-message", tcase);
}
