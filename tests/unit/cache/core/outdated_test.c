/*
 * outdated_test.c - what a shared tier has under keys that were put while it was left alone is neither
 * read nor kept, and holds up no other tier. Without threads, so that each step is the test's.
 */
#include <string.h>

#include "core/barrier.h"
#include "core/breaker.h"
#include "core/lower.h"
#include "core/outdated.h"
#include "support.h"
#include "tests/unit/suite.h"

#define LONG (1000 * SECOND)
#define MOST 65536u /* keys that are kept in mind */

static struct rig rig;
static struct kvt_key keys[8];
static struct fake_tier *shared, *local;

/* A tier of this handle's own, then a shared one. */
static void open_rig(void)
{
	static const struct kvt_tier_ops *const both[] = {&fake_tier_ops, &fake_remote_ops, NULL};

	rig_init(&rig);
	ck_assert_int_eq(kvt_open_with(&rig.config, both, &rig.k), KVT_OK);
	shared = fake_remote();
	local = (struct fake_tier *)atomic_load(&rig.k->lower[0].tier);
	keys_of(1, 8, keys);
}

static void close_rig(void)
{
	rig_close(&rig);
}

/* The shared tier is left alone, as after requests that failed one after another. */
static void leave_alone(void)
{
	struct kvt_breaker *breaker = &rig.k->lower[1].breaker;
	struct kvt_job job = {.probe = false};

	for (uint32_t i = 0; breaker->state == KVT_BREAKER_CLOSED && i < 100; i++) {
		job.round = breaker->round;
		(void)kvt_breaker_end(breaker, &job, KVT_OUTCOME_BAD, rig.now_ns);
	}
	ck_assert_int_eq(breaker->state, KVT_BREAKER_OPEN);
}

/* The pause is over, and no other request is the probe. */
static void ask_again(void)
{
	size_t begun = fake_begun(shared, KVT_TIER_ERASE);

	rig_advance(&rig, 600 * SECOND);
	ck_assert_int_eq(rig.k->lower[1].breaker.state, KVT_BREAKER_HALF);
	ck_assert_uint_eq(fake_begun(shared, KVT_TIER_ERASE), begun);
	rig_advance(&rig, 1 * SECOND);
	ck_assert_uint_gt(fake_begun(shared, KVT_TIER_ERASE), begun);
}

/* Another process has something under this key. */
static void plant(const struct kvt_key *key)
{
	fake_plant(shared, key, "older", 5);
}

static void outdate(const struct kvt_key *key)
{
	ck_assert_int_eq(kvt_outdate(rig.k, key), KVT_OK);
}

START_TEST(a_tier_that_has_erased_takes_the_next_chunk)
{
	uint8_t tier;

	ck_assert_int_eq(rig_put(&rig, 1, 0), KVT_OK);
	rig_settle(&rig);
	ck_assert(fake_has(local, &keys[0]) && fake_has(shared, &keys[0]));
	fake_answer(shared, KVT_TIER_ERASE, KVT_EIO, UINT32_MAX);
	ck_assert_int_eq(kvt_erase(rig.k, keys, 1, 0, NULL), KVT_MISS);
	rig_settle(&rig);
	ck_assert(!fake_has(local, &keys[0]) && fake_has(shared, &keys[0]));
	ck_assert_uint_eq(rig_lookup(&rig, 1, 1, &tier), 0);
	ck_assert_int_eq(rig_put(&rig, 1, 0), KVT_OK);
	rig_settle(&rig);
	ck_assert(fake_has(local, &keys[0]));
	rig_push_out(&rig);
	ck_assert_uint_eq(rig_lookup(&rig, 1, 1, &tier), 1);
	ck_assert_uint_eq(tier, KVT_TIER_NVME);
	ck_assert_uint_eq(rig_get(&rig, 1, 1, LONG), 1);
}
END_TEST

