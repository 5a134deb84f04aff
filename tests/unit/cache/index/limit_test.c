/*
 * limit_test.c - limits of single tenants: in place of the general one, also for tenants without
 * one, set before and after there is anything, and bounded in number.
 */
#include "support.h"
#include "tests/unit/suite.h"

#define NONE UINT64_MAX

static struct kvt_entry_info info_for(uint64_t tenant, uint64_t charge)
{
	struct kvt_entry_info info = info_of(charge);

	info.tenant = tenant_of(tenant);
	return info;
}

static enum kvt_status put(struct bed *bed, uint64_t number, uint64_t tenant, uint64_t charge)
{
	struct kvt_entry_info info = info_for(tenant, charge);

	return bed_put(bed, number, NONE, &info);
}

static void limit(struct bed *bed, uint64_t tenant, uint64_t charge)
{
	struct kvt_tenant t = tenant_of(tenant);

	ck_assert_int_eq(kvt_index_limit_tenant(bed->index, &t, charge), KVT_OK);
}

START_TEST(the_largest_tenants_are_listed)
{
	struct kvt_tenant_list list;
	struct bed bed;

	bed_open(&bed, &(struct bed_options){.max_entries = 64, .capacity = 1000});
	for (uint64_t i = 0; i < 30; i++) /* tenant 0 has entries of 10, tenant 4 of 14 bytes */
		ck_assert_int_eq(put(&bed, i, i % 5, 10 + i % 5), KVT_OK);
	kvt_index_tenants(bed.index, 2, &list);
	ck_assert_uint_eq(list.tenants, 5);
	ck_assert_uint_eq(list.count, 2);
	ck_assert_mem_eq(&list.at[0].tenant, (struct kvt_tenant[]){tenant_of(4)}, 16);
	ck_assert_uint_eq(list.at[0].bytes, 6 * 14);
	ck_assert_uint_eq(list.at[1].bytes, 6 * 13);
	ck_assert_uint_eq(list.at[1].chunks, 6);
	ck_assert_uint_eq(list.others.chunks, 18);
	ck_assert_uint_eq(list.others.bytes, 6 * (10 + 11 + 12));
	ck_assert_uint_eq(kvt_index_erase_tenant(bed.index, &list.at[0].tenant), 6);
	kvt_index_tenants(bed.index, 0, &list);
	ck_assert_uint_eq(list.tenants, 4);
	ck_assert_uint_eq(list.count, 0);
	ck_assert_uint_eq(list.others.chunks, 24);
	bed_close(&bed);
}
END_TEST

START_TEST(one_tenant_is_limited_and_others_are_not)
{
	struct kvt_index_stats stats;
	struct bed bed;

	bed_open(&bed, &(struct bed_options){.max_entries = 64, .capacity = 1000});
	limit(&bed, 1, 30);
	for (uint64_t i = 0; i < 5; i++) {
		ck_assert_int_eq(put(&bed, 100 + i, 1, 10), KVT_OK);
		ck_assert_int_eq(put(&bed, 200 + i, 2, 10), KVT_OK);
	}
	ck_assert(!bed_has(&bed, 100) && !bed_has(&bed, 101)); /* its own oldest went */
	ck_assert(bed_has(&bed, 102) && bed_has(&bed, 103) && bed_has(&bed, 104));
	for (uint64_t i = 0; i < 5; i++)
		ck_assert(bed_has(&bed, 200 + i));
	ck_assert_int_eq(put(&bed, 105, 1, 31), KVT_FULL);
	ck_assert(bed_has(&bed, 104)); /* nothing was given up for what cannot be */
	ck_assert(kvt_index_is_limited(bed.index, (struct kvt_entry_info[]){info_for(1, 31)}));
	ck_assert(!kvt_index_is_limited(bed.index, (struct kvt_entry_info[]){info_for(1, 30)}));
	ck_assert(kvt_index_count_limited(bed.index, (struct kvt_entry_info[]){info_for(1, 31)}));
	ck_assert(!kvt_index_count_limited(bed.index, (struct kvt_entry_info[]){info_for(2, 31)}));
	kvt_index_stats(bed.index, &stats);
	ck_assert_uint_eq(stats.refused, 1);
	ck_assert(!kvt_index_is_limited(bed.index, (struct kvt_entry_info[]){info_for(2, 2000)}));
	ck_assert(bed_has(&bed, 102) && bed_has(&bed, 104)); /* a question changes nothing */
	bed_close(&bed);
}
END_TEST

