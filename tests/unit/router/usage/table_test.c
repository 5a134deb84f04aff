/*
 * table_test.c - users and what they have used, in tables that grow and in full ones.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/suite.h"
#include "usage/table.h"

static struct kvw_usage_table table;

static void teardown(void)
{
	kvw_usage_table_finish(&table);
}

static struct kvw_user user(const char *key, const char *model)
{
	return (struct kvw_user){kvw_slice_of(key), KVW_SLICE("t"), kvw_slice_of(model)};
}

static struct kvw_usage_entry *add(const char *key, const char *model, uint64_t prompt)
{
	const struct kvw_user who = user(key, model);
	const struct kvw_used used = {{[KVW_USED_REQUESTS] = 1, [KVW_USED_PROMPT] = prompt}};

	return kvw_usage_table_add(&table, &who, &used);
}

START_TEST(a_table_grows_and_finds_all)
{
	char key[32];

	ck_assert(kvw_usage_table_init(&table, 5000, false));
	for (int round = 0; round < 2; round++)
		for (int i = 0; i < 5000; i++) {
			(void)snprintf(key, sizeof(key), "key-%d", i);
			ck_assert_ptr_nonnull(add(key, "m", (uint64_t)i));
		}
	ck_assert_uint_eq(table.count, 5000);
	for (int i = 0; i < 5000; i++) {
		struct kvw_user who;
		struct kvw_usage_entry *entry;

		(void)snprintf(key, sizeof(key), "key-%d", i);
		who = user(key, "m");
		entry = kvw_usage_table_find(&table, &who);
		ck_assert_ptr_nonnull(entry);
		ck_assert_uint_eq(entry->used.n[KVW_USED_PROMPT], 2 * (uint64_t)i);
		who = kvw_usage_entry_user(&table, entry);
		ck_assert(kvw_slice_equal(who.key, kvw_slice_of(key)));
	}
	ck_assert(!kvw_used_any(&table.other));
}
END_TEST

START_TEST(a_full_table_counts_the_rest_as_other)
{
	ck_assert(kvw_usage_table_init(&table, 2, _i == 1));
	ck_assert_ptr_nonnull(add("a", "m", 1));
	ck_assert_ptr_nonnull(add("b", "m", 2));
	ck_assert_ptr_null(add("c", "m", 4));
	ck_assert_ptr_null(add("a", "other model", 8));
	ck_assert_ptr_nonnull(add("a", "m", 16));
	ck_assert_uint_eq(table.other.n[KVW_USED_PROMPT], 12);
	ck_assert_uint_eq(table.other.n[KVW_USED_REQUESTS], 2);
	ck_assert_uint_eq(table.others, 1);
	kvw_usage_table_clear(&table);
	ck_assert_uint_eq(table.count + table.others, 0);
	ck_assert_ptr_nonnull(add("c", "m", 4));
	ck_assert(!kvw_used_any(&table.other));
}
END_TEST

START_TEST(a_fixed_table_with_the_longest_names_allocates_nothing)
{
	char key[KVW_USER_NAME_MOST + 1], model[300];

	memset(model, 'm', sizeof(model));
	ck_assert(kvw_usage_table_init(&table, 64, true));
	for (int i = 0; i < 64; i++) {
		const struct kvw_used used = {{[KVW_USED_REQUESTS] = 1}};
		struct kvw_user who = {{key, sizeof(key) - 1}, {key, sizeof(key) - 1},
			{model, sizeof(model)}};

		(void)snprintf(key, sizeof(key), "%068d", i);
		(void)kvw_usage_table_add(&table, &who, &used);
	}
	ck_assert_uint_le(table.text_len, table.text_room);
	ck_assert_uint_gt(table.count, 16);
	ck_assert_uint_eq(table.count + table.other.n[KVW_USED_REQUESTS], 64);
	ck_assert_uint_eq(table.entries[0].model_len, KVW_USER_MODEL_MOST);
}
END_TEST

START_TEST(tables_are_merged_whole_or_for_a_key)
{
	const struct kvw_slice key = KVW_SLICE("a");
	struct kvw_usage_table sum;

	ck_assert(kvw_usage_table_init(&table, 3, false));
	add("a", "m", 1);
	add("a", "n", 2);
	add("b", "m", 4);
	add("c", "m", 8);
	ck_assert(kvw_usage_table_init(&sum, 100, false));
	kvw_usage_table_merge(&sum, &table, &key);
	ck_assert_uint_eq(sum.count, 2);
	ck_assert(!kvw_used_any(&sum.other));
	kvw_usage_table_merge(&sum, &table, NULL);
	ck_assert_uint_eq(sum.count, 3);
	ck_assert_uint_eq(sum.entries[0].used.n[KVW_USED_PROMPT] +
				  sum.entries[1].used.n[KVW_USED_PROMPT], 6);
	ck_assert_uint_eq(sum.other.n[KVW_USED_PROMPT], 8);
	ck_assert_uint_eq(sum.others, 1);
	kvw_usage_table_finish(&sum);
}
END_TEST

/* Those of tokens are "jwt:" and a claim of 64 bytes at most (auth/jwt.h). */
START_TEST(the_longest_names_of_keys_are_told_apart)
{
	char names[2][69];
	struct kvw_usage_table sum;

	ck_assert(kvw_usage_table_init(&table, 3, false));
	for (int i = 0; i < 2; i++) {
		(void)snprintf(names[i], sizeof(names[i]), "jwt:%064d", i);
		add(names[i], "m", 1);
	}
	ck_assert_uint_eq(table.count, 2);
	for (int i = 0; i < 2; i++) {
		const struct kvw_slice key = kvw_slice_of(names[i]);

		ck_assert(kvw_usage_table_init(&sum, 3, false));
		kvw_usage_table_merge(&sum, &table, &key);
		ck_assert_uint_eq(sum.count, 1);
		kvw_usage_table_finish(&sum);
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("table");

	tcase_add_checked_fixture(tc, NULL, teardown);
	tcase_add_test(tc, a_table_grows_and_finds_all);
	tcase_add_loop_test(tc, a_full_table_counts_the_rest_as_other, 0, 2);
	tcase_add_test(tc, a_fixed_table_with_the_longest_names_allocates_nothing);
	tcase_add_test(tc, tables_are_merged_whole_or_for_a_key);
	tcase_add_test(tc, the_longest_names_of_keys_are_told_apart);
	return run_tcase("usage-table", tc);
}
