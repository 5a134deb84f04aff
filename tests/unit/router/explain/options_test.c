/*
 * options_test.c - the command line of `kvway explain`, and its table.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "explain/options.h"
#include "explain/table.h"
#include "tests/unit/suite.h"

#define WORDS_MOST 64

/* One call of the parser. */
struct called {
	bool go_on;
	enum kvw_exit status;
	struct kvw_explain_options options; /* borrows from line */
	char *out, *err;
	char *line;
};

/* `line` is split at commas. */
static struct called call(const char *line)
{
	struct called called = {.line = strdup(line)};
	char word_zero[] = "explain";
	char *argv[WORDS_MOST + 2] = {word_zero};
	char *rest = NULL;
	int argc = 1;
	size_t out_size, err_size;
	FILE *out = open_memstream(&called.out, &out_size);
	FILE *err = open_memstream(&called.err, &err_size);

	ck_assert(out != NULL && err != NULL && called.line != NULL);
	for (char *word = strtok_r(called.line, ",", &rest); word != NULL && argc <= WORDS_MOST;
		word = strtok_r(NULL, ",", &rest))
		argv[argc++] = word;
	called.go_on = kvw_explain_options_parse(
		argc, argv, out, err, &called.options, &called.status);
	fclose(out);
	fclose(err);
	return called;
}

static void called_release(struct called *called)
{
	free(called->out);
	free(called->err);
	free(called->line);
}

START_TEST(test_nothing_given)
{
	struct called called = call("");

	ck_assert(called.go_on);
	ck_assert_ptr_null(called.options.router.admin);
	ck_assert_ptr_null(called.options.router.config);
	ck_assert_ptr_null(called.options.path);
	ck_assert(!called.options.router.json && !called.options.cold);
	ck_assert_uint_eq(called.options.header_count, 0);
	called_release(&called);
}
END_TEST

START_TEST(test_everything_given)
{
	struct called called = call("--admin,[::1]:9091,--path,/v1/completions,--key-name,alice,--json,-H,a: b,"
				    "--header=x-session-id:c");

	ck_assert_msg(called.go_on, "%s", called.err);
	ck_assert_str_eq(called.err, "");
	ck_assert_str_eq(called.out, "");
	ck_assert_str_eq(called.options.router.admin, "[::1]:9091");
	ck_assert_str_eq(called.options.path, "/v1/completions");
	ck_assert_str_eq(called.options.key, "alice");
	ck_assert(called.options.router.json);
	ck_assert_uint_eq(called.options.header_count, 2);
	ck_assert_str_eq(called.options.headers[1], "x-session-id:c");
	called_release(&called);
	called = call("--cold,-c,f.yaml");
	ck_assert(called.go_on && called.options.cold);
	ck_assert_str_eq(called.options.router.config, "f.yaml");
	called_release(&called);
}
END_TEST

static const struct {
	const char *line, *says;
} wrongs[] = {
	{"--admin", "kvway explain: --admin needs a value\n"},
	{"--admin,localhost", "kvway explain: --admin: found `localhost`, expected HOST:PORT or https://HOST:PORT\n"},
	{"--admin,a:0", "kvway explain: --admin: found `a:0`, expected HOST:PORT or https://HOST:PORT\n"},
	{"--admin,a:1,--admin,b:1", "kvway explain: --admin was given twice\n"},
	{"-c,a,-c,b", "kvway explain: -c was given twice\n"},
	{"--admin,a:1,-c,f", "kvway explain: give --admin ADDR or -c FILE, not both\n"},
	{"--cold", "kvway explain: --cold needs -c FILE"},
	{"--cold,-c,f,--admin,a:1", "kvway explain: --cold asks no router, which alone knows keys; leave out --admin\n"},
	{"--cold,-c,f,--key-name,a", "kvway explain: --cold asks no router, which alone knows keys; leave out --key-name\n"},
	{"--cold,-c,f,--ca,a", "kvway explain: --cold asks no router, which alone knows keys; leave out --ca, --cert, --key and"},
	{"--path,v1", "kvway explain: --path: found `v1`"},
	{"--path,/a,--path,/b", "kvway explain: --path was given twice\n"},
	{"-H,x", "kvway explain: --header: expected NAME: VALUE"},
	{"-H,:x", "kvway explain: --header: expected NAME: VALUE"},
	{"-H,a:b\r\nc:d", "kvway explain: --header: expected NAME: VALUE"},
	{"-H,a:1,-H,a:1,-H,a:1,-H,a:1,-H,a:1,-H,a:1,-H,a:1,-H,a:1,-H,a:1,-H,a:1,-H,a:1,-H,a:1,-H,a:1,"
	 "-H,a:1,-H,a:1,-H,a:1,-H,a:1",
		"kvway explain: more than 16 headers\n"},
	{"--jsn", "kvway explain: unknown flag --jsn; did you mean `--json`?\n"},
	{"--json=1", "kvway explain: --json=1: this flag takes no value\n"},
	{"-x", "kvway explain: unknown flag -x\n"},
	{"request.json", "kvway explain: found `request.json`, expected flags only; the request is read from standard input"},
};

