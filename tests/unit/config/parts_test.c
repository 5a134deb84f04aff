/*
 * parts_test.c - the small parts by themselves: addresses, suggestions, quoting.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "settings/address.h"
#include "settings/report.h"
#include "settings/suggest.h"
#include "tests/unit/suite.h"

START_TEST(test_addresses_that_are_right)
{
	static const struct {
		const char *text, *host;
		bool v6;
		unsigned port;
	} rows[] = {
		{"0.0.0.0:8080", "0.0.0.0", false, 8080},
		{"127.0.0.1:0", "127.0.0.1", false, 0},
		{"[::]:1", "::", true, 1},
		{"[2001:db8::1]:65535", "2001:db8::1", true, 65535},
		{"localhost:80", "localhost", false, 80},
		{"vllm_0.svc.cluster.local:8000", "vllm_0.svc.cluster.local", false, 8000},
		{"1a:2", "1a", false, 2},
		{"vllm.svc.cluster.local.:80", "vllm.svc.cluster.local.", false, 80},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kvw_address address;

		ck_assert_msg(
			kvw_address_split(kvw_slice_of(rows[i].text), &address) == KVW_ADDRESS_OK,
			"%s", rows[i].text);
		ck_assert(kvw_slice_equal(address.host, kvw_slice_of(rows[i].host)));
		ck_assert_int_eq(address.v6, rows[i].v6);
		ck_assert_uint_eq(address.port, rows[i].port);
	}
}
END_TEST

START_TEST(test_addresses_that_are_wrong)
{
	static const struct {
		const char *text;
		enum kvw_address_fault fault;
	} rows[] = {
		{"", KVW_ADDRESS_NO_PORT},
		{"localhost", KVW_ADDRESS_NO_PORT},
		{":80", KVW_ADDRESS_NO_HOST},
		{"a:", KVW_ADDRESS_BAD_PORT},
		{"a:80 ", KVW_ADDRESS_BAD_PORT},
		{"a:+80", KVW_ADDRESS_BAD_PORT},
		{"a:65536", KVW_ADDRESS_BAD_PORT},
		{"a:000080", KVW_ADDRESS_BAD_PORT},
		{"::1:80", KVW_ADDRESS_BARE_V6},
		{"[::1", KVW_ADDRESS_BAD_HOST},
		{"[::1]80", KVW_ADDRESS_BAD_HOST},
		{"[]:80", KVW_ADDRESS_BAD_HOST},
		{"[127.0.0.1]:80", KVW_ADDRESS_BAD_HOST},
		{"127.1:80", KVW_ADDRESS_BAD_HOST},
		{"1.2.3.4.5:80", KVW_ADDRESS_BAD_HOST},
		{"a..:80", KVW_ADDRESS_BAD_HOST},
		{".:80", KVW_ADDRESS_BAD_HOST},
		{"1.2.3.4.:80", KVW_ADDRESS_BAD_HOST},
		{".a:80", KVW_ADDRESS_BAD_HOST},
		{"a-:80", KVW_ADDRESS_BAD_HOST},
		{"a b:80", KVW_ADDRESS_BAD_HOST},
		{"a/b:80", KVW_ADDRESS_BAD_HOST},
		{"\xC3\xA4:80", KVW_ADDRESS_BAD_HOST},
	};
	struct kvw_address untouched = {.port = 7};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		ck_assert_msg(
			kvw_address_split(kvw_slice_of(rows[i].text), &untouched) == rows[i].fault,
			"%s", rows[i].text);
	ck_assert_uint_eq(untouched.port, 7);
}
END_TEST

/* A label has at most 63 characters, a name 253. */
START_TEST(test_long_names)
{
	char text[512];
	struct kvw_address address;

	memset(text, 'a', sizeof(text));
	memcpy(text + 63, ":80", 4);
	ck_assert_int_eq(kvw_address_split(kvw_slice_of(text), &address), KVW_ADDRESS_OK);
	memset(text, 'a', 64);
	memcpy(text + 64, ":80", 4);
	ck_assert_int_eq(kvw_address_split(kvw_slice_of(text), &address), KVW_ADDRESS_BAD_HOST);
	for (size_t i = 0; i < 400; i++)
		text[i] = i % 2 == 1 ? '.' : 'a';
	memcpy(text + 253, ":80", 4);
	ck_assert_int_eq(kvw_address_split(kvw_slice_of(text), &address), KVW_ADDRESS_OK);
	memcpy(text + 253, ".a:80", 6);
	ck_assert_int_eq(kvw_address_split(kvw_slice_of(text), &address), KVW_ADDRESS_BAD_HOST);
}
END_TEST

