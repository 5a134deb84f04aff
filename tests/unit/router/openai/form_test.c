/*
 * form_test.c - the model's name out of forms with an audio file, wherever they are cut.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "tests/unit/suite.h"

#define FIELD(name, value)                                                                         \
	"--XbX\r\nContent-Disposition: form-data; name=\"" name "\"\r\n\r\n" value "\r\n"

/* A file that looks like a form's end again and again. */
#define FILE_PART                                                                                  \
	"--XbX\r\nContent-Disposition: form-data; filename=\"name=model\"; name=\"file\"\r\n"      \
	"Content-Type: audio/wav\r\n\r\nRIFF\r\n--XbY\r\r\n--Xb\r\n\r\n--\r--XbX\"model\"\r\n"

static const struct {
	const char *form, *model, *session;
	bool stream;
} forms[] = {
	{FIELD("model", "whisper-1") "--XbX--\r\n", "whisper-1", NULL, false},
	{FILE_PART FIELD("model", "whisper-1") FIELD("user", "u")
			FIELD("stream", "true") "--XbX--\r\nepilogue",
		"whisper-1", "u", true},
	{FIELD("user", "u") FILE_PART FIELD("session_id", "s") FIELD("stream", "false") "--XbX--",
		NULL, "s", false},
	{FIELD("model", "a") FIELD("model", "b\r\n--Xbz") "--XbX--", "b\r\n--Xbz", NULL, false},
	{FIELD("model", "") "--XbX--", NULL, NULL, false},
	{"--b\r\ncontent-disposition:form-data;name=model\r\nX: y\r\n\r\nm\r\n--b--", "m", NULL,
		false},
	{"--b\r\n\r\nno head\r\n--b--", NULL, NULL, false},
};

START_TEST(form_is_understood)
{
	size_t len = strlen(forms[_i].form);

	for (size_t piece = 1; piece <= len; piece++) {
		struct seen *seen = see(KVW_API_AUDIO, forms[_i].form, len, piece);

		ck_assert_int_eq(seen->err, KVW_OK);
		ck_assert(kvw_slice_equal(seen->request.model, kvw_slice_of(forms[_i].model)));
		ck_assert(kvw_slice_equal(seen->request.session, kvw_slice_of(forms[_i].session)));
		ck_assert_int_eq(seen->request.stream, forms[_i].stream);
		ck_assert(!seen->request.content_known);
		ck_assert(!seen->request.teaches);
		seen_free(seen);
	}
}
END_TEST

static const char *const broken[] = {"-", "--\r\n", "--b", "--b\r\n", "-b\r\n\r\n\r\n-b--", "--b\n",
	"--b\r\n\r\nx", "--b\r\n\r\nx\r\n--b", "--b\r\n\r\nx\r\n--b-", "--b\r\n\r\nx\r\n--bc",
	"--b\r\n\r\nx\r\n--b-\r\n", "--b\rc\r\n\r\nx\r\n--b--",
	"--"
	"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	"\r\n\r\nx\r\n--b--"};

START_TEST(broken_form)
{
	struct seen *seen = see_text(KVW_API_AUDIO, broken[_i]);

	ck_assert_int_eq(seen->err, KVW_EPROTO);
	ck_assert_uint_eq(seen->request.model.len, 0);
	seen_free(seen);
}
END_TEST

/* A head or a value without end costs a bounded amount of memory. */
START_TEST(endless_form)
{
	static const char *const heads[] = {"--b\r\nX: ", "--b\r\nContent-Disposition: form-data; "
							  "name=\"model\"\r\n\r\n"};
	struct kvw_route_request request;
	struct kvw_scan *scan;
	char block[4096];

	memset(block, 'x', sizeof(block));
	ck_assert_int_eq(kvw_scan_create(NULL, &scan), KVW_OK);
	for (size_t i = 0; i < 2; i++) {
		kvw_scan_reset(scan, KVW_API_AUDIO);
		kvw_scan_feed(scan, heads[i], strlen(heads[i]));
		for (int k = 0; k < 100; k++)
			kvw_scan_feed(scan, block, sizeof(block));
		ck_assert_int_eq(kvw_scan_finish(scan, &request), KVW_EPROTO);
		ck_assert_uint_lt(kvw_scan_memory(scan), 64 << 10);
	}
	kvw_scan_destroy(scan);
}
END_TEST

/* Speech from text comes as JSON; a form is nothing for other paths. */
START_TEST(json_on_an_audio_path)
{
	struct seen *seen = see_text(KVW_API_AUDIO, "{\"model\":\"tts\",\"input\":\"hello\"}");

	ck_assert_int_eq(seen->err, KVW_OK);
	ck_assert(kvw_slice_equal(seen->request.model, KVW_SLICE("tts")));
	seen_free(seen);
	seen = see_text(KVW_API_CHAT, forms[0].form);
	ck_assert_int_eq(seen->err, KVW_EPROTO);
	seen_free(seen);
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

int main(void)
{
	TCase *tc = tcase_create("forms");

	tcase_add_loop_test(tc, form_is_understood, 0, COUNT(forms));
	tcase_add_loop_test(tc, broken_form, 0, COUNT(broken));
	tcase_add_test(tc, endless_form);
	tcase_add_test(tc, json_on_an_audio_path);
	return run_tcase("openai-form", tc);
}
