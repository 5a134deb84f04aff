/*
 * opening_test.c - how a chat begins: the same in each of its turns, whatever model and salt; and a body that is
 * finished a second time for another model.
 */
#include <check.h>
#include <string.h>

#include "openai/scan.h"
#include "tests/unit/suite.h"

#define SYSTEM    "{\"role\":\"system\",\"content\":\"be kind\"}"
#define USER(s)   "{\"role\":\"user\",\"content\":\"" s "\"}"
#define OTHER(s)  "{\"content\":\"" s "\",\"role\":\"assistant\"}"
#define CHAT(m)   "{\"model\":\"a\",\"messages\":[" m "]}"

static struct kvw_scan *scan;

static void setup(void)
{
	ck_assert_int_eq(kvw_scan_create(NULL, &scan), KVW_OK);
}

static void teardown(void)
{
	kvw_scan_destroy(scan);
}

static uint64_t opening(enum kvw_api api, const char *body)
{
	struct kvw_route_request route;

	kvw_scan_reset(scan, api);
	kvw_scan_feed(scan, body, strlen(body));
	ck_assert_int_eq(kvw_scan_finish(scan, &route), KVW_OK);
	return kvw_scan_opening(scan);
}

START_TEST(test_turns_of_a_chat_begin_alike)
{
	uint64_t first = opening(KVW_API_CHAT, CHAT(SYSTEM "," USER("one")));

	ck_assert_uint_ne(first, 0);
	ck_assert_uint_eq(first, opening(KVW_API_CHAT, CHAT(SYSTEM "," USER("one") "," OTHER("so") "," USER("on"))));
	ck_assert_uint_eq(first, opening(KVW_API_CHAT,
		"{\"messages\":[" SYSTEM "," USER("one") "],\"cache_salt\":\"s\",\"temperature\":0,\"model\":\"b\"}"));
	ck_assert_uint_ne(first, opening(KVW_API_CHAT, CHAT(SYSTEM "," USER("two"))));
	ck_assert_uint_ne(first, opening(KVW_API_CHAT, CHAT(USER("one"))));
	ck_assert_uint_ne(first, opening(KVW_API_CHAT, CHAT(SYSTEM "," OTHER("one") "," USER("one"))));
}
END_TEST

START_TEST(test_what_is_no_chat_has_no_beginning)
{
	ck_assert_uint_eq(opening(KVW_API_CHAT, CHAT(SYSTEM)), 0);
	ck_assert_uint_eq(opening(KVW_API_CHAT, CHAT("")), 0);
	ck_assert_uint_eq(opening(KVW_API_COMPLETIONS, "{\"model\":\"a\",\"prompt\":\"one\"}"), 0);
	kvw_scan_reset(scan, KVW_API_CHAT);
	kvw_scan_fields_only(scan);
	kvw_scan_feed(scan, CHAT(USER("one")), strlen(CHAT(USER("one"))));
	ck_assert_uint_eq(kvw_scan_opening(scan), 0);
}
END_TEST

START_TEST(test_a_body_is_finished_again_for_another_model)
{
	static const char body[] = CHAT(SYSTEM "," USER("one")), other[] = "{\"model\":\"b\",\"messages\":[" SYSTEM
									     "," USER("one") "]}";
	struct kvw_route_request route;
	uint64_t before, after;

	(void)opening(KVW_API_CHAT, body);
	ck_assert(kvw_scan_set_model(scan, KVW_SLICE("b")));
	ck_assert_int_eq(kvw_scan_finish(scan, &route), KVW_OK);
	ck_assert(kvw_slice_equal(route.model, KVW_SLICE("b")));
	ck_assert_uint_gt(route.chunk_count, 0);
	ck_assert_uint_eq(route.chain_count, 1);
	before = route.chunks[route.chunk_count - 1].hash;
	kvw_scan_reset(scan, KVW_API_CHAT);
	kvw_scan_feed(scan, other, strlen(other));
	ck_assert_int_eq(kvw_scan_finish(scan, &route), KVW_OK);
	after = route.chunks[route.chunk_count - 1].hash;
	ck_assert_uint_eq(before, after);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("opening");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, test_turns_of_a_chat_begin_alike);
	tcase_add_test(tcase, test_what_is_no_chat_has_no_beginning);
	tcase_add_test(tcase, test_a_body_is_finished_again_for_another_model);
	return run_tcase("opening", tcase);
}
