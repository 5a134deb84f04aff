/*
 * shared_test.c - a tier that other machines share: what it has is known only after it was asked.
 * Without threads, so that each step is the test's.
 */
#include <stdlib.h>
#include <string.h>

#include "core/core.h"
#include "support.h"
#include "tests/unit/suite.h"

#define LONG (1000 * SECOND)

static struct rig rig;

static void open_rig(void)
{
	rig_init(&rig);
	rig.remote = true;
	rig_open(&rig);
}

static void close_rig(void)
{
	if (rig.k != NULL)
		rig_close(&rig);
}

/* Chunks [from, to) of chain 1 come into the tier from elsewhere. */
static void plant(uint32_t from, uint32_t to)
{
	uint8_t *data = malloc(CHUNK);

	ck_assert_ptr_nonnull(data);
	for (uint32_t i = from; i < to; i++) {
		struct kvt_key key = key_of(1, i);

		bytes_of(&key, data, CHUNK);
		fake_plant(fake_tier(), &key, data, CHUNK);
	}
	free(data);
}

static size_t find(uint32_t n, uint64_t timeout_ns, uint8_t *tiers)
{
	struct kvt_key keys[64];
	struct kvt_lookup out;

	keys_of(1, n, keys);
	ck_assert_int_eq(kvt_find(rig.k, keys, n, KVT_ALL_TIERS, timeout_ns, tiers, &out), KVT_OK);
	return out.hits;
}

static size_t probes(void)
{
	return fake_begun(fake_tier(), KVT_TIER_PROBE);
}

START_TEST(a_lookup_asks_no_server)
{
	plant(0, 3);
	ck_assert_uint_eq(rig_lookup(&rig, 1, 3, NULL), 0);
	ck_assert_uint_eq(probes(), 0);
}
END_TEST

START_TEST(a_find_asks_once_for_the_whole_chain)
{
	uint8_t tiers[6];

	plant(0, 4);
	ck_assert_uint_eq(find(6, LONG, tiers), 4);
	ck_assert_uint_eq(tiers[3], KVT_TIER_L2);
	ck_assert_uint_eq(tiers[4], KVT_TIER_NONE);
	ck_assert_uint_eq(probes(), 1);
	ck_assert_uint_eq(rig_lookup(&rig, 1, 6, NULL), 4); /* known from now on */
	ck_assert_uint_eq(find(6, LONG, NULL), 4);          /* and that the fifth is missing */
	ck_assert_uint_eq(probes(), 1);
	ck_assert_uint_eq(rig_stats(&rig).probe_chunks, 6);
	ck_assert_uint_eq(rig_stats(&rig).probe_hits, 4);
	ck_assert_uint_eq(rig_stats(&rig).finds, 2);
}
END_TEST

START_TEST(a_find_asks_only_about_what_is_not_known)
{
	plant(2, 5);
	ck_assert_int_eq(rig_put(&rig, 1, 0), KVT_OK);
	ck_assert_int_eq(rig_put(&rig, 1, 1), KVT_OK);
	ck_assert_uint_eq(find(5, LONG, NULL), 5);
	ck_assert_uint_eq(rig_stats(&rig).probe_chunks, 3);
}
END_TEST

START_TEST(a_find_that_masks_the_tier_does_not_ask_it)
{
	struct kvt_key keys[2];
	struct kvt_lookup out;

	plant(0, 2);
	keys_of(1, 2, keys);
	ck_assert_int_eq(kvt_find(rig.k, keys, 2, KVT_IN(KVT_TIER_L1), LONG, NULL, &out), KVT_OK);
	ck_assert_uint_eq(out.hits, 0);
	ck_assert_uint_eq(probes(), 0);
}
END_TEST

START_TEST(a_find_ends_at_its_deadline)
{
	struct kvt_key keys[3];
	struct kvt_completion c;
	uint64_t op;

	plant(0, 3);
	fake_hold(fake_tier(), KVT_TIER_PROBE, true);
	keys_of(1, 3, keys);
	ck_assert_int_eq(kvt_find_begin(rig.k, keys, 3, KVT_ALL_TIERS, SECOND, 5, &op), KVT_OK);
	rig_settle(&rig);
	ck_assert_uint_eq(kvt_poll(rig.k, &c, 1), 0);
	rig_advance(&rig, SECOND);
	ck_assert_uint_eq(kvt_poll(rig.k, &c, 1), 1);
	ck_assert_uint_eq(c.kind, KVT_OP_FIND);
	ck_assert_uint_eq(c.status, KVT_OK);
	ck_assert_uint_eq(c.count, 0);
	ck_assert_uint_eq(c.user, 5);
	fake_hold(fake_tier(), KVT_TIER_PROBE, false); /* the late answer serves the next one */
	rig_settle(&rig);
	ck_assert_uint_eq(rig_lookup(&rig, 1, 3, NULL), 3);
}
END_TEST

