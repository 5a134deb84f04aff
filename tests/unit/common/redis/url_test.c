/*
 * url_test.c - where a Redis is.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "redis/url.h"
#include "tests/unit/suite.h"

static const struct good {
	const char *text;
	enum kvw_redis_kind kind;
	bool tls;
	size_t nodes;
	const char *host; /* of the last one */
	unsigned port;
	unsigned database;
	const char *username, *password, *path;
	const char *printed; /* NULL: as the text */
} good[] = {
	{"redis://localhost", KVW_REDIS_SINGLE, false, 1, "localhost", 6379, 0, "", "", "",
		"redis://localhost:6379"},
	{"redis://10.0.0.7:7000/3", KVW_REDIS_SINGLE, false, 1, "10.0.0.7", 7000, 3, "", "", "",
		NULL},
	{"redis://h:7000/", KVW_REDIS_SINGLE, false, 1, "h", 7000, 0, "", "", "", "redis://h:7000"},
	{"rediss://bob:p%40ss%3aword@[2001:db8::1]:6380", KVW_REDIS_SINGLE, true, 1, "2001:db8::1",
		6380, 0, "bob", "p@ss:word", "", "rediss://[2001:db8::1]:6380"},
	{"valkeys://:secret@cache.example", KVW_REDIS_SINGLE, true, 1, "cache.example", 6379, 0, "",
		"secret", "", "rediss://cache.example:6379"},
	{"redis-cluster://a:1,b:2,[::1]:3", KVW_REDIS_CLUSTER, false, 3, "::1", 3, 0, "", "", "",
		NULL},
	{"redis-sentinel://a,b/2", KVW_REDIS_SENTINEL, false, 2, "b", 26379, 2, "", "", "",
		"redis-sentinel://a:26379,b:26379/2"},
	{"unix://user@/run/redis.sock", KVW_REDIS_UNIX, false, 0, NULL, 0, 0, "user", "",
		"/run/redis.sock", "unix:///run/redis.sock"},
	{"unix:///run/redis.sock?db=2", KVW_REDIS_UNIX, false, 0, NULL, 0, 2, "", "",
		"/run/redis.sock", NULL},
	{"redis://h?db=1", KVW_REDIS_SINGLE, false, 1, "h", 6379, 1, "", "", "",
		"redis://h:6379/1"},
	{"rediss://u:a?b@h:1/3?db=4", KVW_REDIS_SINGLE, true, 1, "h", 1, 4, "u", "a?b", "",
		"rediss://h:1/4"},
};

START_TEST(what_is_right_is_taken_apart)
{
	const struct good *g = &good[_i];
	struct kvw_redis_url url;
	char text[600];

	ck_assert_ptr_null(kvw_redis_url_parse(g->text, &url));
	ck_assert_int_eq(url.kind, g->kind);
	ck_assert(url.tls == g->tls);
	ck_assert_uint_eq(url.node_count, g->nodes);
	if (g->nodes > 0) {
		ck_assert_str_eq(url.nodes[g->nodes - 1].host, g->host);
		ck_assert_uint_eq(url.nodes[g->nodes - 1].port, g->port);
	}
	ck_assert_uint_eq(url.database, g->database);
	ck_assert_str_eq(url.username, g->username);
	ck_assert_str_eq(url.password, g->password);
	ck_assert_str_eq(url.path, g->path);
	kvw_redis_url_print(&url, text, sizeof(text));
	ck_assert_str_eq(text, g->printed != NULL ? g->printed : g->text);
}
END_TEST

static const struct wrong {
	const char *text, *expected;
} wrong[] = {
	{"", "redis://"},
	{"localhost:6379", "redis://"},
	{"http://h", "redis://"},
	{"REDIS://h", "redis://"},
	{"redis://", "HOST:PORT"},
	{"redis://h:", "HOST:PORT"},
	{"redis://h:0", "HOST:PORT"},
	{"redis://h:65536", "HOST:PORT"},
	{"redis://h:6379x", "HOST:PORT"},
	{"redis://a b", "HOST:PORT"},
	{"redis://[::1", "HOST:PORT"},
	{"redis://[::1]6379", "HOST:PORT"},
	{"redis://a,b", "one server"},
	{"kvtierd://h", "redis://"},
	{"redis-cluster://a,", "HOST:PORT"},
	{"redis-cluster://a/1", "database"},
	{"redis://h/x", "database"},
	{"redis://h/65536", "database"},
	{"redis://%zz@h", "%XX"},
	{"redis://%4@h", "%XX"},
	{"redis://a%00b@h", "%XX"},
	{"unix://run/redis.sock", "unix:///PATH"},
	{"redis://h?db=x", "?db=NUMBER"},
	{"redis://h/1?ssl_cert_reqs=none", "?db=NUMBER"},
	{"redis-cluster://h?db=1", "?db=NUMBER"},
	{"unix:///s?db=1&db=2", "?db=NUMBER"},
};

START_TEST(what_is_wrong_says_what_was_expected)
{
	struct kvw_redis_url url;
	const char *expected = kvw_redis_url_parse(wrong[_i].text, &url);

	ck_assert_ptr_nonnull(expected);
	ck_assert_msg(
		strstr(expected, wrong[_i].expected) != NULL, "%s: %s", wrong[_i].text, expected);
}
END_TEST

START_TEST(lengths_are_bounded)
{
	char text[2000] = "redis-cluster://a";
	struct kvw_redis_url url;
	char little[12];

	for (int i = 1; i < KVW_REDIS_URL_NODES; i++)
		strcat(text, ",a");
	ck_assert_ptr_null(kvw_redis_url_parse(text, &url));
	kvw_redis_url_print(&url, little, sizeof(little)); /* cut, not overrun */
	ck_assert_uint_lt(strlen(little), sizeof(little));
	strcat(text, ",a");
	ck_assert_ptr_nonnull(strstr(kvw_redis_url_parse(text, &url), "16"));
	memset(text, 'h', sizeof(text) - 1);
	memcpy(text, "redis://", 8);
	text[8 + KVW_REDIS_URL_TEXT] = '\0';
	ck_assert_ptr_nonnull(kvw_redis_url_parse(text, &url));
	text[8 + KVW_REDIS_URL_TEXT - 1] = '\0';
	ck_assert_ptr_null(kvw_redis_url_parse(text, &url));
	memcpy(text, "unix:///", 8);
	ck_assert_ptr_nonnull(kvw_redis_url_parse(text, &url));
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("url");

	tcase_add_loop_test(
		tc, what_is_right_is_taken_apart, 0, (int)(sizeof(good) / sizeof(good[0])));
	tcase_add_loop_test(tc, what_is_wrong_says_what_was_expected, 0,
		(int)(sizeof(wrong) / sizeof(wrong[0])));
	tcase_add_test(tc, lengths_are_bounded);
	return run_tcase("redis-url", tc);
}
