/*
 * outage_test.c - a daemon without one of its tiers: a shared one that does not answer, a store that another
 * process owns.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bed.h"
#include "tests/unit/suite.h"

static struct bed bed;

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static uint64_t stores_of(uint32_t tier)
{
	struct kvt_stats stats = {.size = sizeof(stats)};

	ck_assert_int_eq(kvt_stats(kvt_objects_cache(bed.objects), &stats), KVT_OK);
	return stats.tiers[tier].stores;
}

/* With a store, and a shared tier that does not answer. */
static void open_in_outage(void)
{
	bed_use_store(&bed);
	bed.cache.l2_url = "redis://127.0.0.1:1";
	bed.cache.breaker_open_ns = 600 * SECOND;
	bed_open(&bed);
	bed_attach(&bed);
}

/* A shared tier that has not answered since the start: names below memory are not known, so that objects are kept in
 * memory, can be replaced there, and nothing is said to be missing. */
START_TEST(objects_stay_in_memory_until_the_shared_tier_has_answered)
{
	struct lease l;
	char key[16];

	bed_init(&bed, 32 * MIB);
	bed.options.memory_only_bytes = 65536;
	open_in_outage();
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(lease(&bed, "b", "none", SECOND, SECOND, &l), KVT_ECANCELED);
	for (uint64_t i = 0; i < 100; i++) {
		snprintf(key, sizeof(key), "k%d", (int)i);
		ck_assert_int_eq(put(&bed, "b", key, i, 4096, NULL), KVT_OK);
	}
	ck_assert_int_eq(put(&bed, "b", "k7", 1007, 4096, NULL), KVT_OK);
	ck_assert_int_eq(get(&bed, "b", "k7", 1007), KVT_OK);
	ck_assert_int_eq(get(&bed, "b", "k99", 99), KVT_OK);
	ck_assert_int_eq(put(&bed, "b", "large", 1, 65537, NULL), KVT_OK);
	ck_assert_int_eq(put(&bed, "b", "large", 2, 65537, NULL), KVT_BUSY); /* others could not know */
	ck_assert_int_eq(get(&bed, "b", "large", 1), KVT_OK);
	ck_assert_uint_eq(stores_of(KVT_TIER_NVME), 0);
	bed_close(&bed);
	bed_clear(&bed);
}
END_TEST

static void show(void *user, const struct kvt_object_entry *entry)
{
	(void)entry;
	++*(size_t *)user;
}

static size_t listed(void)
{
	size_t count = 0;
	bool more;

	(void)kvt_objects_list(bed.objects, KVW_SLICE("b"), KVW_SLICE(""), 100, show, &count, &more);
	return count;
}

START_TEST(names_of_a_store_of_another_process_are_not_forgotten)
{
	static struct bed owner;

	bed_init(&bed, 4 * MIB);
	bed_use_store(&bed);
	bed.cache.nvme_lock_wait_ns = 0;
	bed.cache.breaker_open_ns = SECOND / 50;
	bed_init(&owner, 4 * MIB);
	owner.cache = bed.cache;
	bed_open(&bed);
	ck_assert_int_eq(put(&bed, "b", "one", 1, 128, NULL), KVT_OK);
	ck_assert_int_eq(put(&bed, "b", "two", 2, 128, NULL), KVT_OK);
	bed_close(&bed);
	bed_open(&owner);
	bed_open(&bed);
	usleep(300000); /* a sweep looks at all names */
	ck_assert_uint_eq(listed(), 0);
	bed_close(&owner);
	for (int64_t until = now() + 60 * (int64_t)SECOND; listed() != 2 && now() < until;)
		usleep(10000);
	ck_assert_uint_eq(listed(), 2);
	bed_close(&bed);
	bed_clear(&owner);
	bed_clear(&bed);
}
END_TEST

int main(void)
{
	TCase *cases = tcase_create("outage");

	tcase_set_timeout(cases, 280);
	tcase_add_test(cases, objects_stay_in_memory_until_the_shared_tier_has_answered);
	tcase_add_test(cases, names_of_a_store_of_another_process_are_not_forgotten);
	return run_tcase("cache/daemon/outage", cases);
}
