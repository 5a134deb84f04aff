/*
 * l2_url_test.c - which shared tier a URL is for; the rest is redis/url's.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "chunk/l2_url.h"
#include "tests/unit/suite.h"

static const struct good {
	const char *text;
	enum kvt_l2_kind kind;
	const char *host;
	unsigned port;
	const char *printed;
} good[] = {
	{"redis://localhost", KVT_L2_REDIS, "localhost", 6379, "redis://localhost:6379"},
	{"rediss://bob:word@[::1]:1", KVT_L2_REDIS, "::1", 1, "rediss://[::1]:1"},
	{"valkey-cluster://a:1", KVT_L2_REDIS, "a", 1, "redis-cluster://a:1"},
	{"sagemaker-hyperpod://127.0.0.1", KVT_L2_TIER_kvtierd, "127.0.0.1", 9200,
		"sagemaker-hyperpod://127.0.0.1:9200"},
	{"kvtierd://node:9300/", KVT_L2_TIER_kvtierd, "node", 9300, "sagemaker-hyperpod://node:9300"},
	{"kvtierd://u:p@[::1]", KVT_L2_TIER_kvtierd, "::1", 9200, "sagemaker-hyperpod://[::1]:9200"},
};

START_TEST(what_is_right_is_taken_apart)
{
	const struct good *g = &good[_i];
	struct kvt_l2_url url;
	char text[600];

	ck_assert_ptr_null(kvt_l2_url_parse(g->text, &url));
	ck_assert_int_eq(url.kind, g->kind);
	ck_assert_uint_eq(url.at.node_count, 1);
	ck_assert_str_eq(url.at.nodes[0].host, g->host);
	ck_assert_uint_eq(url.at.nodes[0].port, g->port);
	kvt_l2_url_print(&url, text, sizeof(text));
	ck_assert_str_eq(text, g->printed);
	kvt_l2_url_print(&url, text, 12); /* cut, not overrun */
	ck_assert_uint_eq(strlen(text), 11);
}
END_TEST

static const struct wrong {
	const char *text, *expected;
} wrong[] = {
	{"", "sagemaker-hyperpod://"},
	{"localhost:6379", "sagemaker-hyperpod://"},
	{"kvtierd:/h", "sagemaker-hyperpod://"},
	{"kvtierds://h", "sagemaker-hyperpod://"},
	{"sagemaker-hyperpod://a,b", "one server"},
	{"kvtierd://", "HOST:PORT"},
	{"kvtierd://h:65536", "HOST:PORT"},
	{"kvtierd://h/1", "database"},
	{"kvtierd://%zz@h", "%XX"},
	{"redis://h/x", "database"},
};

START_TEST(what_is_wrong_says_what_was_expected)
{
	struct kvt_l2_url url;
	const char *expected = kvt_l2_url_parse(wrong[_i].text, &url);

	ck_assert_ptr_nonnull(expected);
	ck_assert_msg(
		strstr(expected, wrong[_i].expected) != NULL, "%s: %s", wrong[_i].text, expected);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("url");

	tcase_add_loop_test(
		tc, what_is_right_is_taken_apart, 0, (int)(sizeof(good) / sizeof(good[0])));
	tcase_add_loop_test(tc, what_is_wrong_says_what_was_expected, 0,
		(int)(sizeof(wrong) / sizeof(wrong[0])));
	return run_tcase("cache-base-l2-url", tc);
}
