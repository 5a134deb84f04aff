/*
 * write_test.c - what goes on: heads to workers and clients, chunk lines, dates.
 */
#include "head_testing.h"
#include "http/write.h"
#include "tests/unit/suite.h"

static struct kvw_head head;
static char *kept, memory[4096];
static struct kvw_writer out;

static void setup(void)
{
	kept = NULL;
	out = KVW_WRITER(memory, sizeof(memory));
	ck_assert_int_eq(kvw_head_init(&head, 64), KVW_OK);
}

static void teardown(void)
{
	free(kept);
	kvw_head_finish(&head);
}

static void check_written(const char *expected)
{
	ck_assert(!out.overflow);
	check_slice((struct kvw_slice){out.data, out.len}, expected);
}

/* Writes the request on and compares. */
static void check_request(
	const char *text, const struct kvw_request_head_options *o, const char *expected)
{
	struct kvw_head_error error = {0};
	enum kvw_err err = parse_copy(&head, kvw_slice_of(text), false, false, &error, &kept);

	ck_assert_msg(err == KVW_OK, "%s: %s", text, error.message);
	out.len = 0;
	ck_assert_uint_eq(kvw_head_write_request(&out, &head, o), strlen(expected));
	check_written(expected);
	ck_assert_uint_le(out.len, kvw_head_request_bound(&head, o));
}

static void check_response(const char *text, bool to_head,
	const struct kvw_response_head_options *o, const char *expected)
{
	struct kvw_head_error error = {0};
	enum kvw_err err = parse_copy(&head, kvw_slice_of(text), true, to_head, &error, &kept);

	ck_assert_msg(err == KVW_OK, "%s: %s", text, error.message);
	out.len = 0;
	ck_assert_uint_eq(kvw_head_write_response(&out, &head, o), strlen(expected));
	check_written(expected);
	ck_assert_uint_le(out.len, kvw_head_response_bound(&head, o));
}

START_TEST(numbers)
{
	kvw_write_u64(&out, 0);
	kvw_write_literal(&out, " ");
	kvw_write_u64(&out, UINT64_MAX);
	kvw_write_literal(&out, " ");
	kvw_write_hex(&out, 0);
	kvw_write_literal(&out, " ");
	kvw_write_hex(&out, UINT64_MAX);
	kvw_write_literal(&out, " ");
	kvw_chunk_line(&out, 250);
	check_written("0 18446744073709551615 0 ffffffffffffffff fa\r\n");
}
END_TEST

START_TEST(lines)
{
	kvw_status_line(&out, 503);
	kvw_write_field(&out, KVW_SLICE("A"), KVW_SLICE("b c"));
	kvw_write(&out, (struct kvw_slice){NULL, 0});
	check_written("HTTP/1.1 503 Service Unavailable\r\nA: b c\r\n");
}
END_TEST

START_TEST(overflow_is_noticed_and_nothing_is_written_past_the_end)
{
	char small[9] = "12345678";
	struct kvw_writer w = KVW_WRITER(small, 4);

	kvw_write_literal(&w, "abcd");
	ck_assert(!w.overflow);
	kvw_write_literal(&w, "e");
	ck_assert(w.overflow);
	ck_assert_uint_eq(w.len, 4);
	ck_assert_str_eq(small, "abcd5678");
}
END_TEST

START_TEST(dates)
{
	static const struct {
		int64_t second;
		const char *text;
	} cases[] = {
		{784111777, "Sun, 06 Nov 1994 08:49:37 GMT"},
		{0, "Thu, 01 Jan 1970 00:00:00 GMT"},
		{951782400, "Tue, 29 Feb 2000 00:00:00 GMT"},
		{1767225599, "Wed, 31 Dec 2025 23:59:59 GMT"},
		{INT64_C(4102444800), "Fri, 01 Jan 2100 00:00:00 GMT"},
	};
	struct kvw_date_cache cache = {0};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		check_slice(kvw_date(&cache, cases[i].second * 1000000000), cases[i].text);
		check_slice(
			kvw_date(&cache, cases[i].second * 1000000000 + 999999999), cases[i].text);
	}
}
END_TEST

