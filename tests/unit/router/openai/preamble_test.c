/*
 * preamble_test.c - what of a stream comes before anything was computed, however it is cut into pieces.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "openai/preamble.h"
#include "tests/unit/suite.h"

#define CREATED  "event: response.created\ndata: {\"response\":{\"tools\":[\"\\n: \"]}}\n\n"
#define PROGRESS "event: response.in_progress\ndata: {\"response\":{}}\n\n"
#define ITEM     "event: response.output_item.added\ndata: {}\n\n"
#define DONE     "event: response.completed\ndata: {}\n\n"
#define START    "event: message_start\ndata: {}\n\n"
#define PING     "event: ping\ndata: {\"type\": \"ping\"}\n\n"
#define COMMENT  ": keep-alive\n\n"
#define ROLE     "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n"
#define FAULT    "event: error\ndata: {}\n\n"

static const struct {
	const char *preamble, *rest;
} streams[] = {
	{"", ROLE},
	{"", FAULT},
	{"", DONE},
	{"", "event: pings\ndata: {}\n\n"},
	{"", "event: message_starts\n"},
	{"", "event: response.created.not\n"},
	{"", "e: \n"},
	{COMMENT, ROLE},
	{COMMENT COMMENT COMMENT, FAULT},
	{":\n\n", ROLE},
	{":\r\n\r\n: ping - 2026\r\n\r\n", ROLE},
	{CREATED PROGRESS, ITEM},
	{CREATED COMMENT PROGRESS COMMENT, "data: {\"error\": {}}\n\n"},
	{"event:response.queued\r\ndata: {}\r\n\r\n", ITEM},
	{START PING, "event: content_block_start\ndata: {}\n\n"},
	{START, "event: message_delta\ndata: {}\n\n"},
	{CREATED PROGRESS, ""},
	{": not ended", ""},
	{"event: response.cre", ""},
};
#define COUNT (sizeof(streams) / sizeof(streams[0]))

/* In pieces of `size` bytes. Each byte lies in memory of its own size, so that none beyond it is read unseen. */
static void check_cut(const char *preamble, const char *rest, size_t size)
{
	struct kvw_preamble p = {0};
	char whole[512], kept[512];
	size_t len = (size_t)snprintf(whole, sizeof(whole), "%s%s", preamble, rest), skipped = 0;
	size_t have = 0;

	for (size_t at = 0; at < len; at += size) {
		size_t n = len - at < size ? len - at : size, skip;
		char *piece = malloc(n);

		memcpy(piece, whole + at, n);
		skip = kvw_preamble_skip(&p, piece, n);
		if (skip < n && have == 0) { /* what was held back, and all from here on */
			memcpy(kept, p.text, p.len);
			have = p.len;
			skipped += skip;
			skipped -= p.len;
		} else if (have == 0) {
			skipped += skip;
		} else {
			ck_assert_uint_eq(skip, 0);
		}
		if (skip < n) {
			memcpy(kept + have, piece + skip, n - skip);
			have += n - skip;
		}
		free(piece);
	}
	ck_assert_msg(skipped == strlen(preamble), "%s%s by %zu: %zu", preamble, rest, size, skipped);
	ck_assert_msg(have == strlen(rest) && memcmp(kept, rest, have) == 0, "%s%s by %zu", preamble, rest, size);
}

START_TEST(streams_cut_anywhere)
{
	for (size_t i = 0; i < COUNT; i++)
		for (size_t size = 1; size <= strlen(streams[i].preamble) + strlen(streams[i].rest); size++)
			check_cut(streams[i].preamble, streams[i].rest, size);
}
END_TEST

static bool only(const char *piece)
{
	return kvw_preamble_only(piece, strlen(piece));
}

START_TEST(pieces_that_are_preamble_alone)
{
	ck_assert(only(COMMENT));
	ck_assert(only(COMMENT COMMENT));
	ck_assert(only(PING));
	ck_assert(!only(COMMENT ROLE));
	ck_assert(!only(ROLE));
	ck_assert(!only(": not ended"));
	ck_assert(!only(":\"x\"}]}\n\ndata: {\"a\":1}\n\n"));
	ck_assert(!only("event: pin"));
	ck_assert(!only(ITEM));
}
END_TEST

START_TEST(says_what_it_saw)
{
	struct kvw_preamble p = {0};

	kvw_preamble_skip(&p, COMMENT, strlen(COMMENT));
	ck_assert(p.commented && !p.opened);
	p.commented = false;
	kvw_preamble_skip(&p, CREATED, strlen(CREATED));
	ck_assert(p.opened && !p.commented);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("preamble");

	tcase_add_test(tc, streams_cut_anywhere);
	tcase_add_test(tc, pieces_that_are_preamble_alone);
	tcase_add_test(tc, says_what_it_saw);
	return run_tcase("preamble", tc);
}
