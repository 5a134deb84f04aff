/*
 * options_test.c - the command lines of `kvway groups` and `kvway compare`.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "groups/options.h"
#include "tests/unit/suite.h"

/* Splits a line at spaces, and parses it. */
static enum kvw_exit parse(const char *line, struct kvw_groups_options *options, bool *go_on)
{
	static char words[512];
	static char *argv[32];
	char *said = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&said, &size);
	enum kvw_exit status;
	int argc = 0;

	strcpy(words, line);
	for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " "))
		argv[argc++] = word;
	argv[argc] = NULL;
	*go_on = kvw_groups_options_parse(argc, argv, out, out, options, &status);
	fclose(out);
	free(said);
	return status;
}

START_TEST(test_good_lines)
{
	struct kvw_groups_options options;
	bool go_on;

	ck_assert_int_eq(parse("groups", &options, &go_on), KVW_EXIT_OK);
	ck_assert(go_on && options.verb == KVW_GROUPS_LIST);
	(void)parse("groups list --json", &options, &go_on);
	ck_assert(go_on && options.verb == KVW_GROUPS_LIST && options.router.json);
	(void)parse("groups weight llama stable=80 a=b=0.5 --admin a:1", &options, &go_on);
	ck_assert(go_on && options.verb == KVW_GROUPS_WEIGHT && options.name_count == 3);
	ck_assert_str_eq(options.names[0], "llama");
	(void)parse("compare stable canary --model llama --interval 10s", &options, &go_on);
	ck_assert(go_on && options.verb == KVW_GROUPS_COMPARE && options.interval_ms == 10000);
	ck_assert_int_eq(parse("compare --help", &options, &go_on), KVW_EXIT_OK);
	ck_assert(!go_on);
}
END_TEST

static const char *const wrong[] = {"groups delete", "groups list all", "groups weight", "groups weight llama",
	"groups weight llama canary", "groups weight llama =1", "groups weight llama canary=-1",
	"groups weight llama canary=1x", "groups --model llama", "groups --interval 1s", "compare", "compare a",
	"compare a b c", "compare a b --interval 0s", "compare a b --interval soon", "compare a b --interval 25h",
	"compare a b --nosuch", "compare a b --admin x:1 -c f"};

START_TEST(test_wrong_lines)
{
	struct kvw_groups_options options;
	bool go_on;

	ck_assert_int_eq(parse(wrong[_i], &options, &go_on), KVW_EXIT_USAGE);
	ck_assert(!go_on);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("options");

	tcase_add_test(tcase, test_good_lines);
	tcase_add_loop_test(tcase, test_wrong_lines, 0, sizeof(wrong) / sizeof(wrong[0]));
	return run_tcase("groups_options", tcase);
}
