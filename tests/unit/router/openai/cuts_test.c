/*
 * cuts_test.c - prompts cut into segments: the same text has the same segment wherever it stands and however the body
 * arrives; what is apart by model, salt or place does not look alike.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "openai/cuts.h"
#include "openai/scan.h"
#include "tests/unit/router/openai/support.h"
#include "tests/unit/suite.h"

static struct kvw_scan *scan;
static struct kvw_separator separator;
static struct kvw_route_request route;
static char texts[4][3000]; /* of prime lengths */

static void setup(void)
{
	static const size_t lengths[] = {2999, 1009, 257, 512};
	uint64_t random = 7;

	for (size_t i = 0; i < 4; i++) {
		for (size_t k = 0; k < lengths[i]; k++)
			texts[i][k] = (char)('a' + test_random(&random) % 26);
		texts[i][lengths[i]] = '\0';
	}
	ck_assert_int_eq(kvw_scan_create(NULL, &scan), KVW_OK);
	ck_assert(kvw_separator_make(" # # ", 100, &separator));
}

static void teardown(void)
{
	kvw_scan_destroy(scan);
}

/* Feeds the body cut at places that the seed decides; 0: at once. */
static void read_body(enum kvw_api api, const char *body, uint64_t seed)
{
	size_t len = strlen(body);

	kvw_scan_reset(scan, api);
	kvw_scan_cut(scan, &separator);
	for (size_t at = 0; at < len;) {
		size_t part = seed == 0 ? len : 1 + test_random(&seed) % (seed % 3 == 0 ? 4 : 300);
		char *copy;

		part = part < len - at ? part : len - at;
		copy = malloc(part); /* so that a sanitizer sees what is read beyond it */
		memcpy(copy, body + at, part);
		kvw_scan_feed(scan, copy, part);
		free(copy);
		at += part;
	}
	ck_assert_int_eq(kvw_scan_finish(scan, &route), KVW_OK);
}

/* A completion of these texts, with a separator behind each. */
static const char *prompt_of(const char *numbers, const char *more)
{
	static char body[16000];
	size_t len = (size_t)sprintf(body, "{\"model\":\"m\",%s\"prompt\":\"", more);

	for (; *numbers != '\0'; numbers++)
		len += (size_t)sprintf(body + len, "%s # # ", texts[*numbers - '0']);
	strcpy(body + len, "and what?\"}");
	return body;
}

static uint64_t hashes[8];

static uint32_t segments_of(const char *numbers, const char *more)
{
	read_body(KVW_API_COMPLETIONS, prompt_of(numbers, more), 0);
	for (uint32_t i = 0; i < route.segment_count && i < 8; i++)
		hashes[i] = route.segments[i].hash;
	return route.segment_count;
}

START_TEST(a_text_is_the_same_segment_at_every_place)
{
	uint64_t first[8];

	ck_assert_uint_eq(segments_of("0123", ""), 4);
	memcpy(first, hashes, sizeof(first));
	ck_assert_uint_eq(route.segments[0].from, 0);
	ck_assert_uint_eq(route.segments[0].to, strlen(texts[0]) + 5);
	ck_assert_uint_eq(route.segments[1].from, route.segments[0].to);
	ck_assert_uint_eq(segments_of("3120", ""), 4);
	ck_assert_uint_eq(hashes[0], first[3]);
	ck_assert_uint_eq(hashes[1], first[1]);
	ck_assert_uint_eq(hashes[2], first[2]);
	ck_assert_uint_eq(hashes[3], first[0]);
	ck_assert_uint_ne(hashes[0], hashes[1]);
}
END_TEST

START_TEST(models_and_salts_are_apart)
{
	uint64_t first;

	segments_of("01", "");
	first = hashes[1];
	segments_of("01", "\"cache_salt\":\"s\",");
	ck_assert_uint_ne(hashes[1], first);
	segments_of("01", "\"temperature\":1,\"stream\":true,");
	ck_assert_uint_eq(hashes[1], first);
	segments_of("01", "\"model\":\"other\",");
	ck_assert_uint_ne(hashes[1], first); /* of two names the last counts */
}
END_TEST

START_TEST(a_request_can_want_what_is_exact_alone)
{
	ck_assert_uint_eq(segments_of("01", "\"kv_transfer_params\":{\"kvtier.fragments\":false},"), 0);
	ck_assert_uint_eq(segments_of("01", "\"kv_transfer_params\":{\"kvtier.fragments\":true},"), 2);
	ck_assert_uint_eq(segments_of("01", "\"kv_transfer_params\":{\"a\":{\"kvtier.fragments\":false}},"), 2);
	ck_assert_uint_eq(segments_of("01", "\"kv_transfer_params\":null,"), 2);
	ck_assert_uint_eq(segments_of("01", "\"kv_transfer_params\":\"x\","), 2);
	ck_assert_uint_eq(segments_of("01", "\"kv_transfer_params\":[false,{}],"), 2);
	ck_assert_uint_eq(segments_of("01", "\"kv_transfer_params\":7,"), 2);
	ck_assert_uint_eq(segments_of("01", "\"kv_transfer_params\":{\"kvtier.fragments\":\"no\"},"), 2);
}
END_TEST