START_TEST(an_asynchronous_find_returns_how_many)
{
	struct kvt_key keys[5];
	struct kvt_completion c;
	uint64_t op;

	plant(0, 3);
	keys_of(1, 5, keys);
	ck_assert_int_eq(kvt_find_begin(rig.k, keys, 5, KVT_ALL_TIERS, LONG, 6, &op), KVT_OK);
	rig_settle(&rig);
	ck_assert_uint_eq(kvt_poll(rig.k, &c, 1), 1);
	ck_assert_uint_eq(c.op, op);
	ck_assert_uint_eq(c.count, 3);
	ck_assert_int_eq(kvt_find_begin(rig.k, keys, 5, KVT_ALL_TIERS, LONG, 7, &op), KVT_OK);
	ck_assert_uint_eq(kvt_poll(rig.k, &c, 1), 1); /* nothing to ask: at once */
	ck_assert_uint_eq(c.count, 3);
	ck_assert_int_eq(kvt_find_begin(rig.k, keys, 5, KVT_ALL_TIERS, LONG, 8, &op), KVT_OK);
	ck_assert_int_eq(kvt_cancel(rig.k, op), KVT_OK);
	ck_assert_uint_eq(probes(), 1);
}
END_TEST

START_TEST(a_get_asks_and_fetches)
{
	plant(0, 4);
	ck_assert_uint_eq(rig_get(&rig, 1, 6, LONG), 4);
	ck_assert_uint_eq(probes(), 1);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L2].hits, 4);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L2].misses, 2);
	ck_assert_uint_eq(rig_get(&rig, 1, 4, LONG), 4); /* in L1 by now */
	ck_assert_uint_eq(probes(), 1);
}
END_TEST

START_TEST(a_get_fetches_known_chunks_while_it_asks)
{
	struct kvt_key keys[5];
	struct kvt_lease *lease;
	uint64_t op;

	plant(0, 2);
	ck_assert_uint_eq(find(2, LONG, NULL), 2);
	plant(2, 5);
	fake_hold(fake_tier(), KVT_TIER_PROBE, true);
	keys_of(1, 5, keys);
	ck_assert_int_eq(kvt_get_begin(rig.k, keys, 5, LONG, 0, &op), KVT_OK);
	rig_settle(&rig);
	ck_assert_uint_eq(fake_begun(fake_tier(), KVT_TIER_READ), 2);
	ck_assert_int_eq(kvt_get_take(rig.k, op, &lease), KVT_BUSY);
	fake_hold(fake_tier(), KVT_TIER_PROBE, false);
	rig_settle(&rig);
	ck_assert_int_eq(kvt_get_take(rig.k, op, &lease), KVT_OK);
	check_lease(lease, keys, 5);
	ck_assert_uint_eq(lease->count, 5);
	kvt_release(rig.k, lease);
}
END_TEST

START_TEST(a_get_whose_answer_is_late_has_what_is_known)
{
	struct kvt_key keys[4];
	struct kvt_lease *lease;
	uint64_t op;

	ck_assert_int_eq(rig_put(&rig, 1, 0), KVT_OK);
	rig_settle(&rig);
	plant(1, 4);
	fake_hold(fake_tier(), KVT_TIER_PROBE, true);
	keys_of(1, 4, keys);
	ck_assert_int_eq(kvt_get_begin(rig.k, keys, 4, SECOND, 0, &op), KVT_OK);
	rig_advance(&rig, SECOND);
	ck_assert_int_eq(kvt_get_take(rig.k, op, &lease), KVT_OK);
	ck_assert_uint_eq(lease->count, 1);
	kvt_release(rig.k, lease);
	fake_hold(fake_tier(), KVT_TIER_PROBE, false);
	rig_settle(&rig);
	ck_assert_uint_eq(rig_get(&rig, 1, 4, LONG), 4);
	ck_assert_uint_eq(probes(), 1);
}
END_TEST

START_TEST(what_went_meanwhile_is_a_miss)
{
	plant(0, 3);
	ck_assert_uint_eq(find(3, LONG, NULL), 3);
	fake_vanish(fake_tier());
	ck_assert_uint_eq(rig_get(&rig, 1, 3, LONG), 0);
}
END_TEST

