/*
 * sim_way_test.c - what transfers between tiers take by the model, and which are worth it.
 */
#include <check.h>
#include <stdlib.h>

#include "kvtier/kvtier.h"
#include "bench/sim/sim_way.h"
#include "tests/unit/suite.h"

#define MS 1000000

/* A gigabyte a millisecond to the device, a tenth and a hundredth of that from below. */
static const struct kvb_link gpu = {"gpu", KVB_LINK_GPU, 1e12, 0, ""};
static const struct kvb_link nvme = {"nvme", KVB_LINK_NVME, 1e11, 0, ""};
static const struct kvb_link l2 = {"l2", KVB_LINK_L2, 1e10, 5 * MS, ""};

static struct kvb_ways make(void)
{
	return (struct kvb_ways){.links = {&gpu, &nvme, &l2}, .chunk_bytes = 1000000000};
}

START_TEST(transfers_queue_on_a_channel)
{
	struct kvb_channel channel = {0};

	ck_assert_int_eq(kvb_channel_carry(&channel, &nvme, 0, 1000000000), 10 * MS);
	ck_assert_int_eq(kvb_channel_carry(&channel, &nvme, 0, 1000000000), 20 * MS);
	ck_assert_int_eq(kvb_channel_carry(&channel, &nvme, 50 * MS, 1000000000), 60 * MS);
	ck_assert_uint_eq(channel.bytes, 3000000000u);
	ck_assert_int_eq(channel.busy_ns, 30 * MS);
}
END_TEST

START_TEST(latencies_of_several_copies_overlap)
{
	struct kvb_channel channel = {0};

	ck_assert_int_eq(kvb_channel_carry(&channel, &l2, 0, 1000000000), 105 * MS);
	ck_assert_int_eq(kvb_channel_carry(&channel, &l2, 0, 1000000000), 205 * MS);
}
END_TEST

START_TEST(the_slowest_way_decides)
{
	const uint8_t in_memory[] = {KVT_TIER_L1, KVT_TIER_L1, KVT_TIER_L1};
	const uint8_t mixed[] = {KVT_TIER_L1, KVT_TIER_NVME, KVT_TIER_NVME, KVT_TIER_L2};
	struct kvb_ways ways = make();

	ck_assert_int_eq(kvb_way_fetch(&ways, in_memory, 3, 0), 3 * MS);
	ways = make();
	/* from L2 in 105 ms, then once more to the device */
	ck_assert_int_eq(kvb_way_fetch(&ways, mixed, 4, 0), 106 * MS);
	ck_assert_int_eq(kvb_way_fetch(&ways, mixed, 3, 0), 41 * MS); /* behind two on NVMe */
	ck_assert_int_eq(kvb_way_fetch(&ways, in_memory, 0, 7), 7);
}
END_TEST

START_TEST(a_slow_fetch_does_not_keep_the_device_busy)
{
	const uint8_t below = KVT_TIER_L2, above = KVT_TIER_L1;
	struct kvb_ways ways = make();

	kvb_way_fetch(&ways, &below, 1, 0);
	ck_assert_int_eq(kvb_way_fetch(&ways, &above, 1, 0), 2 * MS);
}
END_TEST

START_TEST(what_computes_faster_is_left)
{
	const uint8_t tiers[] = {KVT_TIER_L1, KVT_TIER_NVME, KVT_TIER_NVME, KVT_TIER_L2};
	struct kvb_ways ways = make();

	/* chunks of 100 tokens: at 20,000 tokens/s one takes 5 ms, at 5,000 20 ms, at 500 200 ms */
	ck_assert_uint_eq(kvb_way_worth(&ways, tiers, 4, 100, 0, 20000, 0), 1);
	ck_assert_uint_eq(kvb_way_worth(&ways, tiers, 4, 100, 0, 5000, 0), 3);
	ck_assert_uint_eq(kvb_way_worth(&ways, tiers, 4, 100, 0, 500, 0), 4);
	ck_assert_uint_eq(kvb_way_worth(&ways, tiers, 4, 100, 0, 0, 0), 4); /* not known */
	ck_assert_int_eq(ways.channels[KVB_LINK_L2].free_ns, 0); /* nothing was charged */
}
END_TEST

START_TEST(what_the_device_has_saves_nothing)
{
	const uint8_t tiers[] = {KVT_TIER_NVME, KVT_TIER_NVME};
	struct kvb_ways ways = make();

	ck_assert_uint_eq(kvb_way_worth(&ways, tiers, 2, 100, 100, 20000, 0), 1);
	ck_assert_uint_eq(kvb_way_worth(&ways, tiers, 2, 100, 190, 5000, 0), 1); /* 2 ms for 10 */
	ck_assert_uint_eq(kvb_way_worth(&ways, tiers, 2, 100, 300, 5000, 0), 2);
}
END_TEST

START_TEST(a_way_that_is_busy_is_not_worth_waiting_for)
{
	const uint8_t tiers[] = {KVT_TIER_NVME};
	struct kvb_ways ways = make();

	ck_assert_uint_eq(kvb_way_worth(&ways, tiers, 1, 100, 0, 5000, 0), 1);
	ways.channels[KVB_LINK_NVME].free_ns = 50 * MS;
	ck_assert_uint_eq(kvb_way_worth(&ways, tiers, 1, 100, 0, 5000, 0), 0);
	ck_assert_uint_eq(kvb_way_worth(&ways, tiers, 1, 100, 0, 5000, 50 * MS), 1);
}
END_TEST

START_TEST(the_table_is_whole)
{
	for (int kind = 0; kind < KVB_LINK_KINDS; kind++) {
		const struct kvb_link *link = kvb_link_default((enum kvb_link_kind)kind);

		ck_assert_int_eq(link->kind, kind);
		ck_assert_ptr_eq(kvb_link_find(link->name), link);
		link = kvb_link_instant((enum kvb_link_kind)kind);
		ck_assert_int_eq(kvb_link_ns(link, UINT64_MAX), 0);
	}
	ck_assert_ptr_null(kvb_link_find("string"));
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("way");

	tcase_add_test(tcase, transfers_queue_on_a_channel);
	tcase_add_test(tcase, latencies_of_several_copies_overlap);
	tcase_add_test(tcase, the_slowest_way_decides);
	tcase_add_test(tcase, a_slow_fetch_does_not_keep_the_device_busy);
	tcase_add_test(tcase, what_computes_faster_is_left);
	tcase_add_test(tcase, what_the_device_has_saves_nothing);
	tcase_add_test(tcase, a_way_that_is_busy_is_not_worth_waiting_for);
	tcase_add_test(tcase, the_table_is_whole);
	return run_tcase("sim_way", tcase);
}
