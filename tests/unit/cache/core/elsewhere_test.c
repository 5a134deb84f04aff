/*
 * elsewhere_test.c - another process erased in a tier that this handle shares: what this handle has of it goes, too.
 * Without threads, so that each step is the test's.
 */
#include <string.h>

#include "support.h"
#include "tests/unit/suite.h"

#define LONG (1000 * SECOND)

static struct rig rig;

/* A shared tier, then one of this handle's own. */
static void open_rig(void)
{
	static const struct kvt_tier_ops *const both[] = {&fake_remote_ops, &fake_tier_ops, NULL};

	rig_init(&rig);
	ck_assert_int_eq(kvt_open_with(&rig.config, both, &rig.k), KVT_OK);
}

static void close_rig(void)
{
	rig_close(&rig);
}

static struct kvt_tenant tenant_of(uint32_t chain)
{
	struct kvt_tenant tenant = {{0}};

	memcpy(tenant.bytes, &chain, sizeof(chain));
	return tenant;
}

/* Another process erases a chain's tenant in the shared tier. */
static void erased(uint32_t chain, enum kvt_elsewhere_depth depth)
{
	struct kvt_tenant tenant = tenant_of(chain);

	fake_erased_elsewhere(fake_remote(), chain != 0 ? &tenant : NULL, depth);
}

static uint64_t counted(void)
{
	return rig_stats(&rig).erased_elsewhere[KVT_TIER_L2];
}

START_TEST(a_tenant_leaves_this_handle)
{
	size_t flushes;

	rig_put_chain(&rig, 1, 4);
	rig_put_chain(&rig, 2, 4);
	rig_settle(&rig);
	ck_assert_uint_eq(fake_chunks(fake_tier()), 8);
	flushes = fake_begun(fake_tier(), KVT_TIER_FLUSH);
	erased(1, KVT_ELSEWHERE_ALL);
	ck_assert_uint_eq(rig_lookup(&rig, 1, 4, NULL), 4);
	rig_settle(&rig);
	ck_assert_uint_eq(rig_lookup(&rig, 1, 4, NULL), 0);
	ck_assert_uint_eq(rig_get(&rig, 1, 4, LONG), 0);
	ck_assert_uint_eq(rig_get(&rig, 2, 4, LONG), 4);
	ck_assert_uint_eq(fake_chunks(fake_tier()), 4);
	ck_assert_uint_eq(fake_begun(fake_tier(), KVT_TIER_FLUSH), flushes + 1); /* also after a crash */
	ck_assert_uint_eq(fake_chunks(fake_remote()), 4);
	ck_assert_uint_eq(fake_begun(fake_remote(), KVT_TIER_FLUSH), 0);
	ck_assert_uint_eq(counted(), 1);
	rig_put_chain(&rig, 1, 4); /* it may come again */
	ck_assert_uint_eq(rig_get(&rig, 1, 4, LONG), 4);
	erased(0, KVT_ELSEWHERE_ALL);
	rig_settle(&rig);
	ck_assert_uint_eq(rig_lookup(&rig, 1, 4, NULL) + rig_lookup(&rig, 2, 4, NULL), 0);
	ck_assert_uint_eq(fake_chunks(fake_tier()), 0);
	ck_assert_uint_eq(counted(), 2);
}
END_TEST

/* It was erased before this handle first looked: what lies on its own disk may be younger. */
START_TEST(the_first_look_leaves_the_disk)
{
	uint8_t tiers[4];

	rig_put_chain(&rig, 1, 4);
	rig_settle(&rig);
	erased(1, KVT_ELSEWHERE_MEMORY);
	erased(2, KVT_ELSEWHERE_MEMORY); /* of which there is nothing */
	rig_settle(&rig);
	ck_assert_uint_eq(rig_lookup(&rig, 1, 4, tiers), 4);
	ck_assert_uint_eq(tiers[0], KVT_TIER_NVME);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L1].chunks, 0);
	ck_assert_uint_eq(counted(), 1);
}
END_TEST

