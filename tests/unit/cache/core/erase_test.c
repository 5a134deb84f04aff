/*
 * erase_test.c - an erase against everything that could bring a chunk back: loads and stores under
 * way, answers that come late, a tier that refuses.
 */
#include <stdlib.h>

#include <string.h>

#include "support.h"
#include "tests/unit/suite.h"

#define LONG (1000 * SECOND)

static struct rig rig;
static struct kvt_key keys[8];

static void open_rig(void)
{
	rig_init(&rig);
	rig_open(&rig);
	keys_of(1, 8, keys);
}

static void close_rig(void)
{
	rig_close(&rig);
}

static void below_only(uint32_t n)
{
	rig_put_chain(&rig, 1, n);
	rig_settle(&rig);
	rig_push_out(&rig);
}

static void check_gone(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct kvt_lookup found;

		ck_assert_int_eq(kvt_lookup(rig.k, &keys[i], 1, 0, NULL, &found), KVT_OK);
		ck_assert_uint_eq(found.hits, 0);
	}
	ck_assert_uint_eq(rig_get(&rig, 1, n, SECOND), 0);
}

START_TEST(erase_reaches_every_tier)
{
	size_t erased = 0;

	below_only(4);
	ck_assert_int_eq(rig_put(&rig, 1, 4), KVT_OK);
	ck_assert_int_eq(kvt_erase(rig.k, keys, 6, LONG, &erased), KVT_OK);
	ck_assert_uint_eq(erased, 5);
	check_gone(6);
	for (int i = 0; i < 6; i++)
		ck_assert(!fake_has(fake_tier(), &keys[i]));
	ck_assert_uint_eq(fake_begun(fake_tier(), KVT_TIER_FLUSH), 1);
}
END_TEST

START_TEST(it_is_gone_before_the_tier_answers)
{
	size_t erased = 0;

	below_only(3);
	fake_hold(fake_tier(), KVT_TIER_ERASE, true);
	ck_assert_int_eq(kvt_erase(rig.k, keys, 3, 0, &erased), KVT_MISS);
	ck_assert_uint_eq(erased, 3);
	check_gone(3);
	rig_settle(&rig);
	check_gone(3);
	fake_hold(fake_tier(), KVT_TIER_ERASE, false);
	rig_settle(&rig);
	check_gone(3);
	rig_put_chain(&rig, 1, 3); /* and may come again */
	rig_settle(&rig);
	ck_assert_uint_eq(rig_get(&rig, 1, 3, 0), 3);
	ck_assert(fake_has(fake_tier(), &keys[2]));
}
END_TEST

START_TEST(a_load_under_way_brings_nothing_back)
{
	uint64_t op;
	struct kvt_completion c;

	below_only(2);
	fake_hold(fake_tier(), KVT_TIER_READ, true);
	ck_assert_int_eq(kvt_get_begin(rig.k, keys, 2, LONG, 0, &op), KVT_OK);
	rig_settle(&rig);
	ck_assert_int_eq(kvt_erase(rig.k, keys, 2, LONG, NULL), KVT_OK);
	fake_hold(fake_tier(), KVT_TIER_READ, false);
	rig_settle(&rig);
	ck_assert_uint_eq(kvt_poll(rig.k, &c, 1), 1);
	ck_assert_uint_eq(c.status, KVT_MISS);
	check_gone(2);
	ck_assert_uint_eq(rig_stats(&rig).promotions, 0);
}
END_TEST

