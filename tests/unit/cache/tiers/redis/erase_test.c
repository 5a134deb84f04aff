/*
 * erase_test.c - keys that are erased leave Redis with all their parts, or the request says that they did not.
 */
#include <check.h>
#include <stdlib.h>

#include "fake_redis.h"
#include "redis_rig.h"
#include "tests/unit/suite.h"

static struct redis_rig rig;

static void setup(void)
{
	fake_reset();
	rig_init(&rig);
	rig.config.l2_part_bytes = 64u << 10;
	ck_assert_int_eq(rig_open(&rig, 0), KVT_OK);
	ck_assert_int_eq(rig_open(&rig, 1), KVT_OK);
}

static void teardown(void)
{
	rig_finish(&rig);
	fake_reset();
}

START_TEST(a_key_and_its_parts)
{
	ck_assert_int_eq(rig_put(&rig, 0, 1, 1600000), KVT_OK); /* 25 parts */
	ck_assert_int_eq(rig_put(&rig, 0, 2, 100), KVT_OK);
	ck_assert_uint_eq(rig_probe(&rig, 1, 1, 2), 2);
	ck_assert_int_eq(rig_erase(&rig, 0, 1), KVT_OK);
	ck_assert_uint_eq(fake_count("{"), 1);
	ck_assert(!rig_knows(&rig, 0, 1));
	ck_assert_int_eq(rig_get(&rig, 0, 1, 1600000), KVT_MISS);
	ck_assert_int_eq(rig_get(&rig, 1, 1, 1600000), KVT_MISS);
	ck_assert_int_eq(rig_get(&rig, 1, 2, 100), KVT_OK);
	ck_assert_int_eq(rig_erase(&rig, 0, 55), KVT_OK); /* was never there */
	ck_assert_int_eq(rig_put(&rig, 0, 1, 500), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 1, 1, 500), KVT_OK);
}
END_TEST

START_TEST(a_key_while_redis_is_away)
{
	ck_assert_int_eq(rig_put(&rig, 0, 1, 100), KVT_OK);
	fake.down = true;
	ck_assert_int_eq(rig_erase(&rig, 0, 1), KVT_EIO); /* nothing is promised */
	fake.down = false;
	ck_assert_int_eq(rig_get(&rig, 0, 1, 100), KVT_OK);
	fake.stall_verb = "UNLINK";
	ck_assert_int_eq(rig_erase(&rig, 0, 1), KVT_EIO);
	fake.stall_verb = NULL;
	ck_assert_int_eq(rig_erase(&rig, 0, 1), KVT_OK);
	ck_assert_uint_eq(fake_count("{"), 0);
}
END_TEST

START_TEST(many_keys_at_once)
{
	struct kvt_key *keys = calloc(2000, sizeof(*keys));
	struct kvt_tier_request request = {.verb = KVT_TIER_ERASE, .keys = keys, .key_count = 2000};

	for (uint64_t n = 0; n < 2000; n++) {
		keys[n] = rig_key(n);
		ck_assert_int_eq(n % 2 == 0 ? rig_put(&rig, 0, n, 10) : KVT_OK, KVT_OK);
	}
	ck_assert_int_eq(rig_run(&rig, 0, &request), KVT_OK);
	ck_assert_uint_eq(fake_count("{"), 0);
	free(keys);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("redis erase");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_key_and_its_parts);
	tcase_add_test(tcase, a_key_while_redis_is_away);
	tcase_add_test(tcase, many_keys_at_once);
	tcase_set_timeout(tcase, 120);
	return run_tcase("redis erase", tcase);
}