START_TEST(test_wrong_usage)
{
	struct called called = call(wrongs[_i].line);

	ck_assert(!called.go_on);
	ck_assert_int_eq(called.status, KVW_EXIT_USAGE);
	ck_assert_str_eq(called.out, "");
	ck_assert_msg(strncmp(called.err, wrongs[_i].says, strlen(wrongs[_i].says)) == 0,
		"said: %s\nwanted: %s", called.err, wrongs[_i].says);
	ck_assert_ptr_nonnull(strstr(called.err, "Try `kvway explain --help`.\n"));
	called_release(&called);
}
END_TEST

START_TEST(test_help)
{
	struct called called = call("-h,--nonsense");

	ck_assert(!called.go_on);
	ck_assert_int_eq(called.status, KVW_EXIT_OK);
	ck_assert_str_eq(called.err, "");
	ck_assert_ptr_nonnull(strstr(called.out, "Usage:"));
	called_release(&called);
}
END_TEST

/* What is printed of this JSON; NULL: it is no explanation. Caller frees. */
static char *table_of(const char *json)
{
	char *text;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	enum kvw_err err = kvw_explain_table_print(kvw_slice_of(json), out);

	fclose(out);
	if (err == KVW_OK)
		return text;
	ck_assert_int_eq(err, KVW_EPROTO);
	ck_assert_str_eq(text, "");
	free(text);
	return NULL;
}

START_TEST(test_table)
{
	char *text = table_of(
		"{\"strategy\":\"s\",\"cold\":false,\"path\":\"/p\",\"model\":\"m\",\"body_read\":true,"
		"\"prompt_tokens\":1200,\"predicted_cached_tokens\":1000,\"worker\":\"http://b:1\","
		"\"reason\":\"prefix\",\"why\":\"because\",\"workers\":["
		"{\"worker\":\"http://a:1\",\"verdict\":\"other_model\"},"
		"{\"worker\":\"http://b:1\",\"verdict\":\"chosen\",\"hit_tokens\":1000,\"queue_ms\":0,"
		"\"prefill_ms\":12.344,\"others_ms\":1.006,\"context_ms\":0.25,\"evict_ms\":0.5,\"total_ms\":13.6,\"in_flight\":3}]}");

	ck_assert_ptr_nonnull(text);
	ck_assert_str_eq(text,
		"Strategy s, model m, POST /p, about 1200 tokens.\n"
		"\n"
		"worker          hit   queue ms  prefill ms  others ms  context ms  evict ms   total ms  in flight  "
		"verdict\n"
		"http://a:1        -          -           -          -           -         -          -          -  "
		"other_model\n"
		"http://b:1     1000       0.00       12.34       1.01        0.25      0.50      13.60          3  "
		"chosen\n"
		"\n"
		"http://b:1 would serve it (prefix): because; 1000 tokens of it are expected to be "
		"cached.\n");
	free(text);
}
END_TEST

START_TEST(test_table_of_text_that_is_none)
{
	static const char *const texts[] = {"", "[]", "{}", "<html>", "{\"workers\":[]}",
		"{\"worker\":\"x\"}", "{\"worker\":\"x\",\"workers\":{}}", "{\"worker\":1,\"workers\":[]}"};
	char *text;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		ck_assert_ptr_null(table_of(texts[i]));
	/* Strange, but no harm: members of wrong types, and a name that would move the cursor. */
	text = table_of("{\"worker\":\"x\",\"model\":\"\\u001b[2J\",\"workers\":[1,{\"worker\":2,"
			"\"hit_tokens\":\"many\"}]}");
	ck_assert_ptr_nonnull(text);
	ck_assert_ptr_null(strchr(text, '\x1b'));
	free(text);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("explain");

	tcase_add_test(tc, test_nothing_given);
	tcase_add_test(tc, test_everything_given);
	tcase_add_loop_test(tc, test_wrong_usage, 0, (int)(sizeof(wrongs) / sizeof(wrongs[0])));
	tcase_add_test(tc, test_help);
	tcase_add_test(tc, test_table);
	tcase_add_test(tc, test_table_of_text_that_is_none);
	return run_tcase("explain", tc);
}