/* What a get held in memory before the erase, while it waited for more, is not handed out after it. */
START_TEST(a_get_that_waits_hands_out_nothing_erased)
{
	struct kvt_lease *lease;
	struct kvt_completion c;
	uint64_t op;

	below_only(4);
	ck_assert_uint_eq(rig_get(&rig, 1, 3, SECOND), 3); /* in memory from now on */
	fake_hold(fake_tier(), KVT_TIER_READ, true);
	ck_assert_int_eq(kvt_get_begin(rig.k, keys, 4, LONG, 0, &op), KVT_OK);
	rig_settle(&rig);
	ck_assert_int_eq(kvt_erase(rig.k, &keys[1 - _i], 1, LONG, NULL), KVT_OK);
	fake_hold(fake_tier(), KVT_TIER_READ, false);
	rig_settle(&rig);
	ck_assert_uint_eq(kvt_poll(rig.k, &c, 1), 1);
	ck_assert_uint_eq(c.status, _i == 0 ? KVT_OK : KVT_MISS);
	ck_assert_uint_eq(c.count, 1 - _i);
	if (c.status == KVT_OK) {
		ck_assert_int_eq(kvt_get_take(rig.k, op, &lease), KVT_OK);
		ck_assert_uint_eq(lease->count, 1);
		check_lease(lease, keys, 1);
		kvt_release(rig.k, lease);
	}
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L1].leased, 0);
}
END_TEST

START_TEST(a_load_in_line_brings_nothing_back)
{
	uint64_t op;

	rig_close(&rig);
	rig_init(&rig);
	rig.config.load_inflight = CHUNK;
	rig_open(&rig);
	below_only(3);
	fake_hold(fake_tier(), KVT_TIER_READ, true);
	ck_assert_int_eq(kvt_get_begin(rig.k, keys, 3, LONG, 0, &op), KVT_OK);
	fake_hold(fake_tier(), KVT_TIER_ERASE, true);
	ck_assert_int_eq(kvt_erase(rig.k, &keys[1], 1, 0, NULL), KVT_MISS);
	fake_hold(fake_tier(), KVT_TIER_READ, false); /* reads overtake the erase */
	rig_settle(&rig);
	ck_assert_uint_eq(rig_get(&rig, 1, 3, SECOND), 1);
	fake_hold(fake_tier(), KVT_TIER_ERASE, false);
	rig_settle(&rig);
	ck_assert_uint_eq(rig_get(&rig, 1, 3, SECOND), 1);
}
END_TEST

START_TEST(a_store_under_way_leaves_nothing_behind)
{
	uint64_t op;
	struct kvt_completion c;

	fake_hold(fake_tier(), KVT_TIER_WRITE, true);
	rig_put_chain(&rig, 1, 1);
	rig_settle(&rig);
	ck_assert_int_eq(kvt_erase_begin(rig.k, keys, 1, LONG, 0, &op), KVT_OK);
	rig_settle(&rig); /* the ERASE came first; the WRITE comes after it */
	check_gone(1);
	ck_assert_uint_eq(kvt_poll(rig.k, &c, 1), 0);
	fake_hold(fake_tier(), KVT_TIER_ERASE, true);
	fake_hold(fake_tier(), KVT_TIER_WRITE, false);
	rig_settle(&rig);
	ck_assert(fake_has(fake_tier(), &keys[0])); /* written, and not to be seen */
	check_gone(1);
	ck_assert_uint_eq(kvt_poll(rig.k, &c, 1), 0);
	fake_hold(fake_tier(), KVT_TIER_ERASE, false);
	rig_settle(&rig);
	ck_assert(!fake_has(fake_tier(), &keys[0]));
	check_gone(1);
	ck_assert_uint_eq(kvt_poll(rig.k, &c, 1), 1);
	ck_assert_uint_eq(c.status, KVT_OK);
	ck_assert_uint_eq(c.count, 1);
}
END_TEST

START_TEST(a_store_in_line_is_dropped)
{
	fake_hold(fake_tier(), KVT_TIER_WRITE, true);
	for (uint32_t i = 0; i < 16; i++)
		ck_assert_int_eq(rig_put(&rig, 100 + i, 0), KVT_OK);
	rig_put_chain(&rig, 1, 3);
	ck_assert_int_eq(kvt_erase(rig.k, keys, 3, LONG, NULL), KVT_OK);
	fake_hold(fake_tier(), KVT_TIER_WRITE, false);
	rig_settle(&rig);
	ck_assert_uint_eq(fake_chunks(fake_tier()), 16);
	check_gone(3);
}
END_TEST

