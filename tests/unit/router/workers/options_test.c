/*
 * options_test.c - the command line of `kvway workers`, and its table.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/suite.h"
#include "workers/options.h"
#include "workers/table.h"

#define WORDS_MOST 80

/* One call of the parser. */
struct called {
	bool go_on;
	enum kvw_exit status;
	struct kvw_workers_options options; /* borrows from line and argv */
	char *argv[WORDS_MOST + 2];
	char *out, *err;
	char *line;
};

/* `line` is split at blanks. */
static void call(const char *line, struct called *called)
{
	static char word_zero[] = "workers";
	char *rest = NULL;
	int argc = 1;
	size_t out_size, err_size;
	FILE *out, *err;

	*called = (struct called){.line = strdup(line), .argv = {word_zero}};
	out = open_memstream(&called->out, &out_size);
	err = open_memstream(&called->err, &err_size);
	ck_assert(out != NULL && err != NULL && called->line != NULL);
	for (char *word = strtok_r(called->line, " ", &rest); word != NULL && argc <= WORDS_MOST;
		word = strtok_r(NULL, " ", &rest))
		called->argv[argc++] = word;
	called->go_on = kvw_workers_options_parse(
		argc, called->argv, out, err, &called->options, &called->status);
	fclose(out);
	fclose(err);
}

static void release(struct called *called)
{
	free(called->out);
	free(called->err);
	free(called->line);
}

START_TEST(test_nothing_given_lists)
{
	struct called called;

	call("", &called);
	ck_assert(called.go_on);
	ck_assert_int_eq(called.options.verb, KVW_WORKERS_LIST);
	ck_assert_ptr_null(called.options.router.admin);
	ck_assert(!called.options.router.json);
	release(&called);
}
END_TEST

START_TEST(test_verbs)
{
	struct called called;

	call("add http://a:1 http://b:1 --model m --model n --admin [::1]:9091 --json", &called);
	ck_assert_msg(called.go_on, "%s", called.err);
	ck_assert_int_eq(called.options.verb, KVW_WORKERS_ADD);
	ck_assert_uint_eq(called.options.name_count, 2);
	ck_assert_str_eq(called.options.names[1], "http://b:1");
	ck_assert_uint_eq(called.options.model_count, 2);
	ck_assert_str_eq(called.options.router.admin, "[::1]:9091");
	ck_assert(called.options.router.json);
	release(&called);
	call("drain a:1 --wait 2m --remove", &called);
	ck_assert_msg(called.go_on, "%s", called.err);
	ck_assert_int_eq(called.options.verb, KVW_WORKERS_DRAIN);
	ck_assert_int_eq(called.options.wait_ms, 120000);
	ck_assert(called.options.remove);
	release(&called);
	call("weight a:1 0.5", &called);
	ck_assert_msg(called.go_on, "%s", called.err);
	release(&called);
	call("remove --now a:1", &called);
	ck_assert(called.go_on && called.options.now);
	release(&called);
}
END_TEST

START_TEST(test_wrong_usage)
{
	static const char *const wrongs[][2] = {
		{"dran a:1", "found `dran`, expected list, add, drain, undrain, remove or weight; did you mean `drain`?"},
		{"list a:1", "kvway workers: list: found 1 words behind it, expected nothing more"},
		{"add", "kvway workers: add: found 0 words behind it, expected the URL of each worker"},
		{"drain a:1 b:1", "kvway workers: drain: found 2 words behind it, expected one ID"},
		{"drain a:1 --wait soon", "--wait: found `soon`, expected a time up to 1h such as 30s"},
		{"drain a:1 --wait 2h", "--wait: found `2h`"},
		{"drain a:1 --now", "--now belongs to `kvway workers remove`"},
		{"remove a:1 --wait 1s", "--wait belongs to `kvway workers drain`"},
		{"drain a:1 --model m", "--model belongs to `kvway workers add`"},
		{"weight a:1 heavy", "found `heavy`, expected a number such as 0.5"},
		{"weight a:1 -- -1", "found `-1`, expected a number"},
		{"--admin nowhere", "--admin: found `nowhere`, expected HOST:PORT"},
		{"--admin a:1 --admin a:1", "--admin was given twice"},
		{"--admin a:1 -c f", "give --admin ADDR or -c FILE, not both"},
		{"--jsno", "unknown flag --jsno; did you mean `--json`?"},
		{"--json=1", "this flag takes no value"},
		{"--admin", "--admin needs a value"},
		{"-x", "unknown flag -x"},
	};
	struct called called;

	for (size_t i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++) {
		call(wrongs[i][0], &called);
		ck_assert_msg(!called.go_on, "%s", wrongs[i][0]);
		ck_assert_int_eq(called.status, KVW_EXIT_USAGE);
		ck_assert_msg(strstr(called.err, wrongs[i][1]) != NULL, "%s: %s", wrongs[i][0], called.err);
		ck_assert_ptr_nonnull(strstr(called.err, "Try `kvway workers --help`."));
		release(&called);
	}
}
END_TEST

START_TEST(test_help)
{
	struct called called;

	call("--help", &called);
	ck_assert(!called.go_on);
	ck_assert_int_eq(called.status, KVW_EXIT_OK);
	ck_assert_ptr_nonnull(strstr(called.out, "Examples:\n"));
	ck_assert_str_eq(called.err, "");
	release(&called);
}
END_TEST

static char *table_of(const char *json, enum kvw_err expected)
{
	char *text;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	ck_assert_ptr_nonnull(out);
	ck_assert_int_eq(kvw_workers_table_print(kvw_slice_of(json), out), expected);
	fclose(out);
	return text;
}

START_TEST(test_table)
{
	char *text = table_of(
		"[{\"url\":\"http://a:1\",\"state\":\"up\",\"models\":[\"m\",\"n\"],\"inflight\":3,"
		"\"queue_seconds\":1.25,\"hit_share\":0.5,\"role\":\"prefill\",\"sources\":[\"config\",\"admin\"]},"
		"{\"url\":\"http://b:1\",\"state\":\"draining\",\"leaves\":true,\"leaves_in_ms\":11600,"
		"\"models\":[],\"inflight\":0,\"queue_seconds\":0,\"hit_share\":null,\"sources\":[]},"
		"{\"url\":\"http://c\\u001b:1\",\"state\":\"removed\",\"sources\":[\"file\"]}]",
		KVW_OK);

	ck_assert_str_eq(text,
		"worker       state               models  inflight  queue s  hits %  listed by\n"
		"http://a:1   up, prefill              2         3     1.25      50  config,admin\n"
		"http://b:1   leaves within 12 s       0         0     0.00       -  \n"
		"http://c?:1  removed                  -         -        -       -  file\n");
	free(text);
	free(table_of("{\"url\":\"http://a:1\",\"state\":\"up\"}", KVW_OK));
	free(table_of("[]", KVW_OK));
	free(table_of("[1]", KVW_EPROTO));
	free(table_of("{\"error\":{}}", KVW_EPROTO));
	free(table_of("<html>", KVW_EPROTO));
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("workers");

	tcase_add_test(tc, test_nothing_given_lists);
	tcase_add_test(tc, test_verbs);
	tcase_add_test(tc, test_wrong_usage);
	tcase_add_test(tc, test_help);
	tcase_add_test(tc, test_table);
	return run_tcase("workers", tc);
}
