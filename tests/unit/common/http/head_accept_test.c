/*
 * head_accept_test.c - what good heads mean: fields, framing, connection, targets.
 */
#include "head_testing.h"
#include "tests/unit/suite.h"

static struct kvw_head head;
static char *kept;

static void setup(void)
{
	kept = NULL;
	ck_assert_int_eq(kvw_head_init(&head, 64), KVW_OK);
}

static void teardown(void)
{
	free(kept);
	kvw_head_finish(&head);
}

static void request(const char *text)
{
	struct kvw_head_error error = {0};
	enum kvw_err err = parse_copy(&head, kvw_slice_of(text), false, false, &error, &kept);

	ck_assert_msg(err == KVW_OK, "%s: %d %s", text, error.status, error.message);
}

static void response(const char *text, bool to_head)
{
	struct kvw_head_error error = {0};
	enum kvw_err err = parse_copy(&head, kvw_slice_of(text), true, to_head, &error, &kept);

	ck_assert_msg(err == KVW_OK, "%s: %d %s", text, error.status, error.message);
}

#define GET_(fields) "GET / HTTP/1.1\r\nHost: a\r\n" fields "\r\n"
#define POST(fields) "POST / HTTP/1.1\r\nHost: a\r\n" fields "\r\n"

START_TEST(request_is_cut_into_fields)
{
	request("POST /v1/completions?x=1 HTTP/1.1\r\nhOsT: example:8080\r\nEmpty:\r\n"
		"X-Blank: \t a \t b\t \r\nContent-Type: application/json; charset=utf-8\r\n"
		"Content-Length: 00042\r\nX-Text: gr\xc3\xbc\xc3\x9f dich\r\n\r\n");
	check_slice(head.method, "POST");
	ck_assert(head.post_method && !head.get_method && !head.head_method);
	check_slice(head.target, "/v1/completions?x=1");
	check_slice(head.authority, "example:8080");
	ck_assert_uint_eq(head.minor, 1);
	ck_assert_uint_eq(head.field_count, 6);
	check_slice(head.fields[0].name, "hOsT");
	ck_assert_int_eq(head.fields[0].id, KVW_FIELD_HOST);
	check_slice(head.fields[1].value, "");
	check_slice(head.fields[2].value, "a \t b");
	check_slice(head.fields[5].value, "gr\xc3\xbc\xc3\x9f dich");
	ck_assert_int_eq(head.framing, KVW_FRAME_LENGTH);
	ck_assert_uint_eq(head.content_length, 42);
	ck_assert(head.keep_alive && head.json && !head.event_stream && !head.upgrade);
	check_slice(kvw_head_find(&head, KVW_SLICE("X-BLANK"))->value, "a \t b");
	ck_assert_ptr_null(kvw_head_find(&head, KVW_SLICE("X-Blan")));
	ck_assert_ptr_null(kvw_head_field(&head, KVW_FIELD_EXPECT));
}
END_TEST

/* Every id is found under its name in any case, and under no longer or shorter one. */
START_TEST(field_ids)
{
	static const struct {
		const char *name;
		enum kvw_field_id id;
	} known[] = {
		{"Date", KVW_FIELD_DATE},
		{"TE", KVW_FIELD_TE},
		{"Trailer", KVW_FIELD_TRAILER},
		{"Upgrade", KVW_FIELD_UPGRADE},
		{"Cookie", KVW_FIELD_COOKIE},
		{"Forwarded", KVW_FIELD_FORWARDED},
		{"Connection", KVW_FIELD_CONNECTION},
		{"Keep-Alive", KVW_FIELD_KEEP_ALIVE},
		{"Content-Type", KVW_FIELD_CONTENT_TYPE},
		{"X-Request-Id", KVW_FIELD_X_REQUEST_ID},
		{"X-Forwarded-For", KVW_FIELD_X_FORWARDED_FOR},
		{"X-Forwarded-Host", KVW_FIELD_X_FORWARDED_HOST},
		{"X-Forwarded-Proto", KVW_FIELD_X_FORWARDED_PROTO},
		{"Proxy-Connection", KVW_FIELD_PROXY_CONNECTION},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		for (int form = 0; form < 5; form++) {
			char name[64], text[160];

			snprintf(name, sizeof(name), "%s%s", known[i].name, form == 3 ? "x" : "");
			for (char *p = name; *p != '\0'; p++) {
				if (*p >= 'a' && *p <= 'z' && form == 1)
					*p = (char)(*p - 'a' + 'A');
				if (*p >= 'A' && *p <= 'Z' && form == 2)
					*p = (char)(*p - 'A' + 'a');
			}
			if (form == 4)
				name[strlen(name) - 1] ^= 0x03; /* another letter */
			snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: a\r\n%s: x\r\n\r\n",
				name);
			request(text);
			ck_assert_msg(
				head.fields[1].id == (form < 3 ? known[i].id : KVW_FIELD_OTHER),
				"%s is taken for %d", name, head.fields[1].id);
		}
	}
}
END_TEST

