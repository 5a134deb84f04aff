/*
 * exact_test.c - in which form a prompt's exact tokens can be asked for, and the ids and the salt that a
 * body holds itself.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "openai/scan.h"
#include "tests/unit/suite.h"

struct form_case {
	enum kvw_api api;
	enum kvw_prompt_form form;
	const char *body;
};

#define TALK "\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static const struct form_case cases[] = {
	{KVW_API_CHAT, KVW_FORM_PLAIN, "{" TALK "}"},
	{KVW_API_CHAT, KVW_FORM_PLAIN, "{" TALK ",\"tools\":[{\"type\":\"function\"}],\"n\":2}"},
	{KVW_API_CHAT, KVW_FORM_PLAIN, "{" TALK ",\"chat_template_kwargs\":{\"a\":1}}"},
	{KVW_API_CHAT, KVW_FORM_CONVERT, "{" TALK ",\"reasoning_effort\":\"low\"}"},
	{KVW_API_CHAT, KVW_FORM_CONVERT, "{" TALK ",\"documents\":[{\"text\":\"a\"}]}"},
	{KVW_API_CHAT, KVW_FORM_NONE, "{" TALK ",\"truncate_prompt_tokens\":9}"},
	{KVW_API_CHAT, KVW_FORM_PLAIN, "{" TALK ",\"truncate_prompt_tokens\":null}"},
	{KVW_API_CHAT, KVW_FORM_PLAIN,
		"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"hi\"}]}]}"},
	{KVW_API_CHAT, KVW_FORM_NONE,
		"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":"
		"{\"url\":\"http://a/b\"}}]}]}"},
	{KVW_API_CHAT, KVW_FORM_NONE,
		"{\"messages\":[{\"role\":\"user\",\"content\":[{\"image_url\":\"http://a/b\"}]}]}"},
	{KVW_API_COMPLETIONS, KVW_FORM_PLAIN, "{\"prompt\":\"hi\"}"},
	{KVW_API_COMPLETIONS, KVW_FORM_CONVERT, "{\"prompt\":[\"hi\"]}"},
	{KVW_API_COMPLETIONS, KVW_FORM_NONE, "{\"prompt\":[\"hi\",\"ho\"]}"},
	{KVW_API_COMPLETIONS, KVW_FORM_NONE, "{\"prompt\":[[1],[2]]}"},
	{KVW_API_COMPLETIONS, KVW_FORM_IDS, "{\"prompt\":[[1,2]]}"},
	{KVW_API_COMPLETIONS, KVW_FORM_NONE, "{\"prompt\":\"hi\",\"suffix\":\"ho\"}"},
	{KVW_API_COMPLETIONS, KVW_FORM_NONE, "{\"prompt\":\"hi\",\"prompt_embeds\":\"aa\"}"},
	{KVW_API_COMPLETIONS, KVW_FORM_NONE, "{\"model\":\"m\"}"},
	{KVW_API_RESPONSES, KVW_FORM_CONVERT, "{\"input\":\"hi\"}"},
	{KVW_API_RESPONSES, KVW_FORM_NONE, "{\"input\":\"hi\",\"previous_response_id\":\"r\"}"},
	{KVW_API_RESPONSES, KVW_FORM_NONE, "{\"input\":\"hi\",\"tools\":[{\"type\":\"function\"}]}"},
	{KVW_API_MESSAGES, KVW_FORM_CONVERT, "{" TALK ",\"max_tokens\":1}"},
	{KVW_API_MESSAGES, KVW_FORM_NONE, "{" TALK ",\"tools\":[{\"name\":\"f\"}]}"},
	{KVW_API_EMBEDDINGS, KVW_FORM_NONE, "{\"input\":\"hi\"}"},
	{KVW_API_TOKENIZE, KVW_FORM_NONE, "{\"prompt\":\"hi\"}"},
	{KVW_API_INVOCATIONS, KVW_FORM_PLAIN, "{\"suffix\":\"not of a chat\"," TALK "}"},
	{KVW_API_INVOCATIONS, KVW_FORM_PLAIN, "{\"documents\":[],\"prompt\":\"hi\"}"},
	{KVW_API_INVOCATIONS, KVW_FORM_IDS, "{\"prompt\":[1,2]}"},
	{KVW_API_INVOCATIONS, KVW_FORM_NONE, "{\"inputs\":\"no /tokenize takes it\"}"},
	{KVW_API_INVOCATIONS, KVW_FORM_NONE, "{\"input\":\"hi\"}"},
};

static void scan_in_pieces(
	struct kvw_scan *scan, enum kvw_api api, const char *body, size_t piece, bool keep)
{
	struct kvw_route_request request;
	size_t len = strlen(body);

	kvw_scan_reset(scan, api);
	if (keep)
		kvw_scan_keep_ids(scan);
	for (size_t i = 0; i < len; i += piece)
		kvw_scan_feed(scan, body + i, len - i < piece ? len - i : piece);
	ck_assert_int_eq(kvw_scan_finish(scan, &request), KVW_OK);
}

START_TEST(test_form)
{
	const struct form_case *c = &cases[_i];
	struct kvw_scan_exact exact;
	struct kvw_scan *scan;

	ck_assert_int_eq(kvw_scan_create(NULL, &scan), KVW_OK);
	scan_in_pieces(scan, c->api, c->body, 7, true);
	kvw_scan_exact(scan, &exact);
	ck_assert_msg(exact.form == c->form, "form %d of %s", exact.form, c->body);
	kvw_scan_destroy(scan);
}
END_TEST

START_TEST(test_ids_and_salt)
{
	static const char body[] =
		"{\"prompt\":[9,9],\"cache_salt\":\"s\\u0061\",\"prompt\":[0, 151643,4294967295]}";
	static const uint32_t ids[] = {0, 151643, UINT32_MAX};
	struct kvw_scan_exact exact;
	struct kvw_scan *scan;

	ck_assert_int_eq(kvw_scan_create(NULL, &scan), KVW_OK);
	for (size_t piece = 1; piece < sizeof(body); piece++) {
		scan_in_pieces(scan, KVW_API_COMPLETIONS, body, piece, true);
		kvw_scan_exact(scan, &exact);
		ck_assert_int_eq(exact.form, KVW_FORM_IDS);
		ck_assert_uint_eq(exact.id_count, 3);
		ck_assert_mem_eq(exact.ids, ids, sizeof(ids));
		ck_assert(kvw_slice_equal(exact.cache_salt, KVW_SLICE("sa")));
	}
	kvw_scan_destroy(scan);
}
END_TEST

/* Long lists are taken in runs, by whatever the processor has. */
START_TEST(test_long_lists_of_ids)
{
	static const char *const gaps[] = {",", ", ", " ,\n"};
	static const uint32_t pieces[] = {100000, 1000, 65, 64, 7};
	static char body[16000];
	static uint32_t ids[1000];
	struct kvw_scan_exact exact;
	struct kvw_scan *scan;
	size_t len = 0;

	ck_assert_int_eq(kvw_scan_create(NULL, &scan), KVW_OK);
	len += (size_t)sprintf(body, "{\"prompt\":[");
	for (uint32_t i = 0; i < 1000; i++) {
		ids[i] = (i * 2654435761u) >> i % 32;
		len += (size_t)sprintf(body + len, "%s%u", i == 0 ? "" : gaps[_i], ids[i]);
	}
	sprintf(body + len, "]}");
	for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
		scan_in_pieces(scan, KVW_API_COMPLETIONS, body, pieces[i], true);
		kvw_scan_exact(scan, &exact);
		ck_assert_int_eq(exact.form, KVW_FORM_IDS);
		ck_assert_uint_eq(exact.id_count, 1000);
		ck_assert_mem_eq(exact.ids, ids, sizeof(ids));
	}
	kvw_scan_destroy(scan);
}
END_TEST

START_TEST(test_ids_are_not_kept_unasked)
{
	struct kvw_scan_exact exact;
	struct kvw_scan *scan;

	ck_assert_int_eq(kvw_scan_create(NULL, &scan), KVW_OK);
	scan_in_pieces(scan, KVW_API_COMPLETIONS, "{\"prompt\":[1,2]}", 100, true);
	scan_in_pieces(scan, KVW_API_COMPLETIONS, "{\"prompt\":[3]}", 100, false);
	kvw_scan_exact(scan, &exact);
	ck_assert_int_eq(exact.form, KVW_FORM_NONE);
	ck_assert_uint_eq(exact.id_count, 0);
	kvw_scan_destroy(scan);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("exact");

	tcase_add_loop_test(tc, test_form, 0, (int)(sizeof(cases) / sizeof(cases[0])));
	tcase_add_test(tc, test_ids_and_salt);
	tcase_add_loop_test(tc, test_long_lists_of_ids, 0, 3);
	tcase_add_test(tc, test_ids_are_not_kept_unasked);
	return run_tcase("exact", tc);
}