START_TEST(a_tier_that_refuses_is_asked_again)
{
	uint64_t op;
	struct kvt_completion c;

	below_only(2);
	fake_answer(fake_tier(), KVT_TIER_ERASE, KVT_EIO, 2);
	ck_assert_int_eq(kvt_erase_begin(rig.k, keys, 2, LONG, 0, &op), KVT_OK);
	rig_settle(&rig);
	check_gone(2);
	ck_assert(fake_has(fake_tier(), &keys[0]));
	ck_assert_uint_eq(kvt_poll(rig.k, &c, 1), 0);
	rig_advance(&rig, SECOND);
	check_gone(2);
	rig_advance(&rig, SECOND);
	ck_assert(!fake_has(fake_tier(), &keys[0]));
	ck_assert_uint_eq(kvt_poll(rig.k, &c, 1), 1);
	ck_assert_uint_eq(c.status, KVT_OK);
}
END_TEST

START_TEST(a_refused_erase_of_a_written_chunk_is_asked_again)
{
	fake_hold(fake_tier(), KVT_TIER_WRITE, true);
	rig_put_chain(&rig, 1, 1);
	rig_settle(&rig);
	ck_assert_int_eq(kvt_erase(rig.k, keys, 1, 0, NULL), KVT_MISS);
	rig_settle(&rig);
	fake_answer(fake_tier(), KVT_TIER_ERASE, KVT_EIO, 2);
	fake_hold(fake_tier(), KVT_TIER_WRITE, false);
	rig_settle(&rig);
	ck_assert(fake_has(fake_tier(), &keys[0]));
	check_gone(1);
	rig_advance(&rig, SECOND);
	check_gone(1);
	rig_advance(&rig, SECOND);
	ck_assert(!fake_has(fake_tier(), &keys[0]));
	check_gone(1);
}
END_TEST

/* A disk refuses a chunk whose parent it does not have. */
START_TEST(a_chunk_waits_for_a_parent_that_waits_for_an_erase)
{
	size_t written;

	below_only(1);
	written = fake_begun(fake_tier(), KVT_TIER_WRITE);
	fake_hold(fake_tier(), KVT_TIER_ERASE, true);
	ck_assert_int_eq(kvt_erase(rig.k, keys, 1, 0, NULL), KVT_MISS);
	rig_put_chain(&rig, 1, 3);
	rig_settle(&rig);
	ck_assert_uint_eq(fake_begun(fake_tier(), KVT_TIER_WRITE), written);
	fake_hold(fake_tier(), KVT_TIER_ERASE, false);
	rig_settle(&rig);
	for (int i = 0; i < 3; i++)
		ck_assert(fake_has(fake_tier(), &keys[i]));
}
END_TEST

START_TEST(a_failed_flush_is_reported)
{
	below_only(1);
	fake_answer(fake_tier(), KVT_TIER_FLUSH, KVT_EIO, 1);
	ck_assert_int_eq(kvt_erase(rig.k, keys, 1, LONG, NULL), KVT_MISS);
	check_gone(1);
}
END_TEST

START_TEST(tenants_and_all_are_erased_everywhere)
{
	struct kvt_tenant tenant = {{1}};
	size_t erased = 0;
	uint64_t op;

	below_only(3);
	rig_put_chain(&rig, 2, 2);
	rig_settle(&rig);
	fake_hold(fake_tier(), KVT_TIER_READ, true);
	fake_hold(fake_tier(), KVT_TIER_WRITE, true);
	ck_assert_int_eq(rig_put(&rig, 1, 3), KVT_OK);                         /* being written */
	ck_assert_int_eq(kvt_get_begin(rig.k, keys, 2, LONG, 0, &op), KVT_OK); /* being read */
	ck_assert_int_eq(kvt_erase_tenant(rig.k, &tenant, 0, &erased), KVT_MISS);
	ck_assert_uint_ge(erased, 3);
	check_gone(4);
	fake_hold(fake_tier(), KVT_TIER_READ, false);
	fake_hold(fake_tier(), KVT_TIER_WRITE, false);
	rig_settle(&rig);
	check_gone(4);
	ck_assert(!fake_has(fake_tier(), &keys[3]));
	ck_assert_uint_eq(rig_get(&rig, 2, 2, 0), 2);
	ck_assert_int_eq(kvt_reset(rig.k), KVT_OK);
	ck_assert_uint_eq(rig_get(&rig, 2, 2, 0), 0);
	ck_assert_uint_eq(fake_chunks(fake_tier()), 0);
}
END_TEST

