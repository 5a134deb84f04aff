/*
 * resp_test.c - replies in every cut, and bytes that are no replies.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "redis/resp.h"
#include "tests/unit/suite.h"

#define ROOM 64

/* A command whose lead and segments lie in one field, with a border that must stay as it is. */
struct target {
	struct kvw_redis_command c;
	char lead[8 + 1];
	char memory[ROOM];
	struct iovec into[3];
};

static void target_init(struct target *t)
{
	memset(t, 0, sizeof(*t));
	memset(t->lead, '#', sizeof(t->lead));
	memset(t->memory, '#', sizeof(t->memory));
	t->into[0] = (struct iovec){.iov_base = t->memory + 1, .iov_len = 3};
	t->into[1] = (struct iovec){.iov_base = t->memory + 10, .iov_len = 0};
	t->into[2] = (struct iovec){.iov_base = t->memory + 20, .iov_len = 5};
	t->c.lead = t->lead;
	t->c.lead_room = 8;
	t->c.into = t->into;
	t->c.into_count = 3;
	t->c.elements = true;
	t->c.element_limit = 4096;
}

/* Feeds text in pieces of `step` bytes, those of a bulk string directly if so wished. Returns the
 * last state; *rest: bytes that were not taken. */
static enum kvw_redis_resp_state feed(struct kvw_redis_resp *p, const char *text, size_t len,
	size_t step, bool direct, size_t *rest)
{
	enum kvw_redis_resp_state state = KVW_REDIS_RESP_MORE;
	size_t at = 0;

	while (at < len && state == KVW_REDIS_RESP_MORE) {
		struct iovec pieces[8];
		size_t n = len - at < step ? len - at : step, used = 0;
		size_t count = direct ? kvw_redis_resp_room(p, pieces, 8) : 0;

		if (count > 0) {
			used = n < pieces[0].iov_len ? n : pieces[0].iov_len;
			memcpy(pieces[0].iov_base, text + at, used);
			kvw_redis_resp_arrived(p, used);
		} else {
			state = kvw_redis_resp_feed(p, text + at, n, &used);
			ck_assert(used == n || state != KVW_REDIS_RESP_MORE);
		}
		at += used;
	}
	*rest = len - at;
	return state;
}

/* The same reply in all cuts; the check is called after each. */
static void every_cut(const char *text, size_t len, void (*check)(const struct target *t))
{
	struct target t;
	struct kvw_redis_resp p = {0};
	size_t rest;

	for (size_t step = 1; step <= len; step++)
		for (int direct = 0; direct < 2; direct++) {
			target_init(&t);
			kvw_redis_resp_begin(&p, &t.c);
			ck_assert_int_eq(
				feed(&p, text, len, step, direct, &rest), KVW_REDIS_RESP_DONE);
			ck_assert_uint_eq(rest, 0);
			check(&t);
			kvw_redis_elements_free(t.c.found, t.c.element_count);
		}
}

static void is_status(const struct target *t)
{
	ck_assert_int_eq(t->c.status, KVW_OK);
	ck_assert_int_eq(t->c.reply, KVW_REDIS_STATUS);
	ck_assert_str_eq(t->c.text, "OK");
}

static void is_error(const struct target *t)
{
	ck_assert_int_eq(t->c.status, KVW_OK);
	ck_assert_int_eq(t->c.reply, KVW_REDIS_ERROR);
	ck_assert_str_eq(t->c.text, "ERR no?such thing");
}

static void is_integer(const struct target *t)
{
	ck_assert_int_eq(t->c.reply, KVW_REDIS_INTEGER);
	ck_assert_int_eq(t->c.integer, INT64_MIN);
}

static void is_nil(const struct target *t)
{
	ck_assert_int_eq(t->c.status, KVW_OK);
	ck_assert_int_eq(t->c.reply, KVW_REDIS_NIL);
	ck_assert_int_eq(t->memory[1], '#');
}

