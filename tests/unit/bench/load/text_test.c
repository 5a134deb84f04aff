/* text_test.c - prompts made from numbers, bodies of the proxy benchmark, JSON escaping. */
#include <check.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "bench/load/bodies.h"
#include "bench/load/text.h"
#include "tests/unit/suite.h"

static struct kvb_buf text(uint64_t id, size_t bytes)
{
	struct kvb_buf buf = {0};

	kvb_text_add(&buf, id, bytes);
	return buf;
}

static bool equal(const struct kvb_buf *a, const struct kvb_buf *b)
{
	return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

START_TEST(an_id_is_always_the_same_text)
{
	struct kvb_buf a = text(5, 2048), b = text(5, 2048), other = text(6, 2048);

	ck_assert_uint_eq(a.len, 2048);
	ck_assert(equal(&a, &b));
	ck_assert(!equal(&a, &other));
	for (size_t i = 0; i < a.len; i++)
		ck_assert((i % 4 == 3) ? a.data[i] == ' ' : a.data[i] >= 'a' && a.data[i] <= 'z');
	kvb_buf_finish(&a);
	kvb_buf_finish(&b);
	kvb_buf_finish(&other);
}
END_TEST

START_TEST(shorter_text_is_a_prefix)
{
	struct kvb_buf whole = text(9, 1000);

	for (size_t bytes = 0; bytes <= 1000; bytes += 7) {
		struct kvb_buf part = text(9, bytes);

		ck_assert_uint_eq(part.len, bytes);
		ck_assert(bytes == 0 || memcmp(part.data, whole.data, bytes) == 0);
		kvb_buf_finish(&part);
	}
	kvb_buf_finish(&whole);
}
END_TEST

/* The prompt of some blocks of 512 tokens at 4 bytes. */
static struct kvb_buf prompt(const uint64_t *ids, size_t count, uint32_t tokens)
{
	struct kvb_blocks blocks = {.ids = ids,
		.id_count = count,
		.tokens = tokens,
		.block_tokens = 512,
		.bytes_per_token = 4};
	struct kvb_buf buf = {0};

	kvb_text_add_blocks(&buf, &blocks);
	return buf;
}

START_TEST(equal_ids_give_equal_prefixes)
{
	const uint64_t first[] = {0, 14, 15, 16}, second[] = {0, 14, 99, 16};
	struct kvb_buf a = prompt(first, 4, 2000), b = prompt(second, 4, 2000);

	ck_assert_uint_eq(a.len, 8000);
	ck_assert_uint_eq(b.len, 8000);
	ck_assert(memcmp(a.data, b.data, 2 * 2048) == 0);
	ck_assert(memcmp(a.data + 4096, b.data + 4096, 64) != 0);
	/* The same id later gives the same text again: it names the block. */
	ck_assert(memcmp(a.data + 6144, b.data + 6144, 8000 - 6144) == 0);
	kvb_buf_finish(&a);
	kvb_buf_finish(&b);
}
END_TEST

START_TEST(a_longer_prompt_continues_the_shorter)
{
	const uint64_t ids[] = {3, 1, 4, 1, 5};
	struct kvb_buf turn = prompt(ids, 3, 1300), next = prompt(ids, 5, 2500);

	ck_assert_uint_eq(turn.len, 5200);
	ck_assert_uint_eq(next.len, 10000);
	ck_assert(memcmp(turn.data, next.data, turn.len) == 0);
	kvb_buf_finish(&turn);
	kvb_buf_finish(&next);
}
END_TEST

START_TEST(length_holds_whatever_the_ids)
{
	const uint64_t ids[] = {1, 2};
	struct kvb_buf few = prompt(ids, 2, 5000), many = prompt(ids, 2, 10), none;

	ck_assert_uint_eq(few.len, 20000);
	ck_assert_uint_eq(many.len, 40);
	none = prompt(ids, 2, 0);
	ck_assert_uint_eq(none.len, 0);
	kvb_buf_finish(&few);
	kvb_buf_finish(&many);
}
END_TEST

START_TEST(strings_are_escaped_as_json)
{
	static const char raw[] = "say \"hi\"\\\n\ttab \x01 end \xc3\xa4";
	struct kvb_buf buf = {0};
	json_t *value;

	kvb_buf_text(&buf, "\"");
	kvb_buf_json_text(&buf, raw, sizeof(raw) - 1);
	kvb_buf_text(&buf, "\"");
	value = json_loadb(buf.data, buf.len, JSON_DECODE_ANY, NULL);
	ck_assert_ptr_nonnull(value);
	ck_assert_str_eq(json_string_value(value), raw);
	json_decref(value);
	kvb_buf_finish(&buf);
}
END_TEST

/* One body of the proxy benchmark, parsed; the caller owns it. */
static json_t *next_body(struct kvb_bodies *bodies, size_t size)
{
	struct iovec pieces[KVB_BODY_PIECES];
	char stamp[KVB_BODY_STAMP];
	struct kvb_buf all = {0};
	const char *body;
	json_t *parsed;

	kvb_bodies_next(bodies, pieces, stamp);
	for (size_t i = 0; i < KVB_BODY_PIECES; i++)
		kvb_buf_add(&all, pieces[i].iov_base, pieces[i].iov_len);
	body = memmem(all.data, all.len, "\r\n\r\n", 4);
	ck_assert_ptr_nonnull(body);
	body += 4;
	ck_assert_uint_eq(all.len - (size_t)(body - all.data), size);
	parsed = json_loadb(body, size, 0, NULL);
	ck_assert_ptr_nonnull(parsed);
	kvb_buf_finish(&all);
	return parsed;
}

static const char *message(const json_t *body, size_t i)
{
	return json_string_value(
		json_object_get(json_array_get(json_object_get(body, "messages"), i), "content"));
}

START_TEST(bodies_differ_and_share_prefixes)
{
	static const size_t sizes[] = {512, 2048, 262144};

	for (size_t s = 0; s < 3; s++) {
		struct kvb_bodies bodies;
		json_t *kept[200];
		size_t shared = 0;

		kvb_bodies_init(&bodies, "127.0.0.1", sizes[s], 0, 0);
		for (size_t i = 0; i < 200; i++) {
			kept[i] = next_body(&bodies, sizes[s]);
			for (size_t j = 0; j < i; j++) {
				shared += strcmp(message(kept[i], 0), message(kept[j], 0)) == 0;
				ck_assert_str_ne(message(kept[i], 1), message(kept[j], 1));
			}
		}
		/* 64 groups: each body shares its prefix with about three earlier ones. */
		ck_assert_uint_gt(shared, 150);
		for (size_t i = 0; i < 200; i++)
			json_decref(kept[i]);
		kvb_bodies_finish(&bodies);
	}
}
END_TEST

/* So a router that remembers prompts learns all of each. */
START_TEST(unique_bodies_share_no_prefix)
{
	static const size_t sizes[] = {512, 8192};

	for (size_t s = 0; s < 2; s++) {
		struct kvb_bodies bodies;
		json_t *kept[100];

		kvb_bodies_init(&bodies, "127.0.0.1", sizes[s], 0, 1);
		for (size_t i = 0; i < 100; i++) {
			kept[i] = next_body(&bodies, sizes[s]);
			for (size_t j = 0; j < i; j++)
				ck_assert_int_ne(strncmp(message(kept[i], 0), message(kept[j], 0), 16), 0);
		}
		for (size_t i = 0; i < 100; i++)
			json_decref(kept[i]);
		kvb_bodies_finish(&bodies);
	}
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("all");

	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, an_id_is_always_the_same_text);
	tcase_add_test(tests, shorter_text_is_a_prefix);
	tcase_add_test(tests, equal_ids_give_equal_prefixes);
	tcase_add_test(tests, a_longer_prompt_continues_the_shorter);
	tcase_add_test(tests, length_holds_whatever_the_ids);
	tcase_add_test(tests, strings_are_escaped_as_json);
	tcase_add_test(tests, bodies_differ_and_share_prefixes);
	tcase_add_test(tests, unique_bodies_share_no_prefix);
	return run_tcase("load text", tests);
}
