/*
 * limits_test.c - bodies that try to cost more than they should, and big ones that may.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "tests/unit/suite.h"

/* head, then count times item, then tail. Caller frees. */
static char *repeat(const char *head, const char *item, size_t count, const char *tail)
{
	size_t len = strlen(item), at = strlen(head);
	char *body = malloc(at + len * count + strlen(tail) + 1);

	ck_assert_ptr_nonnull(body);
	strcpy(body, head);
	for (size_t i = 0; i < count; i++, at += len)
		memcpy(body + at, item, len);
	strcpy(body + at, tail);
	return body;
}

static enum kvw_err verdict(const char *body, size_t *memory)
{
	struct kvw_route_request request;
	struct kvw_scan *scan;
	enum kvw_err err;

	ck_assert_int_eq(kvw_scan_create(NULL, &scan), KVW_OK);
	kvw_scan_reset(scan, KVW_API_CHAT);
	for (size_t at = 0, len = strlen(body); at < len; at += 16384)
		kvw_scan_feed(scan, body + at, len - at < 16384 ? len - at : 16384);
	err = kvw_scan_finish(scan, &request);
	*memory = kvw_scan_memory(scan);
	/* What one body needed is not kept for ever. */
	kvw_scan_reset(scan, KVW_API_CHAT);
	ck_assert_uint_lt(kvw_scan_memory(scan), 2 << 20);
	kvw_scan_destroy(scan);
	return err;
}

START_TEST(nesting)
{
	/* The object at the top is one. */
	for (int depth = 100; depth < 200; depth++) {
		char *open = repeat("{\"messages\":[],\"x\":", "[", (size_t)depth, "");
		char *body = repeat(open, "]", (size_t)depth, "}");
		size_t memory;

		ck_assert_int_eq(verdict(body, &memory), depth < 128 ? KVW_OK : KVW_EPROTO);
		free(open);
		free(body);
	}
}
END_TEST

START_TEST(a_million_open_brackets)
{
	char *body = repeat("{\"x\":", "[", 1000000, "");
	size_t memory;

	ck_assert_int_eq(verdict(body, &memory), KVW_EPROTO);
	ck_assert_uint_lt(memory, 64 << 10);
	free(body);
}
END_TEST

/* Small things in great number: each is refused before it costs many times its length. */
static const struct {
	const char *head, *item, *tail;
} floods[] = {
	{"{\"messages\":[{}", ",{}", "]}"},
	{"{\"messages\":[{\"content\":[\"\"", ",\"a\"", "]}]}"},
	{"{\"messages\":[],\"tools\":[{}", ",{\"a\":1}", "]}"},
	{"{\"messages\":[],\"tools\":[{\"a\":1", ",\"a\":1", "}]}"},
	{"{\"messages\":[{\"role\":\"u\"", ",\"a\":1", "}]}"},
};

START_TEST(flood)
{
	char *body = repeat(floods[_i].head, floods[_i].item, 1000000, floods[_i].tail);
	size_t memory;

	ck_assert_int_eq(verdict(body, &memory), KVW_EPROTO);
	ck_assert_uint_lt(memory, 16 << 20);
	free(body);
	/* The same in moderation is fine. */
	body = repeat(floods[_i].head, floods[_i].item, 10000, floods[_i].tail);
	ck_assert_int_eq(verdict(body, &memory), KVW_OK);
	free(body);
}
END_TEST

START_TEST(long_names_and_numbers)
{
	char *text = repeat("", "0123456789", 30000, "");
	size_t size = strlen(text) * 5 + 256, memory;
	char *body = malloc(size);

	ck_assert_ptr_nonnull(body);
	snprintf(body, size, "{\"%s\":1%s,\"model\":\"%s\",\"x\":1%s.%se1}", text, text, text, text,
		text);
	ck_assert_int_eq(verdict(body, &memory), KVW_OK);
	ck_assert_uint_lt(memory, 16 * size);
	free(text);
	free(body);
}
END_TEST

/* 8 MiB of prompt: an eighth of it in hashes. */
START_TEST(big_prompt)
{
	char *body = repeat("{\"messages\":[{\"role\":\"user\",\"content\":\"", "0123456789abcdef",
		(size_t)8 << 16, "\"}]}");
	size_t memory;

	ck_assert_int_eq(verdict(body, &memory), KVW_OK);
	ck_assert_uint_gt(memory, 32768 * 16);
	ck_assert_uint_lt(memory, 4 << 20);
	free(body);
}
END_TEST

/* Big bodies cut at random. */
START_TEST(random_cuts)
{
	uint64_t random = (uint64_t)_i + 1;
	char *body = repeat("{\"prompt\":\"",
		"code\\n\\tif (a == \\\"b\\\") \\u4e2d\\u6587\\u5b57 ", 3000, "\"}");
	size_t len = strlen(body);
	struct seen *whole = see(KVW_API_COMPLETIONS, body, len, 0);
	struct kvw_route_request request;
	struct kvw_scan *scan;

	ck_assert_int_eq(whole->err, KVW_OK);
	ck_assert_int_eq(kvw_scan_create(NULL, &scan), KVW_OK);
	kvw_scan_reset(scan, KVW_API_COMPLETIONS);
	for (size_t at = 0; at < len;) {
		size_t piece = test_random(&random) % (test_random(&random) % 4 == 0 ? 9000 : 90);

		piece = piece < len - at ? piece : len - at;
		kvw_scan_feed(scan, body + at, piece);
		at += piece;
	}
	ck_assert_int_eq(kvw_scan_finish(scan, &request), KVW_OK);
	ck_assert_uint_eq(request.chunk_count, whole->request.chunk_count);
	ck_assert_mem_eq(
		request.chunks, whole->chunks, request.chunk_count * sizeof(*request.chunks));
	kvw_scan_destroy(scan);
	seen_free(whole);
	free(body);
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

int main(void)
{
	TCase *tc = tcase_create("limits");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, nesting);
	tcase_add_test(tc, a_million_open_brackets);
	tcase_add_loop_test(tc, flood, 0, COUNT(floods));
	tcase_add_test(tc, long_names_and_numbers);
	tcase_add_test(tc, big_prompt);
	tcase_add_loop_test(tc, random_cuts, 0, 20);
	return run_tcase("openai-limits", tc);
}