START_TEST(a_failed_load_ends_the_question)
{
	struct kvt_key key = key_of(1, 1), keys[6];
	struct kvt_lease *lease;
	uint64_t op;

	plant(0, 3);
	ck_assert_uint_eq(find(3, LONG, NULL), 3);
	plant(3, 6);
	fake_damage(fake_tier(), &key);
	fake_hold(fake_tier(), KVT_TIER_PROBE, true);
	keys_of(1, 6, keys);
	ck_assert_int_eq(kvt_get_begin(rig.k, keys, 6, LONG, 0, &op), KVT_OK);
	rig_settle(&rig);
	ck_assert_int_eq(kvt_get_take(rig.k, op, &lease), KVT_OK);
	ck_assert_uint_eq(lease->count, 1);
	check_lease(lease, keys, 6);
	kvt_release(rig.k, lease);
	fake_hold(fake_tier(), KVT_TIER_PROBE, false);
	rig_settle(&rig);
}
END_TEST

START_TEST(a_tier_that_fails_is_not_asked)
{
	plant(0, 3);
	fake_answer(fake_tier(), KVT_TIER_PROBE, KVT_EIO, UINT32_MAX);
	for (uint32_t i = 0; i < rig.config.breaker_failures; i++)
		ck_assert_uint_eq(find(3, LONG, NULL), 0);
	ck_assert_uint_eq(probes(), rig.config.breaker_failures);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L2].state, KVT_TIER_PAUSED);
	ck_assert_uint_eq(find(3, LONG, NULL), 0);
	ck_assert_uint_eq(rig_get(&rig, 1, 3, LONG), 0);
	ck_assert_uint_eq(probes(), rig.config.breaker_failures);
	fake_answer(fake_tier(), KVT_TIER_PROBE, KVT_OK, 0);
	rig_advance(&rig, 2 * (int64_t)rig.config.breaker_open_ns);
	ck_assert_uint_eq(find(3, LONG, NULL), 3);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L2].state, KVT_TIER_WORKS);
}
END_TEST

START_TEST(a_tier_that_stalls_lets_askers_go)
{
	struct kvt_key keys[3];
	struct kvt_completion c;
	uint64_t op;

	plant(0, 3);
	fake_hold(fake_tier(), KVT_TIER_PROBE, true);
	keys_of(1, 3, keys);
	ck_assert_int_eq(kvt_find_begin(rig.k, keys, 3, KVT_ALL_TIERS, LONG, 5, &op), KVT_OK);
	for (int i = 0; i < 40 && kvt_poll(rig.k, &c, 1) == 0; i++)
		rig_advance(&rig, SECOND);
	ck_assert_uint_eq(c.op, op); /* long before its own time was over */
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L2].state, KVT_TIER_PAUSED);
	fake_hold(fake_tier(), KVT_TIER_PROBE, false);
}
END_TEST

START_TEST(a_prefetch_asks_and_loads)
{
	struct kvt_key keys[4];

	plant(0, 3);
	keys_of(1, 4, keys);
	ck_assert_int_eq(kvt_prefetch(rig.k, keys, 4), KVT_OK);
	rig_settle(&rig);
	ck_assert_uint_eq(rig_stats(&rig).prefetches, 3);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L1].chunks, 3);
	ck_assert_uint_eq(rig_get(&rig, 1, 3, 0), 3);
}
END_TEST

START_TEST(an_erased_chunk_is_erased_there)
{
	struct kvt_key keys[3];
	size_t erased = 0;

	plant(0, 3);
	keys_of(1, 3, keys);
	ck_assert_int_eq(kvt_erase(rig.k, keys, 3, LONG, &erased), KVT_OK);
	ck_assert_uint_eq(fake_chunks(fake_tier()), 0);
	ck_assert_uint_eq(find(3, LONG, NULL), 0);
}
END_TEST

/* Nothing is owed to it: it may have the chunk still. */
START_TEST(an_erase_that_it_refuses_is_not_asked_again)
{
	struct kvt_key keys[2];

	plant(0, 1);
	keys_of(1, 2, keys);
	fake_answer(fake_tier(), KVT_TIER_ERASE, KVT_EIO, 1);
	ck_assert_int_eq(kvt_erase(rig.k, keys, 1, LONG, NULL), KVT_MISS);
	rig_advance(&rig, 10 * SECOND);
	ck_assert_uint_eq(fake_begun(fake_tier(), KVT_TIER_ERASE), 1);
	ck_assert_ptr_null(rig.k->barriers.first);
	ck_assert_uint_eq(rig.k->tombs.count, 0);
	ck_assert(fake_has(fake_tier(), &keys[0]));
	ck_assert_int_eq(rig_put(&rig, 1, 0), KVT_OK);
}
END_TEST