/* Body and segments do not depend on how the body arrives. */
START_TEST(the_cuts_of_a_body_do_not_depend_on_its_feeds)
{
	const char *body = prompt_of("012301", "\"cache_salt\":\" # # \",");
	struct kvw_segment whole[8];
	uint32_t count, chunks;
	uint64_t last;

	read_body(KVW_API_COMPLETIONS, body, 0);
	count = route.segment_count;
	chunks = route.chunk_count;
	last = route.chunks[chunks - 1].hash;
	ck_assert_uint_eq(count, 6);
	memcpy(whole, route.segments, count * sizeof(*whole));
	for (uint64_t seed = 1; seed < 300; seed++) {
		read_body(KVW_API_COMPLETIONS, body, seed);
		ck_assert_uint_eq(route.segment_count, count);
		ck_assert_mem_eq(route.segments, whole, count * sizeof(*whole));
		ck_assert_uint_eq(route.chunk_count, chunks);
		ck_assert_uint_eq(route.chunks[chunks - 1].hash, last);
	}
}
END_TEST

START_TEST(messages_and_parts_are_segments)
{
	static char body[20000];
	uint64_t one, three;

	sprintf(body,
		"{\"messages\":[{\"role\":\"system\",\"content\":\"%s\"},{\"content\":\"%s\",\"role\":\"user\"},"
		"{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"%s\"},{\"type\":\"text\","
		"\"text\":\"%s\"}]}],\"model\":\"m\"}",
		texts[3], texts[1], texts[0], texts[1]);
	read_body(KVW_API_CHAT, body, 0);
	ck_assert_uint_eq(route.segment_count, 4);
	three = route.segments[0].hash;
	one = route.segments[1].hash;
	ck_assert_uint_eq(route.segments[3].hash, one);
	ck_assert_uint_eq(route.segments[3].to, route.chunks[route.chunk_count - 1].end);
	sprintf(body, "{\"model\":\"m\",\"prompt\":\"%s\"}", texts[1]);
	read_body(KVW_API_COMPLETIONS, body, 0);
	ck_assert_uint_eq(route.segments[0].hash, one);
	sprintf(body, "{\"model\":\"m\",\"prompt\":\"%s\"}", texts[3]);
	read_body(KVW_API_COMPLETIONS, body, 0);
	ck_assert_uint_eq(route.segments[0].hash, three);
}
END_TEST

START_TEST(what_is_short_or_too_many_is_left_out)
{
	size_t size = KVW_CUTS_MOST * 160, len;
	char *body = malloc(size);

	read_body(KVW_API_COMPLETIONS, "{\"prompt\":\"a # # b # # c\"}", 0);
	ck_assert_uint_eq(route.segment_count, 0);
	len = (size_t)sprintf(body, "{\"prompt\":\"");
	for (uint32_t i = 0; len < size - 200; i++)
		len += (size_t)sprintf(body + len, "%0120u # # ", i);
	strcpy(body + len, "\"}");
	read_body(KVW_API_COMPLETIONS, body, 0);
	ck_assert_uint_eq(route.segment_count, KVW_SEGMENTS_MOST);
	free(body);
}
END_TEST

START_TEST(separators_are_found_as_json_spells_them)
{
	char body[8000];

	ck_assert(kvw_separator_make("\n\"--\"\n", 100, &separator));
	sprintf(body, "{\"prompt\":\"%s\\n\\\"--\\\"\\n%s\"}", texts[0], texts[1]);
	read_body(KVW_API_COMPLETIONS, body, 0);
	ck_assert_uint_eq(route.segment_count, 2);
	ck_assert(kvw_separator_make("", 100, &separator));
	read_body(KVW_API_COMPLETIONS, body, 0);
	ck_assert_uint_eq(route.segment_count, 1);
	ck_assert(!kvw_separator_make("\xc3\xa4", 100, &separator));
	ck_assert(!kvw_separator_make("0123456789012345678901234567890123456789012345678901234567890123456789",
		100, &separator));
}
END_TEST

START_TEST(repetitive_separators_are_found_over_the_seams)
{
	char body[4000];

	ck_assert(kvw_separator_make("aabaaab", 10, &separator));
	sprintf(body, "{\"prompt\":\"xxxxxxxxxxxaabaabaaabyyyyyyyyyyyyaaabaaabzzzzzzzzzzzzaabaaaabaaab\"}");
	read_body(KVW_API_COMPLETIONS, body, 0);
	ck_assert_uint_eq(route.segment_count, 3);
	for (uint64_t seed = 1; seed < 200; seed++) {
		read_body(KVW_API_COMPLETIONS, body, seed);
		ck_assert_uint_eq(route.segment_count, 3);
	}
}
END_TEST

START_TEST(a_scan_without_a_separator_has_no_segments)
{
	const char *body = prompt_of("01", "");

	segments_of("01", "");
	kvw_scan_reset(scan, KVW_API_COMPLETIONS);
	kvw_scan_feed(scan, body, strlen(body));
	ck_assert_int_eq(kvw_scan_finish(scan, &route), KVW_OK);
	ck_assert_uint_eq(route.segment_count, 0);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("cuts");

	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, a_text_is_the_same_segment_at_every_place);
	tcase_add_test(tests, models_and_salts_are_apart);
	tcase_add_test(tests, a_request_can_want_what_is_exact_alone);
	tcase_add_test(tests, the_cuts_of_a_body_do_not_depend_on_its_feeds);
	tcase_add_test(tests, messages_and_parts_are_segments);
	tcase_add_test(tests, what_is_short_or_too_many_is_left_out);
	tcase_add_test(tests, separators_are_found_as_json_spells_them);
	tcase_add_test(tests, repetitive_separators_are_found_over_the_seams);
	tcase_add_test(tests, a_scan_without_a_separator_has_no_segments);
	return run_tcase("openai_cuts", tests);
}
