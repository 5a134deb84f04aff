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

static uint32_t state_of(uint32_t tier)
{
	struct kvt_stats stats = {.size = sizeof(stats)};

	ck_assert_int_eq(kvt_stats(kvt_objects_cache(bed.objects), &stats), KVT_OK);
	return stats.tiers[tier].state;
}

static uint64_t stores_of(uint32_t tier)
{
	struct kvt_stats stats = {.size = sizeof(stats)};

	ck_assert_int_eq(kvt_stats(kvt_objects_cache(bed.objects), &stats), KVT_OK);
	return stats.tiers[tier].stores;
}

/* A store, and a shared tier that does not answer. */
static void open_in_outage(uint64_t bytes)
{
	bed_init(&bed, bytes);
	bed_use_store(&bed);
	bed.cache.l2_url = "redis://127.0.0.1:1";
	bed.cache.breaker_open_ns = 600 * SECOND;
	bed_open(&bed);
	bed_attach(&bed);
}

/* More of them than there are places for replaced objects, or operations. */
START_TEST(new_objects_are_stored_while_a_shared_tier_is_away)
{
	const uint64_t count = 1500;
	struct lease l;
	char key[16];

	open_in_outage(32 * MIB);
	for (int i = 0; i < 1000 && state_of(KVT_TIER_L2) != KVT_TIER_PAUSED; i++)
		ck_assert_int_eq(lease(&bed, "b", "none", SECOND, SECOND, &l), KVT_ECANCELED);
	ck_assert_int_eq(state_of(KVT_TIER_L2), KVT_TIER_PAUSED);
	for (uint64_t i = 0; i < count; i++) {
		snprintf(key, sizeof(key), "k%d", (int)i);
		ck_assert_int_eq(put(&bed, "b", key, i, 4096, NULL), KVT_OK);
		for (int tries = 0; tries < 6000 && stores_of(KVT_TIER_NVME) + 100 < i; tries++)
			usleep(10000); /* else memory loses what is not on disk yet */
	}
	ck_assert_uint_ge(stores_of(KVT_TIER_NVME) + 100, count);
	ck_assert_uint_eq(stats_of(&bed).outdated, count);
	ck_assert_uint_eq(stats_of(&bed).stored, count);
	for (uint64_t i = 0; i < count; i += 500) { /* of which memory has not all: from disk, if need be */
		snprintf(key, sizeof(key), "k%d", (int)(count - 1 - i));
		ck_assert_int_eq(get(&bed, "b", key, count - 1 - i), KVT_OK);
	}
	bed_close(&bed);
	bed_open(&bed);
	ck_assert_int_eq(get(&bed, "b", key, 499), KVT_OK); /* only there */
	bed_close(&bed);
	bed_clear(&bed);
}
END_TEST

START_TEST(a_daemon_comes_again_while_a_shared_tier_is_away)
{
	struct lease l;

	open_in_outage(4 * MIB);
	ck_assert_int_eq(put(&bed, "b", "k", 1, MIB, NULL), KVT_OK);
	for (int64_t until = now() + 60 * (int64_t)SECOND; now() < until; usleep(10000))
		if (stores_of(KVT_TIER_NVME) != 0)
			break;
	ck_assert_uint_eq(stores_of(KVT_TIER_NVME), 1);
	ck_assert_int_eq(put(&bed, "b", "k", 2, MIB, NULL), KVT_OK);
	bed_close(&bed);
	bed_open(&bed); /* what was replaced cannot be erased for good */
	if (lease(&bed, "b", "k", SECOND, SECOND, &l) == KVT_OK)
		ck_assert(reads(&bed, &l, 2));
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
	tcase_add_test(cases, new_objects_are_stored_while_a_shared_tier_is_away);
	tcase_add_test(cases, a_daemon_comes_again_while_a_shared_tier_is_away);
	tcase_add_test(cases, names_of_a_store_of_another_process_are_not_forgotten);
	return run_tcase("cache/daemon/outage", cases);
}