/* Stores that wait for the shared tier, and those that it has under way. */
START_TEST(what_waits_is_not_stored)
{
	fake_hold(fake_remote(), KVT_TIER_WRITE, true);
	rig_put_chain(&rig, 1, 30); /* more than are written at once */
	rig_put_chain(&rig, 2, 2);
	rig_settle(&rig);
	ck_assert_uint_lt(fake_begun(fake_remote(), KVT_TIER_WRITE), 30);
	erased(1, KVT_ELSEWHERE_ALL);
	rig_settle(&rig);
	fake_hold(fake_remote(), KVT_TIER_WRITE, false);
	rig_settle(&rig);
	ck_assert_uint_eq(fake_chunks(fake_remote()), 2);
	ck_assert_uint_eq(fake_chunks(fake_tier()), 2);
	ck_assert_uint_eq(rig_lookup(&rig, 1, 30, NULL), 0);
	ck_assert_uint_eq(rig_lookup(&rig, 2, 2, NULL), 2);
}
END_TEST

/* A chunk that is being brought up was read under the number of before. */
START_TEST(a_load_brings_nothing_back)
{
	struct kvt_completion done;
	struct kvt_key keys[2];
	uint64_t op;

	rig_put_chain(&rig, 1, 2);
	rig_settle(&rig);
	rig_push_out(&rig);
	fake_hold(fake_remote(), KVT_TIER_READ, true);
	keys_of(1, 2, keys);
	ck_assert_int_eq(kvt_get_begin(rig.k, keys, 2, LONG, 0, &op), KVT_OK);
	rig_settle(&rig);
	ck_assert_uint_ge(fake_begun(fake_remote(), KVT_TIER_READ), 1);
	/* What the tier has read and the erase come out of one step. */
	fake_hold(fake_remote(), KVT_TIER_READ, false);
	fake_erased_elsewhere(fake_remote(), &(struct kvt_tenant){{0xff}}, KVT_ELSEWHERE_ALL);
	kvt_elsewhere_note(&fake_remote()->elsewhere, &(struct kvt_tenant){{1}}, KVT_ELSEWHERE_ALL);
	rig_settle(&rig);
	ck_assert_uint_eq(kvt_poll(rig.k, &done, 1), 1);
	ck_assert_uint_eq(done.status, KVT_MISS);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L1].loads, 0);
	ck_assert_uint_eq(counted(), 2);
}
END_TEST

START_TEST(a_reader_keeps_what_it_has)
{
	struct kvt_lease *lease;
	struct kvt_key keys[3];

	rig_put_chain(&rig, 1, 3);
	rig_settle(&rig);
	keys_of(1, 3, keys);
	ck_assert_int_eq(kvt_get(rig.k, keys, 3, LONG, &lease), KVT_OK);
	erased(1, KVT_ELSEWHERE_ALL);
	rig_settle(&rig);
	ck_assert_uint_eq(rig_lookup(&rig, 1, 3, NULL), 0);
	check_lease(lease, keys, 3);
	kvt_release(rig.k, lease);
}
END_TEST

/* Each second the shared tier gets a list of whose chunks lie in memory and on disk, and nothing while it is left alone. */
START_TEST(the_tier_is_told_what_is_held)
{
	size_t told;

	rig_advance(&rig, 2 * SECOND);
	ck_assert_uint_eq(fake_remote()->told, 0);
	rig_put_chain(&rig, 1, 1);
	rig_put_chain(&rig, 2, 1);
	for (int i = 0; i < 20; i++)
		rig_advance(&rig, SECOND / 10);
	told = fake_remote()->told;
	ck_assert_uint_ge(told, 2);
	ck_assert_uint_le(told, 3 * 2);
	fake_answer(fake_remote(), KVT_TIER_WRITE, KVT_EIO, UINT32_MAX);
	rig_put_chain(&rig, 3, 20);
	rig_settle(&rig); /* its breaker opens */
	told = fake_remote()->told;
	rig_advance(&rig, SECOND + 1);
	rig_settle(&rig);
	ck_assert_uint_le(fake_remote()->told, told);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("elsewhere");

	tcase_add_checked_fixture(tc, open_rig, close_rig);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_tenant_leaves_this_handle);
	tcase_add_test(tc, the_first_look_leaves_the_disk);
	tcase_add_test(tc, what_waits_is_not_stored);
	tcase_add_test(tc, a_load_brings_nothing_back);
	tcase_add_test(tc, a_reader_keeps_what_it_has);
	tcase_add_test(tc, the_tier_is_told_what_is_held);
	return run_tcase("elsewhere", tc);
}