static struct kvt_tenant tenant_of_chain(uint32_t chain)
{
	struct kvt_tenant tenant = {{0}};

	memcpy(tenant.bytes, &chain, sizeof(chain));
	return tenant;
}

static struct kvt_erased erase_which(struct kvt_which which)
{
	struct kvt_erased erased = {.size = sizeof(erased)};

	which.size = sizeof(which);
	ck_assert_int_eq(kvt_erase_which(rig.k, &which, LONG, &erased), KVT_OK);
	return erased;
}

START_TEST(what_is_erased_is_counted_in_each_tier)
{
	const struct kvt_tenant first = tenant_of_chain(1);
	struct kvt_erased erased;

	rig_put_chain(&rig, 1, 4);
	rig_put_chain(&rig, 2, 3);
	rig_settle(&rig);
	erased = erase_which((struct kvt_which){.tenant = &first, .dry_run = 1});
	ck_assert_uint_eq(erased.tiers[KVT_TIER_L1].chunks, 4);
	ck_assert_uint_eq(erased.tiers[KVT_TIER_L1].bytes, 4 * CHUNK);
	ck_assert_uint_eq(erased.tiers[KVT_TIER_NVME].chunks, 4);
	ck_assert_uint_eq(erased.tiers[KVT_TIER_NVME].bytes, 4 * CHUNK);
	ck_assert_uint_eq(erased.tiers[KVT_TIER_L2].counted, KVT_COUNTED_NO_TIER);
	ck_assert_uint_eq(rig_get(&rig, 1, 4, 0), 4);
	erased = erase_which((struct kvt_which){.tenant = &first});
	ck_assert_uint_eq(erased.tiers[KVT_TIER_NVME].chunks, 4);
	check_gone(4);
	ck_assert_uint_eq(rig_get(&rig, 2, 3, 0), 3);
	erased = erase_which((struct kvt_which){.fingerprint = &rig.config.fingerprint});
	ck_assert_uint_eq(erased.tiers[KVT_TIER_L1].chunks, 3);
	ck_assert_uint_eq(rig_lookup(&rig, 2, 3, NULL), 0);
}
END_TEST

START_TEST(all_that_is_asked_for_must_hold)
{
	const struct kvt_tenant first = tenant_of_chain(1), second = tenant_of_chain(2);
	const struct kvt_fingerprint other = {{1}};
	struct kvt_erased erased;

	rig_put_chain(&rig, 1, 4);
	rig_settle(&rig);
	erased = erase_which((struct kvt_which){.tenant = &second, .keys = keys, .key_count = 4});
	ck_assert_uint_eq(erased.tiers[KVT_TIER_L1].chunks, 0);
	erased = erase_which((struct kvt_which){.tenant = &first, .fingerprint = &other});
	ck_assert_uint_eq(erased.tiers[KVT_TIER_NVME].chunks, 0);
	ck_assert_uint_eq(rig_get(&rig, 1, 4, 0), 4);
	erased =
		erase_which((struct kvt_which){.tenant = &first, .keys = &keys[3], .key_count = 1});
	ck_assert_uint_eq(erased.tiers[KVT_TIER_L1].chunks, 1);
	ck_assert_uint_eq(erased.tiers[KVT_TIER_NVME].bytes, CHUNK);
	ck_assert_uint_eq(rig_get(&rig, 1, 4, 0), 3);
	ck_assert(!fake_has(fake_tier(), &keys[3]));
}
END_TEST