START_TEST(test_urls)
{
	struct kvw_url url;

	ck_assert_int_eq(kvw_url_split(KVW_SLICE("http://[::1]:8000/a/b-c"), &url), KVW_ADDRESS_OK);
	ck_assert(kvw_slice_equal(url.address.host, KVW_SLICE("::1")));
	ck_assert(kvw_slice_equal(url.authority, KVW_SLICE("[::1]:8000")));
	ck_assert(kvw_slice_equal(url.prefix, KVW_SLICE("/a/b-c")));
	ck_assert_int_eq(kvw_url_split(KVW_SLICE("http://host/"), &url), KVW_ADDRESS_OK);
	ck_assert_uint_eq(url.address.port, 80);
	ck_assert_uint_eq(url.prefix.len, 0);
	ck_assert_int_eq(kvw_url_split((struct kvw_slice){NULL, 0}, &url), KVW_ADDRESS_NO_SCHEME);
	ck_assert_int_eq(kvw_url_split(KVW_SLICE("http://a//b"), &url), KVW_ADDRESS_BAD_PATH);
	ck_assert_int_eq(kvw_url_split(KVW_SLICE("http://a/b c"), &url), KVW_ADDRESS_BAD_PATH);
	ck_assert_int_eq(kvw_url_split(KVW_SLICE("http://a/%2e"), &url), KVW_ADDRESS_BAD_PATH);
	ck_assert_int_eq(kvw_url_split(KVW_SLICE("http://a/b\0c"), &url), KVW_ADDRESS_BAD_PATH);
	ck_assert_int_eq(kvw_url_split(KVW_SLICE("http://a/x/v1/"), &url), KVW_ADDRESS_API_PATH);
	ck_assert_int_eq(kvw_url_split(KVW_SLICE("http://a/v1/x"), &url), KVW_ADDRESS_OK);
	ck_assert_int_eq(kvw_url_split(KVW_SLICE("http://a@b"), &url), KVW_ADDRESS_USER);
	ck_assert_int_eq(kvw_url_split(KVW_SLICE("http://a#b"), &url), KVW_ADDRESS_QUERY);
	ck_assert(!url.tls);
	ck_assert_int_eq(kvw_url_split(KVW_SLICE("HTTPS://a/b"), &url), KVW_ADDRESS_OK);
	ck_assert(url.tls);
	ck_assert_uint_eq(url.address.port, 443);
	ck_assert_int_eq(kvw_url_split(KVW_SLICE("https://a:80"), &url), KVW_ADDRESS_OK);
	ck_assert_uint_eq(url.address.port, 80);
	ck_assert_int_eq(kvw_url_split(KVW_SLICE("httpss://a"), &url), KVW_ADDRESS_BAD_SCHEME);
}
END_TEST

static const char *nearest(const char *wanted)
{
	static const char *const words[] = {"listen", "limits", "loops", "log", "level", "a"};
	struct kvw_suggest near;

	kvw_suggest_start(&near, wanted);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		kvw_suggest_offer(&near, words[i], words[i]);
	return near.best != NULL ? near.best : "";
}

START_TEST(test_suggestions)
{
	char long_word[200];

	ck_assert_str_eq(nearest("lisetn"), "listen"); /* a swap */
	ck_assert_str_eq(nearest("listn"), "listen");
	ck_assert_str_eq(nearest("LISTEN"), "listen");
	ck_assert_str_eq(nearest("lmits"), "limits");
	ck_assert_str_eq(nearest("lgo"), "log");
	ck_assert_str_eq(nearest("levle"), "level");
	ck_assert_str_eq(nearest("something"), "");
	ck_assert_str_eq(nearest("b"), ""); /* all of a word would change */
	ck_assert_str_eq(nearest(""), "");
	memset(long_word, 'l', sizeof(long_word));
	long_word[sizeof(long_word) - 1] = '\0';
	ck_assert_str_eq(nearest(long_word), "");
}
END_TEST

START_TEST(test_quoting)
{
	char out[KVW_REPORT_QUOTE];
	char text[300];

	ck_assert_str_eq(kvw_report_quote(out, "plain", 5), "`plain`");
	ck_assert_str_eq(kvw_report_quote(out, "", 0), "``");
	ck_assert_str_eq(kvw_report_quote(out, "a\x1B\0\x7F", 4), "`a\\x1B\\x00\\x7F`");
	ck_assert_str_eq(kvw_report_quote(out, "\xC2\x9B\xC3\xA4", 4), "`\\xC2\\x9B\xC3\xA4`");
	ck_assert_str_eq(kvw_report_quote(out, "\xC3", 1), "`\xC3`");
	/* A lead byte without what belongs to it takes nothing of the rest with it. */
	ck_assert_str_eq(kvw_report_quote(out, "\xFF" "ry\n", 4), "`\xFFry\\x0A`");
	ck_assert_str_eq(kvw_report_quote(out, "\xE2\x82\n", 3), "`\xE2\x82\\x0A`");
	for (size_t len = 0; len < sizeof(text); len++) {
		memset(text, len % 2 == 0 ? 'x' : '\n', sizeof(text));
		kvw_report_quote(out, text, len);
		ck_assert_uint_lt(strlen(out), sizeof(out));
		ck_assert_int_eq(out[strlen(out) - 1], '`');
		if (len > 100)
			ck_assert_str_eq(out + strlen(out) - 4, "...`");
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("parts");

	tcase_add_test(tc, test_addresses_that_are_right);
	tcase_add_test(tc, test_addresses_that_are_wrong);
	tcase_add_test(tc, test_long_names);
	tcase_add_test(tc, test_urls);
	tcase_add_test(tc, test_suggestions);
	tcase_add_test(tc, test_quoting);
	return run_tcase("config parts", tc);
}
