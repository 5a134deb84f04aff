/*
 * head_refuse_test.c - heads that two servers could read differently are refused, each with its
 * status and a message that says what was wrong.
 */
#include "head_testing.h"
#include "tests/unit/suite.h"

/* One head that must be refused. */
struct refusal {
	struct kvw_slice text;
	int status;
	const char *message; /* part of it */
};

#define HEAD(text)   KVW_SLICE(text)
#define GET_(fields) KVW_SLICE("GET / HTTP/1.1\r\nHost: a\r\n" fields "\r\n")
#define POST(fields) KVW_SLICE("POST / HTTP/1.1\r\nHost: a\r\n" fields "\r\n")

#define X10 "xxxxxxxxxx"

/* clang-format off */
static const struct refusal requests[] = {
	/* length and coding */
	{POST("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), 400, "Content-Length and Transfer-Encoding"},
	{POST("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n"), 400, "Content-Length and Transfer-Encoding"},
	{POST("Content-Length: 5\r\nContent-Length: 6\r\n"), 400, "Content-Length is given more than once"},
	{POST("Content-Length: 5\r\ncontent-length: 5\r\n"), 400, "Content-Length is given more than once"},
	{POST("Content-Length: 5, 5\r\n"), 400, "not one decimal number"},
	{POST("Content-Length: 5,6\r\n"), 400, "not one decimal number"},
	{POST("Content-Length:\r\n"), 400, "Content-Length is empty"},
	{POST("Content-Length: \t \r\n"), 400, "Content-Length is empty"},
	{POST("Content-Length: +5\r\n"), 400, "not one decimal number"},
	{POST("Content-Length: -5\r\n"), 400, "not one decimal number"},
	{POST("Content-Length: 0x5\r\n"), 400, "not one decimal number"},
	{POST("Content-Length: 5 5\r\n"), 400, "not one decimal number"},
	{POST("Content-Length: 5.0\r\n"), 400, "not one decimal number"},
	{POST("Content-Length: 18446744073709551621\r\n"), 400, "more than 18 digits"},
	{POST("Content-Length: 9999999999999999999999999\r\n"), 400, "more than 18 digits"},
	{POST("Transfer-Encoding: gzip\r\n"), 400, "last Transfer-Encoding is not chunked"},
	{POST("Transfer-Encoding: identity\r\n"), 400, "last Transfer-Encoding is not chunked"},
	{POST("Transfer-Encoding: chunked, gzip\r\n"), 400, "last Transfer-Encoding is not chunked"},
	{POST("Transfer-Encoding: xchunked\r\n"), 400, "last Transfer-Encoding is not chunked"},
	{POST("Transfer-Encoding: gzip, chunked\r\n"), 501, "other than chunked"},
	{POST("Transfer-Encoding: chunked, chunked\r\n"), 400, "applied twice"},
	{POST("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400, "Transfer-Encoding is given more"},
	{POST("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"), 400, "Transfer-Encoding is given more"},
	{POST("Transfer-Encoding:\r\n"), 400, "list of plain codings"},
	{POST("Transfer-Encoding: chunked,\r\n"), 400, "list of plain codings"},
	{POST("Transfer-Encoding: , chunked\r\n"), 400, "list of plain codings"},
	{POST("Transfer-Encoding: chunked;q=1\r\n"), 400, "list of plain codings"},
	{POST("Transfer-Encoding: \"chunked\"\r\n"), 400, "list of plain codings"},
	{POST("Transfer-Encoding: \x0b" "chunked\r\n"), 400, "control character"},
	{POST("Transfer-Encoding: chunked\x0c\r\n"), 400, "control character"},
	/* good by the grammar, but not read alike by all */
	{POST("Transfer-Encoding: chunked\t\r\n"), 400, "tab behind Transfer-Encoding"},
	{POST("Transfer-Encoding: chunked \t\r\n"), 400, "tab behind Transfer-Encoding"},
	{POST("Content-Length: 5\t\r\n"), 400, "tab behind Content-Length"},
	{HEAD("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"), 400, "HTTP/1.0"},
	/* line ends and control bytes */
	{HEAD("GET / HTTP/1.1\nHost: a\r\n\r\n"), 400, "LF without CR"},
	{HEAD("GET / HTTP/1.1\r\nHost: a\n\r\n"), 400, "LF without CR"},
	{HEAD("GET / HTTP/1.1\r\nHost: a\r\n\n"), 400, "LF without CR"},
	{HEAD("GET / HTTP/1.1\nHost: a\n\n"), 400, "LF without CR"},
	{HEAD("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "request line"},
	{GET_("A: b\rC: d\r\n"), 400, "CR without LF"},
	{GET_("A: b\r\r\n"), 400, "CR without LF"},
	{GET_("A:\r b\r\n"), 400, "CR without LF"},
	{GET_("\rA: b\r\n"), 400, "CR without LF"},
	{HEAD("GET / HTTP/1.1\rHost: a\r\n\r\n"), 400, "CR without LF"},
	{GET_("A: b\0c\r\n"), 400, "NUL"},
	{GET_("A\0: b\r\n"), 400, "NUL"},
	{GET_("A: b\x01\r\n"), 400, "control character"},
	{GET_("A: b\x7f\r\n"), 400, "control character"},
	{GET_("A: " X10 X10 X10 "\x1f" X10 X10 "\r\n"), 400, "control character"},
	/* field lines */
	{GET_("A: b\r\n c\r\n"), 400, "folded"},
	{GET_("A: b\r\n\tc: d\r\n"), 400, "folded"},
	{HEAD("GET / HTTP/1.1\r\n Host: a\r\n\r\n"), 400, "folded"},
	{GET_("A : b\r\n"), 400, "blank between a field name and its colon"},
	{GET_("Content-Length\t: 5\r\n"), 400, "blank between a field name and its colon"},
	{GET_("A b: c\r\n"), 400, "byte not allowed in a field name"},
	{GET_("A(b: c\r\n"), 400, "byte not allowed in a field name"},
	{GET_("A\x80: c\r\n"), 400, "byte not allowed in a field name"},
	{GET_("A\xc3\xa4: c\r\n"), 400, "byte not allowed in a field name"},
	{GET_("A\x01: c\r\n"), 400, "byte not allowed in a field name"},
	{GET_(": c\r\n"), 400, "without a name"},
	{GET_("A\r\n"), 400, "without a colon"},
	/* Host */
	{HEAD("GET / HTTP/1.1\r\n\r\n"), 400, "without Host"},
	{HEAD("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"), 400, "Host is given more than once"},
	{HEAD("GET / HTTP/1.1\r\nHost: a\r\nhOST: b\r\n\r\n"), 400, "Host is given more than once"},
	{HEAD("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n"), 400, "Host is not a valid"},
	{HEAD("GET / HTTP/1.1\r\nHost: a,b\r\n\r\n"), 400, "Host is not a valid"},
	{HEAD("GET / HTTP/1.1\r\nHost: a b\r\n\r\n"), 400, "Host is not a valid"},
	{HEAD("GET / HTTP/1.1\r\nHost: user@a\r\n\r\n"), 400, "Host is not a valid"},
	{HEAD("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"), 400, "Host is not a valid"},
	{HEAD("GET / HTTP/1.1\r\nHost: a:80x\r\n\r\n"), 400, "Host is not a valid"},
	{HEAD("GET / HTTP/1.1\r\nHost: a:123456\r\n\r\n"), 400, "Host is not a valid"},
	{HEAD("GET / HTTP/1.1\r\nHost: :80\r\n\r\n"), 400, "Host is not a valid"},
	{HEAD("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n"), 400, "Host is not a valid"},
	{HEAD("GET / HTTP/1.1\r\nHost: []\r\n\r\n"), 400, "Host is not a valid"},
	{HEAD("GET / HTTP/1.1\r\nHost: [::1]a\r\n\r\n"), 400, "Host is not a valid"},
	{HEAD("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n"), 400, "Host is given more than once"},
	{HEAD("GET http://a/ HTTP/1.1\r\n\r\n"), 400, "without Host"},
	/* version */
	{HEAD("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), 505, "neither 1.0 nor 1.1"},
	{HEAD("PRI * HTTP/2.0\r\n\r\n"), 505, "neither 1.0 nor 1.1"},
	{HEAD("GET / HTTP/0.9\r\nHost: a\r\n\r\n"), 505, "neither 1.0 nor 1.1"},
	{HEAD("GET / HTTP/1.2\r\nHost: a\r\n\r\n"), 505, "neither 1.0 nor 1.1"},
	{HEAD("GET / HTTP/3.1\r\nHost: a\r\n\r\n"), 505, "neither 1.0 nor 1.1"},
	{HEAD("GET / HTTP/11\r\nHost: a\r\n\r\n"), 400, "valid HTTP version"},
	{HEAD("GET / http/1.1\r\nHost: a\r\n\r\n"), 400, "valid HTTP version"},
	{HEAD("GET / HTTP/1,1\r\nHost: a\r\n\r\n"), 400, "valid HTTP version"},
	{HEAD("GET / HTTP/01.1\r\nHost: a\r\n\r\n"), 400, "valid HTTP version"},
	{HEAD("GET / ICE/1.0\r\nHost: a\r\n\r\n"), 400, "valid HTTP version"},
	{HEAD("GET / HTTP/1.1 \r\nHost: a\r\n\r\n"), 400, "after the HTTP version"},
	{HEAD("GET / HTTP/1.11\r\nHost: a\r\n\r\n"), 400, "after the HTTP version"},
	{HEAD("GET /\r\nHost: a\r\n\r\n"), 400, "without an HTTP version"},
	{HEAD("GET / \r\nHost: a\r\n\r\n"), 400, "valid HTTP version"},
	/* request line */
	{HEAD("GET\r\nHost: a\r\n\r\n"), 400, "method and a space"},
	{HEAD(" GET / HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "method and a space"},
	{HEAD("GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "method and a space"},
	{HEAD("GET  / HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "without a target"},
	{HEAD("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "valid HTTP version"},
	{HEAD("GET /  HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "valid HTTP version"},
	{HEAD("GET /a\tb HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "percent-encoded"},
	{HEAD("GET /a\0b HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "percent-encoded"},
	{HEAD("GET /a\x7f HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "percent-encoded"},
	{HEAD("GET /\xc3\xa4 HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "percent-encoded"},
	{HEAD("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "fragment"},
	{HEAD("GET a HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "neither a path nor an http URL"},
	{HEAD("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "neither a path nor an http URL"},
	{HEAD("GET a:80 HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "neither a path nor an http URL"},
	{HEAD("GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "no valid host"},
	{HEAD("GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "no valid host"},
	{HEAD("GET http://a?x HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "query but no path"},
	{HEAD("GET * HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "other than OPTIONS"},
	{HEAD("FETCH / HTTP/1.1\r\nHost: a\r\n\r\n"), 501, "unknown method"},
	{HEAD("get / HTTP/1.1\r\nHost: a\r\n\r\n"), 501, "unknown method"},
	{HEAD("DESCRIBE / HTTP/1.1\r\nHost: a\r\n\r\n"), 501, "unknown method"},
	{HEAD("CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n"), 405, "CONNECT"},
	{HEAD("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n"), 405, "TRACE"},
	/* expectations and connection */
	{POST("Expect: 200-ok\r\nContent-Length: 1\r\n"), 417, "Expect"},
	{POST("Expect: 100-continue, x\r\nContent-Length: 1\r\n"), 417, "Expect"},
	{POST("Expect: 100-continue\r\nExpect: x\r\nContent-Length: 1\r\n"), 417, "Expect"},
	{POST("Expect:\r\nContent-Length: 1\r\n"), 417, "Expect"},
	{POST("Connection: content-length\r\nContent-Length: 1\r\n"), 400, "Connection lists a field"},
	{GET_("Connection: close, HOST\r\n"), 400, "Connection lists a field"},
	{GET_("Connection: Authorization\r\n"), 400, "Connection lists a field"},
	{GET_("Connection: X-Forwarded-For\r\n"), 400, "Connection lists a field"},
	{GET_("Connection: Content-Type\r\n"), 400, "Connection lists a field"},
	{GET_("Connection: close;x\r\n"), 400, "not a list of names"},
	{GET_("Connection: a,b,c,d,e,f,g,h\r\nConnection: i,j,k,l,m,n,o,p,q\r\n"), 400, "too many"},
	/* not one whole head */
	{HEAD(""), 400, "without an empty line"},
	{HEAD("GET / HTTP/1.1\r\nHost: a\r\n"), 400, "without an empty line"},
	{HEAD("GET / HTTP/1.1\r\nHost: a"), 400, "without an empty line"},
	{HEAD("\r\n"), 400, "method"},
	{HEAD("\n"), 400, "method"},
	{HEAD("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "after the empty line"},
};

#define OK_(fields) KVW_SLICE("HTTP/1.1 200 OK\r\n" fields "\r\n")

/* Answers of a worker that must not be passed on. */
static const struct refusal responses[] = {
	{OK_("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), 502, "Content-Length and Transfer-Encoding"},
	{OK_("Content-Length: 5\r\nContent-Length: 6\r\n"), 502, "Content-Length is given more than once"},
	{OK_("Content-Length: 5, 5\r\n"), 502, "not one decimal number"},
	{OK_("Content-Length: -1\r\n"), 502, "not one decimal number"},
	{OK_("Content-Length:\r\n"), 502, "Content-Length is empty"},
	{OK_("Transfer-Encoding: gzip, chunked\r\n"), 502, "other than chunked"},
	{OK_("Transfer-Encoding: gzip\r\n"), 502, "not chunked"},
	{OK_("Transfer-Encoding: chunked, identity\r\n"), 502, "not chunked"},
	{HEAD("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), 502, "HTTP/1.0"},
	{HEAD("HTTP/1.1 100 Continue\r\nContent-Length: 3\r\n\r\n"), 502, "1xx response with a body"},
	{HEAD("HTTP/1.1 103 Early Hints\r\nTransfer-Encoding: chunked\r\n\r\n"), 502, "1xx response with a body"},
	{HEAD("HTTP/2.0 200 OK\r\n\r\n"), 502, "neither 1.0 nor 1.1"},
	{HEAD("HTTP/1.1 99 Low\r\n\r\n"), 502, "valid status"},
	{HEAD("HTTP/1.1 600 High\r\n\r\n"), 502, "valid status"},
	{HEAD("HTTP/1.1 20 OK\r\n\r\n"), 502, "valid status"},
	{HEAD("HTTP/1.1  200 OK\r\n\r\n"), 502, "valid status"},
	{HEAD("HTTP/1.1 2000 OK\r\n\r\n"), 502, "not followed by a space"},
	{HEAD("HTTP/1.1 200 O\x01K\r\n\r\n"), 502, "control character"},
	{HEAD("HTTP/1.1 200 O\rK\r\n\r\n"), 502, "CR without LF"},
	{HEAD("HTTP/1.1 200 OK\n\n"), 502, "LF without CR"},
	{HEAD("HTTP/1.1\r\n\r\n"), 502, "valid status"},
	{HEAD("ICY 200 OK\r\n\r\n"), 502, "valid HTTP version"},
	{HEAD("<html>\r\n\r\n"), 502, "valid HTTP version"},
	{HEAD("\r\n"), 502, "valid HTTP version"},
	{OK_("A: b\r\n folded\r\n"), 502, "folded"},
	{OK_("A : b\r\n"), 502, "colon"},
	{OK_("A: b\0\r\n"), 502, "NUL"},
	{OK_("Connection: content-length\r\nContent-Length: 3\r\n"), 502, "Connection lists a field"},
	{OK_("A: b\r\n\r\nrest\r\n"), 502, "after the empty line"},
};
/* clang-format on */

static void check_refused(const struct refusal *r, bool response)
{
	struct kvw_head_error error = {0};
	struct kvw_head head;
	char *kept = NULL;
	enum kvw_err err;

	ck_assert_int_eq(kvw_head_init(&head, 32), KVW_OK);
	err = parse_copy(&head, r->text, response, false, &error, &kept);
	ck_assert_msg(err == KVW_EPROTO, "accepted: %s", r->text.data);
	ck_assert_msg(error.status == r->status && strstr(error.message, r->message) != NULL,
		"%s: got %d '%s', expected %d '%s'", r->text.data, error.status, error.message,
		r->status, r->message);
	free(kept);
	kvw_head_finish(&head);
}

START_TEST(request_is_refused)
{
	check_refused(&requests[_i], false);
}
END_TEST

START_TEST(response_is_refused)
{
	check_refused(&responses[_i], true);
}
END_TEST

/* The same faults must be found wherever they fall relative to the 16 bytes of a scan. */
START_TEST(control_byte_is_found_at_every_place)
{
	struct kvw_head head;
	char *kept = NULL;

	ck_assert_int_eq(kvw_head_init(&head, 32), KVW_OK);
	for (size_t pad = 0; pad < 70; pad++) {
		for (size_t at = 0; at < pad; at++) {
			struct kvw_head_error error = {0};
			char text[256];
			int len = snprintf(text, sizeof(text),
				"GET / HTTP/1.1\r\nHost: a\r\nX: %.*s\r\n\r\n", (int)pad,
				X10 X10 X10 X10 X10 X10 X10);

			text[28 + at] = '\x02';
			ck_assert_int_eq(parse_copy(&head, (struct kvw_slice){text, (size_t)len},
						 false, false, &error, &kept),
				KVW_EPROTO);
			ck_assert_ptr_nonnull(strstr(error.message, "control character"));
		}
	}
	free(kept);
	kvw_head_finish(&head);
}
END_TEST

/* Of all byte values only those of the grammar pass in names, values and targets. */
START_TEST(every_byte_is_judged)
{
	struct kvw_head head;
	char *kept = NULL;

	ck_assert_int_eq(kvw_head_init(&head, 32), KVW_OK);
	for (int c = 0; c < 256; c++) {
		char value[] = "GET / HTTP/1.1\r\nHost: a\r\nA: b?c\r\n\r\n";
		char name[] = "GET / HTTP/1.1\r\nHost: a\r\nA?c: b\r\n\r\n";
		char target[] = "GET /a?c HTTP/1.1\r\nHost: a\r\n\r\n";
		struct kvw_head_error error;
		bool letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z' && c < 128;
		bool token = c != 0 && (letter || (c >= '0' && c <= '9') ||
					       strchr("!#$%&'*+-.^_`|~", c) != NULL);
		bool visible = c > 0x20 && c < 0x7f;

		value[29] = (char)c;
		name[26] = (char)c;
		target[6] = (char)c;
		ck_assert_int_eq(
			parse_copy(&head, KVW_SLICE(value), false, false, &error, &kept) == KVW_OK,
			visible || c == ' ' || c == '\t' || c >= 0x80);
		ck_assert_int_eq(
			parse_copy(&head, KVW_SLICE(name), false, false, &error, &kept) == KVW_OK,
			token || c == ':');
		ck_assert_int_eq(
			parse_copy(&head, KVW_SLICE(target), false, false, &error, &kept) == KVW_OK,
			visible && c != '#');
	}
	free(kept);
	kvw_head_finish(&head);
}
END_TEST

START_TEST(too_many_fields_are_431)
{
	static const char text[] = "GET / HTTP/1.1\r\nHost: a\r\nA: b\r\nC: d\r\nE: f\r\n\r\n";
	struct kvw_head_error error = {0};
	struct kvw_head head;

	ck_assert_int_eq(kvw_head_init(&head, 4), KVW_OK);
	ck_assert_int_eq(kvw_head_parse_request(&head, text, sizeof(text) - 1, &error), KVW_OK);
	kvw_head_finish(&head);
	ck_assert_int_eq(kvw_head_init(&head, 3), KVW_OK);
	ck_assert_int_eq(kvw_head_parse_request(&head, text, sizeof(text) - 1, &error), KVW_EPROTO);
	ck_assert_int_eq(error.status, 431);
	kvw_head_finish(&head);
}
END_TEST

START_TEST(oversize_is_414_in_the_target_and_431_behind_it)
{
	struct kvw_head_error error = {0};
	struct kvw_head head;
	size_t len = KVW_HEAD_MAX_TARGET + 64;
	char *text = malloc(len);

	ck_assert_ptr_nonnull(text);
	memset(text, 'x', len);
	memcpy(text, "GET /", 5);
	memcpy(text + 4 + KVW_HEAD_MAX_TARGET, " HTTP/1.1\r\nHost: a\r\n\r\n", 22);
	ck_assert_int_eq(kvw_head_init(&head, 4), KVW_OK);
	text[4] = '/';
	ck_assert_int_eq(
		kvw_head_parse_request(&head, text, 4 + KVW_HEAD_MAX_TARGET + 22, &error), KVW_OK);
	memset(text + 4 + KVW_HEAD_MAX_TARGET, 'x', 1);
	memcpy(text + 5 + KVW_HEAD_MAX_TARGET, " HTTP/1.1\r\nHost: a\r\n\r\n", 22);
	ck_assert_int_eq(kvw_head_parse_request(&head, text, 5 + KVW_HEAD_MAX_TARGET + 22, &error),
		KVW_EPROTO);
	ck_assert_int_eq(error.status, 414);
	kvw_head_too_large(text, 100, &error);
	ck_assert_int_eq(error.status, 414);
	kvw_head_too_large("GET / HTTP/1.1\r\nA: b", 20, &error);
	ck_assert_int_eq(error.status, 431);
	kvw_head_finish(&head);
	free(text);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("all");

	tcase_add_loop_test(tcase, request_is_refused, 0, sizeof(requests) / sizeof(requests[0]));
	tcase_add_loop_test(
		tcase, response_is_refused, 0, sizeof(responses) / sizeof(responses[0]));
	tcase_add_test(tcase, control_byte_is_found_at_every_place);
	tcase_add_test(tcase, every_byte_is_judged);
	tcase_add_test(tcase, too_many_fields_are_431);
	tcase_add_test(tcase, oversize_is_414_in_the_target_and_431_behind_it);
	return run_tcase("head_refuse", tcase);
}
