/*
 * body_test.c - where bodies end, what in them is payload, and which ones are refused; each at
 * every split of its bytes.
 */
#include <check.h>
#include <stdlib.h>

#include "http/body.h"
#include "tests/unit/suite.h"

/* Payload collected from callbacks. */
struct sink {
	char data[4096];
	size_t len;
};

static void collect(void *arg, const char *data, size_t len)
{
	struct sink *sink = arg;

	ck_assert_uint_le(sink->len + len, sizeof(sink->data));
	ck_assert_uint_gt(len, 0);
	memcpy(sink->data + sink->len, data, len);
	sink->len += len;
}

/* Feeds text in pieces that end at `a`, `b` and its end. Sets *used over all pieces. */
static enum kvw_err feed_pieces(struct kvw_body *body, struct sink *sink, struct kvw_slice text,
	size_t a, size_t b, size_t *used)
{
	size_t ends[3] = {a, b, text.len}, at = 0;
	enum kvw_err err = KVW_OK;

	for (int i = 0; i < 3 && err == KVW_OK && !body->done; i++) {
		size_t len = ends[i] - at, n = 12345;
		char *copy = malloc(len > 0 ? len : 1);

		ck_assert_ptr_nonnull(copy);
		memcpy(copy, text.data + at, len);
		err = kvw_body_feed(body, copy, len, collect, sink, &n);
		if (err == KVW_OK) {
			ck_assert(n == len || body->done);
			at += n;
		} else {
			ck_assert_uint_eq(n, 12345); /* untouched */
		}
		free(copy);
	}
	*used = at;
	return err;
}

/* One chunked body that is good. */
struct good {
	struct kvw_slice text;
	const char *payload;
	size_t rest; /* bytes behind the body */
};

/* clang-format off */
static const struct good goods[] = {
	{KVW_SLICE("0\r\n\r\n"), "", 0},
	{KVW_SLICE("5\r\nhello\r\n0\r\n\r\n"), "hello", 0},
	{KVW_SLICE("5\r\nhello\r\n6\r\n world\r\n0\r\n\r\nGET / HTTP/1.1\r\n"), "hello world", 16},
	{KVW_SLICE("a\r\n0123456789\r\nA\r\nabcdefghij\r\n0\r\n\r\n"), "0123456789abcdefghij", 0},
	{KVW_SLICE("0000000000000003\r\nabc\r\n000\r\n\r\n"), "abc", 0},
	{KVW_SLICE("4\r\n\r\n\r\n\r\n0\r\n\r\n"), "\r\n\r\n", 0},
	{KVW_SLICE("1;a\r\nx\r\n0\r\n\r\n"), "x", 0},
	{KVW_SLICE("1;a=b;c;d=\"e;\\\"\tf\"\r\nx\r\n0;last=1\r\n\r\n"), "x", 0},
	{KVW_SLICE("1;a=\"\"\r\nx\r\n0\r\n\r\n"), "x", 0},
	{KVW_SLICE("1\r\nx\r\n0\r\nX-Sum: 12 3\r\nother:\r\n\r\n"), "x", 0},
	{KVW_SLICE("0\r\nX-Content-Length: 5\r\nContent-Lengthy: 5\r\nHos: t\r\n\r\n\r\n"), "", 2},
	{KVW_SLICE("0\r\nA-very-long-name-of-a-trailer-field: gr\xc3\xbc\xc3\x9f\r\n\r\nx"), "", 1},
};
/* clang-format on */

START_TEST(good_chunked_body_at_every_split)
{
	const struct good *g = &goods[_i];

	for (size_t a = 0; a <= g->text.len; a++) {
		for (size_t b = a; b <= g->text.len; b++) {
			struct sink sink = {.len = 0};
			struct kvw_body body;
			size_t used = 0;

			kvw_body_begin(&body, KVW_FRAME_CHUNKED, 0, 0);
			ck_assert_int_eq(feed_pieces(&body, &sink, g->text, a, b, &used), KVW_OK);
			ck_assert(body.done);
			ck_assert_uint_eq(used, g->text.len - g->rest);
			ck_assert_uint_eq(sink.len, strlen(g->payload));
			ck_assert_mem_eq(sink.data, g->payload, sink.len);
			ck_assert_uint_eq(body.payload_bytes, sink.len);
			ck_assert(kvw_body_close(&body));
		}
	}
}
END_TEST