static void is_empty(const struct target *t)
{
	ck_assert_int_eq(t->c.reply, KVW_REDIS_BULK);
	ck_assert_uint_eq(t->c.bulk_bytes, 0);
	ck_assert_uint_eq(t->c.lead_bytes, 0);
	ck_assert_int_eq(t->lead[0], '#');
}

/* 13 bytes: 8 in lead, 3 and 2 in segments, and not one outside. */
static void is_value(const struct target *t)
{
	char memory[ROOM], lead[9] = "ab\r\ncdef#";

	memset(memory, '#', sizeof(memory));
	memcpy(memory + 1, "\0gh", 3);
	memcpy(memory + 20, "\r\n", 2);
	ck_assert_int_eq(t->c.status, KVW_OK);
	ck_assert_int_eq(t->c.reply, KVW_REDIS_BULK);
	ck_assert_uint_eq(t->c.bulk_bytes, 13);
	ck_assert_uint_eq(t->c.lead_bytes, 8);
	ck_assert_mem_eq(t->lead, lead, sizeof(lead));
	ck_assert_mem_eq(t->memory, memory, sizeof(memory));
}

static void is_short(const struct target *t)
{
	ck_assert_uint_eq(t->c.lead_bytes, 3);
	ck_assert_mem_eq(t->lead, "xyz######", 9);
}

static void is_too_long(const struct target *t)
{
	ck_assert_int_eq(t->c.status, KVW_ELIMIT);
	ck_assert_uint_eq(t->c.bulk_bytes, 17);
	ck_assert_mem_eq(t->lead, "#########", 9);
	for (size_t i = 0; i < ROOM; i++)
		ck_assert_int_eq(t->memory[i], '#');
}

#define ALL(text, check) every_cut(text, sizeof(text) - 1, check)

START_TEST(t_every_kind_in_every_cut)
{
	ALL("+OK\r\n", is_status);
	ALL("-ERR no\tsuch thing\r\n", is_error);
	ALL(":-9223372036854775808\r\n", is_integer);
	ALL("$-1\r\n", is_nil);
	ALL("*-1\r\n", is_nil);
	ALL("$0\r\n\r\n", is_empty);
	ALL("$13\r\nab\r\ncdef\0gh\r\n\r\n", is_value);
	ALL("$3\r\nxyz\r\n", is_short);
	ALL("$17\r\n0123456789abcdefg\r\n", is_too_long);
}
END_TEST

static void element_is(
	const struct target *t, size_t i, const char *data, uint32_t depth, uint32_t index)
{
	const struct kvw_redis_element *e = &t->c.found[i];

	ck_assert_uint_eq(e->depth, depth);
	ck_assert_uint_eq(e->index, index);
	if (data == NULL) {
		ck_assert_ptr_null(e->data);
		return;
	}
	ck_assert_uint_eq(e->len, strlen(data));
	ck_assert_str_eq(e->data, data);
}

static void is_nested(const struct target *t)
{
	ck_assert_int_eq(t->c.status, KVW_OK);
	ck_assert_int_eq(t->c.reply, KVW_REDIS_ARRAY);
	ck_assert_uint_eq(t->c.element_count, 8);
	element_is(t, 0, "0", 1, 0);
	element_is(t, 1, "5460", 2, 0);
	element_is(t, 2, "127.0.0.1", 3, 0);
	element_is(t, 3, NULL, 3, 2);
	element_is(t, 4, "", 3, 3);
	element_is(t, 5, "QUEUED", 2, 2);
	element_is(t, 6, NULL, 1, 2);
	element_is(t, 7, "end", 1, 3);
}

static void is_no_elements(const struct target *t)
{
	ck_assert_int_eq(t->c.status, KVW_OK);
	ck_assert_int_eq(t->c.reply, KVW_REDIS_ARRAY);
	ck_assert_uint_eq(t->c.element_count, 0);
}

START_TEST(t_arrays)
{
	ALL("*4\r\n:0\r\n*3\r\n:5460\r\n*4\r\n$9\r\n127.0.0.1\r\n*0\r\n$-1\r\n$0\r\n\r\n"
	    "+QUEUED\r\n*-1\r\n$3\r\nend\r\n",
		is_nested);
	ALL("*0\r\n", is_no_elements);
	ALL("*1\r\n*1\r\n*0\r\n", is_no_elements);
}
END_TEST

