/*
 * find_test.c - what memmem finds, in buffers that end with their last byte.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/find.h"
#include "tests/unit/suite.h"

#define LONGEST 200

/* Three different bytes, so that most places are right in part. */
static void fill(char *at, size_t len)
{
	for (size_t i = 0; i < len; i++)
		at[i] = "\"ab"[random() % 3];
}

START_TEST(random_texts_are_found_where_memmem_finds_them)
{
	char what[24];
	size_t found = 0;

	srandom(7);
	for (int round = 0; round < 40000; round++) {
		size_t len = (size_t)random() % LONGEST,
		       size = 4 + (size_t)random() % (sizeof(what) - 4);
		char *data = malloc(len == 0 ? 1 : len);
		const char *at;

		ck_assert_ptr_nonnull(data);
		fill(data, len);
		fill(what, size);
		if (len > size && random() % 2 == 0)
			memcpy(data + (size_t)random() % (len - size + 1), what, size);
		at = kvw_find(data, len, (struct kvw_slice){what, size});
		ck_assert_ptr_eq(at, memmem(data, len, what, size));
		found += at != NULL;
		free(data);
	}
	ck_assert_uint_gt(found, 15000);
}
END_TEST

START_TEST(nothing_is_found_in_nothing)
{
	ck_assert_ptr_null(kvw_find(NULL, 0, KVW_SLICE("\"usage\"")));
	ck_assert_ptr_null(kvw_find("\"usag", 5, KVW_SLICE("\"usage\"")));
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("find");

	tcase_add_test(tcase, random_texts_are_found_where_memmem_finds_them);
	tcase_add_test(tcase, nothing_is_found_in_nothing);
	return run_tcase("find", tcase);
}