START_TEST(request_framing)
{
	request(GET_(""));
	ck_assert_int_eq(head.framing, KVW_FRAME_NONE);
	request(POST(""));
	ck_assert_int_eq(head.framing, KVW_FRAME_NONE);
	request(POST("Content-Length: 0\r\n"));
	ck_assert_int_eq(head.framing, KVW_FRAME_LENGTH);
	ck_assert_uint_eq(head.content_length, 0);
	request(POST("Content-Length: 999999999999999999\r\n"));
	ck_assert_uint_eq(head.content_length, UINT64_C(999999999999999999));
	request(POST("Transfer-Encoding: chunked\r\n"));
	ck_assert_int_eq(head.framing, KVW_FRAME_CHUNKED);
	request(POST("transfer-encoding:\tCHUNKED  \r\n"));
	ck_assert_int_eq(head.framing, KVW_FRAME_CHUNKED);
	ck_assert_uint_eq(head.content_length, 0);
	request(GET_("Content-Length: 3\r\n"));
	ck_assert_int_eq(head.framing, KVW_FRAME_LENGTH);
}
END_TEST

START_TEST(keep_alive)
{
	request(GET_("Connection: close\r\n"));
	ck_assert(!head.keep_alive);
	request(GET_("Connection: Keep-Alive, CLOSE\r\n"));
	ck_assert(!head.keep_alive);
	request(GET_("Connection: x\r\nConnection: , close ,\r\n"));
	ck_assert(!head.keep_alive);
	request(GET_("Connection: closed\r\n"));
	ck_assert(head.keep_alive);
	request("GET / HTTP/1.0\r\n\r\n");
	ck_assert(!head.keep_alive);
	ck_assert_uint_eq(head.minor, 0);
	ck_assert_uint_eq(head.authority.len, 0);
	request("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
	ck_assert(head.keep_alive);
	request("GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n");
	ck_assert(!head.keep_alive);
	request("POST / HTTP/1.0\r\nContent-Length: 3\r\n\r\n");
	ck_assert_int_eq(head.framing, KVW_FRAME_LENGTH);
}
END_TEST

START_TEST(targets)
{
	static const struct {
		const char *line, *target, *authority;
	} cases[] = {
		{"GET http://b:1/x?y", "/x?y", "b:1"},
		{"GET HTTP://b/", "/", "b"},
		{"GET https://b", "/", "b"},
		{"GET http://[2001:db8::1]:80/z", "/z", "[2001:db8::1]:80"},
		{"OPTIONS http://b", "*", "b"},
		{"OPTIONS http://b/", "/", "b"},
		{"OPTIONS *", "*", "a"},
		{"OPTIONS /x", "/x", "a"},
		{"GET //x", "//x", "a"},
		{"GET /x?http://b/", "/x?http://b/", "a"},
		{"DELETE /%00%0d%0a", "/%00%0d%0a", "a"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[160];

		snprintf(text, sizeof(text), "%s HTTP/1.1\r\nHost: a\r\n\r\n", cases[i].line);
		request(text);
		check_slice(head.target, cases[i].target);
		check_slice(head.authority, cases[i].authority);
	}
}
END_TEST

START_TEST(hosts)
{
	static const char *const valid[] = {"", "a", "a.b-c_d~e", "127.0.0.1:8080", "[::1]",
		"[::ffff:192.0.2.1]:65535", "a:", "xn--bcher-kva.example", "%61"};

	for (size_t i = 0; i < sizeof(valid) / sizeof(valid[0]); i++) {
		char text[128];

		snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", valid[i]);
		request(text);
		check_slice(head.authority, valid[i]);
	}
}
END_TEST

/* Every method of the HTTP registry that llhttp knows. */
START_TEST(methods)
{
	static const char *const known[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "COPY",
		"LOCK", "MKCOL", "MOVE", "PROPFIND", "PROPPATCH", "SEARCH", "UNLOCK", "BIND",
		"REBIND", "UNBIND", "ACL", "REPORT", "MKACTIVITY", "CHECKOUT", "MERGE", "M-SEARCH",
		"NOTIFY", "SUBSCRIBE", "UNSUBSCRIBE", "PURGE", "MKCALENDAR", "LINK", "UNLINK"};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		char text[128];

		snprintf(text, sizeof(text), "%s / HTTP/1.1\r\nHost: a\r\n\r\n", known[i]);
		request(text);
		check_slice(head.method, known[i]);
		ck_assert_int_eq(head.head_method, strcmp(known[i], "HEAD") == 0);
	}
}
END_TEST

START_TEST(hop_by_hop_marks)
{
	static const char *const names[] = {"x-late", "X-Other", "Keep-Alive", "Proxy-Connection",
		"TE", "Upgrade", "Connection", "X-Early", "Trailer", "HTTP2-Settings"};
	static const bool marks[] = {true, false, true, true, true, true, true, true, false, true};

	request(GET_(
		"x-late: 1\r\nX-Other: 1\r\nKeep-Alive: timeout=5\r\nProxy-Connection: x\r\n"
		"TE: deflate;q=0.5, trailers\r\nUpgrade: h2c\r\n"
		"Connection: Upgrade, X-Late, x-EARLY, te, Transfer-Encoding, http2-settings\r\n"
		"X-Early: 1\r\nTrailer: x-sum\r\nHTTP2-Settings: AAMA\r\n"));
	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
		const struct kvw_field *field = kvw_head_find(&head, kvw_slice_of(names[i]));

		ck_assert_msg(field->hop_by_hop == marks[i], "%s", names[i]);
	}
	ck_assert(head.keep_alive);
	ck_assert(head.te_trailers);
	request(GET_("TE: gzip\r\n"));
	ck_assert(!head.te_trailers);
}
END_TEST