/* Every proper beginning of a good body is neither an error nor an end. */
START_TEST(body_is_not_done_early)
{
	const struct good *g = &goods[_i];

	for (size_t len = 0; len < g->text.len - g->rest; len++) {
		struct sink sink = {.len = 0};
		struct kvw_body body;
		size_t used = 0;

		kvw_body_begin(&body, KVW_FRAME_CHUNKED, 0, 0);
		ck_assert_int_eq(
			kvw_body_feed(&body, g->text.data, len, collect, &sink, &used), KVW_OK);
		ck_assert_uint_eq(used, len);
		ck_assert(!body.done);
		ck_assert(!kvw_body_close(&body));
	}
}
END_TEST

/* One chunked body that must be refused. */
struct bad {
	struct kvw_slice text;
	const char *message; /* part of it */
};

static const struct bad bads[] = {
	{KVW_SLICE("\r\n"), "not a hex number"},
	{KVW_SLICE("x\r\n"), "not a hex number"},
	{KVW_SLICE(" 5\r\nhello\r\n"), "not a hex number"},
	{KVW_SLICE("-5\r\nhello\r\n"), "not a hex number"},
	{KVW_SLICE("+5\r\nhello\r\n"), "not a hex number"},
	{KVW_SLICE(";a\r\n"), "not a hex number"},
	{KVW_SLICE("\n"), "not a hex number"},
	{KVW_SLICE("0x5\r\nhello\r\n"), "after a chunk size"},
	{KVW_SLICE("5 \r\nhello\r\n"), "after a chunk size"},
	{KVW_SLICE("5 ;a\r\nhello\r\n"), "after a chunk size"},
	{KVW_SLICE("5\t\r\nhello\r\n"), "after a chunk size"},
	{KVW_SLICE("5_\r\nhello\r\n"), "after a chunk size"},
	{KVW_SLICE("5\0\r\nhello\r\n"), "after a chunk size"},
	{KVW_SLICE("5\nhello\r\n"), "LF without CR"},
	{KVW_SLICE("5\rhello\r\n"), "CR without LF after a chunk size"},
	{KVW_SLICE("5\r\r\nhello\r\n"), "CR without LF after a chunk size"},
	{KVW_SLICE("8000000000000000\r\n"), "too large"},
	{KVW_SLICE("ffffffffffffffff\r\n"), "too large"},
	{KVW_SLICE("00000000000000001\r\nx"), "16 digits"},
	{KVW_SLICE("5\r\nhelloo\r\n"), "not followed by CR LF"},
	{KVW_SLICE("5\r\nhell\r\n0\r\n\r\n"), "not followed by CR LF"},
	{KVW_SLICE("5\r\nhello\n0\r\n\r\n"), "not followed by CR LF"},
	{KVW_SLICE("5\r\nhello\r0\r\n\r\n"), "CR without LF after a chunk"},
	{KVW_SLICE("5\r\nhello0\r\n\r\n"), "not followed by CR LF"},
	/* extensions */
	{KVW_SLICE("1;\r\nx"), "without a name"},
	{KVW_SLICE("1;;a\r\nx"), "without a name"},
	{KVW_SLICE("1;=b\r\nx"), "without a name"},
	{KVW_SLICE("1; a\r\nx"), "without a name"},
	{KVW_SLICE("1;a b\r\nx"), "not allowed in a chunk extension"},
	{KVW_SLICE("1;a=\r\nx"), "without a value"},
	{KVW_SLICE("1;a=b=c\r\nx"), "not allowed in a chunk extension"},
	{KVW_SLICE("1;a=\"b\"c\r\nx"), "not allowed in a chunk extension"},
	{KVW_SLICE("1;a=\"b\r\n\"\r\nx"), "not allowed in a chunk extension"},
	{KVW_SLICE("1;a=\"\\\n\"\r\nx"), "not allowed in a chunk extension"},
	{KVW_SLICE("1;a=\"\x80\"\r\nx"), "not allowed in a chunk extension"},
	{KVW_SLICE("1;a\nx\r\n"), "not allowed in a chunk extension"},
	{KVW_SLICE("1;a\rx\r\n"), "CR without LF after a chunk size"},
	{KVW_SLICE("1;a\0\r\n"), "not allowed in a chunk extension"},
	/* trailers */
	{KVW_SLICE("0\r\nContent-Length: 5\r\n\r\n"), "not allowed in trailers"},
	{KVW_SLICE("0\r\nA: b\r\nTRANSFER-encoding: chunked\r\n\r\n"), "not allowed in trailers"},
	{KVW_SLICE("0\r\nHost: a\r\n\r\n"), "not allowed in trailers"},
	{KVW_SLICE("0\r\nconnection: close\r\n\r\n"), "not allowed in trailers"},
	{KVW_SLICE("0\r\nAuthorization: x\r\n\r\n"), "not allowed in trailers"},
	{KVW_SLICE("0\r\nContent-Encoding: x\r\n\r\n"), "not allowed in trailers"},
	{KVW_SLICE("0\r\n a: b\r\n\r\n"), "folded"},
	{KVW_SLICE("0\r\nA: b\r\n c\r\n\r\n"), "folded"},
	{KVW_SLICE("0\r\nA : b\r\n\r\n"), "name and colon"},
	{KVW_SLICE("0\r\n: b\r\n\r\n"), "name and colon"},
	{KVW_SLICE("0\r\nA\r\n\r\n"), "name and colon"},
	{KVW_SLICE("0\r\nGET / HTTP/1.1\r\n"), "name and colon"},
	{KVW_SLICE("0\r\nA: b\n\r\n"), "LF without CR"},
	{KVW_SLICE("0\r\nA: b\rc\r\n"), "CR without LF in a trailer"},
	{KVW_SLICE("0\r\nA: \0\r\n"), "control character"},
	{KVW_SLICE("0\r\n\n"), "LF without CR"},
	{KVW_SLICE("0\r\n\r\r\n"), "CR without LF at the end"},
	{KVW_SLICE("0\n\r\n"), "LF without CR"},
};

