/*
 * agree_test.c - good heads and bodies, changed at random from a fixed seed: whatever comes out,
 * our reading and llhttp's do not differ where ours accepts. A small stand-in for the fuzz targets,
 * which need clang.
 */
#include <check.h>
#include <stdint.h>
#include <stdio.h>

#include "tests/fuzz/http/agree.h"
#include "kvway/slice.h"
#include "tests/unit/suite.h"

#define ROUNDS 20000

static const char *const requests[] = {
	"POST /v1/chat/completions HTTP/1.1\r\nHost: a:8080\r\nConnection: keep-alive, X-Drop\r\n"
	"X-Drop: 1\r\nX-Forwarded-For: 192.0.2.7\r\nContent-Length: 12\r\nTE: trailers\r\n\r\n",
	"PUT http://b/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: x\r\n"
	"Expect: 100-continue\r\nForwarded: for=x\r\n\r\n0\r\n\r\n",
	"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\nUpgrade: websocket\r\nCookie: a=b\r\n\r\n",
};

static const char *const responses[] = {
	"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nConnection: close\r\nX-Request-Id: z\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x\r\nDate: now\r\n\r\n",
	"HTTP/1.0 304 Not Modified\r\nContent-Length: 7\r\nConnection: keep-alive\r\n\r\n",
	"HTTP/1.1 204 No Content\r\nKeep-Alive: timeout=5\r\n\r\n",
};

static const char *const bodies[] = {
	"5\r\nhello\r\n00a;x=\"y\\\"\";z\r\n0123456789\r\n0\r\nA: b\r\n\r\nrest",
	"1\r\na\r\n1\r\nb\r\n0;last\r\n\r\n",
};

static const char *const snippets[] = {"\r\n", "\r", "\n", "\r\n\r\n", " ", "\t", ":", ",", ";",
	"=", "\"", "0", "5", "-", "chunked", "gzip, ", "Content-Length: 5\r\n", "close",
	"Host: b\r\n", "Transfer-Encoding: chunked\r\n", "Connection: close\r\n", "HTTP/1.1",
	"Content-Length"};

static uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* One change: a byte set, a byte dropped, or a snippet put in. */
static size_t change(char *text, size_t len, size_t size, uint64_t *state)
{
	size_t at = random_next(state) % (len + 1);
	uint64_t kind = random_next(state) % 4;

	if (kind == 0 && at < len) {
		text[at] = (char)random_next(state);
	} else if (kind == 1 && at < len) {
		memmove(text + at, text + at + 1, len - at - 1);
		len--;
	} else {
		const char *snippet =
			snippets[random_next(state) % (sizeof(snippets) / sizeof(snippets[0]))];
		size_t n = strlen(snippet);

		if (len + n <= size) {
			memmove(text + at + n, text + at, len - at);
			memcpy(text + at, snippet, n);
			len += n;
		}
	}
	return len;
}

/* Which reading is tested. */
enum kind { REQUEST, RESPONSE, BODY };

/* Changes each text many times over. Both outcomes must occur, else the test would show little. */
static void run(const char *const *texts, size_t count, enum kind kind)
{
	uint64_t state = UINT64_C(0x9e3779b97f4a7c15);
	unsigned accepted = 0, refused = 0;

	for (int round = 0; round < ROUNDS; round++) {
		char text[1024];
		const char *original = texts[(size_t)round % count];
		size_t len = strlen(original);
		unsigned changes = (unsigned)(random_next(&state) % 4);
		bool ok;

		memcpy(text, original, len);
		while (changes-- > 0)
			len = change(text, len, sizeof(text), &state);
		ok = kind == BODY ? kvb_agree_body(text, len)
				  : kvb_agree_head(text, len, kind == RESPONSE);
		accepted += ok;
		refused += !ok;
	}
	ck_assert_uint_gt(accepted, ROUNDS / 20);
	ck_assert_uint_gt(refused, ROUNDS / 20);
}

START_TEST(requests_agree)
{
	run(requests, sizeof(requests) / sizeof(requests[0]), REQUEST);
}
END_TEST

START_TEST(responses_agree)
{
	run(responses, sizeof(responses) / sizeof(responses[0]), RESPONSE);
}
END_TEST

START_TEST(bodies_agree)
{
	run(bodies, sizeof(bodies) / sizeof(bodies[0]), BODY);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("all");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, requests_agree);
	tcase_add_test(tcase, responses_agree);
	tcase_add_test(tcase, bodies_agree);
	return run_tcase("agree", tcase);
}