START_TEST(request_keeps_fields_byte_for_byte)
{
	struct kvw_request_head_options o = {
		.prefix = KVW_SLICE("/base"),
		.authority = KVW_SLICE("10.0.0.1:8000"),
		.framing = KVW_FRAME_LENGTH,
		.content_length = 42,
	};

	check_request(
		"POST /v1/x?y HTTP/1.1\r\nHost: a\r\nB:1\r\nc: \t 2 \r\nConnection: close, hop\r\n"
		"D:\r\nHop: 1\r\nKeep-Alive: 5\r\nE: \xff\r\nContent-Length: 00042\r\nF: 6\r\n"
		"Expect: 100-continue\r\nTrailer: x\r\n\r\n",
		&o,
		"POST /base/v1/x?y HTTP/1.1\r\nHost: 10.0.0.1:8000\r\nB:1\r\nc: \t 2 \r\nD:\r\n"
		"E: \xff\r\nF: 6\r\nContent-Length: 42\r\n\r\n");
}
END_TEST

START_TEST(request_without_options_keeps_host)
{
	struct kvw_request_head_options o = {.framing = KVW_FRAME_NONE};

	check_request("GET / HTTP/1.1\r\nA: b\r\nHost: me:80\r\n\r\n", &o,
		"GET / HTTP/1.1\r\nHost: me:80\r\nA: b\r\n\r\n");
	check_request("GET http://you/x HTTP/1.1\r\nHost: me\r\n\r\n", &o,
		"GET /x HTTP/1.1\r\nHost: you\r\n\r\n");
	check_request("GET / HTTP/1.0\r\n\r\n", &o, "GET / HTTP/1.1\r\nHost: \r\n\r\n");
	o.prefix = KVW_SLICE("/base");
	check_request("OPTIONS * HTTP/1.1\r\nHost: me\r\n\r\n", &o,
		"OPTIONS * HTTP/1.1\r\nHost: me\r\n\r\n");
}
END_TEST