START_TEST(bad_chunked_body_at_every_split)
{
	const struct bad *bad = &bads[_i];

	for (size_t a = 0; a <= bad->text.len; a++) {
		struct sink sink = {.len = 0};
		struct kvw_body body;
		size_t used = 0;

		kvw_body_begin(&body, KVW_FRAME_CHUNKED, 0, 0);
		ck_assert_msg(feed_pieces(&body, &sink, bad->text, a, a, &used) == KVW_EPROTO,
			"accepted: %s", bad->text.data);
		ck_assert_msg(strstr(body.error, bad->message) != NULL, "%s: %s", bad->text.data,
			body.error);
		ck_assert(!body.done);
		/* an error is final */
		ck_assert_int_eq(
			kvw_body_feed(&body, "0\r\n\r\n", 5, collect, &sink, &used), KVW_EPROTO);
		ck_assert(!kvw_body_close(&body));
	}
}
END_TEST

START_TEST(length)
{
	struct kvw_slice text = KVW_SLICE("hello world");

	for (size_t a = 0; a <= text.len; a++) {
		struct sink sink = {.len = 0};
		struct kvw_body body;
		size_t used = 0;

		kvw_body_begin(&body, KVW_FRAME_LENGTH, 5, 0);
		ck_assert(!body.done);
		ck_assert_int_eq(feed_pieces(&body, &sink, text, a, text.len, &used), KVW_OK);
		ck_assert(body.done);
		ck_assert_uint_eq(used, 5);
		ck_assert_uint_eq(sink.len, 5);
		ck_assert_mem_eq(sink.data, "hello", 5);
	}
}
END_TEST