START_TEST(what_was_put_meanwhile_replaces_what_is_there)
{
	plant(&keys[0]);
	plant(&keys[1]);
	leave_alone();
	ck_assert_int_eq(kvt_lower_unseen(rig.k, &keys[0]), KVT_UNSEEN_SHARED);
	outdate(&keys[0]);
	outdate(&keys[0]);
	ck_assert_uint_eq(kvt_outdated_count(rig.k), 1);
	ck_assert_int_eq(kvt_lower_unseen(rig.k, &keys[0]), KVT_UNSEEN_NOT);
	ck_assert(!kvt_lower_may_have(rig.k, &keys[0]));
	ck_assert(kvt_lower_may_have(rig.k, &keys[1]));
	ck_assert_int_eq(rig_put(&rig, 1, 0), KVT_OK);
	rig_settle(&rig);
	ck_assert(fake_has(local, &keys[0])); /* it waits for no other tier */
	ck_assert_uint_eq(fake_begun(shared, KVT_TIER_ERASE), 0);
	fake_answer(shared, KVT_TIER_ERASE, KVT_EIO, 1);
	ask_again(); /* and it is still away */
	ck_assert_uint_eq(fake_begun(shared, KVT_TIER_ERASE), 1);
	ck_assert_uint_eq(kvt_outdated_count(rig.k), 1);
	ck_assert_uint_eq(fake_begun(shared, KVT_TIER_WRITE), 0);
	ask_again();
	ck_assert_uint_eq(fake_begun(shared, KVT_TIER_ERASE), 2);
	ck_assert_uint_eq(kvt_outdated_count(rig.k), 0);
	ck_assert_uint_eq(fake_begun(shared, KVT_TIER_WRITE), 1); /* not as long as the older one was there */
	ck_assert(fake_has(shared, &keys[0]) && fake_has(shared, &keys[1]));
}
END_TEST

START_TEST(what_left_memory_meanwhile_does_not_come_back_older)
{
	struct kvt_lookup out;

	plant(&keys[0]);
	leave_alone();
	outdate(&keys[0]);
	ck_assert_int_eq(rig_put(&rig, 1, 0), KVT_OK);
	rig_settle(&rig);
	ck_assert_int_eq(kvt_forget(rig.k, 0), KVT_MISS); /* it leaves memory and disk */
	ask_again();
	ck_assert_int_eq(rig.k->lower[1].breaker.state, KVT_BREAKER_CLOSED);
	ck_assert_int_eq(kvt_find(rig.k, keys, 1, KVT_ALL_TIERS, LONG, NULL, &out), KVT_OK);
	ck_assert_uint_eq(out.hits, 0);
	ck_assert(!fake_has(shared, &keys[0]));
}
END_TEST

START_TEST(a_local_tier_that_has_it_is_to_erase_it)
{
	ck_assert_int_eq(rig_put(&rig, 1, 0), KVT_OK);
	rig_settle(&rig);
	ck_assert_int_eq(kvt_outdate(rig.k, &keys[0]), KVT_EXISTS);
	outdate(&keys[1]);
	ck_assert_uint_eq(kvt_outdated_count(rig.k), 0); /* the shared tier works */
}
END_TEST

/* Its pause is over, but nothing has worked yet. */
START_TEST(what_is_put_before_it_has_worked_again)
{
	plant(&keys[0]);
	leave_alone();
	rig_advance(&rig, 600 * SECOND);
	ck_assert_int_eq(rig.k->lower[1].breaker.state, KVT_BREAKER_HALF);
	ck_assert_int_eq(kvt_lower_unseen(rig.k, &keys[0]), KVT_UNSEEN_SHARED);
	outdate(&keys[0]);
	ck_assert_uint_eq(kvt_outdated_count(rig.k), 1);
}
END_TEST

/* Put while it was thought to work. */
START_TEST(what_a_failing_tier_does_not_store_is_older_there)
{
	plant(&keys[0]);
	fake_answer(shared, KVT_TIER_WRITE, KVT_EIO, 1);
	ck_assert_int_eq(rig_put(&rig, 1, 0), KVT_OK);
	rig_settle(&rig);
	ck_assert(fake_has(shared, &keys[0])); /* a cache that never replaces what it has stored */
	outdate(&keys[1]);
	fake_answer(shared, KVT_TIER_WRITE, KVT_EIO, 1);
	plant(&keys[2]);
	ck_assert_int_eq(rig_put(&rig, 1, 2), KVT_OK);
	rig_settle(&rig);
	ck_assert(!fake_has(shared, &keys[2]));
	ck_assert_uint_eq(kvt_outdated_count(rig.k), 0);
}
END_TEST

