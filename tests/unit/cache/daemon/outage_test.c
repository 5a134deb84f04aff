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

int main(void)
{
	TCase *cases = tcase_create("outage");

	tcase_set_timeout(cases, 280);
	tcase_add_test(cases, a_daemon_comes_again_while_a_shared_tier_is_away);
	return run_tcase("cache/daemon/outage", cases);
}