/* Nor for a store that was under way when it was erased. */
START_TEST(an_erased_store_that_it_keeps_is_not_waited_for)
{
	struct kvt_key keys[1];

	keys_of(1, 1, keys);
	fake_hold(fake_tier(), KVT_TIER_WRITE, true);
	ck_assert_int_eq(rig_put(&rig, 1, 0), KVT_OK);
	rig_settle(&rig);
	fake_answer(fake_tier(), KVT_TIER_ERASE, KVT_EIO, 2);
	ck_assert_int_eq(kvt_erase(rig.k, keys, 1, 0, NULL), KVT_MISS);
	fake_hold(fake_tier(), KVT_TIER_WRITE, false);
	rig_settle(&rig);
	rig_advance(&rig, 10 * SECOND);
	ck_assert_uint_eq(fake_begun(fake_tier(), KVT_TIER_ERASE), 2);
	ck_assert_uint_eq(rig.k->tombs.count, 0);
	ck_assert_uint_eq(rig.k->stores.count, 0);
}
END_TEST

START_TEST(close_while_it_is_asked)
{
	struct kvt_key keys[3];
	uint64_t op;

	plant(0, 3);
	keys_of(1, 3, keys);
	ck_assert_int_eq(kvt_get_begin(rig.k, keys, 3, LONG, 0, &op), KVT_OK);
	ck_assert_int_eq(kvt_find_begin(rig.k, keys, 3, KVT_ALL_TIERS, LONG, 0, &op), KVT_OK);
	ck_assert_int_eq(kvt_prefetch(rig.k, keys, 3), KVT_OK);
	rig_close(&rig);
}
END_TEST

/* Other replicas go on using what a shared tier holds; what is this handle's own is gone. */
START_TEST(a_forgotten_chunk_stays_in_a_shared_tier)
{
	plant(0, 3);
	ck_assert_int_eq(rig_put(&rig, 2, 0), KVT_OK);
	ck_assert_uint_eq(rig_get(&rig, 1, 3, LONG), 3); /* copies in memory, too */
	ck_assert_int_eq(kvt_forget(rig.k, LONG), KVT_OK);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L1].chunks, 0);
	ck_assert_uint_ge(fake_chunks(fake_tier()), 3);
	ck_assert_uint_eq(find(3, LONG, NULL), 3);
	ck_assert_int_eq(kvt_reset(rig.k), KVT_OK);
	ck_assert_uint_eq(fake_chunks(fake_tier()), 0);
}
END_TEST

START_TEST(questions_are_bounded)
{
	struct kvt_key key;

	fake_hold(fake_tier(), KVT_TIER_PROBE, true);
	for (uint32_t i = 0; i < 2000; i++) {
		key = key_of(7, i);
		ck_assert_int_eq(kvt_prefetch(rig.k, &key, 1), KVT_OK);
	}
	ck_assert_uint_eq(probes(), 256);
	fake_hold(fake_tier(), KVT_TIER_PROBE, false);
	rig_settle(&rig);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("over a fake shared tier");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, open_rig, close_rig);
	tcase_add_test(tc, a_lookup_asks_no_server);
	tcase_add_test(tc, a_find_asks_once_for_the_whole_chain);
	tcase_add_test(tc, a_find_asks_only_about_what_is_not_known);
	tcase_add_test(tc, a_find_that_masks_the_tier_does_not_ask_it);
	tcase_add_test(tc, a_find_ends_at_its_deadline);
	tcase_add_test(tc, an_asynchronous_find_returns_how_many);
	tcase_add_test(tc, a_get_asks_and_fetches);
	tcase_add_test(tc, a_get_fetches_known_chunks_while_it_asks);
	tcase_add_test(tc, a_get_whose_answer_is_late_has_what_is_known);
	tcase_add_test(tc, what_went_meanwhile_is_a_miss);
	tcase_add_test(tc, a_failed_load_ends_the_question);
	tcase_add_test(tc, a_tier_that_fails_is_not_asked);
	tcase_add_test(tc, a_tier_that_stalls_lets_askers_go);
	tcase_add_test(tc, a_prefetch_asks_and_loads);
	tcase_add_test(tc, an_erased_chunk_is_erased_there);
	tcase_add_test(tc, an_erase_that_it_refuses_is_not_asked_again);
	tcase_add_test(tc, an_erased_store_that_it_keeps_is_not_waited_for);
	tcase_add_test(tc, close_while_it_is_asked);
	tcase_add_test(tc, a_forgotten_chunk_stays_in_a_shared_tier);
	tcase_add_test(tc, questions_are_bounded);
	return run_tcase("cache/core shared", tc);
}
