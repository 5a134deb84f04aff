/*
 * radix_table_test.c - the table against a plain list, when crowded, and when emptied.
 */
#include <stdlib.h>
#include <string.h>

#include "radix_table.h"
#include "support.h"

#define SHARD_BITS    2
#define SHARD_BUCKETS 16
#define KEYS          400 /* of 448 entries in 64 buckets, without the spare ones */

static void make_table(struct kvw_table *table, void **memory)
{
	uint64_t bytes = kvw_table_bytes(SHARD_BITS, SHARD_BUCKETS);

	*memory = aligned_alloc(64, bytes);
	ck_assert_ptr_nonnull(*memory);
	memset(*memory, 0, bytes);
	kvw_table_init(table, *memory, SHARD_BITS, SHARD_BUCKETS, 7);
}

static uint64_t marks_sum(const struct kvw_table *table)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < (SHARD_BUCKETS + KVW_TABLE_PROBES) << SHARD_BITS; i++)
		sum |= table->marks[i];
	return sum;
}

static bool admits(const struct kvw_table *table, uint64_t hash)
{
	uint64_t spread = kvw_table_spread(table, hash);

	return kvw_table_admits(
		table, (uint32_t)kvw_table_home(table, spread), kvw_table_fingerprint(spread));
}

START_TEST(entries_carry_all_fields)
{
	struct kvw_table table;
	void *memory = NULL;
	uint64_t entry = 0;

	make_table(&table, &memory);
	ck_assert_uint_eq(kvw_table_find(&table, 5), 0);
	ck_assert_int_eq(kvw_table_insert(&table, 5, 0xFFFFFFFE, 14, 13), KVW_OK);
	ck_assert_int_eq(kvw_table_insert(&table, 5, 9, 1, 1), KVW_EINVAL);
	entry = kvw_table_find(&table, 5);
	ck_assert_uint_eq(kvw_entry_node(entry), 0xFFFFFFFE);
	ck_assert_uint_eq(kvw_entry_length(entry), 14);
	ck_assert_uint_eq(kvw_entry_offset(entry), 13);
	ck_assert(admits(&table, 5));
	kvw_table_remove(&table, 5, 8); /* another node's */
	ck_assert_uint_ne(kvw_table_find(&table, 5), 0);
	kvw_table_remove(&table, 5, 0xFFFFFFFE);
	ck_assert_uint_eq(kvw_table_find(&table, 5), 0);
	ck_assert_uint_eq(marks_sum(&table), 0);
	free(memory);
}
END_TEST

/* Crowded far beyond what it is sized for: what was inserted is found, what was removed is not,
 * and emptied it is as new. */
START_TEST(equals_a_list_when_crowded)
{
	struct kvw_table table;
	void *memory = NULL;
	bool in[KEYS] = {false};
	uint64_t dice = (uint64_t)_i + 1;
	unsigned refused = 0;
	unsigned admitted = 0;

	make_table(&table, &memory);
	for (unsigned step = 0; step < 40000; step++) {
		unsigned k = (unsigned)(test_random(&dice) % KEYS);
		uint64_t hash = k * UINT64_C(0x1000001);
		uint64_t entry = kvw_table_find(&table, hash);

		EXPECT(kvw_entry_node(entry) == (in[k] ? k + 1 : 0));
		EXPECT(!in[k] || admits(&table, hash));
		if (in[k] && test_random(&dice) % 2 == 0) {
			kvw_table_remove(&table, hash, k + 1);
			in[k] = false;
		} else if (!in[k]) {
			enum kvw_err err = kvw_table_insert(&table, hash, k + 1, 1 + k % 14, 0);

			EXPECT(err == KVW_OK || err == KVW_ELIMIT);
			in[k] = err == KVW_OK;
			refused += err != KVW_OK;
		}
		admitted += admits(&table, test_random(&dice));
	}
	ck_assert_uint_lt(refused, 400);
	ck_assert_uint_lt(admitted, 20000); /* or the marks would say nothing */
	for (unsigned k = 0; k < KEYS; k++)
		if (in[k])
			kvw_table_remove(&table, k * UINT64_C(0x1000001), k + 1);
	ck_assert_uint_eq(marks_sum(&table), 0);
	free(memory);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("radix_table");
	TCase *tcase = tcase_create("table");
	SRunner *runner = srunner_create(suite);
	int failed = 0;

	tcase_add_test(tcase, entries_carry_all_fields);
	tcase_add_loop_test(tcase, equals_a_list_when_crowded, 0, 4);
	suite_add_tcase(suite, tcase);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