START_TEST(bodies_without_bytes_are_done_at_once)
{
	struct kvw_body body;
	size_t used = 9;

	kvw_body_begin(&body, KVW_FRAME_NONE, 0, 0);
	ck_assert(body.done);
	ck_assert_int_eq(kvw_body_feed(&body, "x", 1, NULL, NULL, &used), KVW_OK);
	ck_assert_uint_eq(used, 0);
	kvw_body_begin(&body, KVW_FRAME_LENGTH, 0, 10);
	ck_assert(body.done);
	ck_assert(kvw_body_close(&body));
}
END_TEST

START_TEST(body_until_close)
{
	struct sink sink = {.len = 0};
	struct kvw_body body;
	size_t used = 0;

	kvw_body_begin(&body, KVW_FRAME_CLOSE, 0, 0);
	ck_assert_int_eq(kvw_body_feed(&body, "hello", 5, collect, &sink, &used), KVW_OK);
	ck_assert_uint_eq(used, 5);
	ck_assert_int_eq(kvw_body_feed(&body, "", 0, collect, &sink, &used), KVW_OK);
	ck_assert_uint_eq(used, 0);
	ck_assert(!body.done);
	ck_assert(kvw_body_close(&body));
	ck_assert(body.done);
	ck_assert_uint_eq(sink.len, 5);
}
END_TEST

START_TEST(a_close_inside_is_no_end)
{
	struct kvw_body body;
	size_t used;

	kvw_body_begin(&body, KVW_FRAME_LENGTH, 5, 0);
	ck_assert_int_eq(kvw_body_feed(&body, "hell", 4, NULL, NULL, &used), KVW_OK);
	ck_assert(!kvw_body_close(&body));
	ck_assert(!body.done);
}
END_TEST

START_TEST(limits)
{
	struct sink sink = {.len = 0};
	struct kvw_body body;
	size_t used = 0;

	kvw_body_begin(&body, KVW_FRAME_LENGTH, 6, 5);
	ck_assert_int_eq(kvw_body_feed(&body, "x", 1, collect, &sink, &used), KVW_ELIMIT);
	kvw_body_begin(&body, KVW_FRAME_LENGTH, 5, 5);
	ck_assert_int_eq(kvw_body_feed(&body, "hello", 5, collect, &sink, &used), KVW_OK);
	ck_assert(body.done);
	kvw_body_begin(&body, KVW_FRAME_CHUNKED, 0, 5);
	ck_assert_int_eq(
		kvw_body_feed(&body, "3\r\nabc\r\n2\r\nde\r\n", 15, collect, &sink, &used), KVW_OK);
	ck_assert_int_eq(kvw_body_feed(&body, "1\r\nx", 4, collect, &sink, &used), KVW_ELIMIT);
	ck_assert_int_eq(kvw_body_feed(&body, "0\r\n\r\n", 5, collect, &sink, &used), KVW_ELIMIT);
	ck_assert_uint_eq(body.payload_bytes, 5);
	kvw_body_begin(&body, KVW_FRAME_CHUNKED, 0, 5);
	ck_assert_int_eq(kvw_body_feed(&body, "7fffffffffffffff\r\n", 18, collect, &sink, &used),
		KVW_ELIMIT);
	kvw_body_begin(&body, KVW_FRAME_CLOSE, 0, 5);
	ck_assert_int_eq(kvw_body_feed(&body, "hello", 5, collect, &sink, &used), KVW_OK);
	ck_assert_int_eq(kvw_body_feed(&body, "!", 1, collect, &sink, &used), KVW_ELIMIT);
}
END_TEST

/* Feeds text times over until an error or enough bytes. */
static enum kvw_err feed_repeated(struct kvw_body *body, const char *text, size_t total)
{
	enum kvw_err err = KVW_OK;
	size_t len = strlen(text), used;

	for (size_t fed = 0; fed < total && err == KVW_OK; fed += len)
		err = kvw_body_feed(body, text, len, NULL, NULL, &used);
	return err;
}

