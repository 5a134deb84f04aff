/*
 * command_test.c - `kvway key`: what it makes fits what it checks, and nothing of a key is where it should not be.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "auth/command.h"
#include "tests/unit/suite.h"

static char *out, *err;

/* The exit status. Words end with NULL. */
static int run(const char *input, const char *const *words)
{
	char *argv[8] = {(char *)"key"};
	size_t out_len = 0, err_len = 0;
	FILE *to_out, *to_err, *in = tmpfile();
	int argc = 1, status;

	free(out);
	free(err);
	to_out = open_memstream(&out, &out_len);
	to_err = open_memstream(&err, &err_len);
	fputs(input, in);
	rewind(in);
	for (; words[argc - 1] != NULL; argc++)
		argv[argc] = (char *)(uintptr_t)words[argc - 1];
	status = kvw_key_command(argc, argv, in, to_out, to_err);
	fclose(to_out);
	fclose(to_err);
	fclose(in);
	return status;
}

#define RUN(input, ...) run(input, (const char *const[]){__VA_ARGS__, NULL})

START_TEST(a_new_key_is_found_in_its_file)
{
	char path[] = "/tmp/kvw-key-XXXXXX", key[128];
	int fd = mkstemp(path);
	FILE *file = fdopen(fd, "w");

	ck_assert_int_eq(RUN("", "new", "alice", "--tenant", "lab", "--expires", "2999-01-01"), 0);
	ck_assert_int_eq(sscanf(strstr(err, "\n"), " %127s", key), 1);
	ck_assert_int_eq(strncmp(key, "sk-kvway-", 9), 0);
	ck_assert_uint_eq(strlen(key), 9 + 44);
	ck_assert_ptr_null(strstr(out, key));
	ck_assert_ptr_nonnull(strstr(out, "  - name: alice\n"));
	ck_assert_ptr_nonnull(strstr(out, "    tenant: lab\n"));
	fprintf(file, "keys:\n%s", out);
	fclose(file);

	ck_assert_int_eq(RUN("", "check", path), 0);
	ck_assert_ptr_nonnull(strstr(out, ": ok, 1 key\n"));
	ck_assert_int_eq(RUN(key, "check", path, "-"), 0);
	ck_assert_ptr_nonnull(strstr(out, "name: alice\ntenant: lab\n"));
	ck_assert_ptr_null(strstr(out, key));
	strcat(key, "x\n");
	ck_assert_int_eq(RUN(key, "check", path, "-"), 1);
	ck_assert_ptr_null(strstr(err, key));
	ck_assert_int_eq(RUN("", "check", path, "-"), 1);
	unlink(path);
	ck_assert_int_eq(RUN("", "check", path), 1);
	ck_assert_ptr_nonnull(strstr(err, "cannot be read"));
}
END_TEST

START_TEST(no_key_is_made_twice)
{
	char first[128], second[128];

	ck_assert_int_eq(RUN("", "new", "a"), 0);
	ck_assert_int_eq(sscanf(strstr(err, "\n"), " %127s", first), 1);
	ck_assert_int_eq(RUN("", "new", "a"), 0);
	ck_assert_int_eq(sscanf(strstr(err, "\n"), " %127s", second), 1);
	ck_assert_str_ne(first, second);
}
END_TEST

START_TEST(an_expired_key_is_named_as_one)
{
	char path[] = "/tmp/kvw-key-XXXXXX";
	FILE *file = fdopen(mkstemp(path), "w");

	fputs("keys: [{name: a, expires: 2020-01-01,\n  sha256: "
	      "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8}]\n",
		file);
	fclose(file);
	ck_assert_int_eq(RUN("password\r\n", "check", path, "-"), 1);
	ck_assert_ptr_nonnull(strstr(err, "has expired"));
	unlink(path);
}
END_TEST

START_TEST(wrong_words_are_refused)
{
	ck_assert_int_eq(RUN("", "nothing"), 2);
	ck_assert_int_eq(run("", (const char *const[]){NULL}), 2);
	ck_assert_int_eq(RUN("", "new"), 2);
	ck_assert_int_eq(RUN("", "new", "a", "b"), 2);
	ck_assert_int_eq(RUN("", "new", "a", "--tenant"), 2);
	ck_assert_int_eq(RUN("", "new", "a", "--color", "red"), 2);
	ck_assert_int_eq(RUN("", "new", "a: b"), 2);
	ck_assert_int_eq(RUN("", "new", "a:b"), 1);
	ck_assert_int_eq(RUN("", "new", "a", "--expires", "soon"), 1);
	ck_assert_str_eq(out, "");
	ck_assert_int_eq(RUN("", "check"), 2);
	ck_assert_int_eq(RUN("", "check", "a", "b"), 2);
	ck_assert_int_eq(RUN("", "--help"), 0);
	ck_assert_ptr_nonnull(strstr(out, "kvway key new NAME"));
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("command");
	int failed;

	tcase_add_test(tcase, a_new_key_is_found_in_its_file);
	tcase_add_test(tcase, no_key_is_made_twice);
	tcase_add_test(tcase, an_expired_key_is_named_as_one);
	tcase_add_test(tcase, wrong_words_are_refused);
	failed = run_tcase("auth-command", tcase);
	free(out);
	free(err);
	return failed;
}
