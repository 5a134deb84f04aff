/*
 * memo_test.c - calibrations in a file: found again, replaced, bounded, and nothing else believed.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu/memo.h"
#include "tests/unit/suite.h"

static char text[KVT_GPU_MEMO_BYTES], next[KVT_GPU_MEMO_BYTES];

static bool find(const char *in, const char *key, const char *want)
{
	char digits[KVT_GPU_MEMO_DIGITS];

	return kvt_gpu_memo_find(in, strlen(in), key, digits) &&
		memcmp(digits, want, sizeof(digits)) == 0;
}

START_TEST(lines_are_found_and_nothing_else_is)
{
	const char *in = "kvtier-gpu 1 a 123321\nkvtier-gpu 1 b 111111\nkvtier-gpu 1 a 222222\n";
	char digits[KVT_GPU_MEMO_DIGITS];

	ck_assert(find(in, "a", "222222"));
	ck_assert(find(in, "b", "111111"));
	ck_assert(find("kvtier-gpu 1 a 123321", "a", "123321")); /* without its end */
	ck_assert(!kvt_gpu_memo_find(in, strlen(in), "c", digits));
	ck_assert(!find("kvtier-gpu 1 a 023321\n", "a", "023321"));
	ck_assert(!find("kvtier-gpu 1 a 423321\n", "a", "423321"));
	ck_assert(!find("kvtier-gpu 1 a 12332\n", "a", "12332\n"));
	ck_assert(!find("kvtier-gpu 2 a 123321\n", "a", "123321"));
	ck_assert(!find("kvtier-gpu 1 a b 123321\n", "a b", "123321"));
	ck_assert(!find(" kvtier-gpu 1 a 123321\n", "a", "123321"));
	ck_assert(!find("", "a", "123321"));
}
END_TEST

START_TEST(an_update_replaces_one_line)
{
	const char *in = "rubbish\nkvtier-gpu 1 a 123321\nkvtier-gpu 1 b 111111\n";
	size_t len = kvt_gpu_memo_update(in, strlen(in), "a", "333333", next);

	next[len] = '\0';
	ck_assert_str_eq(next, "kvtier-gpu 1 b 111111\nkvtier-gpu 1 a 333333\n");
}
END_TEST

START_TEST(the_oldest_lines_go)
{
	size_t len = 0;
	char key[32];

	for (int i = 0; i < 5000; i++) {
		snprintf(key, sizeof(key), "device/%d", i);
		len = kvt_gpu_memo_update(text, len, key, "123123", next);
		ck_assert_uint_le(len, KVT_GPU_MEMO_BYTES);
		memcpy(text, next, len);
	}
	ck_assert_uint_gt(len, KVT_GPU_MEMO_BYTES - 100);
	text[len - 1] = '\0';
	ck_assert(find(text, "device/4999", "123123"));
	ck_assert(find(text, "device/3500", "123123"));
	ck_assert(!find(text, "device/0", "123123"));
}
END_TEST

START_TEST(files)
{
	char folder[] = "/tmp/kvt-memo-XXXXXX", path[128];
	char digits[KVT_GPU_MEMO_DIGITS];

	ck_assert_ptr_nonnull(mkdtemp(folder));
	ck_assert_int_eq(setenv("XDG_CACHE_HOME", folder, 1), 0);
	ck_assert(!kvt_gpu_memo_load(NULL, "a", digits));
	ck_assert(kvt_gpu_memo_save(NULL, "a", "112233"));
	ck_assert(kvt_gpu_memo_save(NULL, "b", "332211"));
	ck_assert(kvt_gpu_memo_load(NULL, "a", digits));
	ck_assert_mem_eq(digits, "112233", 6);
	ck_assert(!kvt_gpu_memo_save("", "a", "112233"));
	ck_assert(!kvt_gpu_memo_load("", "a", digits));
	ck_assert(!kvt_gpu_memo_save("/proc/nothing/here", "a", "112233"));
	snprintf(path, sizeof(path), "%s/kvtier/gpu", folder);
	ck_assert_int_eq(truncate(path, KVT_GPU_MEMO_BYTES * 2), 0); /* not one of ours */
	ck_assert(!kvt_gpu_memo_load(NULL, "a", digits));
	ck_assert(kvt_gpu_memo_save(NULL, "a", "112233"));
	ck_assert(kvt_gpu_memo_load(NULL, "a", digits));
	ck_assert_int_eq(unlink(path), 0);
	snprintf(path, sizeof(path), "%s/kvtier", folder);
	ck_assert_int_eq(rmdir(path), 0);
	ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

int main(void)
{
	TCase *one = tcase_create("memo");

	tcase_set_timeout(one, 60);
	tcase_add_test(one, lines_are_found_and_nothing_else_is);
	tcase_add_test(one, an_update_replaces_one_line);
	tcase_add_test(one, the_oldest_lines_go);
	tcase_add_test(one, files);
	return run_tcase("cache/gpu/memo", one);
}