/* One key that is not to be erased holds up no other for long. */
START_TEST(keys_that_are_refused_go_to_the_end)
{
	for (int i = 0; i < 8; i++)
		plant(&keys[i]);
	leave_alone();
	for (int i = 0; i < 8; i++)
		outdate(&keys[i]);
	fake_answer(shared, KVT_TIER_ERASE, KVT_EIO, 1);
	ask_again();
	ck_assert_uint_eq(kvt_outdated_count(rig.k), 8);
	ask_again(); /* the first half, then the other */
	ck_assert_uint_eq(fake_begun(shared, KVT_TIER_ERASE), 3);
	ck_assert_uint_eq(kvt_outdated_count(rig.k), 0);
	for (int i = 0; i < 8; i++)
		ck_assert(!fake_has(shared, &keys[i]));
}
END_TEST

START_TEST(beyond_the_bound_puts_are_refused)
{
	struct kvt_key more = key_of(3, 0);

	plant(&keys[0]);
	leave_alone();
	for (uint32_t i = 0; i < MOST; i++) {
		struct kvt_key key = key_of(2, i);

		outdate(&key);
		if (i == 0)
			outdate(&key); /* it is there already */
	}
	ck_assert_uint_eq(kvt_outdated_count(rig.k), MOST);
	ck_assert_int_eq(kvt_outdate(rig.k, &more), KVT_BUSY);
	ck_assert_uint_eq(kvt_outdated_count(rig.k), MOST);
	ck_assert(fake_has(shared, &keys[0]));
	/* What callers erase has its effect all the same. */
	for (uint32_t i = 0; i <= MOST; i++) {
		more = key_of(3, i);
		ck_assert_uint_eq(kvt_outdated_count(rig.k), MOST + i);
		pthread_mutex_lock(&rig.k->lock);
		ck_assert(kvt_outdated_add(&rig.k->lower[1], &more, 1));
		pthread_mutex_unlock(&rig.k->lock);
	}
	ck_assert_uint_eq(kvt_outdated_count(rig.k), 0);
	ck_assert(!fake_has(shared, &keys[0]));
	ck_assert_uint_eq(rig.k->tombs.count, 0);
}
END_TEST

/* Erases whose callers do not wait any more cost nothing but their keys. */
START_TEST(erases_of_a_tier_that_is_away_do_not_pile_up)
{
	ck_assert_int_eq(rig_put(&rig, 1, 0), KVT_OK);
	rig_settle(&rig);
	fake_answer(shared, KVT_TIER_ERASE, KVT_EIO, UINT32_MAX);
	for (int i = 0; i < 20; i++) {
		ck_assert_int_eq(kvt_erase(rig.k, keys, 2, 0, NULL), KVT_MISS);
		rig_advance(&rig, 2 * SECOND);
		ck_assert_int_eq(rig_put(&rig, 1, 0), KVT_OK);
	}
	rig_advance(&rig, 2 * SECOND);
	ck_assert_uint_eq(kvt_outdated_count(rig.k), 2);
	ck_assert_ptr_null(rig.k->barriers.first);
	ck_assert(kvt_barriers_owe(rig.k));
	fake_answer(shared, KVT_TIER_ERASE, KVT_OK, 0);
	rig_advance(&rig, 600 * SECOND); /* the pause is over, ... */
	rig_advance(&rig, 600 * SECOND); /* ... and no other request was the probe */
	ck_assert(!kvt_barriers_owe(rig.k));
	ck_assert_uint_eq(rig.k->tombs.count, 0);
	ck_assert(fake_has(shared, &keys[0]) && !fake_has(shared, &keys[1]));
}
END_TEST

int main(void)
{
	TCase *cases = tcase_create("outdated");

	tcase_set_timeout(cases, 60);
	tcase_add_checked_fixture(cases, open_rig, close_rig);
	tcase_add_test(cases, a_tier_that_has_erased_takes_the_next_chunk);
	tcase_add_test(cases, what_was_put_meanwhile_replaces_what_is_there);
	tcase_add_test(cases, what_left_memory_meanwhile_does_not_come_back_older);
	tcase_add_test(cases, a_local_tier_that_has_it_is_to_erase_it);
	tcase_add_test(cases, what_is_put_before_it_has_worked_again);
	tcase_add_test(cases, what_a_failing_tier_does_not_store_is_older_there);
	tcase_add_test(cases, keys_that_are_refused_go_to_the_end);
	tcase_add_test(cases, beyond_the_bound_puts_are_refused);
	tcase_add_test(cases, erases_of_a_tier_that_is_away_do_not_pile_up);
	return run_tcase("cache/core/outdated", cases);
}