START_TEST(request_framing_is_written_again)
{
	struct kvw_request_head_options o = {.framing = KVW_FRAME_CHUNKED};

	check_request("POST / HTTP/1.1\r\nHost: a\r\ntransfer-encoding: Chunked\r\nTrailer: x\r\n"
		      "TE: trailers, deflate\r\n\r\n",
		&o,
		"POST / HTTP/1.1\r\nHost: a\r\nTrailer: x\r\nTE: trailers\r\nConnection: TE\r\n"
		"Transfer-Encoding: chunked\r\n\r\n");
	o = (struct kvw_request_head_options){.framing = KVW_FRAME_LENGTH, .content_length = 0};
	check_request(
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: x\r\n\r\n",
		&o, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
}
END_TEST

START_TEST(request_id_is_kept_or_added)
{
	struct kvw_request_head_options o = {
		.request_id = KVW_SLICE("new"), .framing = KVW_FRAME_NONE};

	check_request("GET / HTTP/1.1\r\nHost: a\r\nx-request-id: old\r\n\r\n", &o,
		"GET / HTTP/1.1\r\nHost: a\r\nx-request-id: old\r\n\r\n");
	check_request("GET / HTTP/1.1\r\nHost: a\r\n\r\n", &o,
		"GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: new\r\n\r\n");
}
END_TEST

START_TEST(forwarding_fields_are_added)
{
	struct kvw_request_head_options o = {
		.authority = KVW_SLICE("w:1"),
		.client = KVW_SLICE("192.0.2.1"),
		.x_forwarded = true,
		.forwarded = true,
		.framing = KVW_FRAME_NONE,
	};

	check_request("GET / HTTP/1.1\r\nHost: a:8080\r\n\r\n", &o,
		"GET / HTTP/1.1\r\nHost: w:1\r\nX-Forwarded-For: 192.0.2.1\r\n"
		"X-Forwarded-Proto: http\r\nX-Forwarded-Host: a:8080\r\n"
		"Forwarded: for=192.0.2.1;proto=http;host=\"a:8080\"\r\n\r\n");
	o.client = KVW_SLICE("fe80::1%eth0");
	o.https = true;
	o.authority = KVW_SLICE("");
	check_request("GET / HTTP/1.1\r\nHost: a\r\n\r\n", &o,
		"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: fe80::1\r\n"
		"X-Forwarded-Proto: https\r\nForwarded: for=\"[fe80::1]\";proto=https\r\n\r\n");
	o.client = KVW_SLICE("unix:");
	o.x_forwarded = false;
	check_request("GET / HTTP/1.1\r\nHost: a\r\n\r\n", &o,
		"GET / HTTP/1.1\r\nHost: a\r\nForwarded: for=unknown;proto=https\r\n\r\n");
	o.forwarded = false;
	check_request("GET / HTTP/1.1\r\nHost: a\r\nForwarded: for=x\r\n\r\n", &o,
		"GET / HTTP/1.1\r\nHost: a\r\nForwarded: for=x\r\n\r\n");
}
END_TEST

START_TEST(forwarding_fields_continue_the_last_one)
{
	struct kvw_request_head_options o = {
		.client = KVW_SLICE("::1"),
		.x_forwarded = true,
		.forwarded = true,
		.framing = KVW_FRAME_NONE,
	};

	check_request("GET / HTTP/1.1\r\nA: 1\r\nX-Forwarded-For: 1.1.1.1\r\nB: 2\r\n"
		      "x-forwarded-for:2.2.2.2, 3.3.3.3 \r\nHost: a\r\nForwarded: for=4\r\n"
		      "X-Forwarded-Proto: https\r\nC: 3\r\n\r\n",
		&o,
		"GET / HTTP/1.1\r\nHost: a\r\nA: 1\r\nX-Forwarded-For: 1.1.1.1\r\nB: 2\r\n"
		"x-forwarded-for:2.2.2.2, 3.3.3.3, ::1\r\n"
		"Forwarded: for=4, for=\"[::1]\";proto=http\r\nX-Forwarded-Proto: https\r\nC: "
		"3\r\n\r\n");
	check_request("GET / HTTP/1.1\r\nHost: a\r\nForwarded:\r\nX-Forwarded-For: \r\n"
		      "X-Forwarded-Proto: x\r\n\r\n",
		&o,
		"GET / HTTP/1.1\r\nHost: a\r\nForwarded:for=\"[::1]\";proto=http\r\n"
		"X-Forwarded-For: ::1\r\nX-Forwarded-Proto: x\r\n\r\n");
	o.client.len = 0;
	o.forwarded = false;
	check_request("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.1.1.1\r\n\r\n", &o,
		"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.1.1.1\r\n"
		"X-Forwarded-Proto: http\r\n\r\n");
}
END_TEST

START_TEST(extra_fields_come_before_the_framing)
{
	struct kvw_request_head_options o = {.extra = KVW_SLICE("Via: 1.1 kvway\r\n"),
		.framing = KVW_FRAME_LENGTH,
		.content_length = 1};

	check_request("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n", &o,
		"POST / HTTP/1.1\r\nHost: a\r\nVia: 1.1 kvway\r\nContent-Length: 1\r\n\r\n");
}
END_TEST

START_TEST(response_keeps_fields_byte_for_byte)
{
	struct kvw_response_head_options o = {
		.framing = KVW_FRAME_CHUNKED,
		.connection = KVW_CONNECTION_CLOSE,
		.request_id = KVW_SLICE("r"),
		.extra = KVW_SLICE("x-kvway-worker: 1\r\n"),
	};

	check_response(
		"HTTP/1.0 200 Fine by me\r\ndate: now\r\nSet-Cookie:a=b\r\nset-cookie: c \r\n"
		"Connection: keep-alive, x\r\nX: 1\r\nTrailer: y\r\nContent-Length: 7\r\n\r\n",
		false, &o,
		"HTTP/1.1 200 Fine by me\r\ndate: now\r\nSet-Cookie:a=b\r\nset-cookie: c \r\n"
		"Trailer: y\r\nX-Request-Id: r\r\nx-kvway-worker: 1\r\n"
		"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
}
END_TEST

START_TEST(response_framing)
{
	static const char with_length[] =
		"HTTP/1.1 %s\r\nA: b\r\nContent-Length: 07\r\nTrailer: t\r\n\r\n";
	struct kvw_response_head_options o = {.framing = KVW_FRAME_NONE};
	char text[128];

	snprintf(text, sizeof(text), with_length, "200 OK");
	check_response(text, true, &o, "HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 07\r\n\r\n");
	snprintf(text, sizeof(text), with_length, "304 Not Modified");
	check_response(
		text, false, &o, "HTTP/1.1 304 Not Modified\r\nA: b\r\nContent-Length: 07\r\n\r\n");
	snprintf(text, sizeof(text), with_length, "204 Nothing");
	check_response(text, false, &o, "HTTP/1.1 204 Nothing\r\nA: b\r\n\r\n");
	check_response(
		"HTTP/1.1 103\r\nLink: x\r\n\r\n", false, &o, "HTTP/1.1 103 \r\nLink: x\r\n\r\n");
	o.framing = KVW_FRAME_LENGTH;
	o.content_length = 7;
	snprintf(text, sizeof(text), with_length, "200 OK");
	check_response(text, false, &o, "HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 7\r\n\r\n");
	o.framing = KVW_FRAME_CLOSE; /* chunked from the worker, HTTP/1.0 towards the client */
	o.connection = KVW_CONNECTION_CLOSE;
	check_response("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nA: b\r\n\r\n", false, &o,
		"HTTP/1.1 200 OK\r\nA: b\r\nConnection: close\r\n\r\n");
	o.framing = KVW_FRAME_LENGTH;
	o.content_length = 1;
	o.connection = KVW_CONNECTION_KEEP_ALIVE;
	o.date = KVW_SLICE("today");
	check_response("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nX-Request-ID: w\r\n\r\n", false, &o,
		"HTTP/1.1 200 OK\r\nX-Request-ID: w\r\nDate: today\r\nContent-Length: 1\r\n"
		"Connection: keep-alive\r\n\r\n");
}
END_TEST

/* With one byte less than needed the head is not written, whatever the last byte belongs to. */
START_TEST(head_that_does_not_fit_is_reported)
{
	static const char text[] =
		"POST / HTTP/1.1\r\nHost: a\r\nA: b\r\nContent-Length: 1\r\n\r\n";
	struct kvw_request_head_options o = {
		.client = KVW_SLICE("192.0.2.1"),
		.x_forwarded = true,
		.framing = KVW_FRAME_LENGTH,
		.content_length = 1,
	};
	struct kvw_head_error error;
	size_t need;

	ck_assert_int_eq(kvw_head_parse_request(&head, text, sizeof(text) - 1, &error), KVW_OK);
	need = kvw_head_write_request(&out, &head, &o);
	ck_assert_uint_gt(need, 0);
	for (size_t room = 0; room <= need; room++) {
		struct kvw_writer w = {.data = malloc(room + 1), .size = room};

		ck_assert_ptr_nonnull(w.data);
		ck_assert_uint_eq(kvw_head_write_request(&w, &head, &o), room == need ? need : 0);
		ck_assert_int_eq(w.overflow, room < need);
		free(w.data);
	}
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("all");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, numbers);
	tcase_add_test(tcase, lines);
	tcase_add_test(tcase, overflow_is_noticed_and_nothing_is_written_past_the_end);
	tcase_add_test(tcase, dates);
	tcase_add_test(tcase, request_keeps_fields_byte_for_byte);
	tcase_add_test(tcase, request_without_options_keeps_host);
	tcase_add_test(tcase, request_framing_is_written_again);
	tcase_add_test(tcase, request_id_is_kept_or_added);
	tcase_add_test(tcase, forwarding_fields_are_added);
	tcase_add_test(tcase, forwarding_fields_continue_the_last_one);
	tcase_add_test(tcase, extra_fields_come_before_the_framing);
	tcase_add_test(tcase, response_keeps_fields_byte_for_byte);
	tcase_add_test(tcase, response_framing);
	tcase_add_test(tcase, head_that_does_not_fit_is_reported);
	return run_tcase("write", tcase);
}