START_TEST(a_limit_that_comes_late_meets_what_is_there)
{
	struct bed bed;

	bed_open(&bed, &(struct bed_options){.max_entries = 64, .capacity = 1000});
	for (uint64_t i = 0; i < 6; i++)
		ck_assert_int_eq(put(&bed, i, 1, 10), KVT_OK);
	ck_assert_int_eq(put(&bed, 50, 2, 10), KVT_OK);
	limit(&bed, 1, 25);
	for (uint64_t i = 0; i < 6; i++)
		ck_assert(bed_has(&bed, i)); /* from the next put on */
	ck_assert_int_eq(put(&bed, 6, 1, 10), KVT_OK);
	for (uint64_t i = 0; i < 5; i++)
		ck_assert(!bed_has(&bed, i));
	ck_assert(bed_has(&bed, 5) && bed_has(&bed, 6) && bed_has(&bed, 50));
	limit(&bed, 1, 0); /* and goes again */
	for (uint64_t i = 7; i < 20; i++)
		ck_assert_int_eq(put(&bed, i, 1, 10), KVT_OK);
	ck_assert(bed_has(&bed, 5));
	bed_close(&bed);
}
END_TEST

START_TEST(it_holds_in_place_of_the_general_one)
{
	struct bed bed;

	bed_open(&bed,
		&(struct bed_options){.max_entries = 64, .capacity = 1000, .tenant_limit = 20});
	limit(&bed, 1, 40);
	limit(&bed, 2, 0);
	for (uint64_t i = 0; i < 6; i++) {
		ck_assert_int_eq(put(&bed, 100 + i, 1, 10), KVT_OK);
		ck_assert_int_eq(put(&bed, 200 + i, 2, 10), KVT_OK);
		ck_assert_int_eq(put(&bed, 300 + i, 3, 10), KVT_OK);
	}
	for (uint64_t i = 0; i < 6; i++) {
		ck_assert_int_eq(bed_has(&bed, 100 + i), i >= 2);
		ck_assert(bed_has(&bed, 200 + i));
		ck_assert_int_eq(bed_has(&bed, 300 + i), i >= 4);
	}
	/* also after the tenant was gone and came back */
	ck_assert_uint_eq(kvt_index_erase_all(bed.index), 12);
	ck_assert_int_eq(put(&bed, 1, 1, 41), KVT_FULL);
	ck_assert_int_eq(put(&bed, 1, 1, 40), KVT_OK);
	bed_close(&bed);
}
END_TEST

START_TEST(held_and_pinned_entries_stay_above_a_limit)
{
	struct kvt_key key = key_of(1), pinned = key_of(2);
	uint32_t entry;
	struct bed bed;

	bed_open(&bed, &(struct bed_options){.max_entries = 64, .capacity = 1000});
	limit(&bed, 1, 20);
	ck_assert_int_eq(put(&bed, 1, 1, 10), KVT_OK);
	ck_assert_int_eq(put(&bed, 2, 1, 10), KVT_OK);
	ck_assert_int_eq(kvt_index_hold(bed.index, &key, true, &entry), KVT_OK);
	ck_assert_uint_eq(kvt_index_pin(bed.index, &pinned, 1, true), 1);
	ck_assert_int_eq(put(&bed, 3, 1, 10), KVT_FULL);
	kvt_index_release(bed.index, entry);
	ck_assert_int_eq(put(&bed, 3, 1, 10), KVT_OK);
	ck_assert(!bed_has(&bed, 1) && bed_has(&bed, 2) && bed_has(&bed, 3));
	bed_close(&bed);
}
END_TEST

START_TEST(limits_are_bounded_in_number)
{
	struct kvt_tenant one;
	struct bed bed;

	bed_open(&bed, &(struct bed_options){.max_entries = 64, .capacity = 1000});
	for (uint64_t i = 0; i < KVT_TENANT_LIMITS; i++)
		limit(&bed, i, 10 + i % 5);
	one = tenant_of(KVT_TENANT_LIMITS);
	ck_assert_int_eq(kvt_index_limit_tenant(bed.index, &one, 10), KVT_FULL);
	limit(&bed, 17, 20); /* one that is there may change */
	ck_assert_int_eq(put(&bed, 1, 17, 20), KVT_OK);
	ck_assert_int_eq(put(&bed, 2, 18, 20), KVT_FULL);
	ck_assert_int_eq(put(&bed, 3, KVT_TENANT_LIMITS, 500), KVT_OK);
	bed_close(&bed);
}
END_TEST

int main(void)
{
	TCase *cases = tcase_create("limit");

	tcase_add_test(cases, the_largest_tenants_are_listed);
	tcase_add_test(cases, one_tenant_is_limited_and_others_are_not);
	tcase_add_test(cases, a_limit_that_comes_late_meets_what_is_there);
	tcase_add_test(cases, it_holds_in_place_of_the_general_one);
	tcase_add_test(cases, held_and_pinned_entries_stay_above_a_limit);
	tcase_add_test(cases, limits_are_bounded_in_number);
	return run_tcase("cache/index/limit", cases);
}