static void put_key(const struct kvt_key *key)
{
	struct kvt_item item = {.size = sizeof(item), .key = *key, .tokens = 256, .bytes = CHUNK};
	uint8_t *data = calloc(1, CHUNK);

	ck_assert_ptr_nonnull(data);
	ck_assert_int_eq(kvt_put(rig.k, &item, data), KVT_OK);
	free(data);
}

START_TEST(the_ends_of_a_chunk_go_with_its_key)
{
	struct kvt_key ends[2];
	struct kvt_erased erased;

	rig_put_chain(&rig, 1, 2);
	for (size_t i = 0; i < 2; i++) {
		kvt_key_ends(&keys[i], &ends[i]);
		ck_assert_mem_ne(ends[i].bytes, keys[i].bytes, KVT_KEY_BYTES);
		put_key(&ends[i]);
	}
	rig_settle(&rig);
	ck_assert(fake_has(fake_tier(), &ends[1]));
	erased = erase_which((struct kvt_which){.keys = &keys[1], .key_count = 1, .dry_run = 1});
	ck_assert_uint_eq(erased.tiers[KVT_TIER_NVME].chunks, 2);
	erased = erase_which((struct kvt_which){.keys = &keys[1], .key_count = 1});
	ck_assert_uint_eq(erased.tiers[KVT_TIER_L1].chunks, 2);
	ck_assert(!fake_has(fake_tier(), &keys[1]) && !fake_has(fake_tier(), &ends[1]));
	ck_assert(fake_has(fake_tier(), &keys[0]) && fake_has(fake_tier(), &ends[0]));
}
END_TEST

START_TEST(what_a_silent_tier_may_have_is_not_called_erased)
{
	const struct kvt_tenant tenant = {{0}};
	struct kvt_erased erased = {.size = sizeof(erased)};
	struct kvt_which which = {.size = sizeof(which), .keys = keys, .key_count = 1};
	uint8_t data[CHUNK];

	rig_close(&rig);
	rig_init(&rig);
	rig.remote = true;
	rig_open(&rig);
	bytes_of(&keys[0], data, CHUNK);
	fake_plant(fake_tier(), &keys[0], data, CHUNK);
	fake_hold(fake_tier(), KVT_TIER_PROBE, true);
	which.tenant = &tenant;
	ck_assert_int_eq(kvt_erase_which(rig.k, &which, SECOND, &erased), KVT_EIO);
	ck_assert(fake_has(fake_tier(), &keys[0]));
	which.dry_run = 1;
	ck_assert_int_eq(kvt_erase_which(rig.k, &which, SECOND, &erased), KVT_OK);
	ck_assert_uint_eq(erased.tiers[KVT_TIER_L2].counted, KVT_COUNTED_UNKNOWN);
	fake_hold(fake_tier(), KVT_TIER_PROBE, false);
	rig_settle(&rig);
	which.dry_run = 0;
	ck_assert_int_eq(kvt_erase_which(rig.k, &which, SECOND, &erased), KVT_OK);
	ck_assert_uint_eq(erased.tiers[KVT_TIER_L2].chunks, 1);
	ck_assert(!fake_has(fake_tier(), &keys[0]));
}
END_TEST

START_TEST(a_lease_outlives_the_erase)
{
	const struct kvt_tenant first = tenant_of_chain(1);
	struct kvt_lease *lease;
	struct kvt_erased erased;

	rig_put_chain(&rig, 1, 4);
	rig_settle(&rig);
	ck_assert_int_eq(kvt_get(rig.k, keys, 4, 0, &lease), KVT_OK);
	erased = erase_which((struct kvt_which){.tenant = &first});
	ck_assert_uint_eq(erased.tiers[KVT_TIER_L1].chunks, 4);
	check_gone(4);
	rig_put_chain(&rig, 3, 40); /* takes no room from under it */
	check_lease(lease, keys, 4);
	kvt_release(rig.k, lease);
	check_gone(4);
}
END_TEST