START_TEST(framing_cannot_grow_without_bound)
{
	struct kvw_body body;

	kvw_body_begin(&body, KVW_FRAME_CHUNKED, 0, 0);
	ck_assert_int_eq(feed_repeated(&body, "1", 1), KVW_OK);
	ck_assert_int_eq(feed_repeated(&body, ";abcdef", 10000), KVW_EPROTO);
	ck_assert_ptr_nonnull(strstr(body.error, "extension is too long"));
	kvw_body_begin(&body, KVW_FRAME_CHUNKED, 0, 0);
	ck_assert_int_eq(
		feed_repeated(&body, "1;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\nx\r\n", 100000),
		KVW_EPROTO);
	ck_assert_ptr_nonnull(strstr(body.error, "more chunk extensions than payload"));
	kvw_body_begin(&body, KVW_FRAME_CHUNKED, 0, 0); /* a signature per chunk, as AWS has it */
	ck_assert_int_eq(
		feed_repeated(&body, "10;s=0123\r\n0123456789abcdef\r\n", 1000000), KVW_OK);
	kvw_body_begin(&body, KVW_FRAME_CHUNKED, 0, 0);
	ck_assert_int_eq(feed_repeated(&body, "0\r\n", 3), KVW_OK);
	ck_assert_int_eq(feed_repeated(&body, "a: 0123456789\r\n", 100000), KVW_EPROTO);
	ck_assert_ptr_nonnull(strstr(body.error, "trailers are too large"));
	kvw_body_begin(&body, KVW_FRAME_CHUNKED, 0, 0);
	ck_assert_int_eq(feed_repeated(&body, "0\r\na:", 5), KVW_OK);
	ck_assert_int_eq(feed_repeated(&body, "0123456789", 5000), KVW_EPROTO);
}
END_TEST

/* Of all byte values only those of the grammar pass in a size line and in trailers. */
START_TEST(every_byte_is_judged)
{
	for (int c = 0; c < 256; c++) {
		char size[] = "1?\r\n", quoted[] = "1;a=\"?\"\r\n", value[] = "0\r\na: ?b\r\n\r\n";
		bool digit = c >= '0' && c <= '9';
		bool hex = digit || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f' && c < 128);
		struct kvw_body body;
		size_t used;

		size[1] = quoted[5] = value[6] = (char)c;
		kvw_body_begin(&body, KVW_FRAME_CHUNKED, 0, 0);
		ck_assert_int_eq(kvw_body_feed(&body, size, 4, NULL, NULL, &used) == KVW_OK, hex);
		if (hex)
			ck_assert_uint_eq(body.left,
				16 + (unsigned)(digit ? c - '0' : (c | 0x20) - 'a' + 10));
		kvw_body_begin(&body, KVW_FRAME_CHUNKED, 0, 0);
		ck_assert_int_eq(kvw_body_feed(&body, quoted, 9, NULL, NULL, &used) == KVW_OK,
			(c >= 0x20 && c < 0x7f && c != '"' && c != '\\') || c == '\t');
		kvw_body_begin(&body, KVW_FRAME_CHUNKED, 0, 0);
		ck_assert_int_eq(kvw_body_feed(&body, value, 12, NULL, NULL, &used) == KVW_OK,
			(c >= 0x20 && c != 0x7f) || c == '\t');
	}
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("all");

	tcase_add_loop_test(
		tcase, good_chunked_body_at_every_split, 0, sizeof(goods) / sizeof(goods[0]));
	tcase_add_loop_test(tcase, body_is_not_done_early, 0, sizeof(goods) / sizeof(goods[0]));
	tcase_add_loop_test(
		tcase, bad_chunked_body_at_every_split, 0, sizeof(bads) / sizeof(bads[0]));
	tcase_add_test(tcase, length);
	tcase_add_test(tcase, bodies_without_bytes_are_done_at_once);
	tcase_add_test(tcase, body_until_close);
	tcase_add_test(tcase, a_close_inside_is_no_end);
	tcase_add_test(tcase, limits);
	tcase_add_test(tcase, framing_cannot_grow_without_bound);
	tcase_add_test(tcase, every_byte_is_judged);
	return run_tcase("body", tcase);
}