/* What an array may cost is limited; what is beyond is read to its end and not kept. */
START_TEST(t_array_limits)
{
	static const char text[] = "*2\r\n$5\r\nhello\r\n$5\r\nworld\r\n";
	uint32_t each = sizeof(struct kvw_redis_element) + 6;
	struct kvw_redis_resp p = {0};
	struct target t;
	size_t rest;

	target_init(&t);
	t.c.element_limit = 2 * each;
	kvw_redis_resp_begin(&p, &t.c);
	ck_assert_int_eq(feed(&p, text, sizeof(text) - 1, 7, false, &rest), KVW_REDIS_RESP_DONE);
	ck_assert_int_eq(t.c.status, KVW_OK);
	ck_assert_uint_eq(t.c.element_count, 2);
	kvw_redis_elements_free(t.c.found, t.c.element_count);
	t.c.element_limit = 2 * each - 1;
	kvw_redis_resp_begin(&p, &t.c);
	ck_assert_int_eq(feed(&p, text, sizeof(text) - 1, 7, false, &rest), KVW_REDIS_RESP_DONE);
	ck_assert_int_eq(t.c.status, KVW_ELIMIT);
	ck_assert_ptr_null(t.c.found);
	ck_assert_uint_eq(t.c.element_count, 0);
	t.c.elements = false;
	kvw_redis_resp_begin(&p, &t.c);
	ck_assert_int_eq(feed(&p, text, sizeof(text) - 1, 7, false, &rest), KVW_REDIS_RESP_DONE);
	ck_assert_int_eq(t.c.status, KVW_ELIMIT);
	ck_assert_int_eq(t.c.reply, KVW_REDIS_ARRAY);
}
END_TEST

/* A huge array whose bytes never come costs nothing. */
START_TEST(t_array_that_promises_much)
{
	static const char text[] = "*1048576\r\n$536870912\r\nx";
	struct kvw_redis_resp p = {0};
	struct target t;
	size_t rest;

	target_init(&t);
	kvw_redis_resp_begin(&p, &t.c);
	ck_assert_int_eq(feed(&p, text, sizeof(text) - 1, 100, false, &rest), KVW_REDIS_RESP_MORE);
	ck_assert_ptr_null(t.c.found);
	kvw_redis_resp_abandon(&p);
	kvw_redis_resp_abandon(&p);
}
END_TEST

START_TEST(t_one_reply_after_another)
{
	static const char text[] = "+OK\r\n$3\r\nabc\r\n:7\r\n";
	const enum kvw_redis_reply kinds[] = {KVW_REDIS_STATUS, KVW_REDIS_BULK, KVW_REDIS_INTEGER};
	struct kvw_redis_resp p = {0};
	struct target t;
	size_t at = 0, used;

	for (size_t i = 0; i < 3; i++) {
		target_init(&t);
		kvw_redis_resp_begin(&p, &t.c);
		ck_assert_int_eq(kvw_redis_resp_feed(&p, text + at, sizeof(text) - 1 - at, &used),
			KVW_REDIS_RESP_DONE);
		ck_assert_int_eq(t.c.reply, kinds[i]);
		at += used;
	}
	ck_assert_uint_eq(at, sizeof(text) - 1);
}
END_TEST

/* Abandoned in the middle, nothing of a reply is left. */
START_TEST(t_abandoned)
{
	static const char text[] = "*3\r\n$5\r\nhello\r\n$5\r\nwo";
	struct kvw_redis_resp p = {0};
	struct target t;
	size_t rest;

	target_init(&t);
	kvw_redis_resp_begin(&p, &t.c);
	ck_assert_int_eq(feed(&p, text, sizeof(text) - 1, 3, false, &rest), KVW_REDIS_RESP_MORE);
	kvw_redis_resp_abandon(&p);
	ck_assert_ptr_null(t.c.found);
	ck_assert_uint_eq(t.c.element_count, 0);
	ck_assert_int_eq(t.c.reply, KVW_REDIS_NONE);
}
END_TEST