START_TEST(an_erase_of_nothing_in_particular_is_refused)
{
	struct kvt_which which = {.size = sizeof(which)};
	struct kvt_erased erased = {.size = sizeof(erased)};

	ck_assert_int_eq(kvt_erase_which(rig.k, &which, LONG, &erased), KVT_EINVAL);
	which.keys = keys;
	ck_assert_int_eq(kvt_erase_which(rig.k, &which, LONG, &erased), KVT_EINVAL);
	which.key_count = 5000;
	ck_assert_int_eq(kvt_erase_which(rig.k, &which, LONG, &erased), KVT_EINVAL);
	which.key_count = 1;
	ck_assert_int_eq(kvt_erase_which(rig.k, &which, LONG, NULL), KVT_EINVAL);
	ck_assert_int_eq(kvt_erase_which(rig.k, &which, LONG, &erased), KVT_OK);
}
END_TEST

START_TEST(what_is_forgotten_is_gone_from_local_tiers)
{
	below_only(2);
	ck_assert_int_eq(kvt_forget(rig.k, LONG), KVT_OK);
	ck_assert_uint_eq(rig_get(&rig, 1, 2, 0), 0);
	ck_assert_uint_eq(fake_chunks(fake_tier()), 0);
}
END_TEST

START_TEST(a_put_while_an_erase_waits_is_a_new_chunk)
{
	below_only(1);
	fake_hold(fake_tier(), KVT_TIER_ERASE, true);
	ck_assert_int_eq(kvt_erase(rig.k, keys, 1, 0, NULL), KVT_MISS);
	ck_assert_int_eq(rig_put(&rig, 1, 0), KVT_OK);
	ck_assert_uint_eq(rig_get(&rig, 1, 1, 0), 1);
	fake_hold(fake_tier(), KVT_TIER_ERASE, false);
	rig_settle(&rig);
	ck_assert_uint_eq(rig_get(&rig, 1, 1, 0), 1);
}
END_TEST

START_TEST(erase_while_closing_is_finished)
{
	uint64_t op;

	fake_hold(fake_tier(), KVT_TIER_WRITE, true);
	rig_put_chain(&rig, 1, 2);
	rig_settle(&rig);
	ck_assert_int_eq(kvt_erase_begin(rig.k, keys, 2, LONG, 0, &op), KVT_OK);
	fake_hold(fake_tier(), KVT_TIER_WRITE, false);
} /* close_rig waits for what is under way */
END_TEST

int main(void)
{
	TCase *tc = tcase_create("races");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, open_rig, close_rig);
	tcase_add_test(tc, erase_reaches_every_tier);
	tcase_add_test(tc, it_is_gone_before_the_tier_answers);
	tcase_add_test(tc, a_load_under_way_brings_nothing_back);
	tcase_add_loop_test(tc, a_get_that_waits_hands_out_nothing_erased, 0, 2);
	tcase_add_test(tc, a_load_in_line_brings_nothing_back);
	tcase_add_test(tc, a_store_under_way_leaves_nothing_behind);
	tcase_add_test(tc, a_store_in_line_is_dropped);
	tcase_add_test(tc, a_tier_that_refuses_is_asked_again);
	tcase_add_test(tc, a_refused_erase_of_a_written_chunk_is_asked_again);
	tcase_add_test(tc, a_chunk_waits_for_a_parent_that_waits_for_an_erase);
	tcase_add_test(tc, a_failed_flush_is_reported);
	tcase_add_test(tc, tenants_and_all_are_erased_everywhere);
	tcase_add_test(tc, what_is_erased_is_counted_in_each_tier);
	tcase_add_test(tc, all_that_is_asked_for_must_hold);
	tcase_add_test(tc, the_ends_of_a_chunk_go_with_its_key);
	tcase_add_test(tc, what_a_silent_tier_may_have_is_not_called_erased);
	tcase_add_test(tc, a_lease_outlives_the_erase);
	tcase_add_test(tc, an_erase_of_nothing_in_particular_is_refused);
	tcase_add_test(tc, what_is_forgotten_is_gone_from_local_tiers);
	tcase_add_test(tc, a_put_while_an_erase_waits_is_a_new_chunk);
	tcase_add_test(tc, erase_while_closing_is_finished);
	return run_tcase("cache/core erase", tc);
}