/* Java's HttpClient offers h2c with every plain request; that is no reason to refuse it. */
START_TEST(only_websocket_is_an_upgrade)
{
	request(GET_(
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: A\r\n"));
	ck_assert(!head.upgrade);
	request(GET_("Connection: keep-alive, Upgrade\r\nUpgrade: h2c, WebSocket\r\n"));
	ck_assert(head.upgrade);
	request(GET_("Upgrade: websocket\r\n"));
	ck_assert(!head.upgrade);
	request(GET_("Connection: upgrade\r\n"));
	ck_assert(!head.upgrade);
}
END_TEST

START_TEST(expectation)
{
	request(POST("Expect: 100-Continue\r\nContent-Length: 5\r\n"));
	ck_assert(head.expect_continue);
	request(POST("Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n"));
	ck_assert(head.expect_continue);
	request(POST("Expect: 100-continue\r\nContent-Length: 0\r\n"));
	ck_assert(!head.expect_continue);
	request(GET_("Expect: 100-continue\r\n"));
	ck_assert(!head.expect_continue);
	request("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
	ck_assert(!head.expect_continue);
}
END_TEST

START_TEST(content_types)
{
	request(POST("Content-Length: 5\r\n"));
	ck_assert(head.json);
	request(POST("Content-Type: APPLICATION/json\r\n"));
	ck_assert(head.json);
	request(POST("Content-Type: application/jsonl\r\n"));
	ck_assert(!head.json);
	request(POST("Content-Type: multipart/form-data; boundary=x\r\n"));
	ck_assert(!head.json);
	response("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream;charset=utf-8\r\n\r\n", false);
	ck_assert(head.event_stream && !head.json);
	response("HTTP/1.1 200 OK\r\nContent-Type: text/event-streams\r\n\r\n", false);
	ck_assert(!head.event_stream);
}
END_TEST

START_TEST(cookies)
{
	request(GET_("Cookie: a=1; sid=x y ;b=\"2\"\r\nCookie: sid2=z; a=9;;c=\r\n"));
	check_slice(kvw_head_cookie(&head, KVW_SLICE("a")), "1");
	check_slice(kvw_head_cookie(&head, KVW_SLICE("sid")), "x y");
	check_slice(kvw_head_cookie(&head, KVW_SLICE("sid2")), "z");
	check_slice(kvw_head_cookie(&head, KVW_SLICE("b")), "\"2\"");
	check_slice(kvw_head_cookie(&head, KVW_SLICE("c")), "");
	check_slice(kvw_head_cookie(&head, KVW_SLICE("si")), "");
	check_slice(kvw_head_cookie(&head, KVW_SLICE("SID")), "");
	check_slice(kvw_head_cookie(&head, KVW_SLICE("")), "");
	request(GET_("X: 1\r\n"));
	check_slice(kvw_head_cookie(&head, KVW_SLICE("a")), "");
}
END_TEST

START_TEST(response_start_lines)
{
	response("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", false);
	ck_assert_int_eq(head.status, 200);
	check_slice(head.reason, "OK");
	ck_assert(head.keep_alive);
	response("HTTP/1.1 404 \r\nContent-Length: 2\r\n\r\n", false);
	check_slice(head.reason, "");
	response("HTTP/1.1 404\r\nContent-Length: 2\r\n\r\n", false);
	check_slice(head.reason, "");
	response("HTTP/1.0 599 Sch\xc3\xb6n  \r\nContent-Length: 2\r\n\r\n", false);
	ck_assert_int_eq(head.status, 599);
	check_slice(head.reason, "Sch\xc3\xb6n  ");
	ck_assert(!head.keep_alive);
}
END_TEST

START_TEST(response_framing)
{
	static const struct {
		const char *text;
		bool to_head;
		enum kvw_framing framing;
		bool keep_alive;
	} cases[] = {
		{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", false, KVW_FRAME_LENGTH, true},
		{"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false, KVW_FRAME_LENGTH, true},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false, KVW_FRAME_CHUNKED,
			true},
		{"HTTP/1.1 200 OK\r\n\r\n", false, KVW_FRAME_CLOSE, false},
		{"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\n", false, KVW_FRAME_CLOSE,
			false},
		{"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\n", false,
			KVW_FRAME_LENGTH, true},
		{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true, KVW_FRAME_NONE, true},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", true, KVW_FRAME_NONE,
			true},
		{"HTTP/1.1 200 OK\r\n\r\n", true, KVW_FRAME_NONE, true},
		{"HTTP/1.1 204 No Content\r\n\r\n", false, KVW_FRAME_NONE, true},
		{"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", false, KVW_FRAME_NONE,
			true},
		{"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", false, KVW_FRAME_NONE,
			false},
		{"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", false,
			KVW_FRAME_NONE, false},
		{"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", false, KVW_FRAME_NONE,
			true},
		{"HTTP/1.1 100 Continue\r\n\r\n", false, KVW_FRAME_NONE, true},
		{"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", false, KVW_FRAME_NONE, true},
		{"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n"
		 "Upgrade: websocket\r\n\r\n",
			false, KVW_FRAME_NONE, true},
		{"HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n", false, KVW_FRAME_LENGTH,
			true},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		response(cases[i].text, cases[i].to_head);
		ck_assert_msg(
			head.framing == cases[i].framing && head.keep_alive == cases[i].keep_alive,
			"%s: framing %d, keep-alive %d", cases[i].text, head.framing,
			head.keep_alive);
	}
}
END_TEST

/* One head object serves message after message: nothing of the former one may show. */
START_TEST(nothing_survives_from_the_message_before)
{
	request("HEAD http://old/x HTTP/1.0\r\nHost: b\r\nConnection: keep-alive, upgrade\r\n"
		"Upgrade: websocket\r\nExpect: 100-continue\r\nContent-Length: 7\r\n\r\n");
	request(GET_(""));
	check_slice(head.authority, "a");
	ck_assert(!head.head_method && !head.upgrade && !head.expect_continue);
	ck_assert_uint_eq(head.content_length, 0);
	ck_assert_uint_eq(head.field_count, 1);
	ck_assert_ptr_null(kvw_head_field(&head, KVW_FIELD_CONTENT_LENGTH));
	response("HTTP/1.1 200 OK\r\n\r\n", false);
	ck_assert_uint_eq(head.method.len + head.target.len + head.authority.len, 0);
}
END_TEST

/* What is remembered of a head must not show in another one that is nearly the same. */
START_TEST(heads_seen_before_are_read_the_same)
{
	static const char *const heads[] = {
		"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\n",
		"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 70\r\n\r\n",
		"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 999999999999999999\r\n\r\n",
		"POST /v1/chat/completions HTTP/1.1\r\nHost: b\r\nContent-Length: 7\r\n\r\n",
		"POST /v1/chat/completions HTTP/1.0\r\nHost: a\r\nContent-Length: 7\r\n\r\n",
		"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\nConnection: close\r\n\r\n",
		"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
		"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nConnection: Close\r\nContent-Length: 1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nProxy-Connection: close\r\n\r\n",
	};
	static const size_t count = sizeof(heads) / sizeof(heads[0]);

	for (size_t i = 0; i < 4 * count; i++) {
		const char *text = heads[i * 7 % count];
		struct kvw_head_error error;
		struct kvw_head fresh;

		ck_assert_int_eq(kvw_head_init(&fresh, 64), KVW_OK);
		ck_assert_int_eq(
			kvw_head_parse_request(&fresh, text, strlen(text), &error), KVW_OK);
		request(text);
		ck_assert_int_eq(head.keep_alive, fresh.keep_alive);
		ck_assert_int_eq(head.framing, fresh.framing);
		ck_assert_int_eq(head.minor, fresh.minor);
		ck_assert_uint_eq(head.content_length, fresh.content_length);
		ck_assert_uint_eq(head.field_count, fresh.field_count);
		check_slice(head.authority, fresh.authority.data[0] == 'a' ? "a" : "b");
		kvw_head_finish(&fresh);
	}
}
END_TEST

START_TEST(init_limits)
{
	struct kvw_head other;

	ck_assert_int_eq(kvw_head_init(&other, 0), KVW_EINVAL);
	ck_assert_int_eq(kvw_head_init(&other, KVW_HEAD_MAX_FIELDS + 1), KVW_EINVAL);
	ck_assert_int_eq(kvw_head_init(&other, KVW_HEAD_MAX_FIELDS), KVW_OK);
	kvw_head_finish(&other);
}
END_TEST

/* The end is found at the same byte whether the head comes whole, split anywhere, or bytewise. */
START_TEST(end_is_found_at_every_split)
{
	static const struct {
		const char *text;
		size_t end;
	} cases[] = {
		{"GET / HTTP/1.1\r\nHost: a\r\n\r\nbody\r\n\r\n", 27},
		{"GET / HTTP/1.1\r\nHost: a\r\nAn: other field of some length\r\n\r\n", 59},
		{"GET / HTTP/1.1\nHost: a\n\nbody", 24},
		{"GET / HTTP/1.1\r\nHost: a\r\n\n", 26},
		{"GET / HTTP/1.1\nHost: a\n\r\nx", 25},
		{"\r\n\r\n", 4},
		{"\n\n", 2},
		{"GET / HTTP/1.1\r\nHost: a\r\n\r\r\n", 0},
		{"GET / HTTP/1.1\r\n\rHost: a\r\n", 0},
		{"GET / HTTP/1.1\r\n", 0},
		{"", 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t len = strlen(cases[i].text), from = 0, end = 0;

		ck_assert_uint_eq(kvw_head_find_end(cases[i].text, len, &from), cases[i].end);
		for (size_t split = 0; split <= len; split++) {
			from = 0;
			end = kvw_head_find_end(cases[i].text, split, &from);
			ck_assert(from <= split);
			if (end == 0)
				end = kvw_head_find_end(cases[i].text, len, &from);
			ck_assert_msg(
				end == cases[i].end, "case %zu, split %zu: %zu", i, split, end);
		}
		from = 0;
		end = 0;
		for (size_t got = 0; got <= len && end == 0; got++)
			end = kvw_head_find_end(cases[i].text, got, &from);
		ck_assert_uint_eq(end, cases[i].end);
	}
}
END_TEST

/* ... and wherever it lies relative to the 16 bytes of a scan, without a look past the end. */
START_TEST(end_is_found_at_every_place)
{
	for (size_t pad = 0; pad < 80; pad++) {
		size_t from = 0, len = pad + 4;
		char *text = malloc(len);

		ck_assert_ptr_nonnull(text);
		memset(text, 'x', pad);
		memcpy(text + pad, "\r\n\r\n", 4);
		ck_assert_uint_eq(kvw_head_find_end(text, len - 1, &from), 0);
		ck_assert_uint_eq(kvw_head_find_end(text, len, &from), len);
		from = 0;
		ck_assert_uint_eq(kvw_head_find_end(text, len, &from), len);
		free(text);
	}
}
END_TEST

START_TEST(blank_lines_before_a_request)
{
	ck_assert_uint_eq(kvw_head_skip_blank("\r\n\r\nGET", 7), 4);
	ck_assert_uint_eq(kvw_head_skip_blank("\r\n\r", 3), 2);
	ck_assert_uint_eq(kvw_head_skip_blank("\r", 1), 0);
	ck_assert_uint_eq(kvw_head_skip_blank("\nGET", 4), 0);
	ck_assert_uint_eq(kvw_head_skip_blank("GET", 3), 0);
	ck_assert_uint_eq(kvw_head_skip_blank("", 0), 0);
}
END_TEST

START_TEST(status_texts)
{
	ck_assert_str_eq(kvw_status_text(100), "Continue");
	ck_assert_str_eq(kvw_status_text(404), "Not Found");
	ck_assert_str_eq(kvw_status_text(503), "Service Unavailable");
	ck_assert_str_eq(kvw_status_text(511), "Network Authentication Required");
	ck_assert_str_eq(kvw_status_text(299), "Unknown");
	ck_assert_str_eq(kvw_status_text(0), "Unknown");
	for (int status = 100; status < 600; status++) /* the table is sorted */
		ck_assert(kvw_status_text(status)[0] != '\0');
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("all");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, request_is_cut_into_fields);
	tcase_add_test(tcase, field_ids);
	tcase_add_test(tcase, request_framing);
	tcase_add_test(tcase, keep_alive);
	tcase_add_test(tcase, targets);
	tcase_add_test(tcase, hosts);
	tcase_add_test(tcase, methods);
	tcase_add_test(tcase, hop_by_hop_marks);
	tcase_add_test(tcase, only_websocket_is_an_upgrade);
	tcase_add_test(tcase, expectation);
	tcase_add_test(tcase, content_types);
	tcase_add_test(tcase, cookies);
	tcase_add_test(tcase, response_start_lines);
	tcase_add_test(tcase, response_framing);
	tcase_add_test(tcase, nothing_survives_from_the_message_before);
	tcase_add_test(tcase, heads_seen_before_are_read_the_same);
	tcase_add_test(tcase, init_limits);
	tcase_add_test(tcase, end_is_found_at_every_split);
	tcase_add_test(tcase, end_is_found_at_every_place);
	tcase_add_test(tcase, blank_lines_before_a_request);
	tcase_add_test(tcase, status_texts);
	return run_tcase("head_accept", tcase);
}