static const struct broken {
	const char *text;
	size_t len;
} broken[] = {
#define BROKEN(text)                                                                               \
	{                                                                                          \
		text, sizeof(text) - 1                                                             \
	}
	BROKEN("HTTP/1.1 400 Bad Request\r\n"),
	BROKEN("\r\n"),
	BROKEN("\0"),
	BROKEN("_\r\n"),
	BROKEN("%1\r\n"),
	BROKEN("+OK\n"),
	BROKEN("+O\nK\r\n"),
	BROKEN("+OK\rX"),
	BROKEN(":\r\n"),
	BROKEN(":-\r\n"),
	BROKEN(":+1\r\n"),
	BROKEN(": 1\r\n"),
	BROKEN(":1 \r\n"),
	BROKEN(":0x1\r\n"),
	BROKEN(":1.0\r\n"),
	BROKEN(":--1\r\n"),
	BROKEN(":9223372036854775808\r\n"),
	BROKEN(":-9223372036854775809\r\n"),
	BROKEN(":000000000000000000001\r\n"),
	BROKEN("$\r\n"),
	BROKEN("$-2\r\n"),
	BROKEN("$536870913\r\n"),
	BROKEN("$9223372036854775807\r\n"),
	BROKEN("$3\r\nabcd\r\n"),
	BROKEN("$3\r\nabc\n\r"),
	BROKEN("$3\r\nabc\rX"),
	BROKEN("$0\r\nX"),
	BROKEN("*-2\r\n"),
	BROKEN("*1048577\r\n"),
	BROKEN("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n"),
	BROKEN("*2\r\n:1\r\nX"),
	BROKEN("*1\r\n$3\r\nabcd\r\n"),
};

START_TEST(t_what_is_no_reply)
{
	const struct broken *b = &broken[_i];
	struct kvw_redis_resp p = {0};
	struct target t;
	size_t rest;

	for (size_t step = 1; step <= b->len; step++) {
		target_init(&t);
		kvw_redis_resp_begin(&p, &t.c);
		ck_assert_int_eq(
			feed(&p, b->text, b->len, step, true, &rest), KVW_REDIS_RESP_BROKEN);
		ck_assert_int_eq(t.c.status, KVW_EPROTO);
		ck_assert_ptr_nonnull(p.why);
		ck_assert_ptr_null(t.c.found);
	}
}
END_TEST

START_TEST(t_long_lines)
{
	size_t len = KVW_REDIS_RESP_LINE_MAX + 4, rest;
	char *text = malloc(len);
	struct kvw_redis_resp p = {0};
	struct target t;

	ck_assert_ptr_nonnull(text);
	memset(text, 'e', len);
	text[0] = '-';
	memcpy(text + 1 + KVW_REDIS_RESP_LINE_MAX, "\r\n", 2);
	target_init(&t);
	kvw_redis_resp_begin(&p, &t.c);
	ck_assert_int_eq(feed(&p, text, len - 1, 1000, false, &rest), KVW_REDIS_RESP_DONE);
	ck_assert_uint_eq(strlen(t.c.text), KVW_REDIS_TEXT - 1);
	memcpy(text + 1 + KVW_REDIS_RESP_LINE_MAX, "e\r\n", 3);
	kvw_redis_resp_begin(&p, &t.c);
	ck_assert_int_eq(feed(&p, text, len, 1000, false, &rest), KVW_REDIS_RESP_BROKEN);
	free(text);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("resp");

	tcase_add_test(tc, t_every_kind_in_every_cut);
	tcase_add_test(tc, t_arrays);
	tcase_add_test(tc, t_array_limits);
	tcase_add_test(tc, t_array_that_promises_much);
	tcase_add_test(tc, t_one_reply_after_another);
	tcase_add_test(tc, t_abandoned);
	tcase_add_loop_test(tc, t_what_is_no_reply, 0, sizeof(broken) / sizeof(broken[0]));
	tcase_add_test(tc, t_long_lines);
	return run_tcase("redis-resp", tc);
}
